"""Ending in good order: nothing new begins, and an answer on its way is given a last moment."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from cpaas_provider.sending.errors import StoppedError
from cpaas_provider.sending.shutdown import AnswerNotAwaitedError, StopSignal

LONG = 20.0
"""Seconds that no test here waits for; whatever waits so long was not woken."""


class Client:
    def __init__(self) -> None:
        self.stopped = asyncio.Event()

    def stop(self) -> None:
        self.stopped.set()


@pytest.fixture
def client() -> Client:
    return Client()


def finish(stop: StopSignal, work: Callable[[], Awaitable[Any]], client: Client) -> Any:
    """Return what the work returns, on an event loop of its own."""

    async def finished() -> Any:
        return await stop.finish(work(), client)

    return asyncio.run(finished())


async def never() -> None:
    """Wait for a response that does not come while the test runs."""
    await asyncio.sleep(LONG)


async def told(client: Client) -> None:
    async with asyncio.timeout(LONG):
        await client.stopped.wait()


@pytest.fixture
def stopped_by_signal() -> Iterator[Callable[[StopSignal], None]]:
    """Make SIGUSR1 ask for a stop, as Airflow's handler of SIGTERM calls on_kill."""
    before = signal.getsignal(signal.SIGUSR1)

    def install(stop: StopSignal) -> None:
        signal.signal(signal.SIGUSR1, lambda *_: stop.request())

    yield install
    signal.signal(signal.SIGUSR1, before)


def test_finished_request_returns_its_response_without_stopping_the_client(client: Client) -> None:
    async def respond() -> str:
        return "response"

    assert finish(StopSignal(), respond, client) == "response"
    assert not client.stopped.is_set()


@pytest.mark.parametrize("error", [ValueError("no"), TimeoutError(), asyncio.CancelledError()])
def test_error_of_a_request_is_raised_to_its_caller(client: Client, error: BaseException) -> None:
    async def fail() -> None:
        raise error

    with pytest.raises(type(error)):
        finish(StopSignal(), fail, client)
    assert not client.stopped.is_set()


def test_no_request_begins_after_the_stop(client: Client) -> None:
    stop, begun = StopSignal(), []

    async def begin() -> None:
        begun.append(1)

    stop.request()
    stop.request()
    assert stop.requested
    with pytest.raises(StoppedError, match="stopped the task"):
        finish(stop, begin, client)
    assert not begun


def test_response_in_the_grace_period_is_returned(client: Client) -> None:
    stop = StopSignal(grace=LONG)

    async def respond_once_told() -> str:
        stop.request()
        await told(client)
        return "response"

    begin = time.monotonic()
    assert finish(stop, respond_once_told, client) == "response"
    assert time.monotonic() - begin < LONG / 2
    with pytest.raises(StoppedError):
        stop.raise_if_stopped()


@pytest.mark.parametrize("grace", [0, 0.1])
def test_missing_response_is_awaited_no_longer_than_the_grace_period(client: Client, grace: float) -> None:
    stop = StopSignal(grace=grace)

    async def stopped_on_its_way() -> None:
        stop.request()
        await never()

    begin = time.monotonic()
    with pytest.raises(AnswerNotAwaitedError, match="no response"):
        finish(stop, stopped_on_its_way, client)
    assert grace <= time.monotonic() - begin < LONG / 2
    assert client.stopped.is_set()


def test_grace_period_counts_from_the_first_stop(client: Client) -> None:
    stop = StopSignal(grace=0.2)

    async def stopped_again_and_again() -> None:
        for _ in range(30):
            stop.request()
            await asyncio.sleep(0.02)
        await never()

    begin = time.monotonic()
    with pytest.raises(AnswerNotAwaitedError):
        finish(stop, stopped_again_and_again, client)
    assert time.monotonic() - begin < 0.55


def test_signal_stops_the_client_while_the_response_is_awaited(
    client: Client, stopped_by_signal: Callable[[StopSignal], None]
) -> None:
    stop = StopSignal(grace=LONG)
    stopped_by_signal(stop)

    async def respond_once_told() -> str:
        os.kill(os.getpid(), signal.SIGUSR1)
        await told(client)
        return "response"

    assert finish(stop, respond_once_told, client) == "response"


