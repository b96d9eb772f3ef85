"""Erases a recipient: deletes the reports that name the number or address. Delivery counts stay as they are."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, Table, delete, select, tuple_, update

from cpaas_provider.database.bulk import batched
from cpaas_provider.database.database import Database
from cpaas_provider.database.schema.delivery import deliveries, delivery_summaries, reports, requests
from cpaas_provider.delivery.reports import DeliveryStatus
from cpaas_provider.delivery.tracking.membership import UNNAMED_PREFIX, unnamed_recipient
from cpaas_provider.delivery.tracking.mentions import RecipientMatcher, find
from cpaas_provider.delivery.tracking.report_store import UNTRACKED_PREFIX
from cpaas_provider.delivery.tracking.retention import executing

PAGE_ROWS = 5_000
"""Rows that are read at a time."""

ERASED = "erased"
"""The status of an erased recipient without a report."""

_NOT_PUBLISHED = 0
_TEXTS = ("status", "reason", "message_id", "reference")


@dataclass(frozen=True)
class Erased:
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

    The delivery status stays counted, under a random name. A recipient in flight counts as undelivered from then on,
    so that no sensor waits for a report. This starts no DAG. If the service reports again, the recipient is stored
    again.

    :param recipient: an email address, a phone number in international form, or a national number of the region
    :param region: the two-letter region of national numbers
    :raises UnknownRecipientError: when ``recipient`` is ambiguous or invalid; nothing was deleted
    :raises DatabaseError: when the database cannot be used; what was erased before stays erased
    """
    matcher = find(recipient, region)
    database.require_report_support()
    rows = _erase_deliveries(database, matcher) + _erase_requests(database, matcher)
    named, unreadable = _erase_reports(database, matcher)
    # Summaries contain reasons of reports. A page computes them again when it is opened.
    database.write(executing(delete(delivery_summaries)))
    leftovers = not database.wipe(matcher.may_be_left_in)
    return Erased(rows + named, matcher.read_as, unreadable, leftovers)


def _erase_deliveries(database: Database, matcher: RecipientMatcher) -> int:
    erased = 0
    for rows in _pages(database, deliveries, select(deliveries)):
        for row in rows:
            if _is_about(matcher, row) or any(matcher.in_text(getattr(row, name)) for name in _TEXTS):
                erased += database.write(partial(_make_anonymous, matcher=matcher, row=row))
    return erased


def _make_anonymous(connection: Connection, matcher: RecipientMatcher, row: Row[Any]) -> int:
    changed = _without_name(matcher, row)
    if _is_about(matcher, row):
        changed |= {"recipient": _new_name(connection, row), "reason": None}
        if row.delivery_status == DeliveryStatus.IN_FLIGHT:
            changed |= {
                "delivery_status": int(DeliveryStatus.UNDELIVERED),
                "failed_batch": _NOT_PUBLISHED,
                "updated_at": datetime.now(UTC),
            }
            # A status of the service stays, because it proves that the service accepted the request.
            changed["status"] = changed.get("status", row.status) or ERASED
    return connection.execute(update(deliveries).where(*_has_key_of(deliveries, row)).values(changed)).rowcount


def _new_name(connection: Connection, row: Row[Any]) -> str:
    """Return a name without personal data.

    The only recipient of a request gets the name that reports without a recipient have, so that they find its row.
    """
    unnamed = unnamed_recipient(row.reference)
    has_one_recipient = select(requests.c.recipients).where(*_has_key_of(requests, row), requests.c.recipients == 1)
    is_taken = select(deliveries.c.delivery_status).where(*_has_key_of(deliveries, row, recipient=unnamed))
    if connection.execute(has_one_recipient).first() is not None and connection.execute(is_taken).first() is None:
        return unnamed
    return f"{UNNAMED_PREFIX}erased-{secrets.token_hex(8)}"


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
