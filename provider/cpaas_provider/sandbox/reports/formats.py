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
class Told:
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


def _status(told: Told) -> Fields:
    return {
        "id": told.message_id,
        "channel": told.kind,
        "recipient": told.recipient,
        "status": told.status,
        "reason": told.reason,
        "external_ref": told.external_ref,
        "created_datetime": timestamp(told.moment),
    }


def _status_object(told: Told) -> Fields:
    airtime = told.kind == "airtime"
    description = told.reason or _DESCRIPTIONS.get(told.status, told.status.capitalize())
    return {
        "transaction_id" if airtime else "message_id": told.message_id,
        "channel": told.kind,
        "msisdn" if airtime else "to": told.recipient,
        "status": {"text": told.status, "description": description},
        "client_ref": told.external_ref,
        "created_datetime": timestamp(told.moment),
    }


def event_name(kind: str, status: str) -> str:
    """Return what a status is called as an event, such as ``text.delivered``."""
    return f"{TOPICS[kind]}.{status}"


def _facts(told: Told) -> Fields:
    return {name: value for name, value in _status(told).items() if name not in ("channel", "status")}


def _event(told: Told) -> Fields:
    return {"event": event_name(told.kind, told.status), **_facts(told)}


def _event_data(told: Told) -> Fields:
    return {"event": event_name(told.kind, told.status), "data": _without_gaps(_facts(told))}


SHAPES: dict[str, Callable[[Told], Fields]] = {
    "status": _status,
    "status_object": _status_object,
    "event": _event,
    "event_data": _event_data,
}
EVENT_SHAPES = ("event", "event_data")


def write(shape: str, told: Told) -> str:
    """Return the body of a report."""
    return json.dumps(_without_gaps(SHAPES[shape](told)), ensure_ascii=False)
