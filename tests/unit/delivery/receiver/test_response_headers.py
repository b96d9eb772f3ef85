"""Every response of the receiver, whatever its status, is kept out of caches, and its type is not guessed."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from starlette.responses import Response

from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.delivery.receiver import endpoints
from cpaas_provider.delivery.receiver.app import build_app
from cpaas_provider.delivery.receiver.http import request, responses
from cpaas_provider.delivery.receiver.http.responses import MAX_BODY
from cpaas_provider.delivery.receiver.log_throttle import ThrottledLogger
from cpaas_provider.delivery.receiver.openapi import endpoint_paths
from cpaas_provider.delivery.receiver.writer import StoreResult
from tests.unit.delivery.receiver.slow_senders import UNREAD, head
from tests.unit.delivery.running_receiver import SHOP, Served, serving
from tests.unit.pages.answers import METHODS, check_headers, requests_of

Ask = Callable[[Served, str, pytest.MonkeyPatch], httpx.Response]
PREPARED = {name: value for name, value in vars(responses).items() if isinstance(value, Response)}
DESCRIBED = [
    (path.split("/")[1], int(status))
    for path, methods in endpoint_paths("").items()
    for status in (*methods["post"]["responses"], 500)
]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with open_database(f"sqlite:///{tmp_path_factory.mktemp('headers') / 'store.db'}") as opened:
        yield opened


@pytest.fixture
def served(database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr(endpoints, "throttled_log", ThrottledLogger(logging.getLogger(endpoints.__name__)))
    with serving(database, described=True) as running:
        yield running


def send(served: Served, source: str, body: Any = b"{}", **headers: str) -> httpx.Response:
    if source == "callback":
        return served.post(body=body, headers=headers)
    from cpaas_provider.delivery.callbacks.signatures import sign

    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return served.post(f"{served.url}/webhook/shop", raw, headers={"x-signature": sign(raw, "of-webhooks"), **headers})


def failing(error: Exception) -> Ask:
    def ask(served: Served, source: str, patch: pytest.MonkeyPatch) -> httpx.Response:
        served.gate.error = error
        return send(served, source)

    return ask


def too_slow(served: Served, source: str, patch: pytest.MonkeyPatch) -> httpx.Response:
    patch.setattr(request, "BODY_TIMEOUT", 0.05)
    with served.connect() as connection:
        connection.sendall(head(served, served.url_of(source), 100, UNREAD[source]) + b"{")
        return parsed(connection)


def parsed(connection: socket.socket) -> httpx.Response:
    first, *lines = connection.makefile("rb").read().partition(b"\r\n\r\n")[0].decode().split("\r\n")
    fields = [tuple(line.split(": ", 1)) for line in lines]
    return httpx.Response(int(first.split()[1]), headers=fields, request=httpx.Request("POST", "http://raw"))


def over_quota(served: Served, source: str, patch: pytest.MonkeyPatch) -> httpx.Response:
    patch.setattr(served.gate, "_keep", lambda incoming: [StoreResult.TOO_MANY] * len(incoming))
    return send(served, source)


ASKED: dict[int, Ask] = {
    200: lambda served, source, _: send(served, source),
    401: lambda served, source, _: served.post_signed(secret="wrong"),
    404: lambda served, source, _: served.post(served.url_of(source, conn_id="nobody")),
    405: lambda served, source, _: httpx.get(served.url_of(source), trust_env=False),
    408: too_slow,
    413: lambda served, source, _: send(served, source, b" " * (MAX_BODY + 1)),
    415: lambda served, source, _: send(served, source, **{"content-type": "text/plain"}),
    422: lambda served, source, _: send(served, source, b"no json"),
    429: over_quota,
    500: failing(KeyError("unforeseen")),
    503: failing(DatabaseError("It is away.")),
}


@pytest.mark.parametrize(("source", "status"), DESCRIBED)
def test_every_status_of_an_endpoint_has_the_headers(
    served: Served, source: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = ASKED[status](served, source, monkeypatch)
    assert answer.status_code == status
    check_headers(answer)


# The sender of CLIENT_DISCONNECTED is gone: nobody can be asked.
@pytest.mark.parametrize("name", PREPARED)
def test_every_prepared_response_has_the_headers(name: str) -> None:
    answer = PREPARED[name]
    check_headers(httpx.Response(200, headers=answer.raw_headers, request=httpx.Request("POST", "http://prepared")))


def test_all_other_paths_have_the_headers(served: Served) -> None:
    app = build_app(
        {"shop": SHOP}.get,
        served.writer,
        guard=None,
        database_id=lambda: "store",
        emit_metric=None,
        described=True,
    )
    asked = [(method, path) for method, path, _ in requests_of(app)]
    assert {path for _, path in asked} == {"/health", "/openapi.json"}
    asked += [(method, path) for path in ("/", "/docs", "/redoc", "/callback", "/webhook") for method in METHODS]
    seen = set()
    for method, path in asked:
        answer = httpx.request(method, served.url + path, trust_env=False)
        check_headers(answer)
        seen.add(answer.status_code)
    assert seen == {200, 404, 405}


@pytest.mark.parametrize(("error", "status"), [(DatabaseError("It is away."), 503), (KeyError("unforeseen"), 500)])
def test_health_that_fails_has_the_headers(database: Database, error: Exception, status: int) -> None:
    def check() -> None:
        raise error

    with serving(database) as served:
        app = build_app(
            {"shop": SHOP}.get,
            served.writer,
            guard=None,
            database_id=lambda: "store",
            check_database=check,
            emit_metric=None,
        )
        answer = TestClient(app, raise_server_exceptions=False).get("/health")
    check_headers(answer)
    assert answer.status_code == status
