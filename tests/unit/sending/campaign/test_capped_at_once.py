"""Two campaigns at a time over the same recipients with a cap of one: each recipient gets exactly one message."""

from __future__ import annotations

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

WITHIN = 60
PEOPLE = 60


@pytest.fixture
def campaigns(database: object, url: str, sandbox: Sandbox, tmp_path: Path) -> list[CappedCampaign]:
    """Two campaigns to the same recipients, the second in the order of its own list."""
    people = phones(PEOPLE)
    return [
        CappedCampaign(name, tmp_path, url, sandbox, some)
        for name, some in (("morning", people), ("evening", people[PEOPLE // 2 :] + people[: PEOPLE // 2]))
    ]


def test_each_recipient_gets_exactly_one_message(campaigns: list[CappedCampaign], sandbox: Sandbox) -> None:
    processes = [one.start() for one in campaigns]
    for process in processes:
        process.join(WITHIN)
    assert [process.exitcode for process in processes] == [0, 0]
    assert reached(sandbox) == Counter(phones(PEOPLE))
    counts = [one.counts for one in campaigns]
    assert sum(one["sent"] for one in counts) == PEOPLE
    assert all(one["sent"] + one["frequency_capped"] == PEOPLE for one in counts)


def test_kill_and_retry_send_no_second_message_and_lose_only_unknown_requests(
    campaigns: list[CappedCampaign], sandbox: Sandbox
) -> None:
    # It is killed in the middle: some requests are accepted, and another one gets no response.
    slow = {"operation": "send_sms", "kind": "latency", "ms": 60_000, "after": 3, "times": 1}
    sandbox.control("POST", "faults", slow)
    killed, other = campaigns
    first = killed.start()
    deadline = time.monotonic() + WITHIN
    while not sandbox.counters()["faults"].get("latency") and time.monotonic() < deadline:
        first.join(0.01)
    first.kill()
    first.join(WITHIN)
    processes = [killed.start(), other.start()]
    for process in processes:
        process.join(WITHIN)
    assert [first.exitcode, *(process.exitcode for process in processes)] == [-9, 0, 0]
    found = reached(sandbox)
    assert set(found.values()) == {1}
    missed = set(phones(PEOPLE)) - found.keys()
    assert len(missed) <= killed.counts["unknown"] <= 4 * killed.per_request
    assert other.counts["sent"] + other.counts["frequency_capped"] == PEOPLE
