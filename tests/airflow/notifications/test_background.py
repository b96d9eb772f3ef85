"""The background sender, as the API server runs it with the provider's application."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.fernet import Fernet
from fastapi import FastAPI
from fastapi.testclient import TestClient
from msgspec.structs import replace
from sqlalchemy import select, update

from cpaas_provider.api.settings import ClientOptions
from cpaas_provider.database.database import open_database
from cpaas_provider.database.schema.alerts import notifications
from cpaas_provider.hooks._receiver import get_receiver_connection
from cpaas_provider.hooks.connection import CpaasConnection
from cpaas_provider.notifications import SmsNotifier
from cpaas_provider.notifications._runtime import background, message
from cpaas_provider.notifications._runtime.alerts import AlertGroups
from cpaas_provider.notifications._runtime.background import BackgroundSender, send_while_serving
from tests.airflow.notifications.callers import ON_CALL, context
from tests.airflow.notifications.conftest import QUICK
from tests.waiting import until


@pytest.mark.usefixtures("quick")
def test_runs_as_long_as_the_application_is_served(task_runner, texts, monkeypatch) -> None:
    monkeypatch.setattr(background, "PAUSE", 0.02)
    with TestClient(send_while_serving(FastAPI(), get_receiver_connection)):
        notifier = SmsNotifier(recipients=ON_CALL, window=1)
        notifier(context(1))
        until(texts)
        notifier(context(2))
        until(lambda: len(texts()) == 2)
    assert BackgroundSender(get_receiver_connection).run_once()


@pytest.mark.usefixtures("quick")
def test_not_reaching_the_service_leaves_the_alerts_to_callers(task_runner, texts) -> None:
    task_runner.connect("shop")
    sender = BackgroundSender(get_receiver_connection)
    assert sender.run_once()
    task_runner.sandbox.control("POST", "faults", {"operation": "send_sms", "kind": "unavailable", "retry_after": 30})
    notifier = SmsNotifier(recipients=ON_CALL, cpaas_conn_id="shop", window=1)
    notifier(context(1))
    with open_database() as database:
        groups = AlertGroups(database, background.TIMING)
        [waiting] = groups.waiting()
        groups.check(waiting.name, can_send=False)
    task_runner.sandbox.control("PUT", "scene", {"faults": []})
    notifier(context(2))
    [text] = texts()
    assert text.startswith("Airflow: 2 alerts since ")
    sender.stop()


def waiting(name: str, **changes: object) -> None:
    """Leave an alert to the background sender, as a caller does that was killed."""
    alert = message.Alert("sms", [ON_CALL[1:]], "Ops", None, f"orders.{name} failed", None)
    connection = get_receiver_connection("cpaas_default")
    assert connection is not None
    with open_database() as database:
        groups = AlertGroups(database, QUICK)
        groups.add(name, "cpaas_default", f"orders.{name} failed", message.seal(alert, connection.hash_secrets), HOUR)
        passed = {"lease_expires_at": None, "leads_until": None, **changes}
        row = update(notifications).where(notifications.c.name == name)
        database.write(lambda opened: opened.execute(row.values(**passed)))


HOUR = timedelta(hours=1)
WHOLE = {
    "channel": "sms",
    "recipients": [ON_CALL[1:]],
    "sender_id": "Ops",
    "content": "Look!",
    "headline": "",
    "link": None,
}
AGED = {"first_at": datetime.now(UTC) - HOUR, "last_at": datetime.now(UTC) - HOUR}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("newer", "sent"),
    [(WHOLE | {"unheard_of": 1}, ["Look!"]), ({"unheard_of": 1}, []), ([], [])],
)
def test_alert_of_a_newer_version_keeps_no_other_waiting(task_runner, texts, caplog, newer, sent) -> None:
    """As workers are upgraded before the API server."""
    connection = get_receiver_connection("cpaas_default")
    assert connection is not None
    key = Fernet(message._fernet_key(connection.hash_secrets[0]))
    waiting("a_newer", message=key.encrypt(json.dumps(newer).encode()).decode(), **AGED)
    waiting("other", **AGED)
    sender = BackgroundSender(get_receiver_connection)
    assert sender.run_once()
    assert sorted(texts()) == ["Airflow: orders.other failed", *sent]
    sender.stop()


@pytest.mark.usefixtures("quick")
def test_alert_of_now_is_sent_although_others_waited_for_a_day(task_runner, texts, caplog) -> None:
    caplog.set_level(logging.INFO)
    now, days_ago = datetime.now(UTC), datetime.now(UTC) - timedelta(days=2)
    waiting("new", alerts=26, first_at=days_ago, last_at=now - timedelta(minutes=1))
    waiting("old", alerts=26, first_at=days_ago - HOUR, last_at=days_ago)
    sender = BackgroundSender(get_receiver_connection)
    assert sender.run_once()
    [text] = texts()
    assert text.startswith(f"Airflow: 26 alerts since {days_ago:%H:%M} UTC: orders.new failed")
    assert "Not sent, because the last is over a day old: 26 alerts." in caplog.text
    sender.stop()


def connection_without_its_files(conn_id: str) -> CpaasConnection:
    """Return a connection as an API server reads it that lacks the client certificate of the workers."""
    connection = get_receiver_connection(conn_id)
    assert connection is not None
    options: ClientOptions = {**connection.options, "client_cert": "/nowhere/client.pem"}
    return replace(connection, base_url="https://127.0.0.1:9", options=options)


@pytest.mark.usefixtures("quick")
def test_api_server_without_the_files_of_the_connection_leaves_alerts_to_callers(task_runner, texts, caplog) -> None:
    sender = BackgroundSender(connection_without_its_files)
    assert sender.run_once()
    task_runner.sandbox.control("POST", "faults", {"operation": "send_sms", "kind": "unavailable", "retry_after": 30})
    notifier = SmsNotifier(recipients=ON_CALL, window=1)
    notifier(context(1))
    assert sender.run_once()
    assert "cannot send notifications of connection 'cpaas_default': client_cert names a file" in caplog.text
    task_runner.sandbox.control("PUT", "scene", {"faults": []})
    notifier(context(2))
    [text] = texts()
    assert text.startswith("Airflow: 2 alerts since ")
    sender.stop()


@pytest.mark.usefixtures("quick")
def test_alert_that_no_request_can_be_made_for_is_not_lost(task_runner, texts, caplog) -> None:
    waiting("load", sender_ok=True, sender_checked_at=datetime.now(UTC), **AGED)
    sender = BackgroundSender(connection_without_its_files)
    assert sender.run_once()
    assert "Notification not sent, alerts: 1. The next one reports them. client_cert names a file" in caplog.text
    with open_database() as database, database.connect() as connection:
        [row] = connection.execute(select(notifications)).all()
    assert (row.alerts, row.sender_ok) == (1, False)
    sender.stop()
