"""What delivery reports list, and what they take back: by the time of the reports, in any order, with a brake."""

from __future__ import annotations

import itertools
import logging
import random
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import and_, select, update

from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.recipients.suppressions import INVALID_NUMBER, Listed, SuppressionTable
from cpaas_provider.database.schema.delivery import deliveries, suppression_brakes
from cpaas_provider.delivery.receiver.writer import ReceivedReport
from cpaas_provider.delivery.tracking.permanent_failures.brakes import (
    SINGLE_SENDS_WINDOW,
    is_of_single_sends,
    read_brakes,
)
from cpaas_provider.delivery.tracking.report_store import ReportStore
from cpaas_provider.delivery.tracking.sent_requests import SentRequest, TrackedSend, record_send_started
from tests.unit.delivery.report_builders import (
    ADA,
    WHEN,
    finish_send,
    report,
    save_recipients,
    save_reports,
    save_requests,
    start_send,
    token_for,
)

CY = "cy@example.com"
UNKNOWN = "Unknown subscriber"
LOG = "cpaas_provider.delivery.tracking.permanent_failures.brakes"


def numbers(count: int) -> list[str]:
    return [f"23480300{number:05d}" for number in range(count)]


def listed(database: Database, recipients: list[str], channel: str = "sms") -> set[str]:
    return set(SuppressionTable(database).find(recipients, "shop", channel))


def braked(database: Database) -> list[str]:
    with database.connect() as connection:
        return [row["campaign"] for row in read_brakes(connection)]


def at(minute: float, recipient: str, status: str, **fields: Any) -> ReceivedReport:
    """Return a report that arrives now, and gives itself a time long before."""
    moment = WHEN - timedelta(hours=1) + timedelta(minutes=minute)
    incoming = report(recipient, status, timestamp=moment.isoformat(), **fields)
    return incoming._replace(at=datetime.now(UTC))


def failed(minute: float, recipient: str, **fields: Any) -> ReceivedReport:
    return at(minute, recipient, "undelivered", reason=UNKNOWN, **fields)


class TestNewestReport:
    """Reports of three messages to one recipient, in every order and in any transactions."""

    @pytest.mark.parametrize("together", [True, False])
    @pytest.mark.parametrize(
        ("reports", "is_listed"),
        [
            ([(1, "undelivered", "m-1"), (2, "delivered", "m-2")], False),
            ([(1, "delivered", "m-1"), (2, "undelivered", "m-2")], True),
            ([(1, "undelivered", "m-1"), (2, "delivered", "m-2"), (3, "undelivered", "m-3")], True),
            ([(1, "undelivered", "m-1"), (2, "undelivered", "m-2"), (3, "clicked", "m-3")], False),
            ([(1, "delivered", "m-1"), (2, "undelivered", "m-2"), (3, "delivered", "m-1")], False),
            ([(1, "delivered", "m-1"), (2, "undelivered", "m-1")], False),
            ([(2, "delivered", "m-1"), (2, "undelivered", "m-2")], False),
        ],
    )
    def test_newest_report_decides_in_every_order(
        self, database: Database, reports: Any, is_listed: bool, together: bool
    ) -> None:
        for number, order in enumerate(itertools.permutations(reports)):
            recipient = f"2348031{number:06d}"
            incoming = [
                at(minute, recipient, status, message_id=f"{number}-{message}", reason=UNKNOWN, channel="sms")
                for minute, status, message in order
            ]
            for batch in [incoming] if together else [[one] for one in incoming]:
                save_reports(database, *batch)
            assert (listed(database, [recipient]) == {recipient}) is is_listed, order

    @pytest.mark.parametrize(("status", "is_listed"), [("opened", False), ("clicked", False), ("delivered", False)])
    def test_opened_email_takes_a_bounce_back(self, database: Database, status: str, is_listed: bool) -> None:
        bounced = at(1, CY, "bounced", message_id="m-1", reason="550 5.1.1 User unknown")
        save_reports(database, bounced)
        assert listed(database, [CY], "email") == {CY}
        save_reports(database, at(2, CY, status, message_id="m-2", channel="email"))
        assert (listed(database, [CY], "email") == {CY}) is is_listed

    def test_successful_airtime_does_not_take_an_entry_back(self, database: Database) -> None:
        save_reports(database, failed(1, ADA, message_id="m-1"))
        save_reports(database, at(2, ADA, "", message_id="m-2", event="airtime.success"))
        assert listed(database, [ADA]) == {ADA}

    def test_time_after_the_arrival_of_a_report_does_not_count(self, database: Database) -> None:
        """A clock that is ahead cannot keep later reports from counting."""
        save_reports(database, failed(60 * 24 * 36500, ADA, message_id="m-1"))
        later = at(0, ADA, "delivered", message_id="m-2")._replace(at=datetime.now(UTC) + timedelta(minutes=1))
        save_reports(database, later._replace(report=later.report._replace(reported_at=None)))
        assert listed(database, [ADA]) == set()

    @pytest.mark.parametrize("is_first", [True, False])
    def test_manual_entry_stays_after_a_delivery(self, database: Database, is_first: bool) -> None:
        entry = Listed(ADA, INVALID_NUMBER, "hotline", "sms", "shop")
        steps = [
            lambda: SuppressionTable(database).add([entry]),
            lambda: save_reports(database, failed(1, ADA, message_id="m-1")),
        ]
        for step in steps if is_first else reversed(steps):
            step()
        save_reports(database, at(2, ADA, "delivered", message_id="m-2"))
        assert listed(database, [ADA]) == {ADA}
        (stored,) = SuppressionTable(database).entries_of(ADA)
        assert (stored.source, stored.reported_at) == ("hotline", None)

    def test_imported_entry_stays_after_a_delivery(self, database: Database) -> None:
        table = SuppressionTable(database)
        save_reports(database, failed(1, ADA, message_id="m-1"))
        table.restore([entry._replace(reported_at=None) for entry in list(table.entries())])
        save_reports(database, at(2, ADA, "delivered", message_id="m-2"))
        assert listed(database, [ADA]) == {ADA}


