"""The tables of a killing: what was killed, and what became of whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from tests.system.killing.evidence import Story
from tests.system.killing.strikes import Strike

COLUMNS = (
    "instances", "strikes", "tries", "success", "failed", "other", "people", "0x", "1x", "2+x",
    "in doubt", "people unknown", "by evidence",
)  # fmt: skip


def tables(stories: list[Story], strikes: list[Strike]) -> str:
    """Return everything there is to know about some cases, in figures."""
    by = {
        "victim": _victims,
        "operator": lambda story: [story.case.operator],
        "on_unknown": lambda story: [story.case.on_unknown if story.case.operator != "plain" else "(no journal)"],
        "all": lambda story: ["all"],
    }
    outcomes = [_table(name, stories, group) for name, group in by.items()]
    return "\n\n".join([_strikes(strikes), *outcomes])


def _victims(story: Story) -> list[str]:
    return sorted({strike.victim for strike in story.strikes}) or ["none"]


def _strikes(strikes: list[Strike]) -> str:
    """Count the strikes by victim and by how far the send had come."""
    counted = Counter((strike.victim, strike.phase) for strike in strikes)
    lines = [f"{victim:18} {phase:18} {times:5}" for (victim, phase), times in sorted(counted.items())]
    died = sum(strike.killed for strike in strikes)
    return "\n".join([f"{'victim':18} {'journal':18} times", *lines, f"{'died in all':37} {died:5}"])


def _table(name: str, stories: list[Story], groups: Callable[[Story], Iterable[str]]) -> str:
    found: dict[str, Counter[str]] = {}
    for story in stories:
        for group in groups(story):
            found.setdefault(group, Counter()).update(_figures(story))
    widths = [max(len(column), 5) for column in COLUMNS]
    head = f"{name:18} " + " ".join(f"{column:>{width}}" for column, width in zip(COLUMNS, widths, strict=True))
    lines = [
        f"{group:18} " + " ".join(f"{figures[column]:>{width}}" for column, width in zip(COLUMNS, widths, strict=True))
        for group, figures in sorted(found.items())
    ]
    return "\n".join([head, *lines])


def _figures(story: Story) -> Counter[str]:
    reached = Counter("2+x" if len(ids) > 1 else f"{len(ids)}x" for ids in story.arrivals.values())
    state = story.state if story.state in ("success", "failed") else "other"
    return reached + Counter(
        {
            "instances": 1,
            "strikes": len(story.strikes),
            "tries": story.tries,
            state: 1,
            "people": len(story.arrivals),
            "in doubt": len(story.journal.unresolved),
            "people unknown": story.unknown,
            "by evidence": int(story.by_evidence),
        }
    )
