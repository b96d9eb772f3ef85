"""The frequency cap of a send, counted in the provider's database."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING

from msgspec import Struct

from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.tasks.database.shared_database import check_database
from cpaas_provider.tasks.errors import PreflightError

if TYPE_CHECKING:
    from datetime import timedelta

    from cpaas_provider.database.recipients.frequency import MessageCounts
    from cpaas_provider.tasks.runtime import TaskRuntime

DEFAULT_CATEGORY = "default"


class StoredFrequencyCap(Struct, frozen=True, dict=True):
    """The messages of one send, counted for its category.

    :param limit: how many messages within how long; ``None`` counts them, and limits none
    :param send: the name of the send, the same in all its tries
    :param confirm: raises where another try may have taken the place of this one
    """

    runtime: TaskRuntime
    limit: tuple[int, timedelta] | None
    category: str | None
    send: str
    confirm: Callable[[], None]

    def reserve(self, recipients: Sequence[str]) -> Collection[str]:
        """Count a message to each recipient who may get one, and return the others.

        :raises PreflightError: when it cannot be counted, or this worker has another database than others
        """
        try:
            return self._counts.reserve(recipients)
        except DatabaseError as error:
            raise PreflightError(
                f"The frequency cap could not be checked: {str(error).rstrip('.')}. No further request was started. "
                "The task can be retried.",
                permanent=False,
            ) from None

    def release(self, recipients: Sequence[str]) -> None:
        """Do not count the messages to recipients: they were not sent.

        :raises DatabaseError: when the database cannot be written
        :raises SendingError: when another try has taken the place of this one, or that cannot be found out. It may have
            sent them, and counts them as its own
        """
        self.confirm()
        self._counts.release(recipients)

    @cached_property
    def _counts(self) -> MessageCounts:
        from cpaas_provider.database.recipients.frequency import MAX_PERIOD, Cap, MessageCounts

        database = self.runtime.database
        # With a database of its own, each worker would send as many messages as the cap allows.
        check_database(database)
        messages, period = self.limit or (None, MAX_PERIOD)
        return MessageCounts(database, Cap(self.category or DEFAULT_CATEGORY, messages, period), self.send)


def send_name(reference: str, contact: str | None) -> str:
    """Return the name under which the messages of a campaign are counted.

    :param reference: the name of the campaign, the same in all its tries
    :param contact: a name that several campaigns share whose messages to a recipient count as one
    """
    from cpaas_provider.database.recipients.frequency import CONTACT_SEPARATOR

    if not contact:
        return reference
    return f"{sha256(contact.encode()).hexdigest()[:32]}{CONTACT_SEPARATOR}{reference}"


def open_frequency_cap(
    runtime: TaskRuntime,
    limit: tuple[int, timedelta] | None,
    category: str | None,
    send: str,
    confirm: Callable[[], None],
) -> StoredFrequencyCap | None:
    """Return the frequency cap of a send, ``None`` where its messages are not counted."""
    return StoredFrequencyCap(runtime, limit, category, send, confirm) if limit or category else None
