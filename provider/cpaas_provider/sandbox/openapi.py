"""The service's OpenAPI document."""

from __future__ import annotations

from typing import Any


def document(service: Any) -> dict[str, Any]:
    """Return the document."""
    return {}
