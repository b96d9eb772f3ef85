from __future__ import annotations

import itertools
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpaas_provider.api.limits import Pacer


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_moments_are_evenly_spaced(clock: Clock) -> None:
    pacer = Pacer(4, clock)
    assert [pacer.reserve() for _ in range(4)] == [0, 0.25, 0.5, 0.75]


def test_idle_time_is_not_saved_up(clock: Clock) -> None:
    pacer = Pacer(4, clock)
    pacer.reserve()
    clock.now += 60
    assert [pacer.reserve() for _ in range(3)] == [0, 0.25, 0.5]


def test_a_hold_moves_all_that_have_not_reserved(clock: Clock) -> None:
    pacer = Pacer(4, clock)
    pacer.reserve()
    pacer.hold(30)
    assert [pacer.reserve() for _ in range(2)] == [30, 30.25]


def test_a_shorter_hold_does_not_shorten_a_longer_one(clock: Clock) -> None:
    pacer = Pacer(4, clock)
    pacer.hold(30)
    pacer.hold(5)
    assert pacer.reserve() == 30


@given(
    st.floats(0.01, 1000),
    st.lists(st.tuples(st.sampled_from(["reserve", "hold", "pass"]), st.floats(0, 100)), max_size=40),
)
def test_starts_are_never_closer_than_the_rate_allows(per_second: float, events: list[tuple[str, float]]) -> None:
    clock = Clock()
    pacer = Pacer(per_second, clock)
    starts = []
    for what, seconds in events:
        if what == "reserve":
            starts.append(clock.now + pacer.reserve())
        elif what == "hold":
            pacer.hold(seconds)
        else:
            clock.now += seconds
    for earlier, later in itertools.pairwise(starts):
        assert later - earlier >= 1 / per_second - 1e-6


def test_threads_never_share_a_moment(clock: Clock) -> None:
    pacer = Pacer(8, clock)
    together = threading.Barrier(8)
    waits: list[float] = []

    def reserve() -> None:
        together.wait()
        waits.extend(pacer.reserve() for _ in range(250))

    threads = [threading.Thread(target=reserve) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(waits) == [number / 8 for number in range(2000)]
