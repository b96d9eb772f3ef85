"""One request that must happen once: what each ending of a try lets the next one do."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from cpaas_provider.api.errors import CpaasNotSentError, CpaasRejectedError, CpaasUnknownOutcomeError
from cpaas_provider.sending import engine as engine_module
from cpaas_provider.sending.errors import (
    ChangedBodyError,
    JournalUnavailableError,
    PartlyRejectedError,
    ProbeFailedError,
    ProbeLaterError,
    ResendLimitError,
    RunNotAllowedError,
    StoppedError,
    TrySupersededError,
    UnknownOutcomeError,
)
from cpaas_provider.sending.journal import writer as writer_module
from cpaas_provider.sending.journal.resolution import Resolution
from cpaas_provider.sending.shutdown import AnswerNotAwaitedError
from cpaas_provider.sending.spec import OnUnknown
from tests.unit.sending.answers import Form
from tests.unit.sending.campaign.model import Inline
from tests.unit.sending.model import (
    PATIENCE,
    PEOPLE,
    TEXTS,
    WORDS,
    AtGet,
    AtLook,
    AtRequest,
    AtSet,
    Attempt,
    BugError,
    Plan,
    Replaced,
    World,
)

UNKNOWN = Plan(requests=(AtRequest.UNKNOWN_NOT,))


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "_FIRST_PAUSE", 0.0)
    monkeypatch.setattr(writer_module, "ThreadPoolExecutor", Inline)
    monkeypatch.setattr(engine_module, "_FIRST_PAUSE", 0.0)


@pytest.fixture
def world() -> Iterator[World]:
    """A task that fails where anything is unknown; whatever its tries do must not break a promise."""
    one = World()
    yield one
    assert not one.violations


def error_of(attempt: Attempt) -> Exception:
    assert attempt.error is not None
    return attempt.error


def unknown_references(attempt: Attempt) -> list[str]:
    assert attempt.once is not None
    return [entry.reference for entry in attempt.once.outcome().unknown]


# --- an ordinary life


def test_first_try_reads_once_writes_twice_and_makes_one_request(world: World) -> None:
    end = world.run()
    assert (end.get_count, end.set_count, end.requests) == (1, 2, [PEOPLE[:2]])
    assert end.outcome is not None
    assert (end.outcome.sent, end.outcome.unknown_recipients, end.outcome.earlier) == (2, 0, False)


def test_later_try_returns_the_earlier_outcome_without_a_request(world: World) -> None:
    first = world.run().outcome
    world.clear(dropped=False)
    end = world.run()
    assert (end.set_count, end.requests) == (0, [])
    assert end.outcome is not None
    assert first is not None
    assert end.outcome.earlier
    assert end.outcome.report() == first.report()
    assert [entry.result for entry in end.outcome.accepted] == [entry.result for entry in first.accepted]


def test_rerun_sends_only_to_new_recipients_in_any_order(world: World) -> None:
    world.run()
    world.clear(dropped=False)
    world.source = (PEOPLE[2], PEOPLE[1], PEOPLE[0])
    end = world.run()
    assert end.requests == [PEOPLE[2:3]]
    assert end.outcome is not None
    assert end.outcome.sent == 3


def test_new_recipients_get_the_changed_text_and_earlier_ones_nothing(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.run()
    world.clear(dropped=False)
    world.source, world.text = PEOPLE[:3], TEXTS[1]
    assert world.run().requests == [PEOPLE[2:3]]
    assert "The content changed" in caplog.text
    assert TEXTS[1] not in caplog.text


def test_request_that_was_not_sent_is_made_by_the_next_try(world: World) -> None:
    assert isinstance(world.run(Plan(requests=(AtRequest.NOT_SENT,))).error, CpaasNotSentError)
    assert world.run().requests == [PEOPLE[:2]]


def test_rejected_request_is_repeated_only_after_a_change_or_a_clear(world: World) -> None:
    rejected = Plan(requests=(AtRequest.REJECTED,))
    assert isinstance(world.run(rejected).error, CpaasRejectedError)
    world.state = "up_for_retry"
    end = world.run()
    assert "An earlier try received this rejection" in str(error_of(end))
    assert not end.requests
    world.clear(dropped=False)
    assert len(world.run(rejected).requests) == 1
    world.text = TEXTS[1]
    assert len(world.run(rejected).requests) == 1
    world.source = PEOPLE[:1]
    assert world.run().requests == [PEOPLE[:1]]


def test_stale_run_sends_nothing_and_returns_an_earlier_outcome(world: World) -> None:
    end = world.run(Plan(late=True))
    assert isinstance(end.error, RunNotAllowedError)
    assert (end.requests, end.set_count) == ([], 0)
    world.run()
    world.clear(dropped=False)
    assert world.run(Plan(late=True)).outcome is not None


# --- what nobody knows


@pytest.mark.parametrize(
    "ending",
    [
        AtRequest.UNKNOWN_ACCEPTED,
        AtRequest.UNKNOWN_NOT,
        AtRequest.BUG_ACCEPTED,
        AtRequest.BUG_NOT,
        AtRequest.KILLED_BEFORE,
        AtRequest.KILLED_AFTER,
        AtRequest.KILLED_IN_FLIGHT,
        AtRequest.ABANDONED_IN_FLIGHT,
    ],
)
def test_unknown_request_is_named_and_not_repeated_by_default(world: World, ending: AtRequest) -> None:
    world.run(Plan(requests=(ending,)))
    if world.state == "up_for_retry":
        world.run()
    for _ in range(2):
        world.clear(dropped=False)
        end = world.run()
        assert not end.requests
        (reference,) = unknown_references(end)
        assert isinstance(end.error, UnknownOutcomeError)
        assert reference in str(end.error)
        assert end.error.permanent


def test_other_requests_are_sent_before_an_unknown_one_fails_the_task(world: World) -> None:
    world.run(UNKNOWN)
    world.clear(dropped=False)
    world.source = PEOPLE[1:4]
    end = world.run()
    assert end.requests == [PEOPLE[2:4]]
    assert isinstance(end.error, UnknownOutcomeError)
    assert end.once is not None
    assert (end.once.outcome().sent, end.once.outcome().unknown_recipients) == (2, 2)


def test_skip_succeeds_and_counts_unknown_recipients_separately(world: World) -> None:
    world.policy = OnUnknown.SKIP
    end = world.run(UNKNOWN)
    assert end.outcome is not None
    assert (end.outcome.sent, end.outcome.unknown_recipients) == (0, 2)
    assert end.outcome.report()["unknown_references"] == unknown_references(end)


def test_resend_repeats_the_whole_unknown_request(world: World) -> None:
    world.policy = OnUnknown.RESEND
    end = world.run(UNKNOWN)
    assert end.requests == [PEOPLE[:2], PEOPLE[:2]]
    assert end.outcome is not None
    assert (end.outcome.sent, end.outcome.unknown_recipients) == (2, 0)


def test_unknown_recipient_removed_from_the_source_stays_unresolved(world: World) -> None:
    world.run(UNKNOWN)
    world.clear(dropped=False)
    world.source = PEOPLE[2:3]
    end = world.run()
    assert end.requests == [PEOPLE[2:3]]
    assert isinstance(end.error, UnknownOutcomeError)


def test_request_stays_unresolved_for_recipients_not_reached_again(world: World) -> None:
    world.policy = OnUnknown.RESEND
    world.run(Plan(requests=(AtRequest.KILLED_BEFORE,)))
    world.source = PEOPLE[:1]
    end = world.run()
    assert end.requests == [PEOPLE[:1]]
    assert end.outcome is not None
    assert (end.outcome.sent, end.outcome.unknown_recipients, len(end.outcome.unknown)) == (1, 1, 1)


def test_request_whose_recipients_were_all_reached_later_is_resolved(world: World) -> None:
    world.policy = OnUnknown.SKIP
    for place in (0, 1):
        world.source = PEOPLE[place : place + 1]
        world.run(UNKNOWN)
        world.clear(dropped=False)
    world.policy, world.source = OnUnknown.RESEND, PEOPLE[:2]
    end = world.run()
    assert end.requests == [PEOPLE[:2]]
    assert end.outcome is not None
    assert (end.outcome.sent, end.outcome.unknown) == (2, ())
    world.policy = OnUnknown.FAIL
    world.clear(dropped=False)
    assert world.run().outcome is not None


def test_resend_limit_ends_the_try_and_a_retry_continues(world: World) -> None:
    world.policy = OnUnknown.RESEND
    end = world.run(Plan(requests=(AtRequest.UNKNOWN_NOT,) * 10))
    assert isinstance(end.error, ResendLimitError)
    assert not end.error.permanent
    assert len(end.requests) == 1 + 4
    assert unknown_references(end)[0] in str(end.error)
    assert world.run().outcome is not None


def test_resend_that_was_not_sent_leaves_the_request_unresolved(world: World) -> None:
    world.policy = OnUnknown.RESEND
    world.run(Plan(requests=(AtRequest.UNKNOWN_ACCEPTED, AtRequest.NOT_SENT)))
    world.policy = OnUnknown.FAIL
    end = world.run()
    assert isinstance(end.error, UnknownOutcomeError)
    assert not end.requests


@pytest.mark.parametrize("policy", OnUnknown)
@pytest.mark.parametrize("change", ["text", "words", "words where there were none", "no words any more"])
def test_unknown_request_with_changed_content_fails_under_every_policy(
    world: World, policy: OnUnknown, change: str
) -> None:
    words = dict.fromkeys(PEOPLE, WORDS[0])
    world.personal = None if change == "words where there were none" else words
    world.run(UNKNOWN)
    world.clear(dropped=False)
    world.policy = policy
    match change:
        case "text":
            world.text = TEXTS[1]
        case "no words any more":
            world.personal = None
        case _:
            world.personal = {**words, PEOPLE[1]: WORDS[1]}
    end = world.run()
    assert isinstance(end.error, ChangedBodyError)
    assert end.error.permanent
    assert unknown_references(end)[0] in str(end.error)
    assert not end.requests


def test_order_and_values_of_other_recipients_are_no_change_of_content(world: World) -> None:
    world.source = PEOPLE[:4]
    world.personal = {one: f"word {place}" for place, one in enumerate(PEOPLE)}
    world.run(UNKNOWN)
    world.clear(dropped=False)
    world.source = tuple(reversed(PEOPLE))
    world.personal = {**world.personal, PEOPLE[4]: WORDS[1]}
    assert isinstance(world.run().error, UnknownOutcomeError)


@pytest.mark.parametrize("decision", Resolution)
def test_manually_resolved_request_is_no_longer_unresolved(world: World, decision: Resolution) -> None:
    world.run(UNKNOWN)
    (entry,) = world.unresolved
    world.mark(entry, decision)
    world.clear(dropped=False)
    end = world.run()
    assert end.requests == ([] if decision is Resolution.SENT else [PEOPLE[:2]])
    assert end.outcome is not None
    assert end.outcome.sent == 2


# --- evidence


@pytest.fixture
def seeing(world: World) -> World:
    """The same, where evidence can be had."""
    world.looks = True
    return world


def test_probe_resolves_an_unknown_request_in_the_same_try(seeing: World) -> None:
    end = seeing.run(Plan(requests=(AtRequest.UNKNOWN_ACCEPTED,)))
    assert end.outcome is not None
    assert end.outcome.sent == 2


def test_probe_is_awaited_until_its_time_limit(seeing: World) -> None:
    begin = seeing.clock
    seeing.run(Plan(requests=(AtRequest.KILLED_IN_FLIGHT,)))
    looks = 0
    while isinstance((end := seeing.run()).error, ProbeLaterError):
        looks += 1
        assert looks < 10
    assert isinstance(end.error, UnknownOutcomeError)
    assert looks >= 3
    assert PATIENCE <= seeing.clock - begin < PATIENCE + timedelta(seconds=1)


def test_probe_that_succeeds_during_the_wait_ends_it(seeing: World) -> None:
    seeing.run(Plan(requests=(AtRequest.KILLED_IN_FLIGHT,)))
    assert isinstance(seeing.run().error, ProbeLaterError)
    seeing.arrive()
    end = seeing.run()
    assert end.outcome is not None
    assert not end.requests


def test_probe_runs_before_each_resend(seeing: World) -> None:
    seeing.policy = OnUnknown.RESEND
    seeing.run(Plan(requests=(AtRequest.KILLED_BEFORE,)))
    plan = Plan(requests=(AtRequest.UNKNOWN_ACCEPTED,))
    while isinstance((end := seeing.run(plan)).error, ProbeLaterError):
        assert not end.requests
    assert len(end.requests) == 1, "the repetition arrived, as evidence tells: no other is needed"
    assert end.outcome is not None


def test_failed_probe_decides_nothing(seeing: World) -> None:
    seeing.run(Plan(requests=(AtRequest.KILLED_AFTER,)))
    assert isinstance(seeing.run(Plan(looks=(AtLook.DOWN,))).error, ProbeLaterError)
    assert seeing.run().outcome is not None


@pytest.mark.parametrize("wanted", list(OnUnknown))
@pytest.mark.parametrize("changed", [False, True], ids=["the same", "changed"])
def test_failed_probe_decides_nothing_after_its_time_limit(seeing: World, wanted: OnUnknown, changed: bool) -> None:
    seeing.policy = wanted
    seeing.run(Plan(requests=(AtRequest.KILLED_AFTER,)))
    seeing.clock += 2 * PATIENCE
    if changed:
        seeing.text = "Something else"
    end = seeing.run(Plan(looks=(AtLook.DOWN,)))
    assert isinstance(end.error, ProbeFailedError)
    assert (end.requests, end.error.permanent) == ([], False)
    settled = seeing.run()
    assert settled.outcome is not None
    assert (settled.outcome.sent, settled.requests) == (2, [])


def test_failed_probe_snapshot_prevents_the_request(seeing: World) -> None:
    end = seeing.run(Plan(looks=(AtLook.DOWN,)))
    assert isinstance(end.error, CpaasUnknownOutcomeError)
    assert (end.set_count, end.requests) == (0, [])


# --- the store fails, the task is stopped or replaced


@pytest.mark.parametrize("outage", [AtSet.DOWN, AtSet.DOWN_COMMITTED])
def test_intent_that_cannot_be_written_prevents_the_request(world: World, outage: AtSet) -> None:
    end = world.run(Plan(sets=(outage,) * 3))
    assert isinstance(end.error, JournalUnavailableError)
    # Two more record that the request did not leave.
    assert (end.requests, end.set_count) == ([], 5)
    assert len(world.run().requests) == 1


def test_intent_stored_despite_an_error_stays_unresolved_while_writes_fail(
    world: World,
) -> None:
    end = world.run(Plan(sets=(*[AtSet.DOWN_COMMITTED] * 3, *[AtSet.DOWN] * 6)))
    assert isinstance(end.error, JournalUnavailableError)
    assert (end.requests, world.run().requests) == ([], [])


def test_unreadable_journal_prevents_the_request(world: World) -> None:
    end = world.run(Plan(get=AtGet.DOWN))
    assert isinstance(end.error, JournalUnavailableError)
    assert not end.requests


def test_response_that_cannot_be_stored_is_still_returned(world: World) -> None:
    end = world.run(Plan(sets=(AtSet.FINE, *[AtSet.DOWN] * 6)))
    assert end.outcome is not None
    world.clear(dropped=False)
    assert isinstance(world.run().error, UnknownOutcomeError)


@pytest.mark.parametrize("how", Replaced)
def test_try_superseded_before_its_intent_sends_nothing(world: World, how: Replaced) -> None:
    end = world.run(Plan(sets=(AtSet.REPLACED_BEFORE,), replaced=how))
    assert isinstance(end.error, TrySupersededError)
    assert not end.requests


@pytest.mark.parametrize("how", Replaced)
def test_superseding_try_does_not_repeat_the_request_in_flight(world: World, how: Replaced) -> None:
    end = world.run(Plan(requests=(AtRequest.REPLACED_THEN_ACCEPTED,), replaced=how))
    assert isinstance(end.error, TrySupersededError)
    assert world.messages == 1


def test_stopped_try_writes_no_intent(world: World) -> None:
    end = world.run(Plan(get=AtGet.STOPPED))
    assert isinstance(end.error, StoppedError)
    assert end.set_count == 0


def test_stop_between_intent_and_request_leaves_nothing_unresolved(world: World) -> None:
    end = world.run(Plan(sets=(AtSet.STOPPED,)))
    assert isinstance(end.error, StoppedError)
    assert not end.requests
    assert world.run().requests == [PEOPLE[:2]]


def test_response_after_the_stop_is_recorded(world: World) -> None:
    end = world.run(Plan(requests=(AtRequest.STOPPED_ACCEPTED,)))
    assert end.outcome is not None
    assert end.set_count == 2


def test_request_abandoned_after_the_stop_is_named(world: World) -> None:
    end = world.run(Plan(requests=(AtRequest.ABANDONED_LOST,)))
    assert isinstance(end.error, AnswerNotAwaitedError)
    assert unknown_references(end)[0] in str(end.error)


def test_unexpected_error_is_raised_and_the_request_is_unknown(world: World) -> None:
    end = world.run(Plan(requests=(AtRequest.BUG_NOT,)))
    assert isinstance(end.error, BugError)
    assert len(unknown_references(end)) == 1


# --- a request that is accepted for some


def test_retry_after_a_clear_sends_only_to_those_an_accepted_request_was_rejected_for(world: World) -> None:
    world.source = PEOPLE[:3]
    end = world.run(Plan(requests=(Form.ACCEPTED_FOR_OTHERS,)))
    assert isinstance(end.error, PartlyRejectedError)
    assert end.once is not None
    assert (end.once.outcome().sent, end.once.outcome().unknown_recipients, world.state) == (2, 0, "failed")
    assert isinstance(world.run().error, CpaasRejectedError), "a retry is told the same"
    world.clear(dropped=False)
    done = world.run()
    assert done.requests == [PEOPLE[:1]]
    assert done.outcome is not None
    assert done.outcome.sent == 3


def test_rejection_within_a_resend_leaves_the_first_request_unknown(world: World) -> None:
    world.policy, world.source = OnUnknown.RESEND, PEOPLE[:2]
    end = world.run(Plan(requests=(AtRequest.UNKNOWN_ACCEPTED, Form.ACCEPTED_FOR_OTHERS)))
    assert end.once is not None
    assert (end.once.outcome().sent, end.once.outcome().unknown_recipients) == (1, 1)


def test_manually_resolved_request_counts_for_recipients_rejected_in_its_resend(world: World) -> None:
    world.policy, world.source = OnUnknown.RESEND, PEOPLE[:3]
    world.run(Plan(requests=(AtRequest.UNKNOWN_ACCEPTED, Form.ACCEPTED_FOR_OTHERS)))
    (unknown,) = world.unresolved
    world.mark(unknown, Resolution.SENT)
    world.clear(dropped=False)
    outcome = world.run().outcome
    assert outcome is not None
    assert (outcome.sent, outcome.unknown_recipients, len(outcome.accepted)) == (3, 0, 1)
    assert outcome.accepted[0].result == {"id": "m2"}


def test_probe_that_finds_the_resend_proves_nothing_of_the_first_request() -> None:
    world = World(policy=OnUnknown.RESEND, retries=0, looks=True)
    world.source = PEOPLE[:3]
    blind = (AtLook.BLIND,) * 2
    world.run(Plan(requests=(AtRequest.UNKNOWN_NOT,), looks=(AtLook.FINE, *blind)))
    while world.state == "deferred":
        world.run(Plan(requests=(Form.ACCEPTED_FOR_OTHERS,), looks=blind))
    assert world.reached == {*PEOPLE[1:3]}
    world.policy = OnUnknown.FAIL
    world.clear(dropped=False)
    end = world.run()
    while world.state == "deferred":
        end = world.run()
    assert end.once is not None
    assert (end.once.outcome().sent, end.once.outcome().unknown_recipients, end.requests) == (2, 1, [])
    assert isinstance(end.error, UnknownOutcomeError)


def test_acceptance_of_no_recipient_is_a_rejection(world: World) -> None:
    world.source = PEOPLE[:1]
    end = world.run(Plan(requests=(Form.ACCEPTED_FOR_OTHERS,)))
    assert isinstance(end.error, PartlyRejectedError)
    assert end.once is not None
    assert not end.once.outcome()
