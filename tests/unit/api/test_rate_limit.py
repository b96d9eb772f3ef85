from __future__ import annotations

import itertools
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpaas_provider.api.rate_limit import RateLimiter


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_moments_are_evenly_spaced(clock: Clock) -> None:
    rate_limiter = RateLimiter(4, clock)
    assert [rate_limiter.reserve() for _ in range(4)] == [0, 0.25, 0.5, 0.75]


def test_idle_time_is_not_saved_up(clock: Clock) -> None:
    rate_limiter = RateLimiter(4, clock)
    rate_limiter.reserve()
    clock.now += 60
    assert [rate_limiter.reserve() for _ in range(3)] == [0, 0.25, 0.5]


def test_hold_delays_requests_that_have_not_reserved(clock: Clock) -> None:
    rate_limiter = RateLimiter(4, clock)
    rate_limiter.reserve()
    rate_limiter.block_for(30)
    assert [rate_limiter.reserve() for _ in range(2)] == [30, 30.25]


def test_shorter_hold_does_not_shorten_a_longer_one(clock: Clock) -> None:
    rate_limiter = RateLimiter(4, clock)
    rate_limiter.block_for(30)
    rate_limiter.block_for(5)
    assert rate_limiter.reserve() == 30


@given(
    st.floats(0.01, 1000),
    st.lists(st.tuples(st.sampled_from(["reserve", "hold", "pass"]), st.floats(0, 100)), max_size=40),
)
def test_starts_are_never_closer_than_the_rate_allows(per_second: float, events: list[tuple[str, float]]) -> None:
    clock = Clock()
    rate_limiter = RateLimiter(per_second, clock)
    starts = []
    for what, seconds in events:
        if what == "reserve":
            starts.append(clock.now + rate_limiter.reserve())
        elif what == "hold":
            rate_limiter.block_for(seconds)
        else:
            clock.now += seconds
    for earlier, later in itertools.pairwise(starts):
        assert later - earlier >= 1 / per_second - 1e-6


def test_threads_never_share_a_moment(clock: Clock) -> None:
    rate_limiter = RateLimiter(8, clock)
    together = threading.Barrier(8)
    waits: list[float] = []

    def reserve() -> None:
        together.wait()
        waits.extend(rate_limiter.reserve() for _ in range(250))

    threads = [threading.Thread(target=reserve) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(waits) == [number / 8 for number in range(2000)]


def test_hold_during_a_wait_extends_the_wait(clock: Clock) -> None:
    rate_limiter = RateLimiter(4, clock)
    rate_limiter.reserve()
    delays = rate_limiter.delays()
    assert next(delays) == 0.25
    rate_limiter.block_for(30)
    clock.now += 0.25
    assert next(delays) == pytest.approx(29.75)
    clock.now += 29.75
    assert list(delays) == []


def test_wait_without_a_new_hold_happens_once(clock: Clock) -> None:
    rate_limiter = RateLimiter(4, clock)
    rate_limiter.block_for(0.2)
    delays = rate_limiter.delays()
    assert next(delays) == pytest.approx(0.2)
    # Timers ring early at times.
    clock.now += 0.1995
    assert list(delays) == []


# How the pace follows the service -------------------------------------------------------------------------------------


def answered(rate_limiter: RateLimiter, clock: Clock, *, limited: bool, times: int = 1) -> None:
    """Requests that leave, one after the other, and are answered a moment later."""
    for _ in range(times):
        clock.now += 0.01
        left = rate_limiter.now()
        clock.now += 0.01
        rate_limiter.on_response(left, limited=limited)


def test_each_429_halves_the_rate_down_to_an_eighth(clock: Clock) -> None:
    rate_limiter = RateLimiter(16, clock)
    paces = [rate_limiter.per_second]
    for _ in range(5):
        answered(rate_limiter, clock, limited=True)
        paces.append(rate_limiter.per_second)
    assert paces == [16, 8, 4, 2, 2, 2]
    clock.now += 10
    assert [rate_limiter.reserve() for _ in range(3)] == [0, 0.5, 1]


def test_refusals_of_one_burst_count_once(clock: Clock) -> None:
    rate_limiter = RateLimiter(16, clock)
    departures = []
    for _ in range(20):
        departures.append(rate_limiter.now())
        clock.now += 0.05
    for left in departures:
        clock.now += 0.01
        rate_limiter.on_response(left, limited=True)
    assert rate_limiter.per_second == 8
    answered(rate_limiter, clock, limited=True)
    assert rate_limiter.per_second == 4, "the next left after the pace was lowered"


def test_responses_to_earlier_requests_do_not_raise_the_rate(clock: Clock) -> None:
    rate_limiter = RateLimiter(16, clock)
    early = rate_limiter.now()
    answered(rate_limiter, clock, limited=True)
    for _ in range(100):
        rate_limiter.on_response(early, limited=False)
    assert rate_limiter.per_second == 8


def test_one_second_of_responses_restores_a_tenth_of_the_rate(clock: Clock) -> None:
    rate_limiter = RateLimiter(1000, clock)
    answered(rate_limiter, clock, limited=True)
    answered(rate_limiter, clock, limited=False, times=500)
    assert rate_limiter.per_second == pytest.approx(600, rel=0.02)
    answered(rate_limiter, clock, limited=False, times=600)
    assert rate_limiter.per_second == pytest.approx(700, rel=0.03)
    answered(rate_limiter, clock, limited=False, times=10_000)
    assert rate_limiter.per_second == 1000


@given(st.floats(0.01, 1e6), st.lists(st.tuples(st.booleans(), st.floats(0, 3)), max_size=60))
def test_rate_stays_between_an_eighth_and_the_limit(per_second: float, on_response: list[tuple[bool, float]]) -> None:
    clock = Clock()
    rate_limiter = RateLimiter(per_second, clock)
    for limited, seconds in on_response:
        left = rate_limiter.now()
        clock.now += seconds
        rate_limiter.on_response(left, limited=limited)
        assert per_second / 8 <= rate_limiter.per_second <= per_second
