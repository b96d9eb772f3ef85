"""How fast delivery reports are taken: ``python -m tests.benchmarks.receiver [--seconds N] [--rounds N]``.

One worker each, by itself and in Airflow's API server, into SQLite (synchronous FULL) and PostgreSQL. Contenders take
turns within a round, so that whatever else the machine does meets them alike; of the rounds the median is shown. The
second pair of latencies is of the same fixed rate for all in a place: half of what the bare route managed there. Every
200 has to be in the store at the end.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from statistics import median
from typing import Any

from tests.benchmarks.receiver.places import CONTENDERS, airflow_home, running

CONNECTIONS = 64
WARM_UP_SECONDS = 2.0
SHARE = 0.5
BAR_RATE, BAR_LATENCY = 0.6, 2.0

Measured = dict[str, Any]


def measure(home: Path, contender: str, kind: str, mounted: bool, seconds: float, pace: float | None) -> Measured:
    """Measure one contender once, and see that nothing it acknowledged is missing."""
    with running(home, contender, kind, mounted) as place:
        loads = [place.load(CONNECTIONS, WARM_UP_SECONDS), place.load(CONNECTIONS, seconds)]
        pace = pace or SHARE * loads[1]["rate"]
        loads.append(place.load(CONNECTIONS, seconds, pace))
        kept = sum(load["statuses"].get("200", 0) for load in loads)
        refused = sum(sum(load["statuses"].values()) for load in loads) - kept
        lost = 0 if contender == "bare" else kept - place.stored()
    figures = {"rate": loads[1]["rate"], "p50 full": loads[1]["p50"], "p99 full": loads[1]["p99"]}
    return {**figures, "p50": loads[2]["p50"], "p99": loads[2]["p99"], "pace": pace, "lost": lost, "refused": refused}


def round_of(home: Path, kind: str, mounted: bool, seconds: float) -> dict[str, Measured]:
    """Measure all contenders, the bare one first, as it sets the pace."""
    found: dict[str, Measured] = {}
    for contender in CONTENDERS:
        pace = found["bare"]["pace"] if found else None
        found[contender] = measure(home, contender, kind, mounted, seconds, pace)
    return found


def show(title: str, rounds: list[dict[str, Measured]]) -> tuple[float, float]:
    """Print one place's table; return ours by the bare route's: rate, and p99 at the same rate."""
    pace = median(one["bare"]["pace"] for one in rounds)
    print(f"\n{title}\n\n| | reports/s | of bare | p50 | p99 | p50 at {pace:.0f}/s | p99 | refused | lost |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    for name in CONTENDERS:
        of = {figure: median(one[name][figure] for one in rounds) for figure in rounds[0][name]}
        share = median(one[name]["rate"] / one["bare"]["rate"] for one in rounds)
        times = " | ".join(f"{of[figure] * 1000:.1f} ms" for figure in ("p50 full", "p99 full", "p50", "p99"))
        totals = " | ".join(str(sum(one[name][figure] for one in rounds)) for figure in ("refused", "lost"))
        print(f"| {name} | {of['rate']:.0f} | {share:.2f} | {times} | {totals} |", flush=True)
    ours = [(one["ours"]["rate"] / one["bare"]["rate"], one["ours"]["p99"] / one["bare"]["p99"]) for one in rounds]
    return median(rate for rate, _ in ours), median(late for _, late in ours)


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        # Whoever ends it wants what it started to end, too; what a shell runs in the background ignores Ctrl-C.
        signal.signal(number, signal.default_int_handler)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--only", choices=("alone", "mounted"), help="only by itself, or only mounted")
    given = parser.parse_args()
    places = [mounted for mounted in (False, True) if given.only in (None, "mounted" if mounted else "alone")]
    bars: list[tuple[float, float]] = []
    lost = 0
    with airflow_home() as home:
        for mounted in places:
            for kind in ("SQLite", "PostgreSQL"):
                rounds = [round_of(home, kind, mounted, given.seconds) for _ in range(given.rounds)]
                title = f"{'In the API server' if mounted else 'By itself'}, {kind}, {CONNECTIONS} connections"
                figures = show(title, rounds)
                lost += sum(max(0, one[name]["lost"]) for one in rounds for name in CONTENDERS)
                if not mounted and kind == "SQLite":
                    bars.append(figures)
    for rate, late in bars:
        print(f"\nBy itself into SQLite: {rate:.2f} of the bare rate (bar {BAR_RATE}),", end=" ")
        print(f"p99 at the same rate {late:.1f} times the bare route's (bar {BAR_LATENCY})")
    print(f"Acknowledged and not in the store: {lost}")
    sys.exit(bool(lost) or any(rate < BAR_RATE or late > BAR_LATENCY for rate, late in bars))


if __name__ == "__main__":
    main()
