"""Creates or updates one row by its key. It uses the key map of the syncs, so both agree on the row of a key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec import Struct, field

from cpaas_provider.api import errors as api_errors
from cpaas_provider.api import operations
from cpaas_provider.api.values import no_value_reason
from cpaas_provider.contacts.errors import (
    NotSyncedError,
    RowUpdatesError,
    SharedRowError,
    StoppedError,
    UnknownCreationsError,
    UnstoredCellsError,
)
from cpaas_provider.contacts.key_map.entries import Change, MapEntry, RowState
from cpaas_provider.contacts.key_map.hashes import CellHashes
from cpaas_provider.contacts.key_map.key_map import KeyMap, Lease
from cpaas_provider.contacts.key_map.overview import KEY_COLUMNS
from cpaas_provider.contacts.mapping.keys import key_texts
from cpaas_provider.contacts.mapping.returned import is_other_row
from cpaas_provider.contacts.sync.decisions import (
    Action,
    Decision,
    SyncRules,
    decide,
    in_step,
    requested,
    undone,
)
from cpaas_provider.contacts.sync.rows.finder import (
    RowFinder,
    find_unstored,
    is_proved_gone,
)
from cpaas_provider.contacts.sync.rows.updates import CheckedUpdates
from cpaas_provider.contacts.sync.spool import WorkItem

if TYPE_CHECKING:
    from cpaas_provider.api.core import Call
    from cpaas_provider.api.models.contacts import ContactRowRecord, ContactTable

T = TypeVar("T")

_MAX_ATTEMPTS = 30
_BUSY_SECONDS = 1.0


class Requests(Protocol):
    """Makes the requests of a task that can be stopped."""

    async def run(self, call: Call[T]) -> T:
        """Run a call and return its result.

        :raises StoppedError: when the task has to stop before the request leaves
        :raises CpaasError: as the client does
        """

    async def pause(self, seconds: float) -> None:
        """Wait for ``seconds``, and raise ``StoppedError`` if the task has to stop."""


class SingleRow(Struct, frozen=True):
    """The result for the row.

    :param row_id: ``None`` if the outcome of its creation is unknown, or there is no row
    :param changed: whether a request changed the list
    """

    row_id: str | None
    created: bool = False
    changed: bool = False
    unknown: bool = False


def key_hash(key_map: KeyMap, key: Any) -> bytes:
    """Return the hash of a key: a value, or a list of the values of several columns.

    :raises ValueError: when it has no value, cannot be a key, or has another number of parts than the map's key
    """
    parts = list(key) if isinstance(key, Sequence) and not isinstance(key, (str, bytes)) else [key]
    for part in parts:
        if reason := no_value_reason(part):
            raise ValueError(f"has a part without a value: it {reason}" if len(parts) > 1 else reason)
    texts = key_texts(parts)
    if not texts:
        raise ValueError("is blank")
    stored = key_map.value(KEY_COLUMNS)
    if stored is not None and len(stored) != len(texts):
        raise ValueError(f"has {len(texts)} parts, and the map's key has {len(stored)}: {' and '.join(stored)}")
    return key_map.hashes.of_key(texts)


class RowUpsert(Struct, frozen=True):
    """Creates or updates one row of the list.

    :param owner: the task, as owner of the lease
    :param columns: the names of the list's columns, by id
    :param values: what to store beside the rows of the map, with the intent
    :param check_map: called once the task has its lease; raises if the map must get no row
    """

    key_map: KeyMap
    requests: Requests
    owner: str
    rules: SyncRules
    columns: Mapping[str, str]
    values: Mapping[str, Any] = field(default_factory=dict)
    check_map: Callable[[], None] = lambda: None

    async def run(self, row_hash: bytes, cells: Mapping[str, Any]) -> SingleRow:
        """Create or update the row. Sends nothing if the list has these cells already.

        :param cells: by column id, as on the wire
        :raises UnknownCreationsError: when the outcome of its creation is unknown, and the rules say ``fail``
        :raises NotSyncedError: when another task has a request for the row in flight
        :raises RowUpdatesError: when the service cleared the cells that were not sent
        :raises UnstoredCellsError: when the service accepted cells and did not store them
        :raises ContactsError: when the lease ended, or the map cannot be used
        :raises CpaasError: when the request failed; the map has recorded the outcome
        """
        lease = self.key_map.row_lease(self.owner)
        try:
            with lease.renewal():
                self.check_map()
                return await self._upsert(lease, WorkItem(row_hash, 0, None, b"", cells))
        finally:
            lease.release()

    async def _upsert(self, lease: Lease, item: WorkItem) -> SingleRow:
        for _ in range(_MAX_ATTEMPTS):
            entry = self.key_map.entries([item.key_hash]).get(item.key_hash)
            decision = decide(item, entry, self.rules, lease)
            if decision.action is Action.BUSY:
                await self.requests.pause(_BUSY_SECONDS)
                continue
            if decision.action is Action.UNKNOWN:
                return self._unknown("an earlier request to create it was sent, and its outcome is unknown")
            if decision.action not in (Action.CREATE, Action.UPDATE):
                return SingleRow(None if entry is None else entry.row_id)
            before = entry or MapEntry(item.key_hash)
            intent = requested(decision, item, before, lease)
            if lease.write([Change(before, intent)], self.values):
                # Another task has changed the entry meanwhile: read it again.
                continue
            intent = replace(intent, version=before.version + 1)
            if (done := await self._make(lease, item, decision, before, intent)) is not None:
                return done
        raise NotSyncedError(
            "Another task has a request for this row under way, and had one for "
            f"{_MAX_ATTEMPTS * _BUSY_SECONDS:g} seconds. Nothing was sent. A retry of the task looks again."
        )

    async def _make(
        self, lease: Lease, item: WorkItem, decision: Decision, before: MapEntry, intent: MapEntry
    ) -> SingleRow | None:
        """Make the request and record its result. Return ``None`` if the row is gone and must be created."""
        creates = decision.action is Action.CREATE
        try:
            record = await self._requested(item, decision, intent)
        except api_errors.CpaasUnknownOutcomeError as error:
            if not creates:
                raise
            lease.write([Change(intent, replace(intent, state=RowState.UNKNOWN, fencing_token=None))])
            return self._unknown(str(error))
        except RowUpdatesError:
            lease.write([Change(intent, replace(intent, cell_hashes=None, fencing_token=None))])
            raise
        except api_errors.CpaasRejectedError as error:
            is_gone = False
            try:
                if not creates:
                    finder = RowFinder(_RowCalls(self.requests), [self.key_map], self.columns)
                    is_gone = is_proved_gone(await finder.find_updated(str(intent.row_id), error), error)
            finally:
                lease.write([Change(intent, None if is_gone else undone(decision, intent, before))])
            if not is_gone or self.rules.mode == "update":
                raise
            return None
        except (StoppedError, api_errors.CpaasNotSentError, api_errors.CpaasInvalidRequestError):
            lease.write([Change(intent, undone(decision, intent, before))])
            raise
        row_id = str(record.row.id if creates else intent.row_id)
        hashes = self.key_map.hashes
        after = in_step(item, before, row_id, self.rules, hashes, is_whole=decision.is_whole)
        # The token shows a sync whether the row was written since it began.
        token = lease.fencing_token
        after = replace(after, raw_hash=None, fencing_token=token, version=intent.version + 1)
        is_other = creates and is_other_row(record.row.columns, decision.cells)
        if not is_other:
            try:
                lease.write([Change(intent, after)])
            except SharedRowError:
                is_other = True
        if is_other:
            lease.write([Change(intent, replace(intent, state=RowState.UNKNOWN, fencing_token=None))])
            return self._unknown("the response has the id or the cells of another row")
        unstored = await find_unstored(_RowCalls(self.requests), record, decision.cells)
        if unstored.columns:
            stored = CellHashes.from_bytes(after.cell_hashes).without(unstored.columns)
            lease.write([Change(after, replace(after, cell_hashes=stored.to_bytes()))])
            reason = unstored.reason(self.columns)
            if not unstored.is_proved:
                raise NotSyncedError(
                    f"{reason[0].upper()}{reason[1:]}. The row id is recorded. A retry of the task sends these cells "
                    "again."
                )
            raise UnstoredCellsError(
                f"{reason[0].upper()}{reason[1:]}. The row id is recorded. Correct these values, then clear the task."
            )
        return SingleRow(row_id, created=creates, changed=True)

    async def _requested(self, item: WorkItem, decision: Decision, intent: MapEntry) -> ContactRowRecord:
        requests, cells = _RowCalls(self.requests), dict(decision.cells)
        if decision.action is Action.CREATE:
            return await self.requests.run(operations.create_contact_row(cells))
        row_id = str(intent.row_id)
        if decision.is_whole:
            return await requests.update_contact_row(row_id, cells)
        updates = CheckedUpdates(requests, self.columns, self.key_map.hashes)
        record = await updates.update(row_id, cells, intent.cell_hashes, item.cells)
        if record is None:
            raise AssertionError("nothing was sent, although this is the first update")
        return record

    def _unknown(self, why: str) -> SingleRow:
        if self.rules.on_unknown == "skip":
            return SingleRow(None, unknown=True)
        facts = self.key_map.facts
        raise UnknownCreationsError(
            f"The outcome of this row's creation is unknown: {why.rstrip('.')}. Look for the row in the list, then "
            f"resolve it with: airflow cpaas contacts resolve --conn-id {facts.conn_id} --map {facts.name}. "
            "on_unknown='resend' creates it again, perhaps twice."
        )


class _RowCalls(Struct, frozen=True):
    """The requests of a task as methods, as those of a client."""

    requests: Requests

    async def get_contact_row(self, row_id: str) -> ContactRowRecord:
        return await self.requests.run(operations.get_contact_row(row_id))

    async def get_contact_table(self) -> ContactTable:
        return await self.requests.run(operations.get_contact_table())

    async def update_contact_row(self, row_id: str, columns: Mapping[str, Any]) -> ContactRowRecord:
        return await self.requests.run(operations.update_contact_row(row_id, columns))
