"""A client's part in a shared rate limit: how much it reserves, and what it does where it cannot."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import threading
import time
from bisect import bisect_left
from collections.abc import Generator
from typing import Any, cast

import pytest
from sqlalchemy import event

from cpaas_provider.api.errors import CpaasNotSentError
from cpaas_provider.database.database import Database
from cpaas_provider.hooks._rate_limit.limiter import LATEST, TRIES, SharedRateLimiter
from cpaas_provider.hooks._rate_limit.reservations import ReservedMoments, SharedLimit, Wanted, reserve
from cpaas_provider.hooks.connection import CpaasConnection
from tests.sandbox import Sandbox
from tests.waiting import until

ROUND_TRIP = 0.01


class Shared:
    """What processes reserve in, without a database, at a time that tests let pass."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.limit: SharedLimit | None = None
        self.calls: list[int] = []
        self.holds: list[float] = []
        self.failures = 0

    def clock(self) -> float:
        return self.now

    def reserve(self, wanted: Wanted) -> ReservedMoments:
        self.calls.append(wanted.count)
        if self.failures:
            self.failures -= 1
            raise CpaasNotSentError("The database is gone. The request was not sent.")
        self.limit, got = reserve(self.limit, wanted, self.now)
        return got

    def hold(self, seconds: float) -> None:
        self.holds.append(seconds)

    def close(self) -> None:
        pass

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def limiter(self, per_second: float) -> SharedRateLimiter:
        return SharedRateLimiter(per_second, cast(Any, self), "connection 'x'", self.clock)


@pytest.fixture
def shared() -> Shared:
    return Shared()


def test_single_request_reserves_once(shared: Shared) -> None:
    shared.limiter(10).wait(shared.sleep)
    assert shared.calls == [1]


def test_requests_that_follow_at_once_reserve_more_at_a_time(shared: Shared) -> None:
    limiter, began = shared.limiter(100), shared.now
    for _ in range(1000):
        limiter.wait(shared.sleep)
    assert shared.now - began == pytest.approx(9.99, abs=0.05)
    assert len(shared.calls) <= 30
    assert max(shared.calls) <= 50


def test_requests_with_pauses_reserve_one_at_a_time(shared: Shared) -> None:
    limiter = shared.limiter(10)
    for _ in range(20):
        limiter.wait(shared.sleep)
        shared.now += 1
    assert shared.calls == [1] * 20


def test_unused_moments_cause_no_burst(shared: Shared) -> None:
    limiter = shared.limiter(100)
    for _ in range(80):
        limiter.wait(shared.sleep)
    shared.now += 60
    departures = []
    for _ in range(50):
        limiter.wait(shared.sleep)
        departures.append(shared.now)
    assert departures[-1] - departures[0] >= 49 / 100 - LATEST


def test_delayed_request_takes_another_moment(shared: Shared) -> None:
    limiter = shared.limiter(10)
    limiter.wait(shared.sleep)
    slept: list[float] = []

    def slow(seconds: float) -> None:
        shared.now += seconds + (30 if len(slept) == 1 else 0)
        slept.append(seconds)

    limiter.wait(slow)
    limiter.wait(slow)
    assert len(shared.calls) == 3


def test_brief_database_failure_is_retried(shared: Shared) -> None:
    shared.failures = TRIES - 1
    shared.limiter(10).wait(shared.sleep)
    assert len(shared.calls) == TRIES


def test_lasting_database_failure_is_an_error_and_the_next_request_retries(shared: Shared) -> None:
    shared.failures = TRIES
    limiter = shared.limiter(10)
    with pytest.raises(CpaasNotSentError):
        limiter.wait(shared.sleep)
    assert len(shared.calls) == TRIES
    limiter.wait(shared.sleep)


def test_hold_of_the_service_is_shared_once(shared: Shared) -> None:
    limiter, began = shared.limiter(10), shared.now
    limiter.wait(shared.sleep)
    limiter.block_for(7)
    limiter.share_hold()
    limiter.wait(shared.sleep)
    limiter.share_hold()
    assert shared.holds == [7]
    assert shared.now - began >= 7


def test_slow_reservation_still_lets_requests_leave(shared: Shared) -> None:
    plain = shared.reserve

    def slow(wanted: Wanted) -> ReservedMoments:
        got = plain(wanted)
        shared.now += 3
        return got

    shared.reserve = slow  # type: ignore[method-assign]  # a database that answers after three seconds
    limiter = shared.limiter(10)
    for _ in range(5):
        limiter.wait(shared.sleep)
    assert len(shared.calls) <= 5


def test_prepare_reserves_for_the_requests_ahead_too_and_takes_none(shared: Shared) -> None:
    limiter = shared.limiter(10)

    async def prepared() -> list[float]:
        return [await limiter.prepare(ahead) for ahead in (0, 0, 1, 1)]

    assert asyncio.run(prepared()) == pytest.approx([0, 0, 0.1, 0.1])
    assert shared.calls == [1, 2]


def departures(shared: Shared, processes: int, per_second: float, seconds: float, dies: int) -> list[list[float]]:
    """Let processes send as fast as they may; some are killed in the middle."""
    left: list[list[float]] = [[] for _ in range(processes)]

    def process(number: int) -> Generator[float]:
        limiter = shared.limiter(per_second)
        while True:
            for step in limiter._steps():
                if callable(step):
                    step()
                yield ROUND_TRIP if callable(step) else step
            left[number].append(shared.now)

    count, began = itertools.count(), shared.now
    running = [(shared.now, next(count), number, process(number)) for number in range(processes)]
    while running[0][0] < began + seconds:
        shared.now, _, number, one = heapq.heappop(running)
        if number < dies and shared.now > began + seconds / 2:
            continue
        heapq.heappush(running, (shared.now + next(one), next(count), number, one))
    return left


