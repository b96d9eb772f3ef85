"""The receiver in Airflow's API server, with a real server and connections: log lines of misbehaving clients."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import structlog

from cpaas_provider.delivery.callbacks.tokens import CallbackToken, callback_url
from tests.ports import listening
from tests.unit.delivery.running_receiver import PATIENCE, running
from tests.waiting import until

CONN_ID = "cpaas_hung_up"
CONNECTION = {"conn_type": "cpaas", "host": "https://api.example.com", "password": "sk_test_hung_up"}
TOKEN = CallbackToken("cpaas-hung-up", "cpaas-hung-up-1", 10)


@pytest.fixture(scope="module")
def server(airflow_db: object) -> Iterator[str]:
    """Airflow's API server with everything it mounts, at a port of its own."""
    from airflow.api_fastapi.app import create_app, purge_cached_app

    with pytest.MonkeyPatch.context() as environment, listening() as (listener, url):
        environment.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")
        environment.setenv(f"AIRFLOW_CONN_{CONN_ID.upper()}", json.dumps(CONNECTION))
        with running(create_app(apps="core"), listener):
            yield url
    purge_cached_app()


def callback(server: str) -> str:
    return callback_url(f"{server}/cpaas", CONN_ID, "sk_test_hung_up", TOKEN)


def finished(lines: list[Any]) -> list[Any]:
    return [line for line in lines if line["event"] == "request finished"]


def test_sender_that_hangs_up_in_a_body_leaves_one_line(server: str, caplog: pytest.LogCaptureFixture) -> None:
    host, port = server.removeprefix("http://").split(":")
    path = callback(server).removeprefix(server)
    head = f"POST {path} HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{{"
    with structlog.testing.capture_logs() as lines, caplog.at_level(logging.INFO):
        for _ in range(3):
            with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
                connection.sendall(head.encode())
        until(lambda: len(finished(lines)) == 3)
    assert [line["path"] for line in finished(lines)] == [f"/cpaas/callback/{CONN_ID}/..."] * 3
    assert len(lines) == 3
    assert [record.name for record in caplog.records if record.exc_info] == []


@pytest.mark.parametrize(
    "miss",
    [
        "/cpaas/callback/{conn_id}/{token}/",
        "/cpaas//callback/{conn_id}/{token}",
        "/cpaas/Callback/{conn_id}/{token}",
        "/cpaas/callback/{conn_id}/{token}/more",
        "/cpaas/callbacks/{conn_id}/{token}",
        "/cpaas/callback/{token}",
        "/cpaas/webhook/{token}",
        "/cpaas/{conn_id}/{token}",
        "/cpaas/callback/{conn_id}/{encoded}",
        "/cpaas/callback/{conn_id}/?token={token}",
        "/callback/{conn_id}/{token}",
        "/elsewhere/{token}",
        "/api/v2/{token}",
    ],
)
def test_token_in_a_misspelt_url_is_in_no_log(server: str, miss: str) -> None:
    token = callback(server).rpartition("/")[2]
    encoded = token.replace(".", "%252E")
    with structlog.testing.capture_logs() as lines:
        for method in ("POST", "GET"):
            url = server + miss.format(conn_id=CONN_ID, token=token, encoded=encoded)
            httpx.request(method, url, trust_env=False, timeout=PATIENCE)
        until(lambda: len(finished(lines)) == 2)
    proof = token.rpartition(".")[2]
    assert proof not in str(lines)
    assert TOKEN.reference not in str(lines)


def test_other_paths_are_logged_unchanged(server: str) -> None:
    with structlog.testing.capture_logs() as lines:
        httpx.get(f"{server}/api/v2/dags/my.dag-1_0/details?order_by=a.b", trust_env=False, timeout=PATIENCE)
        until(lambda: len(finished(lines)) == 1)
    (line,) = finished(lines)
    assert (line["path"], line["query"]) == ("/api/v2/dags/my.dag-1_0/details", "order_by=a.b")
