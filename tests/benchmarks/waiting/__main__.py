"""What it costs to wait: ``python -m tests.benchmarks.waiting [--waiters N] [--seconds S] [--contenders ...]``.

Half of the waiters wait for passcodes that stay open, half for messages to be delivered, all on one event loop of a
process of their own, driven as the triggerer drives its triggers. This process is the service meanwhile, which takes
20 ms for an answer; a third stores 200 reports a second as the receiver does, some of which end a wait each.

``shared`` is ours; it waits at the rate a connection has by default, where a round of passcodes takes long, and at one
that keeps up with all waiters. ``each`` has a client or a query loop for every waiter. It cannot cope with as many, so
it gets fewer, and ``shared`` the same number once more beside it: figures a waiter are what to compare.

Memory is what is resident beyond what was before the first waiter. Lag, taken from the first one's start to the last
one's end, is how late a coroutine goes on that sleeps 10 ms. What else runs on the machine is in it; in "busy", the
time the processor worked on the loop without such a coroutine getting its turn, it is not. A full collection of garbage
walks all that Airflow has loaded, whoever makes objects, and is part of both.

``--airflow`` measures something else: sensors in a real Airflow, and how long what follows our event takes it.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys

from tests.benchmarks.waiting import in_airflow
from tests.benchmarks.waiting.messages import RATE
from tests.benchmarks.waiting.table import MOST_DELAY, MOST_LAG, OURS, missed, table
from tests.benchmarks.waiting.turns import STORES, Turn, take

DEFAULT_RATE = 10.0
# Whoever ends it wants what it started to end, too; what a shell runs in the background ignores Ctrl-C.
ENDING = (signal.SIGINT, signal.SIGTERM)
COPES_WITH = 1000
"""Waiters that are left to a contender with a client or a loop each, on a machine of two cores."""


def main() -> int:
    """Measure, and return 1 where ours missed a bar."""
    given = _arguments()
    if not given.airflow:
        return asyncio.run(_all_turns(given))
    for number in ENDING:
        signal.signal(number, signal.default_int_handler)
    return in_airflow.run(given.airflow, STORES[given.stores[0]])


async def _all_turns(given: argparse.Namespace) -> int:
    """Let all take their turns, and print what they came to."""
    task = asyncio.current_task()
    assert task
    for number in ENDING:
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    turns = [turn for turn in _turns(given) if turn.contender in given.contenders and turn.store in given.stores]
    print(
        f"Every passcode is to be read every {given.poke_interval:g} s; {RATE:g} reports/s for {given.seconds:g} s.\n"
    )
    found = []
    for turn in turns:
        print(f"{turn} ...", flush=True)
        found.append(await take(turn, given.seconds, given.poke_interval))
    print(f"\n{table(found)}\n")
    fewer = [turn for turn in turns if turn.contender != OURS and turn.waiters < given.waiters]
    if fewer:
        print(f"each: {fewer[0].waiters:,} waiters only; {given.waiters:,} would be too much for it.")
    below = missed(found)
    print(f"Bars for ours: lag p99 below {MOST_LAG * 1000:g} ms, from report to event p95 below {MOST_DELAY:g} s.")
    print(*(below or ["All cleared."]), sep="\n")
    return 1 if below else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.waiting", description="What it costs to wait")
    parser.add_argument("--waiters", type=int, default=10_000, help="half of each kind (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long each is watched (default: %(default)g)")
    parser.add_argument("--poke-interval", type=float, default=10.0, help="seconds between two reads of a passcode")
    parser.add_argument("--contenders", nargs="+", choices=("shared", "each"), default=("shared", "each"))
    parser.add_argument("--stores", nargs="+", choices=tuple(STORES), default=tuple(STORES))
    parser.add_argument(
        "--airflow", type=int, nargs="?", const=400, metavar="TASKS",
        help="have so many sensors wait in a real Airflow instead (default: %(const)s), on the first of the stores",
    )  # fmt: skip
    return parser.parse_args()


def _turns(given: argparse.Namespace) -> list[Turn]:
    keeps_up = max(DEFAULT_RATE, given.waiters / given.poke_interval)

    def turn(contender: str, waiters: int, rate: float, store: str) -> Turn:
        return Turn(contender, waiters - waiters // 2, waiters // 2, rate, store)

    turns = [turn("shared", given.waiters, DEFAULT_RATE, "SQLite")]
    turns += [turn("shared", given.waiters, keeps_up, store) for store in STORES]
    few = min(given.waiters, COPES_WITH)
    if few < given.waiters:
        turns += [turn("shared", few, keeps_up, store) for store in STORES]
    return turns + [turn("each", few, DEFAULT_RATE, store) for store in STORES]


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.exit("ended")
