"""What a brake of the suppression list outlives: pruning, changes of rows, and reports that come late."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Table, and_, select, update
from sqlalchemy.types import DateTime

from cpaas_provider.database.database import Database
from cpaas_provider.database.recipients.suppressions import SuppressionTable
from cpaas_provider.database.schema.delivery import deliveries, requests, sends, suppression_brakes
from cpaas_provider.delivery.receiver.writer import ReceivedReport
from cpaas_provider.delivery.tracking.permanent_failures.brakes import SINGLE_SENDS_WINDOW, read_brakes
from cpaas_provider.delivery.tracking.retention import prune
from cpaas_provider.delivery.tracking.sent_requests import SentRequest
from tests.unit.delivery.report_builders import finish_send, report, save_reports, save_requests, start_send, token_for

RETENTION = timedelta(days=90)


def numbers(count: int) -> list[str]:
    return [f"23480300{number:05d}" for number in range(count)]


def listed(database: Database, recipients: list[str]) -> set[str]:
    return set(SuppressionTable(database).find(recipients, "shop", "sms"))


def brakes(database: Database) -> int:
    with database.connect() as connection:
        return len(read_brakes(connection))


def received_now(incoming: ReceivedReport) -> ReceivedReport:
    return incoming._replace(at=datetime.now(UTC))


def failure(recipient: str, **fields: Any) -> ReceivedReport:
    return received_now(report(recipient, "undelivered", reason="Unknown subscriber", **fields))


def age(database: Database, by: timedelta, *tables: Table, where: Callable[[Any], bool] = lambda row: True) -> None:
    """Have rows of tables be older in all their moments."""
    with database.engine.begin() as connection:
        for table in tables:
            moments = [
                column.name
                for column in table.columns
                if isinstance(getattr(column.type, "impl", column.type), DateTime)
            ]
            for row in filter(where, connection.execute(select(table)).mappings().all()):
                is_row = and_(*(column == row[column.name] for column in table.primary_key))
                older = {name: row[name] - by for name in moments if row[name] is not None}
                connection.execute(update(table).where(is_row).values(older))


def run_prune(database: Database) -> None:
    before = datetime.now(UTC) - RETENTION
    list(prune(database, before, before))


def fill(database: Database) -> list[str]:
    """Record a campaign to 200 recipients, of whom 30 have a permanent failure."""
    recipients = numbers(200)
    start_send(database)
    save_requests(database, *(SentRequest(f"spring-{number}", 10) for number in range(20)))
    save_reports(
        database,
        *(
            failure(recipient, token=token_for(*recipients[:10], reference=f"spring-{position // 10}"))
            for position, recipient in enumerate(recipients[:30])
        ),
    )
    finish_send(database, expected=200)
    assert (listed(database, recipients), brakes(database)) == (set(), 1)
    return recipients


class TestBrakeOfCampaign:
    def test_campaign_brake_stays_while_rows_with_failures_stay(self, database: Database) -> None:
        recipients = fill(database)
        age(database, 2 * RETENTION, suppression_brakes, sends)
        run_prune(database)
        # A report of another message has the entries of its recipient computed again.
        save_reports(database, failure(recipients[0], message_id="other"), failure(recipients[1], token=None))
        assert listed(database, recipients[1:]) == set()
        assert "spring" in {row["campaign"] for row in _brake_rows(database)}

    @pytest.mark.parametrize("is_requests_too", [True, False])
    def test_campaign_brake_stays_after_most_failures_were_pruned(
        self, database: Database, *, is_requests_too: bool
    ) -> None:
        recipients = fill(database)
        tables = (deliveries, requests) if is_requests_too else (deliveries,)
        age(database, 2 * RETENTION, *tables, where=lambda row: row["reference"] in ("spring-0", "spring-1"))
        age(database, 2 * RETENTION, sends)
        run_prune(database)
        save_reports(database, failure(recipients[40], token=token_for(*recipients[:10], reference="spring-4")))
        assert (listed(database, recipients), brakes(database)) == (set(), 1)

    def test_campaign_brake_is_released_by_more_recipients(self, database: Database) -> None:
        recipients = fill(database)
        save_requests(database, *(SentRequest(f"spring-{number}", 10) for number in range(20, 100)))
        finish_send(database, expected=1000)
        assert (listed(database, recipients), brakes(database)) == (set(recipients[:30]), 0)

    def test_campaign_brake_is_pruned_with_the_last_failure(self, database: Database) -> None:
        fill(database)
        age(database, 2 * RETENTION, deliveries, requests, sends, suppression_brakes)
        run_prune(database)
        assert brakes(database) == 0


def _brake_rows(database: Database) -> list[Any]:
    with database.connect() as connection:
        return list(read_brakes(connection))


def send_single(database: Database, recipients: list[str], *, is_recorded: bool = True) -> None:
    for recipient in recipients:
        name = f"single-{recipient}"
        if is_recorded:
            start_send(database, name)
            save_requests(database, SentRequest(name, 1), campaign=name)
            finish_send(database, name, expected=1)
            save_reports(database, failure(recipient, token=token_for(recipient, campaign=name, reference=name)))
        else:
            save_reports(database, failure(recipient, message_id=name, channel="sms"))


class TestBrakeOfSingleSends:
    @pytest.mark.parametrize("is_recorded", [True, False])
    @pytest.mark.parametrize(
        "pruned", [(suppression_brakes,), (requests, sends), (suppression_brakes, requests, sends)]
    )
    def test_single_send_brake_stays_while_rows_with_failures_stay(
        self, database: Database, pruned: tuple[Table, ...], *, is_recorded: bool
    ) -> None:
        recipients = numbers(25)
        send_single(database, recipients, is_recorded=is_recorded)
        assert (listed(database, recipients), brakes(database)) == (set(), 1)
        # All of it happened long ago. Only the rows changed since then.
        age(database, 2 * RETENTION, suppression_brakes, requests, sends, deliveries)
        now = datetime.now(UTC)
        with database.engine.begin() as connection:
            connection.execute(update(deliveries).values(updated_at=now))
            for table, name in ((suppression_brakes, "braked_at"), (requests, "recorded_at"), (sends, "started_at")):
                if table not in pruned and table is not suppression_brakes:
                    connection.execute(update(table).values({name: now}))
        run_prune(database)
        save_reports(
            database,
            *(received_now(report(recipient, "sent", message_id=f"n-{recipient}")) for recipient in recipients),
        )
        save_reports(database, failure(recipients[0], message_id="again", channel="sms"))
        assert listed(database, recipients[1:]) == set()

    def test_single_send_brake_is_pruned_although_later_failures_stay(self, database: Database) -> None:
        """On a connection with a permanent failure each day, one is always a little younger than the retention."""
        send_single(database, numbers(25), is_recorded=False)
        age(database, 2 * RETENTION, deliveries, suppression_brakes)
        save_reports(database, failure(numbers(26)[-1], message_id="later", channel="sms"))
        age(database, RETENTION - SINGLE_SENDS_WINDOW / 2, deliveries, where=lambda row: "later" in row["campaign"])
        run_prune(database)
        assert brakes(database) == 0

    def test_single_send_brake_counts_failures_by_the_time_they_were_received(self, database: Database) -> None:
        """Rows of failures from different weeks change today, such as when their requests are recorded."""
        recipients = numbers(30)
        for recipient in recipients[:-1]:
            save_reports(database, failure(recipient, message_id=f"m-{recipient}", channel="sms"))
            age(database, 2 * SINGLE_SENDS_WINDOW, deliveries)
        with database.engine.begin() as connection:
            connection.execute(update(deliveries).values(updated_at=datetime.now(UTC)))
        save_reports(database, failure(recipients[-1], message_id="m-last", channel="sms"))
        assert (listed(database, recipients), brakes(database)) == (set(recipients), 0)

    def test_failures_outside_the_window_of_a_brake_stay_listed_when_their_rows_change(
        self, database: Database
    ) -> None:
        recipients = numbers(40)
        save_reports(
            database, *(failure(recipient, message_id=f"m-{recipient}", channel="sms") for recipient in recipients[:10])
        )
        age(database, 3 * SINGLE_SENDS_WINDOW, deliveries)
        send_single(database, recipients[10:], is_recorded=False)
        assert (listed(database, recipients), brakes(database)) == (set(recipients[:10]), 1)
        with database.engine.begin() as connection:
            connection.execute(update(deliveries).values(updated_at=datetime.now(UTC)))
        save_reports(
            database, *(failure(recipient, message_id=f"n-{recipient}", channel="sms") for recipient in recipients[:1])
        )
        assert listed(database, recipients) == set(recipients[:10])

    def test_failures_in_the_window_of_a_brake_stay_unlisted_when_their_rows_change(self, database: Database) -> None:
        recipients = numbers(30)
        send_single(database, recipients, is_recorded=False)
        age(database, 3 * SINGLE_SENDS_WINDOW, deliveries, suppression_brakes)
        with database.engine.begin() as connection:
            connection.execute(update(deliveries).values(updated_at=datetime.now(UTC)))
        save_reports(
            database,
            *(received_now(report(recipient, "sent", message_id=f"n-{recipient}")) for recipient in recipients),
        )
        # The request is recorded late, which writes the row again.
        start_send(database, "late")
        save_requests(database, SentRequest("late", 1, f"single-{recipients[0]}"), campaign="late")
        assert listed(database, recipients) == set()

    def test_failure_after_another_status_of_the_same_rank_counts_at_its_own_time(self, database: Database) -> None:
        """A first report without a cause is older than a day. The causes, all the same, come today."""
        recipients = numbers(30)
        save_reports(
            database,
            *(
                received_now(
                    report(recipient, "undelivered", message_id=f"m-{recipient}", channel="sms", reason="Absent")
                )
                for recipient in recipients
            ),
        )
        age(database, 2 * SINGLE_SENDS_WINDOW, deliveries)
        save_reports(
            database, *(failure(recipient, message_id=f"m-{recipient}", channel="sms") for recipient in recipients)
        )
        assert (listed(database, recipients), brakes(database)) == (set(), 1)

    def test_changed_rows_of_old_messages_do_not_release_the_brake(self, database: Database) -> None:
        """Delivered messages of last week are no recipients of today, though their rows change today."""
        recipients = numbers(430)
        delivered = (
            received_now(report(recipient, "delivered", message_id=f"d-{recipient}")) for recipient in recipients[:400]
        )
        save_reports(database, *delivered)
        age(database, 7 * SINGLE_SENDS_WINDOW, deliveries)
        with database.engine.begin() as connection:
            connection.execute(update(deliveries).values(updated_at=datetime.now(UTC)))
        send_single(database, recipients[400:], is_recorded=False)
        assert (listed(database, recipients), brakes(database)) == (set(), 1)
