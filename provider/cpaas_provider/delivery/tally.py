"""How far deliveries are: counted by campaign, for any number of waiters at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import JSON, ColumnElement, Connection, and_, case, cast, func, literal, select, union_all

from cpaas_provider.delivery.reports import State
from cpaas_provider.store.batches import batched
from cpaas_provider.store.schema import deliveries, requests

UNSEEN = timedelta(seconds=60)
"""For how long what a process has written may not be seen by others yet: its transaction may wait for a lock."""


def _number(states: Iterable[State]) -> ColumnElement[int]:
    return func.count(case((deliveries.c.state.in_([int(state) for state in states]), 1)))


_COUNTS = (
    deliveries.c.campaign,
    _number(state for state in State if state.delivered),
    _number(state for state in State if state.final and not state.delivered),
    _number(state for state in State if not state.final),
)
"""By campaign, in the order of ``Counts``."""

_NAMES: dict[str, Callable[[ColumnElement[str]], Any]] = {
    "sqlite": func.json_each,
    "postgresql": lambda names: func.json_array_elements_text(cast(names, JSON)),
}
"""What makes a table of a list of names."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Of how many recipients what is known.

    :param touched: when that last changed
    """

    delivered: int = 0
    undelivered: int = 0
    in_flight: int = 0
    touched: datetime | None = None

    @property
    def final(self) -> int:
        """Of how many it is known what became of them."""
        return self.delivered + self.undelivered

    def __add__(self, other: Counts) -> Counts:
        """Return what both come to together."""
        return Counts(
            self.delivered + other.delivered,
            self.undelivered + other.undelivered,
            self.in_flight + other.in_flight,
            max((one for one in (self.touched, other.touched) if one), default=None),
        )


def counts_of(connection: Connection, campaigns: Iterable[str]) -> dict[str, Counts]:
    """Return the counts of campaigns; one of which nothing is known is left out."""
    found: dict[str, Counts] = {}
    for batch in batched(dict.fromkeys(campaigns)):
        counting = select(*_COUNTS, func.max(deliveries.c.touched)).where(deliveries.c.campaign.in_(batch))
        for campaign, *counts in connection.execute(counting.group_by(deliveries.c.campaign)):
            found[campaign] = Counts(*counts)
    return found


def touched_since(connection: Connection, since: datetime, wanted: Iterable[str]) -> dict[str, Counts]:
    """Return the counts of campaigns of which something became known since, by one query; when that was is left out.

    What was written by then and could not be seen yet is counted, too.

    :param wanted: the campaigns that matter; there may be many times as many others
    """
    # Named to the database: rows that are read only to be passed over take a thread long where the others are busy.
    names: Any = _NAMES[connection.dialect.name](literal(json.dumps(list(wanted)))).table_valued("value")
    recently = select(deliveries.c.campaign).where(deliveries.c.touched >= since - UNSEEN)
    fresh = recently.where(deliveries.c.campaign.in_(select(names.c.value)))
    counting = select(*_COUNTS).where(deliveries.c.campaign.in_(fresh)).group_by(deliveries.c.campaign)
    return {campaign: Counts(*counts) for campaign, *counts in connection.execute(counting)}


def recipients_of(connection: Connection, campaigns: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield what is known of each recipient, campaign by campaign, as plain values.

    Each has ``campaign``, ``recipient`` (empty where the service does not name it), ``outcome``, ``status``,
    ``reason``, ``conflict`` (it was both delivered and failed), ``reported``, ``reference`` and ``message_id``.
    """
    for campaign in dict.fromkeys(campaigns):
        query = select(deliveries).where(deliveries.c.campaign == campaign).order_by(deliveries.c.recipient)
        for row in connection.execution_options(yield_per=1000).execute(query):
            yield {
                "campaign": row.campaign,
                "recipient": "" if row.recipient.startswith("#") else row.recipient,
                "outcome": State(row.state).name.lower(),
                "status": row.status,
                "reason": row.reason,
                "conflict": row.delivered and row.failed,
                "reported": row.reported.isoformat(),
                "reference": row.reference,
                "message_id": row.message_id,
            }


@dataclass(frozen=True, slots=True)
class Reported:
    """What the strongest report of a request says.

    :param at: when it arrived
    """

    status: str
    message_id: str | None
    at: datetime


def reported(connection: Connection, reference: str) -> Reported | None:
    """Return what is reported of a request that is a campaign by itself, ``None`` where nothing is."""
    columns = deliveries.c.status, deliveries.c.message_id, deliveries.c.reported
    query = select(*columns).where(deliveries.c.campaign == reference, deliveries.c.status != "")
    row = connection.execute(query.order_by(deliveries.c.state.desc(), deliveries.c.reported).limit(1)).first()
    return None if row is None else Reported(row.status, row.message_id, row.reported)


def carried_out(connection: Connection, names: Iterable[str]) -> dict[str, str | None]:
    """Return the references of requests known to be carried out, each with the service's id where told.

    :param names: of campaigns, for all of their requests of which anything was reported, and of requests: what is
        reported of one that nobody has noted may wait under its own name, and one that was noted is known
    """
    columns = deliveries.c.reference, func.max(deliveries.c.message_id)
    found: dict[str, str | None] = {}
    for batch in batched(dict.fromkeys(names)):
        noted = select(requests.c.reference, requests.c.message_id).where(requests.c.reference.in_(batch))
        # Who was only noted at the send has no status yet.
        told = and_(deliveries.c.campaign.in_(batch), deliveries.c.status != "", deliveries.c.reference.is_not(None))
        reported = select(*columns).where(told).group_by(deliveries.c.reference)
        for reference, message_id in connection.execute(union_all(noted, reported)):
            found[reference] = message_id or found.get(reference)
    return found
