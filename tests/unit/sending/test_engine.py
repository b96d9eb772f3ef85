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
from cpaas_provider.sending.resolver import MAX_RESENDS
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


def test_a_first_try_reads_once_writes_twice_and_makes_one_request(world: World) -> None:
    end = world.run()
    assert (end.get_count, end.set_count, end.requests) == (1, 2, [PEOPLE[:2]])
    assert end.outcome is not None
    assert (end.outcome.sent, end.outcome.unknown_recipients, end.outcome.earlier) == (2, 0, False)


def test_what_was_done_is_returned_by_a_later_try_without_a_request(world: World) -> None:
    first = world.run().outcome
    world.clear(dropped=False)
    end = world.run()
    assert (end.set_count, end.requests) == (0, [])
    assert end.outcome is not None
    assert first is not None
    assert end.outcome.earlier
    assert end.outcome.report() == first.report()
    assert [entry.result for entry in end.outcome.accepted] == [entry.result for entry in first.accepted]


def test_only_newcomers_are_sent_to_whatever_the_order(world: World) -> None:
    world.run()
    world.clear(dropped=False)
    world.source = (PEOPLE[2], PEOPLE[1], PEOPLE[0])
    end = world.run()
    assert end.requests == [PEOPLE[2:3]]
    assert end.outcome is not None
    assert end.outcome.sent == 3


