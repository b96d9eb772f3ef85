"""Faults to inject: what can go wrong, when it does, and with what figures; ``misbehave`` shows it on the wire."""

from __future__ import annotations

import enum
import random
import uuid
from dataclasses import dataclass, field
from typing import Any

MAX_RULES = 200


class Stage(enum.Enum):
    """Where in a request's life a fault strikes."""

    DELAY = "delay"  # the request is served, late
    BEFORE = "before"  # nothing is accepted
    AFTER = "after"  # accepted, stored, charged and counted; then the answer goes wrong


@dataclass(frozen=True, slots=True)
class Param:
    """One figure of a fault: its default and bounds, or what it may be."""

    default: Any
    least: float = 0
    most: float = 0
    choices: tuple[Any, ...] = ()
    optional: bool = False
    text: bool = False

    def read(self, value: Any) -> Any:
        """Return the value where it is allowed; raise ValueError with what is."""
        if self.optional and value is None:
            return None
        if self.choices:
            if value not in self.choices:
                raise ValueError(f"must be one of {', '.join(map(str, self.choices))}")
        elif self.text:
            if (
                not isinstance(value, str)
                or not 0 < len(value) <= 2000
                or not value.isprintable()
                or not value.isascii()
            ):
                raise ValueError("must be a printable ASCII string of 1 to 2000 characters")
        elif isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError("must be a number")
        elif not self.least <= value <= self.most:
            raise ValueError(f"must be from {self.least:g} to {self.most:g}")
        return value


@dataclass(frozen=True, slots=True)
class Kind:
    """One way to go wrong."""

    stage: Stage
    means: str
    params: dict[str, Param] = field(default_factory=dict)


_RETRY_FORMAT = Param("seconds", choices=("seconds", "http-date"))
_HOW = Param("reset", choices=("reset", "close"))

ODD_FORMS = (
    "empty_errors",  # the record beside an empty list of errors
    "queued",  # an envelope of another type than success
    "status_beside",  # an envelope that names a failure's status, with the record in it
    "status_alone",  # a body that names a failure's status, without the record
    "message",  # a message and nothing else
    "redirect",  # 302
)

KINDS: dict[str, Kind] = {
    "latency": Kind(Stage.DELAY, "the response is late", {"ms": Param(1000, 0, 120_000)}),
    "rate_limit": Kind(
        Stage.BEFORE,
        "429 with Retry-After",
        {"retry_after": Param(1, 0, 86_400, optional=True), "format": _RETRY_FORMAT},
    ),
    "unavailable": Kind(
        Stage.BEFORE,
        "503, with Retry-After if given",
        {"retry_after": Param(None, 0, 86_400, optional=True), "format": _RETRY_FORMAT},
    ),
    "error_500": Kind(Stage.BEFORE, "500; nothing accepted"),
    "bad_gateway": Kind(
        Stage.BEFORE, "a proxy's HTML error page; nothing accepted", {"status": Param(502, choices=(502, 504))}
    ),
    "unauthorized": Kind(Stage.BEFORE, "401 although the key is right"),
    "redirect": Kind(
        Stage.BEFORE,
        "a redirect; nothing accepted",
        {
            "status": Param(307, choices=(301, 302, 303, 307, 308)),
            "location": Param("http://127.0.0.1:9/elsewhere", text=True),
        },
    ),
    "error_under_200": Kind(
        Stage.BEFORE,
        "the documented error body with HTTP 200; nothing accepted",
        {"body_status": Param(200, 100, 599)},
    ),
    "reject": Kind(
        Stage.BEFORE,
        "a 4xx with a message of your choice; nothing accepted",
        {"status": Param(400, choices=(400, 402, 409, 422)), "message": Param("Insufficient balance", text=True)},
    ),
    "cut_before": Kind(Stage.BEFORE, "the connection is dropped; nothing accepted", {"how": _HOW}),
    "cut_after": Kind(Stage.AFTER, "accepted, then the connection is dropped without a byte", {"how": _HOW}),
    "error_500_after": Kind(Stage.AFTER, "accepted, then 500"),
    "bad_gateway_after": Kind(
        Stage.AFTER, "accepted, then a proxy's HTML error page", {"status": Param(504, choices=(502, 504))}
    ),
    "stall_body": Kind(
        Stage.AFTER, "accepted; headers and part of the body, then silence", {"seconds": Param(30, 0, 300)}
    ),
    "slow_drip": Kind(Stage.AFTER, "accepted; the body byte by byte", {"seconds": Param(5, 0, 120)}),
    "broken_json": Kind(Stage.AFTER, "accepted; 200 with truncated JSON"),
    "no_charge": Kind(
        Stage.AFTER,
        "accepted; 200 without the charge, or also without the balance",
        {"balance": Param("keep", choices=("keep", "drop"))},
    ),
    "missing_field": Kind(
        Stage.AFTER, "accepted; 200 without a required field", {"field": Param(None, optional=True, text=True)}
    ),
    "unknown_enum": Kind(
        Stage.AFTER, "accepted; 200 with a value that no enumeration has", {"value": Param("quantum", text=True)}
    ),
    "extra_fields": Kind(Stage.AFTER, "accepted; 200 with fields that the interface document does not have"),
    "odd_answer": Kind(
        Stage.AFTER,
        "accepted; a response that resembles a failure",
        {"form": Param("empty_errors", choices=ODD_FORMS), "body_status": Param(500, 100, 599)},
    ),
}


