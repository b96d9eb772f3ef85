"""Ending in good order: nothing new begins, and an answer on its way is given a last moment."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from cpaas_provider.sending.errors import StoppedError
from cpaas_provider.sending.shutdown import AnswerNotAwaitedError, StopSignal

LONG = 20.0
"""Seconds that no test here waits for; whatever waits so long was not woken."""


class Client:
    def __init__(self) -> None:
        self.stopped = threading.Event()

    def stop(self) -> None:
        self.stopped.set()


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def never() -> Iterator[Callable[[], str]]:
    """A request whose answer does not come while the test runs."""
    end = threading.Event()
    yield lambda: str(end.wait(LONG))
    end.set()


@pytest.fixture
def stopped_by_signal() -> Iterator[Callable[[StopSignal], None]]:
    """Make SIGUSR1 ask for a stop, as Airflow's handler of SIGTERM calls on_kill."""
    before = signal.getsignal(signal.SIGUSR1)

    def install(stop: StopSignal) -> None:
        signal.signal(signal.SIGUSR1, lambda *_: stop.request())

    yield install
    signal.signal(signal.SIGUSR1, before)


def test_a_request_gives_its_answer_and_tells_nobody_to_stop(client: Client) -> None:
    assert StopSignal().call(lambda: "answer", client) == "answer"
    assert not client.stopped.is_set()


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt()])
def test_what_a_request_raises_is_raised_where_it_was_asked_for(client: Client, error: BaseException) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        StopSignal().call(fail, client)
    assert caught.value is error


def test_after_the_stop_no_request_begins(client: Client) -> None:
    stop, begun = StopSignal(), []
    stop.request()
    stop.request()
    assert stop.requested
    with pytest.raises(StoppedError, match="stopped the task"):
        stop.call(lambda: begun.append(1), client)
    assert not begun


def test_an_answer_in_the_last_moment_is_taken(client: Client) -> None:
    stop = StopSignal(grace=LONG)

    def answer_once_told() -> str:
        stop.request()
        assert client.stopped.wait(LONG), "the client must be told, so that nothing further leaves"
        return "answer"

    begin = time.monotonic()
    assert stop.call(answer_once_told, client) == "answer"
    assert time.monotonic() - begin < LONG / 2
    with pytest.raises(StoppedError):
        stop.raise_if_stopped()


def test_an_answer_that_does_not_come_is_waited_for_no_longer_than_the_grace(
    client: Client, never: Callable[[], str]
) -> None:
    stop = StopSignal(grace=0.1)

    def stopped_on_its_way() -> str:
        stop.request()
        return never()

    begin = time.monotonic()
    with pytest.raises(AnswerNotAwaitedError, match="no response"):
        stop.call(stopped_on_its_way, client)
    assert 0.1 <= time.monotonic() - begin < LONG / 2
    assert client.stopped.is_set()


def test_the_grace_counts_from_the_first_stop(client: Client, never: Callable[[], str]) -> None:
    stop = StopSignal(grace=0.2)

    def stopped_again_and_again() -> str:
        for _ in range(30):
            stop.request()
            time.sleep(0.02)
        return never()

    begin = time.monotonic()
    with pytest.raises(AnswerNotAwaitedError):
        stop.call(stopped_again_and_again, client)
    assert time.monotonic() - begin < 0.55


def test_without_a_grace_a_request_under_way_is_abandoned_at_once(client: Client, never: Callable[[], str]) -> None:
    stop = StopSignal(grace=0)

    def stopped_on_its_way() -> str:
        stop.request()
        return never()

    with pytest.raises(AnswerNotAwaitedError):
        stop.call(stopped_on_its_way, client)


def test_a_signal_wakes_the_thread_that_waits_for_an_answer(
    client: Client, stopped_by_signal: Callable[[StopSignal], None]
) -> None:
    stop = StopSignal(grace=LONG)
    stopped_by_signal(stop)

    def answer_once_told() -> bool:
        os.kill(os.getpid(), signal.SIGUSR1)
        return client.stopped.wait(LONG)

    assert stop.call(answer_once_told, client), "the client was not told while the answer was waited for"


