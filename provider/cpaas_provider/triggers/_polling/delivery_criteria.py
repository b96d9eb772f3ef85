"""When a wait for deliveries is over; one judgement for the sensor and the trigger."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cpaas_provider.delivery.tracking.counts import Counts

DONE, MISSED, TIMED_OUT, ERROR = "done", "missed", "timed_out", "error"
FIGURES = ("expected", "delivered", "undelivered", "in_flight", "unreported")

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class DeliveryCriteria:
    """What is waited for.

    :param expected: to how many was surely sent
    :param min_delivered: the share of them that must be delivered, above 0 and up to 1; ``None`` to wait until it is
        known of all of them what became of them, whatever that is
    """

    expected: int
    min_delivered: float | None = None

    def summary(self, counts: Counts) -> dict[str, int]:
        """Return how far deliveries are, as plain JSON that adds up to ``expected``.

        Nothing is known of the unreported. Recipients of requests of unknown outcome are added to ``expected`` once
        they are reported on.
        """
        expected, known = counts.expected(self.expected), counts.known
        return dict(
            zip(
                FIGURES,
                (expected, counts.delivered, counts.undelivered, counts.in_flight, expected - known),
                strict=True,
            )
        )

    def evaluate(self, counts: Counts) -> dict[str, Any] | None:
        """Return how the wait ended, ``done`` or ``missed``, with the standing; ``None`` while it goes on."""
        summary = self.summary(counts)
        outcome = self._outcome(**summary)
        return {"outcome": outcome, **summary} if outcome else None

    def evaluate_timeout(self, counts: Counts) -> dict[str, Any]:
        """Return the same for a wait that ends now."""
        return self.evaluate(counts) or {"outcome": TIMED_OUT, **self.summary(counts)}

    def _outcome(self, expected: int, delivered: int, undelivered: int, in_flight: int, unreported: int) -> str | None:
        if self.min_delivered is None:
            return None if in_flight or unreported else DONE
        needed = math.ceil(self.min_delivered * expected - _ROUNDING)
        if delivered >= needed:
            return DONE
        return MISSED if expected - undelivered < needed else None
