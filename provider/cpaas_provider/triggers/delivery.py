"""Waiting on the triggerer for messages to be delivered (docs/guides/delivery-tracking.md)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from airflow.sdk import timezone
from airflow.triggers.base import BaseTrigger, TriggerEvent

from cpaas_provider.store.errors import StoreError
from cpaas_provider.triggers._delivery_goal import ERROR, Goal
from cpaas_provider.triggers._delivery_poller import DeliveryPoller, DeliveryWaiter
from cpaas_provider.triggers._shared import WaitEndedError

LAST_LOOK = 10.0
"""Seconds the last look at the store may take, at the deadline."""

_STORE = "delivery reports"


class DeliveryTrigger(BaseTrigger):
    """Wait until what was sent is delivered, can no longer be, or the deadline has come. Only reads.

    All triggers of a process share one poller of the store: one query a round, whatever their number.

    Fires one event, plain JSON: ``{"outcome", "expected", "delivered", "undelivered", "in_flight", "unreported"}`` with
    the outcome ``done``, ``missed`` or ``timed_out``; or ``{"outcome": "error", "message"}`` where the store keeps no
    reports.

    :param campaigns: references of campaigns, and of requests that belong to none
    :param expected: to how many was surely sent
    :param min_delivered: the share of them to be delivered, above 0 and up to 1, or ``None``
    :param deadline: absolute end of the wait, ISO 8601 with offset; a restarted triggerer keeps it
    :param poke_interval: seconds between two rounds, at least 1; the smallest of all who wait counts
    :param unknown: those of ``campaigns`` that are requests of unknown outcome: ``expected`` does not count them
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
        """Return what the triggerer needs to make this trigger again."""
        return "cpaas_provider.triggers.delivery.DeliveryTrigger", {
            "campaigns": self.campaigns,
            "expected": self.expected,
            "min_delivered": self.min_delivered,
            "deadline": self.deadline,
            "poke_interval": self.poke_interval,
            "unknown": self.unknown,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Have the store read until there is something to tell."""
        try:
            result = await self._wait()
        except WaitEndedError as ended:
            if not isinstance(ended.__cause__, StoreError):
                raise
            result = {"outcome": ERROR, "message": str(ended)}
        yield TriggerEvent(result)

    async def _wait(self) -> dict[str, Any]:
        deadline = datetime.fromisoformat(self.deadline)
        goal = Goal(self.expected, self.min_delivered)
        waiter = DeliveryWaiter(self.campaigns, goal, self.poke_interval, self.unknown)
        with DeliveryPoller.joined(_STORE, waiter) as poller:
            with contextlib.suppress(TimeoutError):
                return await waiter.answer(deadline) or waiter.given_up()
            poller.look_again(waiter)
            with contextlib.suppress(TimeoutError):
                # From now on: a triggerer that was down may be late already.
                return await waiter.answer(timezone.utcnow() + timedelta(seconds=LAST_LOOK)) or waiter.given_up()
        return waiter.given_up()
