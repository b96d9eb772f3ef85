"""Answers that repeat what the request held: key, numbers, codes and texts, on several lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl

from cpaas_sandbox.core.errors import FieldError, ServiceError
from cpaas_sandbox.service.http import Answer, Wire

# Fields that a client compares, stores as the name of something, or reads as a time or a cell.
_UNCHANGED = {"id", "external_ref", "template_id", "callback", "msisdn", "recipient", "recipients", "to", "columns"}
_UNCHANGED |= {"type", "created_datetime", "updated_datetime", "personalisation", "substitutions"}


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str):
        yield value


def _echo(wire: Wire, more: str | None) -> str:
    """Return all texts of a request, a line each, the API key first."""
    key = (wire.header("authorization") or "").rpartition(" ")[2]
    body = json.loads(wire.received) if wire.received else {}
    query = [value for _, value in parse_qsl(wire.query.decode("latin-1"))]
    return "\n".join(filter(None, [key, more, *query, *_texts(body)]))


def _with(value: Any, echo: str, name: str = "") -> Any:
    if name in _UNCHANGED:
        return value
    if isinstance(value, dict):
        return {key: _with(member, echo, key) for key, member in value.items()}
    if isinstance(value, list):
        return [_with(item, echo) for item in value]
    return f"{value} {echo}" if isinstance(value, str) else value


async def echo(wire: Wire, params: dict[str, Any], answer: Answer, result: str) -> None:
    """Answer with the correct response, and with the request in each of its texts."""
    told = _echo(wire, params["text"])
    body = _with(answer.body, told)
    records = body if isinstance(body, list) else [body]
    for record in records:
        if isinstance(record, dict):
            record |= {"note": told, "description": told}
    await wire.answer(Answer(answer.status, body))


async def echo_rejection(wire: Wire, params: dict[str, Any], answer: Answer, result: str) -> None:
    """Reject the request with a message and an error that repeat it."""
    told = _echo(wire, params["text"])
    await wire.answer(Answer(400, ServiceError(400, told, [FieldError("request", told, told)]).body()))
