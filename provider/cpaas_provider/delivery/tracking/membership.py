"""Which reported recipients belong to a request: no more than it was sent to, and each of them once.

A token or signature proves a report for one request. If the recipients of the request are recorded
(``track_recipients``), only their reports count. Otherwise the first reported recipients count, up to the number of the
request. Reports of a request with one recipient need not name it.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from sqlalchemy import (
    JSON,
    ColumnElement,
    Connection,
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
    true,
    type_coerce,
)

from cpaas_provider.database.bulk import batched, select_at_once
from cpaas_provider.database.schema.delivery import deliveries, request_counts, requests
from cpaas_provider.delivery.tracking.recipient_numbers import add_to_numbers, set_number, upsert_and_count
from cpaas_provider.delivery.tracking.recipient_status import Key, Request, key_of, merge_rows, upsert_statuses

Row = dict[str, Any]

UNNAMED_PREFIX = "#"
"""Prefix of the placeholder for a recipient that no report names, or whose name was erased."""

_MOST_ROWS = 1000
"""Rows that are read of a request with one recipient. It can have more only until it is recorded."""

_REQUEST_LOCKS, _NAME_LOCKS = 0x63706173, 0x6370616E
"""Namespaces of 256 advisory locks each, which all requests share: a database can hold only some thousands."""

_FROZEN_AFTER = 3
"""Seconds after which the server ends a sender that stands still while it holds locks on names."""


def unnamed_recipient(reference: str) -> str:
    """Return the placeholder for the only recipient of a request while no report names it."""
    return f"{UNNAMED_PREFIX}{reference}"


def request_of(row: Mapping[str, Any]) -> Request:
    """Return the request of a row."""
    return row["campaign"], row["conn_id"], row["reference"]


def record_statuses(connection: Connection, reported: Sequence[tuple[Row, int | None]]) -> list[Key | None]:
    """Update the rows of recipients, and return for each report the key of its row.

    :param reported: rows as reports name their recipients, each with the number of recipients of its request, ``None``
        if that is not known; the name may be empty if that number is 1
    :return: ``None`` for a recipient that does not belong to the request
    """
    single = [place for place, (_, most) in enumerate(reported) if most == 1]
    rows: list[Row | None] = [row for row, _ in reported]
    for place, named in zip(single, _resolve_single(connection, [reported[place][0] for place in single]), strict=True):
        rows[place] = named
    most_of: dict[Request, int] = {}
    for row, most in reported:
        if most is not None and most > 1:
            request = request_of(row)
            most_of[request] = max(most, most_of.get(request, 0))
    written = merge_rows(row for row in rows if row is not None)
    new, numbers = _write(connection, written, most_of)
    surplus = _drop_surplus(connection, most_of, [key for key in written if key in new], numbers)
    keys = [None if row is None else key_of(row) for row in rows]
    return [None if key in surplus else key for key in keys]


def _write(
    connection: Connection, rows: Mapping[Key, Mapping[str, Any]], bounded: Collection[Request]
) -> tuple[set[Key], dict[Request, int]]:
    """Write rows, and return the new ones of the bounded requests with the numbers of these requests.

    Counting the rows of a request takes longer the more there are. So a number is kept, which is never too low, and the
    rows are counted only if it is too high or not known yet. A lock on the request protects every change of it.

    On SQLite a query before the write finds the new rows and the numbers, because no other process writes meanwhile.
    """
    if not bounded:
        upsert_statuses(connection, rows)
        return set(), {}
    if connection.dialect.name != "sqlite":
        return upsert_and_count(connection, rows, bounded)
    new: set[Key] = set()
    before: dict[Request, int] = {}
    for some in batched(key for key in rows if key[:3] in bounded):
        found = select_at_once(connection, _find("sqlite").existing, {"wanted": json.dumps(some)})
        for place, is_there, number in found:
            if not is_there:
                new.add(some[place])
            if number is not None:
                before[some[place][:3]] = number
    upsert_statuses(connection, rows)
    added = Counter(key[:3] for key in new)
    add_to_numbers(connection, added)
    return new, {request: more + before.get(request, 0) for request, more in added.items()}


def _drop_surplus(
    connection: Connection, most_of: Mapping[Request, int], new: Sequence[Key], numbers: Mapping[Request, int]
) -> set[Key]:
    """Delete rows beyond the number of recipients of their request, the last ones first, and return their keys.

    :param numbers: the kept numbers of the requests with new rows, which include these rows
    """
    added: dict[Request, list[Key]] = {}
    for key in new:
        added.setdefault(key[:3], []).append(key)
    unsure = [one for one, keys in added.items() if not len(keys) < numbers[one] <= most_of[one]]
    surplus: set[Key] = set()
    for request, number, tracked in _count(connection, unsure):
        keys, most = added[request], most_of[request]
        there = number - len(keys)
        room = 0 if tracked else max(0, min(len(keys), most - there))
        surplus.update(keys[room:])
        # A recorded request takes no new recipient.
        if (kept := most if tracked else there + room) != numbers[request]:
            set_number(connection, request, kept)
    for key in surplus:
        connection.execute(delete(deliveries).where(_is(key[:3]), deliveries.c.recipient == key[3]))
    return surplus


def _resolve_single(connection: Connection, rows: Sequence[Row]) -> list[Row | None]:
    """Return the rows of requests with one recipient under its name; ``None`` for a row of another recipient."""
    if not rows:
        return []
    requests_ = dict.fromkeys(map(request_of, rows))
    lock(connection, requests_)
    there: dict[Request, set[str]] = {request: set() for request in requests_}
    for some in batched(requests_):
        query = _find(connection.dialect.name).all_of
        for found in select_at_once(connection, query, {"wanted": json.dumps(some)}):
            there[found[:3]].add(found[3])
    before = {request: set(names) for request, names in there.items()}
    named = [_own_name(row, there[request_of(row)]) for row in rows]
    # A later report may name the recipient that the first one did not.
    names = {request: _known_name(request, known) or unnamed_recipient(request[2]) for request, known in there.items()}
    for request, known in before.items():
        _move(connection, request, {one for one in known if is_unnamed(one, request[2])}, names[request])
    return [
        None
        if name is None
        else {**row, "recipient": names[request_of(row)] if is_unnamed(name, row["reference"]) else name}
        for row, name in zip(rows, named, strict=True)
    ]


def _own_name(row: Row, there: set[str]) -> str | None:
    """Return the name of the only recipient of a request, given a report; ``None`` if the report is of another one.

    :param there: the names it has had; the report's is added if no name is known
    """
    recipient, nameless = row["recipient"], unnamed_recipient(row["reference"])
    known = _known_name(request_of(row), there)
    if known is None:
        there.add(recipient or nameless)
    elif recipient and recipient not in there and not known.startswith(UNNAMED_PREFIX):
        return None
    return recipient if recipient in there else known or nameless


def _known_name(request: Request, names: Iterable[str]) -> str | None:
    """Return the name of the only recipient, or ``None`` if no report named it."""
    return min((name for name in names if not is_unnamed(name, request[2])), default=None)


def is_unnamed(recipient: str, reference: str) -> bool:
    """Return whether this is the placeholder for a recipient that no report named."""
    return recipient in ("", unnamed_recipient(reference))


def merge_recipients(
    connection: Connection, campaign: str, conn_id: str, made: Mapping[str, int], known: Collection[str] | None = None
) -> None:
    """Keep only the rows of a request's own recipients, one each, now that the request is recorded.

    :param made: the number of recipients of each request, by its reference
    :param known: the recipients, if they are recorded; ``made`` has one request then
    """
    ours = [(campaign, conn_id, reference) for reference in made]
    lock(connection, ours)
    # Concurrent reports of them wait for the lock, and are counted after it.
    add_to_numbers(connection, dict.fromkeys(ours, 0), anew=True)
    there: dict[str, list[Any]] = {}
    for references in batched(made):
        theirs = and_(
            deliveries.c.campaign == campaign,
            deliveries.c.conn_id == conn_id,
            deliveries.c.reference.in_(references),
        )
        first = select(deliveries.c.reference, deliveries.c.recipient).where(theirs)
        for row in connection.execute(first.order_by(deliveries.c.reported_at, deliveries.c.recipient)):
            there.setdefault(row.reference, []).append(row.recipient)
    for reference, recipients in there.items():
        _merge_recipients(connection, (campaign, conn_id, reference), recipients, made[reference], known)


def _merge_recipients(
    connection: Connection, request: Request, recipients: list[str], most: int, known: Collection[str] | None
) -> None:
    nameless = {one for one in recipients if is_unnamed(one, request[2])}
    named = [one for one in recipients if one not in nameless]
    ours = [one for one in named if known is None or one in known or one.startswith(UNNAMED_PREFIX)]
    keep = ours if known is not None else ours[:most]
    if dropped := set(named).difference(keep):
        connection.execute(delete(deliveries).where(_is(request), deliveries.c.recipient.in_(dropped)))
    if nameless and most > 1:
        connection.execute(delete(deliveries).where(_is(request), deliveries.c.recipient.in_(nameless)))
    elif nameless:
        _move(connection, request, nameless, next(iter(keep or known or ()), unnamed_recipient(request[2])))


def _is(request: Request) -> ColumnElement[bool]:
    return and_(*(column == value for column, value in zip(_NAME, request, strict=False)))


def _move(connection: Connection, request: Request, recipients: Collection[str], name: str) -> None:
    """Move the rows of a recipient to the name that turned out to be its own."""
    if others := sorted(set(recipients) - {name}):
        taken = delete(deliveries).where(_is(request), deliveries.c.recipient.in_(others)).returning(deliveries)
        now = datetime.now(UTC)
        for row in connection.execute(taken).mappings().all():
            upsert_statuses(connection, merge_rows([{**row, "recipient": name, "updated_at": now}]))


def lock(connection: Connection, changing: Iterable[Request]) -> None:
    """Lock requests, so that no other process adds rows to them. SQLite has one writer at a time anyway."""
    if connection.dialect.name == "postgresql":
        connection.execute(_LOCKING, _locks(_REQUEST_LOCKS, changing))


def lock_names(connection: Connection, conn_id: str, names: Iterable[str]) -> None:
    """Lock references and message ids, before reports are looked for that are stored under them.

    A process that stores a report under a name holds it, from before it looks for a request of that name until it
    commits. So whichever of the two commits first, the other finds what it wrote. Call this before any row of a
    recipient is locked: a process that stores reports locks names first, too.
    """
    if connection.dialect.name == "postgresql":
        # Receivers wait for these locks, and must not wait for a process that is stopped or cut off.
        connection.execute(text(f"SET LOCAL idle_in_transaction_session_timeout = '{_FROZEN_AFTER}s'"))
        connection.execute(_LOCKING, _locks(_NAME_LOCKS, ((conn_id, name) for name in names)))


def hold_names(connection: Connection, names: Iterable[tuple[str, str]]) -> bool:
    """Hold references and message ids until this transaction ends. Several processes can hold the same.

    :return: whether requests may have been recorded since they were looked for; on SQLite nothing can
    """
    if connection.dialect.name != "postgresql":
        return False
    connection.execute(_HOLDING, _locks(_NAME_LOCKS, names))
    return True


def _locks(space: int, names: Iterable[tuple[str, ...]]) -> dict[str, Any]:
    # In a fixed order, so that two processes cannot deadlock.
    return {"space": space, "numbers": sorted({sha256(json.dumps(name).encode()).digest()[0] for name in names})}


def _count(connection: Connection, wanted: Sequence[Request]) -> Iterator[tuple[Request, int, bool]]:
    """Yield the number of rows of each request, and whether its recipients are recorded."""
    for some in batched(wanted):
        for row in connection.execute(_find(connection.dialect.name).count, {"wanted": json.dumps(some)}):
            yield row[:3], row[3], bool(row[4])


_NAME = tuple(deliveries.primary_key.columns)


class _Find:
    """Queries for a JSON list of keys. The database finds each by the primary key."""

    def __init__(self, dialect: str) -> None:
        given: Any = bindparam("wanted", type_=String())
        self._by_row = dialect != "sqlite"
        if dialect == "sqlite":
            self._wanted = func.json_each(given).table_valued("key", "value")
            parts: list[ColumnElement[Any]] = [
                func.json_extract(self._wanted.c.value, literal_column(f"'$[{place}]'")) for place in range(4)
            ]
        else:
            self._wanted = func.json_array_elements(cast(given, JSON)).table_valued("value")
            parts = [self._wanted.c.value.op("->>")(literal_column(str(place))) for place in range(4)]
        self._parts = [type_coerce(part, String()) for part in parts]

    def _among(self, *columns: ColumnElement[Any]) -> ColumnElement[bool]:
        return and_(*(column == part for column, part in zip(columns, self._parts, strict=False)))

    @functools.cached_property
    def all_of(self) -> Select[Any]:
        """The recipients with a row in these requests."""
        if self._by_row:
            # One index look-up each: with a join, PostgreSQL would scan a table that has grown since its last ANALYZE.
            theirs = select(deliveries.c.recipient).where(self._among(*_NAME[:3])).limit(_MOST_ROWS)
            found = theirs.correlate(self._wanted).lateral()
            columns: list[ColumnElement[Any]] = [*self._parts[:3], found.c.recipient]
            return select(*columns).select_from(self._wanted.join(found, true()))
        return select(*_NAME).select_from(self._wanted.join(deliveries, self._among(*_NAME[:3])))

    @functools.cached_property
    def existing(self) -> Select[Any]:
        """By position: whether a recipient has a row, and the kept number of its request."""
        there = exists().where(self._among(*_NAME)).correlate(self._wanted)
        number = select(request_counts.c.recipients).where(self._among(*request_counts.primary_key.columns))
        return select(self._wanted.c.key, there, number.correlate(self._wanted).scalar_subquery())

    @functools.cached_property
    def count(self) -> Select[Any]:
        """The number of named recipients with a row in these requests, and whether their recipients are recorded."""
        # A range on the index skips unnamed recipients, in a tenth of the time of a condition for each row.
        rows = select(func.count()).select_from(deliveries).where(self._among(*_NAME[:3]), deliveries.c.recipient > "")
        noted = and_(requests.c.conn_id == self._parts[1], requests.c.reference == self._parts[2])
        numbers = (rows.correlate(self._wanted), select(requests.c.tracked).where(noted).correlate(self._wanted))
        columns: list[ColumnElement[Any]] = [*self._parts[:3], *(number.scalar_subquery() for number in numbers)]
        return select(*columns).select_from(self._wanted)


_find = functools.cache(_Find)
_EACH = "FROM unnest(CAST(:numbers AS integer[])) AS number"
_LOCKING = text(f"SELECT pg_advisory_xact_lock(:space, number) {_EACH}")
_HOLDING = text(f"SELECT pg_advisory_xact_lock_shared(:space, number) {_EACH}")
