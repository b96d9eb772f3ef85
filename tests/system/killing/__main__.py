"""``python -m tests.system.killing --kills N --seed S`` kills that often and prints what came of it."""

from __future__ import annotations

import argparse
import itertools
import random
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.system.killing.rounds import Killing, Plan

MINUTE = 60.0


def plans(cases: int, kills: int) -> Iterator[Plan]:
    """Rounds without end, in fair and foul weather by turns."""
    for foul in itertools.cycle((False, True)):
        yield Plan(cases=cases, kills=kills, outages=3, foul=foul, plain=2)


def main() -> int:
    """Kill, print, and return 1 where a promise was not kept."""
    options = argparse.ArgumentParser(prog="python -m tests.system.killing", description=__doc__)
    options.add_argument("--kills", type=int, default=240)
    options.add_argument("--seed", type=int, default=random.randrange(2**31))
    options.add_argument("--cases", type=int, default=42, help="task instances of a round")
    options.add_argument("--minutes", type=float, default=30.0, help="no new round after that")
    options.add_argument("--home", type=Path, help="folder to keep all of it in; by default a temporary one")
    options.add_argument("--journal", choices=("task_state", "database"), default="task_state", help="where it is kept")
    given = options.parse_args()
    # Whoever ends us wants all that we started to end too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (
        tempfile.TemporaryDirectory(prefix="cpaas-killing-") as temporary,
        Killing(given.home or Path(temporary), given.seed, given.journal) as killing,
    ):
        rounds = plans(given.cases, min(given.kills, given.cases * 2))
        outcome = killing.until(given.kills, rounds, given.minutes * MINUTE)
    found = outcome.violations()
    print(*found, sep="\n\n")
    print(f"\n{outcome}\n\nseed {given.seed}; twice without a journal: {outcome.twice_without_journal()}")
    print(f"violations: {len(found)}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
