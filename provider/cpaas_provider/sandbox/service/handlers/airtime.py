"""Airtime purchases: pending, then sent, then success, failed or error on the clock (INTERFACE.md 2.1, 3, 4.1)."""

from __future__ import annotations

import uuid
from typing import Any

from cpaas_provider.sandbox.core.account import Charge, to_amount, to_units
from cpaas_provider.sandbox.core.clock import timestamp
from cpaas_provider.sandbox.core.context import Sandbox
from cpaas_provider.sandbox.core.database import Row
from cpaas_provider.sandbox.reports.formats import PlannedReport, ReportSubject
from cpaas_provider.sandbox.reports.outcomes import IN_FLIGHT, Outcome, draw_outcome, reason_of
from cpaas_provider.sandbox.reports.schedule import disordered, schedule
from cpaas_provider.sandbox.service.handlers.recipients import refuse_unreachable
from cpaas_provider.sandbox.service.http import Request

_REFUNDED = ("failed", "error")
_OVERTAKEN_SECONDS = 1.0

_INSERT = """
INSERT INTO airtime (id, recipient, network, amount, external_ref, callback, status, outcome, reason, due, created)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
# A purchase that failed does not stand in the way of another try.
_SAME = """
SELECT 1 FROM airtime
WHERE recipient = ? AND amount = ? AND created > ? AND status IN ('pending', 'sent', 'success')"""


def buy(sandbox: Sandbox, request: Request) -> dict[str, Any]:
    """Answer POST /airtime/buy; the same amount for the same recipient within the guard interval is a duplicate."""
    body, settings, now = request.body, sandbox.settings, sandbox.clock.now()
    refuse_unreachable(sandbox, [body["recipient"]], "recipient")
    amount = to_units(body["amount"])
    since = now - settings.airtime_guard_seconds
    duplicate = sandbox.database.row(_SAME, [body["recipient"], amount, since]) is not None
    charge = Charge(0, sandbox.account.balance) if duplicate else sandbox.account.charge(amount)
    status = "duplicate" if duplicate else "pending"
    comes = draw_outcome(sandbox, "airtime", body["recipient"])
    if duplicate:
        comes = Outcome(("duplicate",), reason_of(settings.report_seed, "duplicate", body["recipient"]))
    due = None if duplicate else now + settings.airtime_sent_seconds
    purchase_id, optional = uuid.uuid4().hex, (body.get("external_ref"), body.get("callback"))
    what = (purchase_id, body["recipient"], body["network"], amount)
    sandbox.database.execute(_INSERT, [*what, *optional, status, comes.outcome, comes.reason, due, now])
    sandbox.counters.add("airtime.duplicates" if duplicate else "airtime.purchases")
    if duplicate:
        _report(sandbox, ReportSubject("airtime", purchase_id, *optional), body["recipient"], status, comes.reason)
    else:
        sandbox.wakeup.set_by(now + settings.airtime_sent_seconds)
    record = {"id": purchase_id, "recipient": body["recipient"], "status": status, "network": body["network"]}
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
    due = sandbox.clock.now() + sandbox.settings.report_delay_seconds
    schedule(sandbox, purchase, [PlannedReport(recipient, status, due, reason)])


def _report_in_flight(sandbox: Sandbox, purchase: ReportSubject, recipient: str, final: float) -> None:
    """Report that it was sent; where reports come out of order, after it is final."""
    if not sandbox.settings.report_in_flight:
        return
    late = final + sandbox.settings.report_delay_seconds + _OVERTAKEN_SECONDS
    due = late if disordered(sandbox, recipient) else sandbox.clock.now()
    schedule(sandbox, purchase, [PlannedReport(recipient, IN_FLIGHT, due)])


def complete_purchases(sandbox: Sandbox) -> None:
    """Move every purchase whose time has come; a failed one gets its money back."""
    now = sandbox.clock.now()
    for row in sandbox.database.rows("SELECT * FROM airtime WHERE due <= ?", [now]):
        final = row["created"] + sandbox.settings.airtime_final_seconds
        purchase = ReportSubject("airtime", row["id"], row["external_ref"], row["callback"])
        if row["status"] == "pending" and now < final:
            _move(sandbox, row, IN_FLIGHT, final)
            _report_in_flight(sandbox, purchase, row["recipient"], final)
        else:
            _move(sandbox, row, row["outcome"], None)
            sandbox.counters.add(f"airtime.{row['outcome']}")
            if row["outcome"] in _REFUNDED:
                sandbox.account.refund(row["amount"])
                sandbox.counters.add("airtime.refunded")
            _report(sandbox, purchase, row["recipient"], row["outcome"], row["reason"])


def _move(sandbox: Sandbox, row: Row, status: str, due: float | None) -> None:
    values = [status, due, sandbox.clock.now(), status in _REFUNDED, row["id"]]
    sql = "UPDATE airtime SET status = ?, due = ?, updated = ?, refunded = ? WHERE id = ?"
    sandbox.database.execute(sql, values)
    if due is not None:
        sandbox.wakeup.set_by(due)
