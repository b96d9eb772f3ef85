"""A service that does nothing but answer, late by a fixed time: ``python -m tests.benchmarks.campaign.bare_server``.

It takes every request for an accepted SMS, notes when it arrived and whom it was for, and has next to no cost of its
own. ``GET /_stats`` tells what was noted since the last ``POST /_reset``; neither counts itself.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import time
from array import array

LATENCY = 0.020
BACKLOG = 1024

_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:", re.IGNORECASE)
_RECIPIENTS = re.compile(rb'"recipients":\s*"([^"]*)"')
_ANSWER = (
    b'{"id":"%012d","sender_id":"Shop","meta":{"method":"POST","resource":"sms","estimate":'
    b'{"available_balance":1000000.0,"charge":1.0,"encoding":"GSM_7BIT","message_length":5,"pages":1}}}'
)
_HEAD = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


def answered(body: bytes, status: bytes = b"200 OK") -> bytes:
    """Return a whole HTTP answer."""
    return _HEAD % (status, len(body)) + body


class Notes:
    """What arrived since the last reset."""

    def __init__(self) -> None:
        self.arrivals = array("d")
        self.recipients = 0
        self.connections = 0
        self.in_flight = 0
        self.most_in_flight = 0

    def arrived(self, body: bytes) -> None:
        self.arrivals.append(time.monotonic())
        found = _RECIPIENTS.search(body)
        self.recipients += found[1].count(b",") + 1 if found else 0
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)

    def as_json(self) -> bytes:
        told = {
            "requests": len(self.arrivals),
            "recipients": self.recipients,
            "connections": self.connections,
            "first": self.arrivals[0] if self.arrivals else None,
            "last": self.arrivals[-1] if self.arrivals else None,
            "most_in_flight": self.most_in_flight,
        }
        return json.dumps(told).encode()


class Bare(asyncio.Protocol):
    """One connection, kept open: requests are told apart by ``Content-Length``, and nothing else is looked at."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.known = False
        self.unread = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.unread += data
        while (end := self.unread.find(b"\r\n\r\n") + 4) > 3:
            head = bytes(self.unread[:end])
            if _CHUNKED.search(head):
                # A body without a length would be taken for the next request, and counted as one.
                self.transport.write(answered(b"{}", b"411 Length Required"))
                self.transport.close()
                return
            length = _LENGTH.search(head)
            whole = end + (int(length[1]) if length else 0)
            if len(self.unread) < whole:
                return
            body = bytes(self.unread[end:whole])
            del self.unread[:whole]
            self.take(head, body)

    def take(self, head: bytes, body: bytes) -> None:
        if head.startswith(b"GET /_stats "):
            self.transport.write(answered(self.server.notes.as_json()))
        elif head.startswith(b"POST /_reset "):
            self.server.notes = Notes()
            self.transport.write(answered(b"{}"))
        else:
            notes = self.server.notes
            if not self.known:
                self.known = True
                notes.connections += 1
            notes.arrived(body)
            asyncio.get_running_loop().call_later(self.server.latency, self.accept, notes)

    def accept(self, notes: Notes) -> None:
        notes.in_flight -= 1
        self.server.answers += 1
        if not self.transport.is_closing():
            self.transport.write(answered(_ANSWER % self.server.answers))


class Server:
    """What all connections share."""

    def __init__(self, latency: float) -> None:
        self.latency = latency
        self.notes = Notes()
        self.answers = 0

    async def serve(self, port: int) -> None:
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(lambda: Bare(self), "127.0.0.1", port, backlog=BACKLOG)
        await listener.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description="Answer every request as an accepted SMS")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--latency", type=float, default=LATENCY, help="seconds until an answer")
    arguments = parser.parse_args()
    run = asyncio.run
    with contextlib.suppress(ImportError):
        # Comes along with Airflow's own server on most systems; only cheaper.
        from uvloop import run
    with contextlib.suppress(KeyboardInterrupt):
        run(Server(arguments.latency).serve(arguments.port))


if __name__ == "__main__":
    main()