def test_newcomers_get_the_text_as_it_is_now_and_nobody_gets_it_twice(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.run()
    world.clear(dropped=False)
    world.source, world.text = PEOPLE[:3], TEXTS[1]
    assert world.run().requests == [PEOPLE[2:3]]
    assert "The content changed" in caplog.text
    assert TEXTS[1] not in caplog.text


def test_work_that_was_not_sent_is_done_by_the_next_try(world: World) -> None:
    assert isinstance(world.run(Plan(requests=(AtRequest.NOT_SENT,))).error, CpaasNotSentError)
    assert world.run().requests == [PEOPLE[:2]]


def test_what_the_service_rejected_is_asked_for_again_only_when_it_changed_or_after_a_clear(world: World) -> None:
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


def test_a_run_that_is_too_late_begins_nothing_and_returns_what_was_done(world: World) -> None:
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
def test_an_unknown_request_is_named_and_never_made_again_by_itself(world: World, ending: AtRequest) -> None:
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


def test_everything_else_is_sent_before_the_unknown_fails_the_task(world: World) -> None:
    world.run(UNKNOWN)
    world.clear(dropped=False)
    world.source = PEOPLE[1:4]
    end = world.run()
    assert end.requests == [PEOPLE[2:4]]
    assert isinstance(end.error, UnknownOutcomeError)
    assert end.once is not None
    assert (end.once.outcome().sent, end.once.outcome().unknown_recipients) == (2, 2)


def test_skip_succeeds_and_counts_the_unknown_apart(world: World) -> None:
    world.policy = OnUnknown.SKIP
    end = world.run(UNKNOWN)
    assert end.outcome is not None
    assert (end.outcome.sent, end.outcome.unknown_recipients) == (0, 2)
    assert end.outcome.report()["unknown_references"] == unknown_references(end)


def test_resend_leaves_nobody_out(world: World) -> None:
    world.policy = OnUnknown.RESEND
    end = world.run(UNKNOWN)
    assert end.requests == [PEOPLE[:2], PEOPLE[:2]]
    assert end.outcome is not None
    assert (end.outcome.sent, end.outcome.unknown_recipients) == (2, 0)


def test_people_who_left_the_list_stay_in_doubt(world: World) -> None:
    world.run(UNKNOWN)
    world.clear(dropped=False)
    world.source = PEOPLE[2:3]
    end = world.run()
    assert end.requests == [PEOPLE[2:3]]
    assert isinstance(end.error, UnknownOutcomeError)


def test_a_request_that_reached_some_for_sure_is_in_doubt_by_the_others(world: World) -> None:
    world.policy = OnUnknown.RESEND
    world.run(Plan(requests=(AtRequest.KILLED_BEFORE,)))
    world.source = PEOPLE[:1]
    end = world.run()
    assert end.requests == [PEOPLE[:1]]
    assert end.outcome is not None
    assert (end.outcome.sent, end.outcome.unknown_recipients, len(end.outcome.unknown)) == (1, 1, 1)


def test_requests_whose_people_were_all_reached_by_another_are_in_doubt_no_more(world: World) -> None:
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


def test_resend_ends_a_try_that_has_done_enough_and_a_retry_goes_on(world: World) -> None:
    world.policy = OnUnknown.RESEND
    end = world.run(Plan(requests=(AtRequest.UNKNOWN_NOT,) * (1 + MAX_RESENDS)))
    assert isinstance(end.error, ResendLimitError)
    assert not end.error.permanent
    assert len(end.requests) == 1 + MAX_RESENDS
    assert unknown_references(end)[0] in str(end.error)
    assert world.run().outcome is not None


def test_a_repetition_that_was_surely_not_made_leaves_the_doubt(world: World) -> None:
    world.policy = OnUnknown.RESEND
    world.run(Plan(requests=(AtRequest.UNKNOWN_ACCEPTED, AtRequest.NOT_SENT)))
    world.policy = OnUnknown.FAIL
    end = world.run()
    assert isinstance(end.error, UnknownOutcomeError)
    assert not end.requests


@pytest.mark.parametrize("policy", OnUnknown)
@pytest.mark.parametrize("change", ["text", "words", "words where there were none", "no words any more"])
def test_what_is_unknown_cannot_be_decided_together_with_another_text(
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


def test_words_for_others_and_another_order_make_no_other_text(world: World) -> None:
    world.source = PEOPLE[:4]
    world.personal = {one: f"word {place}" for place, one in enumerate(PEOPLE)}
    world.run(UNKNOWN)
    world.clear(dropped=False)
    world.source = tuple(reversed(PEOPLE))
    world.personal = {**world.personal, PEOPLE[4]: WORDS[1]}
    assert isinstance(world.run().error, UnknownOutcomeError)


@pytest.mark.parametrize("decision", Resolution)
def test_what_a_person_decided_is_no_longer_in_doubt(world: World, decision: Resolution) -> None:
    world.run(UNKNOWN)
    (entry,) = world.doubtful
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


def test_evidence_settles_an_unknown_request_in_the_same_try(seeing: World) -> None:
    end = seeing.run(Plan(requests=(AtRequest.UNKNOWN_ACCEPTED,)))
    assert end.outcome is not None
    assert end.outcome.sent == 2


def test_evidence_that_may_yet_come_is_waited_for_and_then_no_longer(seeing: World) -> None:
    begin = seeing.clock
    seeing.run(Plan(requests=(AtRequest.KILLED_IN_FLIGHT,)))
    looks = 0
    while isinstance((end := seeing.run()).error, ProbeLaterError):
        looks += 1
        assert looks < 10
    assert isinstance(end.error, UnknownOutcomeError)
    assert looks >= 3
    assert PATIENCE <= seeing.clock - begin < PATIENCE + timedelta(seconds=1)


def test_evidence_that_comes_meanwhile_ends_the_wait(seeing: World) -> None:
    seeing.run(Plan(requests=(AtRequest.KILLED_IN_FLIGHT,)))
    assert isinstance(seeing.run().error, ProbeLaterError)
    seeing.arrive()
    end = seeing.run()
    assert end.outcome is not None
    assert not end.requests


def test_evidence_comes_before_each_resend(seeing: World) -> None:
    seeing.policy = OnUnknown.RESEND
    seeing.run(Plan(requests=(AtRequest.KILLED_BEFORE,)))
    plan = Plan(requests=(AtRequest.UNKNOWN_ACCEPTED,))
    while isinstance((end := seeing.run(plan)).error, ProbeLaterError):
        assert not end.requests
    assert len(end.requests) == 1, "the repetition arrived, as evidence tells: no other is needed"
    assert end.outcome is not None


def test_evidence_that_cannot_be_looked_at_now_decides_nothing(seeing: World) -> None:
    seeing.run(Plan(requests=(AtRequest.KILLED_AFTER,)))
    assert isinstance(seeing.run(Plan(looks=(AtLook.DOWN,))).error, ProbeLaterError)
    assert seeing.run().outcome is not None


@pytest.mark.parametrize("wanted", list(OnUnknown))
@pytest.mark.parametrize("changed", [False, True], ids=["the same", "changed"])
def test_nor_when_it_has_been_waited_for_long_enough(seeing: World, wanted: OnUnknown, changed: bool) -> None:
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


def test_where_nothing_can_be_noted_before_a_request_it_does_not_leave(seeing: World) -> None:
    end = seeing.run(Plan(looks=(AtLook.DOWN,)))
    assert isinstance(end.error, CpaasUnknownOutcomeError)
    assert (end.set_count, end.requests) == (0, [])


# --- the store fails, the task is stopped or replaced


@pytest.mark.parametrize("outage", [AtSet.DOWN, AtSet.DOWN_COMMITTED])
def test_a_claim_that_cannot_be_written_sends_nothing(world: World, outage: AtSet) -> None:
    end = world.run(Plan(sets=(outage,) * 3))
    assert isinstance(end.error, JournalUnavailableError)
    # Two more record that the request did not leave.
    assert (end.requests, end.set_count) == ([], 5)
    assert len(world.run().requests) == 1


def test_a_claim_that_was_stored_without_an_answer_stays_in_doubt_while_nothing_else_can_be_stored(
    world: World,
) -> None:
    end = world.run(Plan(sets=(*[AtSet.DOWN_COMMITTED] * 3, *[AtSet.DOWN] * 6)))
    assert isinstance(end.error, JournalUnavailableError)
    assert (end.requests, world.run().requests) == ([], [])


def test_a_journal_that_cannot_be_read_sends_nothing(world: World) -> None:
    end = world.run(Plan(get=AtGet.DOWN))
    assert isinstance(end.error, JournalUnavailableError)
    assert not end.requests


def test_an_answer_that_cannot_be_written_is_an_answer_all_the_same(world: World) -> None:
    end = world.run(Plan(sets=(AtSet.FINE, *[AtSet.DOWN] * 6)))
    assert end.outcome is not None
    world.clear(dropped=False)
    assert isinstance(world.run().error, UnknownOutcomeError)


@pytest.mark.parametrize("how", Replaced)
def test_a_try_that_was_replaced_before_its_claim_sends_nothing(world: World, how: Replaced) -> None:
    end = world.run(Plan(sets=(AtSet.REPLACED_BEFORE,), replaced=how))
    assert isinstance(end.error, TrySupersededError)
    assert not end.requests


@pytest.mark.parametrize("how", Replaced)
def test_the_try_that_replaces_another_does_not_repeat_what_is_under_way(world: World, how: Replaced) -> None:
    end = world.run(Plan(requests=(AtRequest.REPLACED_THEN_ACCEPTED,), replaced=how))
    assert isinstance(end.error, TrySupersededError)
    assert world.messages == 1


def test_after_the_stop_nothing_is_claimed(world: World) -> None:
    end = world.run(Plan(get=AtGet.STOPPED))
    assert isinstance(end.error, StoppedError)
    assert end.set_count == 0


def test_a_stop_between_claim_and_request_leaves_no_doubt(world: World) -> None:
    end = world.run(Plan(sets=(AtSet.STOPPED,)))
    assert isinstance(end.error, StoppedError)
    assert not end.requests
    assert world.run().requests == [PEOPLE[:2]]


def test_an_answer_after_the_stop_is_taken(world: World) -> None:
    end = world.run(Plan(requests=(AtRequest.STOPPED_ACCEPTED,)))
    assert end.outcome is not None
    assert end.set_count == 2


def test_a_request_given_up_after_the_stop_is_named(world: World) -> None:
    end = world.run(Plan(requests=(AtRequest.ABANDONED_LOST,)))
    assert isinstance(end.error, AnswerNotAwaitedError)
    assert unknown_references(end)[0] in str(end.error)


def test_a_fault_of_ours_is_not_hidden(world: World) -> None:
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


def test_rejected_within_a_repetition_says_nothing_about_what_it_repeats(world: World) -> None:
    world.policy, world.source = OnUnknown.RESEND, PEOPLE[:2]
    end = world.run(Plan(requests=(AtRequest.UNKNOWN_ACCEPTED, Form.ACCEPTED_FOR_OTHERS)))
    assert end.once is not None
    assert (end.once.outcome().sent, end.once.outcome().unknown_recipients) == (1, 1)


def test_a_request_resolved_by_hand_counts_for_those_whom_its_repetition_was_rejected_for(world: World) -> None:
    world.policy, world.source = OnUnknown.RESEND, PEOPLE[:3]
    world.run(Plan(requests=(AtRequest.UNKNOWN_ACCEPTED, Form.ACCEPTED_FOR_OTHERS)))
    (unknown,) = world.doubtful
    world.mark(unknown, Resolution.SENT)
    world.clear(dropped=False)
    outcome = world.run().outcome
    assert outcome is not None
    assert (outcome.sent, outcome.unknown_recipients, len(outcome.accepted)) == (3, 0, 1)
    assert outcome.accepted[0].result == {"id": "m2"}


def test_a_probe_that_finds_the_repetition_proves_nothing_of_what_it_repeats() -> None:
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


def test_accepted_for_nobody_is_rejected(world: World) -> None:
    world.source = PEOPLE[:1]
    end = world.run(Plan(requests=(Form.ACCEPTED_FOR_OTHERS,)))
    assert isinstance(end.error, PartlyRejectedError)
    assert end.once is not None
    assert not end.once.outcome()
