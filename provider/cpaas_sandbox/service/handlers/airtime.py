"""Airtime purchases: pending, then sent, then success, failed or error, by the clock (contract.md 2.1, 3, 4.1)."""

from __future__ import annotations

import uuid
from typing import Any

from cpaas_sandbox.core.account import Charge, to_amount, to_units
from cpaas_sandbox.core.clock import timestamp
from cpaas_sandbox.core.context import Sandbox
from cpaas_sandbox.reports.formats import PlannedReport, ReportSubject
from cpaas_sandbox.reports.outcomes import IN_FLIGHT, Outcome, draw_outcome, reason_of
from cpaas_sandbox.reports.schedule import disordered, schedule
from cpaas_sandbox.service.handlers.recipients import check_recipient
from cpaas_sandbox.service.http import Request

_REFUNDED = ("failed", "error")
_OVERTAKEN_SECONDS = 1.0

_INSERT = """
INSERT INTO airtime (id, recipient, network, amount, external_ref, callback, status, outcome, reason, due, created)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_UPDATE = "UPDATE airtime SET status = ?, due = ?, updated = ?, refunded = ? WHERE id = ?"
# After a failed purchase, the same one is no duplicate.
_SAME = """
SELECT 1 FROM airtime
WHERE recipient = ? AND amount = ? AND created > ? AND status IN ('pending', 'sent', 'success')"""


def buy(sandbox: Sandbox, request: Request) -> dict[str, Any]:
    """Answer POST /airtime/buy; the same amount for the same recipient within the guard interval is a duplicate."""
    body, settings, now = request.fields, sandbox.settings, sandbox.clock.now()
    recipient, amount = body["recipient"], to_units(body["amount"])
    check_recipient(sandbox, recipient)
    purchase = ReportSubject("airtime", uuid.uuid4().hex, body.get("external_ref"), body.get("callback"))
    if sandbox.database.row(_SAME, [recipient, amount, now - settings.airtime_guard_seconds]):
        status, due, charge = "duplicate", None, Charge(0, sandbox.account.balance)
        outcome = Outcome((status,), reason_of(settings.report_seed, status, recipient))
        sandbox.counters.add("airtime.duplicates")
        _report(sandbox, purchase, recipient, status, outcome.reason)
    else:
        status, due, charge = "pending", now + settings.airtime_sent_seconds, sandbox.account.charge(amount)
        outcome = draw_outcome(sandbox, "airtime", recipient)
        sandbox.counters.add("airtime.purchases")
        sandbox.wakeup.set_by(due)
    references = (purchase.external_ref, purchase.callback)
    values = [purchase.message_id, recipient, body["network"], amount, *references, status, outcome.final]
    sandbox.database.execute(_INSERT, [*values, outcome.reason, due, now])
    record = {"id": purchase.message_id, "recipient": recipient, "status": status, "network": body["network"]}
    record |= {name: body[name] for name in ("external_ref", "callback") if name in body}
    money = {
        "amount": to_amount(charge.amount),
        "available_balance": to_amount(charge.after),
        "balance_before": to_amount(charge.before),
        "refunded": False,
    }
    meta = {"method": request.method, "resource": request.path, "charge": money}
    return record | {"created_datetime": timestamp(now), "meta": meta}


def _report(sandbox: Sandbox, purchase: ReportSubject, recipient: str, status: str, reason: str | None) -> None:
    """Schedule the report of a final status."""
    due = sandbox.clock.now() + sandbox.settings.report_delay_seconds
    schedule(sandbox, purchase, [PlannedReport(recipient, status, due, reason)])


def _report_in_flight(sandbox: Sandbox, purchase: ReportSubject, recipient: str, final: float) -> None:
    """Schedule the report of the status sent; for a recipient with disorder, after the report of the final status."""
    if not sandbox.settings.report_in_flight:
        return
    late = final + sandbox.settings.report_delay_seconds + _OVERTAKEN_SECONDS
    due = late if disordered(sandbox, recipient) else sandbox.clock.now()
    schedule(sandbox, purchase, [PlannedReport(recipient, IN_FLIGHT, due)])


def complete_purchases(sandbox: Sandbox) -> None:
    """Set the next status of every purchase that is due; refund those that failed."""
    now = sandbox.clock.now()
    for row in sandbox.database.rows("SELECT * FROM airtime WHERE due <= ?", [now]):
        final = row["created"] + sandbox.settings.airtime_final_seconds
        is_final = row["status"] != "pending" or now >= final
        status, due = (row["outcome"], None) if is_final else (IN_FLIGHT, final)
        sandbox.database.execute(_UPDATE, [status, due, now, status in _REFUNDED, row["id"]])
        purchase = ReportSubject("airtime", row["id"], row["external_ref"], row["callback"])
        if is_final:
            sandbox.counters.add(f"airtime.{status}")
            if status in _REFUNDED:
                sandbox.account.refund(row["amount"])
                sandbox.counters.add("airtime.refunded")
            _report(sandbox, purchase, row["recipient"], status, row["reason"])
        else:
            _report_in_flight(sandbox, purchase, row["recipient"], final)
