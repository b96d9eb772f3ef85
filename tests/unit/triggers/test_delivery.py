"""DeliveryTrigger against a real database: one event, plain JSON, and as few queries as promised."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import timezone
from airflow.sdk._shared.module_loading import import_string
from sqlalchemy import Engine, event

from cpaas_provider.database.database import Database, open_database
from cpaas_provider.delivery.tracking.counts import DeliveryCounts
from cpaas_provider.delivery.tracking.sent_requests import SentRequest
from cpaas_provider.triggers import delivery
from cpaas_provider.triggers._polling import delivery_poller, poller, progress
from cpaas_provider.triggers._polling.criteria import DeliveryCriteria
from cpaas_provider.triggers._polling.delivery_poller import DeliveryPoller
from cpaas_provider.triggers._polling.poller import WaitEndedError
from cpaas_provider.triggers.delivery import DeliveryTrigger
from tests.unit.database.conftest import database as database
from tests.unit.database.conftest import postgres_url as postgres_url
from tests.unit.database.conftest import sqlite_url as sqlite_url
from tests.unit.database.conftest import url as url
from tests.unit.delivery.report_builders import (
    ADA,
    OBI,
    UMA,
    report,
    save_reports,
    save_requests,
    start_send,
    token_for,
)

ROUND = 0.02


@pytest.fixture
def store(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """The database that the trigger reads."""
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", sqlite_url)
    with open_database() as opened:
        yield opened


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poller, "SHORTEST_INTERVAL", ROUND)
    monkeypatch.setattr(delivery_poller, "_MIN_PAUSE_RATIO", 0)
    monkeypatch.setattr(poller, "IDLE_SECONDS", 0.0)
    monkeypatch.setattr(poller, "FIRST_BACKOFF", 0.01)
    monkeypatch.setattr(poller, "MAX_BACKOFF", 0.02)


@contextlib.contextmanager
def queries_with(*words: str) -> Iterator[list[str]]:
    """Collect the queries of any engine that hold all these words."""
    queries: list[str] = []

    def collect(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("SELECT") and all(word in statement for word in words):
            queries.append(statement)

    event.listen(Engine, "before_cursor_execute", collect)
    try:
        yield queries
    finally:
        event.remove(Engine, "before_cursor_execute", collect)


FULL_READS, ROUNDS = ("count(CASE", "campaign IN (?"), ("updated_at >=",)


def in_(seconds: float) -> str:
    return (timezone.utcnow() + dt.timedelta(seconds=seconds)).isoformat()


def trigger(*campaigns: str, **given: Any) -> DeliveryTrigger:
    return DeliveryTrigger(
        **{"campaigns": list(campaigns or ["spring"]), "expected": 1, "min_delivered": None, "deadline": in_(30),
           "poke_interval": 0, **given}
    )  # fmt: skip


async def event_of(one: DeliveryTrigger) -> dict[str, Any]:
    async with asyncio.timeout(20):
        events = [event.payload async for event in one.run()]
    assert len(events) == 1
    assert json.loads(json.dumps(events[0])) == events[0]
    return dict(events[0])


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.005)


def ended(outcome: str, *figures: int) -> dict[str, Any]:
    names = ("expected", "delivered", "undelivered", "in_flight", "unreported")
    return {"outcome": outcome, **dict(zip(names, figures, strict=True))}


class TestDeliveryCriteria:
    @pytest.mark.parametrize(
        ("counts", "outcome"),
        [
            (DeliveryCounts(), None),
            (DeliveryCounts(3, 0, 1), None),
            (DeliveryCounts(3, 0, 0), None),
            (DeliveryCounts(3, 1, 0), "done"),
            (DeliveryCounts(0, 4, 0), "done"),
            (DeliveryCounts(4, 1, 0), "done"),
            (DeliveryCounts(4, 0, 1), None),
        ],
    )
    def test_without_a_share_the_wait_ends_once_all_recipients_have_a_final_status(
        self, counts: DeliveryCounts, outcome: str | None
    ) -> None:
        result = DeliveryCriteria(4).evaluate(counts)
        assert (result and result["outcome"]) == outcome

    @pytest.mark.parametrize(
        ("share", "counts", "outcome"),
        [
            (0.5, DeliveryCounts(2), "done"),
            (0.5, DeliveryCounts(1, 2), None),
            (0.5, DeliveryCounts(1, 3), "missed"),
            (0.3, DeliveryCounts(1), None),
            (0.3, DeliveryCounts(2), "done"),
            (1.0, DeliveryCounts(3), None),
            (1.0, DeliveryCounts(0, 1), "missed"),
            (1.0, DeliveryCounts(4), "done"),
        ],
    )
    def test_share_ends_the_wait_once_it_is_reached_or_out_of_reach(
        self, share: float, counts: DeliveryCounts, outcome: str | None
    ) -> None:
        result = DeliveryCriteria(4, share).evaluate(counts)
        assert (result and result["outcome"]) == outcome

    def test_min_delivered_share_is_not_rounded_up_by_floating_point(self) -> None:
        assert 0.07 * 100 > 7
        result = DeliveryCriteria(100, 0.07).evaluate(DeliveryCounts(7))
        assert (result or {}).get("outcome") == "done"

    @pytest.mark.parametrize("share", [1e-12, 1e-300, 5e-324])
    def test_share_however_small_is_not_reached_before_a_delivery(self, share: float) -> None:
        criteria = DeliveryCriteria(4, share)
        assert criteria.evaluate(DeliveryCounts(0, 3, 1)) is None
        assert (criteria.evaluate(DeliveryCounts(0, 4)) or {})["outcome"] == "missed"
        assert (criteria.evaluate(DeliveryCounts(1)) or {})["outcome"] == "done"

    def test_figures_add_up_with_more_reported_recipients_than_expected(self) -> None:
        assert list(DeliveryCriteria(5).summary(DeliveryCounts(1, 1, 1)).values()) == [5, 1, 1, 1, 2]
        assert list(DeliveryCriteria(1).summary(DeliveryCounts(2, 1, 1)).values()) == [4, 2, 1, 1, 0]

    def test_recipients_of_unknown_outcome_are_open_until_each_has_a_report(self) -> None:
        criteria = DeliveryCriteria(2, unknown=2)
        assert criteria.evaluate(DeliveryCounts(2)) is None
        assert criteria.evaluate(DeliveryCounts(3, unknown=1)) is None
        assert list(criteria.summary(DeliveryCounts(3, unknown=1)).values()) == [4, 3, 0, 0, 1]
        assert (criteria.evaluate(DeliveryCounts(3, 1, unknown=2)) or {})["outcome"] == "done"


class TestEvents:
    @pytest.fixture
    def store(self, database: Database, url: str, monkeypatch: pytest.MonkeyPatch) -> Database:
        """SQLite and PostgreSQL."""
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", url)
        return database

    async def test_final_reports_end_the_wait_at_once(self, store: Database) -> None:
        save_reports(
            store, report(ADA, "delivered", token=token_for(ADA, OBI)), report(OBI, "failed", token=token_for(ADA, OBI))
        )
        assert await event_of(trigger(expected=2)) == ended("done", 2, 1, 1, 0, 0)

    async def test_reports_that_arrive_during_the_wait_end_it(self, store: Database) -> None:
        with queries_with(*ROUNDS) as rounds:
            waiting = asyncio.create_task(event_of(trigger(expected=2)))
            await until(lambda: rounds)
            save_reports(
                store,
                report(ADA, "delivered", token=token_for(ADA, OBI)),
                report(OBI, "sent", token=token_for(ADA, OBI)),
            )
            seen = len(rounds)
            await until(lambda: len(rounds) > seen + 1)
            assert not waiting.done()
            save_reports(store, report(OBI, "delivered", token=token_for(ADA, OBI)))
            assert await waiting == ended("done", 2, 2, 0, 0, 0)

    async def test_changed_figures_are_logged_and_same_ones_are_not_repeated(
        self, store: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        monkeypatch.setattr(poller, "MAX_SLEEP_SECONDS", 0.02)
        monkeypatch.setattr(progress, "CHANGED_EVERY", 0)
        waiting = asyncio.create_task(event_of(trigger(expected=2)))
        standing = "The wait continues. Of 2 recipients {} are delivered, 0 undelivered, 0 in flight and {} unreported."
        await until(lambda: caplog.messages.count(standing.format(0, 2)))
        save_reports(store, report(ADA, "delivered", token=token_for(ADA, OBI)))
        await until(lambda: caplog.messages.count(standing.format(1, 1)))
        await asyncio.sleep(0.2)
        save_reports(store, report(OBI, "delivered", token=token_for(ADA, OBI)))
        await waiting
        lines = [line for line in caplog.messages if line.startswith("The wait continues.")]
        assert lines == [standing.format(0, 2), standing.format(1, 1)]

    async def test_share_of_several_campaigns_is_reached_before_all_are_final(self, store: Database) -> None:
        names = [f"one{number}" for number in range(3)]
        waiting = asyncio.create_task(event_of(trigger(*names, expected=3, min_delivered=0.6)))
        for name in names[:2]:
            save_reports(store, report(ADA, "delivered", token=token_for(ADA, campaign=name, reference=name)))
        assert await waiting == ended("done", 3, 2, 0, 0, 1)

    async def test_share_out_of_reach_ends_the_wait_early(self, store: Database) -> None:
        waiting = asyncio.create_task(event_of(trigger(expected=3, min_delivered=0.9)))
        save_reports(store, report(ADA, "rejected", token=token_for(ADA, OBI, UMA)))
        assert await waiting == ended("missed", 3, 0, 1, 0, 2)

    async def test_recipient_reported_failed_and_delivered_counts_as_delivered(self, store: Database) -> None:
        save_reports(store, report(ADA, "delivered", token=token_for(ADA)), report(ADA, "failed", token=token_for(ADA)))
        assert await event_of(trigger(min_delivered=1.0)) == ended("done", 1, 1, 0, 0, 0)

    async def test_reports_of_unknown_requests_count_once_they_arrive(self, store: Database) -> None:
        save_reports(
            store, report(ADA, "delivered", token=token_for(ADA, OBI)), report(OBI, "sent", token=token_for(ADA, OBI))
        )
        assert await event_of(trigger(expected=1, deadline=in_(0.2))) == ended("timed_out", 2, 1, 0, 1, 0)


class TestDeadline:
    async def test_timeout_event_has_the_delivery_figures(self, store: Database) -> None:
        save_reports(
            store,
            report(ADA, "sent", token=token_for(ADA, OBI, UMA)),
            report(OBI, "failed", token=token_for(ADA, OBI, UMA)),
        )
        assert await event_of(trigger(expected=3, deadline=in_(0.2))) == ended("timed_out", 3, 0, 1, 1, 1)

    async def test_trigger_restarted_past_its_deadline_reads_once_more(self, store: Database) -> None:
        save_reports(store, report(ADA, "delivered", token=token_for(ADA)))
        assert await event_of(trigger(deadline=in_(-3600))) == ended("done", 1, 1, 0, 0, 0)
        assert await event_of(trigger(expected=2, deadline=in_(-3600))) == ended("timed_out", 2, 1, 0, 0, 1)

    async def test_report_since_the_last_round_is_read_at_the_deadline(self, store: Database) -> None:
        with queries_with(*ROUNDS) as rounds:
            waiting = asyncio.create_task(event_of(trigger(poke_interval=3600, deadline=in_(1.0))))
            await until(lambda: rounds)
            save_reports(store, report(ADA, "delivered", token=token_for(ADA)))
            assert (await waiting)["outcome"] == "done"
        assert len(rounds) == 1

    async def test_unreadable_database_does_not_delay_the_deadline(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(delivery, "LAST_READ_SECONDS", 0.1)
        (tmp_path / "file").touch()
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{tmp_path}/file/store.db")
        assert await event_of(trigger(deadline=in_(0.1))) == {"outcome": "timed_out"}

    def test_deserialized_trigger_equals_the_first(self) -> None:
        original = trigger("a", "b", expected=5, min_delivered=0.5, poke_interval=2)
        path, kwargs = original.serialize()
        again = import_string(path)(**json.loads(json.dumps(kwargs)))
        assert again.serialize() == original.serialize()


class TestOnePoller:
    async def test_one_query_a_round_serves_all_waiters(self, store: Database) -> None:
        with (
            queries_with(*FULL_READS) as reads,
            queries_with(*ROUNDS) as rounds,
            queries_with("cpaas_deliveries", "count(CASE") as counts,
        ):
            names = [f"one{number}" for number in range(1200)]
            waiting = [asyncio.create_task(event_of(trigger(name))) for name in names]
            await until(lambda: len(rounds) >= 5)
            save_reports(
                store, *(report(ADA, "delivered", token=token_for(ADA, campaign=one, reference=one)) for one in names)
            )
            events = await asyncio.gather(*waiting)
        assert events == [ended("done", 1, 1, 0, 0, 0)] * 1200
        # As many statements as SQLite needs for so many names.
        assert len(reads) <= 4
        assert len(counts) == len(reads) + len(rounds)

    async def test_reports_of_one_campaign_do_not_end_the_wait_for_another(self, store: Database) -> None:
        other = asyncio.create_task(event_of(trigger("summer")))
        save_reports(store, report(ADA, "delivered", token=token_for(ADA)))
        assert (await event_of(trigger("spring")))["outcome"] == "done"
        assert not other.done()
        other.cancel()

    async def test_several_waiters_of_one_campaign_each_get_their_result(self, store: Database) -> None:
        waiting = [asyncio.create_task(event_of(trigger(expected=1 + number))) for number in range(2)]
        save_reports(store, report(ADA, "delivered", token=token_for(ADA, OBI)))
        assert (await waiting[0])["outcome"] == "done"
        save_reports(store, report(OBI, "delivered", token=token_for(ADA, OBI)))
        assert (await waiting[1])["outcome"] == "done"

    async def test_campaigns_of_a_cancelled_trigger_are_no_longer_read(self, store: Database) -> None:
        with queries_with(*ROUNDS) as rounds:
            going, staying = (asyncio.create_task(event_of(trigger(name))) for name in ("spring", "summer"))
            await until(lambda: rounds)
            (shared,) = [one for one in poller._pollers.values() if isinstance(one, DeliveryPoller)]
            going.cancel()
            await until(going.done)
            assert [one.campaigns for one in shared.waiters] == [("summer",)]
            assert set(shared._by_campaign) == {"summer"}
            staying.cancel()
            await until(lambda: shared not in poller._pollers.values())
            seen = len(rounds)
            await asyncio.sleep(5 * ROUND)
            assert len(rounds) == seen

    async def test_smallest_interval_of_all_waiters_counts(self, store: Database) -> None:
        with queries_with(*ROUNDS) as rounds:
            patient = asyncio.create_task(event_of(trigger("summer", poke_interval=3600)))
            await until(lambda: rounds)
            hasty = asyncio.create_task(event_of(trigger("spring")))
            await until(lambda: len(rounds) >= 3)
            save_reports(store, report(ADA, "delivered", token=token_for(ADA, campaign="summer")))
            assert (await patient)["outcome"] == "done"
            hasty.cancel()

    async def test_full_read_finds_reports_of_a_receiver_with_a_wrong_clock(
        self, store: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(delivery_poller, "FULL_READ_SECONDS", 0.1)
        waiting = asyncio.create_task(event_of(trigger()))
        with queries_with(*ROUNDS) as rounds:
            await until(lambda: rounds)
            save_reports(store, report(ADA, "delivered", token=token_for(ADA)))
            with store.engine.begin() as connection:
                connection.exec_driver_sql("UPDATE cpaas_deliveries SET updated_at = '2020-01-01 00:00:00.000000'")
            assert (await waiting)["outcome"] == "done"


class TestReferences:
    async def test_recipients_of_references_are_counted_once_the_database_is_readable(self, store: Database) -> None:
        start_send(store, "noted")
        save_requests(store, SentRequest("noted-pack", 2), campaign="noted")
        with store.engine.begin() as connection:
            connection.exec_driver_sql("ALTER TABLE cpaas_deliveries RENAME TO away")
        with queries_with("cpaas_deliveries") as reads:
            waiting = asyncio.create_task(event_of(trigger("noted", expected=0, without_count=["noted"])))
            await until(lambda: len(reads) > 2)
        with store.engine.begin() as connection:
            connection.exec_driver_sql("ALTER TABLE away RENAME TO cpaas_deliveries")
        save_reports(store, report(ADA, "delivered", token=token_for(ADA, OBI, campaign="noted")))
        await asyncio.sleep(5 * ROUND)
        assert not waiting.done()
        save_reports(store, report(OBI, "failed", token=token_for(ADA, OBI, campaign="noted")))
        assert await waiting == ended("done", 2, 1, 1, 0, 0)

    async def test_request_that_is_accepted_during_the_wait_is_waited_for(self, store: Database) -> None:
        start_send(store, "noted")
        save_requests(store, SentRequest("noted-pack", 1), campaign="noted")
        with queries_with(*ROUNDS) as rounds:
            waiting = asyncio.create_task(event_of(trigger("noted", expected=0, without_count=["noted"])))
            await until(lambda: rounds)
            save_requests(store, SentRequest("noted-more", 1), campaign="noted")
            save_reports(store, report(ADA, "delivered", token=token_for(ADA, campaign="noted")))
            seen = len(rounds)
            await until(lambda: len(rounds) > seen + 2)
        assert not waiting.done()
        save_reports(store, report(OBI, "failed", token=token_for(OBI, campaign="noted", reference="noted-more")))
        assert await waiting == ended("done", 2, 1, 1, 0, 0)

    async def test_mistyped_reference_ends_its_own_wait_only(self, store: Database) -> None:
        waiting = asyncio.create_task(event_of(trigger("spring")))
        answer = await event_of(trigger("mistyped", expected=0, without_count=["mistyped"]))
        assert answer["outcome"] == "error"
        assert "no record of 1 of 1 references" in answer["message"]
        assert not waiting.done()
        waiting.cancel()


class TestSharedFate:
    async def test_arguments_that_cannot_be_used_end_their_own_wait_only(self, store: Database) -> None:
        save_reports(
            store, *(report(ADA, "delivered", token=token_for(ADA, campaign=name)) for name in ("spring", "autumn"))
        )
        good = [asyncio.create_task(event_of(trigger("spring"))) for _ in range(20)]
        with pytest.raises(WaitEndedError, match="float"):
            await event_of(trigger("autumn", min_delivered="half"))
        assert {(await task)["outcome"] for task in good} == {"done"}


class TestDatabaseFailures:
    async def test_failing_database_is_logged_once_and_does_not_end_the_wait(
        self, store: Database, sqlite_url: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        save_reports(store, report(ADA, "sent", token=token_for(ADA)))
        # Of all reads: where the table goes away within the first round, those after it begin with another query.
        with queries_with("cpaas_deliveries") as reads:
            waiting = asyncio.create_task(event_of(trigger()))
            await until(lambda: reads)
            with store.engine.begin() as connection:
                connection.exec_driver_sql("ALTER TABLE cpaas_deliveries RENAME TO away")
            seen = len(reads)
            await until(lambda: len(reads) > seen + 3)
            with store.engine.begin() as connection:
                connection.exec_driver_sql("ALTER TABLE away RENAME TO cpaas_deliveries")
            save_reports(store, report(ADA, "delivered", token=token_for(ADA)))
            assert (await waiting)["outcome"] == "done"
        warnings = [record for record in caplog.records if "could not be used" in record.message]
        assert len(warnings) == 1
        assert "Delivery sensors keep waiting" in warnings[0].message

    async def test_database_without_reports_ends_the_wait(
        self, store: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("cpaas_provider.database.database.REPORT_DIALECTS", ("postgresql",))
        answer = await event_of(trigger())
        assert answer["outcome"] == "error"
        assert "SQLite and PostgreSQL" in answer["message"]

    async def test_campaign_unknown_to_the_database_is_warned_of_once_in_the_waiting_task_s_log(
        self, store: Database, caplog: pytest.LogCaptureFixture
    ) -> None:
        start_send(store, "noted")
        save_requests(store, SentRequest("noted-pack", 1), campaign="noted")
        with queries_with(*ROUNDS) as rounds:
            waiting = [asyncio.create_task(event_of(trigger(name))) for name in ("spring", "noted")]
            await until(lambda: len(rounds) >= 3)
            save_reports(
                store, *(report(ADA, "delivered", token=token_for(ADA, campaign=name)) for name in ("spring", "noted"))
            )
            await asyncio.gather(*waiting)
        warnings = [record for record in caplog.records if "do not share one database" in record.message]
        assert len(warnings) == 1
        assert warnings[0].levelno == logging.WARNING
