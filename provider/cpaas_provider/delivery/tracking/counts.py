"""How far deliveries are: counted by campaign, for any number of waiters at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import JSON, ColumnElement, Connection, and_, case, cast, exists, func, literal, or_, select, union_all

from cpaas_provider.database.bulk import batched
from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.database.schema import deliveries, requests, sends
from cpaas_provider.delivery.reports import DeliveryStatus

NOT_IN_DATABASE = (
    "The database has neither the send nor a delivery report of what this task waits for. If this does not change, "
    "sender, receiver and triggerer do not share one database. Set [cpaas] database to the same database for workers, "
    "API server and triggerer."
)

COMMIT_LAG = timedelta(seconds=60)
"""For how long what a process has written may not be seen by others yet: its transaction may wait for a lock."""


def _number(states: Iterable[DeliveryStatus]) -> ColumnElement[int]:
    return func.count(case((deliveries.c.delivery_status.in_([int(state) for state in states]), 1)))


_BY_REQUEST = select(
    deliveries.c.campaign,
    deliveries.c.conn_id,
    deliveries.c.reference,
    _number(state for state in DeliveryStatus if state.delivered).label("delivered"),
    _number(state for state in DeliveryStatus if state.final and not state.delivered).label("undelivered"),
    _number(state for state in DeliveryStatus if not state.final).label("in_flight"),
    func.max(deliveries.c.updated_at).label("updated_at"),
).group_by(deliveries.c.campaign, deliveries.c.conn_id, deliveries.c.reference)

IS_ACCEPTED = exists().where(
    requests.c.conn_id == deliveries.c.conn_id,
    requests.c.reference == deliveries.c.reference,
    requests.c.campaign == deliveries.c.campaign,
)
"""Of a recipient: the service is known to have accepted the request."""

_OTHER = deliveries.alias()

IS_COUNTED = or_(
    exists().where(
        sends.c.campaign == deliveries.c.campaign,
        sends.c.conn_id == deliveries.c.conn_id,
        or_(sends.c.unknown.is_(None), sends.c.unknown > 0, IS_ACCEPTED),
    ),
    and_(
        ~exists().where(sends.c.campaign == deliveries.c.campaign),
        ~exists().where(_OTHER.c.campaign == deliveries.c.campaign, _OTHER.c.conn_id != deliveries.c.conn_id),
    ),
)
"""Of a recipient: what is known of him is about his campaign, as ``read_counts`` has it."""

_NAMES: dict[str, Callable[[ColumnElement[str]], Any]] = {
    "sqlite": func.json_each,
    "postgresql": lambda names: func.json_array_elements_text(cast(names, JSON)),
}
"""What makes a table of a list of names."""


@dataclass(frozen=True, slots=True)
class DeliveryCounts:
    """Of how many recipients what is known.

    :param updated_at: when that last changed
    :param unknown: how many of them are of requests that the service is not known to have accepted; they are reported
        on, and so they count beside those it accepted, never in the place of one
    """

    delivered: int = 0
    undelivered: int = 0
    in_flight: int = 0
    updated_at: datetime | None = None
    unknown: int = 0

    @property
    def final(self) -> int:
        """Of how many it is known what became of them."""
        return self.delivered + self.undelivered

    @property
    def known(self) -> int:
        """Of how many anything is known."""
        return self.final + self.in_flight

    def expected(self, accepted: int) -> int:
        """Return how many are waited for.

        :param accepted: how many recipients the service accepted
        """
        return max(accepted + self.unknown, self.known)

    def as_unknown(self) -> DeliveryCounts:
        """Return the same for a request of unknown outcome, which is a campaign by itself."""
        return replace(self, unknown=self.known)

    def __add__(self, other: DeliveryCounts) -> DeliveryCounts:
        """Return what both come to together."""
        return DeliveryCounts(
            self.delivered + other.delivered,
            self.undelivered + other.undelivered,
            self.in_flight + other.in_flight,
            max((one for one in (self.updated_at, other.updated_at) if one), default=None),
            self.unknown + other.unknown,
        )


def read_counts(connection: Connection, campaigns: Iterable[str]) -> dict[str, DeliveryCounts]:
    """Return the counts of campaigns; one of which nothing is known is left out.

    Reports count on the connection that sent, as its sender noted; where it did not, on the only one there are any of.
    A recipient of a request not known to be accepted is counted as unknown while such requests may be out; once it
    is certain that there are none, what is reported of one is of an attempt that another took the place of.
    """
    found: dict[str, DeliveryCounts] = {}
    for batch in batched(dict.fromkeys(campaigns)):
        found |= _counted(connection, deliveries.c.campaign.in_(batch))
    return found


def counts_changed_since(connection: Connection, since: datetime, wanted: Iterable[str]) -> dict[str, DeliveryCounts]:
    """Return the counts of campaigns of which something became known since, by one query; when that was is left out.

    What was written by then and could not be seen yet is counted, too.

    :param wanted: the campaigns that matter; there may be many times as many others
    """
    # Named to the database: rows that are read only to be passed over take a thread long where the others are busy.
    names: Any = _NAMES[connection.dialect.name](literal(json.dumps(list(wanted)))).table_valued("value")
    recently = select(deliveries.c.campaign).where(deliveries.c.updated_at >= since - COMMIT_LAG)
    fresh = recently.where(deliveries.c.campaign.in_(select(names.c.value)))
    counted = _counted(connection, deliveries.c.campaign.in_(fresh))
    return {campaign: replace(counts, updated_at=None) for campaign, counts in counted.items()}


def _counted(connection: Connection, which: ColumnElement[bool]) -> dict[str, DeliveryCounts]:
    by = _BY_REQUEST.where(which).subquery()
    accepted = requests.c.reference.is_not(None)
    sums = (func.sum(by.c[name]) for name in ("delivered", "undelivered", "in_flight"))
    query = (
        select(
            by.c.campaign, by.c.conn_id, sends.c.conn_id, sends.c.unknown, accepted, *sums, func.max(by.c.updated_at)
        )
        .outerjoin(sends, sends.c.campaign == by.c.campaign)
        .outerjoin(
            requests,
            and_(
                requests.c.conn_id == by.c.conn_id,
                requests.c.reference == by.c.reference,
                requests.c.campaign == by.c.campaign,
            ),
        )
        .where(or_(sends.c.conn_id.is_(None), sends.c.conn_id == by.c.conn_id))
        .group_by(by.c.campaign, by.c.conn_id, sends.c.conn_id, sends.c.unknown, accepted)
    )
    found: dict[str, DeliveryCounts] = {}
    places: dict[str, str] = {}
    ambiguous: set[str] = set()
    for campaign, conn_id, noted, unknown, is_accepted, *numbers, updated_at in connection.execute(query):
        if noted is None and places.setdefault(campaign, conn_id) != conn_id:
            ambiguous.add(campaign)
        if noted is not None and unknown == 0 and not is_accepted:
            continue
        delivered, undelivered, in_flight = map(int, numbers)
        counts = DeliveryCounts(delivered, undelivered, in_flight, updated_at)
        if noted is not None and not is_accepted:
            counts = counts.as_unknown()
        found[campaign] = found.get(campaign, DeliveryCounts()) + counts
    return {campaign: counts for campaign, counts in found.items() if campaign not in ambiguous}


def read_recipients(connection: Connection, campaigns: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield what is known of each recipient, campaign by campaign, as plain values.

    Each has ``campaign``, ``recipient`` (empty where the service does not name it), ``outcome``, ``status``,
    ``reason``, ``conflict`` (it was both delivered and failed), ``reported``, ``reference`` and ``message_id``.
    """
    for campaign in dict.fromkeys(campaigns):
        query = select(deliveries).where(deliveries.c.campaign == campaign, IS_COUNTED).order_by(deliveries.c.recipient)
        for row in connection.execution_options(yield_per=1000).execute(query):
            yield {
                "campaign": row.campaign,
                "recipient": "" if row.recipient.startswith("#") else row.recipient,
                "outcome": DeliveryStatus(row.delivery_status).name.lower(),
                "status": row.status,
                "reason": row.reason,
                "conflict": row.delivered and row.failed,
                "reported": row.reported_at.isoformat(),
                "reference": row.reference,
                "message_id": row.message_id,
            }


