"""The trigger that waits for the delivery of messages (docs/guides/delivery-tracking.md)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from airflow.sdk import timezone
from airflow.triggers.base import BaseTrigger, TriggerEvent

from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.triggers._polling.delivery_criteria import ERROR, DeliveryCriteria
from cpaas_provider.triggers._polling.delivery_poller import DeliveryPoller, DeliveryWaiter
from cpaas_provider.triggers._polling.poller import WaitEndedError

LAST_READ_SECONDS = 10.0
"""Seconds that the last read of the database may take, at the deadline."""

_POLLER_KEY = "delivery reports"


class DeliveryTrigger(BaseTrigger):
    """Wait until messages are delivered, can no longer be delivered, or the deadline is over. It only reads.

    All triggers of a process share one poller of the database, which makes one query a round for all of them.

    It fires one event, plain JSON:

    * ``{"outcome", "expected", "delivered", "undelivered", "in_flight", "unreported"}``, where the outcome is
      ``done``, ``missed`` or ``timed_out``
    * ``{"outcome": "error", "message"}``, if the database has no reports

    :param campaigns: references of campaigns, and of requests that belong to none
    :param expected: the number of recipients the service accepted
    :param min_delivered: share of them that must be delivered, above 0 and up to 1, or ``None``
    :param deadline: absolute end of the wait, ISO 8601 with offset. It stays the same if the triggerer restarts
    :param poke_interval: seconds between two rounds, at least 1. The smallest value of all waiting triggers counts
    :param unknown: those of ``campaigns`` that are requests of unknown outcome. ``expected`` does not count them
    """

    def __init__(
        self,
        campaigns: list[str],
        expected: int,
        min_delivered: float | None,
        deadline: str,
        poke_interval: float,
        unknown: Sequence[str] = (),
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow does not annotate it
        self.campaigns = campaigns
        self.expected = expected
        self.min_delivered = min_delivered
        self.deadline = deadline
        self.poke_interval = poke_interval
        self.unknown = list(unknown)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the path and arguments from which the triggerer makes this trigger again."""
        return "cpaas_provider.triggers.delivery.DeliveryTrigger", {
            "campaigns": self.campaigns,
            "expected": self.expected,
            "min_delivered": self.min_delivered,
            "deadline": self.deadline,
            "poke_interval": self.poke_interval,
            "unknown": self.unknown,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, and yield the event."""
        try:
            result = await self._wait()
        except WaitEndedError as ended:
            if not isinstance(ended.__cause__, DatabaseError):
                raise
            result = {"outcome": ERROR, "message": str(ended)}
        yield TriggerEvent(result)

    async def _wait(self) -> dict[str, Any]:
        deadline = datetime.fromisoformat(self.deadline)
        criteria = DeliveryCriteria(self.expected, self.min_delivered)
        waiter = DeliveryWaiter(self.campaigns, criteria, self.poke_interval, self.unknown)
        with DeliveryPoller.joined(_POLLER_KEY, waiter) as poller:
            with contextlib.suppress(TimeoutError):
                return await waiter.result(deadline) or waiter.timeout_result()
            poller.request_last_read(waiter)
            with contextlib.suppress(TimeoutError):
                # Counted from now, because a triggerer that was down may start after the deadline.
                return (
                    await waiter.result(timezone.utcnow() + timedelta(seconds=LAST_READ_SECONDS))
                    or waiter.timeout_result()
                )
        return waiter.timeout_result()
