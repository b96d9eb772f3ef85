"""What DAGs are started on: found in the store, and kept there until it is known that they were told."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

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

from cpaas_provider.database.database import Database
from cpaas_provider.database.schema import (
    deliveries,
    events,
    may_be_topped_up,
    may_have_clicked,
    may_have_failed,
    requests,
    sends,
)
from cpaas_provider.delivery.reports import DeliveryStatus
from cpaas_provider.delivery.tracking.counts import COMMIT_LAG, IS_ACCEPTED, DeliveryCounts, read_counts
from cpaas_provider.delivery.tracking.report_store import UNTRACKED_PREFIX

CAMPAIGN_FINISHED: Final = "campaign_finished"
MESSAGES_FAILED: Final = "messages_failed"
AIRTIME_SUCCEEDED: Final = "airtime_succeeded"
LINK_CLICKED: Final = "link_clicked"

MAX_REPORT_WAIT = timedelta(hours=72)
"""How long after its end a campaign is waited for; then it is finished, recipients without a final status included."""

MAX_SEND_DURATION = timedelta(days=7)
"""How long after its beginning a campaign is waited for whose task never came to an end."""

MIN_BATCH_INTERVAL = timedelta(seconds=60)
"""How far batches of one kind are apart on a connection; what happens in between is told together."""

BATCH_SIZE = 20_000
"""Recipients of a batch; more come in the next."""

UNTRACKED_GRACE = timedelta(minutes=10)
"""How long the report of a message that is not recorded yet waits for its record."""

MAX_FINISHED = 500
"""Campaigns that are found finished at a time."""

MAX_ROUNDS = 1000
"""Times that many campaigns of one look; what is left after them is found by the next look at all campaigns."""

NO_BATCH = 0

_DETECTION_LOCK = 0x6370616174
"""What several processes that detect_events at once wait for; any number will do."""


HAS_FAILED = and_(
    may_have_failed, deliveries.c.delivery_status.in_([int(DeliveryStatus.UNDELIVERED), int(DeliveryStatus.BOUNCED)])
)
_IS_TOPPED_UP = and_(may_be_topped_up, deliveries.c.delivery_status == int(DeliveryStatus.DELIVERED))


@dataclass(frozen=True, slots=True)
class _Batched:
    """What happens to single recipients, and is told in batches."""

    who: ColumnElement[bool]
    published_batch: Column[int]


BATCHED: dict[str, _Batched] = {
    MESSAGES_FAILED: _Batched(HAS_FAILED, deliveries.c.failed_batch),
    AIRTIME_SUCCEEDED: _Batched(_IS_TOPPED_UP, deliveries.c.topped_up_batch),
    LINK_CLICKED: _Batched(may_have_clicked, deliveries.c.clicked_batch),
}

KINDS = (CAMPAIGN_FINISHED, *BATCHED)


@dataclass(frozen=True, slots=True)
class DeliveryEvent:
    """What happened in one campaign.

    :param campaign: its reference; empty for messages that are not recorded
    :param batch: what else was found together with it has the same; 0 for a campaign that finished
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
        """What names it among all of its kind."""
        return f"{self.campaign}.{self.batch}" if self.batch else self.campaign


def detect_events(database: Database, since: Mapping[str, datetime], looked: datetime | None = None) -> None:
    """Find what happened, and keep it to be told.

    :param since: for each kind that is published, from when on; what happened before is not published
    :param looked: when campaigns were last looked at; ``None`` to look at all of them
    :raises DatabaseError: when the store cannot be used
    """
    now = datetime.now(UTC)
    if CAMPAIGN_FINISHED in since:
        _detect_finished(database, since[CAMPAIGN_FINISHED], now, looked)
    with database.connect() as connection:
        pending = {kind: _pending(connection, kind, now) for kind in BATCHED if kind in since}
    for kind, conn_ids in pending.items():
        for conn_id in conn_ids:
            database.write(partial(_record_batch, kind=kind, conn_id=conn_id, since=since[kind], now=now))


def _detect_finished(database: Database, since: datetime, now: datetime, looked: datetime | None) -> None:
    for _ in range(MAX_ROUNDS):
        with database.connect() as connection:
            finished = _finished(connection, now, looked)
        if finished:
            database.write(partial(_record_finished, finished=finished, since=since, now=now))
        if len(finished) < MAX_FINISHED:
            return


def unpublished(connection: Connection, limit: int = 200) -> list[DeliveryEvent]:
    """Return what is not published yet, first what was found first; batches are never torn apart."""
    first = select(events.c.id).where(events.c.published_at.is_(None)).order_by(events.c.id).limit(limit).subquery()
    batches = select(events.c.batch).where(events.c.id.in_(select(first)), events.c.batch != NO_BATCH)
    query = select(events).where(
        events.c.published_at.is_(None), or_(events.c.id.in_(select(first)), events.c.batch.in_(batches))
    )
    return [_event_of(row) for row in connection.execute(query.order_by(events.c.id))]