@dataclass
class Rule:
    """A fault and when it strikes: after how many requests, how often, how many times."""

    operation: str
    kind: str
    times: int | None = None
    rate: float = 1.0
    after: int = 0
    seed: int | None = None
    params: dict[str, Any] = field(default_factory=dict)
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    seen: int = 0
    hits: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)  # noqa: S311 - for repeatable tests, not for secrets

    @property
    def spent(self) -> bool:
        """Whether it has struck as many times as it was to."""
        return self.times is not None and self.hits >= self.times

    def matches(self) -> bool:
        """Tell whether this request is hit; every request counts towards ``after`` and draws once."""
        self.seen += 1
        return self.seen > self.after and (self.rate >= 1.0 or self._random.random() < self.rate)

    def as_json(self) -> dict[str, Any]:
        """Describe the rule for the control API."""
        names = ("id", "operation", "kind", "times", "rate", "after", "seed", "seen", "hits")
        return {name: getattr(self, name) for name in names} | {"params": self.params, "spent": self.spent}


def read_params(kind: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return a fault's figures, defaults filled in; raise ValueError naming every one that is wrong."""
    known = KINDS[kind].params
    wrong = [f"{name}: not a parameter of {kind} ({', '.join(known) or 'none'})" for name in given if name not in known]
    params = {name: param.default for name, param in known.items()}
    for name, value in given.items():
        if name in known:
            try:
                params[name] = known[name].read(value)
            except ValueError as error:
                wrong.append(f"{name}: {error}")
    if wrong:
        raise ValueError("; ".join(wrong))
    return params


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

    def replace(self, rules: list[Rule]) -> None:
        """Put these rules in the place of all there are."""
        self.rules = list(rules)

    def remove(self, rule_id: str) -> bool:
        """Take one rule away; tell whether it was there."""
        kept = [rule for rule in self.rules if rule.id != rule_id]
        found = len(kept) < len(self.rules)
        self.rules = kept
        return found

    def choose(self, operation: str) -> tuple[list[Rule], Rule | None]:
        """Return the delays and the one other fault that hit this request; each is counted as struck."""
        delays: list[Rule] = []
        for rule in self.rules:
            if rule.operation not in ("*", operation) or rule.spent or not rule.matches():
                continue
            rule.hits += 1
            if KINDS[rule.kind].stage is not Stage.DELAY:
                return delays, rule
            delays.append(rule)
        return delays, None
