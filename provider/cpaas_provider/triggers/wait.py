"""The trigger that waits for a time without a worker slot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime

from airflow.sdk import timezone
from airflow.triggers.base import TriggerEvent

from cpaas_provider.triggers._base import DataTrigger

_LONGEST_SLEEP = 60.0


@dataclass(eq=False, repr=False)
class WaitTrigger(DataTrigger):
    """Fire at a time. If the triggerer restarts, the trigger fires at the same time.

    :param until: the time, ISO 8601 with offset
    """

    until: str

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait in short sleeps, because the wall clock may be set in between."""
        until = datetime.fromisoformat(self.until)
        while (left := (until - timezone.utcnow()).total_seconds()) > 0:  # noqa: ASYNC110 - time itself is what is awaited
            await asyncio.sleep(min(left, _LONGEST_SLEEP))
        yield TriggerEvent({"until": self.until})
