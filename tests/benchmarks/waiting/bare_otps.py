"""A service of passcodes that does nothing but answer: ``python -m tests.benchmarks.waiting.bare_otps --port N``.

Every passcode is there and open, until it is said otherwise. ``GET /_stats`` and ``POST /_reset`` are those of the bare
server. On a test's own event loop it also tells who was read, in order.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import re
from typing import Self

from tests.benchmarks.campaign.bare_server import BACKLOG, LATENCY, Bare, Notes, Server, answered

OPEN, VERIFIED = "SENT", "VERIFIED"
NOT_FOUND = "not found"
MOST_NOTED = 100_000

_READ = re.compile(rb"GET /otp/([^ /]+) ")
_KEY = re.compile(rb"\r\nauthorization: Bearer ([^\r]+)", re.IGNORECASE)
_RECORD = (
    b'{"id":"%s","recipient":"2348030000000","status":1,"status_desc":"%s","created_datetime":"2026-01-31T10:00:00Z"}'
)
_ERROR = b'{"status":%d,"message":"No","errors":[]}'
_NOT_FOUND = b'{"status":404,"message":"Not found","errors":[{"field":"id","message":"No passcode has this id"}]}'
_REASONS = {401: b"401 Unauthorized", 404: b"404 Not Found", 429: b"429 Too Many Requests", 500: b"500 Server Error"}


class BareOtps(Bare):
    """One connection to the service."""

    server: OtpServer

    def take(self, head: bytes, body: bytes) -> None:
        asked = _READ.match(head)
        if asked is None:
            super().take(head, body)
            return
        notes, otp_id = self.server.notes, asked[1].decode()
        notes.connections += not self.known
        self.known = True
        notes.arrived(body)
        if len(self.server.read) < MOST_NOTED:
            self.server.read.append(otp_id)
        key = _KEY.search(head)
        answer = self.server.answer(otp_id, key[1].decode() if key else "")
        asyncio.get_running_loop().call_later(self.server.latency, self.tell, notes, answer)

    def tell(self, notes: Notes, answer: bytes) -> None:
        notes.in_flight -= 1
        if not self.transport.is_closing():
            self.transport.write(answer)


class OtpServer(Server):
    """What all connections share. ``async with OtpServer() as server`` runs it on the event loop of a test.

    ``says`` holds the description, or the HTTP status, of each passcode of which something else is to be said than that
    it is open. A status says nothing about the passcode, ``NOT_FOUND`` is the documented error. ``keys`` are those that
    are accepted, or ``None`` for all.
    """

    def __init__(self, latency: float = 0.0) -> None:
        super().__init__(latency)
        self.read: list[str] = []
        self.says: dict[str, str | int] = {}
        self.keys: set[str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.sockets[0].getsockname()[1]}"

    def answer(self, otp_id: str, key: str) -> bytes:
        said = self.says.get(otp_id, OPEN)
        if self.keys is not None and key not in self.keys:
            said = 401
        if said == NOT_FOUND:
            return answered(_NOT_FOUND, _REASONS[404])
        if isinstance(said, int):
            return answered(_ERROR % said, _REASONS[said])
        return answered(_RECORD % (otp_id.encode(), said.encode()))

    async def listen(self, port: int = 0) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        return await loop.create_server(lambda: BareOtps(self), "127.0.0.1", port, backlog=BACKLOG)

    async def serve(self, port: int) -> None:
        await (await self.listen(port)).serve_forever()

    async def __aenter__(self) -> Self:
        self._listener = await self.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="Answer every passcode as open")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--latency", type=float, default=LATENCY, help="seconds until an answer")
    arguments = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(OtpServer(arguments.latency).serve(arguments.port))


if __name__ == "__main__":
    main()
