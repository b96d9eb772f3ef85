"""The trigger that waits for a time without a worker slot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

from airflow.sdk import timezone
from airflow.triggers.base import BaseTrigger, TriggerEvent

_LONGEST_SLEEP = 60.0


class WaitTrigger(BaseTrigger):
    """Fire at a time. If the triggerer restarts, the trigger fires at the same time.

    :param until: the time, ISO 8601 with offset
    """

    def __init__(self, until: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow does not annotate it
        self.until = until

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the path and arguments from which the triggerer makes this trigger again."""
        return "cpaas_provider.triggers.wait.WaitTrigger", {"until": self.until}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait in short sleeps, because the wall clock may be set in between."""
        until = datetime.fromisoformat(self.until)
        while (left := (until - timezone.utcnow()).total_seconds()) > 0:  # noqa: ASYNC110 - time itself is what is awaited
            await asyncio.sleep(min(left, _LONGEST_SLEEP))
        yield TriggerEvent({"until": self.until})
