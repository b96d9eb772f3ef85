"""The stored suppression list, for commands that send."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence

from cpaas_provider.api.amounts import counted
from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.default_file import may_exist
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.database.recipients.suppressions import REASONS, SuppressionTable
from cpaas_provider.sending.errors import SendingError


class ListUnreadableError(SendingError):
    """The suppression list could not be read, so nothing was sent."""


class StoredSuppressions:
    """The entries of the suppression list for one connection and channel.

    :param reasons: the reasons of the entries that count
    """

    def __init__(self, database: Database, conn_id: str, channel: str, reasons: Collection[str] = REASONS) -> None:
        self._table = SuppressionTable(database)
        self._conn_id = conn_id
        self._channel = channel
        self._reasons = tuple(reasons)

    def find(self, recipients: Sequence[str]) -> Mapping[str, str]:
        """Return the reason of each of the recipients that is on the list.

        :raises ListUnreadableError: when it cannot be read
        """
        try:
            return self._table.find(recipients, self._conn_id, self._channel, self._reasons)
        except DatabaseError as error:
            raise ListUnreadableError(
                f"The suppression list could not be read: {error} Nothing was sent. --no-suppression-list sends "
                "without it."
            ) from None


def open_for(opened: contextlib.ExitStack, *, needed: bool, consulted: bool) -> Database | None:
    """Return the provider's database; ``None`` if the command does not need it.

    :param needed: whether the command writes to it
    :param consulted: whether it reads the suppression list
    :raises SystemExit: when it cannot be opened
    """
    if needed or (consulted and may_exist()):
        try:
            return opened.enter_context(open_database())
        except DatabaseError as error:
            raise SystemExit(f"{error} Nothing was sent.") from None
    return None


def all_suppressed(suppressed: int) -> SystemExit:
    """Return the error of a command whose recipients are all on the suppression list."""
    return SystemExit(
        f"{counted(suppressed, 'recipient')} on the suppression list, and no other. Nothing was sent. `airflow cpaas "
        "suppressions list` shows the list, and --no-suppression-list sends without it."
    )
