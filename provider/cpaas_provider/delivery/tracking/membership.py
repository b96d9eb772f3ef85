"""Which recipients a request has: no more than it was sent to, and each of them once.

What proves a report proves it for one request. Where the recipients of that are noted (``track_recipients``), it takes
reports of those alone; where they are not, of the first it is told of, as many as it has. One that has a single
recipient needs no name for him.
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
from cpaas_provider.database.schema import deliveries, request_counts, requests
from cpaas_provider.delivery.tracking.recipient_numbers import add_to_numbers, set_number, upsert_and_count
from cpaas_provider.delivery.tracking.recipient_status import Key, Request, key_of, merge_rows, upsert_statuses

Row = dict[str, Any]

UNNAMED_PREFIX = "#"
"""Begins what stands for a recipient whose name is not told, or not any more."""

_MOST_ROWS = 1000
"""Rows of a request to one that are looked at; it has more than one only until it is noted."""

_LOCKS = 0x63706173
"""The space of 256 locks that requests share, as a database has room for some thousand."""


def unnamed_recipient(reference: str) -> str:
    """Return what stands for the one recipient of a request while no report names him."""
    return f"{UNNAMED_PREFIX}{reference}"


def request_of(row: Mapping[str, Any]) -> Request:
    """Return the request a row is about."""
    return row["campaign"], row["conn_id"], row["reference"]


def record_statuses(connection: Connection, reported: Sequence[tuple[Row, int | None]]) -> list[bool]:
    """Bring the rows of recipients up to date; return for each report whether its recipient is one of the request's.

    :param reported: rows as reports name their recipients, each with how many recipients its request has, ``None``
        where that is not known; a name may be empty where that is one
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
    return [row is not None and key_of(row) not in surplus for row in rows]


def _write(
    connection: Connection, rows: Mapping[Key, Mapping[str, Any]], bounded: Collection[Request]
) -> tuple[set[Key], dict[Request, int]]:
    """Write rows, and return those that are new, as far as they are of the requests that matter, and their numbers.

    To count a request's rows takes the longer the more there are. So their number is kept, which is no less than that,
    and they are counted where it is too great, or is not known yet. What changes it has the request to itself.

    On SQLite, where no other process writes meanwhile, who is new is asked before, and with it the numbers so far.
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
    """Delete the rows that requests have no recipients for, the last ones first, and return them.

    :param numbers: which are kept of the requests with new rows, these among them
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
        # No stranger is ever one of those that are known.
        if (kept := most if tracked else there + room) != numbers[request]:
            set_number(connection, request, kept)
    for key in surplus:
        connection.execute(delete(deliveries).where(_is(key[:3]), deliveries.c.recipient == key[3]))
    return surplus


def _resolve_single(connection: Connection, rows: Sequence[Row]) -> list[Row | None]:
    """Return rows of requests to one, each under his name; ``None`` where it is about another recipient."""
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
    # Who the one recipient is may be told by a later report than the first.
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
    """Return the name the one recipient of a request has, once a report is in; ``None`` where it is about another.

    :param there: the names he has had
    """
    recipient, nameless = row["recipient"], unnamed_recipient(row["reference"])
    known = _known_name(request_of(row), there)
    if known is None:
        there.add(recipient or nameless)
    elif recipient and recipient not in there and not known.startswith(UNNAMED_PREFIX):
        return None
    return recipient if recipient in there else known or nameless


def _known_name(request: Request, names: Iterable[str]) -> str | None:
    """Return the name of the one recipient, as far as it is known."""
    return min((name for name in names if not is_unnamed(name, request[2])), default=None)


def is_unnamed(recipient: str, reference: str) -> bool:
    """Tell whether this is no recipient's name, but stands for one that was not told."""
    return recipient in ("", unnamed_recipient(reference))


