"""The rules by which faults occur: in which operation, after how many requests, how often and how many times."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterable
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, PrivateAttr, model_validator

from cpaas_provider.sandbox.core.validation import one_of
from cpaas_provider.sandbox.faults.kinds import KINDS, Kind, Stage

MAX_RULES = 200


class Rule(BaseModel):
    """A fault and when it occurs; parameters of its kind go into `params`, or beside the rest."""

    model_config = ConfigDict(extra="allow")

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
    def id(self) -> str:
        """What the rule is deleted by."""
        return self._id

    @property
    def effect(self) -> Kind:
        """What goes wrong."""
        return KINDS[self.kind]

    @property
    def spent(self) -> bool:
        """Whether it has occurred as many times as it was to."""
        return self.times is not None and self._hits >= self.times

    def matches(self, operation: str) -> bool:
        """Tell whether this request is hit; every request counts towards ``after`` and draws once."""
        if self.operation not in ("*", operation) or self.spent:
            return False
        self._seen += 1
        hit = self._seen > self.after and (self.rate >= 1.0 or self._random.random() < self.rate)
        self._hits += hit
        return hit

    def take_back(self) -> None:
        """Count a hit no longer: the request was not accepted."""
        self._hits -= 1

    def as_json(self) -> dict[str, Any]:
        """Describe the rule for the control API."""
        counts = {"id": self._id, "seen": self._seen, "hits": self._hits, "spent": self.spent}
        return {name: getattr(self, name) for name in type(self).model_fields} | counts


class Faults:
    """The rules in force, in the order they were added; they end with the process."""

    def __init__(self) -> None:
        self.rules: list[Rule] = []

    def add(self, rule: Rule) -> None:
        """Put a rule in force; spent ones make room."""
        if len(self.rules) >= MAX_RULES:
            self.rules = [kept for kept in self.rules if not kept.spent]
        if len(self.rules) >= MAX_RULES:
            raise ValueError(f"at most {MAX_RULES} faults at a time")
        self.rules.append(rule)

    def clear(self) -> None:
        """Take all rules away."""
        self.rules.clear()

    def replace(self, rules: Iterable[Rule]) -> None:
        """Put these rules in the place of all there are."""
        self.rules = list(rules)

    def remove(self, rule_id: str) -> bool:
        """Take one rule away; tell whether it was there."""
        kept = [rule for rule in self.rules if rule.id != rule_id]
        found = len(kept) < len(self.rules)
        self.rules = kept
        return found

    def choose(self, operation: str) -> tuple[list[Rule], Rule | None]:
        """Return the delays and the one other fault that hit this request, and count the hits."""
        delays: list[Rule] = []
        for rule in self.rules:
            if not rule.matches(operation):
                continue
            if rule.effect.stage is not Stage.DELAY:
                return delays, rule
            delays.append(rule)
        return delays, None
