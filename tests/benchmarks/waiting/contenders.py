"""Whom to compare: triggers that share one poller, and those that each wait for themselves."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import datetime, timedelta
from typing import Any

from airflow.sdk import timezone
from airflow.triggers.base import BaseTrigger

from cpaas_provider.api.errors import CpaasError
from cpaas_provider.hooks.cpaas import CpaasHook
from cpaas_provider.triggers.otp import LAST_READ, OtpStatusTrigger, OtpWatch

CONN_ID = "cpaas_bench"
OUTLIVES = timedelta(hours=1)
"""No deadline comes while it is measured."""


class OneClientEach(OtpStatusTrigger):
    """A client and a loop for each trigger, as it was before they shared a poller."""

    async def _wait(self) -> dict[str, Any] | None:
        watch = OtpWatch(self.expires_in, self.success_statuses, self.failure_statuses)
        deadline = datetime.fromisoformat(self.deadline)
        async with await CpaasHook(self.cpaas_conn_id).get_async_conn() as client:
            while (left := (deadline - timezone.utcnow()).total_seconds()) > 0:
                with contextlib.suppress(TimeoutError, CpaasError):
                    async with asyncio.timeout(left + LAST_READ):
                        result = watch.judge(await client.get_otp(self.otp_id), timezone.utcnow())
                        if result is not None:
                            return result
                await asyncio.sleep(min(self.poke_interval, left))
        return None


def _deadline() -> str:
    return (timezone.utcnow() + OUTLIVES).isoformat()


def shared(number: int, poke_interval: float) -> BaseTrigger:
    return OtpStatusTrigger(CONN_ID, f"otp-{number}", _deadline(), poke_interval)


def one_client_each(number: int, poke_interval: float) -> BaseTrigger:
    return OneClientEach(CONN_ID, f"otp-{number}", _deadline(), poke_interval)


CONTENDERS = {"shared": shared, "each": one_client_each}
