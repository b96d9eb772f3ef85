"""Tries of a campaign in every order Airflow, its people and the service can think of: nobody twice, nobody missing."""

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

from cpaas_provider.sending import dispatcher as run_module
from cpaas_provider.sending import engine as engine_module
from cpaas_provider.sending.campaign.recipients import RecipientStatus
from cpaas_provider.sending.errors import UnknownOutcomeError
from cpaas_provider.sending.journal import log as ledger_module
from cpaas_provider.sending.journal import writer as keeper_module
from cpaas_provider.sending.journal.model import State
from cpaas_provider.sending.spec import OnUnknown
from tests.unit.sending.answers import Form
from tests.unit.sending.campaign.model import (
    NAMES,
    PEOPLE,
    TEXTS,
    UNDISTURBED,
    AtRequest,
    AtSet,
    Inline,
    Replaced,
    Script,
    Told,
    World,
)
from tests.unit.sending.campaign.parts import SECRETS


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(keeper_module, "ThreadPoolExecutor", Inline)
    monkeypatch.setattr(keeper_module, "_FIRST_PAUSE", 0.0)
    monkeypatch.setattr(keeper_module, "_LONGEST_WAIT", 0.0)
    monkeypatch.setattr(engine_module, "_FIRST_PAUSE", 0.0)
    # So that a few requests make several segments.
    monkeypatch.setattr(ledger_module, "ROLL_BYTES", 700)
    monkeypatch.setattr(ledger_module, "MAX_BYTES", 2_500)
    monkeypatch.setattr(ledger_module, "MOST_PARTS", 4)
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


SCRIPTS = st.builds(
    Script,
    deaf=st.sampled_from([False] * 9 + [True]),
    sets=st.lists(st.sampled_from([AtSet.FINE, AtSet.FINE, *AtSet]), max_size=8).map(tuple),
    requests=st.lists(st.sampled_from([*[AtRequest.ACCEPTED] * 4, *AtRequest, *Form]), max_size=8).map(tuple),
    replaced=st.sampled_from(Replaced),
    slow=st.lists(st.integers(0, 6), max_size=8).map(tuple),
)
EDITS: st.SearchStrategy[tuple[str, Any]] = st.one_of(
    st.tuples(
        st.just("source"),
        st.builds(
            lambda people, size, again: (*people[:size], *people[:again]),
            st.permutations(PEOPLE),
            st.integers(1, 7),
            st.integers(0, 2),
        ),
    ),
    st.tuples(st.just("text"), st.sampled_from(TEXTS)),
    st.tuples(st.just("name"), st.sampled_from(NAMES)),
    st.tuples(st.just("policy"), st.sampled_from(OnUnknown)),
    st.tuples(st.just("bad"), st.frozensets(st.sampled_from(PEOPLE), max_size=2)),
    st.tuples(st.just("banned"), st.frozensets(st.sampled_from(PEOPLE), max_size=2)),
    st.tuples(st.just("window"), st.integers(1, 4)),
    st.tuples(st.just("per_request"), st.integers(1, 4)),
    st.tuples(st.just("secrets"), st.sampled_from([SECRETS[:1], SECRETS[:1], SECRETS[1::-1], SECRETS[1:2]])),
)
DROPPED = st.booleans()


