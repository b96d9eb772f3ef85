"""What strangers send to a real API server holds up nobody, and does not keep a recipient from being erased."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest
import sqlalchemy

from cpaas_provider.database.database import open_database
from cpaas_provider.database.schema.delivery import deliveries, reports
from cpaas_provider.delivery.callbacks.tokens import CallbackToken
from cpaas_provider.delivery.tracking.erasure import erase
from tests.system.attacking.places import Place, receiving

BODIES, PEOPLE = (10_000, 50) if os.environ.get("TORTURE") else (1_500, 15)
MOST_SECONDS = 0.25
"""Three times what the costliest took on a busy machine. What grows with the square of a length takes many seconds."""
TOKEN = CallbackToken("hostile", "hostile-1", 100_000)
SENDERS = 16

URL_UNITS = ("a.", "a", ".1", ".1.1234567890.", "%2e", "%252e", "a.b.1.1234567890." + "a" * 42 + ".", "/", "&a=")
HOSTILE_PATHS = [
    prefix + (unit * 60_000)[:60_000]
    for unit in URL_UNITS
    for prefix in ("/", "/?", "/api/v2/", "/cpaas/", "/cpaas/callback/cpaas_honest/", "/execution/?")
]
"""URLs near the longest that the server reads."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with receiving(tmp_path_factory.mktemp("receiver"), None, mounted=True) as running:
        yield running


def odd_bodies(numbers: list[str]) -> Iterator[str]:
    """Yield JSON that is odd in one way each, and names one of the numbers in one of several forms."""
    forms = ("+{0}", "00{0}", "{0}", "+{1} {2} {3} {4}", "0{2}-{3}.{4}", "(0{2}) {3} {4}", "{2}_{3}_{4}", "%2B{0}")
    oddities = (
        '"score": 1e9999999999999999999',
        '"score": -1.5E+99999999999999999999, "more": 1e-99999999999999999999',
        '"score": ' + "9" * 5_000,
        '"score": [NaN, Infinity, -Infinity]',
        '"score": 0.' + "0" * 5_000 + "1",
        '"in": ' + "[" * 400 + "]" * 400,
        '"in": "{\\"score\\": 1e9999999999999999999}"',
        '"to": "another", "to": null',
        '"half": "\\ud800"',
        '"in": "' + "00 1" * 2_000 + '"',
        '"in": "' + "%25" * 2_000 + '"',
        '"status": {"text": {"text": []}}, "event": 7, "data": [{}]',
    )
    combinations = itertools.product(oddities, forms)
    for position, (oddity, form) in enumerate(itertools.cycle(combinations)):
        number = numbers[position % len(numbers)]
        written = form.format(number, number[:3], number[3:6], number[6:9], number[9:])
        yield f'{{"id": "odd-{position}", "about": "{written}", {oddity}}}'


async def _post_all(place: Place, bodies: Iterator[str]) -> list[int]:
    limits = httpx.Limits(max_connections=SENDERS)
    path, headers = place.path(TOKEN), {"content-type": "application/json"}
    async with httpx.AsyncClient(base_url=place.url, timeout=60, trust_env=False, limits=limits) as client:

        async def sender() -> list[int]:
            return [(await client.post(path, content=body, headers=headers)).status_code for body in bodies]

        return list(itertools.chain.from_iterable(await asyncio.gather(*(sender() for _ in range(SENDERS)))))


def send_hostile_urls(place: Place, over: threading.Event, statuses: list[int]) -> None:
    """Send one hostile URL after the other, without a login."""
    with httpx.Client(base_url=place.url, timeout=60, trust_env=False) as client:
        for path in itertools.cycle(HOSTILE_PATHS):
            if over.wait(0.1):
                return
            statuses.append(client.get(place.url + path).status_code)


def cpu_seconds(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def test_hostile_urls_take_little_time_of_the_server(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """What a request computes delays all others. Processor time says that on a busy machine, too."""
    # Airflow builds some of its applications at their first request, which takes seconds.
    for path in ("/", "/api/v2/version", "/execution/"):
        httpx.get(place.url + path, timeout=60, trust_env=False)
    processes = place.started.processes()
    costs = dict.fromkeys(HOSTILE_PATHS, math.inf)
    with httpx.Client(base_url=place.url, timeout=60, trust_env=False) as client:
        # Twice, because the server has work of its own at times.
        for path in HOSTILE_PATHS * 2:
            before = cpu_seconds(processes)
            client.get(place.url + path)
            costs[path] = min(costs[path], cpu_seconds(processes) - before)
    slow = {path[:60]: seconds for path, seconds in costs.items() if seconds >= MOST_SECONDS}
    with capsys.disabled():
        print(f"\n{len(costs)} hostile URLs took {max(costs.values()) * 1000:.0f} ms of the server at most.")
    assert sum(costs.values()) > 0
    assert slow == {}


@pytest.mark.timeout(1200)
def test_erasure_removes_every_recipient_from_odd_bodies(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    numbers = [f"23480312{number:05d}" for number in range(10_000, 10_000 + PEOPLE)]
    bystander = "2348039990000"
    over = threading.Event()
    attacker = threading.Thread(target=send_hostile_urls, args=(place, over, list[int]()), daemon=True)
    attacker.start()
    bodies = itertools.islice(odd_bodies(numbers), BODIES)
    others = iter([json.dumps({"id": "bystander", "recipient": bystander, "status": "delivered"})])
    statuses = asyncio.run(_post_all(place, itertools.chain(bodies, others)))
    over.set()
    attacker.join(60)
    assert statuses == [200] * (BODIES + 1)
    first, *rest = numbers
    command = [str(Path(place.command[0]).with_name("airflow")), "cpaas", "db", "erase", f"+{first}", "--yes"]
    done = subprocess.run(command, env=place.environment, capture_output=True, text=True, timeout=120, check=False)
    assert "unexpected error" not in done.stderr
    assert "Erased the recipient, read as a phone number of NG" in done.stdout
    start = time.monotonic()
    with open_database(place.store) as database:
        erased = [erase(database, f"+{number}") for number in rest]
        with database.connect() as connection:
            stored = list(connection.execute(sqlalchemy.select(reports.c.body)).scalars())
            kept = "\n".join(str(row) for row in connection.execute(sqlalchemy.select(deliveries)))
    with capsys.disabled():
        print(f"\n{BODIES:,} odd bodies, {PEOPLE} recipients erased, {time.monotonic() - start:.0f} s for {len(rest)}.")
    assert [result.unreadable for result in erased] == [0] * len(rest)
    assert [body for body in stored if bystander not in body] == []
    assert len(stored) == 1
    assert not [number for number in numbers if number in kept or number[3:] in kept]
