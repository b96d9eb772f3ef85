"""The trigger that waits for a passcode to be verified."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime

from airflow.triggers.base import TriggerEvent

from cpaas_provider.api.errors import CpaasError
from cpaas_provider.triggers._base import DataTrigger
from cpaas_provider.triggers._polling.criteria import TIMED_OUT, OtpCriteria, otp_error_result
from cpaas_provider.triggers._polling.otp_poller import OtpPoller, OtpWaiter
from cpaas_provider.triggers._polling.poller import WaitEndedError

LAST_READ_SECONDS = 5.0
"""Seconds a read may go on past the deadline: the last one begins there."""


@dataclass(eq=False, repr=False)
class OtpStatusTrigger(DataTrigger):
    """Read a passcode's record until its status is final, it expires, or the deadline is over. It only reads.

    All triggers of a process on one connection share a client and its rate. Each passcode is read once a round, the
    soonest to expire first. A round takes longer if there are more passcodes than the rate allows.

    It fires one event, plain JSON without code or number:

    * ``{"outcome", "id", "status", "status_desc"}``
    * ``{"outcome": "timed_out", "id"}``
    * ``{"outcome": "not_found", "id", "message"}``, if the service has no such passcode
    * ``{"outcome": "error", "id", "message"}``, with ``"retry": True`` if a retry of the task may end otherwise

    :param cpaas_conn_id: the connection to use
    :param otp_id: the passcode's id
    :param deadline: absolute end of the wait, ISO 8601 with offset. It stays the same if the triggerer restarts
    :param poke_interval: seconds between two reads, at least 1
    :param expires_in: minutes for which the code is valid, or ``None``
    :param success_statuses: see ``OtpStatusSensor``
    :param failure_statuses: see ``OtpStatusSensor``
    :param expires_by: the moment by which the passcode has expired, ISO 8601 with offset, or ``None``
    """

    cpaas_conn_id: str
    otp_id: str
    deadline: str
    poke_interval: float
    expires_in: int | None = None
    success_statuses: list[str] | None = None
    failure_statuses: list[str] | None = None
    expires_by: str | None = None

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, and yield the event."""
        expires_by = None if self.expires_by is None else datetime.fromisoformat(self.expires_by)
        criteria = OtpCriteria(self.expires_in, self.success_statuses, self.failure_statuses, expires_by)
        deadline = datetime.fromisoformat(self.deadline)
        waiter = OtpWaiter(self.otp_id, criteria, self.poke_interval, deadline)
        try:
            result = await OtpPoller.wait(self.cpaas_conn_id, waiter, deadline, LAST_READ_SECONDS)
        except WaitEndedError as ended:
            cause = ended.__cause__
            if not isinstance(cause, (CpaasError, WaitEndedError)):
                raise
            result = otp_error_result(self.otp_id, cause)
        yield TriggerEvent(result or {"outcome": TIMED_OUT, "id": self.otp_id})
