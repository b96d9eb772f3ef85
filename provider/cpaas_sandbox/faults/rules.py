"""The rules that choose faults: by operation, number of requests, probability and number of times."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterable
from typing import Annotated, Any, Self

from pydantic import BaseModel, Field, FiniteFloat, PrivateAttr, model_validator

from cpaas_sandbox.core.validation import one_of
from cpaas_sandbox.faults.kinds import KINDS, Kind, Stage

MAX_RULES = 200


class Rule(BaseModel, extra="allow"):
    """A fault and when it occurs; the parameters of its kind are in `params` or beside the other fields."""

    operation: str = "*"
    kind: Annotated[str, one_of(KINDS)]
    times: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    rate: Annotated[FiniteFloat, Field(ge=0, le=1)] = 1.0
    after: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    seed: int | None = None
    params: dict[str, Any] = {}

    _id: str = PrivateAttr(default_factory=lambda: uuid.uuid4().hex[:12])
    _seen: int = 0
    _hits: int = 0
    _random: random.Random

    @model_validator(mode="after")
    def _read_params(self) -> Self:
        self.params = self.effect.read(self.params | (self.model_extra or {}))
        self._random = random.Random(self.seed)  # noqa: S311 - for repeatable tests, not for secrets
        return self

    @property
    def effect(self) -> Kind:
        """The kind of the fault."""
        return KINDS[self.kind]

    @property
    def spent(self) -> bool:
        """Whether the fault has occurred ``times`` times."""
        return self.times is not None and self._hits >= self.times

    def matches(self, operation: str) -> bool:
        """Return whether the fault occurs in this request, and count the request."""
        if self.operation not in ("*", operation) or self.spent:
            return False
        self._seen += 1
        hit = self._seen > self.after and (self.rate >= 1.0 or self._random.random() < self.rate)
        self._hits += hit
        return hit

    def take_back(self) -> None:
        """Undo the count of a hit, because the request was not accepted."""
        self._hits -= 1

    def as_json(self) -> dict[str, Any]:
        """Describe the rule for the control API."""
        counts = {"id": self._id, "seen": self._seen, "hits": self._hits, "spent": self.spent}
        return {name: getattr(self, name) for name in type(self).model_fields} | counts


class Faults:
    """The current rules, in the order they were added; they are not stored in the database."""

    def __init__(self) -> None:
        self.rules: list[Rule] = []

    def add(self, rule: Rule) -> None:
        """Add a rule; at the limit, remove spent rules first."""
        if len(self.rules) >= MAX_RULES:
            self.rules = [current for current in self.rules if not current.spent]
        if len(self.rules) >= MAX_RULES:
            raise ValueError(f"at most {MAX_RULES} faults at a time")
        self.rules.append(rule)

    def replace(self, rules: Iterable[Rule] = ()) -> int:
        """Replace all rules; return how many rules there were."""
        count, self.rules = len(self.rules), list(rules)
        return count

    def remove(self, rule_id: str) -> int:
        """Remove one rule; return the number of removed rules, 0 for an unknown id."""
        return self.replace(rule for rule in self.rules if rule._id != rule_id) - len(self.rules)

    def choose(self, operation: str) -> tuple[list[Rule], Rule | None]:
        """Return the delays and the one other fault that occur in this request, and count it in their rules."""
        delays: list[Rule] = []
        for rule in self.rules:
            if not rule.matches(operation):
                continue
            if rule.effect.stage is not Stage.DELAY:
                return delays, rule
            delays.append(rule)
        return delays, None