def test_a_signal_ends_the_wait_for_an_answer_after_the_grace(
    client: Client, never: Callable[[], str], stopped_by_signal: Callable[[StopSignal], None]
) -> None:
    stop = StopSignal(grace=0.1)
    stopped_by_signal(stop)

    def signalled() -> str:
        os.kill(os.getpid(), signal.SIGUSR1)
        return never()

    begin = time.monotonic()
    with pytest.raises(AnswerNotAwaitedError):
        stop.call(signalled, client)
    assert time.monotonic() - begin < LONG / 2


def test_a_signal_ends_a_pause(stopped_by_signal: Callable[[StopSignal], None]) -> None:
    stop = StopSignal()
    stopped_by_signal(stop)
    begin = time.monotonic()
    sender = threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGUSR1))
    sender.start()
    with pytest.raises(StoppedError):
        stop.pause(LONG)
    sender.join()
    assert time.monotonic() - begin < LONG / 2


def test_many_signals_neither_deadlock_nor_lose_the_answer(
    client: Client, stopped_by_signal: Callable[[StopSignal], None]
) -> None:
    stop = StopSignal(grace=LONG)
    stopped_by_signal(stop)

    def storm() -> str:
        for _ in range(200):
            os.kill(os.getpid(), signal.SIGUSR1)
        return "answer"

    assert stop.call(storm, client) == "answer"


def test_a_pause_takes_its_time_where_nobody_stops_it() -> None:
    begin = time.monotonic()
    StopSignal().pause(0.05)
    assert 0.05 <= time.monotonic() - begin < LONG / 2


def test_a_pause_is_over_after_an_earlier_request_has_left_something_behind(client: Client) -> None:
    stop = StopSignal()
    stop.call(lambda: None, client)
    begin = time.monotonic()
    stop.pause(0.05)
    assert time.monotonic() - begin >= 0.05


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_no_pause_at_all_still_heeds_the_stop(seconds: float) -> None:
    stop = StopSignal()
    stop.pause(seconds)
    stop.request()
    with pytest.raises(StoppedError):
        stop.pause(seconds)


def test_its_own_limit_comes_before_airflow_ends_the_task(client: Client, never: Callable[[], str]) -> None:
    begin = time.monotonic()
    stop = StopSignal(grace=0.2, execution_timeout=timedelta(seconds=0.6))
    assert not stop.requested
    with pytest.raises(AnswerNotAwaitedError, match="execution_timeout"):
        stop.call(never, client)
    assert 0.4 <= time.monotonic() - begin < 0.6, "the journal is to be written before the task is ended"
    assert client.stopped.is_set()
    assert stop.requested


def test_its_own_limit_takes_an_answer_of_the_last_moment(client: Client) -> None:
    stop = StopSignal(grace=LONG, execution_timeout=timedelta(seconds=0.2))
    assert stop.call(lambda: client.stopped.wait(LONG), client)


def test_its_own_limit_ends_a_pause() -> None:
    stop = StopSignal(grace=0.05, execution_timeout=timedelta(seconds=0.2))
    begin = time.monotonic()
    with pytest.raises(StoppedError, match="execution_timeout"):
        stop.pause(LONG)
    assert 0.14 <= time.monotonic() - begin < LONG / 2


def test_a_stop_before_its_own_limit_counts_from_the_stop(client: Client, never: Callable[[], str]) -> None:
    stop = StopSignal(grace=0.1, execution_timeout=timedelta(seconds=LONG))

    def stopped_on_its_way() -> str:
        stop.request()
        return never()

    begin = time.monotonic()
    with pytest.raises(AnswerNotAwaitedError, match="stopped the task"):
        stop.call(stopped_on_its_way, client)
    assert time.monotonic() - begin < LONG / 2


def test_a_grace_longer_than_the_time_there_is_leaves_half_of_it_to_work() -> None:
    stop = StopSignal(grace=LONG, execution_timeout=timedelta(seconds=LONG))
    assert not stop.requested
    assert StopSignal(grace=LONG, execution_timeout=timedelta(0)).requested


def test_execution_timeout_is_counted_from_when_airflow_began_to() -> None:
    half_gone = time.monotonic() - 57
    assert not StopSignal(grace=4, execution_timeout=timedelta(seconds=60)).requested
    assert StopSignal(grace=4, execution_timeout=timedelta(seconds=60), began=half_gone).requested
    assert not StopSignal(grace=2, execution_timeout=timedelta(seconds=60), began=half_gone).requested
