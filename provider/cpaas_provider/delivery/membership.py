"""Which recipients a request has: no more than it was sent to, and each of them once.

What proves a report proves it for one request. Where the recipients of that are noted (``track_recipients``), it takes
reports of those alone; where they are not, of the first it is told of, as many as it has. One that has a single
recipient needs no name for him.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
    func,
    literal_column,
    select,
    text,
    type_coerce,
)

from cpaas_provider.delivery.statuses import write_deliveries
from cpaas_provider.store.batches import batched
from cpaas_provider.store.schema import deliveries, requests

Row = dict[str, Any]
Request = tuple[str, str, str]
"""Campaign, connection and reference."""

NOT_NAMED = "#"
"""Begins what stands for a recipient whose name is not told, or not any more."""

_LOCKS = 0x63706173
"""The space of 256 locks that requests share, as a database has room for some thousand."""


def nobody(reference: str) -> str:
    """Return what stands for the one recipient of a request while no report names him."""
    return f"{NOT_NAMED}{reference}"


def request_of(row: Mapping[str, Any]) -> Request:
    """Return the request a row is about."""
    return row["campaign"], row["conn_id"], row["reference"]


@dataclass(slots=True)
class _Members:
    """The recipients of a request that matter now.

    :param most: how many it has
    :param asked: those that reports name
    :param there: those that have a row; of a request to one, whatever rows it has
    :param number: how many have a row
    """

    reference: str
    most: int
    asked: set[str] = field(default_factory=set)
    there: set[str] = field(default_factory=set)
    number: int = 0
    tracked: bool = False

    @property
    def the_one(self) -> str | None:
        """The name of the one recipient, as far as it is known."""
        return min((name for name in self.there if not is_nameless(name, self.reference)), default=None)

    @property
    def may_grow(self) -> bool:
        """Whether it matters how many have a row."""
        return self.most > 1 and bool(self.asked - self.there)

    def name_for(self, recipient: str) -> str | None:
        """Return the recipient a report is about, ``None`` where he is none of the request's."""
        if self.most == 1:
            known = self.the_one
            if known is None:
                self.there.add(recipient or nobody(self.reference))
            elif recipient and recipient not in self.there and not known.startswith(NOT_NAMED):
                return None
            return recipient if recipient in self.there else known or nobody(self.reference)
        if recipient not in self.there:
            if self.tracked or self.number >= self.most:
                return None
            self.number += 1
            self.there.add(recipient)
        return recipient


def is_nameless(recipient: str, reference: str) -> bool:
    """Tell whether this is nobody's name, but stands for one that was not told."""
    return recipient in ("", nobody(reference))


def admit(connection: Connection, arrived: Sequence[tuple[Row, int]]) -> list[Row | None]:
    """Return each row under the recipient it is about, ``None`` for one whose recipient is none of the request's.

    :param arrived: rows as reports name their recipients, each with how many recipients its request has; a name may be
        empty where that is one
    """
    if not arrived:
        return []
    members: dict[Request, _Members] = {}
    for row, most in arrived:
        one = members.setdefault(request_of(row), _Members(row["reference"], most))
        one.most = max(one.most, most)
        one.asked.add(row["recipient"] or nobody(one.reference))
    lock(connection, members)
    _look(connection, members)
    _count(connection, {request: one for request, one in members.items() if one.may_grow})
    lone = {request: set(one.there) for request, one in members.items() if one.most == 1}
    found = [(row, members[request_of(row)].name_for(row["recipient"])) for row, _ in arrived]
    # Who the one recipient is may be told by a later report than the first.
    names = {request: members[request].the_one or nobody(request[2]) for request in lone}
    for request, there in lone.items():
        _move(connection, request, {one for one in there if is_nameless(one, request[2])}, names[request])
    return [_under(row, name, names.get(request_of(row))) for row, name in found]


def _under(row: Row, name: str | None, the_one: str | None) -> Row | None:
    if name is None:
        return None
    return {**row, "recipient": the_one if the_one and is_nameless(name, row["reference"]) else name}


def unite(
    connection: Connection, campaign: str, conn_id: str, made: Mapping[str, int], known: Collection[str] | None = None
) -> None:
    """Have requests that are noted now keep the rows of their own recipients alone, one for each.

    :param made: how many recipients each has, by its reference
    :param known: who they are, where that is noted; of one request then
    """
    lock(connection, [(campaign, conn_id, reference) for reference in made])
    there: dict[str, list[Any]] = {}
    for references in batched(made):
        theirs = and_(
            deliveries.c.campaign == campaign,
            deliveries.c.conn_id == conn_id,
            deliveries.c.reference.in_(references),
        )
        first = select(deliveries.c.reference, deliveries.c.recipient).where(theirs)
        for row in connection.execute(first.order_by(deliveries.c.reported, deliveries.c.recipient)):
            there.setdefault(row.reference, []).append(row.recipient)
    for reference, recipients in there.items():
        _unite(connection, (campaign, conn_id, reference), recipients, made[reference], known)


