"""10,000 recipients and two campaigns at a time with a cap of one: undisturbed, and with kills of either process."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.sandbox import Sandbox
from tests.unit.database.conftest import database as database
from tests.unit.database.conftest import postgres_url as postgres_url
from tests.unit.database.conftest import sqlite_url as sqlite_url
from tests.unit.database.conftest import url as url
from tests.unit.sending.campaign.capped import CappedCampaign, reached
from tests.unit.sending.campaign.parts import phones

PEOPLE = 10_000
KILLS = 8
WITHIN = 300


@pytest.fixture
def campaigns(database: object, url: str, sandbox: Sandbox, tmp_path: Path) -> list[CappedCampaign]:
    people, half = phones(PEOPLE), PEOPLE // 2
    return [
        CappedCampaign(name, tmp_path, url, sandbox, some, per_request=50)
        for name, some in (("morning", people), ("evening", people[half:] + people[:half]))
    ]


def test_each_of_10000_recipients_gets_exactly_one_message(campaigns: list[CappedCampaign], sandbox: Sandbox) -> None:
    processes = [one.start() for one in campaigns]
    for process in processes:
        process.join(WITHIN)
    assert [process.exitcode for process in processes] == [0, 0]
    assert reached(sandbox) == Counter(phones(PEOPLE))


def test_kills_send_no_second_message_and_lose_only_unknown_requests(
    campaigns: list[CappedCampaign], sandbox: Sandbox
) -> None:
    sandbox.control("POST", "faults", {"operation": "send_sms", "kind": "latency", "ms": 200})
    draw, killed = random.Random(11), 0
    processes = [one.start() for one in campaigns]
    deadline = time.monotonic() + WITHIN
    for number in range(1, KILLS + 1):
        while sandbox.counters()["sms"]["recipients"] < number * PEOPLE // (KILLS + 2) and time.monotonic() < deadline:
            processes[0].join(0.02)
        which = draw.randrange(2)
        if processes[which].is_alive():
            processes[which].kill()
            processes[which].join(WITHIN)
            processes[which] = campaigns[which].start()
            killed += 1
    for process in processes:
        process.join(WITHIN)
    assert [process.exitcode for process in processes] == [0, 0]
    assert killed >= KILLS // 2
    found = reached(sandbox)
    assert set(found.values()) == {1}
    unknown = sum(one.counts["unknown"] for one in campaigns)
    print(f"{killed} kills: {len(found)} of {PEOPLE} recipients got one message, {unknown} are of unknown outcome.")
    assert PEOPLE - len(found) <= unknown