def fill(database: Database, size: int, campaign: str = "spring", per_request: int = 10) -> list[str]:
    """Record a campaign, and return its recipients."""
    start_send(database, campaign)
    count = size // per_request
    save_requests(
        database, *(SentRequest(f"{campaign}-{number}", per_request) for number in range(count)), campaign=campaign
    )
    finish_send(database, campaign, expected=size)
    return numbers(size)


def failures(recipients: list[str], campaign: str = "spring", per_request: int = 10) -> list[ReceivedReport]:
    return [
        failed(
            1,
            recipient,
            token=token_for(*recipients[:per_request], campaign=campaign, reference=f"{campaign}-{place // 10}"),
        )
        for place, recipient in enumerate(recipients)
    ]


class TestBrakeOfCampaign:
    @pytest.mark.parametrize(("size", "count", "is_braked"), [(100, 19, False), (100, 20, True), (400, 20, False)])
    def test_campaign_with_too_many_failures_lists_no_recipient(
        self, database: Database, caplog: pytest.LogCaptureFixture, size: int, count: int, is_braked: bool
    ) -> None:
        recipients = fill(database, size)
        with caplog.at_level(logging.WARNING, LOG):
            for incoming in failures(recipients[:count]):
                save_reports(database, incoming)
        assert listed(database, recipients) == (set() if is_braked else set(recipients[:count]))
        assert braked(database) == (["spring"] if is_braked else [])
        assert [record.levelname for record in caplog.records if record.name == LOG] == ["WARNING"] * is_braked
        assert not any(recipient in caplog.text for recipient in recipients)

    def test_failures_reported_on_another_connection_do_not_brake_a_campaign(self, database: Database) -> None:
        recipients = fill(database, 100)
        others = [f"23480400{number:05d}" for number in range(30)]
        for recipient in others:
            save_reports(database, failed(1, recipient, conn_id="bank", reference="pack", token=token_for(*recipients)))
        save_reports(database, *failures(recipients[:3]))
        assert (listed(database, recipients), braked(database)) == (set(recipients[:3]), [])

    @pytest.mark.parametrize("seed", range(4))
    def test_campaign_brake_holds_in_any_order_of_requests_and_reports(self, database: Database, seed: int) -> None:
        """The requests are recorded before, between or after their reports, which come in any batches."""
        dice = random.Random(seed)
        recipients = numbers(60)
        start_send(database)
        steps: list[Any] = [
            lambda number=number: save_requests(
                database, SentRequest(f"cpaas-{'a' * 23}{number + 2}", 10, f"m-{number}")
            )
            for number in range(6)
        ]
        incoming = [
            failed(1, recipient, message_id=f"m-{place // 10}", external_ref=f"cpaas-{'a' * 23}{place // 10 + 2}")
            for place, recipient in enumerate(recipients[:30])
        ]
        dice.shuffle(incoming)
        while incoming:
            size = dice.randint(1, 8)
            batch, incoming = incoming[:size], incoming[size:]
            steps.append(lambda batch=batch: save_reports(database, *batch))
        dice.shuffle(steps)
        for step in steps:
            step()
        finish_send(database, expected=60)
        assert (listed(database, recipients), braked(database)) == (set(), ["spring"])

    def test_growing_campaign_lists_its_failures_once_their_share_is_small(self, database: Database) -> None:
        recipients = numbers(500)
        start_send(database)
        save_requests(database, *(SentRequest(f"spring-{number}", 10) for number in range(5)))
        save_reports(database, *failures(recipients[:24]))
        assert (listed(database, recipients), braked(database)) == (set(), ["spring"])
        save_requests(database, *(SentRequest(f"spring-{number}", 10) for number in range(5, 50)))
        finish_send(database, expected=500)
        assert (listed(database, recipients), braked(database)) == (set(recipients[:24]), [])

    def test_entry_of_another_campaign_stays(self, database: Database) -> None:
        recipients = fill(database, 100)
        fill(database, 100, "summer")
        save_reports(database, failures(recipients, "summer")[0])
        save_reports(database, *failures(recipients[:50]))
        assert (listed(database, recipients), braked(database)) == ({recipients[0]}, ["spring"])

    @pytest.mark.parametrize(
        ("where", "is_removed"),
        [
            ({}, True),
            ({"channel": "sms"}, True),
            ({"reason": "invalid_number"}, True),
            ({"conn_id": "Shop"}, True),
            ({"channel": "whatsapp"}, False),
            ({"channel": "all"}, False),
            ({"reason": "hard_bounce"}, False),
            ({"conn_id": ""}, False),
        ],
    )
    def test_failure_behind_a_brake_is_removed_only_with_its_entry(
        self, database: Database, where: dict[str, str], is_removed: bool
    ) -> None:
        """What a brake holds back counts as removed if its entry would be one of those that the person removes."""
        recipients = numbers(500)
        start_send(database)
        save_requests(database, *(SentRequest(f"spring-{number}", 10) for number in range(5)))
        save_reports(database, *failures(recipients[:24]))
        SuppressionTable(database).remove(recipients[:1], where)
        save_requests(database, *(SentRequest(f"spring-{number}", 10) for number in range(5, 50)))
        finish_send(database, expected=500)
        assert listed(database, recipients) == set(recipients[is_removed:24])

    def test_campaign_brake_holds_over_several_receivers_at_once(self, database: Database, url: str) -> None:
        recipients = fill(database, 200)
        incoming = failures(recipients[:120])
        together = threading.Barrier(4)

        def receive(part: list[ReceivedReport]) -> None:
            with open_database(url) as own:
                store = ReportStore(own)
                together.wait()
                for one in part:
                    store.save([one])

        receivers = [threading.Thread(target=receive, args=(incoming[number::4],)) for number in range(4)]
        for receiver in receivers:
            receiver.start()
        for receiver in receivers:
            receiver.join()
        assert (listed(database, recipients), braked(database)) == (set(), ["spring"])


