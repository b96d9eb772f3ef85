"""Faults to inject: what can go wrong, when it does, and with what figures; ``effects`` shows it on the wire."""

from __future__ import annotations

import enum
import random
import uuid
from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    PrivateAttr,
    ValidationError,
    create_model,
    model_validator,
)

from cpaas_provider.sandbox.core.validation import in_words, one_of

MAX_RULES = 200

OddForm = Literal[
    "empty_errors",  # the record beside an empty list of errors
    "queued",  # an envelope of another type than success
    "status_beside",  # an envelope that names a failure's status, with the record in it
    "status_alone",  # a body that names a failure's status, without the record
    "message",  # a message and nothing else
    "redirect",  # 302
]
_Text = Annotated[str, Field(min_length=1, max_length=2000, pattern="^[ -~]+$")]
_Status = Annotated[int, Field(ge=100, le=599)]
_RetryAfter = Annotated[float, Field(ge=0, le=86_400)] | None
_RetryFormat = Literal["seconds", "http-date"]
_How = Literal["reset", "close"]
_Gateway = Literal[502, 504]


class Stage(enum.Enum):
    """Where in a request's life a fault occurs."""

    DELAY = "delay"  # the request is served, late
    BEFORE = "before"  # nothing is accepted
    AFTER = "after"  # accepted, stored, charged and counted; then the answer goes wrong


class Kind:
    """One way to go wrong, with its parameters: type and default of each."""

    def __init__(self, stage: Stage, means: str, **params: Any) -> None:
        self.stage = stage
        self.means = means
        self.params = {name: default for name, (_, default) in params.items()}
        self._model = create_model("Params", __config__=ConfigDict(extra="forbid", strict=True), **params)

    def read(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return all parameters, defaults filled in; raise ValueError naming every one that is wrong."""
        try:
            params: dict[str, Any] = self._model.model_validate(given).model_dump()
        except ValidationError as error:
            raise ValueError(in_words(error.errors(include_url=False, include_input=False))) from None
        return params


KINDS: dict[str, Kind] = {
    "latency": Kind(Stage.DELAY, "the response is late", ms=(Annotated[float, Field(ge=0, le=120_000)], 1000)),
    "rate_limit": Kind(
        Stage.BEFORE, "429 with Retry-After", retry_after=(_RetryAfter, 1), format=(_RetryFormat, "seconds")
    ),
    "unavailable": Kind(
        Stage.BEFORE,
        "503, with Retry-After if given",
        retry_after=(_RetryAfter, None),
        format=(_RetryFormat, "seconds"),
    ),
    "error_500": Kind(Stage.BEFORE, "500; nothing accepted"),
    "bad_gateway": Kind(Stage.BEFORE, "a proxy's HTML error page; nothing accepted", status=(_Gateway, 502)),
    "unauthorized": Kind(Stage.BEFORE, "401 although the key is right"),
    "redirect": Kind(
        Stage.BEFORE,
        "a redirect; nothing accepted",
        status=(Literal[301, 302, 303, 307, 308], 307),
        location=(_Text, "http://127.0.0.1:9/elsewhere"),
    ),
    "error_under_200": Kind(
        Stage.BEFORE, "the documented error body with HTTP 200; nothing accepted", body_status=(_Status, 200)
    ),
    "reject": Kind(
        Stage.BEFORE,
        "a 4xx with a message of your choice; nothing accepted",
        status=(Literal[400, 402, 409, 422], 400),
        message=(_Text, "Insufficient balance"),
    ),
    "cut_before": Kind(Stage.BEFORE, "the connection is dropped; nothing accepted", how=(_How, "reset")),
    "cut_after": Kind(Stage.AFTER, "accepted, then the connection is dropped without a byte", how=(_How, "reset")),
    "error_500_after": Kind(Stage.AFTER, "accepted, then 500"),
    "bad_gateway_after": Kind(Stage.AFTER, "accepted, then a proxy's HTML error page", status=(_Gateway, 504)),
    "stall_body": Kind(
        Stage.AFTER,
        "accepted; headers and part of the body, then silence",
        seconds=(Annotated[float, Field(ge=0, le=300)], 30),
    ),
    "slow_drip": Kind(
        Stage.AFTER, "accepted; the body byte by byte", seconds=(Annotated[float, Field(ge=0, le=120)], 5)
    ),
    "broken_json": Kind(Stage.AFTER, "accepted; 200 with truncated JSON"),
    "no_charge": Kind(
        Stage.AFTER,
        "accepted; 200 without the charge, or also without the balance",
        balance=(Literal["keep", "drop"], "keep"),
    ),
    "missing_field": Kind(Stage.AFTER, "accepted; 200 without a required field", field=(_Text | None, None)),
    "unknown_enum": Kind(Stage.AFTER, "accepted; 200 with a value that no enumeration has", value=(_Text, "quantum")),
    "extra_fields": Kind(Stage.AFTER, "accepted; 200 with fields that the interface document does not have"),
    "odd_answer": Kind(
        Stage.AFTER,
        "accepted; a response that resembles a failure",
        form=(OddForm, "empty_errors"),
        body_status=(_Status, 500),
    ),
}


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
        self.params = KINDS[self.kind].read(self.params | (self.model_extra or {}))
        self._random = random.Random(self.seed)  # noqa: S311 - for repeatable tests, not for secrets
        return self

    @property
    def id(self) -> str:
        """What the rule is deleted by."""
        return self._id

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
            if KINDS[rule.kind].stage is not Stage.DELAY:
                return delays, rule
            delays.append(rule)
        return delays, None
