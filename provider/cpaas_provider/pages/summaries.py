"""Delivery summaries of campaigns. Small campaigns are counted during the request, large ones in the background.

A request must not wait until millions of recipients are counted. So summaries are stored in the database with the
version of what they counted, and counted again if that has changed since.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import Any

from msgspec import Struct, field
from msgspec.structs import asdict
from sqlalchemy import ColumnElement, Connection, Row, String, and_, case, func, literal_column, select

from cpaas_provider.database.activity.upsert import upsert
from cpaas_provider.database.database import Database
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.database.schema.changes import campaign_changes
from cpaas_provider.database.schema.delivery import deliveries, delivery_summaries, sends
from cpaas_provider.delivery.campaigns import (
    CampaignCounts,
    CampaignRecord,
    read_campaign_counts,
    read_campaigns,
)
from cpaas_provider.delivery.reports import DeliveryStatus
from cpaas_provider.delivery.tracking.counts import (
    IS_COUNTED,
    IS_REACHED,
    IS_UNDELIVERED,
    DeliveryCounts,
    is_counted,
)
from cpaas_provider.pages.html.rendering import words

log = logging.getLogger(__name__)

SMALL = 2_000
"""The most recipients of a campaign that is counted during the request."""

MOST_AT_ONCE = 10_000
"""The most recipients that are counted during the request for a list."""

MOST_GROUPS = 12
"""The number of networks or reasons that are shown. The rest is summed up as one."""

_MIN_AGE = 3.0
"""Seconds for which a stored summary is not counted again."""
_AGE_FACTOR = 20
"""A stored summary is not counted again for this many times the duration of counting."""

_PREFIX = 7
"""The digits of a number by which recipients are grouped, before their network is looked up."""


class Group(Struct, frozen=True):
    """Recipients with the same network or reason."""

    name: str
    delivered: int = 0
    undelivered: int = 0
    in_flight: int = 0

    @property
    def total(self) -> int:
        """The number of recipients."""
        return self.delivered + self.undelivered + self.in_flight

    def __add__(self, other: Group) -> Group:
        numbers = (self.delivered + other.delivered, self.undelivered + other.undelivered)
        return Group(self.name, *numbers, self.in_flight + other.in_flight)


class Summary(Struct, frozen=True):
    """The delivery counts of a campaign.

    :param accepted: the number of recipients that were recorded as accepted when this was counted
    :param unknown: the recipients that are counted, but whose request the service is not known to have accepted
    :param messages: the number of recipients of all accepted requests, one of two requests twice
    :param statuses: the number of recipients by the name of the delivery status
    :param counted_at: when a stored summary was counted; ``None`` for one that was counted during the request
    :param seconds: how long the counting of a stored summary took
    :param is_current: whether nothing that is counted has changed since
    """

    accepted: int = 0
    delivered: int = 0
    undelivered: int = 0
    in_flight: int = 0
    unknown: int = 0
    messages: int = 0
    statuses: Mapping[str, int] = field(default_factory=dict)
    networks: tuple[Group, ...] = ()
    reasons: tuple[tuple[str, int], ...] = ()
    counted_at: datetime | None = None
    seconds: float = 0
    is_current: bool = True

    @property
    def counts(self) -> CampaignCounts:
        """The counts alone."""
        deliveries = DeliveryCounts(self.delivered, self.undelivered, self.in_flight, None, self.unknown, self.messages)
        return CampaignCounts(self.accepted, deliveries)


class Summaries:
    """Reads stored summaries, and has outdated ones counted again in a thread.

    :param database: opens the database, which may block
    """

    def __init__(self, database: Callable[[], Database]) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._pending: set[str] = set()
        self._worker: ThreadPoolExecutor | None = None

    def close(self) -> None:
        """End the thread."""
        with self._lock:
            worker, self._worker = self._worker, None
        if worker is not None:
            worker.shutdown(wait=True, cancel_futures=True)

    def of_list(self, connection: Connection, records: Iterable[CampaignRecord]) -> dict[str, Summary | None]:
        """Return the summaries of tracked campaigns, ``None`` for one that is still being counted."""
        tracked = {record.reference: record for record in records if record.is_tracked}
        summaries: dict[str, Summary | None] = {}
        room = MOST_AT_ONCE
        at_once: list[CampaignRecord] = []
        stored = self._stored(connection, tracked.values())
        for name, record in tracked.items():
            summaries[name] = summary = stored.get(name)
            if summary is not None and summary.is_current:
                continue
            if record.size <= min(SMALL, room):
                room -= record.size
                at_once.append(record)
            # Also for those that are counted below, so that the next request finds them stored.
            self._refresh(record, summary)
        counts = read_campaign_counts(connection, at_once)
        summaries |= {name: Summary(**_numbers(found)) for name, found in counts.items()}
        return summaries

    def of_one(self, connection: Connection, record: CampaignRecord) -> Summary | None:
        """Return the whole summary of a tracked campaign, ``None`` while it is being counted."""
        stored = self._stored(connection, [record]).get(record.reference)
        if stored is not None and stored.is_current:
            return stored
        self._refresh(record, stored)
        return count_campaign(connection, record) if record.size <= SMALL else stored

    def _stored(self, connection: Connection, records: Iterable[CampaignRecord]) -> dict[str, Summary]:
        """Return the stored summaries."""
        has_version = {record.reference: record.has_progress for record in records}
        query = select(delivery_summaries).where(delivery_summaries.c.campaign.in_(has_version))
        rows = connection.execute(query).all()
        versions = read_versions(connection, [row.campaign for row in rows])
        return {
            row.campaign: _read(row, is_current=has_version[row.campaign] and versions[row.campaign] == row.version)
            for row in rows
        }

    def _refresh(self, record: CampaignRecord, stored: Summary | None) -> None:
        campaign = record.reference
        if not record.has_progress and record.size <= SMALL:
            # It has no version, so it would be counted again for each request.
            return
        if stored is not None and stored.counted_at is not None:
            age = (datetime.now(UTC) - stored.counted_at).total_seconds()
            if age < max(_MIN_AGE, _AGE_FACTOR * stored.seconds):
                return
        with self._lock:
            if campaign in self._pending:
                return
            self._pending.add(campaign)
            if self._worker is None:
                self._worker = ThreadPoolExecutor(1, "cpaas-summaries")
            self._worker.submit(self._count, campaign)

    def _count(self, campaign: str) -> None:
        try:
            refresh_summary(self._database(), campaign)
        except DatabaseError as error:
            log.warning("The deliveries of a campaign could not be counted for its page: %s", error)
        finally:
            with self._lock:
                self._pending.discard(campaign)


def refresh_summary(database: Database, campaign: str) -> None:
    """Count a campaign and store the result.

    :raises DatabaseError: when the database cannot be used
    """
    counted_at, began = datetime.now(UTC), time.monotonic()
    with database.connect(one_moment=True) as connection:
        version = read_versions(connection, [campaign])[campaign]
        record = read_campaigns(connection, [campaign]).get(campaign)
        if record is None:
            return
        summary = count_campaign(connection, record)
    row = {
        "campaign": campaign,
        "summary": _write(summary),
        "version": version,
        "counted_at": counted_at,
        "seconds": time.monotonic() - began,
    }
    database.write(partial(upsert, table=delivery_summaries, row=row))


def read_versions(connection: Connection, campaigns: Iterable[str]) -> dict[str, int]:
    """Return the version of what is counted for each campaign. It changes with each change of that."""
    names, columns = list(campaigns), campaign_changes.c
    query = select(columns.campaign, func.sum(columns.changes)).where(columns.campaign.in_(names))
    found = {name: int(changes) for name, changes in connection.execute(query.group_by(columns.campaign))}
    return {name: found.get(name, 0) for name in names}


def count_campaign(connection: Connection, record: CampaignRecord) -> Summary:
    """Count the recipients of a tracked campaign, by status, network and reason."""
    counts = read_campaign_counts(connection, [record])[record.reference]
    which = _counted(connection, record.reference)
    return Summary(
        **_numbers(counts),
        statuses=_by_status(connection, which),
        networks=_by_network(connection, which),
        reasons=_by_reason(connection, which),
    )


def _numbers(counts: CampaignCounts) -> dict[str, Any]:
    names = ("delivered", "undelivered", "in_flight", "unknown", "messages")
    return {"accepted": counts.accepted, **{name: getattr(counts.deliveries, name) for name in names}}


def _counted(connection: Connection, campaign: str) -> ColumnElement[bool]:
    """Return the condition for the deliveries that ``read_counts`` counts, so that the figures add up."""
    of_campaign = deliveries.c.campaign == campaign
    send = connection.execute(select(sends.c.conn_id, sends.c.unknown).where(sends.c.campaign == campaign)).first()
    if send is None:
        return and_(of_campaign, IS_COUNTED)
    return and_(of_campaign, deliveries.c.conn_id == send.conn_id, is_counted(send.unknown))


def _by_status(connection: Connection, which: ColumnElement[bool]) -> dict[str, int]:
    query = select(deliveries.c.delivery_status, func.count()).where(which)
    rows = connection.execute(query.group_by(deliveries.c.delivery_status).order_by(deliveries.c.delivery_status))
    return {DeliveryStatus(status).word: count for status, count in rows}


def _by_network(connection: Connection, which: ColumnElement[bool]) -> tuple[Group, ...]:
    """Group by the network of a number's prefix, or by the domain of an address."""
    columns = deliveries.c
    domain = (
        func.substr(columns.recipient, func.instr(columns.recipient, "@"))
        if connection.dialect.name == "sqlite"
        else func.substring(columns.recipient, "@[^@]*$")
    )
    is_address = columns.recipient.like("%@%")
    name = case((is_address, domain), else_=func.substr(columns.recipient, 1, _PREFIX)).label("name")
    query = select(
        name,
        func.min(columns.recipient),
        func.count(case((IS_REACHED, 1))),
        func.count(case((IS_UNDELIVERED, 1))),
        func.count(),
    )
    groups: dict[str, Group] = {}
    query = query.where(which).group_by(literal_column("1", String))
    for key, example, delivered, undelivered, total in connection.execute(query):
        # The recipient in a report may have several @, or a number after the last one.
        label = (words(key.rpartition("@")[2]) or "not named") if key.startswith("@") else _network_of(example)
        found = Group(label, delivered, undelivered, total - delivered - undelivered)
        groups[label] = groups.get(label, Group(label)) + found
    ranked = sorted(groups.values(), key=lambda group: (-group.total, group.name))
    if others := ranked[MOST_GROUPS:]:
        ranked[MOST_GROUPS:] = [sum(others, Group("others"))]
    return tuple(ranked)


