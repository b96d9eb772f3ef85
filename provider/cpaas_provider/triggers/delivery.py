"""The trigger that waits for the delivery of messages (docs/guides/delivery-tracking.md)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from airflow.triggers.base import TriggerEvent

from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.triggers._base import DataTrigger
from cpaas_provider.triggers._polling.criteria import ERROR, DeliveryCriteria, ToResolve
from cpaas_provider.triggers._polling.delivery_poller import DeliveryPoller, DeliveryWaiter
from cpaas_provider.triggers._polling.poller import WaitEndedError

LAST_READ_SECONDS = 10.0
"""Seconds that the last read of the database may take, at the deadline."""

_POLLER_KEY = "delivery reports"


@dataclass(eq=False, repr=False)
class DeliveryTrigger(DataTrigger):
    """Wait until messages are delivered, can no longer be delivered, or the deadline is over. It only reads.

    All triggers of a process share one poller of the database, which makes one query a round for all of them.

    It fires one event, plain JSON:

    * ``{"outcome", "expected", "delivered", "undelivered", "in_flight", "unreported"}``, where the outcome is
      ``done``, ``missed``, ``timed_out``, or ``nothing`` if there is no recipient to wait for
    * ``{"outcome": "timed_out"}``, if the database could never be read
    * ``{"outcome": "error", "message"}``, if the database has no reports, or no record of a reference

    :param campaigns: references of campaigns, and of requests that belong to none
    :param expected: the number of recipients the service accepted
    :param min_delivered: share of them that must be delivered, above 0 and up to 1, or ``None``
    :param deadline: absolute end of the wait, ISO 8601 with offset. It stays the same if the triggerer restarts
    :param poke_interval: seconds between two rounds, at least 1. The smallest value of all waiting triggers counts
    :param unknown: those of ``campaigns`` that are requests of unknown outcome. ``expected`` does not count them
    :param unknown_recipients: the number of recipients of unknown outcome to wait for, too
    :param without_count: those of ``campaigns`` whose recipients ``expected`` does not count. The database has their
        number
    :param to_resolve: those of ``campaigns`` that had recipients of unknown outcome, each with its numbers of
        recipients accepted and of unknown outcome to wait for, and whether the latter are waited for. The database has
        newer numbers
    """

    campaigns: list[str]
    expected: int
    min_delivered: float | None
    deadline: str
    poke_interval: float
    unknown: list[str] = field(default_factory=list)
    unknown_recipients: int = 0
    without_count: list[str] = field(default_factory=list)
    to_resolve: list[list[Any]] = field(default_factory=list)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, and yield the event."""
        criteria = DeliveryCriteria(
            self.expected,
            self.min_delivered,
            self.unknown_recipients,
            tuple(self.without_count),
            tuple(ToResolve(*numbers) for numbers in self.to_resolve),
            frozenset(self.unknown),
        )
        waiter = DeliveryWaiter(self.campaigns, criteria, self.poke_interval)
        deadline = datetime.fromisoformat(self.deadline)
        try:
            result = await DeliveryPoller.wait(_POLLER_KEY, waiter, deadline, LAST_READ_SECONDS)
        except WaitEndedError as ended:
            if not isinstance(ended.__cause__, DatabaseError):
                raise
            result = {"outcome": ERROR, "message": str(ended)}
        yield TriggerEvent(result or waiter.timeout_result())
