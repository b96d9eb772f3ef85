"""A contact list as a model of the service, and a world in which syncs run, fail, die and overlap."""

from __future__ import annotations

import asyncio
import itertools
import unicodedata
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from enum import Enum
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace
from sqlalchemy import delete

from cpaas_provider.api import errors
from cpaas_provider.api.models.contacts import ContactRowRecord, ContactTable
from cpaas_provider.api.recipients.msisdn import INTERNATIONAL
from cpaas_provider.contacts.errors import (
    ContactsError,
    LeaseLostError,
    TooManyFailuresError,
    UnknownCreationsError,
)
from cpaas_provider.contacts.key_map.entries import MapEntry, RowState
from cpaas_provider.contacts.key_map.key_map import KeyMap
from cpaas_provider.contacts.key_map.maps import find_map
from cpaas_provider.contacts.key_map.overview import leases_of
from cpaas_provider.contacts.mapping.rules import ColumnRule
from cpaas_provider.contacts.sync.report import SUMMANDS
from cpaas_provider.contacts.sync.spool import OutcomeLine
from cpaas_provider.contacts.sync.sync import ContactSync, SyncSpec
from cpaas_provider.database.database import Database
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.database.schema.contacts import contact_leases
from cpaas_provider.sources.base import InvalidRow, Row, SourceError, Table
from cpaas_provider.sources.lists import ListSource

URL = "https://cpaas.example.com"
KEY, A, B = "k", "a", "b"
_NAMES = {KEY: "Key", A: "A", B: "B"}
RULES = {"Key": ColumnRule(source="key"), "A": ColumnRule(source="a"), "B": ColumnRule(source="b")}
WINDOW = 3
_lists = itertools.count(1)
_WRONG = ("rejected", "invalid_row", "unknown", "not_sent")


class Died(BaseException):
    """The process was killed. Whatever it does from now on has no effect."""


class Fault(Enum):
    """What the service, the network or the machine does to one request."""

    FINE = "fine"
    NO_TABLE = "fine, without the table"
    REJECTED = "rejected"
    NOT_SENT = "not sent"
    PAUSE = "not sent, come back in an hour"
    ACCOUNT = "the key is refused"
    LOST_BEFORE = "unknown, not carried out"
    LOST_AFTER = "unknown, carried out"
    LATE = "unknown, carried out when the next try is under way"
    TRIED_NOT_SENT = "carried out without a response, repeated by the client, then not sent"
    TRIED_REJECTED = "carried out without a response, repeated by the client, then rejected"
    GATEWAY = "404 from a gateway that knows nothing of any row"
    DIES_BEFORE = "the process dies, the request has not arrived"
    DIES_AFTER = "the process dies, the request has arrived"
    DIES_LATE = "the process dies, the request arrives when the next try is under way"
    REPLACED = "another try of the task takes over and ends, then this request arrives"
    RETYPED = "fine, and the type of a column was changed"
    STOP = "fine, and the task is asked to stop"


class AtWrite(Enum):
    """What becomes of one transaction."""

    FINE = "fine"
    FAILS_BEFORE = "fails"
    FAILS_AFTER = "is committed, and the connection breaks"
    DIES_BEFORE = "the process dies before it"
    DIES_AFTER = "the process dies behind it"


@dataclass(frozen=True)
class Step:
    """One run of a sync, and what happens to it."""

    rows: tuple[tuple[str | None, str | None, str | None], ...]
    faults: tuple[Fault, ...] = ()
    writes: tuple[AtWrite, ...] = ()
    partitions: int = 1
    mode: str = "upsert"
    on_missing: str = "keep"
    on_deleted_row: str = "create"
    on_unknown: str = "skip"
    on_duplicate_key: str = "first"
    retry_rejected: bool = False
    resync: bool = False
    cursor: bool = False
    breaks_at: int | None = None
    vanishes: int | None = None
    max_duration: float | None = None
    max_failure_ratio: float = 1.0
    max_new: float | None = None
    new_map: bool = True


class Half:
    """A source that breaks after some rows."""

    def __init__(self, rows: Sequence[Mapping[str, Any]], breaks_at: int) -> None:
        self._rows = rows
        self._breaks_at = breaks_at

    def __str__(self) -> str:
        return "half a source"

    @contextmanager
    def open(self) -> Iterator[Table]:
        with ListSource(self._rows).open() as table:
            inner = table

            def rows(wanted: Sequence[str]) -> Iterator[Row | InvalidRow]:
                yield from itertools.islice(inner.rows(wanted), self._breaks_at)
                raise SourceError("the source broke")

            yield SimpleNamespace(columns=inner.columns, rows=rows)  # type: ignore[misc]  # a table


