"""How fast delivery reports are taken: ``python -m tests.benchmarks.receiver [--body KIND] [--rounds N]``.

One worker each, by itself and in Airflow's API server, into SQLite (synchronous FULL) and PostgreSQL. Contenders take
turns within a round, so that whatever else the machine does meets them alike; of the rounds the median is shown, and
the least and the greatest of ours. Two latencies at a fixed rate: half of the highest that the bare route managed, the
same for all, and half of each one's own highest. Every 200 has to be in the store at the end.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from tests.benchmarks.receiver.bodies import BODIES
from tests.benchmarks.receiver.places import CONTENDERS, airflow_home, running

SHARE = 0.5
BAR_RATE, BAR_SECONDS = 0.6, 0.1
KINDS = ("SQLite", "PostgreSQL")

Measured = dict[str, Any]


class Bench:
    """Measures all contenders in one place after another.

    :param home: Airflow's
    :param given: the options
    """

    def __init__(self, home: Path, given: argparse.Namespace) -> None:
        self._home = home
        self._given = given

    def rounds(self, kind: str, mounted: bool, body: str) -> list[dict[str, Measured]]:
        """Measure all contenders, the bare one first, as it sets the pace; that as often as was asked for."""
        rounds: list[dict[str, Measured]] = []
        for _ in range(self._given.rounds):
            found: dict[str, Measured] = {}
            for contender in CONTENDERS:
                pace = found["bare"]["pace"] if found else None
                found[contender] = self._measure(contender, kind, mounted, body, pace)
            rounds.append(found)
        return rounds

    def _measure(self, contender: str, kind: str, mounted: bool, body: str, pace: float | None) -> Measured:
        """Measure one contender once, and see that nothing it acknowledged is missing."""
        given = self._given
        with running(self._home, given.stores, contender, kind, mounted, body) as place:
            place.load(given.connections, given.warm_up)
            warm = place.stored()
            full = place.load(given.connections, given.seconds)
            pace = pace or SHARE * full["rate"]
            loads = [full, place.load(given.connections, given.seconds, pace)]
            if contender != "bare":
                loads.append(place.load(given.connections, given.seconds, SHARE * full["rate"]))
            kept = sum(load["statuses"].get("200", 0) for load in loads)
            refused = sum(sum(load["statuses"].values()) for load in loads) - kept
            lost = 0 if contender == "bare" else kept - (place.stored() - warm)
        return {
            "rate": full["rate"],
            "p50 full": full["p50"],
            "p99 full": full["p99"],
            "p50": loads[1]["p50"],
            "p99": loads[1]["p99"],
            "p99 own": loads[-1]["p99"],
            "pace": pace,
            "refused": refused,
            "lost": lost,
        }


def show(title: str, rounds: list[dict[str, Measured]]) -> tuple[float, float]:
    """Print one place's table; return ours: its rate by the bare route's, and p99 at half of its own rate."""
    pace = median(one["bare"]["pace"] for one in rounds)
    print(f"\n{title}\n")
    print(f"| | reports/s | of bare | p50 | p99 | p50 at {pace:.0f}/s | p99 | p99 at half its own | refused | lost |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    for name in CONTENDERS:
        of = {figure: median(one[name][figure] for one in rounds) for figure in rounds[0][name]}
        share = median(one[name]["rate"] / one["bare"]["rate"] for one in rounds)
        times = " | ".join(
            f"{of[figure] * 1000:.1f} ms" for figure in ("p50 full", "p99 full", "p50", "p99", "p99 own")
        )
        totals = " | ".join(str(sum(one[name][figure] for one in rounds)) for figure in ("refused", "lost"))
        print(f"| {name} | {of['rate']:.0f} | {share:.2f} | {times} | {totals} |", flush=True)
    shares = sorted(one["ours"]["rate"] / one["bare"]["rate"] for one in rounds)
    late = sorted(one["ours"]["p99 own"] for one in rounds)
    print(f"\nOurs: {shares[0]:.2f} to {shares[-1]:.2f} of the bare rate,", end=" ")
    print(f"p99 at half of its own {late[0] * 1000:.0f} to {late[-1] * 1000:.0f} ms")
    return median(shares), median(late)


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        # Whoever ends it wants what it started to end, too; what a shell runs in the background ignores Ctrl-C.
        signal.signal(number, signal.default_int_handler)
    given = _options()
    bars: list[tuple[str, float, float]] = []
    lost = 0
    with airflow_home() as home, tempfile.TemporaryDirectory(dir=given.folder) as stores:
        given.stores = Path(stores)
        bench = Bench(home, given)
        for mounted in [
            mounted for mounted in (False, True) if given.only in (None, "mounted" if mounted else "alone")
        ]:
            for kind in [kind for kind in KINDS if given.store in (None, kind.lower())]:
                for body in given.body or ["small"]:
                    rounds = bench.rounds(kind, mounted, body)
                    where = "In the API server" if mounted else "By itself"
                    title = f"{where}, {kind}, {body}: {BODIES[body].__doc__}"
                    figures = show(title, rounds)
                    lost += sum(max(0, one[name]["lost"]) for one in rounds for name in CONTENDERS)
                    if not mounted:
                        bars.append((f"{kind}, {body}", *figures))
    for what, rate, late in bars:
        print(f"\nBy itself, {what}: {rate:.2f} of the bare rate (bar {BAR_RATE}),", end=" ")
        print(f"p99 at half of its own rate {late * 1000:.0f} ms (bar {BAR_SECONDS * 1000:.0f} ms)")
    print(f"Acknowledged and not in the store: {lost}")
    sys.exit(bool(lost) or any(rate < BAR_RATE or late > BAR_SECONDS for _, rate, late in bars))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.receiver", description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement (default: %(default)s)")
    parser.add_argument("--warm-up", type=float, default=2.0, help="seconds before it (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--connections", type=int, default=64, help="default: %(default)s")
    parser.add_argument("--body", action="append", choices=BODIES, help="may be given again (default: small)")
    parser.add_argument("--store", choices=[kind.lower() for kind in KINDS], help="only this one")
    parser.add_argument("--folder", type=Path, help="where an SQLite store lies (default: the temporary folder)")
    parser.add_argument("--only", choices=("alone", "mounted"), help="only by itself, or only mounted")
    return parser.parse_args()


if __name__ == "__main__":
    main()
