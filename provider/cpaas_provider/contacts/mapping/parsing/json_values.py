"""Cells of column types that the contract does not know: any JSON value, as it is."""

from __future__ import annotations

import json
from typing import Any

from cpaas_provider.contacts.mapping.parsing.values import MAX_CELL_BYTES, MAX_LEVELS, checked_text


def parse_json(value: Any) -> Any:
    """Return a value that JSON has, as it is.

    :raises ValueError: when JSON has no such value, or it is too long or cannot be sent
    """
    if isinstance(value, str):
        return checked_text(value)
    try:
        written = json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
        if json.loads(written) != value:
            raise ValueError("must be a JSON value")
    except (TypeError, ValueError, RecursionError):
        raise ValueError("must be a JSON value") from None
    if _is_deeper(value, MAX_LEVELS):
        raise ValueError(f"is nested more than {MAX_LEVELS} levels deep")
    if len(written) > MAX_CELL_BYTES:
        raise ValueError(f"is longer than {MAX_CELL_BYTES} bytes")
    return value


def _is_deeper(value: Any, levels: int) -> bool:
    if not isinstance(value, (list, dict)):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_is_deeper(one, levels - 1) for one in inner)
