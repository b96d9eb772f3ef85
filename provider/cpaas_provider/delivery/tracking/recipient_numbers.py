"""How many recipients of each request have a row, kept up to date by whoever adds some."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Boolean, Column, ColumnElement, Connection, and_, collate, func, literal_column, select, update

from cpaas_provider.database.bulk import Recordset, batched, insert_many, select_at_once
from cpaas_provider.database.schema import deliveries, request_counts
from cpaas_provider.delivery.tracking.recipient_status import Key, Request, insert_into, status_upsert

_COUNTED = "counted"
"""Says of a row whether its request is one whose number is kept."""


def upsert_and_count(
    connection: Connection, rows: Mapping[Key, Mapping[str, Any]], counted: Collection[Request]
) -> tuple[set[Key], dict[Request, int]]:
    """Bring what is known of recipients up to date on PostgreSQL, and the numbers of their requests.

    :param counted: the requests whose numbers are kept
    :return: who of these had no row, and the numbers of their requests from now on
    """
    new: set[Key] = set()
    numbers: dict[Request, int] = {}
    statement = _counting_upsert()
    for some in batched(sorted(rows)):
        given = statement.given.document([{**rows[key], _COUNTED: key[:3] in counted} for key in some])
        for *key, number in select_at_once(connection, statement.query, {"rows": given}):
            campaign, conn_id, reference, recipient = key
            new.add((campaign, conn_id, reference, recipient))
            numbers[campaign, conn_id, reference] = number
    return new, numbers


class _CountingUpsert:
    """One statement in the place of two, each of which costs PostgreSQL and us as much as some rows do."""

    def __init__(self) -> None:
        columns = [one for one in deliveries.columns if not one.name.endswith("_batch")]
        names, key, request = (
            [one.name for one in some] for some in (columns, deliveries.primary_key, request_counts.primary_key)
        )
        self.given = Recordset([*columns, Column(_COUNTED, Boolean)])
        rows = select(*self.given.table.c).cte("rows")
        # A row that was there has been locked before it is changed.
        is_new: ColumnElement[bool] = literal_column("xmax = 0").label("is_new")
        upsert = status_upsert("postgresql").from_select(names, select(*(rows.c[name] for name in names)))
        written = upsert.returning(*(deliveries.c[name] for name in key), is_new).cte("written")
        theirs = [written.c[name] for name in request]
        more = (
            select(*theirs, func.count(), func.max(rows.c.updated_at))
            .join_from(written, rows, and_(*(written.c[name] == rows.c[name] for name in key)))
            .where(written.c.is_new, rows.c[_COUNTED])
            .group_by(*theirs)
            # In the order of all others who change them, or two processes could wait for each other.
            .order_by(*(collate(part, "C") for part in theirs))
        )
        counts = _addition("postgresql", anew=False).from_select([*request, "recipients", "updated_at"], more)
        numbers = counts.returning(*request_counts.primary_key.columns, request_counts.c.recipients).cte("numbers")
        same = and_(*(numbers.c[name] == written.c[name] for name in request))
        told = select(*(written.c[name] for name in key), numbers.c.recipients)
        self.query = told.join_from(written, numbers, same).where(written.c.is_new)


_counting_upsert = functools.cache(_CountingUpsert)


def add_to_numbers(connection: Connection, added: Mapping[Request, int], *, anew: bool = False) -> None:
    """Add to the numbers of rows that requests have.

    :param anew: they are 0 from now on, so that the rows are counted
    """
    now = datetime.now(UTC)
    columns = ("campaign", "conn_id", "reference", "recipients", "updated_at")
    # In one order, or two processes could wait for each other.
    rows = [dict(zip(columns, (*request, added[request], now), strict=True)) for request in sorted(added)]
    insert_many(connection, _addition(connection.dialect.name, anew), rows)


# Built once: SQLAlchemy takes longer to build one than the database to carry it out.
@functools.cache
def _addition(dialect: str, anew: bool) -> Any:
    insert = insert_into(dialect, request_counts)
    there, more = request_counts.c, insert.excluded
    changed = {"recipients": literal_column("0") if anew else there.recipients + more.recipients}
    key = list(request_counts.primary_key.columns)
    return insert.on_conflict_do_update(index_elements=key, set_={**changed, "updated_at": more.updated_at})


def set_number(connection: Connection, request: Request, number: int) -> None:
    """Set the number of a request that was counted."""
    same = [column == value for column, value in zip(request_counts.primary_key.columns, request, strict=True)]
    connection.execute(update(request_counts).where(*same).values(recipients=number))
