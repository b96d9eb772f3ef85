"""Runs in any order of what happens to them: nothing of an earlier run counts in a later one, and a key sends once."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from cpaas_provider.sending.errors import OlderDatabaseError, UnknownOutcomeError
from cpaas_provider.sending.spec import OnUnknown
from tests.unit.sending.runs import CAP, KEYED_PEOPLE, PEOPLE, RUNS, Weather, World
from tests.unit.sending.test_model import hurried

__all__ = ["hurried"]

DEPLOYMENTS = st.integers(0, 1)
RUN_IDS = st.sampled_from(RUNS)
WEATHER = st.sampled_from([Weather.ACCEPTED, *Weather])
POLICIES = st.sampled_from([OnUnknown.FAIL, OnUnknown.SKIP, OnUnknown.RESEND])


class Before(Enum):
    """What happens to a run before its next try."""

    NOTHING, CLEARED_KEPT, CLEARED_DROPPED, DELETED = range(4)


BEFORE = st.sampled_from(Before)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


class Runs(RuleBasedStateMachine):
    """Two deployments with runs of the same ids beside one database."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.world = World(Path(self._folder.name))

    def teardown(self) -> None:
        self.world.close()
        self._folder.cleanup()

    @rule(deployment=DEPLOYMENTS, before=BEFORE, weather=WEATHER, policy=POLICIES, is_reported=st.booleans())
    def send(self, deployment: int, before: Before, weather: Weather, policy: OnUnknown, is_reported: bool) -> None:
        self.prepare(deployment, RUNS[0], before)
        self.world.send(self.world.run_of(deployment, RUNS[0]), weather, policy)
        if is_reported:
            self.world.report_all()

    # The other deployment's Airflow does not know what this one sent: an older copy is noticed in one only.
    @rule(run_id=RUN_IDS, before=BEFORE, weather=WEATHER, policy=st.sampled_from([OnUnknown.FAIL, OnUnknown.SKIP]))
    def send_keyed(self, run_id: str, before: Before, weather: Weather, policy: OnUnknown) -> None:
        self.prepare(0, f"keyed_{run_id}", before)
        self.world.send_keyed(self.world.run_of(0, f"keyed_{run_id}"), weather, policy)

    def prepare(self, deployment: int, run_id: str, before: Before) -> None:
        run = self.world.deployments[deployment].get(run_id)
        if before is Before.DELETED:
            self.world.delete(deployment, run_id)
        elif run is not None and run.try_number and before is not Before.NOTHING:
            run.clear(dropped=before is Before.CLEARED_DROPPED)

    @rule()
    def copy_database(self) -> None:
        self.world.copy_database()

    @precondition(lambda self: self.world.copies)
    @rule()
    def restore_database(self) -> None:
        self.world.restore_database()

    @invariant()
    def nothing_happened_that_must_not(self) -> None:
        assert not self.world.violations, self.world.violations


def test_runs_in_any_order_do_not_affect_later_runs() -> None:
    run_state_machine_as_test(
        Runs,
        settings=settings(
            max_examples=settings().max_examples if settings().max_examples >= 50 else 15,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_lost_request_is_not_established_by_the_run_that_had_the_same_id(world: World) -> None:
    world.send(world.run_of(0, RUNS[0]))
    world.report_all()
    world.delete(0, RUNS[0])
    attempt = world.send(world.run_of(0, RUNS[0]), Weather.UNKNOWN_NOT)
    assert isinstance(attempt.error, UnknownOutcomeError)
    assert world.violations == []


def test_lost_request_is_not_established_by_another_deployment(world: World) -> None:
    world.send(world.run_of(0, RUNS[0]))
    world.report_all()
    attempt = world.send(world.run_of(1, RUNS[0]), Weather.UNKNOWN_NOT)
    assert isinstance(attempt.error, UnknownOutcomeError)
    assert world.violations == []


def test_retry_and_clear_of_one_run_have_the_same_names(world: World) -> None:
    run = world.run_of(0, RUNS[0])
    world.send(run, Weather.KILLED_AFTER)
    world.report_all()
    run.clear(dropped=False)
    attempt = world.send(run)
    assert (attempt.error, attempt.requested) == (None, [])
    assert attempt.outcome is not None
    assert attempt.outcome.sent == len(PEOPLE)


def test_each_run_of_one_id_counts_for_the_frequency_cap(world: World) -> None:
    for _ in range(CAP.messages or 0):
        assert world.send(world.run_of(0, RUNS[0])).requested == list(PEOPLE)
        world.delete(0, RUNS[0])
    assert world.send(world.run_of(0, RUNS[0])).requested == []
    assert world.violations == []


@pytest.mark.parametrize("policy", [OnUnknown.FAIL, OnUnknown.SKIP])
def test_nothing_is_sent_or_established_after_a_lost_journal(world: World, policy: OnUnknown) -> None:
    run = world.run_of(0, RUNS[0])
    world.send(run)
    world.report_all()
    run.clear(dropped=True)
    attempt = world.send(run, policy=policy)
    assert attempt.requested == []
    assert attempt.outcome is not None
    assert (attempt.outcome.sent, attempt.outcome.unknown_recipients) == (0, len(PEOPLE))


def test_retry_on_an_older_copy_with_a_part_of_the_journal_is_refused(world: World) -> None:
    run = world.run_of(0, "keyed")
    world.send_keyed(run, Weather.NOT_SENT)
    world.copy_database()
    world.send_keyed(run)
    world.restore_database()
    attempt = world.send_keyed(run)
    assert "airflow cpaas journal forget" in str(attempt.error)
    assert attempt.requested == []


def test_new_run_on_an_older_copy_is_refused(world: World) -> None:
    world.send_keyed(world.run_of(0, "first"), Weather.NOT_SENT)
    world.copy_database()
    world.send_keyed(world.run_of(0, "second"))
    world.restore_database()
    attempt = world.send_keyed(world.run_of(0, "third"))
    assert isinstance(attempt.error, OlderDatabaseError)
    assert attempt.requested == []


def test_older_copy_that_another_run_wrote_to_is_still_older_for_the_task(world: World) -> None:
    run = world.run_of(0, "first")
    world.send_keyed(run, Weather.NOT_SENT)
    world.copy_database()
    world.send_keyed(run)
    world.restore_database()
    world.variables.clear()
    for number in range(9):
        world.send_keyed(world.run_of(0, f"other {number}"), Weather.NOT_SENT)
    assert world.send_keyed(run).requested == []


def test_database_that_is_not_older_continues(world: World) -> None:
    run = world.run_of(0, "first")
    world.send_keyed(run, Weather.KILLED_BEFORE)
    world.copy_database()
    world.restore_database()
    assert isinstance(world.send_keyed(run).error, UnknownOutcomeError)
    assert world.send_keyed(world.run_of(0, "second"), policy=OnUnknown.RESEND).requested == list(KEYED_PEOPLE)
