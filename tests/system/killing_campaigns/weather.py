"""How the service behaves in a round: slow enough to be killed in, and in foul weather wrong in every way."""

from __future__ import annotations

import random
from typing import Any

from tests.sandbox import Sandbox
from tests.system.killing.weather import misleading

ODD_FORMS = ("empty_errors", "queued", "status_beside", "status_alone", "message", "redirect")
SENDS = ("send_sms", "send_email")
SLOWEST_SECONDS = 4.0
REFUSING = ("reject", "leave_out")
REFUSED = 4
"""How many people of a campaign the service refuses in foul weather."""

# They add up: a send takes from 50 to 450 ms.
LATENCIES = ((50, 1.0), (100, 0.5), (300, 0.1))
FAULTS: tuple[dict[str, Any], ...] = (
    {"kind": "rate_limit", "params": {"retry_after": 1}, "rate": 0.02},
    {"kind": "unavailable", "params": {"retry_after": 1}, "rate": 0.01},
    {"kind": "unavailable", "rate": 0.005},
    {"kind": "error_500", "rate": 0.005},
    {"kind": "error_500_after", "rate": 0.005},
    {"kind": "bad_gateway_after", "rate": 0.005},
    {"kind": "cut_before", "rate": 0.005},
    {"kind": "cut_after", "rate": 0.005},
    {"kind": "stall_body", "params": {"seconds": 4}, "rate": 0.005},
    {"kind": "broken_json", "rate": 0.005},
    {"kind": "missing_field", "rate": 0.005},
    *({"kind": "odd_answer", "params": {"form": form}, "rate": 0.005} for form in ODD_FORMS),
    # A failure's status beside the record, which is there all the same.
    *(
        {"kind": "odd_answer", "params": {"form": "status_beside", "body_status": status}, "rate": 0.005}
        for status in (400, 429)
    ),
)
STORM: dict[str, Any] = {"kind": "rate_limit", "params": {"retry_after": 1}, "times": 25}
OBSCURE = frozenset(fault["kind"] for fault in (*FAULTS, *misleading(random.Random(0), 1.0)))
OBSCURE -= {"rate_limit", "note_beside_id", "odd_purchase_status"}
"""What may leave the outcome of a request unknown."""


def make(sandbox: Sandbox, chance: random.Random, foul: bool) -> None:
    """Forget the round before, and put this one's weather in force."""
    sandbox.reset()
    sandbox.control("PUT", "balance", {"balance": 1_000_000_000})
    forms = {
        "name_refused_recipients": chance.random() < 0.5,
        "refused_recipients": chance.choice(REFUSING),
        "envelope": chance.random() < 0.5,
    }
    sandbox.control("PUT", "settings", forms)
    for operation in SENDS:
        for milliseconds, rate in LATENCIES:
            _strike(sandbox, chance, {"kind": "latency", "params": {"ms": milliseconds}, "rate": rate}, operation)
        for fault in (*FAULTS, *misleading(chance, 0.005)) if foul else ():
            _strike(sandbox, chance, fault, operation)
        if foul:
            _strike(sandbox, chance, {**STORM, "after": chance.randrange(50, 400)}, operation)


def refuse(sandbox: Sandbox, people: list[str]) -> None:
    """Have the service refuse some."""
    sandbox.control("POST", "seed", {"refused_recipients": people})


def obscured(sandbox: Sandbox) -> int:
    """Return how many requests the weather may have left in doubt."""
    faults = sandbox.counters()["faults"]
    return sum(count for kind, count in faults.items() if kind in OBSCURE)


def _strike(sandbox: Sandbox, chance: random.Random, fault: dict[str, Any], operation: str) -> None:
    sandbox.control("POST", "faults", {**fault, "operation": operation, "seed": chance.randrange(2**31)})
