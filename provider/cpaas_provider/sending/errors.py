"""The errors that end a send, with messages for DAG authors.

No message shows a key, a passcode, a text, a number or an address. Messages name requests by their references.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cpaas_provider.sending.partitions import Partition

_MAX_NAMED = 10


class SendingError(Exception):
    """Base of the errors of a send.

    ``permanent`` means that a retry would not help or could send twice.
    """

    permanent = False


class JournalUnavailableError(SendingError):
    """The journal could not be read or written. No request leaves without it."""


class JournalTooLargeError(SendingError):
    """The journal has no room for another request, so it was not sent."""

    permanent = True


class TrySupersededError(SendingError):
    """Airflow has replaced this try with another one, so this try stops.

    Airflow ignores the state of a replaced try. If it was not replaced after all, it is retried.
    """


class StoppedError(SendingError):
    """Airflow stopped the task, or its ``execution_timeout`` is over."""


class RunNotAllowedError(SendingError):
    """The run does not send: it is a backfill, a catch-up run or a stale run."""

    permanent = True


class ChangedBodyError(SendingError):
    """The content changed after a request of unknown outcome was made."""

    permanent = True


class PartitionChangedError(SendingError):
    """A campaign has other partitions than when it began, or one of them twice.

    :param begun: the partition that the task instance began with
    """

    permanent = True

    def __init__(self, message: str, *, begun: Partition) -> None:
        super().__init__(message)
        self.begun = begun


class UnknownOutcomeError(SendingError):
    """The outcome of some requests is unknown, and ``on_unknown`` is ``fail``."""

    permanent = True


class PartlyRejectedError(SendingError):
    """The service accepted a request for some of its recipients and rejected the others."""

    permanent = True


class ProbeFailedError(SendingError):
    """The probe of a request of unknown outcome failed. A retry probes again."""


class RefutedError(SendingError):
    """A probe established that a request was not accepted."""


class ResendLimitError(SendingError):
    """Requests were sent again (``on_unknown`` is ``resend``), and their outcome is still unknown."""


class RetryLaterError(SendingError):
    """The send can continue at ``until``, so the task is deferred until then."""

    def __init__(self, message: str, until: datetime) -> None:
        super().__init__(message)
        self.until = until


class ProbeLaterError(RetryLaterError):
    """A probe may still resolve a request of unknown outcome, so the task is deferred."""


def join_references(references: Sequence[str]) -> str:
    """Return references as part of a sentence. Of many, only the first are named."""
    more = f" and {len(references) - _MAX_NAMED} more" if len(references) > _MAX_NAMED else ""
    return ", ".join(references[:_MAX_NAMED]) + more
