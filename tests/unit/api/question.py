"""A request and its answer, as they go over the wire."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Question:
    """A request: its operation, and its fields as they go over the wire."""

    operation: str
    fields: Mapping[str, Any]

    @property
    def recipients(self) -> tuple[str, ...]:
        return tuple(str(self.fields.get("recipients", "")).split(",")) if "recipients" in self.fields else ()


@dataclass(frozen=True)
class Answer:
    """A response as it came over the wire."""

    status: int
    body: bytes = b""
    retry_after: str | None = None
