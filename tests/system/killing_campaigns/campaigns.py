"""The campaigns of a round: over which source, in how many parts, on which terms."""

from __future__ import annotations

import itertools
import json
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.system.killing_campaigns import places
from tests.system.killing_campaigns.recipients import ROOM, Crowd, Row, Version

KINDS = ("list", "xcom", "csv", "jsonl", "parquet", "sqlite", "postgres")
PARTS = 4
# Some go by email.
EMAIL = ("jsonl", "parquet_mapped")
POLICIES = ("fail", "skip", "resend")
CONCURRENCY = 8
PACES = {"pace_20": (20, 50.0), "pace_50": (50, 20.0), "pace_200": (200, 5.0), "pace_500": (500, 2.5)}
"""Connections: recipients a request, requests a second; each takes about ten seconds for 10,000 people."""

RENAMES = (False, False, True)
"""Who is in doubt and would now be told something else ends a campaign, so names change in some only."""

RATIOS = (0.2, 0.2, 0.2, 0.0)
WINDOWS = (None, None, 24)


@dataclass
class Campaign:
    """One campaign: a run of the DAG that is called like it."""

    kind: str
    mapped: bool
    folder: Path
    crowd: Crowd
    operator: str
    on_unknown: str
    personal: bool
    pace: str
    window: int | None
    ratio: float
    versions: list[Version] = field(default_factory=list)
    run_id: str = ""

    @property
    def name(self) -> str:
        """Its DAG."""
        return f"{self.kind}_mapped" if self.mapped else self.kind

    @property
    def broken(self) -> bool:
        """Whether it is made to break the promises."""
        return self.operator in ("forgetful", "credulous")

    @property
    def places(self) -> list[int]:
        """The map indexes of its task instances."""
        return list(range(PARTS)) if self.mapped else [-1]

    @property
    def most_in_doubt(self) -> int:
        """How many requests one death may leave in doubt, in one task instance."""
        return self.window or max(1, CONCURRENCY // (PARTS if self.mapped else 1))

    @property
    def rows(self) -> list[Row]:
        """The source as it is at present."""
        return self.versions[-1].rows

    @property
    def terms(self) -> dict[str, Any]:
        """What its operator is made with, beside the source."""
        email = {"subject": "Hello"} if self.operator == "email" else {}
        return {
            **email,
            "operator": self.operator,
            "content": "Hello {name}!" if self.personal else "Hello",
            "on_unknown": self.on_unknown,
            "cpaas_conn_id": self.pace,
            "max_pending_requests": self.window,
            "max_failure_ratio": self.ratio,
            "results_path": str(self.results("{{ ti.map_index }}")),
            "progress_interval": 2.0,
        }

    def results(self, place: int | str) -> Path:
        """Return the outcome file of one of its task instances."""
        suffix = "parquet" if self.kind == "parquet" else "jsonl"
        return self.folder / "outcomes" / str(self.crowd.first) / f"{place}.{suffix}"

    def prepare(self, size: int) -> None:
        """Write source and terms before it begins."""
        self._put(self.crowd.draw(size))
        terms = self.folder / f"{self.name}.unfinished"
        terms.write_text(json.dumps(self.terms))
        terms.rename(self.folder / f"{self.name}.terms")

    def edit(self) -> list[Row]:
        """Change the source, and return its rows."""
        self._put(self.crowd.edit(self.rows))
        return self.rows

    def _put(self, rows: list[Row]) -> None:
        # Between these moments a try may read either.
        began = time.time()
        places.put(self.kind, self.name, self.folder, rows)
        self.replaced(Version(rows, began))

    def replaced(self, version: Version) -> None:
        """Note that the source is another one now."""
        for earlier in self.versions:
            earlier.until = earlier.until or time.time()
        self.versions.append(version)

    def __str__(self) -> str:
        personal = "personal" if self.personal else "the same to all"
        window = self.window or "default"
        return f"{self.name} ({self.operator}, {self.on_unknown}, {personal}, {self.pace}, window {window})"


@dataclass
class Drawn:
    """Campaigns without end, every kind of source and every policy in turn."""

    folder: Path
    chance: random.Random

    def __post_init__(self) -> None:
        self._first = itertools.count(0, ROOM)
        self._policies = itertools.cycle(POLICIES)
        self._personal = itertools.cycle((True, False, True, True, True))
        self._paces = itertools.cycle(self.chance.sample(list(PACES), len(PACES)))
        self._kinds: dict[bool, Iterator[str]] = {
            mapped: itertools.cycle(self.chance.sample(KINDS, len(KINDS))) for mapped in (False, True)
        }

    def next(self, mapped: bool) -> Campaign:
        """Return another one."""
        kind = next(self._kinds[mapped])
        name = f"{kind}_mapped" if mapped else kind
        return self._made(kind, mapped, "email" if name in EMAIL else "sms")

    def broken(self, operator: str) -> Campaign:
        """Return one that must be found to break the promises."""
        kind = next(kind for kind in self._kinds[False] if kind not in EMAIL)
        campaign = self._made(kind, False, operator)
        campaign.on_unknown, campaign.pace, campaign.crowd.renames = "skip", "pace_50", False
        return campaign

    def _made(self, kind: str, mapped: bool, operator: str) -> Campaign:
        crowd = Crowd(next(self._first), operator == "email", self.chance, self.chance.choice(RENAMES))
        return Campaign(
            kind=kind,
            mapped=mapped,
            folder=self.folder,
            crowd=crowd,
            operator=operator,
            on_unknown=next(self._policies),
            personal=next(self._personal),
            pace=next(self._paces),
            window=self.chance.choice(WINDOWS),
            ratio=self.chance.choice(RATIOS),
        )
