"""What is deleted from the store as it is old."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Table, delete, select, tuple_

from cpaas_provider.store.database import Database
from cpaas_provider.store.schema import deliveries, events, lookups, reports, requests, sends

AT_ONCE = 5_000
"""Rows that are deleted in one transaction: the receiver waits for no longer than that."""

_AGES: tuple[tuple[Table, ColumnElement[datetime]], ...] = (
    (reports, reports.c.received),
    (deliveries, deliveries.c.touched),
    (requests, requests.c.noted),
    (sends, sends.c.began),
    # What DAGs have not been told yet stays, however old.
    (events, events.c.told),
)
_LOOKUPS = (lookups, lookups.c.at)


def prune(database: Database, before: datetime, lookups_before: datetime) -> Iterator[tuple[str, int]]:
    """Delete what last changed before a moment; yield, table by table, how many rows went.

    Campaigns that happen once stay, however old: they say who must not be sent to again.

    :param before: of reports, and what they came to
    :param lookups_before: of look-ups, which campaigns rely on for their ``lookup_ttl``, however old reports may get
    :raises StoreError: when the store cannot be used; what was deleted by then is
    """
    moments = [(table, age, before) for table, age in _AGES] + [(*_LOOKUPS, lookups_before)]
    for table, age, moment in moments:
        key = tuple_(*table.primary_key.columns) if len(table.primary_key.columns) > 1 else _only_key(table)
        old = select(*table.primary_key.columns).where(age < moment).limit(AT_ONCE)
        gone = 0
        while number := database.write(_deleting(delete(table).where(key.in_(old)))):
            gone += number
        yield table.name, gone


def _only_key(table: Table) -> Column[Any]:
    (column,) = table.primary_key.columns
    return column


def _deleting(statement: Any) -> Callable[[Connection], int]:
    return lambda connection: connection.execute(statement).rowcount