OURS = f"cpaas-{'a' * 24}"


class TestBrakeOfSingleSends:
    """A gateway that reports every number as invalid: each message is a campaign of its own."""

    def send(
        self, database: Database, recipients: list[str], status: str = "undelivered", *, is_recorded: bool = True
    ) -> None:
        for place, recipient in enumerate(recipients):
            name = f"m-{status}-{recipient}" if place % 2 or not is_recorded else f"single-{status}-{recipient}"
            if name.startswith("single"):
                start_send(database, name)
                save_requests(database, SentRequest(name, 1), campaign=name)
                token = token_for(recipient, campaign=name, reference=name)
                save_reports(database, at(1, recipient, status, token=token, reason=UNKNOWN))
            else:
                save_reports(database, at(1, recipient, status, message_id=name, reason=UNKNOWN, channel="sms"))

    @pytest.mark.parametrize("is_recorded", [True, False])
    def test_single_sends_with_too_many_failures_list_no_recipient(
        self, database: Database, caplog: pytest.LogCaptureFixture, is_recorded: bool
    ) -> None:
        recipients = numbers(25)
        with caplog.at_level(logging.WARNING, LOG):
            self.send(database, recipients[:19], is_recorded=is_recorded)
            assert listed(database, recipients) == set(recipients[:19])
            self.send(database, recipients[19:], is_recorded=is_recorded)
        assert listed(database, recipients) == set()
        with database.connect() as connection:
            [brake] = read_brakes(connection)
        assert (brake["conn_id"], brake["failures"], brake["recipients"]) == ("shop", 20, 20)
        assert is_of_single_sends(brake)
        [record] = [record for record in caplog.records if record.name == LOG]
        assert "single sends on connection 'shop'" in record.getMessage()
        assert not any(recipient in caplog.text for recipient in recipients)

    def test_single_sends_with_a_small_share_of_failures_list_them(self, database: Database) -> None:
        recipients = numbers(420)
        save_reports(
            database, *(at(0, recipient, "delivered", message_id=f"d-{recipient}") for recipient in recipients[:400])
        )
        self.send(database, recipients[400:])
        assert listed(database, recipients) == set(recipients[400:])

    def test_failures_of_campaigns_and_other_connections_do_not_brake_single_sends(self, database: Database) -> None:
        recipients = fill(database, 400)
        save_reports(database, *failures(recipients[:15]))
        other = (failed(1, one, message_id=f"bank-{one}", conn_id="bank") for one in recipients[20:35])
        save_reports(database, *other)
        self.send(database, recipients[40:50])
        assert listed(database, recipients) == {*recipients[:15], *recipients[40:50]}
        assert braked(database) == []

    def test_failures_in_the_window_of_a_brake_never_count_and_later_ones_do(self, database: Database) -> None:
        recipients = numbers(40)
        self.send(database, recipients[:30])
        assert listed(database, recipients) == set()
        with database.engine.begin() as connection:
            moments = (
                (deliveries, "updated_at"),
                (deliveries, "failure_received_at"),
                (suppression_brakes, "braked_at"),
            )
            for table, name in moments:
                for row in connection.execute(select(table)).mappings().all():
                    same = and_(*(column == row[column.name] for column in table.primary_key))
                    earlier = row[name] - 2 * SINGLE_SENDS_WINDOW
                    connection.execute(update(table).where(same).values({name: earlier}))
        self.send(database, recipients[30:])
        save_reports(database, at(1, recipients[0], "sent", message_id="again"))
        assert listed(database, recipients) == set(recipients[30:])

    def test_single_send_brake_holds_over_several_receivers_at_once(self, database: Database, url: str) -> None:
        recipients = numbers(60)
        together = threading.Barrier(3)

        def receive(part: list[str]) -> None:
            with open_database(url) as own:
                together.wait()
                self.send(own, part, is_recorded=False)

        receivers = [threading.Thread(target=receive, args=(recipients[number::3],)) for number in range(3)]
        for receiver in receivers:
            receiver.start()
        for receiver in receivers:
            receiver.join()
        assert (listed(database, recipients), len(braked(database))) == (set(), 1)


