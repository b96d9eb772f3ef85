"""The trigger that waits for a passcode to be verified."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

from airflow.sdk import timezone
from airflow.triggers.base import BaseTrigger, TriggerEvent

from cpaas_provider.api.errors import CpaasError
from cpaas_provider.triggers._polling.otp_criteria import OtpCriteria
from cpaas_provider.triggers._polling.otp_poller import OtpPoller, OtpWaiter
from cpaas_provider.triggers._polling.poller import WaitEndedError

LAST_READ_SECONDS = 5.0
"""Seconds a read may go on past the deadline: the last one begins there."""
TIMED_OUT = "timed_out"
ERROR = "error"


class OtpStatusTrigger(BaseTrigger):
    """Read a passcode's record until its status is final, it expires, or the deadline is over. It only reads.

    All triggers of a process on one connection share a client and its rate. Each passcode is read once a round, the
    soonest to expire first. A round takes longer if there are more passcodes than the rate allows.

    It fires one event, plain JSON without code or number:

    * ``{"outcome", "id", "status", "status_desc"}``
    * ``{"outcome": "timed_out", "id"}``
    * ``{"outcome": "error", "id", "message"}``

    :param cpaas_conn_id: the connection to use
    :param otp_id: the passcode's id
    :param deadline: absolute end of the wait, ISO 8601 with offset. It stays the same if the triggerer restarts
    :param poke_interval: seconds between two reads, at least 1
    :param expires_in: minutes for which the code is valid, or ``None``
    :param success_statuses: see ``OtpStatusSensor``
    :param failure_statuses: see ``OtpStatusSensor``
    """

    def __init__(
        self,
        cpaas_conn_id: str,
        otp_id: str,
        deadline: str,
        poke_interval: float,
        expires_in: int | None = None,
        success_statuses: list[str] | None = None,
        failure_statuses: list[str] | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow does not annotate it
        self.cpaas_conn_id = cpaas_conn_id
        self.otp_id = otp_id
        self.deadline = deadline
        self.poke_interval = poke_interval
        self.expires_in = expires_in
        self.success_statuses = success_statuses
        self.failure_statuses = failure_statuses

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the path and arguments from which the triggerer makes this trigger again."""
        return "cpaas_provider.triggers.otp.OtpStatusTrigger", {
            "cpaas_conn_id": self.cpaas_conn_id,
            "otp_id": self.otp_id,
            "deadline": self.deadline,
            "poke_interval": self.poke_interval,
            "expires_in": self.expires_in,
            "success_statuses": self.success_statuses,
            "failure_statuses": self.failure_statuses,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, and yield the event."""
        try:
            result = await self._wait()
        except WaitEndedError as ended:
            if not isinstance(ended.__cause__, CpaasError):
                raise
            result = {"outcome": ERROR, "id": self.otp_id, "message": str(ended)}
        yield TriggerEvent(result or {"outcome": TIMED_OUT, "id": self.otp_id})

    async def _wait(self) -> dict[str, Any] | None:
        """Return the outcome of the passcode, or ``None`` if it is pending at the deadline."""
        criteria = OtpCriteria(self.expires_in, self.success_statuses, self.failure_statuses)
        deadline = datetime.fromisoformat(self.deadline)
        waiter = OtpWaiter(self.otp_id, criteria, self.poke_interval, deadline)
        with OtpPoller.joined(self.cpaas_conn_id, waiter) as poller:
            with contextlib.suppress(TimeoutError):
                return await waiter.result(deadline)
            if poller.request_last_read(waiter, LAST_READ_SECONDS):
                with contextlib.suppress(TimeoutError):
                    # Counted from now, because a triggerer that was down may start after the deadline.
                    return await waiter.result(timezone.utcnow() + timedelta(seconds=LAST_READ_SECONDS))
        return None