@dataclass(frozen=True, slots=True)
class StrongestReport:
    """What the strongest report of a request says.

    :param at: when it arrived
    """

    status: str
    message_id: str | None
    at: datetime


def strongest_report(connection: Connection, conn_id: str, reference: str) -> StrongestReport | None:
    """Return what is reported of a request that is a campaign by itself, ``None`` where nothing is."""
    columns = deliveries.c.status, deliveries.c.message_id, deliveries.c.reported_at
    theirs = and_(deliveries.c.campaign == reference, deliveries.c.conn_id == conn_id, deliveries.c.status != "")
    query = select(*columns).where(theirs)
    row = connection.execute(
        query.order_by(deliveries.c.delivery_status.desc(), deliveries.c.reported_at).limit(1)
    ).first()
    return None if row is None else StrongestReport(row.status, row.message_id, row.reported_at)


def confirmed_requests(connection: Connection, conn_id: str, names: Iterable[str]) -> dict[str, str | None]:
    """Return the references of a connection's requests known to be carried out, each with the service's id where told.

    :param names: of campaigns, for all of their requests of which anything was reported, and of requests: what is
        reported of one that is not recorded may wait under its own name, and one that was noted is known
    """
    columns = deliveries.c.reference, func.max(deliveries.c.message_id)
    found: dict[str, str | None] = {}
    for batch in batched(dict.fromkeys(names)):
        noted = select(requests.c.reference, requests.c.message_id)
        noted = noted.where(requests.c.conn_id == conn_id, requests.c.reference.in_(batch))
        # Who was only noted at the send has no status yet.
        theirs = and_(deliveries.c.conn_id == conn_id, deliveries.c.campaign.in_(batch))
        told = and_(theirs, deliveries.c.status != "", deliveries.c.reference != "")
        reported = select(*columns).where(told).group_by(deliveries.c.reference)
        for reference, message_id in connection.execute(union_all(noted, reported)):
            found[reference] = message_id or found.get(reference)
    return found