class TestReportWithoutAKind:
    """The status "failed" is one of SMS and of airtime. It counts once the request is recorded."""

    def record(self, database: Database, operation: str, campaign: str) -> None:
        send = TrackedSend(campaign, operation, "shop", "dag", "run", "send", -1)
        database.write(lambda connection: record_send_started(connection, send))
        save_requests(database, SentRequest(OURS, 1, "m-1"), campaign=campaign)

    @pytest.mark.parametrize(("operation", "is_listed"), [("send_sms", True), ("buy_airtime", False)])
    @pytest.mark.parametrize("campaign", [OURS, "spring"])
    @pytest.mark.parametrize("by", [{"external_ref": OURS}, {"message_id": "m-1"}], ids=["reference", "id"])
    @pytest.mark.parametrize("recipient", [ADA, f"0{ADA[3:]}"])
    def test_failure_without_a_kind_lists_only_the_recipient_of_an_sms(
        self, database: Database, operation: str, is_listed: bool, campaign: str, by: Any, recipient: str
    ) -> None:
        save_reports(database, at(1, recipient, "failed", reason="Invalid number", region="NG", **by))
        assert listed(database, [ADA]) == set()
        self.record(database, operation, campaign)
        assert listed(database, [ADA]) == ({ADA} if is_listed else set())

    def test_failure_without_a_kind_at_the_callback_url_lists_the_recipient(self, database: Database) -> None:
        token = token_for(ADA, campaign=OURS, reference=OURS)
        save_reports(database, at(1, ADA, "failed", reason="Invalid number", token=token))
        self.record(database, "send_sms", OURS)
        assert listed(database, [ADA]) == {ADA}

    def test_failure_without_a_kind_before_a_delivery_lists_no_recipient(self, database: Database) -> None:
        save_reports(database, at(2, ADA, "delivered", message_id="m-2"))
        save_reports(database, at(1, ADA, "failed", reason="Invalid number", message_id="m-1"))
        self.record(database, "send_sms", "spring")
        assert listed(database, [ADA]) == set()


