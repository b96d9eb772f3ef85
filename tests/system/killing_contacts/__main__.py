"""``python -m tests.system.killing_contacts --kills N --seed S`` kills that often and prints what came of it."""

from __future__ import annotations

import argparse
import itertools
import random
import signal
import sys
import tempfile
from pathlib import Path

from tests.system.killing_contacts.rounds import Killing


def main() -> int:
    """Kill, print, and return 1 where the list is not the source."""
    options = argparse.ArgumentParser(prog="python -m tests.system.killing_contacts", description=__doc__)
    options.add_argument("--kills", type=int, default=100)
    options.add_argument("--seed", type=int, default=random.randrange(2**31))
    options.add_argument("--size", type=int, default=5_000, help="rows of the first version of a source")
    options.add_argument("--each", type=int, default=12, help="kills of one run at most")
    options.add_argument("--database", help="URL of the database of key maps; default: SQLite")
    options.add_argument(
        "--readings",
        action="store_true",
        help="have the list at a row service that follows other readings of the contract in each round",
    )
    options.add_argument("--home", type=Path, help="folder to keep all of it in; by default a temporary one")
    given = options.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (
        tempfile.TemporaryDirectory(prefix="cpaas-killing-") as temporary,
        Killing(given.home or Path(temporary), given.seed, given.database, readings=given.readings) as killing,
    ):
        for number in itertools.count():
            if killing.outcome.died >= given.kills:
                break
            name = ("whole", "parted")[number % 2]
            upserts = given.readings and number % 2 == number // 2 % 2
            killing.round(name, size=given.size, kills=given.each, foul=number % 4 >= 2, upserts=upserts)
        outcome = killing.outcome
    print(*outcome.wrongs, sep="\n")
    print(f"\n{outcome}\nseed {given.seed}; violations: {len(outcome.wrongs)}")
    return 1 if outcome.wrongs else 0


if __name__ == "__main__":
    sys.exit(main())