def _unite(
    connection: Connection, request: Request, recipients: list[str], most: int, known: Collection[str] | None
) -> None:
    nameless = {one for one in recipients if is_nameless(one, request[2])}
    named = [one for one in recipients if one not in nameless]
    ours = [one for one in named if known is None or one in known or one.startswith(NOT_NAMED)]
    keep = ours if known is not None else ours[:most]
    if dropped := set(named).difference(keep):
        connection.execute(delete(deliveries).where(_is(request), deliveries.c.recipient.in_(dropped)))
    if nameless and most > 1:
        connection.execute(delete(deliveries).where(_is(request), deliveries.c.recipient.in_(nameless)))
    elif nameless:
        _move(connection, request, nameless, next(iter(keep or known or ()), nobody(request[2])))


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
            write_deliveries(connection, [{**row, "recipient": name, "touched": now}])


def lock(connection: Connection, changing: Iterable[Request]) -> None:
    """Let no other process make rows of these requests meanwhile; SQLite has one writer at a time anyway."""
    if connection.dialect.name == "postgresql":
        # In one order, or two processes could wait for each other.
        numbers = sorted({sha256(json.dumps(request).encode()).digest()[0] for request in changing})
        connection.execute(_LOCKING, {"space": _LOCKS, "numbers": numbers})


def _look(connection: Connection, members: Mapping[Request, _Members]) -> None:
    """See who has a row."""
    find = _find(connection.dialect.name)
    lone = [request for request, one in members.items() if one.most == 1]
    several = [(*request, name) for request, one in members.items() if one.most > 1 for name in one.asked]
    for query, wanted in ((find.all_of, lone), (find.one_of, several)):
        for some in batched(wanted):
            for row in connection.execute(query, {"wanted": json.dumps(some)}):
                members[row.campaign, row.conn_id, row.reference].there.add(row.recipient)


def _count(connection: Connection, members: Mapping[Request, _Members]) -> None:
    """See how many have one, and whether they are all there are."""
    for some in batched(members):
        query = _find(connection.dialect.name).count
        for campaign, conn_id, reference, number, tracked in connection.execute(query, {"wanted": json.dumps(some)}):
            one = members[campaign, conn_id, reference]
            one.number, one.tracked = number, bool(tracked)


_NAME = tuple(deliveries.primary_key.columns)


class _Find:
    """Queries for a list of names, given as JSON, each of which the database finds by the primary key."""

    def __init__(self, dialect: str) -> None:
        given: Any = bindparam("wanted", type_=String())
        if dialect == "sqlite":
            self._wanted = func.json_each(given).table_valued("value")
            parts: list[ColumnElement[Any]] = [
                func.json_extract(self._wanted.c.value, literal_column(f"'$[{place}]'")) for place in range(4)
            ]
        else:
            self._wanted = func.json_array_elements(cast(given, JSON)).table_valued("value")
            parts = [self._wanted.c.value.op("->>")(literal_column(str(place))) for place in range(4)]
        self._parts = [type_coerce(part, String()) for part in parts]

    def _among(self, number: int) -> ColumnElement[bool]:
        return and_(*(column == part for column, part in zip(_NAME[:number], self._parts, strict=False)))

    @functools.cached_property
    def all_of(self) -> Select[Any]:
        """Who has a row in these requests."""
        return select(*_NAME).select_from(self._wanted.join(deliveries, self._among(3)))

    @functools.cached_property
    def one_of(self) -> Select[Any]:
        """Which of these recipients have one."""
        return select(*_NAME).select_from(self._wanted.join(deliveries, self._among(4)))

    @functools.cached_property
    def count(self) -> Select[Any]:
        """How many recipients of these requests have one, and whether their recipients are noted."""
        # Who is not named is passed over by the index, which a condition row by row would take ten times as long for.
        rows = select(func.count()).select_from(deliveries).where(self._among(3), deliveries.c.recipient > "")
        noted = and_(requests.c.conn_id == self._parts[1], requests.c.reference == self._parts[2])
        numbers = (rows.correlate(self._wanted), select(requests.c.tracked).where(noted).correlate(self._wanted))
        columns: list[ColumnElement[Any]] = [*self._parts[:3], *(number.scalar_subquery() for number in numbers)]
        return select(*columns).select_from(self._wanted)


_find = functools.cache(_Find)
_LOCKING = text("SELECT pg_advisory_xact_lock(:space, number) FROM unnest(CAST(:numbers AS integer[])) AS number")
