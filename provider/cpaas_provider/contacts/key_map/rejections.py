"""Why the service rejected rows: columns, reason, and since when. Stored until the row is accepted or removed.

An entry of the map with ``rejected_hash`` is rejected. Its rejection is stored beside it, in a table of its own.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct
from sqlalchemy import Connection, Row, bindparam, delete, func, insert, select, update

from cpaas_provider.api.redact import redact
from cpaas_provider.database.bulk import batched
from cpaas_provider.database.database import Database
from cpaas_provider.database.schema.contacts import (
    MAX_REJECTION_REASON,
    contact_maps,
    contact_rejections,
    contact_rows,
)

RETRY = bytes(16)
"""The ``rejected_hash`` of a row that the next sync sends again, although it did not change."""
_PAGE = 2_000
_MAX_COLUMNS = 50

_ROWS = contact_rejections.c


class Rejection(Struct, frozen=True):
    """What the service said of one row.

    :param source_row: the number of the row in the source, when it was rejected last
    :param columns: names of the list columns that the error named, or else of those that were sent
    :param reason: the error in one line, redacted
    :param at: when it was rejected last
    :param first_at: when it was rejected first since it was accepted last; ``None`` for ``at``
    :param times: how often since then
    :param cell_hashes: the packed hashes of the cells that were sent
    :param is_retried: whether the next sync sends the row although it did not change
    """

    key_hash: bytes
    source_row: int | None
    columns: tuple[str, ...]
    reason: str
    at: datetime
    first_at: datetime | None = None
    times: int = 1
    cell_hashes: bytes | None = None
    is_retried: bool = False

    @property
    def since(self) -> datetime:
        """When it was rejected first."""
        return self.first_at or self.at


def new_rejection(
    key_hash: bytes, source_row: int | None, columns: Iterable[str], reason: str, at: datetime, cell_hashes: bytes
) -> Rejection:
    """Return a rejection, its reason in one line without numbers and addresses, and bounded."""
    text = redact(reason, (), longest=MAX_REJECTION_REASON)
    return Rejection(key_hash, source_row, tuple(columns)[:_MAX_COLUMNS], text, at, cell_hashes=cell_hashes)


def rejection_to_json(rejection: Rejection) -> str:
    """Return a rejection as text for a file, without its key hash."""
    return json.dumps(
        {
            "row": rejection.source_row,
            "columns": rejection.columns,
            "reason": rejection.reason,
            "at": rejection.at.isoformat(),
            "first_at": rejection.since.isoformat(),
            "times": rejection.times,
            "cells": (rejection.cell_hashes or b"").hex(),
        }
    )


def rejection_from_json(key_hash: bytes, text: str) -> Rejection:
    """Read the result of ``rejection_to_json``.

    :raises ValueError: when it is no such text
    """
    try:
        values = json.loads(text)
        return Rejection(
            key_hash,
            None if values["row"] is None else int(values["row"]),
            tuple(map(str, values["columns"]))[:_MAX_COLUMNS],
            str(values["reason"])[:MAX_REJECTION_REASON],
            datetime.fromisoformat(values["at"]),
            datetime.fromisoformat(values["first_at"]),
            int(values["times"]),
            bytes.fromhex(values["cells"]),
        )
    except (KeyError, TypeError, ValueError):
        raise ValueError("the reason of a rejected row is damaged") from None


def store(connection: Connection, map_id: int, rejections: Sequence[Rejection]) -> None:
    """Store rejections. One of a row that was rejected before counts once more, and keeps its first time."""
    for batch in batched(rejections):
        known = of_keys(connection, map_id, [rejection.key_hash for rejection in batch])
        added: list[dict[str, Any]] = []
        counted: list[dict[str, Any]] = []
        for rejection in batch:
            before = known.get(rejection.key_hash)
            (added if before is None else counted).append(
                {
                    "source_row": rejection.source_row,
                    "columns": json.dumps(rejection.columns),
                    "reason": rejection.reason,
                    "first_at": rejection.since if before is None else before.since,
                    "last_at": rejection.at,
                    "times": rejection.times + (0 if before is None else before.times),
                    "cell_hashes": rejection.cell_hashes,
                    "of": rejection.key_hash,
                }
            )
        if added:
            rows = [{**row, "map_id": map_id, "key_hash": row.pop("of")} for row in added]
            connection.execute(insert(contact_rejections), rows)
        if counted:
            is_row = (_ROWS.map_id == map_id, _ROWS.key_hash == bindparam("of"))
            connection.execute(update(contact_rejections).where(*is_row), counted)


def remove(connection: Connection, map_id: int, key_hashes: Collection[bytes] | None = None) -> None:
    """Remove the rejections of these keys, or of the whole map for ``None``."""
    in_map = delete(contact_rejections).where(_ROWS.map_id == map_id)
    if key_hashes is None:
        connection.execute(in_map)
        return
    for batch in batched(key_hashes):
        connection.execute(in_map.where(_ROWS.key_hash.in_(batch)))


def of_keys(connection: Connection, map_id: int, key_hashes: Iterable[bytes]) -> dict[bytes, Rejection]:
    """Return the rejections of these keys, by key hash."""
    rejections: dict[bytes, Rejection] = {}
    for batch in batched(key_hashes):
        query = select(contact_rejections).where(_ROWS.map_id == map_id, _ROWS.key_hash.in_(batch))
        rejections.update((bytes(row.key_hash), _rejection(row)) for row in connection.execute(query))
    return rejections


def of_source_row(connection: Connection, map_id: int, number: int) -> list[Rejection]:
    """Return the rejections of a row of the source, by its number when it was rejected last; at most two."""
    query = select(contact_rejections).where(_ROWS.map_id == map_id, _ROWS.source_row == number).limit(2)
    return [_rejection(row) for row in connection.execute(query)]


def pages(database: Database, map_id: int) -> Iterator[list[Rejection]]:
    """Yield all rejections of a map in the order of their key hashes, page by page.

    :raises DatabaseError: when the database cannot be read
    """
    query = select(contact_rejections).where(_ROWS.map_id == map_id).order_by(_ROWS.key_hash).limit(_PAGE)
    after = b""
    while True:
        with database.connect() as connection:
            page = [_rejection(row) for row in connection.execute(query.where(_ROWS.key_hash > after))]
        if page:
            yield page
        if len(page) < _PAGE:
            return
        after = page[-1].key_hash


def newest(connection: Connection, conn_id: str, name: str, limit: int) -> tuple[int, list[Rejection]]:
    """Return the number of rejected rows of a map, and some of them: those that were rejected last, in source order.

    :param name: the name of the map; a map that does not exist has none
    """
    is_map = (contact_maps.c.conn_id == conn_id, contact_maps.c.name == name)
    of_map = contact_rejections.join(contact_maps, contact_maps.c.id == _ROWS.map_id)
    count = connection.execute(select(func.count()).select_from(of_map).where(*is_map)).scalar_one()
    entries = of_map.join(
        contact_rows, (contact_rows.c.map_id == _ROWS.map_id) & (contact_rows.c.key_hash == _ROWS.key_hash)
    )
    query = (
        select(contact_rejections, contact_rows.c.rejected_hash)
        .select_from(entries)
        .where(*is_map)
        .order_by(_ROWS.last_at.desc(), _ROWS.source_row, _ROWS.key_hash)
        .limit(limit)
    )
    return count, [_rejection(row) for row in connection.execute(query)]


def _rejection(row: Row[Any]) -> Rejection:
    rejected_hash = getattr(row, "rejected_hash", None)
    return Rejection(
        key_hash=bytes(row.key_hash),
        source_row=row.source_row,
        columns=tuple(json.loads(row.columns)),
        reason=row.reason,
        at=row.last_at,
        first_at=row.first_at,
        times=row.times,
        cell_hashes=None if row.cell_hashes is None else bytes(row.cell_hashes),
        is_retried=rejected_hash is not None and bytes(rejected_hash) == RETRY,
    )
