"""Many alerts at once, from several processes: one message with their number, whichever process is killed."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select, update

from cpaas_provider.database.database import open_database
from cpaas_provider.database.schema.alerts import notifications
from cpaas_provider.hooks._receiver import get_receiver_connection
from cpaas_provider.notifications import SmsNotifier
from cpaas_provider.notifications._runtime import background
from cpaas_provider.notifications._runtime.background import BackgroundSender
from tests.airflow.notifications.callers import ON_CALL, Callers, context
from tests.sandbox import connection_json
from tests.unit.database.conftest import postgres_url  # noqa: F401 - the fixture
from tests.waiting import until

LINK = "http://localhost:8080/dags/orders/runs/now"


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Any, airflow_db: object, monkeypatch: Any) -> str:
    """The database of all processes of a test."""
    is_file = request.param == "sqlite"
    url = f"sqlite:///{tmp_path / 'alerts.db'}" if is_file else request.getfixturevalue("postgres_url")
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", url)
    open_database(url).close()
    return str(url)


@pytest.fixture
def service(sandbox: Any, monkeypatch: Any) -> Any:
    monkeypatch.setenv("AIRFLOW_CONN_CPAAS_DEFAULT", connection_json(sandbox.connection, sender_id="Ops"))
    return sandbox


@pytest.fixture
def start() -> Iterator[Callable[[int, int], Callers]]:
    with contextlib.ExitStack() as running:

        def one(alerts: int, threads: int) -> Callers:
            callers = Callers(alerts, threads, dict(os.environ))
            running.callback(callers.kill)
            return callers

        yield one


@pytest.fixture
def sender(monkeypatch: Any) -> Iterator[BackgroundSender]:
    """The background sender of an API server."""
    monkeypatch.setattr(background, "PAUSE", 0.1)
    running = BackgroundSender(get_receiver_connection)
    running.start()
    yield running
    running.stop()


def texts(service: Any) -> list[str]:
    return [one["text"] for one in reversed(service.inbox("sms", limit=500)["items"])]


def group(url: str) -> Any:
    with open_database(url) as database, database.connect() as connection:
        return connection.execute(select(notifications)).one_or_none()


def later(url: str, passed: timedelta) -> None:
    """Let time pass for the alerts that are stored."""
    row, moments = group(url), ("first_at", "last_at", "sent_at", "leads_until", "lease_expires_at")
    change = {name: getattr(row, name) - passed for name in moments if getattr(row, name)}
    with open_database(url) as database:
        database.write(lambda connection: connection.execute(update(notifications).values(**change)))


def test_100_failing_tasks_in_two_processes_send_one_message_with_their_number(service, database, start) -> None:
    crowd = [start(50, 4) for _ in range(2)]
    assert [one.read() for one in crowd] == ["ready"] * 2
    for one in crowd:
        one.begin()
    assert [one.read() for one in crowd] == ["returned"] * 2
    assert service.counters()["sms"] == {"requests": 1, "recipients": 1}
    [text] = texts(service)
    assert text.partition(" since ")[0] == "Airflow: 100 alerts"
    assert text.endswith(f"UTC: orders.load failed (100) {LINK}")
    row = group(database)
    assert (row.alerts, row.in_flight, row.message) == (0, 0, None)


def test_100_failing_tasks_beside_an_api_server_send_one_message_and_wait_for_nothing(
    service, database, start, sender
) -> None:
    crowd = [start(50, 4) for _ in range(2)]
    assert [one.read() for one in crowd] == ["ready"] * 2
    for one in crowd:
        one.begin()
    assert [one.read() for one in crowd] == ["returned"] * 2
    [text] = until(lambda: texts(service))
    assert text.partition(" since ")[0] == "Airflow: 100 alerts"
    # Those within the window are reported when it closes, without a further failure.
    SmsNotifier(recipients=ON_CALL)(context(1))
    SmsNotifier(recipients=ON_CALL)(context(2))
    assert group(database).alerts == 2
    later(database, timedelta(minutes=6))
    until(lambda: len(texts(service)) == 2)
    assert texts(service)[1].startswith("Airflow: 2 alerts since ")
    assert service.counters()["sms"] == {"requests": 2, "recipients": 2}


def test_alerts_of_a_killed_caller_are_sent_by_the_next(service, database, start) -> None:
    killed = start(3, 3)
    assert killed.read() == "ready"
    killed.begin()
    until(lambda: (row := group(database)) and row.alerts == 3)
    killed.kill()
    assert texts(service) == []
    later(database, timedelta(seconds=30))
    SmsNotifier(recipients=ON_CALL)(context(4))
    [text] = texts(service)
    assert text.startswith("Airflow: 4 alerts since ")


def test_alerts_of_a_killed_caller_are_sent_by_the_api_server(service, database, start, monkeypatch) -> None:
    killed = start(3, 3)
    assert killed.read() == "ready"
    killed.begin()
    until(lambda: (row := group(database)) and row.alerts == 3)
    killed.kill()
    sender = BackgroundSender(get_receiver_connection)
    assert sender.run_once()
    assert texts(service) == []
    later(database, timedelta(seconds=30))
    assert sender.run_once()
    [text] = texts(service)
    assert text.startswith("Airflow: 3 alerts since ")
    sender.stop()


def test_caller_killed_during_its_request_is_reported_and_not_repeated(service, database, start, caplog) -> None:
    service.control("POST", "faults", {"operation": "send_sms", "kind": "latency", "ms": 30_000})
    killed = start(1, 1)
    assert killed.read() == "ready"
    killed.begin()
    until(lambda: (row := group(database)) and row.in_flight == 1)
    killed.kill()
    service.control("PUT", "scene", {"faults": []})
    later(database, timedelta(minutes=6))
    sender = BackgroundSender(get_receiver_connection)
    for _ in range(2):
        assert sender.run_once()
    sender.stop()
    assert [line for line in caplog.messages if "has no recorded outcome" in line] == [
        "A notification by connection 'cpaas_default' about 1 alert has no recorded outcome: its sender ended early. "
        "It may have been sent, so it is not sent again."
    ]
    assert service.counters()["requests"].get("send_sms", 0) <= 1


def test_api_server_without_the_connection_leaves_sending_to_the_callers(
    service, database, monkeypatch, caplog
) -> None:
    sender = BackgroundSender(lambda conn_id: None)
    assert sender.run_once()
    began = time.monotonic()
    SmsNotifier(recipients=ON_CALL)(context(1))
    assert time.monotonic() - began > 5
    assert len(texts(service)) == 1
    sender.stop()


def test_only_one_of_two_api_servers_sends(service, database) -> None:
    first, second = BackgroundSender(get_receiver_connection), BackgroundSender(get_receiver_connection)
    assert [first.run_once(), second.run_once()] == [True, False]
    first._thread = second._thread  # neither runs
    first.stop()
    assert second.run_once()
    second.stop()
