"""Queries on any database that Airflow has a connection to."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any

from cpaas_provider._common.extras import describe_install
from cpaas_provider.sources import _validators
from cpaas_provider.sources.base import NO_ABSENT_COLUMNS, InvalidRow, Row, SourceError, Table
from cpaas_provider.sources.tables import column_places, read_sequences

if TYPE_CHECKING:
    from sqlalchemy.engine import CursorResult

_FETCH_SIZE = 2_000
_CODE = re.compile(r"[A-Z0-9_]{5,40}")
_CODES_END = 100_000
_STATEMENT_AT_FAULT = "SQLSTATE 42"
"""The class of SQLSTATE for syntax errors, unknown names and missing rights."""
_PERMANENT_CODES = frozenset({"SQLITE_ERROR", "error 1054", "error 1064", "error 1146"})
"""The same of SQLite and MySQL: an unknown column, a syntax error, an unknown table."""
_CURSOR = re.compile(r":cursor\b|%\(cursor\)s|\$cursor\b|@cursor\b")


class SqlSource(_validators.Argument):
    """The rows of one query, as a stream; on PostgreSQL by a server-side cursor. Nothing is committed.

    Needs the extra ``sql``, and the Airflow provider of the database.

    :param conn_id: the Airflow connection of the database (templated)
    :param sql: one statement that has a result (templated)
    :param parameters: values of its placeholders. The notation is that of other SQL operators on this database:
        ``%s`` or ``%(name)s`` on PostgreSQL, ``?`` or ``:name`` on SQLite (templated)
    """

    template_fields = ("conn_id", "sql", "parameters")

    def __init__(self, conn_id: str, sql: str, parameters: Sequence[Any] | Mapping[str, Any] | None = None) -> None:
        self.conn_id = _validators.text("conn_id", conn_id)
        self.sql = _validators.text("sql", sql)
        self.parameters = _validators.parameters("parameters", parameters)

    def at_cursor(self, cursor: Any) -> SqlSource:
        """Return the query with a value for its parameter ``cursor``, beside its other named parameters.

        :param cursor: the largest value of the cursor column so far; ``None`` where there is none yet
        :raises SourceError: when the parameters have no names
        """
        if self.parameters is None and not _CURSOR.search(self.sql):
            return self
        if self.parameters is not None and not isinstance(self.parameters, Mapping):
            raise SourceError(f"{self} cannot take a cursor. Its parameters must be a mapping of names to values.")
        return SqlSource(self.conn_id, self.sql, {**(self.parameters or {}), "cursor": cursor})

    def __str__(self) -> str:
        return f"SQL query on connection {self.conn_id}"

    @contextmanager
    def open(self) -> Iterator[Table]:
        """Run the query for one reading."""
        hook = self._hook()
        with ExitStack() as opened:
            try:
                result = self._result(hook, opened)
            except SourceError:
                raise
            except Exception as error:  # noqa: BLE001 - databases raise what they like, and quote the statement
                raise self._query_error(error) from None
            columns = tuple(result.keys())
            yield _SqlTable(self, result, columns)

    def _hook(self) -> Any:
        try:
            from airflow.providers.common.sql.hooks.sql import DbApiHook
        except ImportError:
            raise SourceError(
                f"{self} needs the SQL hooks of Airflow where the task runs: {describe_install('sql')}."
            ) from None
        from airflow.sdk import BaseHook

        try:
            hook = BaseHook.get_connection(self.conn_id).get_hook()
        except Exception as error:  # noqa: BLE001 - an error of a connection may quote it
            raise SourceError(
                f"{self} cannot be run ({type(error).__name__}). Check that the connection exists, and that the "
                "Airflow provider of its database is installed."
            ) from None
        if not isinstance(hook, DbApiHook):
            raise SourceError(f"{self} cannot be run. The connection is not of a SQL database.")
        return hook

    def _result(self, hook: Any, opened: ExitStack) -> CursorResult[Any]:
        if len(hook.split_sql_string(self.sql)) != 1:
            raise SourceError(f"{self} must be one statement. Nothing was run.")
        engine = hook.get_sqlalchemy_engine()
        opened.callback(engine.dispose)
        # Without parameters, a percent sign is no placeholder, as in LIKE '%x'.
        connection = opened.enter_context(engine.connect()).execution_options(
            stream_results=True, yield_per=_FETCH_SIZE, no_parameters=not self.parameters
        )
        values = self.parameters or None
        values = dict(values) if isinstance(values, Mapping) else tuple(values) if values else None
        result: CursorResult[Any] = connection.exec_driver_sql(self.sql, values)
        if not result.returns_rows:
            raise SourceError(f"{self} has no result. Nothing was committed. Give a statement that selects rows.")
        return result

    def _query_error(self, error: Exception) -> SourceError:
        cause = getattr(error, "orig", None) or error
        code = _error_code(cause)
        kind = ", ".join(filter(None, (type(cause).__name__, code)))
        is_permanent = code in _PERMANENT_CODES or code.startswith(_STATEMENT_AT_FAULT)
        return SourceError(
            f"{self} failed ({kind}). The database's message is not shown here, because it may contain personal data. "
            "Run the statement on the database itself to see it."
            + (" A retry would fail alike: correct the statement, the tables or the rights." if is_permanent else ""),
            permanent=is_permanent,
        )


def _error_code(error: object) -> str:
    """Return the database's own code of an error: an SQLSTATE, a name of SQLite, or a number of MySQL."""
    arguments = getattr(error, "args", ())
    # Before the SQLSTATE: that of MySQL's errors has 42000 for exhausted connections, too.
    number = getattr(error, "errno", None) or (arguments[0] if arguments else None)
    if type(number) is int and 0 < number < _CODES_END:
        return f"error {number}"
    for attribute, kind in (("sqlite_errorname", ""), ("pgcode", "SQLSTATE "), ("sqlstate", "SQLSTATE ")):
        code = getattr(error, attribute, None)
        if isinstance(code, str) and _CODE.fullmatch(code):
            return f"{kind}{code}"
    return ""


class _SqlTable:
    absent = NO_ABSENT_COLUMNS

    def __init__(self, source: SqlSource, result: CursorResult[Any], columns: tuple[str, ...]) -> None:
        self.columns = columns
        self._source = source
        self._result = result

    def rows(self, wanted: Sequence[str]) -> Iterator[Row | InvalidRow]:
        """Read the result once."""
        places = column_places(self._source, self.columns, wanted)
        yield from read_sequences(chain.from_iterable(self._parts()), places)

    def _parts(self) -> Iterator[Sequence[Any]]:
        try:
            yield from self._result.partitions(_FETCH_SIZE)
        except Exception as error:  # noqa: BLE001 - as above
            raise self._source._query_error(error) from None
