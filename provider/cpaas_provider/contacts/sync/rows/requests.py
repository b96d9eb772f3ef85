"""Makes the request for one row, and interprets its response."""

from __future__ import annotations

import time
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cpaas_provider.api import errors
from cpaas_provider.api.redact import redact, sensitive_values
from cpaas_provider.contacts.errors import ColumnsChangedError, OtherRowError, RowUpdatesError
from cpaas_provider.contacts.key_map.entries import MapEntry
from cpaas_provider.contacts.key_map.key_map import KeyMap
from cpaas_provider.contacts.mapping.returned import is_other_row
from cpaas_provider.contacts.mapping.rows import RowMapping
from cpaas_provider.contacts.sync.decisions import Action, Decision
from cpaas_provider.contacts.sync.rows.finder import (
    ACCOUNT_ERRORS,
    Presence,
    RowFinder,
    find_unstored,
    is_about_row,
    names_absence,
)
from cpaas_provider.contacts.sync.rows.updates import CheckedUpdates
from cpaas_provider.contacts.sync.spool import KEY_SEPARATOR, WorkItem

if TYPE_CHECKING:
    from cpaas_provider.api.client import AsyncCpaasClient
    from cpaas_provider.api.models.contacts import ContactRowRecord, ContactTable

_TABLE_SECONDS = 10.0
"""The shortest time between two checks of the table after rejected rows."""


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
    CELLS_LOST = "cells lost"
    """The row was updated, and the service cleared the cells that were not sent."""
    NOT_STORED = "not stored"
    """The service accepted the row, and did not store some of its cells."""


class Pending(Struct, frozen=True):
    """A row whose intent is recorded.

    :param before: the entry before the intent; its version is 0 if there was none
    :param intent: the entry as the map has it now
    """

    item: WorkItem
    decision: Decision
    before: MapEntry
    intent: MapEntry


class Result(Struct, frozen=True):
    """The result of one request.

    :param unstored: the columns whose cells the service did not store, although it accepted the row
    :param is_final: whether a rejection is about the row's cells, so that later runs need not send it again
    :param fatal: the error that ends the sync, because further requests would fail, too
    """

    pending: Pending
    response: Response
    row_id: str | None = None
    reason: str | None = None
    fatal: Exception | None = None
    unstored: tuple[str, ...] = ()
    is_final: bool = True

    @property
    def created_id(self) -> str | None:
        """The id of the row that the request created, ``None`` if it created none."""
        return self.row_id if self.pending.decision.action is Action.CREATE else None


def other_row_error(item: WorkItem, what: str) -> OtherRowError:
    """Return the error for the response to a creation that is about another row.

    :param what: what the response has
    """
    return OtherRowError(
        f"The response to the creation of row {item.number} of the source {what}. So the outcome of this creation is "
        "unknown, and its row id is not recorded. What was sent before is recorded; nothing more was sent. Look for "
        "these rows in the list, then resolve the unknown creations with: airflow cpaas contacts resolve"
    )


