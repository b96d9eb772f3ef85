"""Many rows in few statements: SQLAlchemy and the driver take longer over each row than the database does."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from typing import Any

from sqlalchemy import Boolean, Connection, Dialect, Insert, LargeBinary, Select, func, select

from cpaas_provider.store.batches import BATCH
from cpaas_provider.store.schema import Moment

_MOST_ROWS = 256
_STEP = 16
"""Rows of one statement of SQLite, and by how many two sizes of it differ."""

_NAMED = re.compile(r"%\((\w+)\)s")
_VALUES, _REST = " VALUES (", ") ON CONFLICT"

Convert = Callable[[Any], Any]


@dataclass(frozen=True)
class _Prepared:
    """An insertion of one row, taken apart.

    :param group: the places of one row's values
    :param pick: returns the values of a row in their order
    :param conversions: which of them have to be brought into the driver's form
    """

    head: str
    group: str
    rest: str
    pick: Callable[[Mapping[str, Any]], tuple[Any, ...]]
    conversions: tuple[tuple[int, Convert], ...]

    def text(self, rows: int) -> str:
        """Return the statement for so many rows."""
        return f"{self.head}{_VALUES}{'), ('.join([self.group] * rows)}{_REST}{self.rest}"

    def values(self, rows: Iterable[Mapping[str, Any]]) -> tuple[Any, ...]:
        """Return the values of rows, one after the other."""
        values: list[Any] = []
        for row in rows:
            start = len(values)
            values += self.pick(row)
            for place, convert in self.conversions:
                if (value := values[start + place]) is not None:
                    values[start + place] = convert(value)
        return tuple(values)


def insert_many(connection: Connection, insertion: Insert, rows: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Insert rows, and return what ``RETURNING`` says of them, as the driver gives it.

    :param insertion: with an ``ON CONFLICT``, and no values but those of the rows; made once, as what is made of it is
        remembered
    :param rows: of the same columns
    """
    if not rows:
        return []
    prepared = _prepared(insertion, connection.dialect, tuple(rows[0]))
    found: list[tuple[Any, ...]] = []
    rest = iter(rows)
    for size in _sizes(len(rows), connection.dialect.name):
        result = connection.exec_driver_sql(prepared.text(size), prepared.values(islice(rest, size)))
        if result.returns_rows:
            found.extend(map(tuple, result))
    return found


def _sizes(count: int, dialect: str) -> Iterator[int]:
    """Yield how many rows go into each statement."""
    most = BATCH if dialect != "sqlite" else _MOST_ROWS
    while count:
        size = min(count, most)
        if dialect == "sqlite" and size > _STEP:
            # SQLite's driver remembers statements it has seen, and to read one anew takes longer than to carry it out.
            # So there are few sizes, and a small rest.
            size -= size % _STEP
        yield size
        count -= size


def select_at_once(connection: Connection, query: Select[Any], values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Return the rows of a query for text and numbers, in no order.

    From SQLite they come as one: for each row its driver gives way to other threads, and waits until it has its turn
    again, which takes longer than the query where they are busy.

    :param query: made once, as what is made of it is remembered
    """
    if connection.dialect.name != "sqlite":
        return [tuple(row) for row in connection.execute(query, values)]
    return [tuple(row) for row in json.loads(connection.execute(_as_one(query), values).scalar_one())]


@functools.lru_cache(maxsize=64)
def _as_one(query: Select[Any]) -> Select[Any]:
    rows = query.subquery()
    return select(func.json_group_array(func.json_array(*rows.c)))


@functools.lru_cache(maxsize=64)
def _prepared(insertion: Insert, dialect: Dialect, names: tuple[str, ...]) -> _Prepared:
    compiled = insertion.compile(dialect=dialect, column_keys=list(names))
    head, _, values = str(compiled).partition(_VALUES)
    group, conflict, rest = values.partition(_REST)
    order = _NAMED.findall(group) or list(getattr(compiled, "positiontup", None) or ())
    if not conflict or sorted(order) != sorted(names) or _NAMED.search(rest):
        raise TypeError("an insertion of many rows has an ON CONFLICT, and no values but those of its rows")
    table: Any = insertion.table
    converters = [_converter(table.c[name].type, dialect) for name in order]
    conversions = tuple((place, convert) for place, convert in enumerate(converters) if convert is not None)
    return _Prepared(head, _NAMED.sub("%s", group), rest, itemgetter(*order), conversions)


def _converter(kind: Any, dialect: Dialect) -> Convert | None:
    if isinstance(kind, (Boolean, LargeBinary)):
        # The drivers of both databases take them as they are.
        return None
    convert: Convert | None = kind.dialect_impl(dialect).bind_processor(dialect)
    # Rows that are written together bear the same few moments.
    return functools.lru_cache(maxsize=2048)(convert) if convert and isinstance(kind, Moment) else convert
