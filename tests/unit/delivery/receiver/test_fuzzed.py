"""Bodies of any kind behind good tokens and signatures: each gets one of the answers that are described, never a 500.

``TORTURE=1`` sends 100,000 of them, elsewhere each time; the seed is printed.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import random
from collections import Counter
from collections.abc import Callable

import pytest

from cpaas_provider.database.database import Database
from cpaas_provider.delivery.callbacks.signatures import sign
from cpaas_provider.delivery.callbacks.tokens import CallbackToken
from tests.unit.delivery.running_receiver import REPORT, Served, serving

TORTURE = bool(os.environ.get("TORTURE"))
BODIES = 100_000 if TORTURE else 200
SEED = random.SystemRandom().randrange(2**32) if TORTURE else 20260131
NAMES = [
    *REPORT,
    "data",
    "event",
    "to",
    "msisdn",
    "external_ref",
    "error",
    "description",
    "created_datetime",
    "channel",
]
ODD_TEXTS = ["", "\0", "\ud800", "ü", "\u202e", "a" * 5000, "text.delivered", "FAILED", "+234 803", "a@B", "2026-01-01"]
MEDIA_TYPES = ["application/json"] * 8 + ["text/plain", "application/JSON; charset=latin-1", ""]

Generator = Callable[[random.Random], bytes]


def value(chance: random.Random, depth: int = 0) -> object:
    """Return any JSON value, with the fields of reports more often than others."""
    kind = chance.randrange(9 if depth < 4 else 6)
    if kind < 3:
        return chance.choice(ODD_TEXTS)
    if kind == 3:
        return chance.choice([0, -1, 1.5, 1e308, float("nan"), float("-inf"), 10**30, 2**63, 1700000000, -(10**18)])
    if kind == 4:
        return chance.choice([None, True, False])
    if kind == 5:
        return "".join(chr(chance.randrange(0x110000)) for _ in range(chance.randrange(30)))
    if kind == 6:
        return [value(chance, depth + 1) for _ in range(chance.randrange(4))]
    return {chance.choice(NAMES): value(chance, depth + 1) for _ in range(chance.randrange(8))}


def well_formed(chance: random.Random) -> bytes:
    return json.dumps(value(chance), ensure_ascii=chance.random() < 0.7).encode("utf-8", "surrogatepass")


def mutilated(chance: random.Random) -> bytes:
    raw = bytearray(well_formed(chance) or b"0")
    for _ in range(chance.randrange(1, 5)):
        raw[chance.randrange(len(raw))] = chance.randrange(256)
    return bytes(raw[: chance.randrange(len(raw) + 1)])


def noise(chance: random.Random) -> bytes:
    return chance.randbytes(chance.randrange(300))


def deep(chance: random.Random) -> bytes:
    opening, closing = chance.choice([(b"[", b"]"), (b'{"data":', b"}")])
    depth = chance.choice([2, 100, 900, 1100, 20_000])
    return opening * depth + b"1" + closing * chance.choice([depth, depth - 1, 0])


def with_a_long_number(chance: random.Random) -> bytes:
    return b'{"%s": %s}' % (
        chance.choice(NAMES).encode(),
        chance.choice([b"-", b""]) + b"7" * chance.choice([20, 4301]),
    )


GENERATORS: list[Generator] = [well_formed, well_formed, well_formed, mutilated, noise, deep, with_a_long_number]


@pytest.mark.timeout(3000)
def test_any_body_gets_200_or_415_or_422(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    print(f"seed {SEED}")
    chance, statuses = random.Random(SEED), Counter[int]()
    with serving(database) as served:
        connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)
        for number in range(BODIES):
            raw = chance.choice(GENERATORS)(chance)
            path, headers = choose_endpoint(served, chance, raw)
            connection.request("POST", path, raw, headers)
            answer = connection.getresponse()
            said = json.loads(answer.read())
            assert answer.status in (200, 415, 422), (SEED, number, raw)
            assert set(said) in ({"status"}, {"detail"})
            statuses[answer.status] += 1
        connection.close()
        counted = served.counted()
    assert counted["received"] == statuses[200] > 0
    assert min(statuses[415], statuses[422]) > 0
    assert sum(row.received_count for row in served.stored()) == statuses[200]
    assert [one.message for one in caplog.records if one.levelno >= logging.WARNING] == []


def choose_endpoint(served: Served, chance: random.Random, raw: bytes) -> tuple[str, dict[str, str]]:
    media_type = {"Content-Type": chance.choice(MEDIA_TYPES)}
    if chance.random() < 0.5:
        return "/webhook/shop", {"X-Signature": sign(raw, "of-webhooks"), **media_type}
    token = CallbackToken(f"campaign-{chance.randrange(3)}", f"request-{chance.randrange(9)}", chance.choice([1, 100]))
    return served.callback(token).removeprefix(served.url), media_type