class RowRequests:
    """Makes the requests of a sync.

    :param client: applies the connection's rate and concurrency, and retries requests that are safe to retry
    :param mapping: the columns as they were when the sync started
    :param columns: the names of the list's columns, by id
    """

    def __init__(
        self, client: AsyncCpaasClient, mapping: RowMapping, key_map: KeyMap, columns: Mapping[str, str]
    ) -> None:
        self._client = client
        self._mapping = mapping
        self._names = columns
        self._finder = RowFinder(client, [key_map], columns)
        self._updates = CheckedUpdates(client, columns, key_map.hashes)
        self._table_read = -_TABLE_SECONDS
        self.count = 0

    async def send(self, pending: Pending) -> Result:
        """Make the request of a row, and return its result."""
        self.count += 1
        try:
            result = await self._requested(pending)
        except ACCOUNT_ERRORS as error:
            result = Result(pending, Response.NOT_SENT, reason=str(error), fatal=error)
        except errors.CpaasRejectedError as error:
            result = await self._rejected(pending, error)
        except errors.CpaasInvalidRequestError as error:
            result = Result(pending, Response.REJECTED, reason=str(error))
        except errors.CpaasNotSentError as error:
            longest = self._client.settings.max_retry_after
            waits = error.retry_after is not None and error.retry_after > longest
            fatal = error if waits or error.is_permanent else None
            result = Result(pending, Response.NOT_SENT, reason=str(error), fatal=fatal)
        except RowUpdatesError as error:
            result = Result(pending, Response.CELLS_LOST, reason=str(error), fatal=error)
        except errors.CpaasError as error:
            result = Result(pending, Response.UNKNOWN, reason=str(error))
        if result.reason is None:
            return result
        # The service may quote cells of the row that this request did not send, such as its key.
        item = pending.item
        private = [item.name or "", *(item.name or "").split(KEY_SEPARATOR), *sensitive_values({"": item.cells})]
        return replace(result, reason=redact(result.reason, private, longest=len(result.reason)))

    async def _requested(self, pending: Pending) -> Result:
        decision, row_id = pending.decision, pending.intent.row_id
        cells = dict(decision.cells)
        if decision.action is Action.DELETE:
            await self._client.delete_contact_row(str(row_id))
            return Result(pending, Response.ACCEPTED, row_id)
        record: ContactRowRecord | None
        if decision.action is Action.CREATE:
            record = await self._client.create_contact_row(cells)
            row_id = record.row.id
            if is_other_row(record.row.columns, cells, self._mapping.key_columns):
                other = other_row_error(pending.item, "has the cells of another row")
                return Result(pending, Response.UNKNOWN, reason=str(other), fatal=other)
        elif decision.is_whole:
            record = await self._client.update_contact_row(str(row_id), cells)
        else:
            known = pending.intent.cell_hashes
            record = await self._updates.update(str(row_id), cells, known, pending.item.cells)
            if record is None:
                return Result(pending, Response.NOT_BEGUN)
        self._finder.known_row = row_id
        fatal = self._columns(record.table)
        unstored = await find_unstored(self._client, record, cells)
        if unstored.columns:
            reason = unstored.reason(self._names)
            if not unstored.is_proved:
                reason += ". The next run sends these cells again"
            return Result(
                pending, Response.NOT_STORED, row_id, reason, fatal, unstored.columns, is_final=unstored.is_proved
            )
        return Result(pending, Response.ACCEPTED, row_id, fatal=fatal)

    async def _rejected(self, pending: Pending, error: errors.CpaasRejectedError) -> Result:
        """Handle a rejection: the row may be gone, or a column may have changed. Then the row is not rejected."""
        reason = str(error)
        # The page of a gateway is no verdict of the service about the row, and neither is a 404 for a row that exists.
        is_final = is_about_row(error) and not names_absence(error) and not error.is_foreign
        try:
            if pending.decision.action is not Action.CREATE:
                find = self._finder.find_updated if pending.decision.action is Action.UPDATE else self._finder.find
                presence = await find(str(pending.intent.row_id), error)
                if presence is Presence.GONE and pending.decision.action is Action.DELETE:
                    return Result(pending, Response.ACCEPTED, pending.intent.row_id)
                if presence is Presence.GONE:
                    return Result(pending, Response.NOT_FOUND, reason="the list no longer has this row")
                if presence is Presence.NOT_PROVED:
                    # The row may be gone, and then its cells are not at fault.
                    is_final = False
                    reason += " The row could not be read to see whether it is gone. The next run sends it again."
                if presence is Presence.NOT_PROVED and names_absence(error):
                    reason = (
                        "nothing proves that the list no longer has this row: the service finds no other row of the "
                        "map, or a gateway may have answered. The ids of all rows may have changed. If the list was "
                        "emptied on purpose, run: airflow cpaas contacts forget-map. If only this row is gone, run: "
                        "airflow cpaas contacts forget-row"
                    )
            fatal = await self._changed_columns()
        except errors.CpaasError as unread:
            # While the table cannot be read, no row counts as gone or rejected.
            fatal = unread if isinstance(unread, ACCOUNT_ERRORS) else None
            return Result(pending, Response.NOT_SENT, reason=str(unread), fatal=fatal)
        if fatal is not None:
            return Result(pending, Response.NOT_SENT, reason=reason, fatal=fatal)
        return Result(pending, Response.REJECTED, reason=reason, is_final=is_final)

    async def _changed_columns(self) -> Exception | None:
        """Return the error that ends the sync if a column was changed at the service, at most every ten seconds."""
        if time.monotonic() - self._table_read < _TABLE_SECONDS:
            return None
        self._table_read = time.monotonic()
        try:
            return self._columns(await self._client.get_contact_table())
        except errors.CpaasError:
            self._table_read = -_TABLE_SECONDS
            raise

    def _columns(self, table: ContactTable | None) -> Exception | None:
        changed = [] if table is None else self._mapping.changed_columns(table)
        if not changed:
            return None
        return ColumnsChangedError(
            f"The columns of the contact table changed during the sync: {'; '.join(changed)}. The rows that were sent "
            "before are recorded. The rest was not sent. The next try reads the columns again."
        )
