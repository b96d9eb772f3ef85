"""``python -m tests.system.delivering`` kills the API server while reports come in, and prints who knows what then."""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
from pathlib import Path

from tests.system.delivering.run import Plan, deliver


def tell(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)


def main() -> int:
    """Send, kill, print, and return 1 where something is not as it must be."""
    options = argparse.ArgumentParser(prog="python -m tests.system.delivering", description=__doc__)
    options.add_argument("--recipients", type=int, default=10_000)
    options.add_argument("--kills", type=int, default=10, help="of the API server, in all")
    options.add_argument(
        "--during-sending", type=int, default=0, help="how many of them while the campaign is sent already"
    )
    options.add_argument("--seed", type=int, default=random.randrange(10**9))
    options.add_argument("--store", help="URL of PostgreSQL; by default SQLite")
    options.add_argument("--home", type=Path, help="folder to keep all of it in; by default a temporary one")
    given = options.parse_args()
    if not 0 <= given.during_sending <= given.kills:
        options.error("--during-sending cannot be more than --kills")
    # Whoever ends us wants all that we started to end too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    plan = Plan(given.recipients, given.kills, given.seed, given.during_sending, given.store)
    with tempfile.TemporaryDirectory(prefix="cpaas-delivering-") as temporary:
        outcome = deliver(plan, given.home or Path(temporary), tell)
    found = outcome.violations()
    print(f"\n{outcome}\n", *found, sep="\n")
    print(f"violations: {len(found)}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
