"""What is deleted from the store as it is old."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Table, case, delete, insert, select, tuple_, update

from cpaas_provider.database.database import Database
from cpaas_provider.database.recipients.frequency import MAX_PERIOD
from cpaas_provider.database.schema import (
    REPORT_DIALECTS,
    airtime_purchases,
    deliveries,
    delivery_summaries,
    events,
    identities,
    lookups,
    message_counts,
    notifications,
    passcodes,
    phone_records,
    report_counts,
    reports,
    request_counts,
    requests,
    sends,
    task_progress,
)

BATCH_ROWS = 5_000
"""Rows that are deleted in one transaction: the receiver waits for no longer than that."""

_AGES: tuple[tuple[Table, ColumnElement[datetime]], ...] = (
    (reports, reports.c.received_at),
    (deliveries, deliveries.c.updated_at),
    (requests, requests.c.recorded_at),
    (request_counts, request_counts.c.updated_at),
    (sends, sends.c.started_at),
    # What DAGs have not been told yet stays, however old.
    (events, events.c.published_at),
    # Nor do alerts go that no notification has reported.
    (notifications, case((notifications.c.alerts == 0, notifications.c.sent_at))),
    (report_counts, report_counts.c.minute),
    (delivery_summaries, delivery_summaries.c.counted_at),
    (task_progress, task_progress.c.started_at),
    (passcodes, passcodes.c.requested_at),
    (airtime_purchases, airtime_purchases.c.bought_at),
)
MIN_RETENTION = timedelta(days=1)
"""What is younger is never pruned by the command."""

_PRUNED = "pruned"
_LOOKUPS = ((lookups, lookups.c.looked_up_at), (phone_records, phone_records.c.looked_up_at))


def prune(database: Database, before: datetime, lookups_before: datetime) -> Iterator[tuple[str, int]]:
    """Delete what last changed before a moment; yield, table by table, how many rows went.

    Campaigns that happen once stay, however old: they say who must not be sent to again.

    :param before: of reports, and what they came to
    :param lookups_before: of look-ups, which campaigns rely on for their ``lookup_ttl``, however old reports may get
    :raises DatabaseError: when the store cannot be used; what was deleted by then is
    """
    if database.engine.dialect.name in REPORT_DIALECTS:
        database.write(partial(_record_pruned, before=before))
    counted_before = datetime.now(UTC) - MAX_PERIOD
    moments = [
        *((table, age, before) for table, age in _AGES),
        *((*one, lookups_before) for one in _LOOKUPS),
        # A frequency cap counts them for so long, however old reports may get.
        (message_counts, message_counts.c.counted_at, counted_before),
    ]
    for table, age, moment in moments:
        key = tuple_(*table.primary_key.columns) if len(table.primary_key.columns) > 1 else _only_key(table)
        old = select(*table.primary_key.columns).where(age < moment).limit(BATCH_ROWS)
        gone = 0
        while number := database.write(_deleting(delete(table).where(key.in_(old)))):
            gone += number
        yield table.name, gone


def pruned_before(connection: Connection) -> datetime | None:
    """Return up to when requests were pruned; ``None`` where none ever was.

    A report to a callback URL made before then may be a replay of one that was pruned, which cannot be told any more.
    """
    found = connection.execute(select(identities.c.value).where(identities.c.name == _PRUNED)).scalar_one_or_none()
    return None if found is None else datetime.fromisoformat(found)


def _record_pruned(connection: Connection, before: datetime) -> None:
    known = pruned_before(connection)
    if known is None:
        connection.execute(insert(identities).values(name=_PRUNED, value=before.isoformat()))
    elif known < before:
        change = update(identities).where(identities.c.name == _PRUNED)
        connection.execute(change.values(value=before.isoformat()))


def _only_key(table: Table) -> Column[Any]:
    (column,) = table.primary_key.columns
    return column


def _deleting(statement: Any) -> Callable[[Connection], int]:
    return lambda connection: connection.execute(statement).rowcount
