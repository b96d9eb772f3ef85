"""The order in which many items are read: none too often, none left out, the soonest expiry first."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from cpaas_provider.triggers._polling.read_queue import ReadQueue


def queue_of(*entries: tuple[str, float, float]) -> ReadQueue[str]:
    made: ReadQueue[str] = ReadQueue()
    for name, due, expiry in entries:
        made.push(name, due, expiry)
    return made


def popped(queue: ReadQueue[str], now: float) -> list[str]:
    names = []
    while (name := queue.pop(now)) is not None:
        names.append(name)
    return names


def test_item_with_the_soonest_expiry_is_popped_first_among_those_due() -> None:
    assert popped(queue_of(("a", 1, 30), ("b", 2, 10), ("c", 3, 20)), now=3) == ["b", "c", "a"]


def test_item_is_not_popped_before_it_is_due() -> None:
    queue = queue_of(("soon", 5, 10), ("late", 9, 1))
    assert popped(queue, now=4.9) == []
    assert queue.next_due() == 5
    assert popped(queue, now=5) == ["soon"]
    assert queue.next_due() == 9


def test_popped_item_is_gone_until_it_is_pushed_again() -> None:
    queue = queue_of(("a", 0, 1))
    assert popped(queue, now=100) == ["a"]
    assert (len(queue), queue.next_due()) == (0, math.inf)
    queue.push("a", 200, 1)
    assert popped(queue, now=200) == ["a"]


def test_item_that_becomes_due_during_a_round_waits_for_the_next_one() -> None:
    queue = queue_of(("a", 0, 50), ("b", 0, 60))
    assert queue.pop(0) == "a"
    queue.push("a", 1, 50)
    queue.push("new", 1, 10)
    assert popped(queue, now=1) == ["b", "new", "a"]


def test_every_item_is_popped_once_a_round_however_soon_others_expire() -> None:
    queue = queue_of(*((f"soon {n}", 0, n) for n in range(10)), ("late", 0, 10_000))
    order = []
    # Every item is due again at once, as if the rate is far too low.
    for now in range(33):
        name = queue.pop(now)
        assert name is not None
        order.append(name)
        queue.push(name, now, 10_000 if name == "late" else 0)
    assert [order.count(name) for name in sorted(set(order))] == [3] * 11


def test_item_pushed_first_is_popped_before_all_others() -> None:
    queue = queue_of(("a", 0, 1), ("b", 0, 2), ("c", 99, 3), ("d", 99, 4))
    assert queue.pop(0) == "a"
    queue.push_first("d", 4)
    queue.push_first("c", 3)
    assert popped(queue, now=0) == ["c", "d", "b"]
    assert popped(queue, now=99) == []


def test_discarded_item_is_not_popped() -> None:
    queue = queue_of(("a", 0, 1), ("b", 0, 2))
    queue.discard("a")
    queue.discard("absent")
    assert popped(queue, now=0) == ["b"]


def test_stale_entries_of_discarded_items_are_removed() -> None:
    queue = queue_of()
    for number in range(10_000):
        queue.push(str(number), 1e9, 0)
        queue.discard(str(number))
    assert len(queue._later) + len(queue._due) < 200


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20), st.booleans()), max_size=40))
def test_every_item_is_popped_once_and_not_before_it_is_due(items: list[tuple[int, int, bool]]) -> None:
    queue: ReadQueue[int] = ReadQueue()
    for number, (due, expiry, _) in enumerate(items):
        queue.push(number, due, expiry)
    for number, (_, _, dropped) in enumerate(items):
        if dropped:
            queue.discard(number)
    seen = []
    for now in range(21):
        while (number := queue.pop(now)) is not None:
            assert items[number][0] <= now
            seen.append(number)
    assert sorted(seen) == [number for number, (_, _, dropped) in enumerate(items) if not dropped]
