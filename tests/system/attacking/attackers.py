"""Those who attack: each does one thing again and again, by HTTP written by hand, until it is told to end."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from cpaas_provider.delivery.callbacks.signatures import sign
from cpaas_provider.delivery.callbacks.tokens import LIFETIME, CallbackToken
from tests.system.attacking.places import HEADER, HONEST, MALLORY, WEBHOOK_SECRET, Place

OWN = CallbackToken("mallory", "mallory-1", 100_000)
OTHERS = CallbackToken("honest", "honest-1", 100_000)
EXPIRED = CallbackToken("expired", "mallory-3", 100_000, datetime.now(UTC) - LIFETIME - timedelta(days=1))
PRUNED_AFTER = timedelta(days=30)
PRUNED = CallbackToken("pruned", "mallory-4", 100_000, datetime.now(UTC) - PRUNED_AFTER - timedelta(days=1))
REPLAYED = [
    json.dumps({"id": f"pruned-{number}", "recipient": "2348030008888", "status": "failed"}) for number in range(50)
]
"""Reports that came to the callback URL of ``PRUNED``, and were pruned since."""

PATIENCE = 30.0
STATUS = slice(9, 12)


@dataclass
class Attack:
    """What attackers share: their target, when to end, and what they were answered by the kind of attack."""

    place: Place
    over: asyncio.Event
    answers: dict[str, Counter[str]] = field(default_factory=dict)
    chance: random.Random = field(default_factory=lambda: random.Random(7))
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    def note(self, kind: str, answer: bytes) -> None:
        self.answers.setdefault(kind, Counter())[answer[STATUS].decode("latin-1") or "none"] += 1

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.wait_for(asyncio.open_connection("127.0.0.1", self.place.port), PATIENCE)

    async def pause(self, seconds: float) -> None:
        """Wait, unless it is over before."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.over.wait(), seconds)

    def body(self, **fields: object) -> bytes:
        """Return a report like no other."""
        said = {"id": f"mallory-{next(self.numbers)}", "recipient": "2348030009999", "status": "failed", **fields}
        return json.dumps(said).encode()


def head(path: str, length: int, headers: Mapping[str, str] | None = None) -> bytes:
    """Return a request up to its body."""
    lines = {"Host": "here", "Content-Type": "application/json", "Content-Length": str(length), **(headers or {})}
    return (
        f"POST {path} HTTP/1.1\r\n".encode()
        + b"".join(f"{name}: {value}\r\n".encode() for name, value in lines.items())
        + b"\r\n"
    )


async def _posted(attack: Attack, kind: str, path: str, body: bytes, headers: Mapping[str, str] | None = None) -> None:
    """Send one report, and read how it is answered."""
    reader, writer = await attack.connect()
    try:
        writer.write(head(path, len(body), {"Connection": "close", **(headers or {})}) + body)
        attack.note(kind, await asyncio.wait_for(reader.read(200), PATIENCE))
    finally:
        writer.close()


async def _dripped(attack: Attack, kind: str, path: str, headers: Mapping[str, str] | None = None) -> None:
    """Begin a report, and go on with it byte by byte for as long as the receiver lets us."""
    reader, writer = await attack.connect()
    try:
        writer.write(head(path, 10_000, headers) + b"{")
        answered = asyncio.create_task(reader.read(200))
        while not answered.done() and not attack.over.is_set():
            await asyncio.wait({answered}, timeout=1.0)
            writer.write(b" ")
        if answered.done():
            attack.note(kind, answered.result())
        answered.cancel()
    finally:
        writer.close()


async def forged_token(attack: Attack) -> None:
    """A callback URL of the honest connection, signed with what is not its secret."""
    await _posted(attack, "forged_token", attack.place.path(OTHERS, HONEST, "made-up"), attack.body())


async def token_of_another_connection(attack: Attack) -> None:
    """A token that is good, under the name of another connection."""
    token = attack.place.path(OWN, MALLORY).rpartition("/")[2]
    await _posted(attack, "token_of_another_connection", f"/cpaas/callback/{HONEST}/{token}", attack.body())


async def token_made_into_another_request_s(attack: Attack) -> None:
    """A token that was good, with the name of another request in it."""
    path = attack.place.path(OWN, MALLORY).replace("mallory-1", "mallory-2")
    await _posted(attack, "token_made_into_another_request_s", path, attack.body())


async def expired_token(attack: Attack) -> None:
    """A callback URL that was good, and is older than callback URLs may become."""
    await _posted(attack, "expired_token", attack.place.path(EXPIRED, MALLORY), attack.body())


async def replay_of_what_was_pruned(attack: Attack) -> None:
    """A report that was taken, and pruned since, to a callback URL that is still good."""
    body = attack.chance.choice(REPLAYED).encode()
    await _posted(attack, "replay_of_what_was_pruned", attack.place.path(PRUNED, MALLORY), body)


async def signature_of_another_connection(attack: Attack) -> None:
    """A report signed with one connection's secret, at the webhook of another."""
    body = attack.body()
    headers = {HEADER: sign(body, WEBHOOK_SECRET[MALLORY])}
    await _posted(attack, "signature_of_another_connection", f"/cpaas/webhook/{HONEST}", body, headers)


