"""The order in which many are read: nobody too often, nobody passed over, the soonest expiry first."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from cpaas_provider.triggers._polling.read_queue import Agenda


def agenda(*entries: tuple[str, float, float]) -> Agenda[str]:
    made: Agenda[str] = Agenda()
    for name, due, expiry in entries:
        made.put(name, due, expiry)
    return made


def taken(one: Agenda[str], now: float) -> list[str]:
    names = []
    while (name := one.take(now)) is not None:
        names.append(name)
    return names


def test_of_those_due_the_soonest_expiry_is_first_whoever_was_due_first() -> None:
    assert taken(agenda(("a", 1, 30), ("b", 2, 10), ("c", 3, 20)), now=3) == ["b", "c", "a"]


def test_nobody_is_taken_before_he_is_due() -> None:
    one = agenda(("soon", 5, 10), ("late", 9, 1))
    assert taken(one, now=4.9) == []
    assert one.next_due() == 5
    assert taken(one, now=5) == ["soon"]
    assert one.next_due() == 9


def test_who_is_taken_is_not_there_until_he_is_put_again() -> None:
    one = agenda(("a", 0, 1))
    assert taken(one, now=100) == ["a"]
    assert (len(one), one.next_due()) == (0, math.inf)
    one.put("a", 200, 1)
    assert taken(one, now=200) == ["a"]


def test_who_comes_due_during_a_round_waits_for_the_next_one() -> None:
    one = agenda(("a", 0, 50), ("b", 0, 60))
    assert one.take(0) == "a"
    one.put("a", 1, 50)
    one.put("new", 1, 10)
    assert taken(one, now=1) == ["b", "new", "a"]


def test_however_soon_some_expire_nobody_is_passed_over() -> None:
    one = agenda(*((f"soon {n}", 0, n) for n in range(10)), ("late", 0, 10_000))
    order = []
    # Everybody is due again at once, as where the rate is far too low.
    for now in range(33):
        name = one.take(now)
        assert name is not None
        order.append(name)
        one.put(name, now, 10_000 if name == "late" else 0)
    assert [order.count(name) for name in sorted(set(order))] == [3] * 11


def test_who_is_in_a_hurry_goes_before_all_others() -> None:
    one = agenda(("a", 0, 1), ("b", 0, 2), ("c", 99, 3), ("d", 99, 4))
    assert one.take(0) == "a"
    one.hurry("d", 4)
    one.hurry("c", 3)
    assert taken(one, now=0) == ["c", "d", "b"]
    assert taken(one, now=99) == []


def test_who_was_dropped_is_not_taken() -> None:
    one = agenda(("a", 0, 1), ("b", 0, 2))
    one.drop("a")
    one.drop("nobody")
    assert taken(one, now=0) == ["b"]


def test_what_was_dropped_is_not_kept_for_ever() -> None:
    one = agenda()
    for number in range(10_000):
        one.put(str(number), 1e9, 0)
        one.drop(str(number))
    assert len(one._later) + len(one._due) < 200


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20), st.booleans()), max_size=40))
def test_everybody_has_his_turn_once_and_not_before_his_time(people: list[tuple[int, int, bool]]) -> None:
    one: Agenda[int] = Agenda()
    for number, (due, expiry, _) in enumerate(people):
        one.put(number, due, expiry)
    for number, (_, _, dropped) in enumerate(people):
        if dropped:
            one.drop(number)
    seen = []
    for now in range(21):
        while (number := one.take(now)) is not None:
            assert people[number][0] <= now
            seen.append(number)
    assert sorted(seen) == [number for number, (_, _, dropped) in enumerate(people) if not dropped]
