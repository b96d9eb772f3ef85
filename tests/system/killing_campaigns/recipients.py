"""Whom a campaign is for, as the source tells it before and after each edit."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

T = TypeVar("T")

BAD = ("not a number", "", "12", "+234 80 12")
DUPLICATES, INVALID_ROWS, NAMELESS = 0.05, 0.01, 0.002
REMOVED, ADDED, RENAMED = 0.02, 0.01, 0.03
ROOM = 30_000
"""Numbers a campaign has for itself."""


class Row(NamedTuple):
    """One row.

    :param who: the person as the service knows them; ``None`` where the row names nobody
    :param written: what stands in the column of the recipients
    :param name: what stands in the other; blank in rows that cannot be used for a text with a name in it
    """

    who: str | None
    written: str
    name: str


@dataclass
class Version:
    """The source as it was for a time."""

    rows: list[Row]
    since: float = 0.0
    until: float | None = None

    @property
    def people(self) -> set[str]:
        """Everybody in it."""
        return {row.who for row in self.rows if row.who}


@dataclass
class Crowd:
    """The people of one campaign in the order and with the names the source has at present.

    :param first: where its numbers begin
    """

    first: int
    email: bool
    chance: random.Random
    renames: bool = True
    names: dict[str, set[str]] = field(default_factory=dict)
    """Every name that somebody ever had."""

    def __post_init__(self) -> None:
        self._next = self.first

    def draw(self, size: int) -> list[Row]:
        """Return the rows of that many people, with some of them twice and some rows that name nobody."""
        rows = [self._new() for _ in range(size)]
        nameless = [self._new()._replace(name="") for _ in range(int(size * NAMELESS))]
        twice = [row._replace(written=self._written(row.who or "")) for row in self._some(rows, DUPLICATES)]
        bad = [Row(None, self.chance.choice(BAD), "Nobody") for _ in range(int(size * INVALID_ROWS))]
        return self._shuffled([*rows, *twice, *bad, *nameless])

    def edit(self, rows: list[Row]) -> list[Row]:
        """Return the rows in another order, without some of the people, with others, and with some names changed."""
        people = sorted({row.who for row in rows if row.who and row.name})
        removed = set(self._some(people, REMOVED))
        renamed = {who: self._name(who) for who in self._some(people, RENAMED)} if self.renames else {}
        kept = [row._replace(name=renamed.get(row.who or "", row.name)) for row in rows if row.who not in removed]
        return self._shuffled([*kept, *(self._new() for _ in range(int(len(people) * ADDED)))])

    def _new(self) -> Row:
        number, self._next = self._next, self._next + 1
        who = f"person{number}@example.com" if self.email else f"234803{number:07d}"
        return Row(who, self._written(who), self._name(who))

    def _name(self, who: str) -> str:
        name = f"Ada {self.chance.randrange(10**6)}"
        self.names.setdefault(who, set()).add(name)
        return name

    def _written(self, who: str) -> str:
        if self.email:
            return self.chance.choice((who, who.replace("example", "Example")))
        return self.chance.choice((f"+{who}", who, f"0{who[3:]}", f"+{who[:3]} {who[3:6]} {who[6:]}"))

    def _some(self, of: list[T], share: float) -> list[T]:
        return self.chance.sample(of, int(len(of) * share))

    def _shuffled(self, rows: Iterable[Row]) -> list[Row]:
        shuffled = list(rows)
        self.chance.shuffle(shuffled)
        return shuffled
