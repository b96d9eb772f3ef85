"""What the deliveries of campaigns come to: small campaigns are counted at once, large ones in the background.

The page of a campaign with millions of recipients must not count them while a reader waits. Its counts are stored in
the database, and counted anew when reports arrived since.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, Connection, String, and_, case, func, literal_column, select

from cpaas_provider.database.activity.upsert import upsert
from cpaas_provider.database.database import Database
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.database.schema import deliveries, delivery_summaries, report_counts, sends
from cpaas_provider.delivery.reports import DeliveryStatus
from cpaas_provider.delivery.tracking.counts import COMMIT_LAG, IS_ACCEPTED, IS_COUNTED, DeliveryCounts, read_counts

log = logging.getLogger(__name__)

SMALL = 2_000
"""Recipients of a campaign that is counted while a reader waits for its page."""

MOST_AT_ONCE = 10_000
"""Recipients that are counted while a reader waits for a list."""

MOST_GROUPS = 12
"""Networks and reasons that are shown; the rest is summed up."""

_PAUSE = 3.0
_SHARE_OF_TIME = 20
"""Counting a campaign may take this share of the time."""

_PREFIX = 7


@dataclass(frozen=True)
class Group:
    """Recipients with the same network or reason."""

    name: str
    delivered: int = 0
    undelivered: int = 0
    in_flight: int = 0

    @property
    def total(self) -> int:
        """How many there are."""
        return self.delivered + self.undelivered + self.in_flight


@dataclass(frozen=True)
class Summary:
    """What was reported of a campaign's recipients.

    :param unknown: how many of them are of requests that the service is not known to have accepted
    :param statuses: by the name of the delivery status
    :param counted_at: when, of one that was stored
    """

    delivered: int = 0
    undelivered: int = 0
    in_flight: int = 0
    unknown: int = 0
    statuses: Mapping[str, int] = field(default_factory=dict)
    networks: tuple[Group, ...] = ()
    reasons: tuple[tuple[str, int], ...] = ()
    counted_at: datetime | None = None

    @property
    def counts(self) -> DeliveryCounts:
        """The counts alone."""
        return DeliveryCounts(self.delivered, self.undelivered, self.in_flight, None, self.unknown)


class Summaries:
    """Reads summaries, and has those counted anew that are out of date.

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

        :param sizes: about how many recipients each has
        """
        stored, current = self._stored(connection, sizes)
        found: dict[str, Summary | None] = {name: stored[name][0] for name in current}
        room = MOST_AT_ONCE
        at_once: list[str] = []
        for name in sizes:
            if name in current:
                continue
            if sizes[name] <= min(SMALL, room):
                room -= sizes[name]
                at_once.append(name)
            else:
                found[name] = stored[name][0] if name in stored else None
            # Also those that are counted now: the next who opens the list need not wait for that.
            self._refresh(name, stored.get(name))
        counted = read_counts(connection, at_once)
        for name in at_once:
            found[name] = _of_counts(counted.get(name, DeliveryCounts()))
        return found

    def of_one(self, connection: Connection, campaign: str, size: int) -> Summary | None:
        """Return the whole summary of a campaign, ``None`` while it is being counted."""
        stored, current = self._stored(connection, [campaign])
        if campaign in current:
            return stored[campaign][0]
        self._refresh(campaign, stored.get(campaign))
        if size <= SMALL:
            return count_campaign(connection, campaign)
        return stored[campaign][0] if campaign in stored else None

    def _stored(
        self, connection: Connection, campaigns: Iterable[str]
    ) -> tuple[dict[str, tuple[Summary, float]], set[str]]:
        """Return the stored summaries with the seconds each took, and the names of those that are up to date."""
        names = list(campaigns)
        rows = connection.execute(select(delivery_summaries).where(delivery_summaries.c.campaign.in_(names))).all()
        found = {row.campaign: (_read(row.summary, row.counted_at), row.seconds) for row in rows}
        newest = latest_reports(connection, found)
        lag = COMMIT_LAG + timedelta(minutes=1)
        current = {
            row.campaign for row in rows if row.campaign not in newest or newest[row.campaign] + lag < row.counted_at
        }
        return found, current

    def _refresh(self, campaign: str, stored: tuple[Summary, float] | None) -> None:
        if stored is not None and stored[0].counted_at is not None:
            age = (datetime.now(UTC) - stored[0].counted_at).total_seconds()
            if age < max(_PAUSE, _SHARE_OF_TIME * stored[1]):
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
        **{name: getattr(counts, name) for name in ("delivered", "undelivered", "in_flight", "unknown")},
        statuses=_by_status(connection, which),
        networks=_by_network(connection, which),
        reasons=_by_reason(connection, which),
    )


def _of_counts(counts: DeliveryCounts) -> Summary:
    return Summary(counts.delivered, counts.undelivered, counts.in_flight, counts.unknown)


def _counted(connection: Connection, campaign: str) -> ColumnElement[bool]:
    """Return which deliveries of a campaign count, as ``read_counts`` has it, so that the figures add up."""
    mine = deliveries.c.campaign == campaign
    send = connection.execute(select(sends.c.conn_id, sends.c.unknown).where(sends.c.campaign == campaign)).first()
    if send is None:
        return and_(mine, IS_COUNTED)
    theirs = and_(mine, deliveries.c.conn_id == send.conn_id)
    return theirs if send.unknown is None or send.unknown > 0 else and_(theirs, IS_ACCEPTED)


def _by_status(connection: Connection, which: ColumnElement[bool]) -> dict[str, int]:
    query = select(deliveries.c.delivery_status, func.count()).where(which)
    rows = connection.execute(query.group_by(deliveries.c.delivery_status).order_by(deliveries.c.delivery_status))
    return {DeliveryStatus(status).name.lower(): count for status, count in rows}


_DELIVERED = [int(status) for status in DeliveryStatus if status.delivered]
_UNDELIVERED = [int(status) for status in DeliveryStatus if status.final and not status.delivered]


def _by_network(connection: Connection, which: ColumnElement[bool]) -> tuple[Group, ...]:
    """Group by the network of a number's prefix, or by the domain of an address."""
    from cpaas_provider.pages.html.formats import words

    there = deliveries.c
    domain = (
        func.substr(there.recipient, func.instr(there.recipient, "@"))
        if connection.dialect.name == "sqlite"
        else func.substring(there.recipient, "@[^@]*$")
    )
    is_address = there.recipient.like("%@%")
    name = case((is_address, domain), else_=func.substr(there.recipient, 1, _PREFIX)).label("name")
    columns = (
        name,
        func.min(there.recipient),
        func.count(case((there.delivery_status.in_(_DELIVERED), 1))),
        func.count(case((there.delivery_status.in_(_UNDELIVERED), 1))),
        func.count(),
    )
    query = select(*columns).where(which).group_by(literal_column("1", String))
    found: dict[str, Group] = {}
    for key, example, delivered, undelivered, total in connection.execute(query):
        # What a report names may have more than one sign, or a number after it.
        label = (words(key.rpartition("@")[2]) or "not named") if key.startswith("@") else _network_of(example)
        other = found.get(label, Group(label))
        found[label] = Group(
            label,
            other.delivered + delivered,
            other.undelivered + undelivered,
            other.in_flight + total - delivered - undelivered,
        )
    ranked = sorted(found.values(), key=lambda group: (-group.total, group.name))
    rest = ranked[MOST_GROUPS:]
    if rest:
        sums = (sum(getattr(one, part) for one in rest) for part in ("delivered", "undelivered", "in_flight"))
        ranked = [*ranked[:MOST_GROUPS], Group("others", *sums)]
    return tuple(ranked)


