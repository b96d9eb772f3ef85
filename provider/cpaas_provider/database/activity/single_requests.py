"""Passcodes that tasks requested, their outcomes, and purchases of airtime. Neither code nor number is stored.

Another task may write the id of the connection in other upper and lower case, so ids are compared without it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from msgspec import Struct
from msgspec.structs import asdict, replace
from sqlalchemy import ColumnElement, Connection, and_, func, select, update

from cpaas_provider.database.activity.upsert import insert_into, upsert
from cpaas_provider.database.bulk import batched
from cpaas_provider.database.schema.activity import airtime_purchases, passcodes
from cpaas_provider.database.schema.base import has_conn_id

PENDING = "pending"


def record_passcode(
    connection: Connection,
    conn_id: str,
    otp_id: str,
    *,
    dag_id: str,
    requested_at: datetime,
    expires_at: datetime | None,
    earlier: bool = False,
) -> None:
    """Record that a passcode was requested. A later try of the task changes nothing.

    :param earlier: whether an earlier try requested it, and may have recorded it
    """
    if earlier:
        conn_id = _recorded_conn_id(connection, passcodes.c.conn_id, conn_id, passcodes.c.otp_id == otp_id)
    insert = insert_into(connection.dialect.name, passcodes).on_conflict_do_nothing(
        index_elements=list(passcodes.primary_key.columns)
    )
    row = {
        "conn_id": conn_id,
        "otp_id": otp_id,
        "dag_id": dag_id,
        "outcome": PENDING,
        "requested_at": requested_at,
        "expires_at": expires_at,
    }
    connection.execute(insert, [row])


def record_passcode_outcome(connection: Connection, conn_id: str, otp_id: str, outcome: str) -> None:
    """Record the outcome of a passcode, unless it was verified before."""
    columns = passcodes.c
    is_unverified = and_(columns.otp_id == otp_id, columns.outcome != "verified")
    # The spelling of the task that requested it comes first: only that comparison uses the primary key.
    for is_of_connection in (columns.conn_id == conn_id, has_conn_id(columns.conn_id, conn_id)):
        if connection.execute(
            update(passcodes).where(is_of_connection, is_unverified).values(outcome=outcome)
        ).rowcount:
            return


class AirtimePurchaseRow(Struct, frozen=True):
    """One purchase.

    :param reference: the provider's reference of the request
    :param network: empty, and ``amount`` is ``None``, if the task does not know what it bought
    """

    conn_id: str
    reference: str
    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    network: str
    amount: float | None
    charge: float | None
    status: str
    bought_at: datetime


def purchases_with_status(connection: Connection, status: str, references: Iterable[str]) -> set[tuple[str, str]]:
    """Return connection, in lower case, and reference of those purchases that were recorded with a status."""
    columns = airtime_purchases.c
    found: set[tuple[str, str]] = set()
    for batch in batched(references):
        query = select(columns.conn_id, columns.reference).where(
            columns.reference.in_(batch), func.lower(columns.status) == status
        )
        found |= {(row.conn_id.lower(), row.reference) for row in connection.execute(query)}
    return found


def record_purchase(connection: Connection, purchase: AirtimePurchaseRow, *, earlier: bool = False) -> None:
    """Record a purchase.

    A later try of the task updates the row, but keeps the time of the purchase, and what only an earlier try knew.

    :param earlier: whether an earlier try made it, and may have recorded it
    """
    if earlier:
        columns = airtime_purchases.c
        is_purchase = columns.reference == purchase.reference
        purchase = replace(
            purchase, conn_id=_recorded_conn_id(connection, columns.conn_id, purchase.conn_id, is_purchase)
        )
    keep = ("bought_at",) if purchase.amount is not None else ("bought_at", "network", "amount")
    upsert(connection, airtime_purchases, asdict(purchase), keep=keep)


def _recorded_conn_id(
    connection: Connection, column: ColumnElement[str], conn_id: str, is_request: ColumnElement[bool]
) -> str:
    """Return the id of the connection in the spelling under which a request is recorded."""
    query = select(column).where(is_request, has_conn_id(column, conn_id))
    return connection.execute(query.limit(1)).scalar() or conn_id
