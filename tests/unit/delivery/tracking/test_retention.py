from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import func, insert, select, update

from cpaas_provider.database.database import Database
from cpaas_provider.database.recipients.lookups import DndCache
from cpaas_provider.database.schema.accounts import budgets
from cpaas_provider.database.schema.activity import airtime_purchases, passcodes, task_progress
from cpaas_provider.database.schema.alerts import notifications
from cpaas_provider.database.schema.changes import campaign_changes
from cpaas_provider.database.schema.delivery import (
    deliveries,
    delivery_summaries,
    events,
    report_counts,
    reports,
    request_counts,
    requests,
    sends,
    suppression_brakes,
)
from cpaas_provider.database.schema.lookups import lookups, phone_records
from cpaas_provider.database.schema.recipients import message_counts
from cpaas_provider.delivery.tracking import retention
from cpaas_provider.delivery.tracking.events import (
    CAMPAIGN_FINISHED,
    KINDS,
    detect_events,
    mark_published,
    record_finished_before_prune,
    unpublished,
)
from cpaas_provider.delivery.tracking.retention import prune
from cpaas_provider.delivery.tracking.sent_requests import (
    SentRequest,
    TrackedSend,
    record_requests,
    record_send_started,
)
from tests.unit.delivery.report_builders import (
    ADA,
    OBI,
    WHEN,
    finish_send,
    report,
    save_reports,
    save_requests,
    start_send,
    token_for,
)

TABLES = (reports, deliveries, requests, sends, request_counts)
OF_THE_PAGES = (
    report_counts,
    delivery_summaries,
    task_progress,
    passcodes,
    airtime_purchases,
    campaign_changes,
)


def count_rows(database: Database) -> list[int]:
    with database.connect() as connection:
        return [connection.execute(select(func.count()).select_from(table)).scalar_one() for table in TABLES]


@pytest.fixture
def filled(database: Database) -> Database:
    """A store with something of everything."""
    save_reports(
        database,
        report(ADA, "delivered", token=token_for(campaign="spring")),
        report(OBI, "failed", token=token_for(campaign="spring"), reason="absent"),
        report("ada@example.com", "opened", token=token_for(campaign="mail")),
    )
    send = TrackedSend("spring", "send_sms", "shop", "dag", "run", "send", -1)
    database.write(lambda connection: record_send_started(connection, send))
    database.write(lambda connection: record_requests(connection, "spring", "shop", [SentRequest("pack", 2, "m1")]))
    return database