def mark_published(connection: Connection, published: Iterable[DeliveryEvent]) -> None:
    """Record that these are published."""
    values = [{"event_id": one.id, "at": datetime.now(UTC)} for one in published]
    if values:
        connection.execute(
            update(events).where(events.c.id == bindparam("event_id")).values(published_at=bindparam("at")), values
        )


def _event_of(row: Row[Any]) -> DeliveryEvent:
    return DeliveryEvent(row.id, row.kind, row.campaign, row.batch, row.conn_id, row.created_at, json.loads(row.facts))


def _number(*which: ColumnElement[bool]) -> ColumnElement[int]:
    """Return of how many recipients of a send something is known."""
    theirs = and_(deliveries.c.campaign == sends.c.campaign, deliveries.c.conn_id == sends.c.conn_id)
    return select(func.count()).select_from(deliveries).where(theirs, *which).correlate(sends).scalar_subquery()


_IS_FINAL = deliveries.c.delivery_status > int(DeliveryStatus.IN_FLIGHT)
_IS_COMPLETE = and_(
    sends.c.ended_at.is_not(None),
    # The first is told by an index alone, and true rarely; the rest goes through all of a campaign.
    case(
        (sends.c.expected > _number(_IS_FINAL), false()),
        (sends.c.unknown == 0, sends.c.expected <= _number(_IS_FINAL, IS_ACCEPTED)),
        # A recipient of a request of unknown outcome counts beside the expected, once anything is reported of it.
        else_=sends.c.expected + _number(~IS_ACCEPTED) <= _number(_IS_FINAL),
    ),
)
"""As ``DeliveryCounts.expected`` has it."""


def _finished(connection: Connection, now: datetime, looked: datetime | None) -> list[Row[Any]]:
    """Return the sends that have come to their end, though that is not recorded yet."""
    overdue = [
        sends.c.ended_at < now - MAX_REPORT_WAIT,
        and_(sends.c.ended_at.is_(None), sends.c.started_at < now - MAX_SEND_DURATION),
    ]
    query = select(sends).where(sends.c.finished_at.is_(None), or_(_IS_COMPLETE, *overdue)).limit(MAX_FINISHED)
    if looked is not None:
        # One by one, as each has an index: counting all that are open takes long.
        unfinished = select(sends.c.campaign).where(sends.c.finished_at.is_(None))
        updated_at = select(deliveries.c.campaign).where(deliveries.c.updated_at >= looked - COMMIT_LAG)
        some = (unfinished.where(one) for one in (sends.c.ended_at >= looked - COMMIT_LAG, *overdue))
        query = query.where(sends.c.campaign.in_(union_all(updated_at, *some)))
    return list(connection.execute(query))


def _record_finished(connection: Connection, finished: list[Row[Any]], since: datetime, now: datetime) -> None:
    _advisory_lock(connection)
    names = [row.campaign for row in finished]
    counts = read_counts(connection, names)
    alone = and_(requests.c.reference.in_(names), requests.c.reference == requests.c.campaign)
    single = set(connection.execute(select(requests.c.reference).where(alone)).scalars())
    kept = select(events.c.campaign).where(events.c.kind == CAMPAIGN_FINISHED, events.c.campaign.in_(names))
    known = set(connection.execute(kept).scalars())
    rows = []
    for row in finished:
        ended = sends.c.ended_at.is_(None) if row.ended_at is None else sends.c.ended_at == row.ended_at
        mine = update(sends).where(sends.c.campaign == row.campaign, sends.c.finished_at.is_(None), ended)
        # A later try of it may have gone on meanwhile, or another process been quicker.
        if not connection.execute(mine.values(finished_at=now)).rowcount:
            continue
        count = counts.get(row.campaign, DeliveryCounts())
        if _finished_at(row, count) >= since and row.campaign not in known:
            facts = {**_facts_of(row, count), "single": row.campaign in single}
            rows.append(_event(CAMPAIGN_FINISHED, row.campaign, NO_BATCH, row.conn_id, facts, now))
    _insert(connection, rows)


def _finished_at(row: Row[Any], count: DeliveryCounts) -> datetime:
    started_at: datetime = row.started_at
    ended: datetime | None = row.ended_at
    if ended is None:
        return started_at + MAX_SEND_DURATION
    if count.final < count.expected(row.expected):
        return ended + MAX_REPORT_WAIT
    return max(ended, count.updated_at or ended)


