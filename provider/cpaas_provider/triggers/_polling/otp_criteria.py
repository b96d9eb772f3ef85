"""When a wait for a passcode is over: one decision for the sensor and the trigger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cpaas_provider.api.models.otp import OtpToken


@dataclass(frozen=True)
class OtpCriteria:
    """How a passcode is judged, by the sensor and the trigger alike.

    :param expires_in: minutes for which the code is valid, or ``None`` if only the status counts
    :param success_statuses: values of ``status_desc`` that mean verified, or ``None`` for the usual one
    :param failure_statuses: values of ``status_desc`` that end the wait, or ``None`` for the usual ones
    """

    expires_in: int | None = None
    success_statuses: Sequence[str] | None = None
    failure_statuses: Sequence[str] | None = None

    def evaluate(self, record: OtpToken, now: datetime) -> dict[str, Any] | None:
        """Return the outcome of the passcode as plain JSON, or ``None`` while it is pending.

        The result is ``{"outcome", "id", "status", "status_desc"}``, with ``"by": "clock"`` if the passcode expired
        and its status is still pending.
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
