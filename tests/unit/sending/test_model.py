"""Tries of a send in every order Airflow, its people and the service can think of: nobody twice, nobody missing."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from cpaas_provider.sending import engine as engine_module
from cpaas_provider.sending.errors import StoppedError, UnknownOutcomeError
from cpaas_provider.sending.journal import writer as writer_module
from cpaas_provider.sending.journal.resolution import Resolution
from cpaas_provider.sending.spec import OnUnknown
from tests.unit.sending.answers import Form
from tests.unit.sending.campaign.model import Inline
from tests.unit.sending.model import (
    PEOPLE,
    SECRETS,
    TEXTS,
    UNDISTURBED,
    WORDS,
    AtGet,
    AtLook,
    AtRequest,
    AtSet,
    Plan,
    Replaced,
    World,
)


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(writer_module, "_FIRST_PAUSE", 0.0)
    monkeypatch.setattr(writer_module, "_LONGEST_WAIT", 0.0)
    # So large that the writer waits for the next intent, whatever time a write took.
    monkeypatch.setattr(writer_module, "_WAIT_RATIO", 1e12)
    monkeypatch.setattr(writer_module, "ThreadPoolExecutor", Inline)
    monkeypatch.setattr(engine_module, "_FIRST_PAUSE", 0.0)
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def plans(follower: st.SearchStrategy[Plan | None] = st.none()) -> st.SearchStrategy[Plan]:  # noqa: B008
    return st.builds(
        Plan,
        get=st.sampled_from([AtGet.FINE, AtGet.FINE, AtGet.FINE, *AtGet]),
        sets=st.lists(st.sampled_from([AtSet.FINE, *AtSet]), max_size=6).map(tuple),
        looks=st.lists(st.sampled_from([AtLook.FINE, AtLook.BLIND, *AtLook]), max_size=4).map(tuple),
        requests=st.lists(st.sampled_from([*AtRequest, *Form]), max_size=5).map(tuple),
        replaced=st.sampled_from(Replaced),
        late=st.sampled_from([False, False, False, True]),
        follower=follower,
    )


EDITS: st.SearchStrategy[tuple[str, Any]] = st.one_of(
    st.tuples(st.just("member"), st.sampled_from(PEOPLE)),
    st.tuples(
        st.just("source"),
        st.builds(lambda people, size: tuple(people[:size]), st.permutations(PEOPLE), st.integers(1, 4)),
    ),
    st.tuples(st.just("text"), st.sampled_from(TEXTS)),
    st.tuples(
        st.just("personal"),
        st.none()
        | st.lists(st.sampled_from(WORDS), min_size=5, max_size=5).map(
            lambda words: dict(zip(PEOPLE, words, strict=True))
        ),
    ),
    st.tuples(
        st.just("secrets"),
        st.sampled_from([SECRETS[:1], SECRETS[:2], SECRETS[1::-1], SECRETS[::-1], SECRETS[1:2], SECRETS[1:]]),
    ),
    st.tuples(st.just("policy"), st.sampled_from(OnUnknown)),
)
DROPPED = st.booleans()


class Tries(RuleBasedStateMachine):
    """One task instance of one run, until nobody looks at it any more."""

    world: World
    clears_drop: bool
    """Whether a clear drops the task's state, as it will from Airflow 3.4 on, or may."""

    @initialize(
        policy=st.sampled_from(OnUnknown),
        resend_on_clear=st.sampled_from([False, False, True]),
        retries=st.sampled_from([0, 2, 5]),
        looks=st.booleans(),
        counts_ahead=st.booleans(),
        clears_drop=st.sampled_from([False, False, True]),
        waits=st.booleans(),
    )
    def make(self, clears_drop: bool, waits: bool, **given: Any) -> None:
        self.clears_drop = clears_drop
        # Whether a result is stored together with the next intent. Real time would let one story happen in two ways.
        writer_module._LONGEST_WAIT = 60.0 if waits else 0.0
        self.world = World(**given)

    @rule(plan=plans(st.none() | plans()), edits=st.lists(EDITS, max_size=2), dropped=DROPPED)
    def disturbed_try(self, plan: Plan, edits: list[tuple[str, Any]], dropped: bool) -> None:
        self.next_try(plan, edits, dropped)

    @rule(edits=st.lists(EDITS, max_size=2), dropped=DROPPED)
    def undisturbed_try(self, edits: list[tuple[str, Any]], dropped: bool) -> None:
        self.next_try(UNDISTURBED, edits, dropped)

    @rule(answer=st.sampled_from([*AtRequest, *Form]), edits=st.lists(EDITS, max_size=1), dropped=DROPPED)
    def one_answer(self, answer: AtRequest | Form, edits: list[tuple[str, Any]], dropped: bool) -> None:
        self.next_try(Plan(requests=(answer,)), edits, dropped)

    def next_try(self, plan: Plan, edits: list[tuple[str, Any]], dropped: bool) -> None:
        for what, value in edits:
            self.edit(what, value)
        if self.world.state in {"success", "failed"}:
            self.world.clear(dropped=dropped and self.clears_drop)
        self.world.run(plan)

    def edit(self, what: str, value: Any) -> None:
        if what == "member":
            left = tuple(other for other in self.world.source if other != value)
            what, value = "source", left if left and left != self.world.source else (*left, value)
        setattr(self.world, what, value)

    @precondition(lambda self: self.world.state in {"up_for_retry", "deferred"})
    @rule(dropped=DROPPED)
    def cleared_before_it_ended(self, dropped: bool) -> None:
        self.world.clear(dropped=dropped and self.clears_drop)

    @rule()
    def another_task_cleared(self) -> None:
        self.world.clear_another_task()

    @precondition(lambda self: self.world.in_flight)
    @rule()
    def what_was_under_way_arrives(self) -> None:
        self.world.arrive()

    @precondition(lambda self: self.world.unresolved)
    @rule(decision=st.sampled_from(Resolution), which=st.integers(0, 5))
    def decided_by_hand(self, decision: Resolution, which: int) -> None:
        unresolved = self.world.unresolved
        self.world.mark(unresolved[which % len(unresolved)], decision)

    @precondition(lambda self: self.world.state != "running")
    @rule(which=st.integers(0, 5))
    def a_write_is_carried_out_late(self, which: int) -> None:
        self.world.carry_out_again(which)

    @invariant()
    def nothing_happened_that_must_not(self) -> None:
        assert not getattr(self, "world", None) or not self.world.violations, self.world.violations


