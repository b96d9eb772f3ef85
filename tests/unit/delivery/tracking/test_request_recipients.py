"""Whose report counts: each recipient of a request once, by who it is and not by how many there are."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from sqlalchemy import event, select

from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.schema.delivery import deliveries, requests
from cpaas_provider.delivery.receiver.writer import StoreResult
from cpaas_provider.delivery.tracking.erasure import erase
from cpaas_provider.delivery.tracking.request_recipients import is_national, is_same_number
from cpaas_provider.delivery.tracking.sent_requests import SentRequest
from tests.unit.delivery.report_builders import (
    ADA,
    OBI,
    UMA,
    counts,
    finish_send,
    outcomes,
    report,
    save_recipients,
    save_reports,
    save_requests,
    save_send,
    start_send,
    token_for,
)

ONE, TWO = token_for(ADA), token_for(ADA, OBI)
NATIONAL_ADA = f"0{ADA[3:]}"
OURS = "cpaas-" + "a" * 24
NEW, EXCESS = StoreResult.NEW, StoreResult.EXCESS


def save_one_by_one(database: Database, *told: Any) -> list[StoreResult]:
    """Store reports one after the other."""
    return [result for one in told for result in save_reports(database, one)]


def stored_recipients(database: Database) -> list[str]:
    with database.connect() as connection:
        return list(connection.execute(select(deliveries.c.recipient)).scalars())


class TestRejectedRecipient:
    """A recipient that the service rejected within an accepted request."""

    ACCEPTED = SentRequest("pack", 1, "m1", (OBI,))

    @pytest.mark.parametrize("is_tracked", [True, False])
    @pytest.mark.parametrize("by", [{"token": TWO}, {"id": "m1"}], ids=["callback", "webhook"])
    def test_rejected_recipient_does_not_end_the_wait_for_the_accepted_one(
        self, database: Database, by: dict[str, Any], is_tracked: bool
    ) -> None:
        start_send(database)
        save_requests(database, self.ACCEPTED)
        if is_tracked:
            save_recipients(database, ADA)
        finish_send(database, expected=1)
        assert save_one_by_one(database, report(OBI, "failed", **by)) == [EXCESS]
        assert counts(database) == (0, 0, int(is_tracked))
        assert save_one_by_one(database, report(ADA, "delivered", **by)) == [NEW]
        assert outcomes(database) == {ADA: "delivered"}

    @pytest.mark.parametrize(
        "by", [{"token": token_for(ADA, OBI, reference=OURS)}, {"id": "m1"}], ids=["callback", "webhook"]
    )
    def test_rejected_recipient_reported_before_the_request_is_recorded_does_not_count(
        self, database: Database, by: dict[str, Any]
    ) -> None:
        start_send(database)
        save_one_by_one(database, report(OBI, "failed", **by))
        save_requests(database, SentRequest(OURS, 1, "m1", (OBI,)))
        assert outcomes(database) == {}
        assert save_one_by_one(database, report(OBI, "delivered", **by), report(ADA, "failed", **by)) == [EXCESS, NEW]
        assert outcomes(database) == {ADA: "undelivered"}

    def test_rejected_recipient_is_recognised_in_its_national_form(self, database: Database) -> None:
        start_send(database)
        save_requests(database, SentRequest("pack", 2, "m1", (UMA,)))
        national = f"0{UMA[3:]}"
        told = [report(ADA, "delivered", id="m1"), report(national, "failed", id="m1"), report(OBI, "failed", id="m1")]
        assert save_one_by_one(database, *told) == [NEW, EXCESS, NEW]

    def test_rejected_recipient_in_national_form_is_recognised_in_the_first_report(self, database: Database) -> None:
        start_send(database)
        save_requests(database, SentRequest("pack", 2, "m1", (UMA,)))
        assert save_one_by_one(database, report(f"0{UMA[3:]}", "failed", id="m1", region="NG")) == [EXCESS]
        assert outcomes(database) == {}

    def test_rejected_recipient_is_stored_as_a_hash_keyed_to_its_request(self, database: Database) -> None:
        start_send(database)
        save_requests(database, self.ACCEPTED, SentRequest("other", 1, "m2", (OBI,)))
        with database.connect() as connection:
            stored = connection.execute(select(requests.c.rejected)).scalars().all()
        assert len(set(stored)) == 2
        assert all(value and OBI not in value for value in stored)

    def test_rejected_recipient_stays_rejected_when_a_later_try_records_the_request(self, database: Database) -> None:
        start_send(database)
        save_requests(database, self.ACCEPTED)
        save_requests(database, SentRequest("pack", 1, "m3"))
        assert save_one_by_one(database, report(OBI, "failed", token=TWO)) == [EXCESS]

    def test_rejected_recipient_reported_while_the_request_is_recorded_does_not_count(self, postgres_url: str) -> None:
        with open_database(postgres_url) as database, open_database(postgres_url) as other:
            start_send(database)
            threads: list[threading.Thread] = []

            def record(connection: Any) -> None:
                if not threads:
                    threads.append(threading.Thread(target=lambda: save_requests(other, self.ACCEPTED)))
                    threads[0].start()
                    threads[0].join(0.3)

            event.listen(database.engine, "commit", record)
            save_one_by_one(database, report(OBI, "failed", token=TWO))
            threads[0].join(20)
            assert outcomes(database) == {}


class TestErasedRecipient:
    @pytest.mark.parametrize("is_tracked", [True, False])
    def test_erased_recipient_takes_the_place_of_no_other(self, database: Database, is_tracked: bool) -> None:
        save_send(database, ADA, OBI, is_tracked=is_tracked)
        finish_send(database, expected=2)
        save_one_by_one(database, report(ADA, "sent", token=TWO))
        erase(database, ADA)
        assert save_one_by_one(database, report(ADA, "delivered", token=TWO)) == [NEW]
        assert save_one_by_one(database, report(OBI, "delivered", token=TWO)) == [NEW]
        assert save_one_by_one(database, report(UMA, "delivered", token=TWO)) == [EXCESS]
        assert counts(database) == (2, 0, 0)
        assert not any(ADA in name for name in stored_recipients(database))

    def test_erased_recipient_is_recognised_in_its_national_form(self, database: Database) -> None:
        save_one_by_one(database, report(ADA, "sent", token=TWO), report(OBI, "sent", token=TWO))
        erase(database, ADA)
        save_one_by_one(database, report(NATIONAL_ADA, "delivered", token=TWO))
        assert counts(database) == (1, 0, 1)
        assert len(stored_recipients(database)) == 2

    def test_recipient_erased_twice_counts_once(self, database: Database) -> None:
        save_one_by_one(database, report(ADA, "sent", token=TWO))
        erase(database, ADA)
        save_one_by_one(database, report(ADA, "delivered", token=TWO))
        erase(database, ADA)
        assert save_one_by_one(database, report(OBI, "delivered", token=TWO)) == [NEW]
        assert counts(database) == (2, 0, 0)

    def test_erased_recipient_stays_the_only_one_of_its_request(self, database: Database) -> None:
        save_one_by_one(database, report(ADA, "sent", token=ONE))
        erase(database, ADA)
        assert save_one_by_one(database, report(OBI, "failed", token=ONE)) == [EXCESS]
        assert save_one_by_one(database, report(ADA, "delivered", token=ONE)) == [NEW]
        assert save_one_by_one(database, report(None, "delivered", token=ONE)) == [NEW]
        assert (counts(database), len(stored_recipients(database))) == ((1, 0, 0), 1)

    def test_recipient_erased_before_its_request_is_recorded_is_not_stored_by_name(self, database: Database) -> None:
        save_one_by_one(database, report(ADA, "delivered", token=TWO))
        erase(database, ADA)
        save_send(database, ADA, OBI, is_tracked=True)
        assert (counts(database), len(stored_recipients(database)), ADA in stored_recipients(database)) == (
            (1, 0, 1),
            2,
            False,
        )

    def test_status_stored_during_the_erasure_is_retained(self, postgres_url: str) -> None:
        with open_database(postgres_url) as database, open_database(postgres_url) as receiver:
            save_one_by_one(receiver, report(ADA, "sent", token=TWO))
            late = [report(ADA, "delivered", token=TWO)]

            def comes_between(*given: Any) -> None:
                if "pg_advisory_xact_lock(" in given[2] and late:
                    save_one_by_one(receiver, late.pop())

            event.listen(database.engine, "before_cursor_execute", comes_between)
            erase(database, ADA)
            assert late == []
            assert counts(database) == (1, 0, 0)

    def test_recipient_is_erased_after_the_recipient_secret_changed(
        self, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        save_one_by_one(database, report(ADA, "sent", token=TWO), report(OBI, "sent", token=TWO))
        monkeypatch.setenv("AIRFLOW__CPAAS__RECIPIENT_SECRET", "first")
        erase(database, ADA)
        monkeypatch.setenv("AIRFLOW__CPAAS__RECIPIENT_SECRET", "second")
        erase(database, OBI)
        assert not {ADA, OBI} & set(stored_recipients(database))
        assert save_one_by_one(database, report(UMA, "delivered", token=TWO)) == [EXCESS]


class TestSecondSpelling:
    """The international form identifies a recipient. Another form is the recipient whose number it is."""

    @pytest.mark.parametrize("is_tracked", [True, False])
    @pytest.mark.parametrize("spelling", [NATIONAL_ADA, ADA[3:], f"+{ADA[:3]} (0){ADA[3:]}", f"tel:+{ADA}"])
    def test_second_spelling_of_the_only_recipient_is_accepted(
        self, database: Database, spelling: str, is_tracked: bool
    ) -> None:
        save_send(database, ADA, is_tracked=is_tracked)
        if not is_tracked:
            save_one_by_one(database, report(ADA, "sent", token=ONE))
        assert save_one_by_one(database, report(spelling, "delivered", token=ONE)) == [NEW]
        assert save_one_by_one(database, report(spelling, "clicked", id="m1")) == [NEW]
        assert outcomes(database) == {ADA: "clicked"}

    @pytest.mark.parametrize("is_tracked", [True, False])
    @pytest.mark.parametrize("together", [True, False])
    @pytest.mark.parametrize("spellings", [(NATIONAL_ADA, ADA), (ADA, NATIONAL_ADA)])
    def test_second_spelling_takes_the_place_of_no_other_recipient(
        self, database: Database, spellings: tuple[str, str], together: bool, is_tracked: bool
    ) -> None:
        save_send(database, ADA, OBI, is_tracked=is_tracked)
        finish_send(database, expected=2)
        told = [report(one, "delivered", token=TWO) for one in spellings]
        assert (save_reports(database, *told) if together else save_one_by_one(database, *told)) == [NEW, NEW]
        assert counts(database) == (1, 0, int(is_tracked))
        assert save_one_by_one(database, report(OBI, "failed", token=TWO)) == [NEW]
        assert outcomes(database) == {ADA: "delivered", OBI: "undelivered"}

    def test_second_spelling_before_the_request_is_recorded_is_the_same_recipient(self, database: Database) -> None:
        told = [report(one, "delivered", external_ref=OURS) for one in (NATIONAL_ADA, ADA, OBI)]
        save_one_by_one(database, *told)
        start_send(database)
        save_requests(database, SentRequest(OURS, 2, "m1"))
        assert outcomes(database) == {ADA: "delivered", OBI: "delivered"}

    def test_second_spelling_of_an_address_is_the_same_recipient(self, database: Database) -> None:
        told = [report(one, "delivered", token=TWO) for one in ("ada@MÜNCHEN.de", "Ada@xn--mnchen-3ya.de")]
        save_one_by_one(database, *told)
        assert outcomes(database) == {"ada@xn--mnchen-3ya.de": "delivered"}

    def test_other_number_with_the_same_end_is_not_the_same_number(self) -> None:
        assert is_same_number(NATIONAL_ADA, ADA)
        assert not is_same_number(f"1{ADA[3:]}", ADA)
        assert not is_same_number("2348031234567", "2348021234567")
        assert not is_same_number("2348031234567", "233803123456")
        assert is_national(NATIONAL_ADA)
        assert not is_national(ADA)


def test_number_of_statements_beside_erased_recipients_does_not_grow_with_the_batch(database: Database) -> None:
    token = token_for(*(f"23480300{number:05d}" for number in range(200)))
    save_one_by_one(database, report(ADA, "delivered", token=token))
    erase(database, ADA)
    needed = []
    for start, number in ((100, 1), (200, 60)):
        statements: list[str] = []
        listener = lambda *given, statements=statements: statements.append(given[2])  # noqa: E731 - removed below
        event.listen(database.engine, "before_cursor_execute", listener)
        told = [report(f"23480300{one:05d}", "delivered", token=token) for one in range(start, start + number)]
        assert save_reports(database, *told) == [NEW] * number
        event.remove(database.engine, "before_cursor_execute", listener)
        needed.append(len(statements))
    assert needed[1] <= needed[0] + 1


class TestDefaultRegionChangedAfterTheRequest:
    """A report with a national number is read in another country than the request's recipients were."""

    NUMBER = NATIONAL_ADA
    BRITISH_ADA = f"44{ADA[3:]}"

    @pytest.mark.parametrize("token", [token_for(ADA), token_for(ADA, OBI)], ids=["one recipient", "two"])
    def test_national_number_read_in_another_region_is_the_recipient(self, database: Database, token: Any) -> None:
        save_send(database, *(ADA, OBI)[: token.recipients], is_tracked=True)
        incoming = report(self.NUMBER, "delivered", token=token, region="GB")
        assert incoming.report.recipient == self.BRITISH_ADA
        assert save_one_by_one(database, incoming, incoming) == [NEW, StoreResult.REPEATED]
        assert outcomes(database)[ADA] == "delivered"
        assert counts(database) == (1, 0, token.recipients - 1)

    def test_early_national_number_read_in_another_region_is_the_recipient(self, database: Database) -> None:
        assert save_one_by_one(database, report(self.NUMBER, "delivered", token=TWO, region="GB")) == [NEW]
        save_send(database, ADA, OBI, is_tracked=True)
        assert outcomes(database) == {ADA: "delivered", OBI: "in_flight"}

    def test_recipients_with_the_same_number_in_two_countries_stay_separate(self, database: Database) -> None:
        save_send(database, ADA, self.BRITISH_ADA, is_tracked=True)
        assert save_one_by_one(database, report(self.NUMBER, "failed", token=TWO, region="GB")) == [NEW]
        assert outcomes(database) == {ADA: "in_flight", self.BRITISH_ADA: "undelivered"}

    def test_number_that_could_be_either_of_two_recipients_is_neither(self, database: Database) -> None:
        save_send(database, ADA, self.BRITISH_ADA, is_tracked=True)
        incoming = report(ADA[3:], "failed", token=TWO, region="US")
        assert incoming.report.recipient == f"1{ADA[3:]}"
        assert save_one_by_one(database, incoming) == [EXCESS]