class Tries(RuleBasedStateMachine):
    """One campaign of one run, until nobody looks at it any more."""

    world: World
    clears_drop: bool

    @initialize(
        policy=st.sampled_from(OnUnknown),
        resend_on_clear=st.sampled_from([False, False, True]),
        retries=st.sampled_from([0, 2, 5]),
        evidence=st.sampled_from([False, False, True]),
        names_refused=st.booleans(),
        max_identical_rejections=st.sampled_from([20, 2]),
        told=st.sampled_from(Told),
        clears_drop=st.sampled_from([False, False, True]),
    )
    def make(self, clears_drop: bool, **given: Any) -> None:
        self.clears_drop = clears_drop
        self.world = World(**given)

    @rule(script=SCRIPTS, edits=st.lists(EDITS, max_size=2), dropped=DROPPED)
    def disturbed_try(self, script: Script, edits: list[tuple[str, Any]], dropped: bool) -> None:
        self.next_try(script, edits, dropped)

    @rule(edits=st.lists(EDITS, max_size=2), dropped=DROPPED)
    def undisturbed_try(self, edits: list[tuple[str, Any]], dropped: bool) -> None:
        self.next_try(UNDISTURBED, edits, dropped)

    @rule(answer=st.sampled_from([*AtRequest, *Form]), after=st.integers(0, 3), dropped=DROPPED)
    def one_answer(self, answer: AtRequest | Form, after: int, dropped: bool) -> None:
        self.next_try(Script(requests=(*[AtRequest.ACCEPTED] * after, answer)), [], dropped)

    @rule(write=st.sampled_from(AtSet), after=st.integers(0, 3), dropped=DROPPED)
    def one_write(self, write: AtSet, after: int, dropped: bool) -> None:
        self.next_try(Script(sets=(*[AtSet.FINE] * after, write)), [], dropped)

    def next_try(self, script: Script, edits: list[tuple[str, Any]], dropped: bool) -> None:
        for what, value in edits:
            setattr(self.world, what, value)
        if self.world.state in {"success", "failed"}:
            self.world.clear(dropped=dropped and self.clears_drop)
        self.world.run(script)

    @rule(which=st.integers(0, 30))
    def a_write_is_carried_out_late(self, which: int) -> None:
        self.world.carry_out_again(which)

    @precondition(lambda self: self.world.state == "up_for_retry")
    @rule(dropped=DROPPED)
    def cleared_before_it_ended(self, dropped: bool) -> None:
        self.world.clear(dropped=dropped and self.clears_drop)

    @rule()
    def another_task_cleared(self) -> None:
        self.world.clear_number += 1

    @invariant()
    def nothing_happened_that_must_not(self) -> None:
        assert not getattr(self, "world", None) or not self.world.violations, self.world.violations


