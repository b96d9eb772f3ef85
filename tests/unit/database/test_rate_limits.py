"""A rate limit that processes share: no two get the same moment, whatever the clocks do and whoever dies."""

from __future__ import annotations

import math
import threading
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from sqlalchemy import select, update

from cpaas_provider.database.database import Database
from cpaas_provider.database.schema.rate_limits import rate_limits
from cpaas_provider.hooks._rate_limit.reservations import (
    MAX_AHEAD,
    MAX_HOLD,
    MAX_WAITING,
    RateLimitTable,
    ReservedMoments,
    SharedLimit,
    Wanted,
    reserve,
)

RATES = st.sampled_from([0.1, 1.0, 10.0, 333.3, 5000.0])
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("reserve"), st.integers(1, 3000), st.sampled_from([1.0, 2.0, 8.0])),
        st.tuples(st.just("pass"), st.floats(0, 20), st.just(0.0)),
        st.tuples(st.just("set_back"), st.floats(0, 7200), st.just(0.0)),
    ),
    max_size=60,
)


class Server:
    """A database whose clock is not the real time, which the moments are kept in."""

    def __init__(self, per_second: float, ahead: float = 0.0) -> None:
        self.per_second = per_second
        self.real = 0.0
        self.ahead = 1_700_000_000.0 + ahead
        self.limit: SharedLimit | None = None
        self.moments: list[float] = []

    def reserve(self, count: int = 1, slowdown: float = 1.0, *, is_first: bool = False) -> ReservedMoments:
        now = self.real + self.ahead
        self.limit, got = reserve(self.limit, Wanted(count, self.per_second, slowdown, is_first), now)
        self.moments += [got.first - now + self.real + number * got.interval for number in range(got.count)]
        return replace(got, first=got.first - self.ahead)


def spacing(server: Server) -> float:
    """Return the shortest time between two moments; the clock's own figures are exact to a microsecond."""
    return min((after - before for before, after in pairwise(sorted(server.moments))), default=math.inf)


@given(RATES, EVENTS)
def test_moments_are_never_closer_than_the_rate_allows(
    per_second: float, events: list[tuple[str, float, float]]
) -> None:
    server = Server(per_second)
    for what, figure, slowdown in events:
        if what == "reserve":
            server.reserve(int(figure), slowdown)
        elif what == "pass":
            server.real += figure
        else:
            server.ahead -= figure
    assert spacing(server) >= 1 / per_second - 2e-6


@given(RATES, st.floats(0, 1e12))
def test_row_far_in_the_future_is_corrected(per_second: float, off: float) -> None:
    server = Server(per_second)
    now = server.ahead
    server.limit = SharedLimit(per_second, now + off, now + off)
    tried = 0
    while not (got := server.reserve()).count:
        assert got.first >= server.real
        server.real = got.first + 1e-3
        tried += 1
        assert tried < 5
    assert got.first <= MAX_HOLD + MAX_AHEAD + (MAX_WAITING + 2) / per_second + 1


@given(RATES, st.floats(0, 7200))
def test_clock_set_forward_doubles_the_reserved_moments_at_most(per_second: float, jump: float) -> None:
    server = Server(per_second)
    for _ in range(100):
        server.reserve(3000)
    server.ahead += jump
    for _ in range(100):
        server.reserve(3000)
    most = MAX_AHEAD * per_second + MAX_WAITING
    assert len(server.moments) <= 2 * (most + 1)


def test_processes_of_equal_demand_get_equal_shares() -> None:
    server, got = Server(1000), dict.fromkeys(range(5), 0)
    ready = dict.fromkeys(got, 0.0)
    while server.real < 60:
        who = min(ready, key=lambda one: ready[one])
        server.real = max(server.real, ready[who])
        reserved = server.reserve(500)
        got[who] += reserved.count
        ready[who] = reserved.first + reserved.count * reserved.interval
    assert sum(got.values()) >= 0.99 * 60_000
    assert max(got.values()) <= 1.1 * min(got.values())


def test_single_request_waits_behind_four_campaigns_for_a_second_at_most() -> None:
    server = Server(100)
    for _ in range(4):
        server.reserve(50)
    assert server.reserve(1).first <= MAX_AHEAD


