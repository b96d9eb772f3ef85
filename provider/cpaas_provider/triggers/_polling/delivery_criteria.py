"""When a wait for deliveries is over: one decision for the sensor and the trigger."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    """

    expected: int
    min_delivered: float | None = None

    def summary(self, counts: DeliveryCounts) -> dict[str, int]:
        """Return the delivery figures, as plain JSON that adds up to ``expected``.

        Recipients of requests of unknown outcome are added to ``expected`` once a report for them arrives.
        """
        expected, known = counts.expected(self.expected), counts.known
        return dict(
            zip(
                FIGURES,
                (expected, counts.delivered, counts.undelivered, counts.in_flight, expected - known),
                strict=True,
            )
        )

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
