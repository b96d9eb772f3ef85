"""Syncs against the row service over real HTTP: versions of a source, faults, kills, and the comparison afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from sqlalchemy import delete

from cpaas_provider.api.client import AsyncCpaasClient, CpaasClient
from cpaas_provider.api.errors import CpaasError
from cpaas_provider.api.recipients.msisdn import INTERNATIONAL
from cpaas_provider.contacts.errors import (
    ContactsError,
    NotSyncedError,
    TooManyFailuresError,
    UnknownCreationsError,
)
from cpaas_provider.contacts.key_map.entries import RowState
from cpaas_provider.contacts.key_map.maps import find_map
from cpaas_provider.contacts.mapping.rules import ColumnRule
from cpaas_provider.contacts.sync import report as report_module
from cpaas_provider.contacts.sync.decisions import SyncRules
from cpaas_provider.contacts.sync.rows.single_row import RowUpsert, key_hash
from cpaas_provider.contacts.sync.spool import OutcomeLine
from cpaas_provider.contacts.sync.sync import ContactSync, SyncSpec
from cpaas_provider.database.database import Database
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.database.schema.contacts import contact_leases
from cpaas_provider.sources.base import InvalidRow, Row, SourceError, Table
from cpaas_provider.sources.lists import ListSource
from tests.row_service import Column, ContactTable, DrawnFaults, RowService, ScriptedFaults, Switches
from tests.unit.contacts.sync.model import AtWrite, Died, OfProcess, Process

CONN_ID = "c"
REFUSED, BROKEN = "Refused", "Broken"
"""Names that the service refuses, and on which it breaks, each time."""
_COLUMNS = {
    "Key": "TEXT",
    "Name": "TEXT",
    "Points": "NUMBER",
    "Born": "DATE",
    "Phone": "PHONE NUMBER",
    "Tags": "MULTI SELECT",
}
RULES = {name: ColumnRule(source=name.lower()) for name in _COLUMNS}
SUMMANDS = getattr(report_module, "SUMMANDS", ())
_WRONG = ("rejected", "invalid_row", "unknown", "not_sent")
_NOT_FATAL = (UnknownCreationsError, TooManyFailuresError, NotSyncedError)


@dataclass(frozen=True)
class Version:
    """A version of the source, the arguments of the run that syncs it, and what happens meanwhile.

    :param rows: key, name, points, born, phone, tags
    :param faults: of the service; ``None`` for none
    :param dies: at which call of the client, and whether before or after its request, the process is killed
    :param upsert: number of the row while which is read a keyed upsert of that row begins
    :param vanishes: number of a row of the list that another client deletes before
    :param retyped: another client changes the type of the column ``Points`` before
    """

    rows: tuple[tuple[str | None, ...], ...]
    faults: DrawnFaults | None = None
    dies: tuple[int, str] | None = None
    writes: tuple[AtWrite, ...] = ()
    partitions: int = 1
    mode: str = "upsert"
    on_missing: str = "keep"
    on_deleted_row: str = "create"
    on_unknown: str = "skip"
    on_duplicate_key: str = "first"
    retry_rejected: bool = False
    resync: bool = False
    upsert: int | None = None
    vanishes: int | None = None
    retyped: bool = False


@dataclass
class Ended:
    """How one try ended.

    :param error: ``None`` where it returned; a ``Died`` where it was killed
    """

    report: dict[str, Any] = field(default_factory=dict)
    lines: list[OutcomeLine] = field(default_factory=list)
    error: BaseException | None = None

    @property
    def is_complete(self) -> bool:
        return bool(self.report.get("complete")) and not isinstance(self.error, Died)


class QuickClient(AsyncCpaasClient):
    """The real client, without pauses between its attempts."""

    async def _sleep(self, seconds: float) -> None:
        await super()._sleep(0)


class MortalClient:
    """A client in a process that is killed at a call. What is under way then arrives before the next try."""

    def __init__(self, process: Process, client: AsyncCpaasClient, world: RowWorld) -> None:
        self._process = process
        self._client = client
        self._world = world
        self.settings = client.settings

    def stop(self) -> None:
        self._client.stop()

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._client, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            await asyncio.sleep(0)
            self._process.check()
            dies = self._world.next_call()
            if dies == "before":
                self._die()
            request = asyncio.ensure_future(method(*args, **kwargs))
            try:
                return await asyncio.shield(request)
            except asyncio.CancelledError:
                await asyncio.gather(request, return_exceptions=True)
                raise
            finally:
                if dies == "after":
                    self._die()
                self._process.check()

        return call

    def _die(self) -> None:
        self._client.stop()
        self._process.die()


class KeyedUpsert:
    """A keyed upsert of another task, in a thread. It begins on ``begin`` and is under way until ``release``."""

    def __init__(self, world: RowWorld, key: str, cells: Mapping[str, Any]) -> None:
        self._world = world
        self._key = key
        self._cells = cells
        self._under_way, self._released = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._upsert()))

    def begin(self) -> None:
        self._thread.start()
        self._under_way.wait(10)

    def release(self) -> None:
        self._released.set()
        if self._thread.ident is not None:
            self._thread.join(10)

    async def _upsert(self) -> None:
        world = self._world
        try:
            async with world.client() as client:

                async def run(call: Any) -> Any:
                    self._under_way.set()
                    await asyncio.to_thread(self._released.wait, 10)
                    return await client.run(call)

                requests: Any = SimpleNamespace(run=run, pause=asyncio.sleep)
                key_map = find_map(world.database, conn_id=CONN_ID, name=world.map_name)
                rules = SyncRules(on_unknown="skip", **_known(SyncRules, row_updates=world.row_updates))
                names = {column.id: column.name for column in world.service.table.columns.values()}
                upsert = RowUpsert(key_map, requests, "an upsert", rules, **_known(RowUpsert, columns=names))
                await upsert.run(key_hash(key_map, self._key), self._cells)
        except Exception as error:  # noqa: BLE001 - the thread of the test looks at it
            world.upsert_errors.append(error)
        finally:
            self._under_way.set()


class Watched:
    """A source that begins something while one of its rows is read."""

    def __init__(self, rows: Sequence[Mapping[str, Any]], number: int, begin: Callable[[], None]) -> None:
        self._rows = rows
        self._number = number
        self._begin = begin

    @contextmanager
    def open(self) -> Iterator[Table]:
        with ListSource(self._rows).open() as table:

            def rows(wanted: Sequence[str]) -> Iterator[Row | InvalidRow]:
                for number, row in enumerate(table.rows(wanted)):
                    if number == self._number:
                        self._begin()
                    yield row

            yield SimpleNamespace(columns=table.columns, rows=rows)  # type: ignore[misc]  # a table


class RowWorld:
    """A contact list at the row service, a database, and the syncs between a source and that list."""

    def __init__(
        self,
        service: RowService,
        database: Database,
        name: str,
        switches: Switches,
        *,
        row_updates: str = "partial",
        max_concurrency: int = 1,
    ) -> None:
        self.service = service
        self.database = database
        self.map_name = name
        self.row_updates = row_updates
        self.max_concurrency = max_concurrency
        self.writes: deque[AtWrite] = deque()
        self.world = self
        self.upsert_errors: list[Exception] = []
        self.versions = 0
        self.keys: set[str] = set()
        self._vanished: dict[str, tuple[str, int]] = {}
        self._calls = 0
        self._dies: tuple[int, str] | None = None
        self._version: Version | None = None
        columns = [Column(f"col_{name.lower()}", name, kind, name == "Key") for name, kind in _COLUMNS.items()]
        service.replace_table(ContactTable(columns, table_id=f"tbl_{name}"))
        service.switches = switches
        service.refused_values, service.broken_values = [REFUSED], [BROKEN]

    # What syncs use.

    def client(self) -> QuickClient:
        return QuickClient(self.service.url, self.service.api_key, **self._options())

    def _options(self) -> Any:
        return {
            "auth_scheme": "" if self.service.switches.auth == "raw" else "Bearer",
            "max_concurrency": self.max_concurrency,
            "requests_per_second": 100_000,
            "max_retries": 1,
        }

    def next_call(self) -> str | None:
        """Count a call of the client, and return whether the process dies before or after it."""
        self._calls += 1
        return self._dies[1] if self._dies is not None and self._dies[0] == self._calls else None

    # One run.

    def run(self, version: Version) -> list[Ended]:
        """Sync all partitions of one version, and compare the list with it."""
        if self.row_updates == "whole" and version.on_missing == "clear":
            # The sync refuses this: it does not know the other cells of a row that the source no longer has.
            version = replace(version, on_missing="delete")
        self.versions += 1
        self.keys |= {row[0] for row in version.rows if row[0]}
        table = self.service.table
        if version.vanishes is not None and table.rows:
            row_id = sorted(table.rows)[version.vanishes % len(table.rows)]
            self._vanished[row_id] = (table.rows[row_id].columns["col_key"], len(self.service.arrived))
            table.delete(row_id, by="other")
        if version.retyped:
            kind = "TEXT" if table.columns["col_points"].type == "NUMBER" else "NUMBER"
            table.retype_column("col_points", kind)
        if self._version is not None and self._version.partitions != version.partitions:
            self.let_leases_end()
        self._version = version
        self.service.faults = version.faults or ScriptedFaults(())
        self.writes, self._calls, self._dies = deque(version.writes), 0, version.dies
        ended = [self._one_try(version, part) for part in range(version.partitions)]
        self.service.faults = ScriptedFaults(())
        self._compare(version, ended)
        return ended

    def let_leases_end(self) -> None:
        """Have the leases of tries that died be over; a try of the same partition need not wait for that."""
        self.database.write(lambda connection: connection.execute(delete(contact_leases)))

    def _one_try(self, version: Version, part: int) -> Ended:
        process = Process(self)  # type: ignore[arg-type]  # a world, as far as a process needs it
        process.stop.grace_left = 0.01
        rows = [dict(zip(map(str.lower, _COLUMNS), row, strict=True)) for row in version.rows]
        source: Any = ListSource(rows)
        upsert: KeyedUpsert | None = None
        if version.upsert is not None and part == 0 and version.upsert < len(rows):
            key = rows[version.upsert]["key"]
            name = rows[version.upsert]["name"]
            if key and name not in (None, REFUSED, BROKEN):
                upsert = KeyedUpsert(self, key, {"col_key": key, "col_name": name})
                source = Watched(rows, version.upsert, upsert.begin)

        @asynccontextmanager
        async def connect() -> AsyncIterator[Any]:
            if upsert is not None:
                await asyncio.to_thread(upsert.release)
            async with self.client() as client:
                yield MortalClient(process, client, self)

        ended = Ended()
        try:
            table = self._read_table()
            with self._sync(version, part, process, table, connect) as sync:
                try:
                    sync.begin()
                    sync.run(source)
                finally:
                    ended.report = sync.report()
                    ended.lines = list(sync.outcomes()) if sync._spool is not None else []
        except (Died, ContactsError, DatabaseError, SourceError, CpaasError) as error:
            ended.error = error
        finally:
            if upsert is not None:
                upsert.release()
        for error in self.upsert_errors:
            if not isinstance(error, (CpaasError, ContactsError, DatabaseError)):
                raise AssertionError("the upsert failed by a defect") from error
        if process.dead:
            assert isinstance(ended.error, Died), f"{ended.error!r} hid that the process had died"
            ended.report = {}
        return ended

    def _read_table(self) -> Any:
        with CpaasClient(self.service.url, self.service.api_key, **self._options()) as client:
            client._sleep = lambda seconds: None  # type: ignore[method-assign]
            return client.get_contact_table()

    def _sync(self, version: Version, part: int, process: Process, table: Any, connect: Any) -> ContactSync:
        spec = SyncSpec(
            key=("key",),
            columns=RULES,
            run=f"run {self.versions}",
            owner=f"task of part {part}",
            map_name=self.map_name,
            missing_cells={"Name": None} if version.on_missing == "clear" else {},
            resync=version.resync,
            max_deletes=None,
            max_failure_ratio=1.0,
            max_pending_requests=3,
            partition=(part, version.partitions),
            progress_interval=0,
            **_known(SyncSpec, max_new=None),
            rules=SyncRules(
                mode=version.mode,
                on_missing=version.on_missing,
                on_deleted_row=version.on_deleted_row,
                on_unknown=version.on_unknown,
                retry_rejected=version.retry_rejected,
                on_duplicate_key=version.on_duplicate_key,
                **_known(SyncRules, row_updates=self.row_updates),
            ),
        )
        return ContactSync(
            spec,
            OfProcess(self.database, process),
            table,
            process.stop,
            conn_id=CONN_ID,
            base_url=self.service.url,
            numbers=INTERNATIONAL,
            requests_per_second=100_000.0,
            connect=connect,
        )

    # The comparison.

    def list_by_key(self) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of the list by key, as plain values by column name, without empty cells."""
        table = self.service.table
        rows: dict[str, list[dict[str, Any]]] = {}
        for row in table.rows.values():
            cells = {
                column.name: _in_list(column.type, row.columns[column.id])
                for column in table.columns.values()
                if row.columns.get(column.id) not in (None, "", [])
            }
            rows.setdefault(str(cells.get("Key")), []).append(cells)
        return rows

    def expected(self, version: Version) -> dict[str, dict[str, Any] | None]:
        """Return what the list is to have by key, in the same form; ``None`` for a row that cannot be used."""
        count = Counter(row[0] for row in version.rows)
        points = self.service.table.columns["col_points"].type
        expected: dict[str, dict[str, Any] | None] = {}
        for row in version.rows:
            key = row[0]
            if not key or key in expected:
                continue
            if version.on_duplicate_key == "none" and count[key] > 1:
                expected[key] = None
                continue
            kinds = {**_COLUMNS, "Points": points}
            try:
                expected[key] = {
                    name: _plain(kind, value)
                    for (name, kind), value in zip(kinds.items(), row, strict=True)
                    if value is not None
                }
            except ValueError:
                expected[key] = None
        return expected

    def differences(self, version: Version) -> tuple[set[str], set[str]]:
        """Return the keys whose rows differ, and the keys that are missing from the source and in the list."""
        expected, rows = self.expected(version), self.list_by_key()
        arrived = self.service.arrived
        unseen = {
            key
            for row_id, (key, since) in self._vanished.items()
            if all(row_id != other or method == "GET" for method, other in arrived[since:])
        }
        differing: set[str] = set()
        for key, cells in expected.items():
            in_list = rows.get(key)
            if in_list is None:
                # The sync sends changes only: that another client deleted a row is seen by verify.
                if version.mode != "update" and key not in unseen:
                    differing.add(key)
            elif version.mode != "insert" and in_list[0] != cells:
                differing.add(key)
        surplus: set[str] = set()
        if version.on_missing != "keep" and version.rows:
            for key, in_list in rows.items():
                if key not in expected and (version.on_missing == "delete" or "Name" in in_list[0]):
                    surplus.add(key)
        return differing, surplus

    def _compare(self, version: Version, ended: Sequence[Ended]) -> None:
        rows = self.list_by_key()
        for end in ended:
            if "incomplete_because" in end.report:
                self._check_figures(end)
        doubled = {key: len(in_list) for key, in_list in rows.items() if len(in_list) > 1}
        assert not doubled, f"rows are doubled: {doubled}"
        differing, surplus = self.differences(version)
        if all(end.is_complete for end in ended):
            different = {key: rows.get(key) for key in differing | surplus}
            assert not different, f"complete, and the list differs: {different}; {self._told(ended)}"
        elif all(
            end.error is None or isinstance(end.error, (UnknownCreationsError, TooManyFailuresError)) for end in ended
        ):
            self.check_named(version, ended, remaining=sum(end.report["remaining"] for end in ended))

    def _check_figures(self, end: Ended) -> None:
        """See that each row of the source, and each that is missing from it, is counted once."""
        report = end.report
        lines = Counter(line.number or line.row_id for line in end.lines if line.key or line.number is None)
        assert all(count == 1 for row, count in lines.items() if row), f"a row has two lines: {end.lines}"
        assert bool(report["incomplete_because"]) != report["complete"], report
        if "ended_early" not in report["incomplete_because"]:
            counted = sum(report[name] for name in SUMMANDS) - report["unknown_missing"]
            assert counted == report["rows"] + report["missing"], f"figures do not add up: {self._told([end])}"

    def check_named(self, version: Version, ended: Sequence[Ended], *, remaining: int = 0) -> None:
        """See that every difference is a line of the results or a figure of the report."""
        differing, surplus = self.differences(version)
        named = self._named(ended)
        unnamed = differing - named
        assert len(unnamed) <= remaining, f"differ and are not named: {unnamed}; {self._told(ended)}"
        unnamed = surplus - named
        skipped = sum(end.report.get("missing_skipped", 0) for end in ended)
        assert len(unnamed) <= remaining + skipped, f"surplus, not named: {unnamed}; {self._told(ended)}"

    def _named(self, ended: Sequence[Ended]) -> set[str]:
        lines = [line for end in ended for line in end.lines if line.outcome.value in _WRONG]
        named = {line.key for line in lines if line.key}
        row_ids = {line.row_id for line in lines if line.row_id}
        named |= {str(row.columns.get("col_key")) for row in self.service.table.rows.values() if row.id in row_ids}
        with contextlib.suppress(ContactsError):
            key_map = find_map(self.database, conn_id=CONN_ID, name=self.map_name)
            hashes = {row["key_hash"] for end in ended for row in end.report.get("unknown_rows", ())}
            named |= {key for key in self.list_by_key() if key_hash(key_map, key).hex() in hashes}
        return named

    def _told(self, ended: Sequence[Ended]) -> str:
        return "; ".join(f"{end.error!r} {end.report} {end.lines}" for end in ended)

    # A script.

    def play(self, versions: Sequence[Version]) -> list[Ended]:
        """Sync all versions, then the last one without faults until nothing is to be expected of another run."""
        for version in versions:
            self.run(version)
        last = versions[-1]
        calm = Version(
            last.rows,
            on_missing=last.on_missing if last.rows else "keep",
            on_duplicate_key=last.on_duplicate_key,
            retry_rejected=True,
        )
        for _ in range(2):
            ended = self.run(calm)
        self.check_calm(calm, ended)
        return ended

    def check_calm(self, version: Version, ended: Sequence[Ended]) -> None:
        """See that after a run without faults only such rows differ that no further run can send."""
        assert all(end.error is None or isinstance(end.error, _NOT_FATAL) for end in ended), self._told(ended)
        self.check_named(version, ended)
        differing, surplus = self.differences(version)
        if not self._has_known_rows():
            # Where no row of the map can be read, a row that cannot be read is not known to be gone.
            return
        unfinished = differing - self._never_sent(version)
        assert not unfinished, f"differ, and another run could send them: {unfinished}; {self._told(ended)}"
        if all(row[0] for row in version.rows) and self.service.switches.empty_cell != "refused":
            unfinished = surplus - self._doubtful()
            assert not unfinished, f"surplus, and another run could change them: {unfinished}; {self._told(ended)}"

    def _never_sent(self, version: Version) -> set[str]:
        """Return keys of rows that the service does not take, or that must not be sent as they are."""
        never = {key for key, cells in self.expected(version).items() if cells is None} | self._doubtful()
        for row in version.rows:
            refused = None in row and self.service.switches.empty_cell == "refused"
            if row[0] and (refused or {REFUSED, BROKEN} & set(row)):
                never.add(row[0])
        return never

    def _has_known_rows(self) -> bool:
        """Tell whether the list has a row of the map."""
        try:
            key_map = find_map(self.database, conn_id=CONN_ID, name=self.map_name)
        except ContactsError:
            return False
        rows = self.service.table.rows
        return any(entry.row_id in rows for page in key_map.pages() for entry in page)

    def _doubtful(self) -> set[str]:
        """Return keys whose creation has an unknown outcome by the map."""
        try:
            key_map = find_map(self.database, conn_id=CONN_ID, name=self.map_name)
        except ContactsError:
            return set()
        unknown = (RowState.CREATING, RowState.UNKNOWN)
        hashes = {entry.key_hash for page in key_map.pages() for entry in page if entry.state in unknown}
        return {key for key in self.keys if key_hash(key_map, key) in hashes}


def _known(settings: Any, **values: Any) -> Any:
    """Return the settings that this version of the sync has."""
    return {name: value for name, value in values.items() if name in settings.__struct_fields__}


def _in_list(kind: str, cell: Any) -> Any:
    """Return a cell of the list as a plain value; as it is where it does not fit the type, which has changed since."""
    try:
        return _plain(kind, cell)
    except ValueError:
        return cell


def _plain(kind: str, value: Any) -> Any:
    """Return a cell, or a value of the source, as a plain value that compares."""
    if kind == "NUMBER":
        return float(value)
    if kind == "MULTI SELECT":
        return frozenset(value if isinstance(value, list) else (option.strip() for option in value.split(",")))
    if kind == "PHONE NUMBER":
        digits = value.removeprefix("+")
        if not digits.isdigit():
            raise ValueError(value)
        return digits
    if kind == "DATE" and value == "31.02.2026":
        raise ValueError(value)
    return value[:10] if kind == "DATE" else value
