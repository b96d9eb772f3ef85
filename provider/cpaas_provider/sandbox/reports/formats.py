"""How a delivery report is written. The contract shows none (INTERFACE.md section 6), so there is a choice."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cpaas_provider.sandbox.core.clock import timestamp

# What events call a kind, and of what they tell; there is none for what is still in flight.
TOPICS = {"sms": "text", "email": "email", "airtime": "airtime"}
EVENTS: dict[str, tuple[str, ...]] = {
    "sms": ("delivered", "undelivered", "clicked"),
    "email": ("delivered", "bounced", "opened", "clicked"),
    "airtime": ("success", "failed", "duplicate", "error"),
}
_DESCRIPTIONS = {
    "sent": "In flight",
    "delivered": "Delivered to the recipient",
    "opened": "Opened by the recipient",
    "clicked": "A link was clicked",
    "success": "Credited to the recipient",
}


@dataclass(frozen=True, slots=True)
class ReportSubject:
    """What the reports are about, and the URL its request gave for them."""

    kind: str
    message_id: str
    external_ref: str | None
    callback: str | None


@dataclass(frozen=True, slots=True)
class PlannedReport:
    """One status to report of a recipient, at a moment at the earliest."""

    recipient: str
    status: str
    due: float
    reason: str | None = None


Fields = dict[str, Any]


def _without_gaps(fields: Fields) -> Fields:
    return {name: value for name, value in fields.items() if value is not None}


def _status(subject: ReportSubject, planned: PlannedReport) -> Fields:
    return {
        "id": subject.message_id,
        "channel": subject.kind,
        "recipient": planned.recipient,
        "status": planned.status,
        "reason": planned.reason,
        "external_ref": subject.external_ref,
        "created_datetime": timestamp(planned.due),
    }


def _status_object(subject: ReportSubject, planned: PlannedReport) -> Fields:
    airtime = subject.kind == "airtime"
    description = planned.reason or _DESCRIPTIONS.get(planned.status, planned.status.capitalize())
    return {
        "transaction_id" if airtime else "message_id": subject.message_id,
        "channel": subject.kind,
        "msisdn" if airtime else "to": planned.recipient,
        "status": {"text": planned.status, "description": description},
        "client_ref": subject.external_ref,
        "created_datetime": timestamp(planned.due),
    }


def event_name(kind: str, status: str) -> str:
    """Return what a status is called as an event, such as ``text.delivered``."""
    return f"{TOPICS[kind]}.{status}"


def _facts(subject: ReportSubject, planned: PlannedReport) -> Fields:
    return {name: value for name, value in _status(subject, planned).items() if name not in ("channel", "status")}


def _event(subject: ReportSubject, planned: PlannedReport) -> Fields:
    return {"event": event_name(subject.kind, planned.status), **_facts(subject, planned)}


def _event_data(subject: ReportSubject, planned: PlannedReport) -> Fields:
    return {"event": event_name(subject.kind, planned.status), "data": _without_gaps(_facts(subject, planned))}


FORMATS: dict[str, Callable[[ReportSubject, PlannedReport], Fields]] = {
    "status": _status,
    "status_object": _status_object,
    "event": _event,
    "event_data": _event_data,
}


def render(name: str, subject: ReportSubject, planned: PlannedReport) -> str:
    """Return the body of a report."""
    return json.dumps(_without_gaps(FORMATS[name](subject, planned)), ensure_ascii=False)
