"""Inserts with ``ON CONFLICT``, in the databases that can store delivery reports: SQLite and PostgreSQL."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite

_INSERTS: dict[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


def insert_into(dialect: str, table: Table) -> Any:
    """Return an insert to which ``on_conflict_do_update`` or ``on_conflict_do_nothing`` can be added.

    :param dialect: one of ``REPORT_DIALECTS``
    """
    return _INSERTS[dialect](table)


def upsert(connection: Connection, table: Table, row: Mapping[str, Any], *, keep: tuple[str, ...] = ()) -> None:
    """Insert a row, or update the row with the same primary key.

    :param keep: columns that an update does not change
    """
    connection.execute(_upsert(connection.dialect.name, table, tuple(row), keep), [dict(row)])


@functools.cache
def _upsert(dialect: str, table: Table, names: tuple[str, ...], keep: tuple[str, ...]) -> Any:
    insert = insert_into(dialect, table)
    key = [column.name for column in table.primary_key.columns]
    updated = {name: insert.excluded[name] for name in names if name not in key and name not in keep}
    return insert.on_conflict_do_update(index_elements=key, set_=updated)