def open_report_database() -> Database:
    """Open the store that Airflow's configuration names, to read reports.

    :raises ReportsNotSupportedError: when it is a database without reports
    :raises DatabaseError: when it cannot be opened
    """
    database = open_database()
    try:
        database.require_report_support()
    except DatabaseError:
        database.close()
        raise
    return database


def known_campaigns(connection: Connection, campaigns: Iterable[str]) -> set[str]:
    """Return which campaigns the store knows to be sent."""
    found: set[str] = set()
    for batch in batched(campaigns):
        found.update(connection.execute(select(sends.c.campaign).where(sends.c.campaign.in_(batch))).scalars())
    return found


def expected_recipients(connection: Connection, campaigns: Iterable[str]) -> dict[str, int]:
    """Return the number of recipients each campaign was sent to, as its sender recorded; others are left out."""
    found: dict[str, int] = {}
    for batch in batched(campaigns):
        asked = select(requests.c.campaign, func.sum(requests.c.recipients)).where(requests.c.campaign.in_(batch))
        found |= {name: int(number) for name, number in connection.execute(asked.group_by(requests.c.campaign))}
        ended = select(sends.c.campaign, sends.c.expected).where(sends.c.campaign.in_(batch))
        found |= {name: number for name, number in connection.execute(ended) if number is not None}
    return found


def count_conflicts(connection: Connection, campaigns: Iterable[str]) -> int:
    """Return of how many recipients it was reported both that it was delivered and that it was not."""
    rows = deliveries.c
    both = select(func.count()).where(rows.delivered, rows.failed, IS_COUNTED)
    return sum(connection.execute(both.where(rows.campaign.in_(batch))).scalar_one() for batch in batched(campaigns))
