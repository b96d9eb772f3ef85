"""What earlier tries did decides who is left: the strongest that is known of each recipient, the newest of several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from cpaas_provider.sending.campaign.journal_index import JournalIndex
from cpaas_provider.sending.campaign.recipients import RecipientStatus, RecipientTable
from cpaas_provider.sending.journal.log import REQUESTS_PER_TRY
from cpaas_provider.sending.journal.model import LogEntry, RequestRecord, Result, State
from cpaas_provider.sending.journal.store import LOST, TryInfo
from tests.unit.sending.campaign.parts import (
    BODY,
    CLEARED,
    FIRST_TRY,
    PRINTS,
    SECOND_TRY,
    WHEN,
    MemoryStore,
    batch,
    journal_log,
    make_intent,
    make_result,
    member,
    opened,
    plan_of,
    planned,
    statuses,
)

ADA, OBI, UMA = "2348030000001", "2348030000002", "2348030000003"
ENDS = {
    "not_sent": lambda number: Result(number, State.NOT_SENT, reason="429"),
    "rejected": lambda number: Result(number, State.REJECTED, reason="no such number"),
    "unknown": lambda number: Result(number, State.UNKNOWN, reason="cut"),
    "sent": make_result,
}


def restored(
    *batches: LogEntry, plan: RecipientTable | None = None, tries: TryInfo = SECOND_TRY
) -> tuple[RecipientTable, JournalIndex]:
    """Return plan and index of a try that follows upon what is stored."""
    store = MemoryStore()
    plan = plan or plan_of(ADA, OBI, UMA)
    before = opened(store)
    for one in batches:
        before.append(one)
    index = JournalIndex(plan, journal_log(store, tries), BODY)
    index.replay()
    return plan, index


def test_first_try_has_every_recipient_not_sent() -> None:
    plan, index = restored(tries=FIRST_TRY)
    assert set(statuses(plan).values()) == {"not_sent"}
    assert (index.log.new_intent(()).number, index.money(), index.unresolved()) == (0, (None, None, 0), [])


@pytest.mark.parametrize("outcome", ENDS)
def test_result_of_one_request_sets_the_recipient_status(outcome: str) -> None:
    plan, index = restored(batch([make_intent(0, ADA, OBI)]), batch([], [ENDS[outcome](0)]))
    assert statuses(plan) == {ADA: outcome, OBI: outcome, UMA: "not_sent"}
    assert index.log.new_intent(()).number == REQUESTS_PER_TRY


def test_intent_without_a_result_is_unknown() -> None:
    plan, index = restored(batch([make_intent(0, ADA)]))
    (unresolved,) = index.unresolved()
    assert statuses(plan)[ADA] == "unknown"
    assert (unresolved.reference, unresolved.body) == (make_intent(0, ADA).reference, BODY)
    assert "ended before a response was recorded" in (unresolved.reason or "")


@pytest.mark.parametrize("strong", ENDS)
@pytest.mark.parametrize("weak", ENDS)
@pytest.mark.parametrize("strong_first", [True, False])
def test_strongest_result_of_several_requests_counts(strong: str, weak: str, strong_first: bool) -> None:
    order = list(ENDS)
    if order.index(weak) >= order.index(strong):
        return
    first, second = (strong, weak) if strong_first else (weak, strong)
    plan, _ = restored(
        batch([make_intent(0, ADA, OBI)], []),
        batch([make_intent(1, ADA)], [ENDS[first](0)]),
        batch([], [ENDS[second](1)]),
    )
    assert statuses(plan)[ADA] == strong
    assert statuses(plan)[OBI] == first


@pytest.mark.parametrize("late", ENDS)
def test_accepted_request_stays_accepted_whatever_a_late_write_has(late: str) -> None:
    plan, index = restored(batch([make_intent(0, ADA, OBI)], [make_result(0)]), batch([], [ENDS[late](0)]))
    assert statuses(plan) == {ADA: "sent", OBI: "sent", UMA: "not_sent"}
    assert index.unresolved() == []


def test_newest_of_equal_results_counts() -> None:
    plan, index = restored(
        batch([make_intent(0, ADA, OBI), make_intent(1, ADA)], []),
        batch([], [Result(0, State.UNKNOWN, reason="first"), Result(1, State.UNKNOWN, reason="second")]),
    )
    assert [(one.number, one.reason) for one in index.unresolved()] == [(0, "first"), (1, "second")]
    assert [set(one.members) for one in index.unresolved()] == [{member(ADA), member(OBI)}, {member(ADA)}]
    assert statuses(plan) == {ADA: "unknown", OBI: "unknown", UMA: "not_sent"}


class TestProbedRequests:
    def test_request_that_a_resend_in_another_batch_followed_establishes_its_recipients(self) -> None:
        plan, index = restored(batch([make_intent(0, ADA, OBI), make_intent(1, ADA, OBI, UMA)], []))
        assert [one.number for one in index.unresolved()] == [0, 1]
        index.confirm({0: {"id": "m0"}})
        assert statuses(plan) == {ADA: "sent", OBI: "sent", UMA: "unknown"}
        assert [one.number for one in index.unresolved()] == [1]

    def test_partly_repeated_request_keeps_its_size(self) -> None:
        _, index = restored(batch([make_intent(0, ADA, OBI, UMA), make_intent(1, ADA)], [make_result(1)]))
        (request,) = index.unresolved()
        assert (set(request.members), request.recipients) == ({member(OBI), member(UMA)}, 3)

    def test_newest_request_of_a_reference_is_probed(self) -> None:
        _, index = restored(batch([make_intent(0, ADA, OBI), make_intent(1, OBI, ADA)], []))
        assert [one.number for one in index.unresolved()] == [1]

    def test_request_whose_recipients_were_all_reached_later_is_not_probed(self) -> None:
        _, index = restored(batch([make_intent(0, ADA), make_intent(1, ADA, OBI)], [make_result(1)]))
        assert list(index.unresolved()) == []


def test_order_of_the_source_does_not_matter() -> None:
    plan, _ = restored(
        batch([make_intent(0, ADA, OBI)], [make_result(0)]), plan=plan_of(UMA, OBI, "2348030000004", ADA)
    )
    assert statuses(plan) == {UMA: "not_sent", OBI: "sent", "2348030000004": "not_sent", ADA: "sent"}


class TestRecipientsNoLongerInTheSource:
    @pytest.mark.parametrize(("outcome", "named"), [("sent", True), ("unknown", True), ("rejected", False)])
    def test_sent_or_unknown_recipient_stays_in_the_rows(self, outcome: str, named: bool) -> None:
        plan, _ = restored(batch([make_intent(0, ADA)], []), batch([], [ENDS[outcome](0)]), plan=plan_of(OBI))
        gone = [line for line in plan.rows() if line["recipient"] is None]
        assert bool(gone) is named
        for line in gone:
            assert (line["row"], line["outcome"], line["reason"]) == (None, outcome, "no longer in the source")

    @pytest.mark.parametrize("now", [RecipientStatus.SUPPRESSED, RecipientStatus.NOT_ALLOWED])
    def test_recipient_suppressed_since_then_stays_sent(self, now: RecipientStatus) -> None:
        plan = RecipientTable()
        plan.add([planned(ADA, 1, status=now), planned(OBI, 2, status=now)])
        plan.deduplicate_and_suppress()
        restored(batch([make_intent(0, ADA)], [make_result(0)]), plan=plan)
        assert statuses(plan) == {ADA: "sent", OBI: now.word}

    def test_duplicate_stays_a_duplicate(self) -> None:
        plan, _ = restored(batch([make_intent(0, ADA)], [make_result(0)]), plan=plan_of(ADA, ADA))
        assert [line["outcome"] for line in plan.rows()] == ["sent", "duplicate"]


class TestRejectedRecipients:
    def test_rejected_recipient_stays_rejected_in_a_retry(self) -> None:
        plan, _ = restored(batch([make_intent(0, ADA)], [ENDS["rejected"](0)]))
        (line, *_) = plan.rows()
        assert (line["outcome"], line["reason"]) == ("rejected", "no such number")

    def test_rejected_recipient_is_tried_again_after_a_clear(self) -> None:
        plan, _ = restored(batch([make_intent(0, ADA)], [ENDS["rejected"](0)]), tries=CLEARED)
        assert statuses(plan)[ADA] == "not_sent"

    def test_recipient_rejected_after_the_clear_stays_rejected_in_its_retry(self) -> None:
        again = TryInfo(3, 4, 3, 1)
        plan, _ = restored(
            batch([make_intent(0, ADA)], [ENDS["rejected"](0)]),
            batch([make_intent(1, ADA)], [ENDS["rejected"](1)], tries=CLEARED),
            tries=again,
        )
        assert statuses(plan)[ADA] == "rejected"


class TestLostJournal:
    def test_every_recipient_is_unknown(self) -> None:
        plan, index = restored(tries=CLEARED)
        assert set(statuses(plan).values()) == {"unknown"}
        assert {line["reason"] for line in plan.rows()} == {LOST}
        assert index.unresolved() == []

    def test_results_recorded_since_the_loss_count(self) -> None:
        store = MemoryStore()
        journal = opened(store, CLEARED)
        journal.record_head()
        journal.append(batch([make_intent(0, ADA)], [make_result(0)], tries=CLEARED))
        plan = plan_of(ADA, OBI)
        index = JournalIndex(plan, journal_log(store, TryInfo(3, 4, 3, 1)), BODY)
        index.replay()
        assert statuses(plan) == {ADA: "sent", OBI: "unknown"}


class TestAcceptedRequests:
    def test_requests_of_all_tries_name_their_rejected_recipients(self) -> None:
        _, index = restored(batch([make_intent(0, ADA, OBI)], [make_result(0)._replace(left_out=member(OBI))]))
        index.record(make_intent(1, UMA, OBI), WHEN.timestamp(), make_result(1)._replace(left_out=member(OBI)))
        index.plan.set_status([3], RecipientStatus.SENT, 1)
        made = index.requests()
        assert [(request.recipients, request.rejected) for request in made] == [(1, (OBI,)), (1, (OBI,))]

    def test_request_without_a_rejection_has_no_rejected_recipients(self) -> None:
        _, index = restored(batch([make_intent(0, ADA, OBI)], [make_result(0)]))
        assert list(index.requests()) == [(make_intent(0, ADA, OBI).reference, State.ACCEPTED, 2, 0, False, "m0", ())]


class TestRequestsOfDeliveryTracking:
    def test_unknown_request_names_only_the_recipients_that_no_later_one_reached(self) -> None:
        _, index = restored(batch([make_intent(0, ADA, OBI), make_intent(1, ADA)], [make_result(1)]))
        made = [(request.state, request.recipients, request.unknown) for request in index.requests()]
        assert made == [(State.UNKNOWN, 2, 1), (State.ACCEPTED, 1, 0)]

    def test_unknown_request_whose_recipients_were_all_reached_later_has_none(self) -> None:
        _, index = restored(
            batch(
                [make_intent(0, ADA, OBI), make_intent(1, ADA), make_intent(2, OBI)], [make_result(1), make_result(2)]
            )
        )
        made = [(request.state, request.unknown) for request in index.requests()]
        assert made == [(State.UNKNOWN, 0), (State.ACCEPTED, 0), (State.ACCEPTED, 0)]

    def test_request_stays_open_while_a_resend_to_its_recipients_is_unknown(self) -> None:
        """A report of either of them says what became of the recipient."""
        _, index = restored(batch([make_intent(0, ADA), make_intent(1, OBI, ADA)], []))
        made = [(request.state, request.unknown, request.is_open) for request in index.requests()]
        assert made == [(State.UNKNOWN, 0, True), (State.UNKNOWN, 2, True)]

    def test_request_of_this_try_stays_open_while_a_resend_to_its_recipients_is_unknown(self) -> None:
        plan = plan_of(ADA, OBI)
        index = JournalIndex(plan, journal_log(MemoryStore(), TryInfo(1, 1, 0)), BODY)
        index.replay()
        index.record(make_intent(0, ADA, OBI), WHEN.timestamp(), make_result(0)._replace(state=State.UNKNOWN))
        index.record(make_intent(1, OBI), WHEN.timestamp(), make_result(1)._replace(state=State.UNKNOWN))
        index.record(make_intent(2, ADA), WHEN.timestamp(), make_result(2))
        plan.set_status([1], RecipientStatus.SENT, 2)
        plan.set_status([2], RecipientStatus.UNKNOWN, 1)
        made = [(request.state, request.unknown, request.is_open) for request in index.requests()]
        assert made == [(State.UNKNOWN, 0, True), (State.UNKNOWN, 1, True), (State.ACCEPTED, 0, False)]

    def test_resend_under_the_same_reference_is_the_same_request(self) -> None:
        _, index = restored(batch([make_intent(0, ADA, OBI), make_intent(1, OBI, ADA)], [make_result(1)]))
        made = [(request.state, request.recipients, request.unknown) for request in index.requests()]
        assert made == [(State.ACCEPTED, 2, 0)]

    def test_request_that_was_accepted_twice_for_a_recipient_keeps_its_size(self) -> None:
        _, index = restored(batch([make_intent(0, ADA, OBI), make_intent(1, ADA)], [make_result(0), make_result(1)]))
        assert [request.recipients for request in index.requests()] == [2, 1]


class TestSums:
    def test_charges_of_requests_with_results_are_summed_over_all_tries(self) -> None:
        _, index = restored(
            batch([make_intent(0, ADA), make_intent(1, OBI), make_intent(2, UMA)], []),
            batch([], [make_result(0, 2.5, 97.5), make_result(1, 5.0, 92.5), Result(2, State.UNKNOWN)]),
        )
        assert index.money() == (7.5, 92.5, 2)
        assert index.log.new_intent(()).number == REQUESTS_PER_TRY

    def test_last_balance_is_that_of_this_try(self) -> None:
        _, index = restored(batch([make_intent(0, ADA)], [make_result(0, 2.5, 10.0)]))
        index.record(make_intent(1, OBI), WHEN.timestamp(), make_result(1, 2.5, 7.5))
        assert index.money() == (5.0, 7.5, 2)

    def test_last_balance_is_the_lowest_of_requests_that_were_in_flight_together(self) -> None:
        _, index = restored(batch([make_intent(0, ADA)], [make_result(0, 2.5, 10.0)]))
        index = JournalIndex(index.plan, index.log, BODY, in_flight=2)
        for number, balance in enumerate((50.0, 45.0, 47.5), start=1):
            index.record(make_intent(number, OBI), WHEN.timestamp(), make_result(number, 2.5, balance))
            # The account was topped up between the tries. The second response of this try overtook the third.
            assert index.money()[1] == min(50.0, balance, 45.0 if number > 1 else 50.0)
        index.record(make_intent(4, OBI), WHEN.timestamp(), make_result(4, 2.5, 80.0))
        index.record(make_intent(5, OBI), WHEN.timestamp(), make_result(5, 2.5, 77.5))
        assert index.money()[1] == 77.5

    def test_service_without_charge_and_balance_gives_none(self) -> None:
        _, index = restored(batch([make_intent(0, ADA)], [make_result(0, None, None)]))
        assert index.money() == (None, None, 1)

    def test_recipient_of_two_accepted_requests_is_paid_for_twice(self) -> None:
        intents = [make_intent(0, ADA, OBI), make_intent(1, ADA), make_intent(2, OBI)]
        _, index = restored(batch(intents, [make_result(1), make_result(2)]))
        index.confirm({0: {"id": "m0"}})
        assert [(paid.units, paid.charge) for paid in index.earlier_requests()] == [(2, None), (1, 2.5), (1, 2.5)]

    def test_accepted_request_of_this_try_is_paid_for(self) -> None:
        plan, index = restored(batch([make_intent(0, ADA, OBI)]))
        index.record(make_intent(1, ADA), WHEN.timestamp(), make_result(1))
        plan.set_status([1], RecipientStatus.SENT, 1)
        found = [(paid.units, paid.charge, bool(paid.is_unknown)) for paid in index.earlier_requests()]
        assert found == [(2, None, True), (1, 2.5, False)]


class TestEvidence:
    def test_result_of_a_probe_resolves_the_recipients_of_its_request(self) -> None:
        plan, index = restored(batch([make_intent(0, ADA, OBI), make_intent(1, UMA)]))
        assert index.confirm({0: {"id": "m0"}})
        assert statuses(plan) == {ADA: "sent", OBI: "sent", UMA: "unknown"}
        assert [one.number for one in index.unresolved()] == [1]

    def test_result_of_a_probe_resolves_recipients_that_a_later_request_of_unknown_outcome_has_too(self) -> None:
        plan, index = restored(batch([make_intent(0, ADA, OBI), make_intent(1, ADA, UMA)]))
        index.confirm({0: {"id": "m0"}})
        assert statuses(plan) == {ADA: "sent", OBI: "sent", UMA: "unknown"}
        assert [request.unknown for request in index.requests()] == [0, 1]

    def test_unresolved_request_has_the_hashes_of_the_values_that_were_sent(self) -> None:
        (request,) = unresolved_with_values('["Ada"]')[1]
        assert list(request.intent.each()) == [(member(ADA), PRINTS.values_hash('["Ada"]'))]

    @pytest.mark.parametrize(("sent", "is_changed"), [('["Ada"]', False), ('["Eve"]', True)])
    def test_other_values_of_an_unresolved_recipient_are_a_change(self, sent: str, is_changed: bool) -> None:
        index, (request,) = unresolved_with_values(sent)
        assert index.is_changed(request) is is_changed

    def test_every_request_of_a_recipient_of_unknown_outcome_is_probed(self) -> None:
        """A report of any of them says that the recipient was sent to."""
        _, index = restored(batch([make_intent(0, ADA), make_intent(1, OBI, ADA)]))
        found = [(one.number, set(one.members)) for one in index.unresolved()]
        assert found == [(0, {member(ADA)}), (1, {member(OBI), member(ADA)})]

    def test_resend_of_this_try_is_probed_beside_the_request_that_it_repeats(self) -> None:
        plan, index = restored(batch([make_intent(0, ADA, OBI)]), tries=FIRST_TRY)
        resend = make_intent(1, ADA)
        index.record(resend, WHEN.timestamp(), Result(1, State.UNKNOWN, reason="cut"))
        assert [one.reference for one in index.unresolved()] == [make_intent(0, ADA, OBI).reference, resend.reference]
        index.confirm({1: {"id": "m1"}})
        assert statuses(plan) == {ADA: "sent", OBI: "unknown", UMA: "not_sent"}

    def test_message_of_an_accepted_request_is_known_by_its_reference(self) -> None:
        left_out = make_result(0)._replace(left_out=member(OBI))
        _, index = restored(batch([make_intent(0, ADA, OBI), make_intent(1, OBI, ADA)], [left_out]))
        (request,) = index.unresolved()
        assert (request.number, request.members) == (1, [member(OBI)])
        assert index.accepted_ids() == {request.reference: {"m0"}}


def unresolved_with_values(sent: str) -> tuple[JournalIndex, Sequence[RequestRecord]]:
    """Return the index and the unresolved requests of a campaign that sent other values to a recipient, or the same."""
    plan = RecipientTable()
    plan.add([planned(ADA, 1, placeholder_values='["Ada"]')])
    plan.deduplicate_and_suppress()
    _, index = restored(batch([make_intent(0, ADA, words=[sent])]), plan=plan)
    return index, index.unresolved()


def test_changed_text_after_an_accepted_request_is_detected() -> None:
    def changed(body: str, end: Any) -> bool:
        return restored(batch([make_intent(0, ADA)], [], body=body), batch([], [end]))[1].changed()

    assert changed("another", make_result(0))
    assert not changed(BODY, make_result(0))
    assert not changed("another", Result(0, State.NOT_SENT))
