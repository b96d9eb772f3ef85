"""When a wait is over: one decision for the sensor and the trigger."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cpaas_provider.api.models.otp import OtpToken
    from cpaas_provider.delivery.tracking.counts import DeliveryCounts

DONE, MISSED, TIMED_OUT, ERROR = "done", "missed", "timed_out", "error"
FIGURES = ("expected", "delivered", "undelivered", "in_flight", "unreported")

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class DeliveryCriteria:
    """When the wait is over.

    :param expected: the number of recipients accepted
    :param min_delivered: the share of them that must be delivered, above 0 and up to 1; ``None`` to wait until each of
        them has a final status, delivered or not
    :param unknown: the number of recipients of unknown outcome to wait for, too
    """

    expected: int
    min_delivered: float | None = None
    unknown: int = 0

    def summary(self, counts: DeliveryCounts) -> dict[str, int]:
        """Return the delivery figures, as plain JSON that adds up to ``expected``.

        Recipients of requests of unknown outcome are added to ``expected`` once a report for them arrives. Those to
        wait for are added at once.
        """
        expected = counts.expected(self.expected + counts.unknown_without_report(self.unknown))
        figures = (expected, counts.delivered, counts.undelivered, counts.in_flight, expected - counts.known)
        return dict(zip(FIGURES, figures, strict=True))

    def evaluate(self, counts: DeliveryCounts) -> dict[str, Any] | None:
        """Return how the wait ended, ``done`` or ``missed``, with the figures; ``None`` while it continues."""
        summary = self.summary(counts)
        outcome = self._outcome(**summary)
        return {"outcome": outcome, **summary} if outcome else None

    def evaluate_timeout(self, counts: DeliveryCounts) -> dict[str, Any]:
        """Return the same for a wait that ends now."""
        return self.evaluate(counts) or {"outcome": TIMED_OUT, **self.summary(counts)}

    def _outcome(self, expected: int, delivered: int, undelivered: int, in_flight: int, unreported: int) -> str | None:
        if self.min_delivered is None:
            return None if in_flight or unreported else DONE
        needed = math.ceil(self.min_delivered * expected - _ROUNDING)
        if delivered >= needed:
            return DONE
        return MISSED if expected - undelivered < needed else None


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
