"""One try of a contact sync: reads the source, compares it with the key map, checks the limits, sends and reports."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import astuple, replace

from cpaas_provider.api.amounts import counted
from cpaas_provider.api.bounds import WHOLE
from cpaas_provider.api.errors import CpaasInvalidRequestError
from cpaas_provider.api.recipients.msisdn import NumberReader
from cpaas_provider.contacts.errors import CursorChangedError, MapMismatchError, StoppedError, TooManyChangesError
from cpaas_provider.contacts.key_map.hashes import buckets_of
from cpaas_provider.contacts.key_map.key_map import KeyMap, Lease
from cpaas_provider.contacts.key_map.maps import DEFAULT_MAP, check_new_map, open_map
from cpaas_provider.contacts.key_map.overview import KEY_COLUMNS, recipient_values
from cpaas_provider.contacts.mapping.columns import ContactColumns, recipient_columns
from cpaas_provider.contacts.mapping.rows import RowMapping
from cpaas_provider.contacts.mapping.rules import ColumnRule, unfilled_message
from cpaas_provider.contacts.sync.cursor import StoredCursor, recount_invalid_rows
from cpaas_provider.contacts.sync.decisions import Plan, SyncRules
from cpaas_provider.contacts.sync.dispatcher import Dispatcher, StopSignal
from cpaas_provider.contacts.sync.limits import (
    ConfirmedChanges,
    Limit,
    check_changes,
    check_result,
    tolerated_rejections,
)
from cpaas_provider.contacts.sync.planning import Planner
from cpaas_provider.contacts.sync.report import (
    Publish,
    SyncProgress,
    estimate_line,
    figures,
    in_words,
    incomplete_because,
    planned_changes,
    planned_line,
    planned_outcome,
    preview,
)
from cpaas_provider.contacts.sync.results import Counts
from cpaas_provider.contacts.sync.run_totals import RunTotals
from cpaas_provider.contacts.sync.spool import OutcomeLine, Spool
from cpaas_provider.database.database import Database
from cpaas_provider.database.errors import DatabaseError

if TYPE_CHECKING:
    from cpaas_provider.api.client import AsyncCpaasClient
    from cpaas_provider.api.models.contacts import ContactTable
    from cpaas_provider.sources.base import Source

log = logging.getLogger(__name__)

COLUMN_TYPES, COLUMNS = "column_types", "columns"
"""Names of values that a map stores beside its rows."""


class SyncSpec(Struct, frozen=True):
    """The settings of a sync; see ``SyncContactsOperator`` for the fields.

    :param run: identifies the task instance; the same in all its tries
    :param missing_cells: the author's values by name of the list column
    :param max_duration: in seconds
    :param partition: the number of the partition, from 0, and the number of partitions
    :param confirmed: what a user confirmed after a limit had stopped the sync; ``None`` for nothing
    :param refusal: why the sync ends before its first request although its limits may allow it; empty if it does not
    """

    key: tuple[str, ...]
    columns: Mapping[str, ColumnRule]
    run: str
    owner: str
    rules: SyncRules = field(default_factory=SyncRules)
    map_name: str = DEFAULT_MAP
    missing_cells: Mapping[str, Any] = field(default_factory=dict)
    empty_cell_value: Any = "null"
    resync: bool = False
    cursor_column: str | None = None
    max_changes: Limit = None
    max_deletes: Limit = 0.1
    max_new: Limit = 0.5
    new_map: bool = False
    max_failure_ratio: float = 0.0
    max_duration: float | None = None
    max_pending_requests: int | None = None
    partition: tuple[int, int] = (0, 1)
    dry_run: bool = False
    preview_count: int = 0
    spool_path: str | None = None
    progress_interval: float = 10.0
    confirmed: ConfirmedChanges | None = None
    refusal: str = ""


class ContactSync:
    """One try of a sync. Used once, as a context manager, which releases the lease and removes the spool.

    :param table: the contact table as it is now
    :param connect: returns a context manager with an async client
    """

    def __init__(
        self,
        spec: SyncSpec,
        database: Database,
        table: ContactTable,
        stop: StopSignal,
        *,
        conn_id: str,
        base_url: str,
        numbers: NumberReader,
        requests_per_second: float,
        connect: Callable[[], AbstractAsyncContextManager[AsyncCpaasClient]],
        publish: Publish = lambda figures: None,
    ) -> None:
        self._spec = spec
        self._database = database
        self._table = table
        self._stop = stop
        self._conn_id = conn_id
        self._base_url = base_url
        self._numbers = numbers
        self._requests_per_second = requests_per_second
        self._connect = connect
        self._progress = SyncProgress(spec.progress_interval, publish)
        self._open = contextlib.ExitStack()
        self._names = {column.id: column.name for column in table.columns}
        self._began = time.monotonic()
        self._ended = False
        self._cursor: StoredCursor | None = None
        self.plan = Plan()
        self.counts = Counts()
        self.preview: list[dict[str, Any]] = []
        self.is_planned = False
        """Whether the whole source was read and compared."""
        self.changed = False
        self.column_sources: Mapping[str, tuple[str, ...]] = {}
        self._spool: Spool | None = None
        self._planned_by: SyncRules | None = None
        """The rules of a dry run whose plan is not in the results file yet."""

    def __enter__(self) -> ContactSync:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def begin(self) -> Any:
        """Acquire the lease on this part of the list, and return the cursor of the last run for a query.

        :raises LeaseTakenError: when another task syncs it now, or fills another map of the list with its first rows
        :raises MapMismatchError: when the map belongs to another list or another key
        :raises SecondMapError: when the map has no rows, and another one has rows of the same list
        :raises DatabaseError: when the database cannot be used
        """
        spec = self._spec
        contact_list: Any = {
            "conn_id": self._conn_id,
            "base_url": self._base_url,
            "table_id": self._table.id,
            "name": spec.map_name,
        }
        # A sync that creates no row cannot create one twice.
        may_double = not spec.new_map and spec.rules.mode != "update"
        if may_double:
            check_new_map(self._database, **contact_list)
        key_map = open_map(self._database, **contact_list)
        self._check_key(key_map)
        self._lease = key_map.lease(spec.owner, buckets_of(*spec.partition))
        self._open.callback(_release, self._lease)
        part = "{}-{}".format(*self._lease.buckets)
        self._changed_key = "changed" if spec.partition == (0, 1) else f"changed/{part}"
        self._resync_key = f"resync/{part}"
        if may_double:
            check_new_map(self._database, **contact_list)
        self.counts.earlier = RunTotals.read(self._lease, spec.run)
        if spec.cursor_column is None:
            return None
        self._cursor = StoredCursor(
            self._lease,
            spec.cursor_column,
            self._settings_hash(),
            next((rule.date_format for rule in spec.columns.values() if _is_dated(rule, spec.cursor_column)), None),
            # The rows to send once more may be below the cursor.
            reads_all=spec.resync or (spec.rules.retry_rejected and bool(key_map.rejected())),
        )
        return self._cursor.cursor.sql_parameter

    def run(self, source: Source, *, is_filtered: bool = False) -> None:
        """Read the source and send the rows that differ.

        :param is_filtered: whether the source was made to leave out rows below the cursor
        :raises SourceError: when the source cannot be read; nothing was sent
        :raises CpaasInvalidRequestError: when the mapping fits neither table nor source; nothing was sent
        :raises ContactsError: see its subclasses
        :raises DatabaseError: when the database cannot be used
        :raises CpaasError: when the service asks for a pause, or refuses the account
        """
        spec, key_map = self._spec, self._lease.key_map
        if self._cursor is not None:
            self._cursor.is_filtered = is_filtered
        spool = self._spool = self._open.enter_context(Spool(spec.spool_path))
        resends_cells = spec.resync and spec.dry_run and not self._is_resynced(key_map)
        rules = replace(spec.rules, missing_cells=self._missing_cells(), resends_cells=resends_cells)
        with self._lease.renewal(), source.open() as table:
            mapping = RowMapping(
                spec.columns,
                self._table,
                table.columns,
                numbers=self._numbers,
                empty_cell_value=spec.empty_cell_value,
                key=spec.key,
            )
            if rules.row_updates == WHOLE:
                self._check_whole_rows(mapping, rules)
            self._log_changed_types(key_map, mapping)
            self.column_sources = mapping.column_sources
            self._check_columns(key_map, rules)
            # A retry of the same run continues instead of starting over.
            if spec.resync and not spec.dry_run and not self._is_resynced(key_map):
                count = self._lease.forget_cells({self._resync_key: spec.run})
                log.info("resync: all cells of %s are sent once more.", counted(count, "row"))
            planner = Planner(
                self._lease,
                mapping,
                rules,
                spool,
                cursor=self._cursor.cursor if self._cursor else None,
                earlier=self.counts.earlier,
                check=self._check,
                progress=self._progress.reading,
            )
            self.plan = planner.plan
            try:
                if self._cursor is not None:
                    self._cursor.check_columns(self.column_sources)
                planner.read(table, whole=spec.cursor_column is None)
            except CursorChangedError:
                if self._cursor is not None:
                    self._cursor.remove()
                raise
        self.is_planned = True
        log.info("%s", planned_line(self.plan, time.monotonic() - self._began))
        if spec.preview_count:
            self.preview = preview(planned_changes(spool, rules, self._lease), spec.preview_count, self._names)
        if spec.dry_run:
            log.info("%s", estimate_line(self.plan.requests, self._requests_per_second))
            self._planned_by = rules
            self._ended = True
            try:
                self._check_changes()
            except TooManyChangesError as error:
                log.warning("Without dry_run, this sync would stop before its first request: %s", error)
            return
        self._check_changes()
        values: dict[str, Any] = {
            **self.counts.earlier.removed_values(),
            KEY_COLUMNS: list(spec.key),
            COLUMN_TYPES: mapping.type_signature,
            **self._columns_by_name(key_map),
            **recipient_values(key_map, recipient_columns(self._table)),
        }
        self.changed = bool(key_map.value(self._changed_key))
        if self.plan.requests:
            values[self._changed_key] = True
        self._lease.write([], values)
        if self.plan.work:
            asyncio.run(self._send(mapping, rules, spool))
        self._end()

    def mark_published(self) -> None:
        """Record that the changes were published.

        :raises DatabaseError: when the database cannot be written
        """
        if self.changed:
            self._lease.write([], {self._changed_key: None})

    def report(self) -> dict[str, Any]:
        """Return the result of the sync, as small JSON."""
        spec = self._spec
        report = figures(self.plan, self.counts, dry_run=spec.dry_run)
        report["failed_before_cursor"] = self._cursor.failed_before(self.plan) if self._cursor else 0
        causes = incomplete_because(report, ended=self._ended, dry_run=spec.dry_run)
        return {
            "map": spec.map_name,
            **report,
            "complete": not causes,
            "incomplete_because": causes,
            "dry_run": spec.dry_run,
            "run": self.counts.earlier.figures(self.counts),
        }

    def outcomes(self) -> Iterator[OutcomeLine]:
        """Yield the lines of the results file. That of a dry run also has the requests that would be made."""
        if self._spool is None:
            return
        if (rules := self._planned_by) is not None:
            self._planned_by = None
            for change in planned_changes(self._spool, rules, self._lease):
                self._spool.add_outcome(planned_outcome(change, self._names))
        yield from self._spool.outcomes()

    def _check_key(self, key_map: KeyMap) -> None:
        stored = key_map.value(KEY_COLUMNS)
        if stored is not None and list(stored) != list(self._spec.key) and any(key_map.counts().values()):
            raise MapMismatchError(
                f"The contact map {self._spec.map_name!r} was made with the key {' and '.join(stored)}. With another "
                "key every row would be created again. Nothing was sent. Use that key. If its columns were only "
                f"renamed, run: airflow cpaas contacts move-map --conn-id {self._conn_id} --map {self._spec.map_name} "
                f"{' '.join(f'--key {name}' for name in self._spec.key)}. If rows have other keys now, import their "
                "row ids into another map with: airflow cpaas contacts import-map --replace"
            )

    def _check_changes(self) -> None:
        spec = self._spec
        if spec.refusal:
            raise TooManyChangesError(spec.refusal)
        check_changes(
            self.plan,
            max_changes=spec.max_changes,
            max_deletes=spec.max_deletes,
            max_new=spec.max_new,
            confirmed=spec.confirmed.remaining(self.done) if spec.confirmed else None,
        )

    @property
    def done(self) -> dict[str, int]:
        """What the run has changed, as ``ConfirmedChanges`` compares it."""
        return {**self.counts.earlier.figures(self.counts), "missing_unchanged": self.plan.missing_unchanged}

    def _settings_hash(self) -> str:
        """Return a hash of the settings, and of the list's columns, on which it depends whether a row differs."""
        spec = self._spec
        settings = json.dumps(
            [
                spec.key,
                spec.rules.mode,
                {name: rule.as_dict() for name, rule in spec.columns.items()},
                astuple(self._numbers),
                spec.empty_cell_value,
                # A cell has another form in a column of another type, or may not fit there.
                sorted((column.id, column.type) for column in self._table.columns),
            ],
            default=repr,
            sort_keys=True,
        )
        return blake2b(settings.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()

    def _missing_cells(self) -> dict[str, Any]:
        """Return the cells to write into rows that are missing from the source, by column id."""
        if not self._spec.missing_cells:
            return {}
        try:
            return ContactColumns(self._table).encode(
                self._spec.missing_cells,
                numbers=self._numbers,
                empty_cell_value=self._spec.empty_cell_value,
            )
        except CpaasInvalidRequestError as error:
            raise CpaasInvalidRequestError(f"on_missing: {error}") from None

    def _check_whole_rows(self, mapping: RowMapping, rules: SyncRules) -> None:
        """Refuse what cannot work if an update clears the cells that it does not send."""
        if rules.on_invalid_cell == "skip_cell":
            raise CpaasInvalidRequestError(
                "The connection's row_updates is whole, so an update without the invalid cell would clear it. Nothing "
                "was sent. Use on_invalid_cell='skip_row'."
            )
        if faults := mapping.whole_row_faults(rules.missing_cells):
            raise CpaasInvalidRequestError(
                "The connection's row_updates is whole, so each update must send all cells of its row. "
                f"{'; '.join(faults)}. Nothing was sent. Remove keep_when_blank from the mapping, and use on_missing "
                "'keep' or 'delete', or have it write every column of the mapping."
            )
        if others := mapping.columns_not_filled(self._table):
            log.warning(
                "row_updates of the connection is whole: updates send no cells of %s, which the mapping does not fill. "
                "A service that clears such cells empties them.",
                ", ".join(others),
            )

    def _check_columns(self, key_map: KeyMap, rules: SyncRules) -> None:
        """Log the columns, and refuse a sync that would leave a column as it is without a word.

        :raises CpaasInvalidRequestError: when a column that an earlier sync filled by its name alone is gone from
            source or list, or when ``on_missing`` writes into a column that no row of the source fills
        """
        log.info(
            "Columns of the list: %s.",
            "; ".join(
                f"{column} from {' and '.join(sources) if sources else 'a constant'}"
                for column, sources in self.column_sources.items()
            ),
        )
        gone = sorted(set(key_map.value(COLUMNS) or ()) - set(self.column_sources))
        if gone and not self._spec.columns:
            raise CpaasInvalidRequestError(
                f"The last sync filled {' and '.join(map(repr, gone))}, and source and list no longer share that name. "
                "Nothing was sent. If a column was renamed, map it in columns, such as columns={'List column': "
                "'source_column'}. If it should no longer be sent, name the others in columns."
            )
        names = [self._names[column] for column in rules.missing_cells]
        if unfilled := [name for name in names if name not in self.column_sources]:
            raise CpaasInvalidRequestError(unfilled_message(unfilled))

    def _columns_by_name(self, key_map: KeyMap) -> dict[str, Any]:
        """Return the value to store of the columns that a sync without a mapping fills.

        A mapping that fills other columns is another sync of the map, such as one that marks a few contacts. One that
        names some of the stored columns leaves out the rest on purpose.
        """
        filled = set(self.column_sources)
        if self._spec.columns and not filled <= set(key_map.value(COLUMNS) or ()):
            return {}
        return {COLUMNS: sorted(filled)}

    def _log_changed_types(self, key_map: KeyMap, mapping: RowMapping) -> None:
        stored = key_map.value(COLUMN_TYPES)
        if stored is not None and (changed := mapping.changed_types(stored)):
            log.warning(
                "The types of columns changed at the service since the last sync: %s. Cells that do not fit the new "
                "type are invalid rows now.",
                "; ".join(changed),
            )

    def _is_resynced(self, key_map: KeyMap) -> bool:
        """Return whether an earlier try of this run began the resync."""
        return bool(key_map.value(self._resync_key) == self._spec.run)

    def _check(self) -> None:
        if self._stop.requested:
            raise StoppedError("The task was asked to stop while it read the source. Nothing was sent.")

    async def _send(self, mapping: RowMapping, rules: SyncRules, spool: Spool) -> None:
        spec = self._spec
        spool.keep_less_in_memory()
        async with self._connect() as client:
            dispatcher = Dispatcher(
                self._lease,
                mapping,
                rules,
                spool,
                client,
                self._stop,
                window=spec.max_pending_requests or 2 * client.settings.max_concurrency,
                per_second=self._requests_per_second,
                names=self._names,
                planned=self.plan.requests,
                tolerated=tolerated_rejections(self.plan, spec.max_failure_ratio),
                ends_at=None if spec.max_duration is None else self._began + spec.max_duration,
                counts=self.counts,
            )
            progress = asyncio.create_task(self._progress.sending(self.counts, self.plan.work))
            try:
                await dispatcher.run()
            finally:
                progress.cancel()
                counts = self.counts
                self.changed = self.changed or counts.created + counts.updated + counts.deleted > 0
                self._progress.log(self.counts, self.plan.work)

    def _end(self) -> None:
        """Move the cursor, and fail if the result is not within the author's limits."""
        spec, plan, counts = self._spec, self.plan, self.counts
        self._ended = True
        report = self.report()
        if self._cursor is not None:
            unrecorded = counts.rejected - counts.recorded_rejections
            self._cursor.move(plan, report, unrecorded, self.column_sources)
        elif spec.partition == (0, 1):
            recount_invalid_rows(self._lease, plan, self._settings_hash())
        if plan.missing_skipped:
            log.warning(
                "%s of the source could not be read, or had no key. Each may be one that seems to be gone, so %s "
                "were not deleted or cleared. Correct the source, then the next run does that.",
                counted(plan.unreadable, "row"),
                counted(plan.missing_skipped, "row"),
            )
        if causes := report["incomplete_because"]:
            log.warning("The list does not equal the source: %s.", in_words(causes))
        check_result(
            plan, counts, spec.rules.on_unknown, spec.max_failure_ratio, f"{self._conn_id} --map {spec.map_name}"
        )
        if report["remaining"]:
            log.warning(
                "max_duration ended the sync in good order: %s left. The next run goes on there.",
                counted(report["remaining"], "row"),
            )


def _is_dated(rule: ColumnRule, source_column: str) -> bool:
    """Tell whether a rule says how dates in a source column are written."""
    return rule.source == source_column and rule.date_format is not None


def _release(lease: Lease) -> None:
    try:
        lease.release()
    except DatabaseError as error:
        log.warning("The lease on the contact list could not be given back, and ends by itself: %s", error)