def test_tries_in_any_order_reach_no_recipient_twice_and_miss_none() -> None:
    run_state_machine_as_test(
        Tries,
        settings=settings(
            max_examples=min(2 * settings().max_examples, 2000) if settings().max_examples >= 50 else 10,
            stateful_step_count=15,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize("policy", [OnUnknown.FAIL, OnUnknown.SKIP])
def test_every_request_answered_in_one_form_reaches_no_recipient_twice(policy: OnUnknown, form: Form) -> None:
    world = World(policy=policy, window=2, per_request=3)
    world.source = PEOPLE
    world.run(Script(requests=(form,) * 40))
    world.run()
    world.clear(dropped=False)
    world.run()
    assert world.violations == []
    assert max(world.reached.values()) == 1
    assert set(world.reached) == set(PEOPLE)


@pytest.mark.parametrize("write", range(6))
@pytest.mark.parametrize("how", [AtSet.KILLED_BEFORE, AtSet.KILLED_AFTER])
@pytest.mark.parametrize("policy", OnUnknown)
def test_kill_at_any_write_leaves_at_most_one_window_unknown(policy: OnUnknown, how: AtSet, write: int) -> None:
    world = World(policy=policy, window=2, per_request=1)
    world.source = PEOPLE
    world.run(Script(sets=(*[AtSet.FINE] * write, how)))
    in_doubt = [one for one in world.at_rest().values() if one.ended is None]
    assert len(in_doubt) <= 2
    world.run()
    assert world.violations == []
    if policy is OnUnknown.RESEND:
        assert set(world.reached) == set(PEOPLE)
    else:
        assert len(world.reached) >= len(PEOPLE) - len(in_doubt)


@pytest.mark.parametrize("request_", range(7))
@pytest.mark.parametrize("how", [AtRequest.KILLED_BEFORE, AtRequest.KILLED_AFTER, AtRequest.STOPPED_LOST])
def test_try_ended_at_any_request_leaves_the_remaining_recipients_to_the_next(how: AtRequest, request_: int) -> None:
    world = World(policy=OnUnknown.SKIP, window=3, per_request=1)
    world.source = PEOPLE
    world.run(Script(requests=(*[AtRequest.ACCEPTED] * request_, how)))
    in_doubt = {one for request in world.at_rest().values() if request.ended is None for one in request.people}
    unknown = {one for one, state in world.run().known.items() if state == "unknown"}
    assert world.violations == []
    assert in_doubt <= unknown
    assert set(world.reached) | unknown == set(PEOPLE)
    assert max(world.reached.values()) == 1


@pytest.mark.parametrize(("cap", "per_request"), [(2, 1), (3, 2), (100, 1)])
def test_killed_try_leaves_at_most_the_cap_and_one_request_pending(
    cap: int, per_request: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "MAX_PENDING_RECIPIENTS", cap)
    world = World(policy=OnUnknown.SKIP, window=4, per_request=per_request)
    world.source = PEOPLE
    world.run(Script(requests=(AtRequest.KILLED_BEFORE,)))
    pending = sum(len(one.people) for one in world.at_rest().values() if one.ended is None)
    # The last request that begins below the cap may pass it.
    assert pending == min(cap + cap % per_request, 4 * per_request)
    world.run()
    assert world.violations == []


@pytest.mark.parametrize("writes", range(1, 7))
@pytest.mark.parametrize("which", range(6))
def test_late_write_before_a_clear_sends_to_no_recipient_again(which: int, writes: int) -> None:
    world = World(policy=OnUnknown.SKIP, window=1, per_request=1)
    world.source = PEOPLE
    world.run(Script(requests=(*[AtRequest.ACCEPTED] * writes, AtRequest.KILLED_AFTER)))
    world.carry_out_again(which)
    world.run()
    world.clear(dropped=False)
    world.carry_out_again(which)
    world.run()
    assert world.violations == []
    assert max(world.reached.values()) == 1


@pytest.mark.parametrize("names_refused", [True, False])
@pytest.mark.parametrize(
    "script",
    [Script(sets=(*[AtSet.FINE] * 3, AtSet.REPLACED_AFTER)), Script(sets=(*[AtSet.FINE] * 3, AtSet.KILLED_AFTER))],
    ids=["replaced", "killed"],
)
def test_after_a_lost_journal_a_rejected_repetition_leaves_its_recipient_unknown(
    script: Script, names_refused: bool
) -> None:
    world = World(policy=OnUnknown.RESEND, retries=2, names_refused=names_refused)
    world.run()
    world.clear(dropped=True)
    world.bad = frozenset({PEOPLE[0]})
    world.run(script)
    assert State.REJECTED in {one.ended for one in world.at_rest().values()}
    last = world.run()
    assert world.violations == []
    assert (last.statuses[PEOPLE[0]], isinstance(last.error, UnknownOutcomeError)) == (RecipientStatus.UNKNOWN, True)
    assert {last.statuses[one] for one in PEOPLE[1:4]} == {RecipientStatus.SENT}


def test_probe_that_finds_the_message_marks_its_recipients_sent() -> None:
    world = World(policy=OnUnknown.FAIL, evidence=True, per_request=4)
    last = world.run(Script(requests=(AtRequest.UNKNOWN_ACCEPTED,)))
    assert (world.violations, world.state) == ([], "success")
    assert last.statuses == dict.fromkeys(PEOPLE[:4], RecipientStatus.SENT)


def test_probe_that_finds_the_resend_proves_nothing_of_the_first_request() -> None:
    world = World(policy=OnUnknown.RESEND, retries=0, evidence=True, per_request=4)
    world.run(Script(requests=(AtRequest.UNKNOWN_NOT, Form.ACCEPTED_FOR_OTHERS)))
    (left_out,) = {*PEOPLE[:4]} - set(world.reached)
    world.policy = OnUnknown.FAIL
    world.clear(dropped=False)
    last = world.run()
    assert world.violations == []
    assert last.statuses == dict.fromkeys(PEOPLE[:4], RecipientStatus.SENT) | {left_out: RecipientStatus.UNKNOWN}


def test_undisturbed_campaign_writes_its_head_and_one_batch_a_window() -> None:
    world = World(window=3, per_request=1)
    world.source = PEOPLE[:6]
    assert world.run().writes == 4
