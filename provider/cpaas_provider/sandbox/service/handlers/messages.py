"""SMS and email: priced, rendered for each recipient, laid into the inbox (INTERFACE.md 2.2, 2.3, 4.2, 4.3)."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from cpaas_provider.sandbox.core.account import Charge, to_amount
from cpaas_provider.sandbox.core.clock import timestamp
from cpaas_provider.sandbox.core.context import Sandbox
from cpaas_provider.sandbox.reports.formats import PlannedReport, ReportSubject
from cpaas_provider.sandbox.reports.outcomes import draw_outcome
from cpaas_provider.sandbox.reports.schedule import plan_reports, schedule
from cpaas_provider.sandbox.service.handlers.recipients import read_recipients
from cpaas_provider.sandbox.service.handlers.text import Size, measure, renderer
from cpaas_provider.sandbox.service.http import Request

_MESSAGE = """
INSERT INTO messages
    (id, kind, channel, sender_id, from_name, reply_to, template_id, external_ref, callback, is_trackable, created)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_DELIVERY = """
INSERT INTO deliveries (message_id, kind, recipient, subject, text, encoding, length, pages, charge, outcome, reason)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""

# Fields of a request that its record shows again (sections 2.2 and 2.3).
_SHOWN = ("external_ref", "callback", "template_id", "personalisation")


@dataclass(frozen=True, slots=True)
class Copy:
    """The message as one recipient gets it."""

    recipient: str
    text: str
    subject: str | None = None


def _copies(sandbox: Sandbox, body: dict[str, Any], recipients: list[str]) -> list[Copy]:
    """Render the text for every recipient; a template's text goes before content."""
    template = sandbox.templates.get(body.get("template_id", ""))
    content = template["content"] if template else body["content"]
    subject = body.get("subject") or (template and template["subject"])
    placeholder = sandbox.settings.placeholder_format
    text_for = renderer(content, placeholder)
    subject_for = renderer(subject, placeholder) if subject else None
    theirs = {one["to"].strip().lower(): one["substitutions"] for one in body.get("personalisation", ())}
    copies = []
    for recipient in recipients:
        mine = theirs.get(recipient.lower(), {})
        copies.append(Copy(recipient, text_for(mine), subject_for(mine) if subject_for else None))
    return copies


def _save(
    sandbox: Sandbox, kind: str, body: dict[str, Any], rows: list[tuple[Copy, Size | None, int]]
) -> dict[str, Any]:
    """Store the message and its copies, schedule the delivery reports, and return what both kinds' records share."""
    message_id, now = uuid.uuid4().hex, sandbox.clock.now()
    optional = [body.get(name) for name in ("from_name", "reply_to", "template_id", "external_ref", "callback")]
    channel = body.get("channel", kind)
    values = [message_id, kind, channel, body["sender_id"], *optional, body.get("is_trackable"), now]
    sandbox.database.execute(_MESSAGE, values)
    # an email's links need no mark to be followed
    trackable = kind == "email" or body.get("is_trackable", False)
    deliveries, reports = [], list[PlannedReport]()
    for copy, size, charge in rows:
        measured = (size.encoding, size.length, size.pages) if size else (None, None, None)
        comes = draw_outcome(sandbox, kind, copy.recipient, trackable)
        shown = (copy.recipient, copy.subject, copy.text, *measured, charge, comes.outcome, comes.reason)
        deliveries.append((message_id, kind, *shown))
        reports += plan_reports(sandbox, copy.recipient, comes)
    sandbox.database.many(_DELIVERY, deliveries)
    schedule(sandbox, ReportSubject(kind, message_id, body.get("external_ref"), body.get("callback")), reports)
    sandbox.counters.add(f"{kind}.requests", **{f"{kind}__recipients": len(rows)})
    record = {"id": message_id, "recipients": [copy.recipient for copy, _, _ in rows], "sender_id": body["sender_id"]}
    return record | {name: body[name] for name in _SHOWN if name in body} | {"created_datetime": timestamp(now)}


def _meta(request: Request, charge: Charge, **estimate: Any) -> dict[str, Any]:
    money = {"available_balance": to_amount(charge.after), "charge": to_amount(charge.amount)}
    return {"method": request.method, "resource": request.path, "estimate": money | estimate}


def send_sms(sandbox: Sandbox, request: Request) -> dict[str, Any]:
    """Answer POST /sms/send; the estimate speaks of the longest copy, the charge of all of them."""
    body = dict(request.body)
    recipients, left_out = read_recipients(sandbox, body["recipients"])
    copies = _copies(sandbox, body, recipients)
    price = sandbox.account.prices[body.get("channel", "sms")]
    sizes = {text: measure(text) for text in {copy.text for copy in copies}}
    rows: list[tuple[Copy, Size | None, int]] = [
        (copy, sizes[copy.text], price * sizes[copy.text].pages) for copy in copies
    ]
    charge = sandbox.account.charge(sum(cost for _, _, cost in rows))
    record = _save(sandbox, "sms", body, rows)
    longest = max(sizes.values(), key=lambda size: (size.pages, size.length))
    meta = _meta(request, charge, encoding=longest.encoding, message_length=longest.length, pages=longest.pages)
    template = sandbox.templates.get(body.get("template_id", ""))
    content = template["content"] if template else body["content"]
    shown = {"content": content, "is_trackable": body.get("is_trackable", False), "meta": meta}
    return record | shown | left_out


def send_email(sandbox: Sandbox, request: Request) -> dict[str, Any]:
    """Answer POST /email/send."""
    body = dict(request.body)
    recipients, left_out = read_recipients(sandbox, body["recipients"])
    copies = _copies(sandbox, body, recipients)
    price = sandbox.account.prices["email"]
    charge = sandbox.account.charge(price * len(copies))
    record = _save(sandbox, "email", body, [(copy, None, price) for copy in copies])
    shown = {"from_name": body["from_name"]} if "from_name" in body else {}
    return record | shown | {"meta": _meta(request, charge)} | left_out