class TestPruning:
    def test_only_rows_older_than_the_retention_are_deleted(
        self, filled: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(retention, "BATCH_ROWS", 1)
        now = datetime.now(UTC)
        assert dict(prune(filled, WHEN - timedelta(seconds=1), WHEN)) == dict.fromkeys(
            (
                table.name
                for table in (
                    *TABLES,
                    suppression_brakes,
                    events,
                    notifications,
                    lookups,
                    phone_records,
                    message_counts,
                    budgets,
                    *OF_THE_PAGES,
                )
            ),
            0,
        )
        assert count_rows(filled) == [3, 3, 1, 1, 2]
        # The reports themselves came in May.
        assert dict(prune(filled, now - timedelta(days=1), WHEN))["cpaas_reports"] == 3
        assert count_rows(filled) == [0, 3, 1, 1, 2]
        with filled.engine.begin() as connection:
            connection.execute(
                update(deliveries).where(deliveries.c.campaign == "spring").values(updated_at=now - timedelta(days=100))
            )
            connection.execute(update(sends).values(finished_at=now))
        assert dict(prune(filled, now - timedelta(days=90), WHEN))["cpaas_deliveries"] == 2
        assert count_rows(filled) == [0, 1, 1, 1, 2]
        # An unfinished campaign stays for some days.
        with filled.engine.begin() as connection:
            connection.execute(update(sends).values(started_at=now - timedelta(days=100)))
        assert sum(number for _, number in prune(filled, now + timedelta(days=1), WHEN)) == 8
        assert count_rows(filled) == [0, 0, 0, 0, 0]

    def test_budgets_of_past_days_and_months_are_deleted(self, database: Database) -> None:
        names = ["2026-07-29", "2026-07-30", "2026-07-31", "2026-08-01", "2026-06", "2026-07", "2026-08"]
        rows = [{"conn_id": "shop", "period": name, "spent": 1} for name in names]
        database.write(lambda connection: connection.execute(insert(budgets), rows))
        before = datetime(2026, 8, 1, 12, tzinfo=UTC)
        assert dict(prune(database, before, before))["cpaas_budgets"] == 3
        with database.connect() as connection:
            found = connection.execute(select(budgets.c.period).order_by(budgets.c.period)).scalars().all()
        # In another time zone it may still be the last day of the month.
        assert list(found) == ["2026-07", "2026-07-31", "2026-08", "2026-08-01"]

    def test_rows_of_an_unfinished_campaign_stay_until_it_is_finished(self, database: Database) -> None:
        now = datetime.now(UTC)
        for campaign, conn_id in (("spring", "shop"), ("summer", "other")):
            start_send(database, campaign, conn_id)
            made = SentRequest(token_for(campaign=campaign).reference, 2)
            save_requests(database, made, campaign=campaign, conn_id=conn_id)
            save_reports(database, report(ADA, "delivered", token=token_for(campaign=campaign), conn_id=conn_id))
            finish_send(database, campaign, expected=2)
        tables = (deliveries, requests, sends, request_counts)

        def rows() -> list[int]:
            with database.connect() as connection:
                return [connection.execute(select(func.count()).select_from(table)).scalar_one() for table in tables]

        full = rows()
        list(prune(database, now + timedelta(days=1), WHEN))
        assert rows() == full
        save_reports(database, report(OBI, "failed", token=token_for()))
        detect_events(database, dict.fromkeys(KINDS, datetime(2000, 1, 1, tzinfo=UTC)))
        list(prune(database, now + timedelta(days=1), WHEN))
        with database.connect() as connection:
            assert connection.execute(select(sends.c.campaign)).scalars().all() == ["summer"]
            assert connection.execute(select(deliveries.c.campaign).distinct()).scalars().all() == ["summer"]
            assert [event.campaign for event in unpublished(connection) if event.kind == CAMPAIGN_FINISHED] == [
                "spring"
            ]
        # No DAG is scheduled on it, so nobody records that it is finished.
        database.write(lambda connection: connection.execute(update(sends).values(ended_at=now - timedelta(days=5))))
        list(prune(database, now + timedelta(days=1), WHEN))
        assert rows() == [0, 0, 0, 0]

    def test_campaign_whose_task_has_not_ended_stays_for_some_days(self, filled: Database) -> None:
        now = datetime.now(UTC)
        for age, number in ((timedelta(days=6), 1), (timedelta(days=9), 0)):
            change = update(sends).values(started_at=now - age)
            filled.write(lambda connection, change=change: connection.execute(change))
            list(prune(filled, now - timedelta(days=1), WHEN))
            with filled.connect() as connection:
                assert connection.execute(select(func.count()).select_from(sends)).scalar_one() == number

    def test_unpublished_events_stay(self, filled: Database) -> None:
        now = datetime.now(UTC)
        facts = {
            "kind": "finished",
            "batch": 0,
            "conn_id": "shop",
            "facts": "{}",
            "created_at": now - timedelta(days=200),
        }
        told = {"campaign": "told", "published_at": now - timedelta(days=100)}
        with filled.engine.begin() as connection:
            connection.execute(
                insert(events), [{**facts, **told}, {**facts, "campaign": "waits", "published_at": None}]
            )
        assert dict(prune(filled, now - timedelta(days=90), WHEN))["cpaas_events"] == 1
        with filled.connect() as connection:
            assert connection.execute(select(events.c.campaign)).scalars().all() == ["waits"]

    def test_campaign_continued_after_its_event_is_old_finishes_once(self, database: Database) -> None:
        def finish(expected: int) -> list[str]:
            start_send(database)
            finish_send(database, expected=expected)
            detect_events(database, dict.fromkeys(KINDS, datetime(2000, 1, 1, tzinfo=UTC)))
            with database.connect() as connection:
                new = unpublished(connection)
            database.write(lambda c: mark_published(c, new))
            return [event.campaign for event in new]

        later = datetime.now(UTC) + timedelta(minutes=1)
        assert finish(0) == ["spring"]
        start_send(database)
        finish_send(database, expected=2)
        list(prune(database, later, WHEN))
        assert finish(0) == []
        # Then nothing of it is left.
        list(prune(database, later, WHEN))
        with database.connect() as connection:
            assert connection.execute(select(events.c.id)).all() == []

    @pytest.mark.parametrize(("days", "finished"), [(100, []), (1, ["spring"]), (None, ["spring"])])
    def test_pruned_campaign_of_a_later_run_finishes_no_second_time(
        self, database: Database, days: int | None, finished: list[str]
    ) -> None:
        now = datetime.now(UTC)
        list(prune(database, now - timedelta(days=90), WHEN))
        first_day = None if days is None else (now - timedelta(days=days)).date()
        database.write(lambda c: record_finished_before_prune(c, "spring", "shop", first_day))
        start_send(database)
        finish_send(database, expected=0)
        detect_events(database, dict.fromkeys(KINDS, datetime(2000, 1, 1, tzinfo=UTC)))
        with database.connect() as connection:
            assert [event.campaign for event in unpublished(connection)] == finished

    def test_unreported_alerts_stay_unless_they_are_old(self, filled: Database) -> None:
        old = datetime.now(UTC) - timedelta(days=200)
        unused = {"window_seconds": 0, "in_flight": 0, "flight_token": 0, "fencing_token": 0, "sender_ok": False}
        group = {"conn_id": "shop", "sent_at": old, **unused}
        groups = (("reported", 0, None), ("waits", 1, old + timedelta(days=2)), ("waits for ever", 1, old))
        with filled.engine.begin() as connection:
            for name, alerts, last_at in groups:
                connection.execute(insert(notifications).values(name=name, alerts=alerts, last_at=last_at, **group))
        assert dict(prune(filled, old + timedelta(days=1), WHEN))["cpaas_notifications"] == 2
        with filled.connect() as connection:
            assert connection.execute(select(notifications.c.name)).scalars().all() == ["waits"]

    def test_lookups_have_a_retention_of_their_own(self, filled: Database) -> None:
        now = datetime.now(UTC)
        memory = DndCache(filled)
        memory.set_many({b"a": True}, now - timedelta(days=200))
        memory.set_many({b"b": True}, now - timedelta(days=400))
        gone = dict(prune(filled, now - timedelta(days=90), now - timedelta(days=365)))
        assert gone["cpaas_lookups"] == 1
        assert memory.get_many([b"a", b"b"], now - timedelta(days=500)) == {b"a": True}
