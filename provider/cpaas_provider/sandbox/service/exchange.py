"""One request and its answer as plain data between the wire and the service."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from cpaas_provider.sandbox.core.errors import FieldError, ServiceError, invalid_field

MAX_BODY = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Request:
    """What a handler sees of a request: path, query and checked body."""

    method: str
    path: str
    ids: tuple[str, ...] = ()
    query: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """Status, body (None for none) and headers of a response."""

    status: int
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


def dump(value: Any) -> bytes:
    """Write a body."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _finite(literal: str) -> float:
    value = float(literal)
    if not math.isfinite(value):
        raise ValueError("number out of range")
    return value


def read_json(raw: bytes) -> Any:
    """Read a body strictly: UTF-8, finite numbers, whole characters."""
    try:
        text = raw.decode("utf-8")
        value = json.loads(text, parse_constant=_finite, parse_float=_finite)
        if "\\u" in text:
            dump(value)  # half a surrogate pair is no text
    except (ValueError, RecursionError) as error:
        raise invalid_field("body", "the body is not valid JSON", "json_invalid") from error
    return value


def read_query(raw: bytes) -> dict[str, str]:
    """Read a query string; the first value of a name counts."""
    try:
        found = parse_qs(raw.decode("latin-1"), keep_blank_values=True, max_num_fields=100)
    except ValueError as error:
        raise invalid_field("query", "too many query parameters", "too_long") from error
    return {name: values[0] for name, values in found.items()}


def check_content_type(content_type: str) -> None:
    """Refuse a body that does not call itself JSON (INTERFACE.md, opening)."""
    if content_type.partition(";")[0].strip().lower() != "application/json":
        message = "Content-Type must be application/json"
        raise ServiceError(415, message, [FieldError("Content-Type", message, "content_type")])
