"""Whom to compare: triggers that share one poller, and those that each wait for themselves."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from airflow.sdk import timezone
from airflow.triggers.base import BaseTrigger

from cpaas_provider.api.errors import CpaasError
from cpaas_provider.database.database import Database
from cpaas_provider.delivery.tracking.counts import DeliveryCounts, open_report_database, read_counts
from cpaas_provider.hooks.cpaas import CpaasHook
from cpaas_provider.triggers._polling.criteria import DeliveryCriteria, OtpCriteria
from cpaas_provider.triggers.delivery import DeliveryTrigger
from cpaas_provider.triggers.otp import LAST_READ_SECONDS, OtpStatusTrigger
from tests.benchmarks.waiting.messages import CONN_ID, PEOPLE, Messages

OUTLIVES = timedelta(hours=1)
"""No deadline comes while it is measured."""
DELIVERY_INTERVAL = 1.0
"""What the sensor says where nobody else does."""


class OneClientEach(OtpStatusTrigger):
    """A client and a loop for each trigger, as it was before they shared a poller."""

    async def _wait(self) -> dict[str, Any] | None:
        criteria = OtpCriteria(self.expires_in, self.success_statuses, self.failure_statuses)
        deadline = datetime.fromisoformat(self.deadline)
        async with await CpaasHook(self.cpaas_conn_id).get_async_conn() as client:
            while (left := (deadline - timezone.utcnow()).total_seconds()) > 0:
                with contextlib.suppress(TimeoutError, CpaasError):
                    async with asyncio.timeout(left + LAST_READ_SECONDS):
                        result = criteria.evaluate(await client.get_otp(self.otp_id), timezone.utcnow())
                        if result is not None:
                            return result
                await asyncio.sleep(min(self.poke_interval, left))
        return None


class OneQueryEach(DeliveryTrigger):
    """A loop and a query for each trigger. They share connections: PostgreSQL takes a hundred by default."""

    async def _wait(self) -> dict[str, Any]:
        criteria, counts = DeliveryCriteria(self.expected, self.min_delivered), DeliveryCounts()
        deadline = datetime.fromisoformat(self.deadline)
        while (left := (deadline - timezone.utcnow()).total_seconds()) > 0:
            counts = await asyncio.to_thread(self._counts)
            if result := criteria.evaluate(counts):
                return result
            await asyncio.sleep(min(self.poke_interval, left))
        return criteria.evaluate_timeout(counts)

    def _counts(self) -> DeliveryCounts:
        with common_store().connect() as connection:
            return sum(read_counts(connection, self.campaigns).values(), start=DeliveryCounts())


@functools.cache
def common_store() -> Database:
    return open_report_database()


KINDS: dict[str, tuple[type[OtpStatusTrigger], type[DeliveryTrigger]]] = {
    "shared": (OtpStatusTrigger, DeliveryTrigger),
    "each": (OneClientEach, OneQueryEach),
}


def triggers(contender: str, passcodes: int, messages: Messages, poke_interval: float) -> Iterator[BaseTrigger]:
    """Yield those that wait for passcodes and those that wait for delivery, in turns."""
    of_otp, of_delivery = KINDS[contender]
    deadline = (timezone.utcnow() + OUTLIVES).isoformat()
    waited_for = [(name, PEOPLE) for name in messages.campaigns] + [(name, 1) for name in messages.singles]
    for number in range(max(passcodes, len(waited_for))):
        if number < passcodes:
            yield of_otp(CONN_ID, f"otp-{number}", deadline, poke_interval)
        if number < len(waited_for):
            name, expected = waited_for[number]
            yield of_delivery([name], expected, None, deadline, DELIVERY_INTERVAL)
