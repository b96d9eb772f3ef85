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


class OlderDatabaseError(SendingError):
    """The database was restored from a copy that is older than what Airflow knows of it.

    :param database: the URL of the database, without its password
    :param stored: the number of the newest try in the database
    :param known: the number that Airflow knows
    :param variables: the Airflow variables that have a larger number than the database
    """

    permanent = True

    def __init__(self, database: str, stored: int, known: int, variables: Sequence[str]) -> None:
        self.way_out = "; ".join(f"airflow variables delete {name}" for name in variables)
        super().__init__(
            f"The database {database} was restored from an older copy: its newest try with an idempotency_key has the "
            f"number {stored}, and Airflow knows number {known}. What was sent since is missing there and would be "
            "sent again. Nothing was sent. Restore the newer database. If that is lost for good, run the following "
            "and then clear the task. Campaigns are then sent again to every recipient that this database does not "
            f"have: {self.way_out}"
        )


class TrySupersededError(SendingError):
    """Airflow has replaced this try with another one, so this try stops.

    Airflow ignores the state of a replaced try. If it was not replaced after all, it is retried.
    """


class StoppedError(SendingError):
    """Airflow stopped the task, or its ``execution_timeout`` is over."""


class RunNotAllowedError(SendingError):
    """The run does not send: it is a backfill, a catch-up run or a stale run."""

    permanent = True


class InvalidRequestError(SendingError):
    """What is to be sent cannot be sent as it is, so nothing was sent."""

    permanent = True


class NoSenderError(InvalidRequestError):
    """Neither the author nor the connection names a sender.

    :param option: the setting of the connection that has the default
    """

    def __init__(self, message: str, option: str) -> None:
        super().__init__(message)
        self.option = option


class TooManyRecipientsError(InvalidRequestError):
    """One request cannot go to so many recipients.

    :param recipients: their number
    :param most: the most recipients of one request
    """

    def __init__(self, message: str, recipients: int, most: int) -> None:
        super().__init__(message)
        self.recipients = recipients
        self.most = most


class MissingValuesError(InvalidRequestError):
    """Recipients have no value of a placeholder, and would read the placeholder.

    :param placeholders: the names of these placeholders, sorted
    """

    def __init__(self, message: str, placeholders: Sequence[str]) -> None:
        super().__init__(message)
        self.placeholders = placeholders


class NoRecipientsError(SendingError):
    """``allowed_recipients`` or the guards leave out every recipient, so the task is skipped.

    :param not_allowed: the number that ``allowed_recipients`` leaves out
    """

    def __init__(self, message: str, not_allowed: int = 0) -> None:
        super().__init__(message)
        self.not_allowed = not_allowed


class ChangedBodyError(SendingError):
    """The content changed after a request of unknown outcome was made."""

    permanent = True


class NotConfirmedError(SendingError):
    """A user rejected what a limit had stopped, or did not confirm it in time."""

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
