"""Rows of the contact list: one that a task instance adds once, and one that is found by its key."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from msgspec import Struct

from cpaas_provider._common.records import PrivateRecord
from cpaas_provider.api import operations
from cpaas_provider.api.errors import CpaasRejectedError
from cpaas_provider.api.recipients.msisdn import NumberReader
from cpaas_provider.api.values import no_value_reason
from cpaas_provider.contacts.errors import StoppedError
from cpaas_provider.contacts.key_map.maps import check_new_map, maps_of_list, open_map
from cpaas_provider.contacts.key_map.overview import recipient_values
from cpaas_provider.contacts.mapping.columns import ContactColumns, recipient_columns
from cpaas_provider.contacts.sync.decisions import SyncRules
from cpaas_provider.contacts.sync.rows.finder import RowFinder, is_proved_gone
from cpaas_provider.contacts.sync.rows.single_row import RowUpsert, SingleRow, key_hash
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.sending.errors import StoppedError as NotBegunError
from cpaas_provider.sending.requests.contact_row import RowCreation
from cpaas_provider.sending.shutdown import AnswerNotAwaitedError
from cpaas_provider.tasks.database.shared_database import check_database
from cpaas_provider.tasks.runner import Attempt, ReadAttempt

if TYPE_CHECKING:
    from cpaas_provider.api.core import Call
    from cpaas_provider.api.models.contacts import ContactRowRecord, ContactTable
    from cpaas_provider.contacts.key_map.key_map import KeyMap
    from cpaas_provider.sending.shutdown import StopSignal
    from cpaas_provider.sending.spec import Client, SendOutcome
    from cpaas_provider.tasks.runtime import TaskRuntime
    from cpaas_provider.tasks.single.send import SingleSend

T = TypeVar("T")

_UNKNOWN = {"fail": "fail", "skip": "skip", "resend": "create"}


class RowCells(PrivateRecord, frozen=True):
    """The cells of one row by column name.

    :param empty_cell_value: how an empty cell is sent
    """

    columns: Mapping[str, Any]
    empty_cell_value: Literal["null", "empty"]

    async def encode(self, client: Client) -> dict[str, Any]:
        """Return the cells by column id, checked against the table as it is now."""
        columns = ContactColumns(await client.run(operations.get_contact_table()))
        return self.encode_for(columns, client.settings.numbers)

    async def update(self, row_id: str, client: Client) -> ContactRowRecord:
        """Update a row, and return it as it is now."""
        return await client.run(operations.update_contact_row(row_id, await self.encode(client)))

    def encode_for(self, columns: ContactColumns, numbers: NumberReader) -> dict[str, Any]:
        """Return the cells by column id of a table."""
        return columns.encode(self.columns, numbers=numbers, empty_cell_value=self.empty_cell_value)


class RowOfEarlierTry(RowCreation, frozen=True):
    """One row that a task instance adds. The row of an earlier try gets the present cells."""

    cells: RowCells
    runtime: TaskRuntime

    def result(self, outcome: SendOutcome) -> dict[str, Any]:
        """Return the row's id, once the row has the cells."""
        result = super().result(outcome)
        if outcome.earlier and result["row_id"] is not None:
            self.runtime.run(self.cells.update(result["row_id"], self.runtime.async_client))
        return result


class RunGuard(Struct, frozen=True):
    """Which runs may write a row: the cells of an old run may be older than the row's."""

    allow_backfill: bool
    max_lateness: timedelta | None

    def check(self, runtime: TaskRuntime) -> None:
        """Check that the run may send.

        :raises RunNotAllowedError: when it does not
        """
        runtime.check_run_may_send(allow_backfill=self.allow_backfill, max_lateness=self.max_lateness)


@dataclass(frozen=True)
class RowUpsertById(Attempt):
    """One try that updates the row of an id, or creates one.

    :param row_id: as rendered; without an id, or with an empty one, a row is created
    :param creation: the try that creates it
    """

    is_send = has_task_journal = True

    row_id: Any
    cells: RowCells
    runtime: TaskRuntime
    run_guard: RunGuard = field(kw_only=True)
    create_if_missing: bool = field(kw_only=True)
    creation: SingleSend = field(kw_only=True)

    def run(self) -> dict[str, Any]:
        """Update the row, or create it."""
        self.run_guard.check(self.runtime)
        # Native rendering makes a number of digits.
        row_id = "" if self.row_id is None else str(self.row_id).strip()
        if no_value_reason(row_id):
            return self.creation.run()
        runtime = self.runtime
        runtime.log_begin()
        try:
            row = runtime.run(self.cells.update(row_id, runtime.async_client)).row
        except CpaasRejectedError as rejection:
            if not self.create_if_missing or not runtime.run(_is_gone(runtime, row_id, rejection, updates=True)):
                raise
            runtime.log.info("The list no longer has a row with this id. Creating a new one.")
            return self.creation.run(has_begun=True)
        result = _result(row.id)
        runtime.log_done(result)
        return result

    def push_report(self, *, quietly: bool) -> bool:
        """Push the report of the creation."""
        return self.creation.push_report(quietly=quietly)


@dataclass(frozen=True)
class RowUpdate(ReadAttempt):
    """One try that updates the row of an id. A retry may make the same update again."""

    is_send = True

    run_guard: RunGuard = field(kw_only=True)

    def run(self) -> Any:
        """Update the row."""
        self.run_guard.check(self.runtime)
        return super().run()


