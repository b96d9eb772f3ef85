from __future__ import annotations

from functools import partial

import pytest
from sqlalchemy import event, select

from cpaas_provider.database.activity.single_requests import AirtimePurchaseRow, record_purchase
from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.schema.delivery import deliveries, requests, sends
from cpaas_provider.delivery.receiver.writer import StoreResult
from cpaas_provider.delivery.tracking.counts import confirmed_requests, read_recipients
from cpaas_provider.delivery.tracking.sent_requests import (
    SentRequest,
    TrackedSend,
    record_recipients,
    record_repeated_purchase,
    record_requests,
    record_send_finished,
    record_send_started,
    sending_connections,
)
from tests.unit.delivery.report_builders import (
    ADA,
    OBI,
    UMA,
    WHEN,
    counts,
    outcomes,
    received_report,
    report,
    save_reports,
    token_for,
)

OURS = "cpaas-" + "a" * 24
SPRING = TrackedSend("spring", "send_sms", "shop", "dag", "run", "send", -1)


def save_requests(database: Database, *made: SentRequest, campaign: str = "spring") -> None:
    database.write(lambda connection: record_requests(connection, campaign, "shop", made))


def confirmed(database: Database, *names: str) -> dict[str, str | None]:
    with database.connect() as connection:
        return confirmed_requests(connection, "shop", names)


def reference_of(number: int) -> str:
    """Return a reference of our own, another for each number."""
    return "cpaas-" + f"{number:024b}".translate({ord("0"): "a", ord("1"): "b"})


class TestRecordingSends:
    def test_later_try_continues_the_same_send(self, database: Database) -> None:
        for _ in range(2):
            database.write(lambda connection: record_send_started(connection, SPRING))
        database.write(lambda connection: record_send_finished(connection, "spring", 12))
        with database.connect() as connection:
            (row,) = connection.execute(select(sends)).all()
        assert (row.campaign, row.task_id, row.expected) == ("spring", "send", 12)
        assert row.ended_at >= row.started_at

    def test_request_is_recorded_once_and_its_message_id_is_added_later(self, database: Database) -> None:
        save_requests(database, SentRequest("pack", 2))
        save_requests(database, SentRequest("pack", 2, "m1"))
        save_requests(database, SentRequest("pack", 2))
        with database.connect() as connection:
            (row,) = connection.execute(select(requests)).all()
        assert (row.reference, row.campaign, row.recipients, row.message_id) == ("pack", "spring", 2, "m1")

    def test_empty_list_of_requests_records_nothing(self, database: Database) -> None:
        save_requests(database)
        with database.connect() as connection:
            assert connection.execute(select(requests)).all() == []


