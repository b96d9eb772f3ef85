"""One table of odd answers, over every way to the service: each way comes to the same, careful verdict."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import random
import socket
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from cpaas_provider.api import operations as ask
from cpaas_provider.api.client import AsyncCpaasClient
from cpaas_provider.api.errors import CpaasRateLimitedError, CpaasUnknownOutcomeError
from cpaas_provider.api.http.transport import AsyncTransport
from cpaas_provider.api.http.wire import HttpResponse, TransportFailure
from cpaas_provider.api.models.sms import SmsMessage
from cpaas_provider.api.settings import ClientSettings
from tests.certificates import Authority
from tests.proxies import proxy_server
from tests.unit.api.conftest import KEY
from tests.unit.api.loopback import Loopback, Script, Seen, http

ADA = "2348031234567"
RECORD = json.dumps({"id": "sms-1", "recipients": [ADA], "sender_id": "Clinic"}).encode()
OK = b"HTTP/1.1 200 OK\r\n"
LENGTH = b"Content-Length: %d\r\n" % len(RECORD)
CHUNKED = b"Transfer-Encoding: chunked\r\n"
CHUNKS = b"%x\r\n%b\r\n0\r\n\r\n" % (len(RECORD), RECORD)
PACKED = gzip.compress(RECORD, mtime=0)

WHOLE = HttpResponse(200, None, RECORD)
LOST = TransportFailure.CONNECTION_LOST
BROKE = "the connection broke"
DAMAGED = HttpResponse(200, None, b"", "its compression is damaged")
INCOMPLETE = HttpResponse(200, None, RECORD, "its compression is incomplete")

Verdict = HttpResponse | TransportFailure


def framed(head: bytes, body: bytes = RECORD, status: bytes = OK) -> bytes:
    return status + head + b"Content-Length: %d\r\n\r\n" % len(body) + body


def packed(coding: bytes, body: bytes) -> bytes:
    return framed(b"Content-Encoding: %b\r\n" % coding, body)


def plain(head: bytes, body: bytes = RECORD) -> bytes:
    return head + b"\r\n" + body


def deflated_raw(data: bytes) -> bytes:
    return zlib.compress(data)[2:-4]


ANSWERS: dict[str, tuple[bytes, Verdict]] = {
    # Length and framing.
    "one length": (framed(b""), WHOLE),
    "two equal lengths": (plain(OK + LENGTH * 2), LOST),
    "two different lengths": (plain(OK + LENGTH + b"Content-Length: 4\r\n"), LOST),
    "list of equal lengths": (plain(OK + b"Content-Length: %d, %d\r\n" % (len(RECORD), len(RECORD))), LOST),
    "negative length": (plain(OK + b"Content-Length: -4\r\n"), LOST),
    "length with a plus": (plain(OK + b"Content-Length: +%d\r\n" % len(RECORD)), LOST),
    "length with blanks around": (plain(OK + b"Content-Length:  %d \t\r\n" % len(RECORD)), WHOLE),
    "length with a blank inside": (plain(OK + b"Content-Length: 6 6\r\n"), LOST),
    "length in hex": (plain(OK + b"Content-Length: 0x42\r\n"), LOST),
    "length without digits": (plain(OK + b"Content-Length:\r\n"), LOST),
    "huge length": (plain(OK + b"Content-Length: 99999999999999999999\r\n"), LOST),
    "length and chunks": (OK + LENGTH + CHUNKED + b"\r\n" + CHUNKS, LOST),
    "chunks and length": (OK + CHUNKED + LENGTH + b"\r\n" + CHUNKS, LOST),
    "chunks": (OK + CHUNKED + b"\r\n" + CHUNKS, WHOLE),
    "chunked in capitals": (OK + CHUNKED.upper() + b"\r\n" + CHUNKS, WHOLE),
    "chunked twice": (OK + CHUNKED * 2 + b"\r\n" + CHUNKS, LOST),
    "chunked, chunked": (OK + b"Transfer-Encoding: chunked, chunked\r\n\r\n" + CHUNKS, LOST),
    "gzip, chunked": (OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + CHUNKS, LOST),
    "identity as transfer coding": (plain(OK + b"Transfer-Encoding: identity\r\n"), LOST),
    "unknown transfer coding": (plain(OK + b"Transfer-Encoding: xchunked\r\n"), LOST),
    "empty transfer coding": (plain(OK + b"Transfer-Encoding:\r\n"), LOST),
    "chunks of HTTP/1.0": (b"HTTP/1.0 200 OK\r\n" + CHUNKED + b"\r\n" + CHUNKS, LOST),
    "chunk extensions": (OK + CHUNKED + b"\r\n" + CHUNKS.replace(b"\r\n", b";a=b\r\n", 1), WHOLE),
    "trailers": (OK + CHUNKED + b"\r\n" + CHUNKS[:-2] + b"Retry-After: 7\r\nX: y\r\n\r\n", WHOLE),
    "chunk size that is none": (OK + CHUNKED + b"\r\nxyz\r\n", HttpResponse(200, None, b"", BROKE)),
    "negative chunk size": (OK + CHUNKED + b"\r\n-1\r\n", HttpResponse(200, None, b"", BROKE)),
    "huge chunk size": (OK + CHUNKED + b"\r\n" + b"f" * 20 + b"\r\n", HttpResponse(200, None, b"", BROKE)),
    "chunk longer than its size": (
        OK + CHUNKED + b"\r\n" + CHUNKS.replace(b"\r\n0", b"{}\r\n0"),
        HttpResponse(200, None, RECORD, BROKE),
    ),
    # Form of the head.
    "bare line feeds": (framed(b"").replace(b"\r\n", b"\n"), LOST),
    "one bare line feed": (plain(OK + b"X: y\n" + LENGTH), LOST),
    "bare carriage return": (plain(OK + b"X: a\rb\r\n" + LENGTH), LOST),
    "folded line": (plain(OK + b"X: a\r\n b\r\n" + LENGTH), LOST),
    "folded length": (plain(OK + b"Content-Length:\r\n %d\r\n" % len(RECORD)), LOST),
    "line without colon": (plain(OK + b"No colon\r\n" + LENGTH), LOST),
    "line without name": (plain(OK + b": value\r\n" + LENGTH), LOST),
    "blank before the first name": (plain(OK + b" X: y\r\n" + LENGTH), LOST),
    "blank before a colon": (plain(OK + LENGTH.replace(b":", b" :")), LOST),
    "blank in a name": (plain(OK + b"X Y: z\r\n" + LENGTH), LOST),
    "NUL in a name": (plain(OK + b"X\0: y\r\n" + LENGTH), LOST),
    "NUL in a value": (plain(OK + b"X: y\0\r\n" + LENGTH), LOST),
    "control character in a value": (plain(OK + b"X: y\x07\r\n" + LENGTH), LOST),
    "Latin-1 in a name": (plain(OK + b"X\xe9: y\r\n" + LENGTH), LOST),
    "Latin-1 in a value": (plain(OK + b"X: \xe9\r\n" + LENGTH), WHOLE),
    "empty value": (plain(OK + b"X:\r\n" + LENGTH), WHOLE),
    "many headers": (plain(OK + b"X: y\r\n" * 5000 + LENGTH), WHOLE),
    "huge head": (plain(OK + b"X: y\r\n" * 50_000 + LENGTH), LOST),
    "empty line before": (b"\r\n" + framed(b""), LOST),
    "bare line feed before": (b"\n" + framed(b""), LOST),
    "blank before": (b" " + framed(b""), LOST),
    # Status line.
    "no reason": (framed(b"", status=b"HTTP/1.1 200\r\n"), WHOLE),
    "empty reason": (framed(b"", status=b"HTTP/1.1 200 \r\n"), WHOLE),
    "HTTP/1.0": (framed(b"", status=b"HTTP/1.0 200 OK\r\n"), WHOLE),
    "HTTP/0.9": (framed(b"", status=b"HTTP/0.9 200 OK\r\n"), LOST),
    "HTTP/1.2": (framed(b"", status=b"HTTP/1.2 200 OK\r\n"), LOST),
    "HTTP/2.0": (framed(b"", status=b"HTTP/2.0 200 OK\r\n"), LOST),
    "HTTP/2 without minor version": (framed(b"", status=b"HTTP/2 200 OK\r\n"), LOST),
    "preface of HTTP/2": (b"\0\0\x12\4\0\0\0\0\0\0\3\0\0\0\x80\0\4\0\1\0\0\0\5\0\xff\xff\xff", LOST),
    "lower case": (framed(b"", status=b"http/1.1 200 OK\r\n"), LOST),
    "two blanks": (framed(b"", status=b"HTTP/1.1  200 OK\r\n"), LOST),
    "tab in place of a blank": (framed(b"", status=b"HTTP/1.1\t200 OK\r\n"), LOST),
    "status of two digits": (framed(b"", status=b"HTTP/1.1 20 OK\r\n"), LOST),
    "status of four digits": (framed(b"", status=b"HTTP/1.1 2000 OK\r\n"), LOST),
    "status 000": (framed(b"", status=b"HTTP/1.1 000 X\r\n"), LOST),
    "status 099": (framed(b"", status=b"HTTP/1.1 099 X\r\n"), LOST),
    "status 999": (framed(b"", status=b"HTTP/1.1 999 X\r\n"), HttpResponse(999, None, RECORD)),
    "NUL in the reason": (framed(b"", status=b"HTTP/1.1 200 O\0K\r\n"), LOST),
    "another protocol": (b"ICY 200 OK\r\n" + LENGTH + b"\r\n" + RECORD, LOST),
    "garbage": (b"garbage\r\n\r\n", LOST),
    # Interim responses, and statuses without a body.
    "100 and 103 before": (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 X\r\nLink: x\r\n\r\n" + framed(b""), WHOLE),
    "100 with a length": (b"HTTP/1.1 100 Continue\r\nContent-Length: 4\r\n\r\n" + framed(b""), LOST),
    "100 with chunks": (b"HTTP/1.1 100 Continue\r\n" + CHUNKED + b"\r\n" + framed(b""), LOST),
    "101": (b"HTTP/1.1 101 X\r\n\r\n" + framed(b""), LOST),
    "101 with an upgrade": (b"HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n" + framed(b""), LOST),
    "upgrade offered under 200": (framed(b"Connection: upgrade\r\nUpgrade: h2c\r\n"), WHOLE),
    "204 with a body": (framed(b"", status=b"HTTP/1.1 204 X\r\n"), HttpResponse(204)),
    "304 with a body": (framed(b"", status=b"HTTP/1.1 304 X\r\n"), HttpResponse(304)),
    "204 with length 0": (framed(b"", b"", status=b"HTTP/1.1 204 X\r\n"), HttpResponse(204)),
    # Compression.
    "gzip": (packed(b"gzip", PACKED), WHOLE),
    "x-gzip": (packed(b"X-GZip", PACKED), WHOLE),
    "two members of gzip": (packed(b"gzip", gzip.compress(RECORD[:9]) + gzip.compress(RECORD[9:])), WHOLE),
    "second member is another record": (
        packed(b"gzip", PACKED + PACKED), HttpResponse(200, None, RECORD + RECORD),
    ),
    "gzip, then garbage": (packed(b"gzip", PACKED + b"garbage"), DAMAGED),
    "gzip, then zeros": (packed(b"gzip", PACKED + bytes(20)), DAMAGED),
    "gzip without its end": (packed(b"gzip", PACKED[:-1]), INCOMPLETE),
    "gzip with a wrong checksum": (packed(b"gzip", PACKED[:-8] + b"\0" * 4 + PACKED[-4:]), DAMAGED),
    "gzip that is none": (packed(b"gzip", RECORD), DAMAGED),
    "empty gzip": (packed(b"gzip", b""), HttpResponse(200)),
    "deflate": (packed(b"deflate", zlib.compress(RECORD)), WHOLE),
    "deflate without zlib": (packed(b"deflate", deflated_raw(RECORD)), WHOLE),
    "deflate, then garbage": (packed(b"deflate", zlib.compress(RECORD) + b"garbage"), DAMAGED),
    "deflate without its end": (packed(b"deflate", zlib.compress(RECORD)[:-2]), INCOMPLETE),
    "two codings": (packed(b"gzip, gzip", PACKED), HttpResponse(200, None, PACKED)),
    "two lines of codings": (
        packed(b"gzip\r\nContent-Encoding: gzip", PACKED), HttpResponse(200, None, PACKED),
    ),
    "identity": (packed(b"identity", RECORD), WHOLE),
    # Other headers that may appear once.
    "Retry-After": (framed(b"Retry-After: 0\r\n", status=b"HTTP/1.1 429 X\r\n"), HttpResponse(429, "0", RECORD)),
    "two equal Retry-After": (
        framed(b"Retry-After: 7\r\n" * 2, status=b"HTTP/1.1 503 X\r\n"), HttpResponse(503, None, RECORD),
    ),
    "two different Retry-After": (
        framed(b"Retry-After: 7\r\nRetry-After: 9\r\n", status=b"HTTP/1.1 503 X\r\n"), HttpResponse(503, None, RECORD),
    ),
    # After the end.
    "second answer": (framed(b"") * 2, WHOLE),
    "begun second answer": (framed(b"") + b"HTTP/1.1 4", WHOLE),
    "garbage behind": (framed(b"") + b"garbage", WHOLE),
    "empty line behind": (framed(b"") + b"\r\n", WHOLE),
}  # fmt: skip
"""What a server sends for one request, after which it is silent, and what that is to the client."""

CUT_OFF: dict[str, tuple[bytes, Verdict]] = {
    "nothing": (b"", LOST),
    "part of a head": (OK + b"Content-Le", LOST),
    "100 without another": (b"HTTP/1.1 100 Continue\r\n\r\n", LOST),
    "no length": (OK + b"\r\n" + RECORD, WHOLE),
    "no length, HTTP/1.0": (b"HTTP/1.0 200 OK\r\n\r\n" + RECORD, WHOLE),
    "no length and keep-alive": (OK + b"Connection: keep-alive\r\n\r\n" + RECORD, WHOLE),
    "part of a body": (framed(b"")[:-1], HttpResponse(200, None, RECORD[:-1], BROKE)),
    "part of the chunks": (OK + CHUNKED + b"\r\n" + CHUNKS[:-5], HttpResponse(200, None, RECORD, BROKE)),
    "chunks without their last line": (OK + CHUNKED + b"\r\n" + CHUNKS[:-2], HttpResponse(200, None, RECORD, BROKE)),
}
"""The same where the server then ends the connection."""


@dataclass
class Way:
    """A way to a server: how it is made, and the options of a client that takes it."""

    name: str
    authority: Authority
    exits: ExitStack

    def to(self, script: Script) -> ClientSettings:
        tls = self.authority.server_context() if self.name in {"TLS", "tunnel", "tunnel in TLS"} else None
        server = self.exits.enter_context(Loopback(script, tls))
        options: dict[str, Any] = {"verify": str(self.authority.path)} if tls else {}
        if self.name not in {"direct", "TLS"}:
            proxy = self.exits.enter_context(
                proxy_server(self.authority.server_context() if self.name == "tunnel in TLS" else None)
            )
            options["proxy"] = f"socks5://127.0.0.1:{proxy.port}" if self.name == "SOCKS" else proxy.url
        return ClientSettings(server.url, KEY, timeout=1, connect_timeout=5, max_retries=0, **options)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"), "service")


@pytest.fixture(params=["direct", "TLS", "forwarded", "tunnel", "tunnel in TLS", "SOCKS"])
def way(request: pytest.FixtureRequest, authority: Authority, monkeypatch: pytest.MonkeyPatch) -> Iterator[Way]:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.path))
    with ExitStack() as exits:
        yield Way(request.param, authority, exits)


def answer_of(connection: socket.socket, seen: Seen) -> None:
    """Answer as the case demands that the text of the message names."""
    case = json.loads(seen.body)["content"]
    if case in ANSWERS:
        connection.sendall(ANSWERS[case][0])
    else:
        connection.sendall(CUT_OFF[case][0])
        raise ConnectionAbortedError


CASES = {case: expected for case, (_, expected) in (ANSWERS | CUT_OFF).items()}


def test_every_way_comes_to_the_same_verdict(way: Way) -> None:
    settings = way.to(answer_of)

    async def verdicts() -> dict[str, Verdict]:
        transport, found = AsyncTransport(settings), {}
        for cases in batched(CASES):
            requests = [ask.send_sms(ADA, "Clinic", case).build(settings)[0] for case in cases]
            found.update(zip(cases, await asyncio.gather(*map(transport.send, requests)), strict=True))
        await transport.aclose()
        return found

    found = asyncio.run(verdicts())
    assert {case: found[case] for case in CASES if found[case] != CASES[case]} == {}


def test_every_way_comes_to_the_same_outcome(way: Way) -> None:
    settings = way.to(answer_of)
    options: dict[str, Any] = {name: getattr(settings, name) for name in ("timeout", "max_retries", "verify", "proxy")}

    async def outcomes() -> dict[str, str]:
        found = {}
        async with AsyncCpaasClient(settings.base_url, KEY, requests_per_second=1000, **options) as client:
            for cases in batched(CASES):
                sends = [client.send_sms(ADA, "Clinic", case) for case in cases]
                replies = await asyncio.gather(*sends, return_exceptions=True)
                found.update({case: type(reply).__name__ for case, reply in zip(cases, replies, strict=True)})
        return found

    accepted = {case for case, expected in CASES.items() if expected == WHOLE}
    expected = {case: SmsMessage.__name__ if case in accepted else CpaasUnknownOutcomeError.__name__ for case in CASES}
    expected["Retry-After"] = CpaasRateLimitedError.__name__
    found = asyncio.run(outcomes())
    assert {case: found[case] for case in CASES if found[case] != expected[case]} == {}


def batched(cases: Iterable[str]) -> Iterator[tuple[str, ...]]:
    remaining = iter(cases)
    while batch := tuple(itertools.islice(remaining, 8)):
        yield batch


# Two answers to each request ------------------------------------------------------------------------------------------


def message_of(seen: Seen, number: int) -> bytes:
    """Return the answer to a message, which names its text as the sender."""
    content = json.loads(seen.body)["content"]
    return http(200, {"id": f"sms-{number}-{content}", "recipients": [ADA], "sender_id": content})


@pytest.mark.parametrize("pause", [0.0, 0.004])
def test_second_answer_is_not_taken_for_that_of_the_next_request(way: Way, pause: float) -> None:
    """The server sends two answers to each request, of which each belongs to that request and to no other."""
    chance = random.Random(pause)

    def twice(connection: socket.socket, seen: Seen) -> None:
        connection.sendall(message_of(seen, 1) + (b"" if pause else message_of(seen, 2)))
        if pause:
            time.sleep(chance.random() * pause)
            connection.sendall(message_of(seen, 2))

    settings = way.to(twice)

    async def send() -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        transport = AsyncTransport(settings)

        async def worker(name: int) -> None:
            for number in range(20):
                content = f"{name}-{number}"
                reply = await transport.send(ask.send_sms(ADA, "Clinic", content).build(settings)[0])
                # A connection that breaks leaves the outcome unknown.
                answered = isinstance(reply, HttpResponse)
                found.append((content, json.loads(reply.body)["sender_id"] if answered else content))
                await asyncio.sleep(chance.random() * 0.004)

        await asyncio.gather(*map(worker, range(3)))
        await transport.aclose()
        return found

    found = asyncio.run(send())
    assert len(found) == 60
    assert [pair for pair in found if pair[0] != pair[1]] == []


def test_late_second_answer_with_another_reference_is_unknown(way: Way) -> None:
    def twice(connection: socket.socket, seen: Seen) -> None:
        reference = json.loads(seen.body)["external_ref"]
        answer = http(200, {"id": f"sms-{reference}", "external_ref": reference})
        connection.sendall(answer)
        # Later than any connection rests.
        time.sleep(0.1)
        connection.sendall(answer)

    settings = way.to(twice)
    options: dict[str, Any] = {name: getattr(settings, name) for name in ("timeout", "max_retries", "verify", "proxy")}

    async def send() -> list[str]:
        async with AsyncCpaasClient(settings.base_url, KEY, requests_per_second=1000, **options) as client:
            found = []
            for number in range(5):
                try:
                    message = await client.send_sms(ADA, "Clinic", "Hello", external_ref=f"r-{number}")
                    found.append("own" if message.id == f"sms-r-{number}" else "of another")
                except CpaasUnknownOutcomeError:
                    found.append("unknown")
                await asyncio.sleep(0.06)
        return found

    assert "of another" not in asyncio.run(send())