class TestReportWithoutARecipient:
    """It arrives before its request is recorded, and is about the only recipient of the request."""

    def test_failure_without_a_recipient_lists_the_one_that_a_later_report_names(self, database: Database) -> None:
        start_send(database)
        save_reports(database, failed(1, "", token=token_for(ADA)))
        assert listed(database, [ADA]) == set()
        save_reports(database, at(2, ADA, "sent", token=token_for(ADA)))
        assert listed(database, [ADA]) == {ADA}

    @pytest.mark.parametrize("token", [token_for(ADA), token_for(ADA, "2348030000009")])
    def test_entry_of_a_national_number_becomes_one_of_the_international_number(
        self, database: Database, token: Any
    ) -> None:
        national = f"0{ADA[3:]}"
        start_send(database)
        save_reports(database, failed(1, national, token=token))
        assert listed(database, [national, ADA]) == {national}
        save_reports(database, at(2, ADA, "sent", token=token))
        assert listed(database, [national, ADA]) == {ADA}

    def test_entry_of_a_stranger_is_removed_when_the_recipients_are_recorded(self, database: Database) -> None:
        stranger = "2348030000009"
        start_send(database)
        save_reports(database, failed(1, stranger, token=token_for(ADA)))
        assert listed(database, [stranger]) == {stranger}
        self.record(database)
        assert listed(database, [ADA, stranger]) == set()

    def record(self, database: Database) -> None:
        start_send(database)
        save_requests(database, SentRequest("pack", 1, "m-2"))
        save_recipients(database, ADA)

    def test_failure_without_a_recipient_lists_the_recorded_one(self, database: Database) -> None:
        save_reports(database, at(2, "", "undelivered", message_id="m-2", reason=UNKNOWN))
        self.record(database)
        assert listed(database, [ADA]) == {ADA}

    def test_delivery_without_a_recipient_takes_the_entry_of_the_recorded_one_back(self, database: Database) -> None:
        save_reports(database, failed(1, ADA, message_id="m-1"), at(2, "", "delivered", message_id="m-2"))
        assert listed(database, [ADA]) == {ADA}
        self.record(database)
        assert listed(database, [ADA]) == set()


def test_concurrent_failure_and_later_delivery_list_no_recipient(database: Database, url: str) -> None:
    """Two receivers store reports of two messages to each recipient, the later one delivered."""
    recipients = numbers(60)
    together = threading.Barrier(2)

    def receive(status: str, minute: int) -> None:
        with open_database(url) as own:
            store = ReportStore(own)
            for place, recipient in enumerate(recipients):
                together.wait()
                store.save(
                    [at(minute, recipient, status, message_id=f"{status}-{place}", reason=UNKNOWN, channel="sms")]
                )

    receivers = [threading.Thread(target=receive, args=given) for given in (("undelivered", 1), ("delivered", 2))]
    for receiver in receivers:
        receiver.start()
    for receiver in receivers:
        receiver.join()
    assert listed(database, recipients) == set()
