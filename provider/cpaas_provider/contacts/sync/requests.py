"""Makes the request for one row, and interprets its response."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from cpaas_provider.api import errors
from cpaas_provider.contacts.errors import ColumnsChangedError
from cpaas_provider.contacts.key_map.entries import MapEntry
from cpaas_provider.contacts.mapping.rows import RowMapping
from cpaas_provider.contacts.sync.decisions import Action, Decision
from cpaas_provider.contacts.sync.spool import WorkItem

if TYPE_CHECKING:
    from cpaas_provider.api.client import AsyncCpaasClient
    from cpaas_provider.api.models.contacts import ContactTable

_TABLE_SECONDS = 10.0
"""The shortest time between two checks of the table after rejected rows."""

_ACCOUNT_ERRORS = (
    errors.CpaasAuthenticationError,
    errors.CpaasInsufficientBalanceError,
    errors.CpaasConfigurationError,
)


class Response(Enum):
    """The outcome of the request for a row."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    NOT_SENT = "not sent"
    NOT_BEGUN = "not begun"
    """The sync ended before the request left."""
    UNKNOWN = "unknown"
    NOT_FOUND = "not found"
    """The list no longer has the row."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A row whose intent is recorded.

    :param before: the entry before the intent; its version is 0 if there was none
    :param intent: the entry as the map has it now
    """

    item: WorkItem
    decision: Decision
    before: MapEntry
    intent: MapEntry


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one request.

    :param fatal: the error that ends the sync, because further requests would fail, too
    """

    pending: Pending
    response: Response
    row_id: str | None = None
    reason: str | None = None
    fatal: Exception | None = None


class RowRequests:
    """Makes the requests of a sync.

    :param client: applies the connection's rate and concurrency, and retries requests that are safe to retry
    :param mapping: the columns as they were when the sync started
    """

    def __init__(self, client: AsyncCpaasClient, mapping: RowMapping) -> None:
        self._client = client
        self._mapping = mapping
        self._table_read = -_TABLE_SECONDS
        self.count = 0

    async def send(self, pending: Pending) -> Result:
        """Make the request of a row, and return its result."""
        self.count += 1
        try:
            return await self._requested(pending)
        except errors.CpaasNotFoundError as error:
            if pending.decision.action is Action.CREATE:
                return await self._rejected(pending, error)
            return await self._not_found(pending, error)
        except _ACCOUNT_ERRORS as error:
            return Result(pending, Response.NOT_SENT, reason=str(error), fatal=error)
        except (errors.CpaasRejectedError, errors.CpaasInvalidRequestError) as error:
            return await self._rejected(pending, error)
        except errors.CpaasNotSentError as error:
            longest = self._client.settings.max_retry_after
            waits = error.retry_after is not None and error.retry_after > longest
            return Result(pending, Response.NOT_SENT, reason=str(error), fatal=error if waits else None)
        except errors.CpaasError as error:
            return Result(pending, Response.UNKNOWN, reason=str(error))

    async def _requested(self, pending: Pending) -> Result:
        decision, row_id = pending.decision, pending.intent.row_id
        cells = dict(decision.cells)
        if decision.action is Action.DELETE:
            await self._client.delete_contact_row(str(row_id))
            return Result(pending, Response.ACCEPTED, row_id)
        if decision.action is Action.CREATE:
            record = await self._client.create_contact_row(cells)
            row_id = record.row.id
        else:
            record = await self._client.update_contact_row(str(row_id), cells)
        return Result(pending, Response.ACCEPTED, row_id, fatal=self._columns(record.table))

    async def _not_found(self, pending: Pending, error: errors.CpaasError) -> Result:
        """Handle a 404. The row counts as gone only if the table can be read, and the row cannot."""
        try:
            if pending.decision.action is not Action.DELETE:
                with contextlib.suppress(errors.CpaasNotFoundError):
                    await self._client.get_contact_row(str(pending.intent.row_id))
                    return Result(pending, Response.REJECTED, reason=str(error))
            # A gateway without its service responds with 404 to every request. Then no row may count as gone.
            await self._client.get_contact_table()
        except errors.CpaasError as unread:
            fatal = unread if isinstance(unread, _ACCOUNT_ERRORS) else None
            return Result(pending, Response.NOT_SENT, reason=str(unread), fatal=fatal)
        if pending.decision.action is Action.DELETE:
            return Result(pending, Response.ACCEPTED, pending.intent.row_id)
        return Result(pending, Response.NOT_FOUND, reason="the list has no such row any more")

    async def _rejected(self, pending: Pending, error: errors.CpaasError) -> Result:
        """Handle a rejection. If a column was changed at the service, the sync ends, and the row is not rejected."""
        if time.monotonic() - self._table_read >= _TABLE_SECONDS:
            self._table_read = time.monotonic()
            try:
                fatal = self._columns(await self._client.get_contact_table())
            except errors.CpaasError as unread:
                # While the table cannot be read, no row counts as rejected.
                self._table_read = -_TABLE_SECONDS
                return Result(pending, Response.NOT_SENT, reason=str(unread))
            if fatal is not None:
                return Result(pending, Response.NOT_SENT, reason=str(error), fatal=fatal)
        return Result(pending, Response.REJECTED, reason=str(error))

    def _columns(self, table: ContactTable | None) -> Exception | None:
        changed = [] if table is None else self._mapping.changed_columns(table)
        if not changed:
            return None
        return ColumnsChangedError(
            f"The columns of the contact table changed during the sync: {'; '.join(changed)}. The rows that were sent "
            "before are recorded. The rest was not sent. The next try reads the columns again."
        )
