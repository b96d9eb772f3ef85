"""Waiting for a person to enter a passcode."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import timezone
from airflow.triggers.base import BaseTrigger, TriggerEvent

from cpaas_provider.api.errors import CpaasError
from cpaas_provider.triggers._otp_poller import OtpPoller, OtpWaiter
from cpaas_provider.triggers._shared import WaitEndedError

if TYPE_CHECKING:
    from cpaas_provider.api.models.otp import OtpToken

LAST_READ = 5.0
"""Seconds a read may go on past the deadline: the last one begins there."""
TIMED_OUT = "timed_out"
ERROR = "error"


@dataclass(frozen=True)
class OtpWatch:
    """How a passcode is watched; one judgement for the sensor and the trigger.

    :param expires_in: minutes the code is valid, or ``None`` where only the service's word counts
    :param success_statuses: ``status_desc`` words that mean verified, or ``None`` for the usual one
    :param failure_statuses: ``status_desc`` words that end the wait, or ``None`` for the usual ones
    """

    expires_in: int | None = None
    success_statuses: Sequence[str] | None = None
    failure_statuses: Sequence[str] | None = None

    def judge(self, record: OtpToken, now: datetime) -> dict[str, Any] | None:
        """Return what became of the passcode as plain JSON, or ``None`` while it is open.

        The result is ``{"outcome", "id", "status", "status_desc"}``, with ``"by": "clock"`` where the service still
        calls the passcode open although its time is over.
        """
        from cpaas_provider.api.models.otp import FAILURE_STATUSES, SUCCESS_STATUSES, OtpOutcome

        success = SUCCESS_STATUSES if self.success_statuses is None else self.success_statuses
        failure = FAILURE_STATUSES if self.failure_statuses is None else self.failure_statuses
        outcome = record.outcome(success, failure)
        result = {"outcome": outcome.value, "id": record.id, "status": record.status, "status_desc": record.status_desc}
        if outcome is not OtpOutcome.PENDING:
            return result
        if self.expires_in is not None and now >= record.expires_at(self.expires_in):
            return {**result, "outcome": OtpOutcome.EXPIRED.value, "by": "clock"}
        return None


class OtpStatusTrigger(BaseTrigger):
    """Read a passcode's record until it is final, its time is over, or the deadline has come. Only reads.

    All triggers of a process that wait on one connection share a client and its rate: each passcode is read once a
    round, which takes as long as there are passcodes for the rate, the soonest to expire first.

    Fires one event, plain JSON without code or number: ``{"outcome", "id", "status", "status_desc"}``, or
    ``{"outcome": "timed_out", "id"}``, or ``{"outcome": "error", "id", "message"}``.

    :param cpaas_conn_id: the connection to use
    :param otp_id: the passcode's id
    :param deadline: absolute end of the wait, ISO 8601 with offset; a restarted triggerer keeps it
    :param poke_interval: seconds between two reads, at least 1
    :param expires_in: minutes the code is valid, or ``None``
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
        """Return what the triggerer needs to make this trigger again."""
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
        """Have the passcode read until there is something to tell."""
        try:
            result = await self._wait()
        except WaitEndedError as ended:
            if not isinstance(ended.__cause__, CpaasError):
                raise
            result = {"outcome": ERROR, "id": self.otp_id, "message": str(ended)}
        yield TriggerEvent(result or {"outcome": TIMED_OUT, "id": self.otp_id})

    async def _wait(self) -> dict[str, Any] | None:
        """Return what became of the passcode, or ``None`` where it is open at the deadline."""
        watch = OtpWatch(self.expires_in, self.success_statuses, self.failure_statuses)
        deadline = datetime.fromisoformat(self.deadline)
        waiter = OtpWaiter(self.otp_id, watch, self.poke_interval, deadline)
        with OtpPoller.joined(self.cpaas_conn_id, waiter) as poller:
            with contextlib.suppress(TimeoutError):
                return await waiter.answer(deadline)
            if poller.hurry(waiter, LAST_READ):
                with contextlib.suppress(TimeoutError):
                    # From now on: a triggerer that was down may be late already.
                    return await waiter.answer(timezone.utcnow() + timedelta(seconds=LAST_READ))
        return None