class StopSignal:
    """The stop signal of one try."""

    def __init__(self) -> None:
        self.requested = False
        self.grace_left = 0.01
        self._asked: asyncio.Event | None = None

    def request(self) -> None:
        self.requested = True
        if self._asked is not None:
            self._asked.set()

    async def wait(self) -> None:
        self._asked = asyncio.Event()
        if self.requested:
            self._asked.set()
        await self._asked.wait()


class List:
    """The service's list: what it holds, and what it was asked."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.types = {KEY: "TEXT", A: "TEXT", B: "TEXT"}
        self.late: list[Callable[[], None]] = []
        self._number, self._ids = next(_lists), itertools.count(1)

    @property
    def table(self) -> ContactTable:
        columns = [{"id": id_, "name": name, "type": self.types[id_]} for id_, name in _NAMES.items()]
        return ContactTable.model_validate({"id": "t", "columns": columns})

    def create(self, cells: Mapping[str, Any]) -> str:
        row_id = f"row-{self._number}-{next(self._ids)}"
        self.rows[row_id] = dict(cells)
        return row_id

    def update(self, row_id: str, cells: Mapping[str, Any]) -> None:
        if row_id in self.rows:
            self.rows[row_id] |= cells

    def delete(self, row_id: str) -> None:
        self.rows.pop(row_id, None)

    def of_key(self, key: str) -> list[str]:
        return [row_id for row_id, cells in self.rows.items() if cells.get(KEY) == key]

    def arrive(self) -> None:
        """Have requests of earlier tries take effect that were under way until now."""
        late, self.late = self.late, []
        for carry_out in late:
            carry_out()


class Process:
    """One try: its client, its way to the database, and whether it is alive."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.dead = False
        self.stale = False
        self.stop = StopSignal()
        self.requests: list[tuple[str, str, dict[str, Any]]] = []
        self.settings = SimpleNamespace(max_concurrency=2, max_retry_after=60.0)
        self.token: int | None = None
        self._arrived = False

    def check(self) -> None:
        if self.dead:
            raise Died

    def die(self) -> None:
        self.dead = True
        raise Died


