"""The connections that verify reports: their spelling, and a list of all of them."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator

import pytest

from cpaas_provider.hooks._receiver import (
    emit_metric,
    get_receiver_connection,
    initialize_metrics,
    list_connections,
    metric_emitter,
)

EXTRA = {"webhook_secret": "of-webhooks", "signature_header": "X-Signature"}
STATSD = "airflow.observability.metrics.statsd_logger"
CONNECTION = {"conn_type": "cpaas", "host": "https://api.example.com", "password": "sk_test_spelled", "extra": EXTRA}


@pytest.fixture(autouse=True)
def in_api_server(airflow_db: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")


@pytest.fixture
def in_environment(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("AIRFLOW_CONN_SPELLED_SHOP", json.dumps(CONNECTION))
    return "spelled_shop"


@pytest.fixture
def in_database() -> Iterator[str]:
    from airflow.models import Connection
    from airflow.utils.session import create_session

    with create_session() as session:
        session.add(Connection(conn_id="Spelled_Bank", **{**CONNECTION, "extra": json.dumps(EXTRA)}))
        session.add(Connection(conn_id="spelled_warehouse", conn_type="postgres"))
    yield "Spelled_Bank"
    with create_session() as session:
        for one in session.query(Connection).filter(Connection.conn_id.like("%pelled_%")):
            session.delete(one)


def webhook_is_open(conn_id: str) -> bool:
    found = get_receiver_connection(conn_id)
    return found is not None and found.webhook_secret == "of-webhooks"


@pytest.mark.parametrize(
    "spelled", ["SPELLED_SHOP", "Spelled_Shop", "\u017fpelled_\u017fhop", "spelled_shop ", " spelled_shop"]
)
def test_webhook_of_connection_in_environment_has_one_spelling(in_environment: str, spelled: str) -> None:
    assert webhook_is_open(in_environment)
    assert not webhook_is_open(spelled)


def test_callbacks_are_verified_in_any_spelling_of_the_connection(in_environment: str) -> None:
    """The spelling is part of what a callback URL's signature is over."""
    found = get_receiver_connection("Spelled_Shop")
    assert found is not None
    assert found.hash_secrets == ("sk_test_spelled",)


@pytest.mark.parametrize("spelled", ["spelled_bank", "SPELLED_BANK", "Spelled_Bank "])
def test_webhook_of_connection_in_database_has_the_spelling_it_has_there(in_database: str, spelled: str) -> None:
    assert webhook_is_open(in_database)
    assert not webhook_is_open(spelled)


def test_list_has_connections_of_environment_and_database(in_environment: str, in_database: str) -> None:
    found = set(list_connections())
    assert {in_environment, in_database} <= found
    assert "spelled_warehouse" not in found


def test_no_metric_is_emitted_where_metrics_are_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert metric_emitter() is None
    monkeypatch.setenv("AIRFLOW__METRICS__STATSD_ON", "True")
    try:
        importlib.import_module(STATSD)
    except ImportError:
        pytest.skip("Airflow 3.4 needs the package statsd for metrics, and it is not installed.")
    assert metric_emitter() is emit_metric


def test_reports_are_received_without_the_package_for_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__METRICS__STATSD_ON", "True")
    # As Airflow 3.4 is without the package.
    package, _, module = STATSD.rpartition(".")
    monkeypatch.setitem(sys.modules, STATSD, None)
    monkeypatch.delattr(importlib.import_module(package), module, raising=False)
    assert metric_emitter() is None
    initialize_metrics()
