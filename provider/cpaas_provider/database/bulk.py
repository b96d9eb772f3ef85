"""Many rows in few statements: SQLAlchemy and the driver take longer for a row than the database does."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import Struct
from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    ColumnElement,
    CompoundSelect,
    Connection,
    CursorResult,
    Dialect,
    Insert,
    LargeBinary,
    Select,
    String,
    Text,
    TextualSelect,
    bindparam,
    cast,
    column,
    func,
    literal_column,
    select,
    text,
)

from cpaas_provider.database.schema.base import REPORT_DIALECTS, UtcDateTime

Value = TypeVar("Value")

_WITHOUT_ZONE = len("2026-01-01 00:00:00.000000")

BATCH = 500
"""Most values in one statement. Older versions of SQLite accept less than a thousand."""

MAX_ROWS = 64
"""Most rows in one statement of SQLite. Its driver caches a prepared statement for each number of rows."""

Row = Mapping[str, Any]
Query = Select[Any] | CompoundSelect[Any]


def batched(values: Iterable[Value], size: int = BATCH) -> Iterator[list[Value]]:
    """Yield all values in lists of a size at most, none of them empty."""
    rest = iter(values)
    while batch := list(islice(rest, size)):
        yield batch


def select_among(
    connection: Connection, query: Select[Any], column: ColumnElement[Any], values: Iterable[Any]
) -> Iterator[Any]:
    """Yield the rows of a query in which a column has one of some values, of which there may be any number."""
    for batch in batched(values):
        yield from connection.execute(query.where(column.in_(batch)))


class _ValuesInsert(Struct, frozen=True):
    """An insertion of any number of rows, each value a parameter.

    :param before: the statement up to the rows
    :param row: one row of it, ``(?, ?)``
    :param after: the rest of the statement
    :param pick: returns the values of a row in their order
    :param moments: the positions of times in a row
    """

    before: str
    row: str
    after: str
    pick: Callable[[Row], tuple[Any, ...]]
    moments: tuple[int, ...]

    def text(self, rows: int) -> str:
        """Return the statement for a number of rows."""
        return f"{self.before}{', '.join([self.row] * rows)}{self.after}"

    def values(self, rows: Iterable[Row]) -> tuple[Any, ...]:
        """Return the values of rows, one after the other."""
        values: list[Any] = []
        for row in rows:
            start = len(values)
            values += self.pick(row)
            for position in self.moments:
                if (value := values[start + position]) is not None:
                    values[start + position] = _moment(value)
        return tuple(values)


# UTF-8 cannot encode half of a surrogate pair: such a text is rejected, as any driver does.
_to_json = msgspec.json.Encoder().encode


class Recordset:
    """Rows that a statement of PostgreSQL reads from a JSON document, its parameter ``rows``.

    :param columns: columns of a table, or columns for this statement alone
    """

    def __init__(self, columns: Sequence[Column[Any]]) -> None:
        # The table checks the length of texts.
        kinds = [Text() if isinstance(one.type, String) else one.type for one in columns]
        document = func.json_to_recordset(cast(bindparam("rows", type_=String()), JSON))
        self.columns = [column(one.name, kind) for one, kind in zip(columns, kinds, strict=True)]
        self.table = document.table_valued(*self.columns).render_derived(name="given", with_types=True)
        self._moments = [column.name for column in columns if isinstance(column.type, UtcDateTime)]
        self._hashes = [column.name for column in columns if isinstance(column.type, LargeBinary)]
        self._nullable = [column.name for column in columns if column.nullable]

    def document(self, rows: Iterable[Row], without: Sequence[str] = ()) -> str:
        """Return the document of rows.

        :param without: columns that are no part of it
        """
        changed = []
        for row in rows:
            one = {**row}
            for name in without:
                del one[name]
            # What is missing is NULL, too, and takes no time to read.
            for name in self._nullable:
                if one[name] is None:
                    del one[name]
            for name in self._moments:
                # The encoder writes the zone, too, which PostgreSQL ignores.
                if name in one and one[name].tzinfo is not UTC:
                    one[name] = _moment(one[name])
            for name in self._hashes:
                if name in one:
                    one[name] = f"\\x{one[name].hex()}"
            changed.append(one)
        return _to_json(changed).decode()


class _DocumentInsert(Struct, frozen=True):
    """An insertion of the rows of a JSON document: PostgreSQL reads it faster than the driver writes values.

    PostgreSQL and its driver read each character of a document several times. So long texts are in arrays beside it.

    :param text: the statement
    :param given: the document, without the long texts
    :param long: the columns with long texts, each of which has a parameter of its name
    """

    text: str
    given: Recordset
    long: tuple[str, ...]

    def values(self, rows: Sequence[Row]) -> dict[str, Any]:
        """Return the parameters of the statement for rows."""
        texts = {name: [row[name] for row in rows] for name in self.long}
        return {"rows": self.given.document(rows, self.long), **texts}


class Statement(NamedTuple):
    """A statement of PostgreSQL whose result is not needed, in the form of its driver.

    :param before: runs before it
    """

    text: str
    values: Mapping[str, Any]
    before: Statement | None = None


def insert_many(
    connection: Connection, insertion: Insert, rows: Sequence[Row], before: Statement | None = None
) -> list[tuple[Any, ...]]:
    """Insert rows, and return what ``RETURNING`` yields, as the driver returns it.

    Databases other than SQLite and PostgreSQL return nothing.

    :param insertion: without values of its own; the same object each time, because its compiled form is cached
    :param rows: all with the same columns
    :param before: runs first, see ``select_at_once``
    """
    found: list[tuple[Any, ...]] = []
    if rows and connection.dialect.name not in REPORT_DIALECTS:
        connection.execute(insertion, list(rows))
        return found
    for _, result in _inserted(connection, insertion, rows, before):
        if result.returns_rows:
            found.extend(_rows(connection, result))
    return found


def insert_missing(connection: Connection, insertion: Insert, rows: Sequence[Row], key: Column[bytes]) -> set[bytes]:
    """Insert the rows that are not yet in a table of SQLite, and return the keys of those that are.

    :param insertion: as for ``insert_many``; does nothing on a conflict
    :param rows: each with another key
    :param key: the primary key of a table with ``rowid``
    """
    there: set[bytes] = set()
    for some, result in _inserted(connection, insertion, rows):
        # Mostly all rows are new, and no query is needed.
        if result.rowcount < len(some):
            there.update(row[key.name] for row in some)
            # The rows of one statement have consecutive numbers.
            numbers = {"after": result.lastrowid - result.rowcount, "last": result.lastrowid}
            new = select_at_once(connection, _numbered(key), numbers) if result.rowcount else []
            there.difference_update(bytes.fromhex(name) for (name,) in new)
    return there


def _inserted(
    connection: Connection, insertion: Insert, rows: Sequence[Row], before: Statement | None = None
) -> Iterator[tuple[Sequence[Row], CursorResult[Any]]]:
    """Insert rows, and yield the rows and the result of each statement."""
    if not rows:
        return
    dialect, names = connection.dialect, tuple(rows[0])
    if dialect.name == "postgresql":
        whole = _document_insert(insertion, dialect, names)
        for batch in batched(rows, BATCH):
            yield batch, _execute(connection, whole.text, whole.values(batch), before)
            before = None
    else:
        prepared = _values_insert(insertion, dialect, names)
        for batch in batched(rows, MAX_ROWS):
            yield batch, connection.exec_driver_sql(prepared.text(len(batch)), prepared.values(batch))


def _execute(
    connection: Connection, text: str, values: Mapping[str, Any], before: Statement | None
) -> CursorResult[Any]:
    """Run a statement of PostgreSQL after another one, if the driver can in one round trip."""
    if before is not None and connection.dialect.driver != "psycopg2":
        execute(connection, before)
    elif before is not None:
        return _execute(connection, f"{before.text}; {text}", {**before.values, **values}, before.before)
    return connection.exec_driver_sql(text, dict(values))


def execute(connection: Connection, statement: Statement) -> None:
    """Run a statement, and what runs before it."""
    _execute(connection, *statement)


def insertion_of(connection: Connection, insertion: Insert, rows: Sequence[Row]) -> Statement | None:
    """Return the insertion of at most ``BATCH`` rows, to run before another statement.

    :param insertion: as for ``insert_many``
    :return: ``None`` on SQLite, where the rows are inserted at once
    """
    if connection.dialect.name == "postgresql" and 0 < len(rows) <= BATCH:
        whole = _document_insert(insertion, connection.dialect, tuple(rows[0]))
        return Statement(whole.text, whole.values(rows))
    insert_many(connection, insertion, rows)
    return None


def _rows(connection: Connection, result: CursorResult[Any]) -> list[tuple[Any, ...]]:
    """Return the rows of a result."""
    if connection.dialect.name == "sqlite" or result.cursor is None:
        return [tuple(row) for row in result]
    # The driver has fetched everything, so no error can come that SQLAlchemy would have to translate.
    rows = list(result.cursor.fetchall())
    result.close()
    return rows


def select_at_once(
    connection: Connection, query: Query, values: Mapping[str, Any], before: Statement | None = None
) -> list[tuple[Any, ...]]:
    """Return the rows of a query for texts and numbers, in no order.

    SQLite returns them as one JSON array: its driver releases the GIL for each row, and getting it back takes longer
    than the query when other threads are busy.

    :param query: the same object each time, because its compiled form is cached; without lists of values
    :param before: runs first. The query sees all that was committed before this ended, also while it waited for a lock
    """
    text, names, fixed = _text_of(query, connection.dialect)
    given = {**fixed, **values}
    if names is None:
        return _rows(connection, _execute(connection, text, given, before))
    result = connection.exec_driver_sql(text, tuple(given[name] for name in names))
    if connection.dialect.name != "sqlite":
        return _rows(connection, result)
    return [tuple(row) for row in json.loads(result.scalar_one())]


@functools.lru_cache(maxsize=64)
def _text_of(query: Query, dialect: Dialect) -> tuple[str, tuple[str, ...] | None, Mapping[str, Any]]:
    """Return a query's text for the driver, the order of its parameters if they are positional, and fixed parameters.

    SQLAlchemy takes longer to look up its own compiled form of a query than a database to answer it.
    """
    if dialect.name == "sqlite":
        rows = query.subquery()
        query = select(func.json_group_array(func.json_array(*rows.c)))
    compiled: Any = query.compile(dialect=dialect)
    return str(compiled), tuple(compiled.positiontup or ()) if compiled.positional else None, compiled.params


@functools.lru_cache(maxsize=64)
def _numbered(key: Column[bytes]) -> Select[Any]:
    number: Any = literal_column("rowid")
    after, last = (bindparam(name, type_=BigInteger()) for name in ("after", "last"))
    return select(func.hex(key)).where(number > after, number <= last)


@functools.lru_cache(maxsize=64)
def _values_insert(insertion: Insert, dialect: Dialect, names: tuple[str, ...]) -> _ValuesInsert:
    compiled: Any = insertion.values({name: bindparam(name) for name in names}).compile(dialect=dialect)
    order = tuple(compiled.positiontup or ())
    row = f"({', '.join('?' * len(order))})"
    before, values, after = str(compiled).partition(f" VALUES {row}")
    if sorted(order) != sorted(names) or "?" in before + after:
        raise TypeError("An insertion of many rows must have no values but those of its rows.")
    # For a row with one column, itemgetter would return the value alone.
    pick: Callable[[Row], tuple[Any, ...]] = itemgetter(*order) if len(order) > 1 else lambda row: (row[order[0]],)
    table: Any = insertion.table
    columns = [table.c[name] for name in order]
    moments = tuple(position for position, each in enumerate(columns) if isinstance(each.type, UtcDateTime))
    return _ValuesInsert(before + values.removesuffix(row), row, after, pick, moments)


@functools.lru_cache(maxsize=64)
def _document_insert(insertion: Insert, dialect: Dialect, names: tuple[str, ...]) -> _DocumentInsert:
    table: Any = insertion.table
    # A text without a limit may be long.
    long = [table.c[name] for name in names if type(table.c[name].type) is Text]
    short = [table.c[name] for name in names if type(table.c[name].type) is not Text]
    given = Recordset(short)
    query = _rows_from(given, long, dialect) if long else select(*given.table.c)
    compiled = insertion.from_select(query.selected_columns.keys(), query).compile(dialect=dialect)
    if compiled.params.keys() != {"rows", *(one.name for one in long)}:
        raise TypeError("An insertion of many rows must have no values but those of its rows.")
    return _DocumentInsert(str(compiled), given, tuple(one.name for one in long))


def _rows_from(given: Recordset, long: Sequence[Column[Any]], dialect: Dialect) -> TextualSelect:
    """Return the query for the rows of a document, each with its texts from the arrays beside it.

    SQLAlchemy cannot write ``ROWS FROM``, which joins the rows of functions by their order.
    """
    kinds = [f"{one.name} {one.type.compile(dialect)}" for one in given.columns]
    arrays = [f"unnest(CAST(:{one.name} AS TEXT[]))" for one in long]
    functions = [f"json_to_recordset(CAST(:rows AS JSON)) AS ({', '.join(kinds)})", *arrays]
    columns = [*given.columns, *(column(one.name) for one in long)]
    names = ", ".join(one.name for one in columns)
    # The names are those of columns of our tables.
    query = text(f"SELECT {names} FROM ROWS FROM ({', '.join(functions)}) AS given ({names})")  # noqa: S608
    return query.columns(*columns)


# A row has the same time in several columns, and many rows have the time of their transaction.
@functools.lru_cache(maxsize=1024)
def _moment(value: datetime) -> str:
    """Return a time as SQLAlchemy writes it into SQLite."""
    if value.tzinfo is not UTC:
        value = value.astimezone(UTC)
    # str() is faster than isoformat(), but leaves out microseconds that are 0.
    text = str(value) if value.microsecond else value.isoformat(" ", "microseconds")
    return text[:_WITHOUT_ZONE]
