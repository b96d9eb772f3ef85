"""SMS and email: rendered for each recipient, charged and stored for the inbox (contract.md 2.2, 2.3, 4.2, 4.3)."""

from __future__ import annotations

import uuid
from dataclasses import astuple, dataclass
from functools import cache
from typing import Any

from cpaas_sandbox.core.account import Charge, to_amount
from cpaas_sandbox.core.clock import timestamp
from cpaas_sandbox.core.context import Sandbox
from cpaas_sandbox.reports.formats import PlannedReport, ReportSubject
from cpaas_sandbox.reports.outcomes import draw_outcome
from cpaas_sandbox.reports.schedule import plan_reports, schedule
from cpaas_sandbox.service.handlers.recipients import read_recipients
from cpaas_sandbox.service.handlers.text import Size, measure, renderer
from cpaas_sandbox.service.http import Request

_MESSAGE = """
INSERT INTO messages
    (id, kind, channel, sender_id, from_name, reply_to, template_id, external_ref, callback, is_trackable, created)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_DELIVERY = """
INSERT INTO deliveries (message_id, kind, recipient, subject, text, encoding, length, pages, charge, outcome, reason)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""

# Request fields that the record repeats (sections 2.2 and 2.3).
_REPEATED = ("external_ref", "callback", "template_id", "personalisation")


@dataclass(frozen=True, slots=True)
class Copy:
    """The message to one recipient: rendered, measured if it is an SMS, and its charge in units."""

    recipient: str
    text: str
    subject: str | None
    size: Size | None
    charge: int


def _content(sandbox: Sandbox, body: dict[str, Any]) -> tuple[str, str | None]:
    """Return the unrendered text and subject of a message; a template's text replaces ``content``."""
    template = sandbox.templates.get(body.get("template_id", ""), {"content": body.get("content"), "subject": None})
    return template["content"], body.get("subject") or template["subject"]


def _copies(sandbox: Sandbox, body: dict[str, Any], recipients: list[str], price: int, by_page: bool) -> list[Copy]:
    """Render the message for every recipient; ``price`` is for one copy or, ``by_page``, for each of its pages."""
    content, subject = _content(sandbox, body)
    placeholder = sandbox.settings.placeholder_format
    render_text, render_subject = renderer(content, placeholder), renderer(subject or "", placeholder)
    by_recipient = {item["to"].strip().lower(): item["substitutions"] for item in body.get("personalisation", ())}
    measure_once, copies = cache(measure), []
    for recipient in recipients:
        substitutions = by_recipient.get(recipient.lower(), {})
        text = render_text(substitutions)
        size = measure_once(text) if by_page else None
        charge = price * (size.pages if size else 1)
        copies.append(Copy(recipient, text, render_subject(substitutions) or None, size, charge))
    return copies


def _save(sandbox: Sandbox, kind: str, body: dict[str, Any], copies: list[Copy]) -> dict[str, Any]:
    """Store message and copies, schedule the delivery reports, and return the fields that both records have."""
    message_id, now = uuid.uuid4().hex, sandbox.clock.now()
    optional = [body.get(name) for name in ("from_name", "reply_to", "template_id", "external_ref", "callback")]
    channel = body.get("channel", kind)
    values = [message_id, kind, channel, body["sender_id"], *optional, body.get("is_trackable"), now]
    sandbox.database.execute(_MESSAGE, values)
    # Clicks in an email are always tracked.
    trackable = kind == "email" or body.get("is_trackable", False)
    deliveries, reports = [], list[PlannedReport]()
    for copy in copies:
        size = astuple(copy.size) if copy.size else (None, None, None)
        outcome = draw_outcome(sandbox, kind, copy.recipient, trackable)
        row = (copy.recipient, copy.subject, copy.text, *size, copy.charge, outcome.final, outcome.reason)
        deliveries.append((message_id, kind, *row))
        reports += plan_reports(sandbox, copy.recipient, outcome)
    sandbox.database.many(_DELIVERY, deliveries)
    schedule(sandbox, ReportSubject(kind, message_id, body.get("external_ref"), body.get("callback")), reports)
    sandbox.counters.add(f"{kind}.requests")
    sandbox.counters.add(f"{kind}.recipients", n=len(copies))
    record = {"id": message_id, "recipients": [copy.recipient for copy in copies], "sender_id": body["sender_id"]}
    return record | {name: body[name] for name in _REPEATED if name in body} | {"created_datetime": timestamp(now)}


def _meta(request: Request, charge: Charge, **estimate: Any) -> dict[str, Any]:
    money = {"available_balance": to_amount(charge.after), "charge": to_amount(charge.amount)}
    return {"method": request.method, "resource": request.path, "estimate": money | estimate}


def send_sms(sandbox: Sandbox, request: Request) -> dict[str, Any]:
    """Answer POST /sms/send; the estimate has the size of the longest copy, and the charge of all copies."""
    body = dict(request.fields)
    recipients, left_out = read_recipients(sandbox, body["recipients"])
    price = sandbox.account.prices[body.get("channel", "sms")]
    copies = _copies(sandbox, body, recipients, price, by_page=True)
    charge = sandbox.account.charge(sum(copy.charge for copy in copies))
    record = _save(sandbox, "sms", body, copies)
    longest = max((copy.size for copy in copies if copy.size), key=lambda size: (size.pages, size.length))
    meta = _meta(request, charge, encoding=longest.encoding, message_length=longest.length, pages=longest.pages)
    content, _ = _content(sandbox, body)
    return record | {"content": content, "is_trackable": body.get("is_trackable", False), "meta": meta} | left_out


def send_email(sandbox: Sandbox, request: Request) -> dict[str, Any]:
    """Answer POST /email/send."""
    body = dict(request.fields)
    recipients, left_out = read_recipients(sandbox, body["recipients"])
    copies = _copies(sandbox, body, recipients, sandbox.account.prices["email"], by_page=False)
    charge = sandbox.account.charge(sum(copy.charge for copy in copies))
    record = _save(sandbox, "email", body, copies)
    from_name = {"from_name": body["from_name"]} if "from_name" in body else {}
    return record | from_name | {"meta": _meta(request, charge)} | left_out