def test_reservation_beyond_the_maximum_gets_a_time_to_retry() -> None:
    server = Server(0.1)
    taken = [server.reserve() for _ in range(MAX_WAITING + 3)]
    refused = [one for one in taken if not one.count]
    assert len(refused) == 3
    server.real = refused[0].first + 1e-3
    assert server.reserve().count == 1


def test_limit_read_last_holds_for_all_processes() -> None:
    server = Server(100)
    assert server.reserve(is_first=True).requests_per_second == 100
    server.per_second = 5
    assert server.reserve().requests_per_second == 100
    assert server.reserve(is_first=True).requests_per_second == 5
    server.per_second = 100
    later = server.reserve(10)
    assert (later.requests_per_second, later.interval) == (5, 0.2)


def test_slowed_down_process_leaves_no_more_to_the_others() -> None:
    server = Server(10)
    first, second = server.reserve(1, 8.0), server.reserve()
    assert second.first - first.first == pytest.approx(0.8)


class TestStored:
    def test_first_reservation_creates_the_row_that_later_ones_use(self, database: Database) -> None:
        table = RateLimitTable(database, "cpaas_default")
        got = [table.reserve(Wanted(2, 10.0, is_first=True)) for _ in range(3)]
        assert [one.count for one in got] == [2, 2, 2]
        for before, after in pairwise(got):
            assert after.first - before.first == pytest.approx(0.2, abs=0.15)
        with database.connect() as connection:
            assert connection.execute(select(rate_limits.c.conn_id)).scalars().all() == ["cpaas_default"]

    def test_connections_have_limits_of_their_own(self, database: Database) -> None:
        tables = [RateLimitTable(database, name) for name in ("one", "other")]
        now = time.monotonic()
        assert all(table.reserve(Wanted(1, 0.1)).first < now + 5 for table in tables)

    def test_connection_id_in_upper_and_lower_case_has_one_limit(self, database: Database) -> None:
        first, second = (RateLimitTable(database, name).reserve(Wanted(1, 0.1)) for name in ("Shop", "SHOP"))
        assert second.first - first.first > 5

    def test_threads_never_share_a_moment(self, database: Database) -> None:
        got: list[ReservedMoments] = []

        def work() -> None:
            table = RateLimitTable(database, "shared")
            for _ in range(10):
                got.append(table.reserve(Wanted(2, 10_000.0)))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with database.connect() as connection:
            row = connection.execute(select(rate_limits)).one()
        assert sum(one.count for one in got) == 80
        # All eighty moments lie before the end, and after the start.
        assert row.next_at - 80 / 10_000 <= time.time() + 60

    def test_wait_for_a_lock_that_is_given_up_ages_no_moment(self, database: Database) -> None:
        one, other = RateLimitTable(database, "waited"), RateLimitTable(database, "waited")
        one.reserve(Wanted(1, 10.0))
        is_locked = threading.Event()

        def give_up() -> None:
            with database.engine.connect() as connection, connection.begin() as transaction:
                connection.execute(select(rate_limits).with_for_update()).all()
                is_locked.set()
                time.sleep(1.0)
                transaction.rollback()

        thread = threading.Thread(target=give_up)
        thread.start()
        is_locked.wait()
        got = one.reserve(Wanted(4, 10.0))
        thread.join()
        assert got.count == 4
        assert other.reserve(Wanted(1, 10.0)).first >= got.first + 0.4 - 0.05

    def test_hold_delays_later_reservations(self, database: Database) -> None:
        one, other = RateLimitTable(database, "held"), RateLimitTable(database, "held")
        one.reserve(Wanted(1, 100.0))
        one.hold(30)
        one.hold(5)
        assert other.reserve(Wanted(1, 100.0)).first > time.monotonic() + 25

    def test_stored_row_far_in_the_future_is_corrected(self, database: Database) -> None:
        table = RateLimitTable(database, "healed")
        table.reserve(Wanted(1, 1000.0))
        with database.engine.begin() as connection:
            connection.execute(update(rate_limits).values(next_at=4e12))
        deadline = time.monotonic() + 20
        while not (got := table.reserve(Wanted(1, 1000.0))).count:
            assert time.monotonic() < deadline
            time.sleep(max(0.0, got.first - time.monotonic()))
        assert got.first <= time.monotonic() + 2
