"""A block with a time limit leaves the timer of pytest-timeout as it would have been."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest

from tests.airflow.harness.examples import bounded


class LateError(Exception):
    """The outer time is up."""


@pytest.fixture(autouse=True)
def own_timer() -> Iterator[None]:
    """Put the timer of this test's own time limit aside."""
    handler = signal.getsignal(signal.SIGALRM)
    left, interval = signal.setitimer(signal.ITIMER_REAL, 0)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, left, interval)


def late(*_: object) -> None:
    raise LateError


def left() -> float:
    return signal.getitimer(signal.ITIMER_REAL)[0]


def test_block_that_takes_too_long_is_ended() -> None:
    with pytest.raises(TimeoutError, match=r"not done within 0\.05 s"), bounded(0.05):
        time.sleep(5)
    assert left() == 0


def test_no_timer_remains_without_an_earlier_one() -> None:
    with bounded(60):
        assert 59 < left() <= 60
    assert left() == 0


def test_earlier_timer_is_restored_less_the_time_of_the_block() -> None:
    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, 100)
    with bounded(60):
        assert left() <= 60
        time.sleep(0.1)
    assert 90 < left() <= 99.9
    assert signal.getsignal(signal.SIGALRM) is late


def test_earlier_timer_is_restored_after_a_block_that_took_too_long() -> None:
    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, 100)
    with pytest.raises(TimeoutError), bounded(0.05):
        time.sleep(5)
    assert 90 < left() < 100


def test_earlier_timer_that_is_due_sooner_ends_the_block() -> None:
    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    began = time.monotonic()
    with pytest.raises(LateError), bounded(60):
        time.sleep(5)
    assert time.monotonic() - began < 4
    assert left() == 0


def test_earlier_timer_that_does_not_raise_leaves_the_limit_in_force() -> None:
    rung: list[int] = []
    signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    with pytest.raises(TimeoutError), bounded(0.2):
        time.sleep(5)
    assert rung == [1]


def test_earlier_timer_that_repeats_continues() -> None:
    rung: list[int] = []
    signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
    with bounded(60):
        time.sleep(0.3)
    assert len(rung) > 1
    assert signal.getitimer(signal.ITIMER_REAL)[1] == pytest.approx(0.05, abs=0.01)
