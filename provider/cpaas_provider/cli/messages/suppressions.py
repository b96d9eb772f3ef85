"""The stored suppression list, for commands that send."""

from __future__ import annotations

import contextlib
from argparse import Namespace
from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from cpaas_provider.api.amounts import counted
from cpaas_provider.cli.messages.campaign_database import refuse_other_database
from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.default_file import may_exist
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.database.recipients.suppressions import REASONS, SuppressionTable
from cpaas_provider.sending.errors import SendingError
from cpaas_provider.sending.requests.request import SuppressionScope


class ListUnreadableError(SendingError):
    """The suppression list could not be read, so nothing was sent."""


class StoredSuppressions(Struct, frozen=True):
    """The entries of the suppression list for one connection and channel.

    :param reasons: the reasons of the entries that count
    """

    table: SuppressionTable
    conn_id: str
    channel: str
    reasons: Collection[str]

    def find(self, recipients: Sequence[str]) -> Mapping[str, str]:
        """Return the reason of each of the recipients that is on the list.

        :raises ListUnreadableError: when it cannot be read
        """
        try:
            return self.table.find(recipients, self.conn_id, self.channel, self.reasons)
        except DatabaseError as error:
            raise ListUnreadableError(
                f"The suppression list could not be read: {error} Nothing was sent. --no-suppression-list sends "
                "without it."
            ) from None


def open_suppressions(
    opened: contextlib.ExitStack,
    args: Namespace,
    scope: SuppressionScope,
    *,
    needs_database: bool = False,
) -> tuple[Database | None, StoredSuppressions | None]:
    """Return the provider's database and its suppression list, ``None`` where the command does not need them.

    :param scope: the entries that count for the request
    :param needs_database: whether the command writes to the database
    :raises SystemExit: when it cannot be opened, or the tasks of this Airflow have the list in another one
    """
    consulted = not args.no_suppression_list
    database = None
    if needs_database or (consulted and may_exist()):
        try:
            database = opened.enter_context(open_database())
        except DatabaseError as error:
            raise SystemExit(f"{error} Nothing was sent.") from None
    if consulted:
        refuse_other_database(database, "Nothing was sent. --no-suppression-list sends without the suppression list.")
    if database is None:
        return None, None
    table = SuppressionTable(database)
    return database, StoredSuppressions(
        table, args.conn_id, scope.channel, scope.reasons or REASONS
    ) if consulted else None


def all_suppressed(suppressed: int) -> SystemExit:
    """Return the error of a command whose recipients are all on the suppression list."""
    return SystemExit(
        f"{counted(suppressed, 'recipient')} on the suppression list, and no other. Nothing was sent. `airflow cpaas "
        "suppressions list` shows the list, and --no-suppression-list sends without it."
    )
