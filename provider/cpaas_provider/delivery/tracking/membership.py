"""Which reported recipients belong to a request: no more than it was sent to, and each of them once.

A token or signature proves a report for one request. If the recipients of the request are recorded
(``track_recipients``), only their reports count. Otherwise the first reported recipients count, up to the number of the
request, without those that the service rejected. Reports of a request with one recipient need not name it.

Every transaction takes its locks in one order, so that no two deadlock: rows of sends and requests, names, requests,
rows of recipients, kept numbers, and last the suppression list. Whatever changes the recipients of a request has its
lock alone. Processes that only add reports to it share the lock.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any
from zlib import crc32

from sqlalchemy import (
    JSON,
    ColumnElement,
    Connection,
    Integer,
    Select,
    String,
    and_,
    bindparam,
    cast,
    delete,
    exists,
    func,
    literal_column,
    select,
    text,
    type_coerce,
    update,
)

from cpaas_provider.database.bulk import Statement, batched, select_at_once
from cpaas_provider.database.schema.delivery import deliveries, request_counts, requests
from cpaas_provider.delivery.tracking.recipient_numbers import add_to_numbers, set_number, upsert_and_count
from cpaas_provider.delivery.tracking.recipient_status import Key, Request, key_of, merge_rows, upsert_statuses
from cpaas_provider.delivery.tracking.request_recipients import (
    UNTRACKED_PREFIX,
    RequestRecipients,
    hasher_for,
    hashes_in,
    is_national,
)

Row = dict[str, Any]

Moved = list[tuple[Mapping[str, Any], str | None]]
"""Rows as they were stored, each with the recipient whose row it became; ``None`` if it was deleted."""

_CHECK_EACH = 1_000_000
"""Kept as the number of a request, each new row of which must be compared with the others. None has so many."""

_MOST_ROWS, _MOST_ROWS_OF_SINGLE = 200_000, 1000
"""Rows that are read of a request. One with a single recipient can have more than one only until it is recorded."""

_NAME_LOCKS, _REQUEST_LOCKS = 0x6370616E, 0x63706173
"""Namespaces of advisory locks. The locks of names come before those of requests."""

_LOCKS = 256
"""Locks in a namespace, which all requests share: a database can hold only some thousands."""

_FROZEN_AFTER = 3
"""Seconds after which the server ends a sender that stands still while it holds locks on names."""


def request_of(row: Mapping[str, Any]) -> Request:
    """Return the request of a row."""
    return row["campaign"], row["conn_id"], row["reference"]


def record_statuses(
    connection: Connection, reported: Sequence[tuple[Row, int | None]], moved_rows: Moved
) -> list[Key | None]:
    """Update the rows of recipients, and return for each report the key of its row.

    :param reported: rows as reports name their recipients, each with the number of recipients of its request, ``None``
        if that is not known; the name may be empty if that number is 1
    :param moved_rows: gets the rows that turned out to be another recipient's
    :return: ``None`` for a recipient that does not belong to the request
    """
    most_of: dict[Request, int] = {}
    single: list[int] = []
    alone, every = set[Request](), set[Request]()
    for position, (row, most) in enumerate(reported):
        every.add(request := request_of(row))
        if most == 1:
            single.append(position)
            alone.add(request)
        elif most:
            most_of[request] = max(most, most_of.get(request, 0))
            # Without its country code, it may be another row's recipient. Two processes would move rows in any order.
            if request not in alone and is_national(row["recipient"]):
                alone.add(request)
    # Who stores a report of an untracked message holds its name, which is its lock.
    shared = {request for request in every - alone if not request[0].startswith(UNTRACKED_PREFIX)}
    locking = _locking(connection, map(_lock_of, alone), map(_lock_of, shared))
    rows: list[Row | None] = [row for row, _ in reported]
    if single:
        named = _resolve_single(connection, [reported[position][0] for position in single], moved_rows, locking)
        locking = None
        for position, resolved in zip(single, named, strict=True):
            rows[position] = resolved
    written = merge_rows(row for row in rows if row is not None)
    new, numbers = _write(connection, written, most_of, locking)
    moved = _fit(connection, most_of, [key for key in written if key in new], numbers, moved_rows)
    keys = [None if row is None else key_of(row) for row in rows]
    return [None if key is None else moved.get(key, key) for key in keys]


def _write(
    connection: Connection,
    rows: Mapping[Key, Mapping[str, Any]],
    bounded: Collection[Request],
    locking: Statement | None,
) -> tuple[set[Key], dict[Request, int]]:
    """Write rows, and return the new ones of the bounded requests with the numbers of these requests.

    Counting the rows of a request takes longer the more there are. So a number is kept, which is never too low, and the
    rows are counted only if it is too high or not known yet. A lock on the request protects every change of it.

    On SQLite a query before the write finds the new rows and the numbers, because no other process writes meanwhile.
    """
    if not bounded:
        upsert_statuses(connection, rows, locking)
        return set(), {}
    if connection.dialect.name != "sqlite":
        return upsert_and_count(connection, rows, bounded, locking)
    new: set[Key] = set()
    before: dict[Request, int] = {}
    for batch in batched(key for key in rows if key[:3] in bounded):
        found = select_at_once(connection, _find("sqlite").existing, {"wanted": json.dumps(batch)})
        for position, exists_already, number in found:
            if not exists_already:
                new.add(batch[position])
            if number is not None:
                before[batch[position][:3]] = number
    upsert_statuses(connection, rows)
    added = Counter(key[:3] for key in new)
    add_to_numbers(connection, added)
    return new, {request: more + before.get(request, 0) for request, more in added.items()}


def _fit(
    connection: Connection,
    most_of: Mapping[Request, int],
    new: Sequence[Key],
    numbers: Mapping[Request, int],
    moved_rows: Moved,
) -> dict[Key, Key | None]:
    """Keep of new rows those of recipients of their requests that have none yet, in their order.

    :param numbers: the kept numbers of the requests with new rows, which include these rows
    :return: the new rows that were moved to another one, or deleted
    """
    added: dict[Request, list[str]] = {}
    for key in new:
        added.setdefault(key[:3], []).append(key[3])
    unsure = [
        request
        for request, names in added.items()
        if not len(names) < numbers[request] <= most_of[request] or any(map(is_national, names))
    ]
    moved: dict[Key, Key | None] = {}
    sizes = {request: most_of[request] for request in unsure}
    for request, recipients in _read(connection, sizes, without=added).items():
        # Of several recipients, a report that names none is about none.
        recipients.names.pop("", None)
        finals = _place(connection, recipients, added[request], moved_rows)
        moved |= {(*request, name): None if final is None else (*request, final) for name, final in finals.items()}
        kept = _CHECK_EACH if recipients.needs_look else len(recipients.names)
        if kept != numbers[request]:
            set_number(connection, request, kept)
    return moved


def _place(
    connection: Connection, recipients: RequestRecipients, names: Iterable[str], moved_rows: Moved
) -> dict[str, str | None]:
    """Move rows of a request to the recipients that they are about, and delete those of others.

    :param names: the names of the rows, in the order in which they take the places of recipients
    :param moved_rows: gets these rows
    :return: the changed names
    """
    found = {name: recipients.name_of(name) for name in names}
    finals = {name: recipients.final(name_of) for name, name_of in found.items()}
    finals |= {name: recipients.final(name) for name in recipients.renamed}
    dropped = [name for name, final in finals.items() if final is None]
    if dropped:
        strangers = deliveries.c.recipient.in_(dropped)
        taken = delete(deliveries).where(_is(recipients.request), strangers).returning(deliveries)
        moved_rows += [(dict(row), None) for row in connection.execute(taken).mappings()]
    for final in dict.fromkeys(final for name, final in finals.items() if final not in (None, name)):
        former = [name for name in finals if finals[name] == final]
        moved_rows += _move(connection, recipients.request, former, str(final))
    return {name: final for name, final in finals.items() if final != name}


def _resolve_single(
    connection: Connection, rows: Sequence[Row], moved_rows: Moved, locking: Statement | None
) -> list[Row | None]:
    """Return the rows of requests with one recipient under its name; ``None`` for a row of another recipient."""
    requests_ = dict.fromkeys(map(request_of, rows), 1)
    known = _read(connection, requests_, most_rows=_MOST_ROWS_OF_SINGLE, locking=locking)
    for recipients in known.values():
        recipients.unite()
    names = [known[request_of(row)].name_of(row["recipient"]) for row in rows]
    for recipients in known.values():
        # A later report may name the recipient that the first one did not.
        _place(connection, recipients, (), moved_rows)
    return [
        None if name is None else {**row, "recipient": known[request_of(row)].final(name)}
        for row, name in zip(rows, names, strict=True)
    ]


def merge_recipients(
    connection: Connection,
    campaign: str,
    conn_id: str,
    made: Mapping[str, int],
    moved_rows: Moved,
    known: Mapping[str, Collection[str]] = MappingProxyType({}),
) -> dict[str, Collection[str]]:
    """Keep only the rows of requests' own recipients, one each, now that the requests are recorded.

    :param made: the number of recipients of each request, by its reference
    :param moved_rows: gets the rows that turned out to be another recipient's
    :param known: their recipients, if they are recorded
    :return: the names of the recipients of each
    """
    ours = {(campaign, conn_id, reference): number for reference, number in made.items()}
    # Concurrent reports of them wait for the lock, and are counted after it.
    lock_to_change(connection, ours)
    add_to_numbers(connection, dict.fromkeys(ours, 0), anew=True)
    names: dict[str, Collection[str]] = {}
    for request, recipients in _read(connection, ours).items():
        reported = list(recipients.names)
        recipients.begin(known.get(request[2]))
        _place(connection, recipients, reported, moved_rows)
        names[request[2]] = recipients.names.keys()
    return names


def _is(request: Request) -> ColumnElement[bool]:
    return and_(*(column == value for column, value in zip(_NAME, request, strict=False)))


def _move(connection: Connection, request: Request, recipients: Collection[str], name: str) -> Moved:
    """Move the rows of a recipient to the name that turned out to be its own, and return them."""
    former = sorted(set(recipients) - {name})
    if not former:
        return []
    taken = delete(deliveries).where(_is(request), deliveries.c.recipient.in_(former)).returning(deliveries)
    now, rows = datetime.now(UTC), connection.execute(taken).mappings().all()
    for row in rows:
        upsert_statuses(connection, merge_rows([{**row, "recipient": name, "updated_at": now}]))
        # What was published under the former name is not published again. The new name may have a row already.
        if published := [column for column in _BATCHES if row[column.name] is not None]:
            batches = {column: func.coalesce(column, row[column.name]) for column in published}
            connection.execute(update(deliveries).where(_is(request), deliveries.c.recipient == name).values(batches))
    return [(dict(row), name) for row in rows]


def replace_name(connection: Connection, request: Request, recipient: str, name: str) -> None:
    """Give a row of a locked request another name. Later reports are compared with it, not only counted."""
    if connection.execute(select(deliveries.c.recipient).where(_is(request), deliveries.c.recipient == name)).first():
        _move(connection, request, [recipient], name)
    else:
        is_row = and_(_is(request), deliveries.c.recipient == recipient)
        connection.execute(update(deliveries).where(is_row).values(recipient=name))
    add_to_numbers(connection, {request: 0}, anew=True)


def lock(connection: Connection, changing: Iterable[Request]) -> None:
    """Lock requests, so that no other process adds rows to them. No row of their recipients may be locked yet."""
    if (locking := _locking(connection, map(_lock_of, changing), ())) is not None:
        connection.exec_driver_sql(locking.text, dict(locking.values))


def lock_to_change(connection: Connection, changing: Iterable[Request]) -> None:
    """Lock requests whose recipients a sender records."""
    _limit_standstill(connection)
    lock(connection, changing)


def _limit_standstill(connection: Connection) -> None:
    """Have the server end this transaction if its process stands still, because receivers wait for it."""
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SET LOCAL idle_in_transaction_session_timeout = '{_FROZEN_AFTER}s'"))


def lock_names(connection: Connection, conn_id: str, names: Iterable[str]) -> None:
    """Lock references and message ids, before reports are looked for that are stored under them.

    A process that stores a report under a name holds it, from before it looks for a request of that name until it
    commits. So whichever of the two commits first, the other finds what it wrote. Call this before any row of a
    recipient is locked: a process that stores reports locks names first, too.
    """
    if connection.dialect.name == "postgresql":
        _limit_standstill(connection)
        lock(connection, ((f"{UNTRACKED_PREFIX}{name}", conn_id, "") for name in names))


def holding_names(connection: Connection, names: Iterable[tuple[str, str]]) -> Statement | None:
    """Return what holds references and message ids until this transaction ends. Several processes can hold the same.

    :param names: each after its connection
    :return: ``None`` on SQLite, where no other process records a request meanwhile
    """
    return _locking(connection, (), itertools.starmap(_name_lock, names))


_Lock = tuple[int, int]
"""The keys of an advisory lock of PostgreSQL: namespace and number."""


def _lock_of(request: Request) -> _Lock:
    """Return the lock of a request. That of an untracked message is the one of its name."""
    campaign, conn_id, reference = request
    if campaign.startswith(UNTRACKED_PREFIX):
        return _name_lock(conn_id, campaign.removeprefix(UNTRACKED_PREFIX))
    return _REQUEST_LOCKS, crc32(f"{campaign}\0{conn_id}\0{reference}".encode()) % _LOCKS


def _name_lock(conn_id: str, name: str) -> _Lock:
    return _NAME_LOCKS, crc32(f"{conn_id}\0{name}".encode()) % _LOCKS


def _locking(connection: Connection, alone: Iterable[_Lock], shared: Iterable[_Lock]) -> Statement | None:
    """Return what takes locks until this transaction ends; ``None`` if there are none, and on SQLite.

    SQLite has one writer at a time anyway.

    :param alone: locks that no other process has meanwhile
    :param shared: locks that others may share
    """
    if connection.dialect.name != "postgresql":
        return None
    alone = set(alone)
    # In a fixed order, so that two processes cannot deadlock. One number can stand for several requests.
    locks = sorted(alone.union(shared))
    if not locks:
        return None
    spaces, numbers = zip(*locks, strict=True)
    is_alone = [lock in alone for lock in locks]
    return Statement(_LOCKING, {"lock_spaces": list(spaces), "lock_numbers": list(numbers), "lock_is_alone": is_alone})


def _read(
    connection: Connection,
    sizes: Mapping[Request, int],
    *,
    without: Mapping[Request, Collection[str]] = MappingProxyType({}),
    most_rows: int = _MOST_ROWS,
    locking: Statement | None = None,
) -> dict[Request, RequestRecipients]:
    """Return the recipients of requests by the rows that they have, those that were reported first before others.

    :param sizes: the number of recipients of each request
    :param without: rows that count for none yet
    """
    found: dict[Request, RequestRecipients] = {}
    query = _find(connection.dialect.name).recipients
    for batch in batched(sizes):
        for *request, names, size, tracked, rejected, message_id in select_at_once(
            connection, query, {"wanted": json.dumps(batch), "most_rows": most_rows}, locking
        ):
            locking = None
            key = request[0], request[1], request[2]
            new = set(without.get(key, ()))
            # PostgreSQL returns JSON as text.
            rows = json.loads(names) if isinstance(names, str) else names or []
            known = dict.fromkeys(name for _, name in sorted(rows) if name not in new)
            most = sizes[key] if size is None else min(size, sizes[key])
            found[key] = RequestRecipients(key, most, known, bool(tracked), hashes_in(rejected), message_id)
    hasher = hasher_for(connection, found.values())
    for recipients in found.values():
        recipients.hasher = hasher
    return found


_NAME = tuple(deliveries.primary_key.columns)
_BATCHES = tuple(column for column in deliveries.columns if column.name.endswith("_batch"))


class _Find:
    """Queries for a JSON list of keys. The database finds each by the primary key."""

    def __init__(self, dialect: str) -> None:
        keys: Any = bindparam("wanted", type_=String())
        self._by_row = dialect != "sqlite"
        if dialect == "sqlite":
            self._wanted = func.json_each(keys).table_valued("key", "value")
            parts: list[ColumnElement[Any]] = [
                func.json_extract(self._wanted.c.value, literal_column(f"'$[{index}]'")) for index in range(4)
            ]
        else:
            self._wanted = func.json_array_elements(cast(keys, JSON)).table_valued("value")
            parts = [self._wanted.c.value.op("->>")(literal_column(str(index))) for index in range(4)]
        self._parts = [type_coerce(part, String()) for part in parts]

    def _among(self, *columns: ColumnElement[Any]) -> ColumnElement[bool]:
        return and_(*(column == part for column, part in zip(columns, self._parts, strict=False)))

    @functools.cached_property
    def existing(self) -> Select[Any]:
        """By position: whether a recipient has a row, and the kept number of its request."""
        there = exists().where(self._among(*_NAME)).correlate(self._wanted)
        number = select(request_counts.c.recipients).where(self._among(*request_counts.primary_key.columns))
        return select(self._wanted.c.key, there, number.correlate(self._wanted).scalar_subquery())

    @functools.cached_property
    def recipients(self) -> Select[Any]:
        """The rows of each request as JSON, its recorded size, whether it is tracked, the rejected and the id."""
        # One index look-up each: with a join, PostgreSQL would scan a table that has grown since its last ANALYZE.
        rows = select(deliveries.c.reported_at, deliveries.c.recipient).where(self._among(*_NAME[:3]))
        first = rows.limit(bindparam("most_rows", type_=Integer())).correlate(self._wanted).subquery()
        moment = cast(first.c.reported_at, String)
        names: Any = (
            cast(func.json_agg(func.json_build_array(moment, first.c.recipient)), String)
            if self._by_row
            else func.json_group_array(func.json_array(moment, first.c.recipient))
        )
        recorded = and_(requests.c.conn_id == self._parts[1], requests.c.reference == self._parts[2])
        facts = (requests.c.recipients, requests.c.tracked, requests.c.rejected, requests.c.message_id)
        columns: list[ColumnElement[Any]] = [
            *self._parts[:3],
            select(names).correlate(self._wanted).scalar_subquery(),
            *(select(fact).where(recorded).correlate(self._wanted).scalar_subquery() for fact in facts),
        ]
        return select(*columns).select_from(self._wanted)


_find = functools.cache(_Find)
_LOCKING = (
    "SELECT count(CASE WHEN alone THEN CAST(pg_advisory_xact_lock(space, number) AS text) "
    "ELSE CAST(pg_advisory_xact_lock_shared(space, number) AS text) END) "
    "FROM unnest(CAST(%(lock_spaces)s AS integer[]), CAST(%(lock_numbers)s AS integer[]), "
    "CAST(%(lock_is_alone)s AS boolean[])) AS locks (space, number, alone)"
)