async def other_spelling(attack: Attack) -> None:
    """A report signed as it should be, at the webhook of its connection spelled otherwise."""
    body = attack.body()
    headers = {HEADER: sign(body, WEBHOOK_SECRET[MALLORY])}
    spelled = attack.chance.choice(["CPAAS_MALLORY", "Cpaas_Mallory", "cpaas_mallory%20", "cpaa%C5%BF_mallory"])
    await _posted(attack, "other_spelling", f"/cpaas/webhook/{spelled}", body, headers)


async def odd_body(attack: Attack) -> None:
    """A body that is no report, or one that is hard to store."""
    number = next(attack.numbers)
    bodies = (
        b"[" * 100_000,
        b'"\xff"',
        b"{" + b" " * 300_000 + b"}",
        attack.body(recipient="\u0130" * 200 + f"{number}@example.com"),
        attack.body(recipient="a\x00b", reason="\ud800" * 300, id="\x00"),
        attack.body(reason="\U0001f600" * 1000, status=["odd"]),
        json.dumps([number]).encode(),
    )
    await _posted(attack, "odd_body", attack.place.path(OWN, MALLORY), attack.chance.choice(bodies))


async def slow_without_signature(attack: Attack) -> None:
    """A report to the webhook that drips, without a signature."""
    await _dripped(attack, "slow_without_signature", f"/cpaas/webhook/{attack.chance.choice((HONEST, MALLORY))}")


async def slow_with_signature(attack: Attack) -> None:
    """The same with what looks like a signature."""
    headers = {HEADER: sign(b"other", "made-up")}
    await _dripped(attack, "slow_with_signature", f"/cpaas/webhook/{MALLORY}", headers)


async def slow_with_token(attack: Attack) -> None:
    """A report that drips, to a callback URL that is good."""
    await _dripped(attack, "slow_with_token", attack.place.path(OWN, MALLORY))


async def made_up_name(attack: Attack) -> None:
    """A report for a connection that is not there."""
    path = f"/cpaas/webhook/made-up-{next(attack.numbers)}"
    await _posted(attack, "made_up_name", path, attack.body(), {HEADER: sign(b"", "made-up")})


async def hang_up(attack: Attack) -> None:
    """A report that ends in the middle."""
    _, writer = await attack.connect()
    writer.write(head(attack.place.path(OWN, MALLORY), 100) + b"{")
    await writer.drain()
    await attack.pause(0.05)
    writer.transport.abort()
    attack.note("hang_up", b"")


async def half_open(attack: Attack) -> None:
    """A connection on which next to nothing is said."""
    reader, writer = await attack.connect()
    try:
        writer.write(b"POST /cpaas/webho")
        ended = asyncio.create_task(reader.read(200))
        over = asyncio.create_task(attack.over.wait())
        await asyncio.wait({ended, over}, return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            attack.note("half_open", ended.result())
        ended.cancel()
        over.cancel()
    finally:
        writer.close()


async def endless_head(attack: Attack) -> None:
    """A URL without end, up to some MiB."""
    reader, writer = await attack.connect()
    try:
        writer.write(b"POST /cpaas/webhook/")
        for _ in range(64):
            writer.write(b"a" * 65536)
            await writer.drain()
        attack.note("endless_head", await asyncio.wait_for(reader.read(200), PATIENCE))
    finally:
        writer.close()


async def flood(attack: Attack) -> None:
    """Reports to a callback URL that is good, one after the other on a connection that is kept."""
    path = attack.place.path(OWN, MALLORY)
    reader, writer = await attack.connect()
    try:
        while not attack.over.is_set():
            body = attack.body()
            writer.write(head(path, len(body)) + body)
            said = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
            length = next(int(line[15:]) for line in said.split(b"\r\n") if line.lower().startswith(b"content-length"))
            await reader.readexactly(length)
            attack.note("flood", said)
    finally:
        writer.close()


ATTACKS: dict[Callable[[Attack], Awaitable[None]], tuple[int, float]] = {
    forged_token: (4, 0.05),
    token_of_another_connection: (2, 0.05),
    token_made_into_another_request_s: (2, 0.05),
    expired_token: (2, 0.05),
    replay_of_what_was_pruned: (2, 0.05),
    signature_of_another_connection: (2, 0.05),
    other_spelling: (2, 0.05),
    odd_body: (2, 0.1),
    slow_without_signature: (1100, 5.0),
    slow_with_signature: (1100, 1.0),
    slow_with_token: (300, 1.0),
    made_up_name: (8, 0.05),
    hang_up: (8, 0.05),
    half_open: (600, 1.0),
    endless_head: (1, 0.5),
    flood: (8, 0.1),
}
"""How many do it at a time, and how long each pauses before it does it again: more than there is room for."""


async def attack_until_over(attack: Attack) -> None:
    """Have all of them at it at once."""

    async def again_and_again(once: Callable[[Attack], Awaitable[None]], pause: float) -> None:
        while not attack.over.is_set():
            # A connection that the receiver ended is what it should do.
            with contextlib.suppress(OSError, EOFError, TimeoutError, ssl.SSLError, asyncio.LimitOverrunError):
                await once(attack)
            await attack.pause(pause)

    await asyncio.gather(
        *(again_and_again(once, pause) for once, (count, pause) in ATTACKS.items() for _ in range(count))
    )
