"""Where each recipient of a request stands: a row for each, by the strongest of what was reported."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, Table, and_, case, literal_column, or_
from sqlalchemy.dialects import postgresql, sqlite

from cpaas_provider.database.bulk import insert_many
from cpaas_provider.database.schema import deliveries

_NOTHING: Any = literal_column("''")

_INSERTS: dict[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}

_FLAGS = ("delivered", "failed", "clicked")
_OF_THE_STRONGEST = ("delivery_status", "status", "reason", "reported_at")
_IF_KNOWN = ("message_id", "kind")

Request = tuple[str, str, str]
"""Campaign, connection and reference."""

Key = tuple[str, str, str, str]
"""Campaign, connection, reference of the request, and recipient: what there is one row for."""


def key_of(row: Mapping[str, Any]) -> Key:
    """Return what names the row of a recipient."""
    return row["campaign"], row["conn_id"], row["reference"], row["recipient"]


def merge(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return what two reports come to for the same recipient: the stronger, of equals the one that came first."""
    strong, weak = (other, one) if other["delivery_status"] > one["delivery_status"] else (one, other)
    return {
        **strong,
        **{flag: one[flag] or other[flag] for flag in _FLAGS},
        **{name: strong[name] or weak[name] for name in _IF_KNOWN},
    }


def merge_rows(rows: Iterable[Mapping[str, Any]]) -> dict[Key, Mapping[str, Any]]:
    """Return one row for each recipient, in the order they first come in."""
    found: dict[Key, Mapping[str, Any]] = {}
    for row in rows:
        key = key_of(row)
        found[key] = merge(found[key], row) if key in found else row
    return found


def upsert_statuses(connection: Connection, rows: Mapping[Key, Mapping[str, Any]]) -> None:
    """Bring what is known of recipients up to date; what is known already is not touched."""
    insert_many(connection, status_upsert(connection.dialect.name), [rows[key] for key in sorted(rows)])


# Built once: SQLAlchemy takes longer to build one than the database to carry it out.
@functools.cache
def status_upsert(dialect: str) -> Any:
    """Return the insertion that does so, without its rows."""
    insert = insert_into(dialect, deliveries)
    there, new = deliveries.c, insert.excluded
    # Of a recipient that is only recorded as sent to, any report says more.
    stronger = or_(new.delivery_status > there.delivery_status, and_(there.status == _NOTHING, new.status != _NOTHING))
    return insert.on_conflict_do_update(
        index_elements=list(deliveries.primary_key.columns),
        set_={
            **{name: case((stronger, new[name]), else_=there[name]) for name in _OF_THE_STRONGEST},
            **{flag: or_(there[flag], new[flag]) for flag in _FLAGS},
            **{name: case((there[name].is_(None), new[name]), else_=there[name]) for name in _IF_KNOWN},
            "updated_at": new.updated_at,
        },
        where=or_(stronger, *(new[flag] & ~there[flag] for flag in _FLAGS)),
    )


def insert_into(dialect: str, table: Table) -> Any:
    """Return an insertion that may say what is to be done where a row is there already."""
    return _INSERTS[dialect](table)


def insert_for(connection: Connection, table: Table) -> Any:
    """Return the same for a connection's database."""
    return insert_into(connection.dialect.name, table)
