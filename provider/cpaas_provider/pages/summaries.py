"""Delivery summaries of campaigns. Small campaigns are counted during the request, large ones in the background.

A request must not wait until millions of recipients are counted. So summaries are stored in the database, and counted
again if reports have arrived since.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, String, and_, case, func, literal_column, select

from cpaas_provider.database.activity.upsert import upsert
from cpaas_provider.database.database import Database
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.database.schema.delivery import deliveries, delivery_summaries, report_counts, sends
from cpaas_provider.delivery.reports import DeliveryStatus
from cpaas_provider.delivery.tracking.counts import (
    COMMIT_LAG,
    IS_COUNTED,
    IS_REACHED,
    IS_UNDELIVERED,
    DeliveryCounts,
    is_counted,
    read_counts,
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


@dataclass(frozen=True)
class Group:
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


@dataclass(frozen=True)
class Summary:
    """The delivery counts of a campaign.

    :param unknown: the recipients among them whose request the service is not known to have accepted
    :param statuses: the number of recipients by the name of the delivery status
    :param counted_at: when a stored summary was counted; ``None`` for one that was counted during the request
    :param seconds: how long the counting of a stored summary took
    """

    delivered: int = 0
    undelivered: int = 0
    in_flight: int = 0
    unknown: int = 0
    statuses: Mapping[str, int] = field(default_factory=dict)
    networks: tuple[Group, ...] = ()
    reasons: tuple[tuple[str, int], ...] = ()
    counted_at: datetime | None = None
    seconds: float = 0

    @property
    def counts(self) -> DeliveryCounts:
        """The counts alone."""
        return DeliveryCounts(self.delivered, self.undelivered, self.in_flight, None, self.unknown)


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

    def of_list(self, connection: Connection, sizes: Mapping[str, int]) -> dict[str, Summary | None]:
        """Return the summaries of campaigns, ``None`` for one that is still being counted.

        :param sizes: the approximate number of recipients by campaign
        """
        stored, current = self._stored(connection, sizes)
        summaries: dict[str, Summary | None] = {name: stored[name] for name in current}
        room = MOST_AT_ONCE
        at_once: list[str] = []
        for name in sizes:
            if name in current:
                continue
            if sizes[name] <= min(SMALL, room):
                room -= sizes[name]
                at_once.append(name)
            else:
                summaries[name] = stored.get(name)
            # Also for those that are counted below, so that the next request finds them stored.
            self._refresh(name, stored.get(name))
        counts = read_counts(connection, at_once)
        for name in at_once:
            summaries[name] = Summary(**_numbers(counts.get(name, DeliveryCounts())))
        return summaries

    def of_one(self, connection: Connection, campaign: str, size: int) -> Summary | None:
        """Return the whole summary of a campaign, ``None`` while it is being counted."""
        stored, current = self._stored(connection, [campaign])
        if campaign in current:
            return stored[campaign]
        self._refresh(campaign, stored.get(campaign))
        return count_campaign(connection, campaign) if size <= SMALL else stored.get(campaign)

    def _stored(self, connection: Connection, campaigns: Iterable[str]) -> tuple[dict[str, Summary], set[str]]:
        """Return the stored summaries, and the names of those up to date."""
        names = list(campaigns)
        rows = connection.execute(select(delivery_summaries).where(delivery_summaries.c.campaign.in_(names))).all()
        found = {row.campaign: _read(row) for row in rows}
        newest = latest_reports(connection, found)
        lag = COMMIT_LAG + timedelta(minutes=1)
        current = {
            row.campaign for row in rows if row.campaign not in newest or newest[row.campaign] + lag < row.counted_at
        }
        return found, current

    def _refresh(self, campaign: str, stored: Summary | None) -> None:
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
    with database.connect() as connection:
        summary = count_campaign(connection, campaign)
    row = {
        "campaign": campaign,
        "summary": _write(summary),
        "counted_at": counted_at,
        "seconds": time.monotonic() - began,
    }
    database.write(partial(upsert, table=delivery_summaries, row=row))


def latest_reports(connection: Connection, campaigns: Iterable[str]) -> dict[str, datetime]:
    """Return the minute of the last report of each campaign that has any."""
    newest = select(report_counts.c.campaign, func.max(report_counts.c.minute))
    query = newest.where(report_counts.c.campaign.in_(list(campaigns))).group_by(report_counts.c.campaign)
    return {row[0]: row[1] for row in connection.execute(query)}


def count_campaign(connection: Connection, campaign: str) -> Summary:
    """Count the recipients of a campaign, by status, network and reason."""
    counts = read_counts(connection, [campaign]).get(campaign, DeliveryCounts())
    which = _counted(connection, campaign)
    return Summary(
        **_numbers(counts),
        statuses=_by_status(connection, which),
        networks=_by_network(connection, which),
        reasons=_by_reason(connection, which),
    )


def _numbers(counts: DeliveryCounts) -> dict[str, Any]:
    return {name: getattr(counts, name) for name in ("delivered", "undelivered", "in_flight", "unknown")}


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
    query = select(columns.status, columns.reason, func.count()).where(failed).group_by(columns.status, columns.reason)
    reasons: Counter[str] = Counter()
    for status, reason, count in connection.execute(query.order_by(literal_column("3").desc()).limit(200)):
        reasons[words(reason or status) or "no reason"] += count
    ranked = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    others = sum(count for _, count in ranked[MOST_GROUPS:])
    return (*ranked[:MOST_GROUPS], *([("others", others)] if others else []))


def _write(summary: Summary) -> str:
    return json.dumps({name: value for name, value in asdict(summary).items() if name not in ("counted_at", "seconds")})


def _read(row: Row[Any]) -> Summary:
    values: dict[str, Any] = json.loads(row.summary)
    values["networks"] = tuple(Group(**group) for group in values["networks"])
    values["reasons"] = tuple((name, count) for name, count in values["reasons"])
    return Summary(**values, counted_at=row.counted_at, seconds=row.seconds)
