"""Let time pass without holding a worker slot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

from airflow.sdk import timezone
from airflow.triggers.base import BaseTrigger, TriggerEvent

_LONGEST_SLEEP = 60.0


class WaitTrigger(BaseTrigger):
    """Fire at a moment; a restarted triggerer waits for the same moment.

    :param until: the moment, ISO 8601 with offset
    """

    def __init__(self, until: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow does not annotate it
        self.until = until

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what the triggerer needs to make this trigger again."""
        return "cpaas_provider.triggers.wait.WaitTrigger", {"until": self.until}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, in naps, because the wall clock may be set meanwhile."""
        until = datetime.fromisoformat(self.until)
        while (left := (until - timezone.utcnow()).total_seconds()) > 0:  # noqa: ASYNC110 - time itself is what is awaited
            await asyncio.sleep(min(left, _LONGEST_SLEEP))
        yield TriggerEvent({"until": self.until})
