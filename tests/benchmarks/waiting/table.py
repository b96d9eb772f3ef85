"""What the turns came to, as Markdown, and whether the bars were cleared."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.benchmarks.waiting.percentiles import percentile, three
from tests.benchmarks.waiting.turns import Found

OURS = "shared"
MOST_LAG = 0.2
"""Seconds within which a coroutine gets its turn, 99 times of 100."""
MOST_DELAY = 2.0
"""Seconds from a report's arrival to the event, 95 times of 100."""

Figure = Callable[[Found], str]


FIGURES: dict[str, Figure] = {
    "store": lambda found: found.turn.store,
    "waiters: passcodes + deliveries": lambda found: f"{found.turn.passcodes:,} + {found.turn.deliveries:,}",
    "memory, MiB": lambda found: f"{found.cost['memory']:.1f}",
    "memory a waiter, KiB": lambda found: f"{found.cost['memory'] * 1024 / found.turn.waiters:.1f}",
    "CPU of the process, %": lambda found: f"{found.cost['cpu'] * 100:.1f}",
    "CPU a waiter, ms/s": lambda found: f"{found.cost['cpu'] * 1000 / found.turn.waiters:.3f}",
    "lag p50 / p99 / most, ms": lambda found: three(found.cost["lags"], 99),
    "loop busy p50 / p99 / most, ms": lambda found: three(found.cost["busy"], 99),
    "longest collection of garbage, ms": lambda found: f"{found.cost['longest_collection'] * 1000:.0f}",
    "requests/s allowed to a client": lambda found: f"{found.turn.rate:g}",
    "requests/s the service saw": lambda found: f"{found.requests:.1f}",
    "connections made to the service": lambda found: f"{found.connections}",
    "queries/s to the store": lambda found: f"{found.cost['queries']:.1f}",
    "connections to the store at once": lambda found: f"{found.cost['store_connections']}",
    "report to event p50 / p95 / most, ms": lambda found: three(found.delays, 95),
    "waits that ended / should have": lambda found: f"{len(found.delays):,} / {len(found.delays) + found.untold:,}",
    "receiver's transaction p50 / p95 / most, ms": lambda found: three(found.took, 95),
    "started / ended in, s": lambda found: f"{found.cost['started']:.1f} / {found.cost['ended']:.1f}",
    "log lines": lambda found: f"{found.cost['log_lines']}",
}


def table(turns: Sequence[Found]) -> str:
    """Return a line for each figure, a column for each turn."""
    lines = [f"| | {' | '.join(found.turn.contender for found in turns)} |", f"|---|{'--:|' * len(turns)}"]
    lines += [f"| {name} | {' | '.join(map(figure, turns))} |" for name, figure in FIGURES.items()]
    return "\n".join(lines)


def missed(turns: Sequence[Found]) -> list[str]:
    """Return the bars that ours did not clear."""
    said = []
    for found in turns:
        if found.turn.contender != OURS:
            continue
        lag, delay = percentile(found.cost["lags"], 99), percentile(found.delays, 95)
        if lag >= MOST_LAG:
            said.append(f"{found.turn}: lag p99 {lag * 1000:.0f} ms")
        if delay >= MOST_DELAY:
            said.append(f"{found.turn}: from report to event p95 {delay:.2f} s")
        if found.untold or (found.turn.deliveries and not found.delays):
            said.append(f"{found.turn}: {found.untold} reports ended no wait")
    return said
