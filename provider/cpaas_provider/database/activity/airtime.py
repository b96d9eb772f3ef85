"""Purchases of airtime by tasks. The recipient's number is not stored."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime

from sqlalchemy import Connection

from cpaas_provider.database.activity.upsert import upsert
from cpaas_provider.database.schema import airtime_purchases


@dataclass(frozen=True, slots=True)
class AirtimePurchaseRow:
    """One purchase.

    :param reference: the provider's reference of the request
    """

    conn_id: str
    reference: str
    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    network: str
    amount: float
    charge: float | None
    status: str
    bought_at: datetime


def record_purchase(connection: Connection, purchase: AirtimePurchaseRow) -> None:
    """Record a purchase. A later try of the task updates the row, but keeps the time of the purchase."""
    upsert(connection, airtime_purchases, asdict(purchase), keep=("bought_at",))
