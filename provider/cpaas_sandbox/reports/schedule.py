"""Schedules delivery reports (contract.md 6): which status of which recipient, to which URL and when.

Reports are stored in the transaction that accepts the request; the dispatcher sends them later. A report goes to the
``callback`` of the request, to the account's webhook, to both or to neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from cpaas_sandbox.core.context import Sandbox
from cpaas_sandbox.core.database import Row
from cpaas_sandbox.reports.formats import EVENTS, PlannedReport, ReportSubject, render
from cpaas_sandbox.reports.outcomes import IN_FLIGHT, RANK, REASONS, Outcome, hit, seeded_uniform

_BOOK = """
INSERT INTO reports
    (endpoint, origin, kind, message_id, recipient, external_ref, status, url, body, turn, first, due, created)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_REPEAT = """
INSERT INTO reports
    (endpoint, origin, kind, message_id, recipient, external_ref, status, url, body, turn, first, due, created)
SELECT endpoint, 'resent', kind, message_id, recipient, external_ref, status, url, body, turn, ?, ?, ?
FROM reports WHERE seq = ?"""
_MESSAGE = """
SELECT d.*, m.callback, m.external_ref, m.is_trackable FROM deliveries d JOIN messages m ON m.id = d.message_id
WHERE d.recipient = ? AND """
_UNSENT = "message_id = ? AND recipient = ? AND state = 'pending' AND attempts = 0 AND due > ?"
# The share of the duplicated reports that is sent three times.
_THRICE = 0.25


def plan_reports(sandbox: Sandbox, recipient: str, outcome: Outcome) -> Iterator[PlannedReport]:
    """Yield all reports of one recipient of a message sent now."""
    settings, now = sandbox.settings, sandbox.clock.now()
    if settings.report_in_flight:
        yield PlannedReport(recipient, IN_FLIGHT, now)
    final = now + settings.report_delay_seconds
    yield PlannedReport(recipient, outcome.statuses[0], final, outcome.reason)
    for status in outcome.statuses[1:]:
        final += settings.report_engagement_seconds
        yield PlannedReport(recipient, status, final)


def _targets(sandbox: Sandbox, callback: str | None) -> list[tuple[str, str, str]]:
    """Return name, URL and report format of each endpoint."""
    settings = sandbox.settings
    endpoints: list[tuple[str, str, str]] = [("callback", callback, settings.callback_shape)] if callback else []
    if settings.webhook_url:
        endpoints.append(("webhook", settings.webhook_url, settings.webhook_shape))
    return endpoints


def schedule(sandbox: Sandbox, subject: ReportSubject, reports: Iterable[PlannedReport]) -> int:
    """Schedule each report for each endpoint that receives its status; return the number of stored reports.

    :param reports: grouped by recipient, in the order of their statuses
    """
    endpoints = _targets(sandbox, subject.callback)
    if not endpoints:
        return 0
    now = sandbox.clock.now()
    rows: list[tuple[Any, ...]] = []
    for turn, planned in _in_order(sandbox, list(reports)):
        about = (subject.kind, subject.message_id, planned.recipient, subject.external_ref, planned.status)
        for endpoint, url, format_name in endpoints:
            if endpoint == "webhook" and planned.status not in EVENTS[subject.kind]:
                continue
            row = (*about, url, render(format_name, subject, planned), turn, planned.due, planned.due, now)
            rows.append((endpoint, "first", *row))
            rows += [(endpoint, "duplicate", *row)] * _duplicates(sandbox, endpoint, planned)
    sandbox.database.many(_BOOK, rows)
    if rows:
        sandbox.counters.add("reports.booked", n=len(rows))
        sandbox.report_wakeup.set_by(min(row[-2] for row in rows))
    return len(rows)


def disordered(sandbox: Sandbox, recipient: str) -> bool:
    """Return whether a recipient's reports are sent out of order."""
    return hit(sandbox, "report_disorder", "disorder", recipient)


def _duplicates(sandbox: Sandbox, endpoint: str, planned: PlannedReport) -> int:
    """Return the number of duplicates of a report: 0, 1 or 2."""
    purpose = f"duplicate {endpoint} {planned.status}"
    if not hit(sandbox, "report_duplicate_rate", purpose, planned.recipient):
        return 0
    seed = sandbox.settings.report_seed
    return 2 if seeded_uniform(seed, f"thrice {purpose}", planned.recipient) < _THRICE else 1


