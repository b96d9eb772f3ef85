"""The circuit breaker: ends a campaign whose requests are all rejected in the same way."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from cpaas_provider.api.errors import CpaasRejectedError
from cpaas_provider.sending.errors import SendingError

MOST_IDENTICAL_REJECTIONS = 20
"""More than bisecting needs to find one invalid recipient among 100,000."""

_WITH_DIGITS = re.compile(r"\S*\d\S*")


class CircuitOpenError(SendingError):
    """The service fails or rejects every request in the same way, so no further request was sent."""

    permanent = True


@dataclass(eq=False)
class RejectionBreaker:
    """Counts equal rejections in a row.

    Without it, bisecting would make thousands of requests that are all rejected for the same reason.

    :param limit: the number of equal rejections that opens the circuit; ``None`` for never
    """

    limit: int | None
    count: int = field(default=0, init=False)
    _last: tuple[int | None, str] | None = field(default=None, init=False)

    def accepted(self) -> None:
        """Reset the count, because the service accepted a request."""
        self._last, self.count = None, 0

    def rejected(self, error: CpaasRejectedError) -> bool:
        """Count a rejection, and return whether the circuit is open."""
        if error.rejected_recipients:
            # The named recipients are the cause, not the request.
            return False
        # Error messages may have an id that differs for each request.
        rejection = error.status, _WITH_DIGITS.sub("#", str(error))
        self.count = self.count + 1 if rejection == self._last else 1
        self._last = rejection
        return self.limit is not None and self.count >= self.limit

    def opened(self, error: CpaasRejectedError) -> CircuitOpenError:
        """Return the error that ends the campaign."""
        return CircuitOpenError(
            f"The service rejected {self.count} requests in a row for the same reason and accepted none in between. "
            f"Nothing more was sent. The last rejection: {error} Recipients without a request are counted as not_sent. "
            "Correct the cause and clear the task to send to them. If each of these recipients is invalid, raise "
            "max_identical_rejections."
        )