class Client:
    """The five methods of the client, on the model."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._world = process.world
        self.settings = process.settings
        self._stopped = False

    def stop(self) -> None:
        self._stopped = True

    async def get_contact_table(self) -> ContactTable:
        await self._begin()
        if self._world.gateway:
            raise errors.CpaasNotFoundError("404.", status=404)
        return self._world.list.table

    async def get_contact_row(self, row_id: str) -> ContactRowRecord:
        await self._begin()
        if row_id not in self._world.list.rows or self._world.gateway:
            raise errors.CpaasNotFoundError("404.", status=404)
        return self._record(row_id, True)

    async def create_contact_row(self, columns: Mapping[str, Any]) -> ContactRowRecord:
        list_, key = self._world.list, str(columns[KEY])
        self._world.creation_requested(key)
        made: list[str] = []
        try:
            fault = await self._fate("create", key, dict(columns), lambda: made.append(list_.create(columns)), True)
        except (errors.CpaasNotSentError, errors.CpaasRejectedError):
            raise
        except BaseException:
            self._world.ambiguous.add(key)
            raise
        if not made:
            raise AssertionError(fault)
        return self._record(made[-1], fault is not Fault.NO_TABLE)

    async def update_contact_row(self, row_id: str, columns: Mapping[str, Any]) -> ContactRowRecord:
        list_ = self._world.list
        key = self._world.keys.get(row_id, "")
        fault = await self._fate(
            "update", key, dict(columns), lambda: list_.update(row_id, columns), row_id in list_.rows
        )
        if row_id not in list_.rows:
            raise errors.CpaasNotFoundError("404.", status=404)
        return self._record(row_id, fault is not Fault.NO_TABLE)

    async def delete_contact_row(self, row_id: str) -> None:
        list_ = self._world.list
        key = self._world.keys.get(row_id, "")
        await self._fate("delete", key, {}, lambda: list_.delete(row_id), row_id in list_.rows)

    def _record(self, row_id: str, with_table: bool) -> ContactRowRecord:
        cells = self._world.list.rows[row_id]
        self._world.keys[row_id] = str(cells[KEY])
        table = self._world.list.table if with_table else None
        return ContactRowRecord.model_validate({"row": {"id": row_id, "columns": cells}, "table": table})

    async def _begin(self) -> None:
        await asyncio.sleep(0)
        self._process.check()
        if self._stopped:
            raise errors.CpaasNotSentError("told to stop.")

    async def _fate(
        self, action: str, key: str, cells: dict[str, Any], carry_out: Callable[[], None], exists: bool
    ) -> Fault:
        """Carry a request out, or not, and raise what the client would."""
        process, world = self._process, self._world
        await self._begin()
        if not process._arrived:
            process._arrived = True
            world.list.arrive()
        process.requests.append((action, key, cells))
        world.clock += 1.0
        fault = world.faults.popleft() if world.faults else Fault.FINE
        world.met[fault] += 1
        if fault in (Fault.TRIED_NOT_SENT, Fault.TRIED_REJECTED) and action == "create":
            fault = Fault.LOST_AFTER  # the client repeats no creation
        unknown = errors.CpaasUnknownOutcomeError("Timed out.", maybe_sent=True, retryable=action != "create")
        if fault is Fault.REJECTED:
            raise errors.CpaasRejectedError("No.", status=400)
        if fault is Fault.NOT_SENT:
            raise errors.CpaasNotSentError("No connection.")
        if fault is Fault.PAUSE:
            raise errors.CpaasRateLimitedError("Later.", retry_after=3600.0)
        if fault is Fault.ACCOUNT:
            raise errors.CpaasAuthenticationError("Key.", status=401)
        if fault is Fault.LOST_BEFORE:
            raise unknown
        if fault is Fault.GATEWAY:
            world.gateway = True
            raise errors.CpaasNotFoundError("404.", status=404)
        if fault is Fault.DIES_BEFORE:
            process.die()
        if fault in (Fault.LATE, Fault.DIES_LATE):
            world.list.late.append(carry_out)
            if fault is Fault.DIES_LATE:
                process.die()
            raise unknown
        if fault is Fault.REPLACED and not world.replaced:
            world.replaced = True
            await asyncio.to_thread(world.overtake, process)
        if fault is Fault.RETYPED:
            world.list.types[A] = "NUMBER" if world.list.types[A] == "TEXT" else "TEXT"
        carry_out()
        world.refuse_doubles()
        if fault is Fault.DIES_AFTER:
            process.die()
        if fault is Fault.LOST_AFTER:
            raise unknown
        if fault is Fault.TRIED_NOT_SENT:
            raise errors.CpaasNotSentError("No connection.")
        if fault is Fault.TRIED_REJECTED:
            raise errors.CpaasRejectedError("No.", status=400)
        if fault is Fault.STOP:
            process.stop.request()
        # What came back is read only by a process that lives.
        await asyncio.sleep(0)
        process.check()
        if action != "create" and not exists:
            raise errors.CpaasNotFoundError("404.", status=404)
        return fault


class OfProcess(Database):
    """The database as one process reaches it."""

    def __init__(self, real: Database, process: Process) -> None:
        self.__dict__.update(real.__dict__)
        self._process = process

    @contextmanager
    def connect(self) -> Iterator[Any]:
        self._process.check()
        with super().connect() as connection:
            yield connection

    def write(self, work: Callable[[Any], Any]) -> Any:
        process = self._process
        process.check()
        writes = process.world.writes
        fault = writes.popleft() if writes else AtWrite.FINE
        if fault is AtWrite.FAILS_BEFORE:
            raise DatabaseError("The database could not be used.")
        if fault is AtWrite.DIES_BEFORE:
            process.die()
        result = super().write(work)
        # What a lease writes returns a mapping; its release does not, and does no harm.
        assert not (process.stale and isinstance(result, dict)), "a stale try wrote to the map"
        if fault is AtWrite.FAILS_AFTER:
            raise DatabaseError("The connection broke.")
        if fault is AtWrite.DIES_AFTER:
            process.die()
        return result


def sum_of(report: Mapping[str, Any]) -> int:
    """Return the number of rows by the figures of their outcomes."""
    planned = report["planned_requests"] if report["dry_run"] else 0
    return sum(report[name] for name in SUMMANDS) - report["unknown_missing"] + planned


@dataclass
class Ended:
    """How one try ended.

    :param error: ``None`` where it returned; a ``Died`` where it was killed
    """

    report: dict[str, Any]
    lines: list[OutcomeLine]
    error: BaseException | None
    requests: list[tuple[str, str, dict[str, Any]]]

    @property
    def complete(self) -> bool:
        """Whether every row was dealt with, or is named."""
        fine = self.error is None or isinstance(self.error, (UnknownCreationsError, TooManyFailuresError))
        return fine and not self.report["remaining"] and not self.report["not_sent"]

    def named(self) -> set[str]:
        """Return the keys that the results file says are not as the source has them."""
        return {line.key for line in self.lines if line.key and line.outcome.value in _WRONG}


@dataclass
class World:
    """All there is: the list, the database, and what is known of both.

    :param confirmed: cells by key that a complete run left, of rows that are in step
    """

    database: Database
    map_name: str
    list: List = field(default_factory=List)
    faults: deque[Fault] = field(default_factory=deque)
    writes: deque[AtWrite] = field(default_factory=deque)
    keys: dict[str, str] = field(default_factory=dict)
    ambiguous: set[str] = field(default_factory=set)
    vanished: set[str] = field(default_factory=set)
    confirmed: dict[str, dict[str, Any]] = field(default_factory=dict)
    met: Counter[Fault] = field(default_factory=Counter)
    may_double: bool = False
    replaced: bool = False
    gateway: bool = False
    clock: float = 0.0
    versions: dict[str, tuple[Any, int]] = field(default_factory=dict)
    runs: int = 0
    _step: Step | None = None
    _part: int = 0

    # The oracle of creations.

    def creation_requested(self, key: str) -> None:
        assert self.may_double or key not in self.ambiguous, f"the creation of {key} is repeated"

    def refuse_doubles(self) -> None:
        if not self.may_double:
            keys = Counter(cells[KEY] for cells in self.list.rows.values())
            assert all(count == 1 for count in keys.values()), f"rows twice: {keys}"

    # One run.

    def source_rows(self, step: Step) -> list[dict[str, Any]]:
        rows = []
        for key, a, b in step.rows:
            before, version = self.versions.get(str(key), (None, 0))
            if before != (a, b):
                version = self.runs
                self.versions[str(key)] = ((a, b), version)
            rows.append({"key": key, "a": a, "b": b, "v": version})
        return rows

    def expected(self, step: Step) -> dict[str, dict[str, Any]]:
        """Return the cells by key that the list is to have, without the keys that no row is used of."""
        cells: dict[str, dict[str, Any]] = {}
        rows = [(key and unicodedata.normalize("NFC", key), a, b) for key, a, b in step.rows]
        count = Counter(key for key, _, _ in rows if key)
        for key, a, b in rows:
            if key and key not in cells and not (step.on_duplicate_key == "none" and count[key] > 1):
                number = a is not None and self.list.types[A] == "NUMBER"
                cells[key] = {KEY: key, A: int(a) if number and a is not None else a, B: b}
        return cells

    def run(self, step: Step) -> list[Ended]:
        """Run all partitions of one step, one after the other, and check what each may and may not have done."""
        self.runs += 1
        self.faults, self.writes = deque(step.faults), deque(step.writes)
        self.replaced = self.gateway = False
        self.may_double = self.may_double or step.on_unknown == "create"
        if step.vanishes is not None and self.list.rows:
            row_id = sorted(self.list.rows)[step.vanishes % len(self.list.rows)]
            self.vanished.add(self.list.rows.pop(row_id)[KEY])
        before = {row_id: dict(cells) for row_id, cells in self.list.rows.items()}
        rows = self.source_rows(step)
        if self._step is not None and self._step.partitions != step.partitions:
            self.let_leases_end()
        self._step = step
        ended = []
        for part in range(step.partitions):
            self._part = part
            ended.append(self.one_try(step, part, rows))
            self.check_map()
        self.check_run(step, ended, before)
        return ended

    def let_leases_end(self) -> None:
        """Have the leases of tries that died be over; a try of the same partition need not wait for that."""
        self.database.write(lambda connection: connection.execute(delete(contact_leases)))

    def let_leases_end_but(self, remain: Callable[[str], bool]) -> None:
        """End the leases of tries that died, except those of some owners."""
        key_map = self.key_map
        assert key_map is not None
        for lease in leases_of(key_map):
            if not remain(lease.owner):
                ended = delete(contact_leases).where(contact_leases.c.owner == lease.owner)
                self.database.write(lambda connection, ended=ended: connection.execute(ended))  # type: ignore[misc]

    def one_try(self, step: Step, part: int, rows: Sequence[Mapping[str, Any]]) -> Ended:
        process = Process(self)

        @asynccontextmanager
        async def connect() -> AsyncIterator[Any]:
            yield Client(process)

        source: Any = ListSource(rows) if step.breaks_at is None else Half(rows, step.breaks_at)
        missing: dict[str, Any] = {"A": None} if step.on_missing == "clear" else {}
        spec = SyncSpec(
            key=("key",),
            columns=RULES,
            run=f"run {self.runs}",
            owner=f"task of part {part}",
            map_name=self.map_name,
            missing_cells=missing,
            resync=step.resync,
            cursor_column="v" if step.cursor else None,
            max_deletes=None,
            max_new=step.max_new,
            new_map=step.new_map,
            max_failure_ratio=step.max_failure_ratio,
            max_duration=step.max_duration,
            max_pending_requests=WINDOW,
            partition=(part, step.partitions),
            progress_interval=0,
        )
        spec = replace(
            spec,
            rules=replace(
                spec.rules,
                mode=step.mode,
                on_missing=step.on_missing,
                on_deleted_row=step.on_deleted_row,
                on_unknown=step.on_unknown,
                retry_rejected=step.retry_rejected,
                on_duplicate_key=step.on_duplicate_key,
            ),
        )
        sync = ContactSync(
            spec,
            OfProcess(self.database, process),
            self.list.table,
            process.stop,
            conn_id="c",
            base_url=URL,
            numbers=INTERNATIONAL,
            requests_per_second=1000.0,
            connect=connect,
        )
        ended = Ended({}, [], None, process.requests)
        try:
            with sync:
                try:
                    sync.begin()
                    sync.run(source)
                finally:
                    ended.report = sync.report()
                    ended.lines = list(sync.outcomes()) if sync._spool is not None else []
        except (Died, ContactsError, DatabaseError, SourceError, errors.CpaasError) as error:
            ended.error = error
        if process.dead:
            assert isinstance(ended.error, Died), f"{ended.error!r} hid that the process had died"
        return ended

    def overtake(self, process: Process) -> None:
        """Have another try of the same task take over, while the first has a request under way."""
        assert self._step is not None
        faults, self.faults = self.faults, deque()
        writes, self.writes = self.writes, deque()
        ended = self.one_try(self._step, self._part, self.source_rows(self._step))
        assert not isinstance(ended.error, LeaseLostError)
        process.stale = True
        self.faults, self.writes = faults, writes

    # The oracle of everything else.

    def entries(self) -> dict[str, MapEntry]:
        key_map = self.key_map
        if key_map is None:
            return {}
        keys = {*self.versions, *self.keys.values()}
        hashes = {key_map.hashes.of_key([key]): key for key in keys}
        return {hashes[entry.key_hash]: entry for page in key_map.pages() for entry in page}

    @property
    def key_map(self) -> KeyMap | None:
        try:
            return find_map(self.database, conn_id="c", name=self.map_name)
        except ContactsError:
            return None

    def check_map(self) -> None:
        """See that the map knows every row of the list, or knows that it does not know."""
        entries = self.entries()
        for row_id, cells in self.list.rows.items():
            entry = entries.get(cells[KEY])
            assert entry is not None, f"{cells[KEY]}: the map has forgotten a row of the list"
            doubtful = entry.state in (RowState.CREATING, RowState.UNKNOWN)
            assert self.may_double or doubtful or entry.row_id == row_id, f"{cells[KEY]}: another row"
        creating = Counter(entry.fencing_token for entry in entries.values() if entry.state is RowState.CREATING)
        assert all(count <= WINDOW for count in creating.values()), f"too many unknown creations: {creating}"

    def check_run(self, step: Step, ended: Sequence[Ended], before: Mapping[str, Mapping[str, Any]]) -> None:
        expected = self.expected(step)
        entries = self.entries()
        if not step.rows or step.breaks_at is not None:
            assert not [one for end in ended for one in end.requests if one[0] == "delete"], "an empty source deletes"
        self.check_requests(step, ended, expected)
        self.check_figures(step, ended, expected)
        if not all(end.complete for end in ended):
            if step.on_missing == "delete":
                # Their deletion may have been begun: what they hold is not known any more.
                for key in [key for key in self.confirmed if key not in expected]:
                    del self.confirmed[key]
            return
        named = {key for end in ended for key in end.named()}
        unknown_rows = sum(end.report["unknown"] for end in ended)
        doubtful = {key for key, entry in entries.items() if entry.state in (RowState.CREATING, RowState.UNKNOWN)}
        assert unknown_rows >= len(doubtful) or self.may_double, "unknown creations are not all counted"
        for key, cells in expected.items():
            ids = self.list.of_key(key)
            if key in named or key in self.vanished or (step.cursor and key not in self.confirmed):
                continue
            absent = key not in entries or entries[key].row_id is None
            if (step.mode == "insert" and ids) or (step.mode == "update" and absent):
                continue
            assert ids, f"{key} lacks in the list and is not named"
            if key not in doubtful:
                found = [{column: self.list.rows[row_id].get(column) for column in cells} for row_id in ids]
                assert cells in found, f"{key} is {found}, not {cells}, and is not named"
        whole = step.on_missing != "keep" and step.rows and all(key for key, _, _ in step.rows)
        there = {key for key, _, _ in step.rows}
        for row_id, cells in self.list.rows.items():
            key = cells[KEY]
            if not whole or key in there or key in doubtful or key in named or self.may_double:
                continue
            if any(
                line.outcome.value in ("rejected", "not_sent") and line.number is None
                for e in ended
                for line in e.lines
            ):
                continue
            assert step.on_missing != "delete", f"{key} is gone from the source, and is in the list as {row_id}"
            assert cells.get(A) is None, f"{key} is not cleared"
        for key in [*self.confirmed]:
            if key not in expected:
                del self.confirmed[key]
        for key, cells in expected.items():
            ids = self.list.of_key(key)
            if (
                key not in named
                and key not in doubtful
                and ids
                and self.list.rows[ids[0]] | cells == self.list.rows[ids[0]] | {}
            ):
                self.confirmed[key] = cells
            else:
                self.confirmed.pop(key, None)

    def check_figures(self, step: Step, ended: Sequence[Ended], expected: Mapping[str, Mapping[str, Any]]) -> None:
        """See that the figures of each report add up, and that a run that says so left the list as the source."""
        for end in ended:
            report = end.report
            if report:
                assert report["complete"] == (not report["incomplete_because"])
                assert sum_of(report) == report["rows"] + report["missing"], report
        if not all(end.report.get("complete") for end in ended) or self.may_double:
            return
        # A process may die, or lose its database, when all is done and only the cursor or the lease remains.
        assert all(end.error is None or isinstance(end.error, (Died, DatabaseError)) for end in ended)
        assert not any(end.named() for end in ended)
        for key, cells in expected.items():
            if key in self.vanished or (step.cursor and key not in self.confirmed):
                continue
            found = [self.list.rows[row_id] for row_id in self.list.of_key(key)]
            assert [cells] == [{column: row.get(column) for column in cells} for row in found], (
                f"{key} is {found}, not {cells}, and is not named"
            )
        for row in self.list.rows.values():
            if row[KEY] not in expected:
                assert step.on_missing != "delete", f"{row[KEY]} is gone from the source, and in the list"
                assert step.on_missing != "clear" or row.get(A) is None, f"{row[KEY]} is not cleared"

    def check_requests(self, step: Step, ended: Sequence[Ended], expected: Mapping[str, Mapping[str, Any]]) -> None:
        """See that rows in step cost nothing, and that of the others only changed cells are sent."""
        retyped = bool({Fault.RETYPED, Fault.REPLACED} & set(step.faults))
        seen: Counter[str] = Counter()
        for end in ended:
            for action, key, cells in end.requests:
                seen[key] += 1
                old, new = self.confirmed.get(key), expected.get(key)
                if step.resync or retyped or old is None or new is None or seen[key] > 1:
                    continue
                if key in self.vanished or self.may_double:
                    continue
                changed = {column: cell for column, cell in new.items() if old[column] != cell}
                assert action == "update", f"{action} of {key}, which is in the list"
                assert changed == cells, f"{key}: {cells} is sent, and {changed} differs"
        if step.resync:
            # What it has not sent is still to be sent.
            self.confirmed.clear()
        for key in seen:
            self.confirmed.pop(key, None)