def test_tries_in_any_order_reach_no_recipient_twice_and_miss_none() -> None:
    run_state_machine_as_test(
        Tries,
        settings=settings(
            max_examples=min(2 * settings().max_examples, 2000) if settings().max_examples >= 50 else 10,
            stateful_step_count=25,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize("policy", [OnUnknown.FAIL, OnUnknown.SKIP])
def test_request_answered_in_one_form_reaches_no_recipient_twice(policy: OnUnknown, form: Form) -> None:
    world = World(policy=policy)
    world.source = PEOPLE[:3]
    for _ in range(3):
        world.run(Plan(requests=(form,) * 9))
        if world.state in {"success", "failed"}:
            world.clear(dropped=False)
    world.run()
    assert not world.violations
    assert world.reached == set(world.source)


def test_recipient_that_returns_to_the_source_after_a_lost_state_is_not_sent_again() -> None:
    world = World(policy=OnUnknown.FAIL)
    world.run()
    world.clear(dropped=True)
    world.source = PEOPLE[:1]
    world.run()
    world.clear(dropped=False)
    world.source = PEOPLE[:2]
    end = world.run()
    assert not world.violations
    assert isinstance(end.error, UnknownOutcomeError)
    assert not end.requests


@pytest.mark.parametrize("policy", OnUnknown)
def test_stop_while_the_intent_cannot_be_stored_is_no_success(policy: OnUnknown) -> None:
    world = World(policy=policy, looks=True)
    end = world.run(Plan(sets=(AtSet.DOWN,) * 3, looks=(AtLook.STOPPED,)))
    assert not world.violations
    assert isinstance(end.error, StoppedError)
    assert not end.requests


def test_one_clear_starts_one_resend_although_the_secret_changed() -> None:
    world = World(policy=OnUnknown.FAIL, resend_on_clear=True)
    world.run()
    world.clear(dropped=False)
    world.run(Plan(requests=(AtRequest.KILLED_AFTER,)))
    world.secrets = SECRETS[1:2]
    end = world.run()
    assert not world.violations
    assert isinstance(end.error, UnknownOutcomeError)
    assert not end.requests


def test_resend_after_a_clear_of_a_running_task_has_new_references() -> None:
    world = World(policy=OnUnknown.FAIL, resend_on_clear=True, looks=True)
    world.run()
    world.clear(dropped=False)
    follower = Plan(requests=(AtRequest.UNKNOWN_NOT,))
    world.run(Plan(requests=(AtRequest.ACCEPTED_THEN_REPLACED,), replaced=Replaced.CLEARED_DROPPED, follower=follower))
    assert not world.violations