def _network_of(example: str) -> str:
    """Return the network to which the prefix of a number was assigned. The number may have been ported since."""
    from phonenumbers import NumberParseException, carrier, parse

    if not example.isdigit():
        return "not named"
    try:
        number = parse(f"+{example}")
    except NumberParseException:
        return "other"
    return carrier.name_for_valid_number(number, "en") or f"+{number.country_code}, other"


def _by_reason(connection: Connection, which: ColumnElement[bool]) -> tuple[tuple[str, int], ...]:
    """Group the recipients that were not reached by the reason that the service gave."""
    columns = deliveries.c
    failed = and_(which, IS_UNDELIVERED)
    # The sum is that of all groups, also of those that are not read.
    query = select(columns.status, columns.reason, func.count(), func.sum(func.count()).over())
    query = query.where(failed).group_by(columns.status, columns.reason).order_by(literal_column("3").desc())
    rows = connection.execute(query.limit(200)).all()
    reasons: Counter[str] = Counter()
    for status, reason, count, _ in rows:
        reasons[words(reason or status) or "no reason"] += count
    shown = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))[:MOST_GROUPS]
    total = int(rows[0][3]) if rows else 0
    others = total - sum(count for _, count in shown)
    return (*shown, *([("others", others)] if others else []))


def _write(summary: Summary) -> str:
    of_row = ("counted_at", "seconds", "is_current")
    return json.dumps({name: value for name, value in asdict(summary).items() if name not in of_row}, default=asdict)


def _read(row: Row[Any], *, is_current: bool) -> Summary:
    values: dict[str, Any] = json.loads(row.summary)
    values["networks"] = tuple(Group(**group) for group in values["networks"])
    values["reasons"] = tuple((name, count) for name, count in values["reasons"])
    return Summary(**values, counted_at=row.counted_at, seconds=row.seconds, is_current=is_current)
