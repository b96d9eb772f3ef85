"""Erases a recipient: deletes the reports that name the number or address. Delivery counts stay as they are."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from msgspec import Struct
from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    String,
    Table,
    and_,
    case,
    delete,
    func,
    select,
    tuple_,
    update,
)

from cpaas_provider.database.bulk import batched
from cpaas_provider.database.database import Database
from cpaas_provider.database.schema.activity import passcodes
from cpaas_provider.database.schema.all_tables import metadata
from cpaas_provider.database.schema.campaigns import campaign_values
from cpaas_provider.database.schema.delivery import deliveries, delivery_summaries, reports, requests
from cpaas_provider.delivery.reports import DeliveryStatus
from cpaas_provider.delivery.tracking.counts import COMMIT_LAG
from cpaas_provider.delivery.tracking.membership import lock, replace_name, request_of
from cpaas_provider.delivery.tracking.mentions import RecipientMatcher, find
from cpaas_provider.delivery.tracking.request_recipients import UNTRACKED_PREFIX, erased_name
from cpaas_provider.delivery.tracking.retention import executing

PAGE_ROWS = 5_000
"""Rows that are read at a time."""

ERASED = "erased"
"""The status of an erased recipient without a report."""

_ERASED_TABLES = (deliveries, delivery_summaries, passcodes, reports)
_NOT_PUBLISHED = 0
_TEXTS = ("status", "reason", "message_id", "reference")


class Erased(Struct, frozen=True):
    """The result of an erasure.

    :param rows: the number of rows that named the recipient
    :param read_as: how the given recipient was understood, without showing it
    :param unreadable: the number of reports that were deleted because they could not be searched
    :param leftovers: whether the database file may still contain deleted data, because it could not be overwritten
    """

    rows: int
    read_as: str
    unreadable: int = 0
    leftovers: bool = False


def erase(database: Database, recipient: str, region: str | None = None) -> Erased:
    """Delete a recipient from the stored reports, in any form in which they write the number or address.

    The delivery status stays counted, under a keyed hash that is another one in each request. A recipient in flight
    counts as undelivered from then on, so that no sensor waits for a report. This starts no DAG. If the service reports
    again, that report is stored, but the delivery status stays without a name.

    :param recipient: an email address, a phone number in international form, or a national number of the region
    :param region: the two-letter region of national numbers
    :raises UnknownRecipientError: when ``recipient`` is ambiguous or invalid; nothing was deleted
    :raises DatabaseError: when the database cannot be used; what was erased before stays erased
    """
    matcher = find(recipient, region)
    database.require_report_support()
    rows = _erase_deliveries(database, matcher) + _erase_requests(database, matcher)
    rows += _erase_passcodes(database, matcher)
    named, unreadable = _erase_reports(database, matcher)
    # Summaries contain reasons of reports. A page computes them again when it is opened.
    database.write(executing(delete(delivery_summaries)))
    leftovers = not database.wipe(matcher.may_be_left_in)
    return Erased(rows + named, matcher.read_as, unreadable, leftovers)


def find_remaining(database: Database, recipient: str, region: str | None = None) -> dict[str, int]:
    """Return the number of rows that still name an erased recipient, by table, without tables that have none.

    Names of runs and tasks that an author gave are in several tables. Journals have the ids that the service gave.
    A later try returns these instead of sending again.
    """
    matcher = find(recipient, region)
    remaining: dict[str, int] = {}
    for table in metadata.sorted_tables:
        texts = [column.name for column in table.columns if isinstance(column.type, String)]
        if not texts or table in _ERASED_TABLES:
            continue
        for rows in _pages(database, table, select(*{*table.primary_key.columns, *(table.c[name] for name in texts)})):
            # Journals have ids in lists.
            field = "id" if table is campaign_values else None
            named = sum(any(_is_named_in(matcher, getattr(row, name), field) for name in texts) for row in rows)
            if named:
                remaining[table.name] = remaining.get(table.name, 0) + named
    return remaining


def _is_named_in(matcher: RecipientMatcher, text: str | None, of_field: str | None) -> bool:
    if text and text.startswith(("{", "[")):
        return matcher.in_body(text, of_field)
    return matcher.in_text(text, "id")


def _erase_deliveries(database: Database, matcher: RecipientMatcher) -> int:
    erased, began = 0, datetime.now(UTC)
    # A row may move to its campaign while others are read. It is changed then, so a second look finds it.
    changed = select(deliveries).where(deliveries.c.updated_at >= began - COMMIT_LAG)
    for query in (select(deliveries), changed):
        for rows in _pages(database, deliveries, query):
            for row in rows:
                if _is_about(matcher, row) or any(matcher.in_text(getattr(row, name)) for name in _TEXTS):
                    erased += database.write(partial(_make_anonymous, matcher=matcher, row=row))
    return erased


def _make_anonymous(connection: Connection, matcher: RecipientMatcher, row: Row[Any]) -> int:
    # Before the row, as processes that store reports do.
    lock(connection, [request_of(row._asdict())])
    changed = _without_name(matcher, row)
    this_row = and_(*_has_key_of(deliveries, row))
    if not _is_about(matcher, row):
        return connection.execute(update(deliveries).where(this_row).values(changed)).rowcount
    rows = deliveries.c
    # A report may be stored meanwhile. Only a recipient that is in flight then counts as undelivered.
    in_flight = rows.delivery_status == int(DeliveryStatus.IN_FLIGHT)
    # A status of the service stays, because it proves that the service accepted the request.
    status = changed.get("status") or case((in_flight & (rows.status == ""), ERASED), else_=rows.status)
    changed |= {
        "reason": None,
        "status": status,
        "delivery_status": case((in_flight, int(DeliveryStatus.UNDELIVERED)), else_=rows.delivery_status),
        # That another request reached the recipient cannot be seen any more.
        "failed_batch": func.coalesce(rows.failed_batch, _NOT_PUBLISHED),
        "updated_at": case((in_flight, datetime.now(UTC)), else_=rows.updated_at),
    }
    erased = connection.execute(update(deliveries).where(this_row).values(changed)).rowcount
    request = changed.get("campaign", row.campaign), row.conn_id, changed.get("reference", row.reference)
    replace_name(connection, request, row.recipient, erased_name(connection, request, matcher.key))
    return erased


def _is_about(matcher: RecipientMatcher, row: Row[Any]) -> bool:
    return row.recipient in matcher.keys or matcher.in_text(row.recipient) or _names(matcher, row.campaign)


def _names(matcher: RecipientMatcher, campaign: str) -> bool:
    # All other names of campaigns are generated by the provider.
    return campaign.startswith(UNTRACKED_PREFIX) and matcher.in_text(campaign)


def _without_name(matcher: RecipientMatcher, row: Row[Any]) -> dict[str, Any]:
    """Return new values for the texts of a row that name the recipient, even if the row is about another recipient."""
    named = (name for name in _TEXTS[1:] if matcher.in_text(getattr(row, name)))
    changed: dict[str, Any] = {name: None if deliveries.c[name].nullable else "" for name in named}
    if matcher.in_text(row.status):
        changed["status"] = ERASED
    if _names(matcher, row.campaign):
        changed["campaign"] = f"{UNTRACKED_PREFIX}erased-{secrets.token_hex(8)}"
    return changed


def _erase_requests(database: Database, matcher: RecipientMatcher) -> int:
    """Remove the message ids of requests that name the recipient."""
    erased = 0
    for rows in _pages(database, requests, select(*requests.primary_key.columns, requests.c.message_id)):
        for row in rows:
            if matcher.in_text(row.message_id):
                change = update(requests).where(*_has_key_of(requests, row)).values(message_id=None)
                erased += database.write(executing(change))
    return erased


def _erase_passcodes(database: Database, matcher: RecipientMatcher) -> int:
    """Replace the ids of passcodes that name the recipient. The passcodes stay counted."""
    erased = 0
    for rows in _pages(database, passcodes, select(*passcodes.primary_key.columns)):
        for row in rows:
            if matcher.in_text(row.otp_id, "id"):
                change = update(passcodes).where(*_has_key_of(passcodes, row))
                erased += database.write(executing(change.values(otp_id=f"{ERASED}-{secrets.token_hex(8)}")))
    return erased


def _erase_reports(database: Database, matcher: RecipientMatcher) -> tuple[int, int]:
    """Delete the reports that name the recipient, and those that cannot be searched. Return both numbers."""
    erased = unreadable = 0
    for rows in _pages(database, reports, select(reports.c.digest, reports.c.recipient, reports.c.body)):
        named, unsearchable = [], []
        for row in rows:
            try:
                if row.recipient in matcher.keys or matcher.in_body(row.body):
                    named.append(row.digest)
            except Exception:  # noqa: BLE001 - a stranger wrote the body; what breaks the search must not end the erasure
                unsearchable.append(row.digest)
        erased += _delete_reports(database, named)
        unreadable += _delete_reports(database, unsearchable)
    return erased, unreadable


def _delete_reports(database: Database, digests: Sequence[Any]) -> int:
    return sum(
        database.write(executing(delete(reports).where(reports.c.digest.in_(batch)))) for batch in batched(digests)
    )


def _pages(database: Database, table: Table, query: Select[Any]) -> Iterator[Sequence[Row[Any]]]:
    """Yield all rows in pages, each read in its own transaction: a long one would delay SQLite's checkpoints."""
    key = tuple(table.primary_key.columns)
    page = query = query.order_by(*key).limit(PAGE_ROWS)
    while True:
        with database.connect() as connection:
            rows = connection.execute(page).all()
        if not rows:
            return
        last: Any = tuple(getattr(rows[-1], column.name) for column in key)
        page = query.where(tuple_(*key) > last)
        yield rows


def _has_key_of(table: Table, row: Row[Any], **changed: Any) -> list[ColumnElement[bool]]:
    """Return the condition for the row of a table with the same primary key, apart from changed columns."""
    key = {column.name: getattr(row, column.name) for column in table.primary_key.columns}
    return [table.c[name] == value for name, value in (key | changed).items()]
