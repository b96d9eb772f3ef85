"""When to stop asking a service that refuses whatever it is asked."""

from __future__ import annotations

import re

from cpaas_provider.api.errors import CpaasRejectedError
from cpaas_provider.sending.errors import SendingError

MOST_IDENTICAL_REJECTIONS = 20
"""More than it takes to find one bad recipient among 100,000 by bisecting."""

_WITH_DIGITS = re.compile(r"\S*\d\S*")


class CircuitOpenError(SendingError):
    """The service fails or rejects every request in the same way, so no further request was sent."""

    permanent = True


class RejectionBreaker:
    """Counts rejections that say the same, one after the other.

    A batch that is bisected would else become thousands of requests that are all refused for the same reason.

    :param limit: how many of them open the circuit; ``None`` for never
    """

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._said: tuple[int | None, str] | None = None
        self.count = 0

    def accepted(self) -> None:
        """Begin to count anew: the service accepts."""
        self._said, self.count = None, 0

    def rejected(self, error: CpaasRejectedError) -> bool:
        """Count a rejection, and tell whether the circuit is open."""
        if error.rejected_recipients:
            # Who is named is rejected for his own sake.
            return False
        # Services put the number of the request into their words.
        said = error.status, _WITH_DIGITS.sub("#", str(error))
        self.count = self.count + 1 if said == self._said else 1
        self._said = said
        return self._limit is not None and self.count >= self._limit

    def opened(self, error: CpaasRejectedError) -> CircuitOpenError:
        """Return what ends the campaign."""
        return CircuitOpenError(
            f"The service rejected {self.count} requests in a row for the same reason and accepted none in between. "
            f"Nothing more was sent. The last rejection: {error} Recipients without a request are counted as not_sent. "
            "Correct the cause and clear the task to send to them. If each of these recipients is invalid, raise "
            "max_identical_rejections."
        )