def _in_order(sandbox: Sandbox, reports: Sequence[PlannedReport]) -> Iterator[tuple[float, PlannedReport]]:
    """Yield each report with its turn; among reports due at the same moment, a lower turn is sent first.

    With disorder, all reports of a recipient are due with the last one, in reverse order, from a random turn on.
    """
    turn = 0
    seed = sandbox.settings.report_seed
    for recipient, group in groupby(reports, key=lambda planned: planned.recipient):
        own = list(group)
        start = float(turn)
        turn += len(own)
        if disordered(sandbox, recipient):
            last = max(planned.due for planned in own)
            own = [replace(planned, due=last) for planned in reversed(own)]
            start = seeded_uniform(seed, "place", recipient) * len(reports)
        # Turns of one recipient differ by less than 1, so they keep this order from any start.
        yield from ((start + n / len(own), planned) for n, planned in enumerate(own))


def repeat(sandbox: Sandbox, row: Row) -> None:
    """Schedule an acknowledged report once more, at the rate ``report_repeat_rate``."""
    purpose = f"again {row['endpoint']} {row['status']}"
    if row["origin"] != "first" or not hit(sandbox, "report_repeat_rate", purpose, row["recipient"]):
        return
    now = sandbox.clock.now()
    due = now + sandbox.settings.report_interval_seconds
    sandbox.database.execute(_REPEAT, [due, due, now, row["seq"]])
    sandbox.counters.add("reports.booked")
    sandbox.report_wakeup.set_by(due)


def report_now(
    sandbox: Sandbox, recipient: str, status: str, reason: str | None, message_id: str | None, external_ref: str | None
) -> int:
    """Schedule a report of a given status now; return the number of stored reports.

    :raises LookupError: there is no such message to this recipient
    :raises ValueError: the message cannot have that status, or there is no URL to report to
    """
    if (message_id is None) == (external_ref is None):
        raise ValueError("give either message_id or external_ref")
    condition = "d.message_id = ?" if external_ref is None else "m.external_ref = ?"
    rows = sandbox.database.rows(_MESSAGE + condition, [recipient, message_id or external_ref])
    if not rows:
        raise LookupError("there is no such message to this recipient")
    with sandbox.database.transaction():
        scheduled = sum(_report_one(sandbox, row, status, reason) for row in rows)
        if not scheduled:
            raise ValueError("no URL to report to: give the message a callback, or set webhook_url")
    return scheduled


def _report_one(sandbox: Sandbox, row: Row, status: str, reason: str | None) -> int:
    allowed = (IN_FLIGHT, *EVENTS[row["kind"]])
    if status not in allowed:
        raise ValueError(f"status: must be one of {', '.join(allowed)}")
    if status == "clicked" and row["kind"] == "sms" and not row["is_trackable"]:
        raise ValueError("status: only trackable messages can be clicked")
    if RANK[status] > RANK[row["outcome"]] or (status in REASONS and _drop_unsent(sandbox, row)):
        sql = "UPDATE deliveries SET outcome = ?, reason = ? WHERE seq = ?"
        sandbox.database.execute(sql, [status, reason, row["seq"]])
    subject = ReportSubject(row["kind"], row["message_id"], row["external_ref"], row["callback"])
    return schedule(sandbox, subject, [PlannedReport(row["recipient"], status, sandbox.clock.now(), reason)])


def _drop_unsent(sandbox: Sandbox, row: Row) -> bool:
    """Drop the later reports of a recipient, which a failure contradicts; return whether there were any."""
    values = [row["message_id"], row["recipient"], sandbox.clock.now()]
    count = sandbox.database.number(f"SELECT count(*) FROM reports WHERE {_UNSENT}", values)  # noqa: S608 - text of ours
    if count:
        sandbox.database.execute(f"DELETE FROM reports WHERE {_UNSENT}", values)  # noqa: S608 - text of ours
        sandbox.counters.add("reports.booked", n=-count)
    return bool(count)