def merge_recipients(
    connection: Connection, campaign: str, conn_id: str, made: Mapping[str, int], known: Collection[str] | None = None
) -> None:
    """Have requests that are noted now keep the rows of their own recipients alone, one for each.

    :param made: how many recipients each has, by its reference
    :param known: who they are, where that is noted; of one request then
    """
    ours = [(campaign, conn_id, reference) for reference in made]
    lock(connection, ours)
    # What is reported of them meanwhile waits, and is counted then.
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
    campaign, conn_id, reference = request
    there = deliveries.c
    return and_(there.campaign == campaign, there.conn_id == conn_id, there.reference == reference)


def _move(connection: Connection, request: Request, recipients: Collection[str], name: str) -> None:
    """Put what is known of recipients under the name of the one they turned out to be."""
    if others := sorted(set(recipients) - {name}):
        taken = delete(deliveries).where(_is(request), deliveries.c.recipient.in_(others)).returning(deliveries)
        now = datetime.now(UTC)
        for row in connection.execute(taken).mappings().all():
            upsert_statuses(connection, merge_rows([{**row, "recipient": name, "updated_at": now}]))


def lock(connection: Connection, changing: Iterable[Request]) -> None:
    """Let no other process make rows of these requests meanwhile; SQLite has one writer at a time anyway."""
    if connection.dialect.name == "postgresql":
        # In one order, or two processes could wait for each other.
        numbers = sorted({sha256(json.dumps(request).encode()).digest()[0] for request in changing})
        connection.execute(_LOCKING, {"space": _LOCKS, "numbers": numbers})


def _count(connection: Connection, wanted: Sequence[Request]) -> Iterator[tuple[Request, int, bool]]:
    """Yield how many rows requests have, and whether these are all their recipients."""
    for some in batched(wanted):
        for row in connection.execute(_find(connection.dialect.name).count, {"wanted": json.dumps(some)}):
            yield row[:3], row[3], bool(row[4])


_NAME = tuple(deliveries.primary_key.columns)


class _Find:
    """Queries for a list of names, given as JSON, each of which the database finds by the primary key."""

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
        """Who has a row in these requests."""
        if self._by_row:
            # Each is looked for by itself: joined, a table that has just grown would be read from end to end.
            theirs = (
                select(deliveries.c.recipient).where(self._among(*_NAME[:3])).limit(_MOST_ROWS).correlate(self._wanted)
            )
            found = theirs.lateral()
            named: Any = select(*self._parts[:3], found.c.recipient).select_from(self._wanted.join(found, true()))
            each: Select[Any] = named
            return each
        return select(*_NAME).select_from(self._wanted.join(deliveries, self._among(*_NAME[:3])))

    @functools.cached_property
    def existing(self) -> Select[Any]:
        """By their places: which of these recipients have one, and the number of rows that is kept of their request."""
        there = exists().where(self._among(*_NAME)).correlate(self._wanted)
        number = select(request_counts.c.recipients).where(self._among(*request_counts.primary_key.columns))
        return select(self._wanted.c.key, there, number.correlate(self._wanted).scalar_subquery())

    @functools.cached_property
    def count(self) -> Select[Any]:
        """How many recipients of these requests have one, and whether their recipients are noted."""
        # Who is not named is passed over by the index, which a condition row by row would take ten times as long for.
        rows = select(func.count()).select_from(deliveries).where(self._among(*_NAME[:3]), deliveries.c.recipient > "")
        noted = and_(requests.c.conn_id == self._parts[1], requests.c.reference == self._parts[2])
        numbers = (rows.correlate(self._wanted), select(requests.c.tracked).where(noted).correlate(self._wanted))
        columns: list[ColumnElement[Any]] = [*self._parts[:3], *(number.scalar_subquery() for number in numbers)]
        return select(*columns).select_from(self._wanted)


_find = functools.cache(_Find)
_LOCKING = text("SELECT pg_advisory_xact_lock(:space, number) FROM unnest(CAST(:numbers AS integer[])) AS number")
