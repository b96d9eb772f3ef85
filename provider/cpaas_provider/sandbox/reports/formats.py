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
class ReportPayload:
    """What a report says, however it is written."""

    kind: str
    message_id: str
    external_ref: str | None
    recipient: str
    status: str
    reason: str | None
    moment: float


Fields = dict[str, Any]


def _without_gaps(fields: Fields) -> Fields:
    return {name: value for name, value in fields.items() if value is not None}


def _status(payload: ReportPayload) -> Fields:
    return {
        "id": payload.message_id,
        "channel": payload.kind,
        "recipient": payload.recipient,
        "status": payload.status,
        "reason": payload.reason,
        "external_ref": payload.external_ref,
        "created_datetime": timestamp(payload.moment),
    }


def _status_object(payload: ReportPayload) -> Fields:
    airtime = payload.kind == "airtime"
    description = payload.reason or _DESCRIPTIONS.get(payload.status, payload.status.capitalize())
    return {
        "transaction_id" if airtime else "message_id": payload.message_id,
        "channel": payload.kind,
        "msisdn" if airtime else "to": payload.recipient,
        "status": {"text": payload.status, "description": description},
        "client_ref": payload.external_ref,
        "created_datetime": timestamp(payload.moment),
    }


def event_name(kind: str, status: str) -> str:
    """Return what a status is called as an event, such as ``text.delivered``."""
    return f"{TOPICS[kind]}.{status}"


def _facts(payload: ReportPayload) -> Fields:
    return {name: value for name, value in _status(payload).items() if name not in ("channel", "status")}


def _event(payload: ReportPayload) -> Fields:
    return {"event": event_name(payload.kind, payload.status), **_facts(payload)}


def _event_data(payload: ReportPayload) -> Fields:
    return {"event": event_name(payload.kind, payload.status), "data": _without_gaps(_facts(payload))}


FORMATS: dict[str, Callable[[ReportPayload], Fields]] = {
    "status": _status,
    "status_object": _status_object,
    "event": _event,
    "event_data": _event_data,
}


def render(name: str, payload: ReportPayload) -> str:
    """Return the body of a report."""
    return json.dumps(_without_gaps(FORMATS[name](payload)), ensure_ascii=False)