def _facts_of(row: Row[Any], count: DeliveryCounts) -> dict[str, Any]:
    expected = count.expected(row.expected or 0)
    return {
        "operation": row.operation,
        "dag_id": row.dag_id,
        "run_id": row.run_id,
        "task_id": row.task_id,
        "map_index": row.map_index,
        "recipients": expected,
        "delivered": count.delivered,
        "undelivered": count.undelivered,
        "in_flight": count.in_flight,
        "unreported": expected - count.known,
    }


def _waiting(kind: str, now: datetime) -> ColumnElement[bool]:
    """Return who belongs to no batch yet, those aside that a campaign may still adopt."""
    batched = BATCHED[kind]
    named = deliveries.c.campaign.startswith(UNTRACKED_PREFIX) | (deliveries.c.campaign == deliveries.c.reference)
    noted = exists().where(sends.c.campaign == deliveries.c.campaign, sends.c.conn_id == deliveries.c.conn_id)
    theirs = or_(~named, noted, deliveries.c.updated_at < now - UNTRACKED_GRACE)
    return and_(batched.who, batched.published_batch.is_(None), theirs)


def _pending(connection: Connection, kind: str, now: datetime) -> list[str]:
    """Return the connections on which a batch of this kind is due."""
    conn_ids = connection.execute(select(deliveries.c.conn_id).where(_waiting(kind, now)).distinct()).scalars()
    return [conn_id for conn_id in conn_ids if _is_due(connection, kind, conn_id, now)]


def _is_due(connection: Connection, kind: str, conn_id: str, now: datetime) -> bool:
    newest = select(func.max(events.c.batch)).where(events.c.kind == kind, events.c.conn_id == conn_id)
    return (connection.execute(newest).scalar() or 0) <= _batch_of(now - MIN_BATCH_INTERVAL)


def _batch_of(moment: datetime) -> int:
    """Return the name of a batch: when it was made, to the millisecond, as a number that people can read."""
    return int(f"{moment:%Y%m%d%H%M%S}{moment.microsecond // 1000:03}")


def _record_batch(connection: Connection, kind: str, conn_id: str, since: datetime, now: datetime) -> None:
    _advisory_lock(connection)
    if not _is_due(connection, kind, conn_id, now):
        return
    newest = connection.execute(select(func.max(events.c.batch))).scalar() or 0
    batch, published_batch = max(_batch_of(now), newest + 1), BATCHED[kind].published_batch
    waiting = and_(_waiting(kind, now), deliveries.c.conn_id == conn_id)
    _assign_batch(connection, published_batch, NO_BATCH, and_(waiting, deliveries.c.updated_at < since))
    _assign_batch(connection, published_batch, batch, and_(waiting, deliveries.c.updated_at >= since))
    members = (
        select(deliveries.c.campaign, func.count().label("recipients"))
        .where(BATCHED[kind].who, published_batch == batch)
        .group_by(deliveries.c.campaign)
    )
    found = {row.campaign: row.recipients for row in connection.execute(members)}
    # What another connection sent is of no campaign of this one.
    foreign = select(sends.c.campaign).where(sends.c.campaign.in_(found), sends.c.conn_id != conn_id)
    of_none = {name for name in found if name.startswith(UNTRACKED_PREFIX)} | set(connection.execute(foreign).scalars())
    counts = {campaign: number for campaign, number in found.items() if campaign not in of_none}
    if orphans := sum(found.values()) - sum(counts.values()):
        counts[""] = orphans
    _insert(connection, [_event(kind, name, batch, conn_id, {"recipients": n}, now) for name, n in counts.items()])


def _assign_batch(connection: Connection, published_batch: Column[int], batch: int, who: ColumnElement[bool]) -> None:
    key = tuple(deliveries.primary_key.columns)
    # Who is being written about just now is of the next batch, rather than the cause of a deadlock.
    some = select(*key).where(who).limit(BATCH_SIZE).with_for_update(skip_locked=True)
    connection.execute(update(deliveries).where(tuple_(*key).in_(some)).values({published_batch: batch}))


def _event(
    kind: str, campaign: str, batch: int, conn_id: str, facts: Mapping[str, Any], now: datetime
) -> dict[str, Any]:
    values = {"kind": kind, "campaign": campaign, "batch": batch, "conn_id": conn_id, "created_at": now}
    return {**values, "facts": json.dumps(facts)}


def _insert(connection: Connection, rows: list[dict[str, Any]]) -> None:
    if rows:
        connection.execute(insert(events), rows)


def _advisory_lock(connection: Connection) -> None:
    """Wait until no other process collects; SQLite has one writer at a time anyway."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_DETECTION_LOCK)))
