"""What the store tells those who wait for deliveries."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sqlalchemy import Connection, func, select

from cpaas_provider.database.bulk import batched
from cpaas_provider.database.database import open_database
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.database.schema import deliveries, requests, sends
from cpaas_provider.delivery.tracking.counts import IS_COUNTED

if TYPE_CHECKING:
    from cpaas_provider.database.database import Database

NOT_IN_DATABASE = (
    "The database has neither the send nor a delivery report of what this task waits for. If this does not change, "
    "sender, receiver and triggerer do not share one database. Set [cpaas] database to the same database for workers, "
    "API server and triggerer."
)


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
    """Return to how many each campaign was sent, as its sender noted; one nobody noted is left out."""
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
