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


def receiver(base: str, **changes: Any) -> ReceiverClient:
    given: dict[str, Any] = {"conn_id": "shop", "secret": "of-callbacks", "options": {}, **changes}
    return ReceiverClient(base, **given)


@contextmanager
def answering(status: int, body: bytes, heard: list[bytes] | None = None) -> Iterator[str]:
    """Answer everything alike."""
    app = FastAPI()

    @app.post("/{path:path}")
    async def answer(path: str, request: Request) -> Response:
        if heard is not None:
            heard.append(path.encode() + await request.body())
        return Response(body, status)

    with listening() as (listener, url), running(app, listener):
        yield url


def test_the_receiver_s_store_is_ours(database: Any) -> None:
    with serving(database) as served:
        receiver(served.url).check("the-store", "here")
        assert served.stored() == []


def test_it_has_another_store(database: Any) -> None:
    with (
        serving(database) as served,
        pytest.raises(HandshakeRefusedError, match=r"another database than tasks read \(here\)"),
    ):
        receiver(served.url).check("ours", "here")


@pytest.mark.parametrize("changed", [{"secret": "nobody's"}, {"conn_id": "bank"}])
def test_it_would_refuse_our_reports(database: Any, changed: dict[str, Any]) -> None:
    with serving(database) as served, pytest.raises(HandshakeRefusedError, match=r"HTTP 404.*would be lost"):
        receiver(served.url, **changed).check("the-store", "here")


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b'{"database": 7}', b'{"database": ""}', b"\xff"])
def test_what_answers_is_no_receiver(body: bytes) -> None:
    with answering(200, body) as url, pytest.raises(HandshakeRefusedError, match="does not lead to the receiver"):
        receiver(url).check("the-store", "here")


@pytest.mark.parametrize("status", [204, 301, 401, 404, 405])
def test_another_answer_is_a_refusal(status: int) -> None:
    with answering(status, b"") as url, pytest.raises(HandshakeRefusedError, match=f"HTTP {status}"):
        receiver(url).check("the-store", "here")


@pytest.mark.parametrize("status", [500, 502, 503])
def test_a_receiver_in_trouble_tells_nothing(status: int) -> None:
    with answering(status, b"") as url, pytest.raises(ReceiverUnreachableError, match=f"HTTP {status}"):
        receiver(url).check("the-store", "here")


def test_a_receiver_that_is_not_there_tells_nothing() -> None:
    with closed_port() as url, pytest.raises(ReceiverUnreachableError, match="did not respond"):
        receiver(url).check("the-store", "here")


@pytest.mark.parametrize(
    "base", ["http://shop.example.com/cpaas", "ftp://127.0.0.1", "http://user:hunter2@127.0.0.1:1"]
)
def test_a_place_that_must_not_be_asked_is_refused_without_a_secret(base: str) -> None:
    with pytest.raises(HandshakeRefusedError, match="callback_url cannot be used") as refused:
        receiver(base).check("the-store", "here")
    assert "hunter2" not in str(refused.value)


def test_the_key_of_the_account_is_not_shown_to_it() -> None:
    heard: list[bytes] = []
    with answering(200, json.dumps({"database": "the-store"}).encode(), heard) as url:
        receiver(url).check("the-store", "here")
    (asked,) = heard
    assert asked.startswith(b"callback/shop/handshake.handshake.1.")
    assert b"of-callbacks" not in asked


def test_a_receiver_behind_a_running_loop_can_be_asked(database: Any) -> None:
    async def ask(url: str) -> None:
        await asyncio.to_thread(receiver(url).check, "the-store", "here")

    with serving(database) as served:
        asyncio.run(ask(served.url))


def test_receiver_does_not_get_the_client_certificate_of_the_service(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "receivers")
    cert, key = authority.issue("client")
    options = {"verify": str(authority.path), "client_cert": str(cert), "client_key": str(key)}
    context = authority.server_context(clients=authority.path, mode=CERT_OPTIONAL)
    with TlsServer(context, tmp_path) as server, pytest.raises(HandshakeRefusedError):
        receiver(server.url, options=options).check("the-store", "here")
    assert server.peers == [None]
