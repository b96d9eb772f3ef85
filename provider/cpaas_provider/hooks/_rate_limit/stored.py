"""The reservations of a shared rate limit, in the provider's database."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from cpaas_provider.api.errors import CpaasNotSentError
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.hooks._client_database import ClientDatabase
from cpaas_provider.hooks._rate_limit.reservations import RateLimitTable, ReservedMoments, Wanted


class StoredReservations:
    """The reservations of one client in the database, which it opens when it is first used.

    :param url: as for ``open_database``
    """

    def __init__(self, conn_id: str, url: str | None = None) -> None:
        self._conn_id = conn_id
        self._database = ClientDatabase(url)

    def reserve(self, wanted: Wanted) -> ReservedMoments:
        """Reserve the next free moments.

        :raises CpaasNotSentError: when the database cannot be used
        """
        with self._table() as table:
            return table.reserve(wanted)

    def hold(self, seconds: float) -> None:
        """Prevent reservations of moments within ``seconds``.

        :raises CpaasNotSentError: when the database cannot be used
        """
        with self._table() as table:
            table.hold(seconds)

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    @contextlib.contextmanager
    def _table(self) -> Iterator[RateLimitTable]:
        """Return the table of this process, for one thread at a time."""
        try:
            with self._database.open() as database:
                yield RateLimitTable(database, self._conn_id)
        except DatabaseError as error:
            message = describe_unusable(self._conn_id, error, "the request was not sent")
            raise CpaasNotSentError(message) from None


def describe_unusable(conn_id: str, error: DatabaseError, unsent: str) -> str:
    """Return the message of an error about a shared rate limit that cannot be used.

    :param unsent: a clause that says what was not sent
    """
    return (
        f"The shared rate limit of connection {conn_id!r} could not be used, so {unsent}: {str(error).rstrip('.')}. "
        "Without share_rate_limit on the connection, each task has a limit of its own."
    )
