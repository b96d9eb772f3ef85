"""What the task instances of a run send, and to whom: nobody stands in two of them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

POLICIES = ("fail", "skip", "resend")
PLAIN = "plain"
"""Cases sent without a journal, which must be found to arrive twice."""

NAMES = {"id": "cName", "name": "Name", "type": "TEXT"}
AMOUNT = 100
# Single messages and packs both go by these operators.
OPERATORS = ("sms", "sms", "email", "airtime", "otp", "create_row", "upsert_row")
BOX_OF = {
    "sms": "sms",
    "email": "email",
    "airtime": "airtime",
    "otp": "otp",
    "create_row": "contacts",
    "upsert_row": "contacts",
    PLAIN: "sms",
}


@dataclass
class Case:
    """One task instance: what it sends, to whom, and what it is to do about a request of unknown outcome."""

    operator: str
    on_unknown: str
    recipients: list[str]
    map_index: int = -1

    @property
    def key(self) -> tuple[str, int]:
        """Where it stands in the DAG."""
        return self.operator, self.map_index

    @property
    def box(self) -> str:
        """The sandbox's inbox it arrives in."""
        return BOX_OF[self.operator]

    @property
    def arguments(self) -> dict[str, Any]:
        """What its operator is made with."""
        one = self.recipients[0]
        own: dict[str, dict[str, Any]] = {
            "sms": {"recipients": self.recipients, "content": "Hello", "sender_id": "Example"},
            "email": {"recipients": self.recipients, "content": "Hello", "subject": "Hello"},
            "airtime": {"recipient": one, "amount": AMOUNT, "network": "MTN"},
            "otp": {"recipient": one},
            "create_row": {"columns": {NAMES["name"]: one}},
            "upsert_row": {"columns": {NAMES["name"]: one}},
        }
        if self.operator == PLAIN:
            return {"recipient": one}
        return {**own[self.operator], "on_unknown": self.on_unknown}


@dataclass
class Population:
    """People who have not been written to yet."""

    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def next(self, operator: str) -> str:
        """Return somebody as the operator names people."""
        number = next(self.numbers)
        if BOX_OF[operator] == "email":
            return f"person{number}@example.com"
        return f"Person {number}" if BOX_OF[operator] == "contacts" else f"234803{number:07d}"


def draw_cases(count: int, people: Population, chance: random.Random, policies: Iterable[str] = POLICIES) -> list[Case]:
    """Return that many cases, every operator and policy among them as far as the number allows."""
    kinds = list(itertools.islice(itertools.cycle(itertools.product(OPERATORS, policies)), count))
    chance.shuffle(kinds)
    packs = itertools.cycle((1, None))
    return _numbered(
        Case(operator, policy, [people.next(operator) for _ in range(_size(operator, chance, packs))])
        for operator, policy in kinds
    )


def plain_cases(count: int, people: Population) -> list[Case]:
    """Return cases of one person each that no journal looks after."""
    return _numbered(Case(PLAIN, "fail", [people.next(PLAIN)]) for _ in range(count))


def configuration(cases: Iterable[Case]) -> Mapping[str, list[dict[str, Any]]]:
    """Return what the DAG reads its cases from."""
    found: dict[str, list[dict[str, Any]]] = {}
    for case in cases:
        found.setdefault(case.operator, []).append(case.arguments)
    return found


def _size(operator: str, chance: random.Random, packs: Iterator[int | None]) -> int:
    """Say how many people it is for: singles and packs in turn, where an operator takes packs."""
    if BOX_OF[operator] not in ("sms", "email"):
        return 1
    return next(packs) or chance.randint(5, 20)


def _numbered(cases: Iterable[Case]) -> list[Case]:
    places: dict[str, Iterator[int]] = {}
    numbered = list(cases)
    for case in numbered:
        case.map_index = next(places.setdefault(case.operator, itertools.count()))
    return numbered
