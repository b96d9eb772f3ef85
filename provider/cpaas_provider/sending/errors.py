"""Why a send that is guarded by the journal ended without a result, in words for a DAG author.

None of them shows a key, a code, a text, a number or an address; requests are named by their references.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

_NAMED = 10


class SendingError(Exception):
    """Base of all of them.

    ``for_good`` says that a retry would not help or might send twice.
    """

    for_good = False


class JournalUnavailableError(SendingError):
    """The journal could not be read or written, so nothing was sent."""


class JournalTooLargeError(SendingError):
    """The journal has no room for a request, so nothing was sent."""

    for_good = True


class TryReplacedError(SendingError):
    """Airflow has put another try in the place of this one, which therefore must not go on.

    What this try says of itself reaches nobody any more; should it not have been replaced after all, it is retried.
    """


class StoppedError(SendingError):
    """The task was told to stop, or its own time is up."""


class NotNowError(SendingError):
    """The run is one that must not send: a backfill, a catch-up, or too late."""

    for_good = True


class ChangedBodyError(SendingError):
    """A request of unknown outcome would have to be decided together with another text than it was made with."""

    for_good = True


class PartitionChangedError(SendingError):
    """A campaign would go on in another number of partitions than it was begun in.

    :param begun: that number
    """

    for_good = True

    def __init__(self, words: str, *, begun: int) -> None:
        super().__init__(words)
        self.begun = begun


class UnknownOutcomeError(SendingError):
    """Nobody knows whether some requests were carried out, and the author wants the task to fail then."""

    for_good = True


class PartlyRejectedError(SendingError):
    """A request was accepted for some of its recipients; the service names the others as rejected.

    :param reason: what the service says, in words that show nobody
    :param result: small JSON the operator makes its result from
    :param rejected: the recipients it was not accepted for
    """

    for_good = True

    def __init__(self, message: str, reason: str, result: dict[str, Any], rejected: Sequence[str]) -> None:
        super().__init__(message)
        self.reason = reason
        self.result = result
        self.rejected = tuple(rejected)


class EvidenceUnreadError(SendingError):
    """Evidence of an unknown request is there to be looked for, and could not be read now."""


class RefutedError(SendingError):
    """There is evidence that a request came to nothing, although the service may have taken it."""


class StillUnknownError(SendingError):
    """Requests were sent again as the author wants, and are unknown still."""


class LaterError(SendingError):
    """Go on at ``until``: nothing can be done before that."""

    def __init__(self, message: str, until: datetime) -> None:
        super().__init__(message)
        self.until = until


class SettleLaterError(LaterError):
    """Evidence of an unknown request may yet arrive."""


def named(references: Sequence[str]) -> str:
    """Return references as part of a sentence, not more than a person reads."""
    more = f" and {len(references) - _NAMED} more" if len(references) > _NAMED else ""
    return ", ".join(references[:_NAMED]) + more
