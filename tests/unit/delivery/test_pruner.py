"""The pruner deletes old rows by itself, at most once a day, and never what must stay."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import func, insert, select

from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.schema.delivery import reports
from cpaas_provider.database.schema.lookups import lookups
from cpaas_provider.delivery.background_job import run_while_serving
from cpaas_provider.delivery.pruner import Pruner
from tests.waiting import until

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
LIFETIME = timedelta(days=90)


def fill(database: Database, *ages: int) -> None:
    """Store a report and a lookup of each age, in days."""
    for age in ages:
        received = {"digest": bytes([age]), "conn_id": "shop", "received_at": NOW - timedelta(days=age)}
        report = {**received, "body": "{}", "recipient": "", "source": "callback", "received_count": 1}
        database.write(lambda connection, row=report: connection.execute(insert(reports).values(row)))  # type: ignore[misc]
        lookup = {"hash": bytes([age]), "dnd": False, "looked_up_at": NOW - timedelta(days=age)}
        database.write(lambda connection, row=lookup: connection.execute(insert(lookups).values(row)))  # type: ignore[misc]


def count(database: Database, table: Any = reports) -> int:
    with database.connect() as connection:
        return int(connection.execute(select(func.count()).select_from(table)).scalar_one())


@pytest.fixture
def pruner(database: Database, url: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", url)
    made = Pruner(LIFETIME)
    yield made
    if made._database is not None:
        made._database.close()


def test_rows_older_than_ninety_days_are_deleted_and_others_stay(database: Database, pruner: Pruner) -> None:
    fill(database, 1, 89, 91, 200)
    assert pruner.run_once(NOW) == 4
    assert (count(database), count(database, lookups)) == (2, 2)


def test_database_is_pruned_once_a_day_by_all_servers_together(database: Database, pruner: Pruner, url: str) -> None:
    assert pruner.run_once(NOW) == 0
    fill(database, 100)
    assert Pruner(LIFETIME).run_once(NOW + timedelta(hours=23)) is None
    assert count(database) == 1
    assert pruner.run_once(NOW + timedelta(hours=24)) == 2
    assert count(database) == 0


def test_clock_that_was_ahead_does_not_stop_pruning(database: Database, pruner: Pruner) -> None:
    assert pruner.run_once(NOW + timedelta(days=60)) == 0
    fill(database, 100)
    assert pruner.run_once(NOW) == 2
    # Clocks of servers differ by a little.
    assert pruner.run_once(NOW - timedelta(minutes=5)) is None


@pytest.mark.parametrize("days", ["0", "many", "-5", "1.5", ""])
def test_retention_that_is_off_or_unreadable_deletes_nothing(
    database: Database, pruner: Pruner, monkeypatch: pytest.MonkeyPatch, days: str
) -> None:
    monkeypatch.setenv("AIRFLOW__CPAAS__RETENTION_DAYS", days)
    fill(database, 200)
    assert pruner.run_once(NOW) is None
    assert count(database) == 1


def test_reports_stay_as_long_as_callback_urls_take_reports(
    database: Database, pruner: Pruner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__CPAAS__RETENTION_DAYS", "7")
    monkeypatch.setenv("AIRFLOW__CPAAS__LOOKUP_RETENTION_DAYS", "30")
    fill(database, 1, 20, 40, 100)
    pruner.run_once(NOW)
    assert (count(database), count(database, lookups)) == (3, 2)


def test_no_database_is_created_to_prune_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.delenv("AIRFLOW__CPAAS__DATABASE", raising=False)
    monkeypatch.setattr("cpaas_provider.database.default_file.default_file", lambda: tmp_path / "none.db")
    assert Pruner(LIFETIME).run_once(NOW) is None
    assert not (tmp_path / "none.db").exists()


def test_served_application_prunes(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from fastapi import FastAPI
    from fastapi.testclient import TestClient

    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", url)
    with open_database(url) as database:
        fill(database, 250)
        with TestClient(run_while_serving(FastAPI(), lambda: Pruner(LIFETIME))):
            until(lambda: count(database) == 0)
