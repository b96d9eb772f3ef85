"""The formats of a delivery report. contract.md 6 shows none, so settings choose one of four."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cpaas_sandbox.core.clock import timestamp

# kind -> statuses that are events; a message in flight has none
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
    """The message or purchase that reports are about, and the callback URL of its request."""

    kind: str
    message_id: str
    external_ref: str | None
    callback: str | None


@dataclass(frozen=True, slots=True)
class PlannedReport:
    """One status of a recipient to report, not before ``due``."""

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


def _event(subject: ReportSubject, planned: PlannedReport) -> Fields:
    topic = "text" if subject.kind == "sms" else subject.kind
    fields = {name: value for name, value in _status(subject, planned).items() if name not in ("channel", "status")}
    return {"event": f"{topic}.{planned.status}", **fields}


def _event_data(subject: ReportSubject, planned: PlannedReport) -> Fields:
    fields = _event(subject, planned)
    return {"event": fields.pop("event"), "data": _without_gaps(fields)}


FORMATS: dict[str, Callable[[ReportSubject, PlannedReport], Fields]] = {
    "status": _status,
    "status_object": _status_object,
    "event": _event,
    "event_data": _event_data,
}


def render(name: str, subject: ReportSubject, planned: PlannedReport) -> str:
    """Return the body of a report."""
    return json.dumps(_without_gaps(FORMATS[name](subject, planned)), ensure_ascii=False)