class TestAccountWebhookReports:
    """What comes to the account's webhook says nothing of campaigns."""

    def test_webhook_report_finds_its_campaign_by_the_message_id(self, database: Database) -> None:
        save_requests(database, SentRequest("pack", 2, "m1"))
        assert save_reports(database, report(ADA, "delivered", id="m1")) == [StoreResult.NEW]
        assert counts(database) == (1, 0, 0)

    def test_webhook_report_finds_its_campaign_by_our_reference(self, database: Database) -> None:
        save_requests(database, SentRequest("pack", 2))
        save_reports(database, report(ADA, "delivered", external_ref="pack"))
        assert counts(database) == (1, 0, 0)

    def test_early_webhook_report_joins_its_campaign_by_the_message_id(self, database: Database) -> None:
        save_reports(database, report(ADA, "failed", id="m1"), report(OBI, "delivered", id="m1"))
        save_reports(database, report(ADA, "delivered", token=token_for(ADA, OBI)))
        assert counts(database) == (1, 0, 0)
        save_requests(database, SentRequest("pack", 2, "m1"))
        assert outcomes(database) == {ADA: "delivered", OBI: "delivered"}
        assert outcomes(database, "~m1") == {}

    def test_webhook_report_without_a_name_counts_for_the_only_recipient(self, database: Database) -> None:
        save_reports(database, received_report({"event": "airtime.success", "id": "m1"}))
        save_requests(database, SentRequest("topup", 1, "m1"), campaign="topup")
        assert counts(database, "topup") == (1, 0, 0)

    def test_early_webhook_report_joins_its_campaign_by_our_reference(self, database: Database) -> None:
        assert save_reports(database, report(ADA, "delivered", external_ref=OURS)) == [StoreResult.NEW]
        assert counts(database, OURS) == (1, 0, 0)
        save_requests(database, SentRequest(OURS, 2))
        assert (counts(database), counts(database, OURS)) == ((1, 0, 0), (0, 0, 0))
        save_reports(database, report(OBI, "failed", external_ref=OURS))
        assert (counts(database), counts(database, OURS)) == ((1, 1, 0), (0, 0, 0))

    def test_early_reports_under_several_names_join_with_the_strongest_status(self, database: Database) -> None:
        save_reports(database, report(ADA, "sent", external_ref=OURS), report(OBI, "failed", external_ref=OURS))
        save_reports(database, report(ADA, "delivered", id="m1"), report(UMA, "clicked", id="m1"))
        token = token_for(ADA, OBI, UMA, reference=OURS)
        save_reports(database, report(ADA, "failed", token=token), report(UMA, "sent", token=token))
        for _ in range(2):
            save_requests(database, SentRequest(OURS, 3, "m1"))
            assert outcomes(database) == {ADA: "delivered", OBI: "undelivered", UMA: "clicked"}
            assert outcomes(database, OURS) == outcomes(database, "~m1") == {}
        with database.connect() as connection:
            assert [one["conflict"] for one in read_recipients(connection, ["spring"])] == [True, False, False]

    def test_early_reports_of_thousands_of_requests_are_found_in_few_queries(self, database: Database) -> None:
        save_reports(
            database, *(report(ADA, "failed", external_ref=reference_of(number)) for number in range(0, 1200, 100))
        )
        save_reports(database, *(report(OBI, "delivered", id=f"m{number}") for number in range(0, 1200, 100)))
        asked = []
        event.listen(database.engine, "before_cursor_execute", lambda *given: asked.append(given[2]))
        save_requests(database, *(SentRequest(reference_of(number), 2, f"m{number}") for number in range(1200)))
        # Five for the 2400 names, and one for those under which there are reports.
        assert len([query for query in asked if "DISTINCT cpaas_deliveries.campaign" in query]) == 5
        assert len([query for query in asked if query.startswith("DELETE")]) == 1
        assert outcomes(database) == {ADA: "undelivered", OBI: "delivered"}

    def test_early_report_without_a_name_is_removed_if_its_request_has_several_recipients(
        self, database: Database
    ) -> None:
        save_reports(database, report(None, "delivered", external_ref=OURS))
        assert confirmed(database, OURS) == {OURS: None}
        save_requests(database, SentRequest(OURS, 2))
        assert (outcomes(database), outcomes(database, OURS)) == ({}, {})
        assert confirmed(database, OURS) == {OURS: None}

    def test_early_report_of_a_single_send_stays_in_place(self, database: Database) -> None:
        save_reports(database, report(ADA, "delivered", external_ref=OURS, id="m1"), report(ADA, "clicked", id="m1"))
        with database.connect() as connection:
            before = connection.execute(select(deliveries).where(deliveries.c.campaign == OURS)).one()
        save_requests(database, SentRequest(OURS, 1), campaign=OURS)
        with database.connect() as connection:
            assert connection.execute(select(deliveries).where(deliveries.c.campaign == OURS)).one() == before
        save_requests(database, SentRequest(OURS, 1, "m1"), campaign=OURS)
        database.write(lambda connection: record_send_finished(connection, OURS, 1))
        assert (outcomes(database, OURS), outcomes(database, "~m1")) == ({ADA: "clicked"}, {})

    def test_webhook_report_with_a_foreign_reference_is_unreadable(self, database: Database) -> None:
        assert save_reports(database, report(ADA, "delivered", external_ref="somebody else's")) == [
            StoreResult.UNREADABLE
        ]


class TestTrackedRecipients:
    def test_tracked_recipients_are_in_flight_until_they_are_reported(self, database: Database) -> None:
        save_reports(database, report(ADA, "delivered", token=token_for(ADA, OBI)))
        for _ in range(2):
            database.write(lambda connection: record_recipients(connection, "spring", "shop", {"pack": [ADA, OBI]}))
        assert outcomes(database) == {ADA: "delivered", OBI: "in_flight"}
        save_reports(database, report(OBI, "failed", token=token_for(ADA, OBI)))
        assert counts(database) == (1, 1, 0)

    def test_request_may_have_no_tracked_recipients(self, database: Database) -> None:
        database.write(lambda connection: record_recipients(connection, "spring", "shop", {"pack": []}))
        assert outcomes(database) == {}


