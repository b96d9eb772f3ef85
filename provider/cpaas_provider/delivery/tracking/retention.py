"""Retention: deletes rows that are older than a moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, case, delete, exists, or_, select, tuple_

from cpaas_provider.database.activity.budgets import is_before
from cpaas_provider.database.activity.upsert import upsert
from cpaas_provider.database.bulk import select_among
from cpaas_provider.database.database import Database
from cpaas_provider.database.recipients.frequency import MAX_PERIOD
from cpaas_provider.database.schema.accounts import budgets
from cpaas_provider.database.schema.activity import airtime_purchases, passcodes, task_progress
from cpaas_provider.database.schema.alerts import notifications
from cpaas_provider.database.schema.base import REPORT_DIALECTS, identities
from cpaas_provider.database.schema.changes import campaign_changes
from cpaas_provider.database.schema.delivery import (
    deliveries,
    delivery_summaries,
    events,
    report_counts,
    reports,
    request_counts,
    requests,
    sends,
    suppression_brakes,
)
from cpaas_provider.database.schema.lookups import lookups, phone_records
from cpaas_provider.database.schema.recipients import message_counts
from cpaas_provider.delivery.tracking.counts import is_request_of, is_unfinished
from cpaas_provider.delivery.tracking.permanent_failures.brakes import SINGLE_SENDS_WINDOW, may_hold

BATCH_ROWS = 5_000
"""The most rows that one transaction deletes, because the receiver waits for its end."""

_AGES: tuple[tuple[Table, ColumnElement[datetime]], ...] = (
    (reports, reports.c.received_at),
    (deliveries, deliveries.c.updated_at),
    (suppression_brakes, suppression_brakes.c.braked_at),
    (requests, requests.c.recorded_at),
    (request_counts, request_counts.c.updated_at),
    (sends, sends.c.started_at),
    # Unpublished events have no such moment, so they stay.
    (events, events.c.published_at),
    # Groups with alerts that no notification has reported stay while alerts are added.
    (notifications, case((notifications.c.alerts == 0, notifications.c.sent_at), else_=notifications.c.last_at)),
    (report_counts, report_counts.c.minute),
    (delivery_summaries, delivery_summaries.c.counted_at),
    (task_progress, task_progress.c.started_at),
    (passcodes, passcodes.c.requested_at),
    (airtime_purchases, airtime_purchases.c.bought_at),
)
MIN_RETENTION = timedelta(days=1)
"""The shortest retention that the command accepts."""

_OF_SENDS = (deliveries, requests, request_counts)

_ONE_DAY = timedelta(days=1)

_PRUNED = "pruned"
_LOOKUPS = ((lookups, lookups.c.looked_up_at), (phone_records, phone_records.c.looked_up_at))


def prune(database: Database, before: datetime, lookups_before: datetime) -> Iterator[tuple[str, int]]:
    """Delete rows that last changed before a moment. Yield the name of each table and the number of its deleted rows.

    Campaigns with an idempotency key are never deleted: their journals prevent a second send. What an unfinished
    campaign needs stays until it is finished: at most four days after its task's end, or eight days after its start.

    :param before: the moment for all tables but those of phone lookups and frequency caps
    :param lookups_before: the moment for phone lookups, which campaigns use for their ``lookup_ttl``
    :raises DatabaseError: when the database cannot be used; earlier batches stay deleted
    """
    if database.engine.dialect.name in REPORT_DIALECTS:
        database.write(partial(_record_pruned, before=before))
    # A frequency cap may count messages for this long, whatever the retention of reports is.
    now = datetime.now(UTC)
    counted_before = now - MAX_PERIOD
    moments = [
        *((table, age, before) for table, age in _AGES),
        *((table, age, lookups_before) for table, age in _LOOKUPS),
        (message_counts, message_counts.c.counted_at, counted_before),
    ]
    for table, age, moment in moments:
        conditions = [age < moment]
        if table is sends:
            conditions.append(~is_unfinished(now))
        elif table in _OF_SENDS:
            conditions.append(~exists().where(sends.c.campaign == table.c.campaign, is_unfinished(now)))
        if table is requests:
            # The state of a request decides whether its rows count, also for a brake.
            conditions.append(~exists().where(is_request_of(deliveries)))
        elif table is events:
            # A campaign that a later try continues must find that its event was published.
            conditions.append(or_(events.c.batch != 0, ~exists().where(sends.c.campaign == events.c.campaign)))
        elif table is suppression_brakes:
            # By then the time of a brake of single sends is over, so failures received later are not held back by it.
            conditions = [age < moment - SINGLE_SENDS_WINDOW, ~may_hold(moment)]
        yield table.name, _delete(database, table, *conditions)
    yield budgets.name, _delete(database, budgets, is_before(before))
    # A version that is deleted begins anew. It must not be taken for that of a stored summary.
    is_unused = [
        ~exists().where(name == campaign_changes.c.campaign)
        for name in (task_progress.c.reference, delivery_summaries.c.campaign)
    ]
    yield campaign_changes.name, _delete(database, campaign_changes, *is_unused)


def _delete(database: Database, table: Table, *conditions: ColumnElement[bool]) -> int:
    """Delete rows in small transactions, and return their number."""
    key = table.primary_key.columns
    old = select(*key).where(*conditions).limit(BATCH_ROWS)
    deleted = 0
    while number := database.write(executing(delete(table).where(tuple_(*key).in_(old)))):
        deleted += number
    return deleted


def pruned_before(connection: Connection) -> datetime | None:
    """Return the moment up to which requests were pruned; ``None`` if none was.

    A report to a callback URL from before that moment may be a replay of a pruned one, which cannot be recognised.
    """
    value = connection.execute(select(identities.c.value).where(identities.c.name == _PRUNED)).scalar_one_or_none()
    return None if value is None else datetime.fromisoformat(value)


def lost_first_reports(connection: Connection, first_days: Sequence[tuple[str, date]]) -> bool:
    """Return whether retention has deleted what was reported of the first requests of a campaign.

    A later run with its idempotency key records the campaign again, under the same reference.

    :param first_days: campaigns, each with the day, in UTC, of its first request
    """
    if not first_days or (pruned := pruned_before(connection)) is None:
        return False
    old = {campaign: day for campaign, day in first_days if day < pruned.date()}
    columns = sends.c.campaign, sends.c.started_at
    started = {row.campaign: row.started_at for row in select_among(connection, select(*columns), columns[0], old)}
    # The record may be as late as the end of the task.
    return any(name not in started or started[name].date() > day + _ONE_DAY for name, day in old.items())


def _record_pruned(connection: Connection, before: datetime) -> None:
    known = pruned_before(connection)
    if known is None or known < before:
        upsert(connection, identities, {"name": _PRUNED, "value": before.isoformat()})


def executing(statement: Any) -> Callable[[Connection], int]:
    """Return a function that executes a statement, and returns the number of changed rows."""
    return lambda connection: connection.execute(statement).rowcount
