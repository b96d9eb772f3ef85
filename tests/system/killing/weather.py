"""How the service behaves in a round: slow enough to be killed in, and in foul weather wrong in every way."""

from __future__ import annotations

import random
from typing import Any, get_args

from cpaas_sandbox.faults.odd_answers import DeadId, NoteForm, PurchaseForm, RefusalForm
from tests.sandbox import Sandbox
from tests.system.killing.cases import NAMES

ODD_FORMS = ("empty_errors", "queued", "status_beside", "status_alone", "message", "redirect")
SENDS = ("send_sms", "send_email", "buy_airtime", "request_otp", "create_contact_row")
CONNECTION = {"timeout": 3, "sender_id": "Example", "email_sender_id": "news@example.com"}
SLOWEST_SECONDS = 1.5

# They add up: a send takes from 200 to 1400 ms.
LATENCIES = ((200, 1.0), (400, 0.5), (800, 0.4))
FAULTS: tuple[dict[str, Any], ...] = (
    {"kind": "rate_limit", "params": {"retry_after": 1}, "rate": 0.1},
    {"kind": "rate_limit", "params": {"retry_after": 2}, "rate": 0.1},
    {"kind": "unavailable", "params": {"retry_after": 1}, "rate": 0.05},
    {"kind": "unavailable", "rate": 0.03},
    {"kind": "error_500", "rate": 0.03},
    {"kind": "error_500_after", "rate": 0.03},
    {"kind": "bad_gateway_after", "rate": 0.03},
    {"kind": "cut_before", "rate": 0.03},
    {"kind": "cut_after", "rate": 0.03},
    {"kind": "stall_body", "rate": 0.03},
    {"kind": "broken_json", "rate": 0.03},
    {"kind": "missing_field", "rate": 0.03},
    *({"kind": "odd_answer", "params": {"form": form}, "rate": 0.02} for form in ODD_FORMS),
    # A failure's status beside the record, which is there all the same.
    *(
        {"kind": "odd_answer", "params": {"form": "status_beside", "body_status": status}, "rate": 0.02}
        for status in (400, 429)
    ),
)


def misleading(chance: random.Random, rate: float) -> list[dict[str, Any]]:
    """Return faults whose responses say less than they seem to, in some of their forms: all are too many at a time."""
    faults: list[dict[str, Any]] = []
    for stage in ("before", "after"):
        forms = chance.sample(get_args(RefusalForm), 2)
        faults += ({"kind": f"odd_refusal_{stage}", "params": {"form": form}, "rate": rate} for form in forms)
        faults.append({"kind": f"dead_id_{stage}", "params": {"id": chance.choice(get_args(DeadId))}, "rate": rate})
    faults.append({"kind": "note_beside_id", "params": {"form": chance.choice(get_args(NoteForm))}, "rate": rate})
    form = chance.choice(get_args(PurchaseForm))
    return [*faults, {"kind": "odd_purchase_status", "params": {"form": form}, "rate": rate}]


def prepare(sandbox: Sandbox) -> None:
    """Set up what every round needs, before the first."""
    sandbox.control("POST", "seed", {"columns": [NAMES]})
    # With its guard the sandbox would hide that airtime was bought twice.
    sandbox.control("PUT", "settings", {"airtime_guard_seconds": 0})
    sandbox.control("PUT", "balance", {"balance": 10_000_000})


def make(sandbox: Sandbox, chance: random.Random, foul: bool) -> None:
    """Put a round's weather in force in place of what was."""
    sandbox.control("DELETE", "faults")
    sandbox.control("PUT", "settings", {"envelope": chance.random() < 0.5})
    for operation in SENDS:
        for milliseconds, rate in LATENCIES:
            _strike(sandbox, chance, {"kind": "latency", "params": {"ms": milliseconds}, "rate": rate}, operation)
        for fault in (*FAULTS, *misleading(chance, 0.02)) if foul else ():
            _strike(sandbox, chance, fault, operation)


def _strike(sandbox: Sandbox, chance: random.Random, fault: dict[str, Any], operation: str) -> None:
    sandbox.control("POST", "faults", {**fault, "operation": operation, "seed": chance.randrange(2**31)})