@dataclass(frozen=True)
class RowDeletion(Attempt):
    """One try that deletes the row of an id.

    :param row_id: as rendered
    """

    row_id: Any
    runtime: TaskRuntime
    skip_if_missing: bool = field(kw_only=True)

    def run(self) -> dict[str, Any]:
        """Delete the row."""
        runtime, client = self.runtime, self.runtime.client
        runtime.log_begin()
        try:
            client.delete_contact_row(self.row_id)
        except CpaasRejectedError as rejection:
            if not (rejection.maybe_done or self.skip_if_missing):
                raise
            if not runtime.run(_is_gone(runtime, str(self.row_id), rejection)):
                raise
            if not rejection.maybe_done:
                raise AirflowSkipException("There is no row with this id. Nothing was deleted.") from None
        result = {"row_id": self.row_id, "deleted": True}
        runtime.log_done(result)
        return result


async def _is_gone(runtime: TaskRuntime, row_id: str, rejection: CpaasRejectedError, *, updates: bool = False) -> bool:
    """Tell whether the list no longer has a row whose update or deletion was rejected.

    :raises CpaasError: when the row or the table cannot be read for a reason that is not about the row
    :raises NotSyncedError: as of ``is_proved_gone``
    """
    client = runtime.async_client
    table = await client.get_contact_table()
    key_maps = await asyncio.to_thread(_maps_of_list, runtime, table)
    finder = RowFinder(client, key_maps, {column.id: column.name for column in table.columns})
    find = finder.find_updated if updates else finder.find
    return is_proved_gone(await find(row_id, rejection), rejection)


def _maps_of_list(runtime: TaskRuntime, table: ContactTable) -> list[KeyMap]:
    try:
        return maps_of_list(runtime.database, runtime.connection.base_url, table.id)
    except DatabaseError as error:
        # The operators of one row need no database. Then only a 404 or 410 shows that a row is gone.
        runtime.log.warning("No other row of the list is known, because the database cannot be read: %s", error)
        return []


class StoppableRequests(Struct, frozen=True):
    """Makes requests until the task has to stop. A request that did not leave raises ``StoppedError``."""

    client: Client
    stop: StopSignal

    async def run(self, call: Call[T]) -> T:
        """Return what the service answers."""
        try:
            return await self.stop.finish(self.client.run(call), self.client)
        except AnswerNotAwaitedError:
            raise
        except NotBegunError as error:
            raise StoppedError(str(error)) from None

    async def pause(self, seconds: float) -> None:
        """Let time pass; the stop ends it at once."""
        try:
            await self.stop.sleep(seconds)
        except NotBegunError as error:
            raise StoppedError(str(error)) from None


@dataclass(frozen=True)
class KeyedUpsert(Attempt):
    """One try that creates or updates the row of a key, through the key map that a sync uses.

    :param cells: what the cells of the row are to be
    """

    is_send = has_task_journal = True

    key: Any = field(repr=False)
    map_name: str
    cells: RowCells
    runtime: TaskRuntime
    run_guard: RunGuard = field(kw_only=True)
    create_if_missing: bool = field(kw_only=True)
    new_map: bool = field(kw_only=True)
    on_unknown: str = field(kw_only=True)

    def run(self) -> dict[str, Any]:
        """Create or update the row."""
        runtime = self.runtime
        self.run_guard.check(runtime)
        runtime.log_begin()
        found = runtime.run(self._upsert(runtime.async_client))
        if found.row_id is None and not found.unknown:
            raise AirflowFailException(
                "The key map has no row of this key, and create_if_missing is False. Nothing was sent."
            )
        result = _result(found.row_id, created=found.created, unknown=int(found.unknown))
        runtime.log_done(result)
        return result

    async def _upsert(self, client: Client) -> SingleRow:
        runtime = self.runtime
        table = await client.run(operations.get_contact_table())
        cells = self.cells.encode_for(ContactColumns(table), client.settings.numbers)
        check_database(runtime.database)
        contact_list: Any = {
            "conn_id": runtime.conn_id,
            "base_url": runtime.connection.base_url,
            "table_id": table.id,
            "name": self.map_name,
        }
        may_double = self.create_if_missing and not self.new_map
        if may_double:
            check_new_map(runtime.database, **contact_list)
        key_map = open_map(runtime.database, **contact_list)
        upsert = RowUpsert(
            key_map,
            StoppableRequests(client, runtime.stop),
            f"Task instance {runtime.cli_address}",
            SyncRules(
                mode="upsert" if self.create_if_missing else "update",
                on_unknown=_UNKNOWN[self.on_unknown],
                row_updates=runtime.connection.row_updates,
            ),
            {column.id: column.name for column in table.columns},
            recipient_values(key_map, recipient_columns(table)),
            partial(check_new_map, runtime.database, **contact_list) if may_double else lambda: None,
        )
        try:
            hashed = key_hash(key_map, self.key)
        except ValueError as error:
            raise AirflowFailException(f"The key {error}. Nothing was sent. Correct the key of the row.") from None
        return await upsert.run(hashed, cells)


def _result(row_id: str | None, *, created: bool = False, unknown: int = 0) -> dict[str, Any]:
    return {"row_id": row_id, "created": created, "unknown_recipients": unknown, "unknown_references": []}