@pytest.mark.parametrize(
    ("processes", "per_second", "seconds"), [(1, 100, 20), (4, 10, 60), (20, 100, 20), (3, 2000, 5), (4, 0.1, 900)]
)
@pytest.mark.parametrize("dies", [0, 1])
def test_processes_together_reach_the_limit_without_exceeding_it(
    shared: Shared, processes: int, per_second: float, seconds: float, dies: int
) -> None:
    left = departures(shared, processes, per_second, seconds, dies if processes > 1 else 0)
    moments = sorted(itertools.chain(*left))
    for span in (1.0, 10.0, 60.0):
        most = max(bisect_left(moments, moment + span) - place for place, moment in enumerate(moments))
        assert most <= per_second * (span + LATEST) + 2
    assert len(moments) >= 0.95 * per_second * seconds - 2
    if per_second * seconds >= 300 * processes and not dies:
        assert min(map(len, left)) >= 0.5 * max(map(len, left))


# With a database and a service ----------------------------------------------------------------------------------------


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The statements of databases that are opened from now on, in a file of the test's own."""
    from cpaas_provider.database import database as databases

    url = f"sqlite:///{tmp_path_factory.mktemp('shared') / 'cpaas.db'}"
    seen: list[str] = []
    plain = databases.open_database

    def opened(_: None, **given: Any) -> Database:
        database = plain(url, **given)
        event.listen(database.engine, "before_cursor_execute", lambda *args: seen.append(args[2]))
        return database

    monkeypatch.setattr(databases, "open_database", opened)
    return seen


def connection(sandbox: Sandbox, **options: Any) -> CpaasConnection:
    return CpaasConnection(sandbox.url, sandbox.api_key, options, share_rate_limit=True, conn_id="shared")


def test_single_request_is_one_transaction(sandbox: Sandbox, statements: list[str]) -> None:
    with connection(sandbox).make_client() as client:
        client.get_contact_table()
    # The session's own setting comes first.
    assert [one.split()[0] for one in statements] == ["PRAGMA", "BEGIN", "SELECT", "INSERT"]


def test_sync_and_async_clients_share_one_limit(sandbox: Sandbox, statements: list[str]) -> None:
    del statements[:]
    shared, began = connection(sandbox, requests_per_second=20), time.monotonic()

    def in_threads() -> None:
        with shared.make_client() as client:
            threads = [threading.Thread(target=client.get_contact_table) for _ in range(10)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    async def in_tasks() -> None:
        async with shared.make_async_client() as client:
            await asyncio.gather(*(client.get_contact_table() for _ in range(10)), asyncio.to_thread(in_threads))

    asyncio.run(in_tasks())
    assert sandbox.counters()["requests"]["get_contact_table"] == 20
    assert time.monotonic() - began >= 19 / 20 - 0.05


@pytest.mark.parametrize("address", ["sqlite:////proc/none/cpaas.db", "postgresql://nobody@127.0.0.1:1/none"])
def test_missing_database_prevents_sending(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setattr("cpaas_provider.hooks._rate_limit.limiter._FIRST_PAUSE", 0.01)
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", address)
    with (
        connection(sandbox).make_client() as client,
        pytest.raises(CpaasNotSentError, match=r"shared rate limit of connection 'shared'.*was not sent"),
    ):
        client.get_contact_table()
    assert sandbox.counters()["requests"] == {}


def test_hold_delays_other_clients(sandbox: Sandbox, statements: list[str]) -> None:
    sandbox.control(
        "POST", "faults", {"operation": "get_contact_table", "kind": "rate_limit", "times": 1, "retry_after": 1}
    )
    began = time.monotonic()
    with connection(sandbox).make_client() as one, connection(sandbox).make_client() as other:
        first = threading.Thread(target=one.get_contact_table)
        first.start()
        until(lambda: any("UPDATE" in statement for statement in statements))
        other.get_contact_table()
        assert time.monotonic() - began >= 0.95
        first.join()


def test_without_the_option_no_database_is_touched(sandbox: Sandbox, statements: list[str]) -> None:
    with CpaasConnection(sandbox.url, sandbox.api_key, {}).make_client() as client:
        client.get_contact_table()
    assert not statements


def test_partitions_have_the_whole_limit_and_a_share_of_the_concurrency(sandbox: Sandbox) -> None:
    parted = connection(sandbox, requests_per_second=20, max_concurrency=8).divided_by(4)
    assert (parted.settings.requests_per_second, parted.settings.max_concurrency) == (20, 2)


def test_client_stopped_during_the_wait_sends_nothing(sandbox: Sandbox, statements: list[str]) -> None:
    async def stopped() -> None:
        async with connection(sandbox, requests_per_second=0.01).make_async_client() as client:
            await client.get_contact_table()
            waiting = asyncio.ensure_future(client.get_contact_table())
            await asyncio.to_thread(until, lambda: len(statements) >= 6)
            client.stop()
            with pytest.raises(CpaasNotSentError, match="stopped"):
                await waiting

    asyncio.run(stopped())
    assert sandbox.counters()["requests"]["get_contact_table"] == 1
