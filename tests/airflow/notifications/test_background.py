"""The background sender, as the API server runs it with the provider's application."""

from __future__ import annotations

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from cpaas_provider.database.database import open_database
from cpaas_provider.hooks._receiver import get_receiver_connection
from cpaas_provider.notifications import SmsNotifier
from cpaas_provider.notifications._runtime import background
from cpaas_provider.notifications._runtime.background import BackgroundSender, send_while_serving
from tests.airflow.harness.examples import wait_for
from tests.airflow.notifications.callers import ON_CALL, context


@pytest.mark.usefixtures("quick")
def test_runs_as_long_as_the_application_is_served(stage, texts, monkeypatch) -> None:
    monkeypatch.setattr(background, "PAUSE", 0.02)
    with TestClient(send_while_serving(FastAPI(), get_receiver_connection)):
        notifier = SmsNotifier(recipients=ON_CALL, window=1)
        notifier(context(1))
        wait_for(texts)
        notifier(context(2))
        wait_for(lambda: len(texts()) == 2)
    assert BackgroundSender(get_receiver_connection).run_once()


@pytest.mark.usefixtures("quick")
def test_not_reaching_the_service_leaves_the_alerts_to_callers(stage, texts) -> None:
    stage.connect("shop")
    sender = BackgroundSender(get_receiver_connection)
    assert sender.run_once()
    stage.sandbox.control("POST", "faults", {"operation": "send_sms", "kind": "unavailable", "retry_after": 30})
    notifier = SmsNotifier(recipients=ON_CALL, cpaas_conn_id="shop", window=1)
    notifier(context(1))
    with open_database() as database:
        groups = sender._groups(database)
        [waiting] = groups.waiting()
        groups.check(waiting.name, can_send=False)
    stage.sandbox.control("PUT", "scene", {"faults": []})
    notifier(context(2))
    [text] = texts()
    assert text.startswith("Airflow: 2 alerts since ")
    sender.stop()
