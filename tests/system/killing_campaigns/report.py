"""The tables of a killing: what was killed and when, and what became of whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tests.system.killing.strikes import Strike
from tests.system.killing_campaigns.evidence import Story

COLUMNS = (
    "campaigns", "parts", "strikes", "tries", "success", "failed", "people", "1x", "2+x",
    "unknown", "requests?", "rejected", "not reached", "edits",
)  # fmt: skip


def tables(stories: list[Story], strikes: list[Strike]) -> str:
    """Return everything there is to know, in figures."""
    by: dict[str, Callable[[Story], str]] = {
        "source": lambda story: story.campaign.name,
        "on_unknown": lambda story: story.campaign.on_unknown,
        "pace": lambda story: story.campaign.pace,
        "weather": lambda story: "foul" if story.refused else "fair",
        "all": lambda story: "all",
    }
    return "\n\n".join([_strikes(strikes), *(_table(name, stories, group) for name, group in by.items())])


def _strikes(strikes: list[Strike]) -> str:
    counted = Counter((strike.victim, strike.phase) for strike in strikes)
    lines = [f"{victim:18} {phase:20} {times:5}" for (victim, phase), times in sorted(counted.items())]
    died = sum(strike.killed for strike in strikes)
    return "\n".join([f"{'victim':18} {'when':20} times", *lines, f"{'killed in all':39} {died:5}"])


def _table(name: str, stories: list[Story], group: Callable[[Story], str]) -> str:
    found: dict[str, Counter[str]] = {}
    for story in stories:
        found.setdefault(group(story), Counter()).update(_figures(story))
    widths = [max(len(column), 6) for column in COLUMNS]
    head = f"{name:18} " + " ".join(f"{column:>{width}}" for column, width in zip(COLUMNS, widths, strict=True))
    lines = [
        f"{group:18} " + " ".join(f"{figures[column]:>{width}}" for column, width in zip(COLUMNS, widths, strict=True))
        for group, figures in sorted(found.items())
    ]
    return "\n".join([head, *lines])


def _figures(story: Story) -> Counter[str]:
    doubtful = [line for part in story.parts for line in part.lines or () if line["outcome"] == "unknown"]
    return Counter(
        {
            "campaigns": 1,
            "parts": len(story.parts),
            "strikes": sum(len(part.strikes) for part in story.parts),
            "tries": sum(part.tries for part in story.parts),
            "success": sum(part.state == "success" for part in story.parts),
            "failed": sum(part.state == "failed" for part in story.parts),
            "people": len(story.campaign.crowd.names),
            "1x": len(story.inbox) - len(story.twice),
            "2+x": len(story.twice),
            "unknown": len(doubtful),
            "requests?": len({line["reference"] for line in doubtful}),
            "rejected": sum(part.count("rejected") for part in story.parts),
            "not reached": sum(part.count("not_sent") for part in story.parts),
            "edits": len(story.campaign.versions) - 1,
        }
    )
