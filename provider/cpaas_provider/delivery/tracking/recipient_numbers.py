"""The number of recipients with a row, for each request, updated with every new row."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    Boolean,
    Column,
    ColumnElement,
    Connection,
    and_,
    collate,
    exists,
    func,
    literal_column,
    null,
    select,
    update,
)

from cpaas_provider.database.activity.upsert import insert_into
from cpaas_provider.database.bulk import Recordset, Statement, batched, insert_many, select_at_once
from cpaas_provider.database.schema.delivery import deliveries, request_counts
from cpaas_provider.delivery.tracking.recipient_status import Key, Request, status_upsert

_COUNTED = "counted"
"""A column of the statement: whether the number of the row's request is kept."""


def upsert_and_count(
    connection: Connection,
    rows: Mapping[Key, Mapping[str, Any]],
    counted: Collection[Request],
    before: Statement | None = None,
) -> tuple[set[Key], dict[Request, int]]:
    """Update the rows of recipients on PostgreSQL, and the numbers of their requests.

    :param counted: the requests whose numbers are kept
    :param before: runs first, see ``bulk.select_at_once``
    :return: the new rows of these requests, and the updated numbers
    """
    new: set[Key] = set()
    numbers: dict[Request, int] = {}
    for keys in batched(sorted(rows)):
        mixed = any(key[:3] not in counted for key in keys)
        statement = _counting_upsert(mixed)
        documents: list[Mapping[str, Any]] = [rows[key] for key in keys]
        if mixed:
            documents = [{**row, _COUNTED: key[:3] in counted} for row, key in zip(documents, keys, strict=True)]
        values = {"rows": statement.given.document(documents)}
        returned = select_at_once(connection, statement.query, values, before)
        before = None
        for campaign, conn_id, reference, recipient, number in returned:
            if number is None:
                new.add((campaign, conn_id, reference, recipient))
            else:
                numbers[campaign, conn_id, reference] = number
    return {key for key in new if key[:3] in counted}, numbers


class _CountingUpsert:
    """One statement instead of two: each statement costs as much as several rows do.

    It joins as little as possible: PostgreSQL takes longer to plan a join than to process the rows.

    :param mixed: some of the rows are of requests whose numbers are not kept
    """

    def __init__(self, mixed: bool) -> None:
        columns = [column for column in deliveries.columns if not column.name.endswith("_batch")]
        names, key, request = (
            [column.name for column in group] for group in (columns, deliveries.primary_key, request_counts.primary_key)
        )
        self.given = Recordset([*columns, *([Column(_COUNTED, Boolean)] if mixed else [])])
        rows = select(*self.given.table.c).cte("rows") if mixed else self.given.table
        # An existing row has been locked, so its xmax is not 0.
        is_new: ColumnElement[bool] = literal_column("xmax = 0").label("is_new")
        upsert = status_upsert("postgresql").from_select(names, select(*(rows.c[name] for name in names)))
        written = upsert.returning(*(deliveries.c[name] for name in key), deliveries.c.updated_at, is_new).cte(
            "written"
        )
        request_columns = [written.c[name] for name in request]
        more = select(*request_columns, func.count(), func.max(written.c.updated_at)).where(written.c.is_new)
        if mixed:
            same = and_(*(written.c[name] == rows.c[name] for name in key))
            more = more.where(exists().where(same, rows.c[_COUNTED]).correlate(written))
        # In the same order everywhere, so that two processes cannot deadlock.
        more = more.group_by(*request_columns).order_by(*(collate(part, "C") for part in request_columns))
        addition = _addition("postgresql", anew=False).from_select([*request, "recipients", "updated_at"], more)
        numbers = addition.returning(*request_counts.primary_key.columns, request_counts.c.recipients).cte("numbers")
        new = select(*(written.c[name] for name in key), null()).where(written.c.is_new)
        self.query = new.union_all(select(*(numbers.c[name] for name in request), null(), numbers.c.recipients))


_counting_upsert = functools.cache(_CountingUpsert)


def add_to_numbers(connection: Connection, added: Mapping[Request, int], *, anew: bool = False) -> None:
    """Add to the numbers of requests.

    :param anew: set them to 0, so that the rows are counted at the next report
    """
    now = datetime.now(UTC)
    columns = ("campaign", "conn_id", "reference", "recipients", "updated_at")
    # In a fixed order, so that two processes cannot deadlock.
    rows = [dict(zip(columns, (*request, added[request], now), strict=True)) for request in sorted(added)]
    insert_many(connection, _addition(connection.dialect.name, anew), rows)


# Built once: SQLAlchemy takes longer to build a statement than the database to run it.
@functools.cache
def _addition(dialect: str, anew: bool) -> Any:
    insert = insert_into(dialect, request_counts)
    stored, more = request_counts.c, insert.excluded
    changed = {"recipients": literal_column("0") if anew else stored.recipients + more.recipients}
    key = list(request_counts.primary_key.columns)
    return insert.on_conflict_do_update(index_elements=key, set_={**changed, "updated_at": more.updated_at})


def set_number(connection: Connection, request: Request, number: int) -> None:
    """Set the number of a request to a fresh count."""
    same = [column == value for column, value in zip(request_counts.primary_key.columns, request, strict=True)]
    connection.execute(update(request_counts).where(*same).values(recipients=number))