class TestConfirmedRequests:
    def test_request_with_a_report_is_confirmed(self, database: Database) -> None:
        save_reports(
            database,
            report(ADA, "sent", token=token_for(ADA, OBI)),
            report(OBI, "failed", id="m1", token=token_for(ADA, OBI)),
        )
        save_reports(database, report(UMA, "sent", token=token_for(UMA, reference="other")))
        save_reports(database, report(ADA, "sent", token=token_for(ADA, campaign="summer", reference="elsewhere")))
        assert confirmed(database, "spring") == {"pack": "m1", "other": None}

    def test_unrecorded_request_is_confirmed_under_its_reference(self, database: Database) -> None:
        save_reports(database, report(ADA, "delivered", external_ref=OURS, id="m1"))
        assert confirmed(database, "spring") == {}
        assert confirmed(database, "spring", OURS) == {OURS: "m1"}

    def test_recorded_request_is_confirmed(self, database: Database) -> None:
        save_requests(database, SentRequest(OURS, 2, "m1"), SentRequest("pack", 2))
        assert confirmed(database, "spring") == {}
        assert confirmed(database, OURS, "pack", "unheard of") == {OURS: "m1", "pack": None}

    def test_request_with_only_tracked_recipients_is_not_confirmed(self, database: Database) -> None:
        database.write(lambda connection: record_recipients(connection, "spring", "shop", {"pack": [ADA, OBI]}))
        assert confirmed(database, "spring") == {}

    def test_confirmed_requests_are_found_in_few_queries(self, database: Database) -> None:
        save_reports(database, report(ADA, "delivered", external_ref=reference_of(4000)))
        asked = []
        event.listen(database.engine, "before_cursor_execute", lambda *given: asked.append(given[2]))
        assert confirmed(database, *(reference_of(number) for number in range(5000))) == {reference_of(4000): None}
        assert len([query for query in asked if query.startswith("SELECT")]) == 10


def test_each_database_has_its_own_identity(database: Database, tmp_path: object) -> None:
    with open_database(f"sqlite:///{tmp_path}/other.db") as other, open_database(str(database.engine.url)) as again:
        assert again.identity == database.identity != other.identity


def test_sending_connections_are_returned_once_each(database: Database) -> None:
    for campaign, conn_id in (("spring", "shop"), ("summer", "shop"), ("autumn", "Bank")):
        send = TrackedSend(campaign, "send_sms", conn_id, "dag", "run", "task", -1)
        database.write(partial(record_send_started, send=send))
    with database.connect() as connection:
        assert sending_connections(connection) == {"shop", "Bank"}


@pytest.mark.parametrize("conn_id", ["shop", "Shop"])
@pytest.mark.parametrize("is_reported_first", [True, False])
def test_duplicate_of_a_purchase_that_was_made_counts_as_in_flight(
    database: Database, is_reported_first: bool, conn_id: str
) -> None:
    """In whatever case the DAG writes the connection: its webhook has one id."""
    token = token_for(ADA, campaign="bought", reference="bought")
    duplicate = report(ADA, "duplicate", token=token)
    if is_reported_first:
        save_reports(database, duplicate)
        assert counts(database, "bought") == (0, 1, 0)
    place = ("dag", "run", "buy", -1)
    purchase = AirtimePurchaseRow(conn_id, "bought", *place, "MTN", 100, None, "duplicate", WHEN)
    database.write(lambda connection: record_purchase(connection, purchase))
    database.write(lambda connection: record_repeated_purchase(connection, conn_id, "bought"))
    save_reports(database, duplicate)
    assert counts(database, "bought") == (0, 0, 1)
    # A purchase that was requested once, or on another connection, is not made by a duplicate.
    for conn_id, reference in (("shop", "requested-once"), ("other", "bought")):
        save_reports(
            database,
            report(ADA, "duplicate", token=token_for(ADA, campaign=reference, reference=reference), conn_id=conn_id),
        )
    assert counts(database, "requested-once") == (0, 1, 0)
    save_reports(database, report(ADA, "failed", token=token))
    assert outcomes(database, "requested-once") == {ADA: "undelivered"}
