"""The status of each recipient of a request: one row each, by the report of the highest rank."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, and_, case, literal_column, or_

from cpaas_provider.database.activity.upsert import insert_into
from cpaas_provider.database.bulk import Statement, insert_many
from cpaas_provider.database.schema.delivery import deliveries

_NOTHING: Any = literal_column("''")

_FLAGS = ("delivered", "failed", "clicked")
_OF_THE_STRONGEST = ("delivery_status", "status", "reason", "reported_at")
_IF_KNOWN = ("message_id", "kind")
_LATEST = ("permanent_failure_at", "reached_at")
_FIRST = "failure_received_at"

Request = tuple[str, str, str]
"""Campaign, connection and reference."""

Key = tuple[str, str, str, str]
"""Campaign, connection, reference of the request, and recipient: the key of a row."""


def key_of(row: Mapping[str, Any]) -> Key:
    """Return the key of a row."""
    return row["campaign"], row["conn_id"], row["reference"], row["recipient"]


def merge(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return two rows of one recipient merged: the higher rank wins, and the first of two equal ones."""
    strong, weak = (second, first) if second["delivery_status"] > first["delivery_status"] else (first, second)
    return {
        **strong,
        **{flag: first[flag] or second[flag] for flag in _FLAGS},
        **{name: strong[name] or weak[name] for name in _IF_KNOWN},
        **{name: max((row[name] for row in (first, second) if row[name]), default=None) for name in _LATEST},
        _FIRST: min((row[_FIRST] for row in (first, second) if row[_FIRST]), default=None),
    }


def merge_rows(rows: Iterable[Mapping[str, Any]]) -> dict[Key, Mapping[str, Any]]:
    """Return one merged row for each recipient, in the order of their first rows."""
    found: dict[Key, Mapping[str, Any]] = {}
    for row in rows:
        key = key_of(row)
        found[key] = merge(found[key], row) if key in found else row
    return found


def upsert_statuses(
    connection: Connection, rows: Mapping[Key, Mapping[str, Any]], before: Statement | None = None
) -> None:
    """Update the rows of recipients. Rows that say nothing new change nothing.

    :param before: runs first, see ``bulk.select_at_once``
    """
    insert_many(connection, status_upsert(connection.dialect.name), [rows[key] for key in sorted(rows)], before)


# Built once: SQLAlchemy takes longer to build a statement than the database to run it.
@functools.cache
def status_upsert(dialect: str) -> Any:
    """Return the insertion of ``upsert_statuses``, without rows."""
    insert = insert_into(dialect, deliveries)
    stored, new = deliveries.c, insert.excluded
    # Any report says more than the record that a request was sent.
    stronger = or_(
        new.delivery_status > stored.delivery_status, and_(stored.status == _NOTHING, new.status != _NOTHING)
    )
    later = {
        name: and_(new[name].is_not(None), or_(stored[name].is_(None), new[name] > stored[name])) for name in _LATEST
    }
    return insert.on_conflict_do_update(
        index_elements=list(deliveries.primary_key.columns),
        set_={
            **{name: case((stronger, new[name]), else_=stored[name]) for name in _OF_THE_STRONGEST},
            **{flag: or_(stored[flag], new[flag]) for flag in _FLAGS},
            **{name: case((stored[name].is_(None), new[name]), else_=stored[name]) for name in (*_IF_KNOWN, _FIRST)},
            **{name: case((is_later, new[name]), else_=stored[name]) for name, is_later in later.items()},
            "updated_at": new.updated_at,
        },
        where=or_(stronger, *(new[flag] & ~stored[flag] for flag in _FLAGS), *later.values()),
    )
