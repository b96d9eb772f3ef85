"""Delivery events, on which DAGs are started: detected in the database, and stored there until they are published.

A campaign is finished once its task has ended and each accepted or unknown recipient is final, at the latest 72 hours
later.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any, Final

from msgspec import Struct
from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Row,
    and_,
    bindparam,
    case,
    exists,
    false,
    func,
    insert,
    or_,
    select,
    tuple_,
    union_all,
    update,
)

from cpaas_provider.database.activity.upsert import insert_into
from cpaas_provider.database.database import Database
from cpaas_provider.database.schema.delivery import (
    RequestState,
    deliveries,
    events,
    may_be_topped_up,
    may_have_clicked,
    may_have_failed,
    requests,
    sends,
)
from cpaas_provider.delivery.reports import DeliveryStatus
from cpaas_provider.delivery.tracking.counts import (
    COMMIT_LAG,
    HAS_REQUEST,
    IS_ACCEPTED,
    IS_FINAL,
    IS_IN_OTHER_REQUEST,
    IS_REACHED,
    IS_SEND,
    IS_SUPERSEDED,
    IS_UNDELIVERED,
    MAX_REPORT_WAIT,
    MAX_SEND_DURATION,
    OTHER,
    DeliveryCounts,
    exists_for_row,
    exists_in_other_request,
    is_in_state,
    number_of_request,
    overdue,
    read_counts,
    read_sends,
    unknown_without_report,
)
from cpaas_provider.delivery.tracking.request_recipients import UNTRACKED_PREFIX
from cpaas_provider.delivery.tracking.retention import pruned_before

CAMPAIGN_FINISHED: Final = "campaign_finished"
MESSAGES_FAILED: Final = "messages_failed"
AIRTIME_SUCCEEDED: Final = "airtime_succeeded"
LINK_CLICKED: Final = "link_clicked"

MIN_BATCH_INTERVAL = timedelta(seconds=60)
"""The shortest time between two batches of one kind on a connection."""

CLOCK_SKEW = timedelta(minutes=1)
"""A batch that is further in the future comes from a wrong clock. No other batch waits for it."""

BATCH_SIZE = 20_000
"""The most recipients in a batch. Further recipients are in the next batch."""

UNTRACKED_GRACE = timedelta(minutes=10)
"""How long a report waits for the record of its message, before it gets a batch without one."""

MAX_FINISHED = 500
"""The most finished campaigns that one query returns."""

MAX_ROUNDS = 1000
"""The most such queries of one scan. The next scan of all campaigns finds the rest."""

NO_BATCH = 0

_DETECTION_LOCK = 0x6370616174
"""The advisory lock of processes that detect events. The number is arbitrary."""


_IS_REACHED_OTHERWISE = exists_in_other_request(
    OTHER.c.delivery_status.in_([int(status) for status in DeliveryStatus if status.reached])
)
"""The condition on a row of ``deliveries``: another request of the campaign reached the recipient."""

HAS_FAILED = and_(may_have_failed, IS_UNDELIVERED, ~IS_SUPERSEDED, ~_IS_REACHED_OTHERWISE)
"""The condition on a row of ``deliveries``: the campaign did not reach the recipient, and a report says so."""

_IS_TOPPED_UP = and_(may_be_topped_up, IS_REACHED)


class _Batched(Struct, frozen=True):
    """A kind of event about single recipients, which is published in batches.

    :param condition: selects the recipients in ``deliveries``
    :param batch: the column that holds the batch of a recipient
    """

    condition: ColumnElement[bool]
    batch: Column[int]


BATCHED: dict[str, _Batched] = {
    MESSAGES_FAILED: _Batched(HAS_FAILED, deliveries.c.failed_batch),
    AIRTIME_SUCCEEDED: _Batched(_IS_TOPPED_UP, deliveries.c.topped_up_batch),
    LINK_CLICKED: _Batched(may_have_clicked, deliveries.c.clicked_batch),
}

KINDS = (CAMPAIGN_FINISHED, *BATCHED)


class DeliveryEvent(Struct, frozen=True):
    """An event of one campaign.

    :param campaign: the campaign's reference; empty for messages that belong to no recorded campaign
    :param batch: the same for all events that were detected together; 0 for a campaign that finished
    :param facts: counts and references, never a number or an address
    """

    id: int
    kind: str
    campaign: str
    batch: int
    conn_id: str
    created_at: datetime
    facts: Mapping[str, Any]

    @property
    def key(self) -> str:
        """The name of the event, unique among the events of its kind."""
        return f"{self.campaign}.{self.batch}" if self.batch else self.campaign


def detect_events(database: Database, since: Mapping[str, datetime], scanned_at: datetime | None = None) -> None:
    """Detect new events, and store them as unpublished.

    :param since: the kinds to detect, each with the moment before which nothing is published
    :param scanned_at: when campaigns were last scanned; ``None`` to scan all of them, not only those with changes
    :raises DatabaseError: when the database cannot be used
    """
    now = datetime.now(UTC)
    if CAMPAIGN_FINISHED in since:
        _detect_finished(database, since[CAMPAIGN_FINISHED], now, scanned_at)
    with database.connect() as connection:
        pending = {kind: _pending(connection, kind, now) for kind in BATCHED if kind in since}
    for kind, conn_ids in pending.items():
        for conn_id in conn_ids:
            database.write(partial(_record_batch, kind=kind, conn_id=conn_id, since=since[kind], now=now))


def _detect_finished(database: Database, since: datetime, now: datetime, scanned_at: datetime | None) -> None:
    for _ in range(MAX_ROUNDS):
        with database.connect() as connection:
            finished = _finished(connection, now, scanned_at)
        if finished:
            database.write(partial(_record_finished, finished=finished, since=since, now=now))
        if len(finished) < MAX_FINISHED:
            return


def unpublished(connection: Connection, limit: int = 200) -> list[DeliveryEvent]:
    """Return the oldest unpublished events in their order.

    :param limit: the number of events; exceeded to return all events of a batch
    """
    first = select(events.c.id).where(events.c.published_at.is_(None)).order_by(events.c.id).limit(limit).subquery()
    batches = select(events.c.batch).where(events.c.id.in_(select(first)), events.c.batch != NO_BATCH)
    query = select(events).where(
        events.c.published_at.is_(None), or_(events.c.id.in_(select(first)), events.c.batch.in_(batches))
    )
    return [
        DeliveryEvent(row.id, row.kind, row.campaign, row.batch, row.conn_id, row.created_at, json.loads(row.facts))
        for row in connection.execute(query.order_by(events.c.id))
    ]


def mark_published(connection: Connection, published: Iterable[DeliveryEvent]) -> None:
    """Record that events are published."""
    values = [{"event_id": event.id, "at": datetime.now(UTC)} for event in published]
    if values:
        change = update(events).where(events.c.id == bindparam("event_id")).values(published_at=bindparam("at"))
        connection.execute(change, values)


def record_finished_before_prune(connection: Connection, campaign: str, conn_id: str, first_day: date | None) -> None:
    """Record that a campaign is finished already, if retention has deleted its record and its event.

    A later run with its idempotency key, or a clear, records it again. It must start no second run. Call this before
    that record.

    :param first_day: the day, in UTC, of the campaign's first request; ``None`` without one
    """
    if first_day is None or (pruned := pruned_before(connection)) is None or first_day >= pruned.date():
        return
    if connection.execute(select(sends.c.campaign).where(sends.c.campaign == campaign)).first() is not None:
        return
    now = datetime.now(UTC)
    event = {**_event(CAMPAIGN_FINISHED, campaign, NO_BATCH, conn_id, {}, now), "published_at": now}
    connection.execute(insert_into(connection.dialect.name, events).on_conflict_do_nothing(), [event])


def _of_send(value: ColumnElement[Any], *conditions: ColumnElement[bool]) -> ColumnElement[Any]:
    """Return an aggregate of the recipients of a send for which the conditions hold."""
    return select(value).select_from(deliveries).where(IS_SEND, *conditions).correlate(sends).scalar_subquery()


_number = partial(_of_send, func.count())
_last_change = partial(_of_send, func.max(deliveries.c.updated_at))

_IS_REQUEST_OF_SEND = and_(requests.c.campaign == sends.c.campaign, requests.c.conn_id == sends.c.conn_id)
_IS_UNKNOWN = is_in_state(RequestState.UNKNOWN)
_IS_ERASED = and_(IS_FINAL, deliveries.c.delivered.is_(false()), deliveries.c.failed.is_(false()))
"""The condition on a row of ``deliveries``: it is final because the recipient was erased, not by a report."""


def _has_request(*conditions: ColumnElement[bool]) -> ColumnElement[bool]:
    """Return whether a request of a send meets conditions on its row."""
    return exists().where(_IS_REQUEST_OF_SEND, *conditions).correlate(sends)


_UNKNOWN_OF_REQUESTS = select(func.sum(requests.c.unknown)).where(_IS_REQUEST_OF_SEND, _IS_UNKNOWN)
_UNKNOWN = func.coalesce(sends.c.unknown, 0) + func.coalesce(_UNKNOWN_OF_REQUESTS.correlate(sends).scalar_subquery(), 0)
_WITHOUT_FINAL_REPORT = unknown_without_report(_IS_REQUEST_OF_SEND, final=True)
_NUMBER_WITHOUT = _WITHOUT_FINAL_REPORT.with_only_columns(_WITHOUT_FINAL_REPORT.selected_columns.number)
_ALL_ARE_FINAL = case(
    # The first condition needs only an index, and settles most campaigns. The others look at each request.
    (sends.c.expected + _UNKNOWN > _number(IS_FINAL), false()),
    (func.coalesce(_NUMBER_WITHOUT.scalar_subquery(), 0) > 0, false()),
    (
        _has_request(is_in_state(RequestState.ACCEPTED), requests.c.recipients > number_of_request(IS_FINAL)),
        false(),
    ),
    # Recipients of unknown outcome whose requests are not recorded count in addition to all others.
    else_=func.coalesce(sends.c.unknown, 0) <= case((sends.c.unknown > 0, _number(IS_FINAL, ~HAS_REQUEST)), else_=0),
)
_LAST_ERASURE = func.coalesce(_last_change(_IS_ERASED), sends.c.started_at)
_IS_COMPLETE = and_(
    sends.c.ended_at.is_not(None),
    case(
        (~_ALL_ARE_FINAL, false()),
        # An erasure starts no DAG. If it was the last change, the campaign finishes by its age.
        else_=or_(sends.c.ended_at >= _LAST_ERASURE, _last_change(~_IS_ERASED) >= _LAST_ERASURE),
    ),
)


def _finished(connection: Connection, now: datetime, scanned_at: datetime | None) -> list[Row[Any]]:
    """Return sends that are finished, but not recorded as finished yet."""
    by_age = overdue(now)
    columns = sends, _IS_COMPLETE.label("is_complete")
    query = select(*columns).where(sends.c.finished_at.is_(None), or_(_IS_COMPLETE, *by_age)).limit(MAX_FINISHED)
    if scanned_at is not None:
        # Only campaigns with changes, because counting all unfinished ones takes long. One select for each condition,
        # so that each uses its index.
        changed_since = scanned_at - COMMIT_LAG
        unfinished = select(sends.c.campaign).where(sends.c.finished_at.is_(None))
        reported = select(deliveries.c.campaign).where(deliveries.c.updated_at >= changed_since)
        ended = (unfinished.where(condition) for condition in (sends.c.ended_at >= changed_since, *by_age))
        query = query.where(sends.c.campaign.in_(union_all(reported, *ended)))
    return list(connection.execute(query))


def _record_finished(connection: Connection, finished: list[Row[Any]], since: datetime, now: datetime) -> None:
    _advisory_lock(connection)
    names = [row.campaign for row in finished]
    counts, known_sends = read_counts(connection, names), read_sends(connection, names)
    is_single = and_(requests.c.reference.in_(names), requests.c.reference == requests.c.campaign)
    single = set(connection.execute(select(requests.c.reference).where(is_single)).scalars())
    existing = select(events.c.campaign).where(events.c.kind == CAMPAIGN_FINISHED, events.c.campaign.in_(names))
    known = set(connection.execute(existing).scalars())
    rows = []
    for send in finished:
        is_same_end = sends.c.ended_at.is_not_distinct_from(send.ended_at)
        unchanged = update(sends).where(sends.c.campaign == send.campaign, sends.c.finished_at.is_(None), is_same_end)
        # No row if a later try has continued the send, or another process has recorded it.
        if not connection.execute(unchanged.values(finished_at=now)).rowcount:
            continue
        count = counts.get(send.campaign, DeliveryCounts())
        unknown = known_sends[send.campaign].unknown or 0 if send.campaign in known_sends else 0
        if _finished_at(send, count) >= since and send.campaign not in known:
            facts = {**_facts_of(send, count), "unknown": unknown, "single": send.campaign in single}
            rows.append(_event(CAMPAIGN_FINISHED, send.campaign, NO_BATCH, send.conn_id, facts, now))
    _insert(connection, rows)


def _finished_at(send: Row[Any], count: DeliveryCounts) -> datetime:
    """Return when a campaign was finished, whenever that is detected."""
    started_at: datetime = send.started_at
    ended_at: datetime | None = send.ended_at
    if ended_at is None:
        return started_at + MAX_SEND_DURATION
    deadline = ended_at + MAX_REPORT_WAIT
    if not send.is_complete:
        return deadline
    # A status can still become stronger after all were final, such as by a click.
    return min(deadline, max(ended_at, count.updated_at or ended_at))


def _facts_of(send: Row[Any], count: DeliveryCounts) -> dict[str, Any]:
    """Return the counts of a finished campaign; those after ``recipients`` add up to it."""
    expected = count.expected(send.expected or 0)
    return {
        **{name: getattr(send, name) for name in ("operation", "dag_id", "run_id", "task_id", "map_index")},
        "recipients": expected,
        "delivered": count.delivered,
        "undelivered": count.undelivered,
        "in_flight": count.in_flight,
        "unreported": expected - count.known,
    }


def _waiting(kind: str, now: datetime) -> ColumnElement[bool]:
    """Return the condition for recipients that belong to no batch yet, and whose campaign will not change any more."""
    batched = BATCHED[kind]
    may_move = deliveries.c.campaign.startswith(UNTRACKED_PREFIX) | (deliveries.c.campaign == deliveries.c.reference)
    stays = or_(~may_move, exists_for_row(IS_SEND), deliveries.c.updated_at < now - UNTRACKED_GRACE)
    # A campaign may still send the message again, under another reference.
    may_repeat = exists_for_row(
        IS_SEND,
        sends.c.campaign != deliveries.c.reference,
        sends.c.ended_at.is_(None),
        sends.c.started_at >= now - MAX_SEND_DURATION,
    )
    if kind == MESSAGES_FAILED:
        stays = and_(stays, or_(IS_ACCEPTED, ~may_repeat))
    return and_(batched.condition, batched.batch.is_(None), stays)


def _pending(connection: Connection, kind: str, now: datetime) -> list[str]:
    """Return the connections on which a batch of this kind is due."""
    conn_ids = connection.execute(select(deliveries.c.conn_id).where(_waiting(kind, now)).distinct()).scalars()
    return [conn_id for conn_id in conn_ids if _is_due(connection, kind, conn_id, now)]


def _is_due(connection: Connection, kind: str, conn_id: str, now: datetime) -> bool:
    newest = select(func.max(events.c.batch)).where(
        events.c.kind == kind, events.c.conn_id == conn_id, events.c.batch <= _batch_of(now + CLOCK_SKEW)
    )
    return (connection.execute(newest).scalar() or 0) <= _batch_of(now - MIN_BATCH_INTERVAL)


def _batch_of(moment: datetime) -> int:
    """Return the number of a batch: its time in digits, to the millisecond."""
    return int(f"{moment:%Y%m%d%H%M%S}{moment.microsecond // 1000:03}")


def _record_batch(connection: Connection, kind: str, conn_id: str, since: datetime, now: datetime) -> None:
    _advisory_lock(connection)
    if not _is_due(connection, kind, conn_id, now):
        return
    batch, column = _batch_of(now), BATCHED[kind].batch
    while connection.execute(select(events.c.id).where(events.c.batch == batch)).first() is not None:
        batch += 1
    waiting = and_(_waiting(kind, now), deliveries.c.conn_id == conn_id)
    earlier = _earlier_batch(column)
    is_new = and_(deliveries.c.updated_at >= since, earlier == NO_BATCH)
    _assign_batch(connection, column, earlier, and_(waiting, ~is_new))
    _assign_batch(connection, column, batch, and_(waiting, is_new))
    by_campaign = (
        select(deliveries.c.campaign, func.count(deliveries.c.recipient.distinct()).label("recipients"))
        .where(BATCHED[kind].condition, column == batch)
        .group_by(deliveries.c.campaign)
    )
    numbers = {row.campaign: row.recipients for row in connection.execute(by_campaign)}
    # A report that names another connection's campaign does not belong to it.
    foreign = select(sends.c.campaign).where(sends.c.campaign.in_(numbers), sends.c.conn_id != conn_id)
    without_campaign = {name for name in numbers if name.startswith(UNTRACKED_PREFIX)}
    without_campaign |= set(connection.execute(foreign).scalars())
    counts = {campaign: number for campaign, number in numbers.items() if campaign not in without_campaign}
    if unattributed := sum(numbers.values()) - sum(counts.values()):
        counts[""] = unattributed
    _insert(connection, [_event(kind, name, batch, conn_id, {"recipients": n}, now) for name, n in counts.items()])


def _earlier_batch(column: Column[int]) -> ColumnElement[int]:
    """Return the batch that has the recipient of a row of ``deliveries`` by another request of the campaign.

    A DAG sends the next message to each recipient of a batch. A recipient gets it once for one campaign.

    :return: ``NO_BATCH`` if there is none. Rows without a name may be about different recipients
    """
    other = OTHER.c[column.name]
    earlier = select(func.min(other)).where(IS_IN_OTHER_REQUEST, other > NO_BATCH).correlate(deliveries)
    return func.coalesce(case((deliveries.c.recipient != "", earlier.scalar_subquery())), NO_BATCH)


def _assign_batch(
    connection: Connection, column: Column[int], batch: int | ColumnElement[int], condition: ColumnElement[bool]
) -> None:
    key = tuple(deliveries.primary_key.columns)
    # Locked rows are left to the next batch, because waiting for them could deadlock.
    keys = select(*key).where(condition).limit(BATCH_SIZE).with_for_update(skip_locked=True)
    connection.execute(update(deliveries).where(tuple_(*key).in_(keys)).values({column: batch}))


def _event(
    kind: str, campaign: str, batch: int, conn_id: str, facts: Mapping[str, Any], now: datetime
) -> dict[str, Any]:
    values = {"kind": kind, "campaign": campaign, "batch": batch, "conn_id": conn_id, "created_at": now}
    return {**values, "facts": json.dumps(facts)}


def _insert(connection: Connection, rows: list[dict[str, Any]]) -> None:
    if rows:
        connection.execute(insert(events), rows)


def _advisory_lock(connection: Connection) -> None:
    """Wait until no other process detects events. SQLite needs no lock, as it has one writer at a time."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_DETECTION_LOCK)))
