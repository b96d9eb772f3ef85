"""The base of the triggers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from airflow.triggers.base import BaseTrigger


@dataclass(eq=False, repr=False)
class DataTrigger(BaseTrigger):
    """A trigger that is a dataclass: its fields are its arguments, as plain JSON."""

    def __post_init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow does not annotate it

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the path and arguments from which the triggerer makes this trigger again."""
        return f"{type(self).__module__}.{type(self).__qualname__}", asdict(self)