def test_signal_ends_the_wait_for_a_response_after_the_grace_period(
    client: Client, stopped_by_signal: Callable[[StopSignal], None]
) -> None:
    stop = StopSignal(grace=0.1)
    stopped_by_signal(stop)

    async def signalled() -> None:
        os.kill(os.getpid(), signal.SIGUSR1)
        await never()

    begin = time.monotonic()
    with pytest.raises(AnswerNotAwaitedError):
        finish(stop, signalled, client)
    assert time.monotonic() - begin < LONG / 2


def test_signal_ends_a_sleep(stopped_by_signal: Callable[[StopSignal], None]) -> None:
    stop = StopSignal()
    stopped_by_signal(stop)
    begin = time.monotonic()
    sender = threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGUSR1))
    sender.start()
    with pytest.raises(StoppedError):
        asyncio.run(stop.sleep(LONG))
    sender.join()
    assert time.monotonic() - begin < LONG / 2


def test_many_signals_cause_no_deadlock_and_lose_no_response(
    client: Client, stopped_by_signal: Callable[[StopSignal], None]
) -> None:
    stop = StopSignal(grace=LONG)
    stopped_by_signal(stop)

    async def storm() -> str:
        for _ in range(200):
            os.kill(os.getpid(), signal.SIGUSR1)
        return "response"

    assert finish(stop, storm, client) == "response"


def test_sleep_without_a_stop_lasts_its_full_time() -> None:
    begin = time.monotonic()
    asyncio.run(StopSignal().sleep(0.05))
    assert 0.05 <= time.monotonic() - begin < LONG / 2


def test_sleep_after_a_request_lasts_its_full_time(client: Client) -> None:
    stop = StopSignal()

    async def request_and_sleep() -> float:
        await stop.finish(asyncio.sleep(0), client)
        begin = time.monotonic()
        await stop.sleep(0.05)
        return time.monotonic() - begin

    assert asyncio.run(request_and_sleep()) >= 0.05


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_sleep_of_no_time_raises_after_a_stop(seconds: float) -> None:
    stop = StopSignal()
    asyncio.run(stop.sleep(seconds))
    stop.request()
    with pytest.raises(StoppedError):
        asyncio.run(stop.sleep(seconds))


def test_its_own_limit_comes_before_airflow_ends_the_task(client: Client) -> None:
    begin = time.monotonic()
    stop = StopSignal(grace=0.2, execution_timeout=timedelta(seconds=0.6))
    assert not stop.requested
    with pytest.raises(AnswerNotAwaitedError, match="execution_timeout"):
        finish(stop, never, client)
    assert 0.4 <= time.monotonic() - begin < 0.6, "the journal is to be written before the task is ended"
    assert client.stopped.is_set()
    assert stop.requested


def test_its_own_limit_takes_a_response_in_the_grace_period(client: Client) -> None:
    stop = StopSignal(grace=LONG, execution_timeout=timedelta(seconds=0.2))

    async def respond_once_told() -> str:
        await told(client)
        return "response"

    assert finish(stop, respond_once_told, client) == "response"


def test_its_own_limit_ends_a_sleep() -> None:
    stop = StopSignal(grace=0.05, execution_timeout=timedelta(seconds=0.2))
    begin = time.monotonic()
    with pytest.raises(StoppedError, match="execution_timeout"):
        asyncio.run(stop.sleep(LONG))
    assert 0.14 <= time.monotonic() - begin < LONG / 2


def test_grace_period_counts_from_a_stop_before_the_execution_timeout(client: Client) -> None:
    stop = StopSignal(grace=0.1, execution_timeout=timedelta(seconds=LONG))

    async def stopped_on_its_way() -> None:
        stop.request()
        await never()

    begin = time.monotonic()
    with pytest.raises(AnswerNotAwaitedError, match="stopped the task"):
        finish(stop, stopped_on_its_way, client)
    assert time.monotonic() - begin < LONG / 2


def test_grace_period_takes_at_most_half_of_the_execution_timeout() -> None:
    stop = StopSignal(grace=LONG, execution_timeout=timedelta(seconds=LONG))
    assert not stop.requested
    assert StopSignal(grace=LONG, execution_timeout=timedelta(0)).requested


def test_execution_timeout_is_counted_from_when_airflow_began_to() -> None:
    half_gone = time.monotonic() - 57
    assert not StopSignal(grace=4, execution_timeout=timedelta(seconds=60)).requested
    assert StopSignal(grace=4, execution_timeout=timedelta(seconds=60), began=half_gone).requested
    assert not StopSignal(grace=2, execution_timeout=timedelta(seconds=60), began=half_gone).requested
