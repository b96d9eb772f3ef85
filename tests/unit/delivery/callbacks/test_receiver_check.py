"""What a sender learns of a receiver before it sends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from ssl import CERT_OPTIONAL
from typing import Any

import pytest
from fastapi import FastAPI, Request, Response

from cpaas_provider.delivery.callbacks.receiver_check import (
    HandshakeRefusedError,
    ReceiverClient,
    ReceiverUnreachableError,
)
from tests.certificates import Authority
from tests.ports import closed_port, listening
from tests.tls_server import TlsServer
from tests.unit.delivery.running_receiver import running, serving


def receiver_client(base: str, **changes: Any) -> ReceiverClient:
    given: dict[str, Any] = {"conn_id": "shop", "secret": "of-callbacks", "options": {}, **changes}
    return ReceiverClient(base, **given)


@contextmanager
def server_with_response(status: int, body: bytes, heard: list[bytes] | None = None) -> Iterator[str]:
    """Answer everything alike."""
    app = FastAPI()

    @app.post("/{path:path}")
    async def answer(path: str, request: Request) -> Response:
        if heard is not None:
            heard.append(path.encode() + await request.body())
        return Response(body, status)

    with listening() as (listener, url), running(app, listener):
        yield url


def test_receiver_on_the_same_database_passes(database: Any) -> None:
    with serving(database) as served:
        receiver_client(served.url).check("the-store", "here")
        assert served.stored() == []


def test_receiver_on_another_database_is_refused(database: Any) -> None:
    with (
        serving(database) as served,
        pytest.raises(HandshakeRefusedError, match=r"another database than tasks read \(here\)"),
    ):
        receiver_client(served.url).check("ours", "here")


@pytest.mark.parametrize("changed", [{"secret": "nobody's"}, {"conn_id": "bank"}])
def test_receiver_that_rejects_the_token_is_refused(database: Any, changed: dict[str, Any]) -> None:
    with serving(database) as served, pytest.raises(HandshakeRefusedError, match=r"HTTP 404.*would be lost"):
        receiver_client(served.url, **changed).check("the-store", "here")


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b'{"database": 7}', b'{"database": ""}', b"\xff"])
def test_response_without_a_database_id_is_refused(body: bytes) -> None:
    with (
        server_with_response(200, body) as url,
        pytest.raises(HandshakeRefusedError, match="does not lead to the receiver"),
    ):
        receiver_client(url).check("the-store", "here")


@pytest.mark.parametrize("status", [204, 301, 401, 404, 405])
def test_unexpected_status_below_500_is_refused(status: int) -> None:
    with server_with_response(status, b"") as url, pytest.raises(HandshakeRefusedError, match=f"HTTP {status}"):
        receiver_client(url).check("the-store", "here")


@pytest.mark.parametrize("status", [500, 502, 503])
def test_receiver_with_a_server_error_counts_as_unreachable(status: int) -> None:
    with server_with_response(status, b"") as url, pytest.raises(ReceiverUnreachableError, match=f"HTTP {status}"):
        receiver_client(url).check("the-store", "here")


def test_receiver_that_accepts_no_connection_counts_as_unreachable() -> None:
    with closed_port() as url, pytest.raises(ReceiverUnreachableError, match="did not respond"):
        receiver_client(url).check("the-store", "here")


@pytest.mark.parametrize(
    "base", ["http://shop.example.com/cpaas", "ftp://127.0.0.1", "http://user:hunter2@127.0.0.1:1"]
)
def test_unsafe_callback_url_is_refused_without_showing_its_password(base: str) -> None:
    with pytest.raises(HandshakeRefusedError, match="callback_url cannot be used") as refused:
        receiver_client(base).check("the-store", "here")
    assert "hunter2" not in str(refused.value)


def test_handshake_sends_a_token_and_not_the_secret() -> None:
    heard: list[bytes] = []
    with server_with_response(200, json.dumps({"database": "the-store"}).encode(), heard) as url:
        receiver_client(url).check("the-store", "here")
    (asked,) = heard
    assert asked.startswith(b"callback/shop/handshake.handshake.1.")
    assert b"of-callbacks" not in asked


def test_check_in_a_thread_beside_a_running_event_loop_passes(database: Any) -> None:
    async def ask(url: str) -> None:
        await asyncio.to_thread(receiver_client(url).check, "the-store", "here")

    with serving(database) as served:
        asyncio.run(ask(served.url))


def test_receiver_does_not_get_the_client_certificate_of_the_service(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "receivers")
    cert, key = authority.issue("client")
    options = {"verify": str(authority.path), "client_cert": str(cert), "client_key": str(key)}
    context = authority.server_context(clients=authority.path, mode=CERT_OPTIONAL)
    with TlsServer(context, tmp_path) as server, pytest.raises(HandshakeRefusedError):
        receiver_client(server.url, options=options).check("the-store", "here")
    assert server.peers == [None]
