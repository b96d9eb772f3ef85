"""Reads single values of a body: those that say nothing, codes, and the values at any depth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

from cpaas_provider.api.bounds import is_nothing

NOT_JSON = object()
"""What a body is read as that is no JSON."""
_BODY_SUCCESS_TYPE = "success"


class Pairs(tuple[tuple[str, Any], ...]):
    """The fields of a JSON object, also those that it has twice. For ``object_pairs_hook``."""

    __slots__ = ()


def is_empty(value: Any) -> bool:
    """Tell whether a value says nothing, such as ``null``, ``false`` or an object whose values say nothing."""
    return all(is_nothing(leaf) for _, leaf in leaves(value))


def named_code(value: Any) -> int:
    """Return an HTTP status as a number, also from text of digits; 0 if there is none."""
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit() and len(value) <= len("  503  "):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e9 or value != int(value):
        return 0
    return int(value)


def leaves(body: Any) -> Iterator[tuple[str, Any]]:
    """Yield every value of a body that is no object and no list, with the name of its field."""
    pending: list[tuple[str, Any]] = [("", body)]
    while pending:
        name, value = pending.pop()
        if isinstance(value, Mapping):
            pending += value.items()
        elif isinstance(value, Pairs):
            pending += value
        elif isinstance(value, list):
            pending += [(name, part) for part in value]
        else:
            yield name, value


def is_refunded(body: Any) -> bool:
    """Tell whether a field of a body, at any depth, shows that the charge was refunded."""
    return any(name == "refunded" and not is_nothing(value) for name, value in leaves(body))


def _is_whole(value: Any) -> bool:
    if isinstance(value, float):
        return value.is_integer()
    return isinstance(value, int) and not isinstance(value, bool)


def as_error_body(body: Any) -> Mapping[str, Any]:
    """Return a body that may have the error shape of contract.md 7; for any other, an empty one."""
    return body if isinstance(body, Mapping) and "message" in body else {}


def is_error(error_body: Mapping[str, Any]) -> bool:
    """Tell whether a body looks like the error shape of contract.md 7, under any HTTP status."""
    if error_body.get("errors"):
        return True
    status = error_body.get("status", 0)
    if not _is_whole(status) or status < HTTPStatus.CONTINUE:
        # Not an HTTP status, but for example that of a passcode.
        return False
    if status >= HTTPStatus.BAD_REQUEST:
        return True
    if kind := error_body.get("type"):
        return str(kind).lower() != _BODY_SUCCESS_TYPE
    return "errors" in error_body and "data" not in error_body


def named_status(body: Any) -> int:
    """Return the status that an error body names (contract.md 7), 0 if it names none. Text is no status."""
    status = as_error_body(body).get("status")
    return max(0, int(status or 0)) if _is_whole(status) else 0