def _network_of(example: str) -> str:
    """Return the network that the prefix of a number was given to; it may have been ported since."""
    from phonenumbers import NumberParseException, carrier, parse

    if not example.isdigit():
        return "not named"
    try:
        found = parse(f"+{example}")
    except NumberParseException:
        return "other"
    return carrier.name_for_valid_number(found, "en") or f"+{found.country_code}, other"


def _by_reason(connection: Connection, which: ColumnElement[bool]) -> tuple[tuple[str, int], ...]:
    """Group those that were not reached by the words of the service."""
    from cpaas_provider.pages.html.formats import words

    there = deliveries.c
    failed = and_(which, there.delivery_status.in_(_UNDELIVERED))
    columns = there.status, there.reason, func.count().label("recipients")
    query = select(*columns).where(failed).group_by(there.status, there.reason)
    found: dict[str, int] = {}
    for status, reason, count in connection.execute(query.order_by(literal_column("3").desc()).limit(200)):
        name = words(reason or status) or "no reason"
        found[name] = found.get(name, 0) + count
    ranked = sorted(found.items(), key=lambda one: (-one[1], one[0]))
    rest = sum(count for _, count in ranked[MOST_GROUPS:])
    return (*ranked[:MOST_GROUPS], *([("others", rest)] if rest else []))


def _write(summary: Summary) -> str:
    return json.dumps({name: value for name, value in asdict(summary).items() if name != "counted_at"})


def _read(text: str, counted_at: datetime) -> Summary:
    found: dict[str, Any] = json.loads(text)
    found["networks"] = tuple(Group(**one) for one in found["networks"])
    found["reasons"] = tuple((name, count) for name, count in found["reasons"])
    return Summary(**found, counted_at=counted_at)
