"""Erasing a recipient: reports that name the number or address go, and what became of messages stays counted."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, Table, delete, select, tuple_, update

from cpaas_provider.database.bulk import batched
from cpaas_provider.database.database import Database
from cpaas_provider.database.schema import deliveries, delivery_summaries, reports, requests
from cpaas_provider.delivery.reports import DeliveryStatus
from cpaas_provider.delivery.tracking.membership import UNNAMED_PREFIX, unnamed_recipient
from cpaas_provider.delivery.tracking.mentions import Wanted, find
from cpaas_provider.delivery.tracking.report_store import UNTRACKED_PREFIX

PAGE_ROWS = 5_000
"""Rows that are read at a time."""

ERASED = "erased"
"""The status of a recipient that nothing had been reported of."""

_NOT_PUBLISHED = 0
_TEXTS = ("status", "reason", "message_id", "reference")


@dataclass(frozen=True)
class Erased:
    """What was erased.

    :param rows: how many rows named the recipient
    :param read_as: what the recipient was read as, in words that do not show it
    :param leftovers: whether the file may still hold what was deleted, as it could not be cleaned now
    """

    rows: int
    read_as: str
    leftovers: bool = False


def erase(database: Database, recipient: str, region: str | None = None) -> Erased:
    """Delete a recipient of reports, in any form that they write the number or address.

    What became of the messages stays counted, under a name that says nothing. A recipient who was still in flight
    counts as undelivered from then on, so no sensor waits for a report; no DAG is started on that. Should the service
    report once more, it is stored again.

    :param recipient: an email address, a phone number in its international form, or a national one of the region
    :param region: two-letter region of national numbers
    :raises UnknownRecipientError: when it cannot be told who that is; nothing was deleted
    :raises DatabaseError: when the store cannot be used
    """
    wanted = find(recipient, region)
    database.require_report_support()
    rows = sum(erasing(database, wanted) for erasing in (_erase_deliveries, _erase_requests, _erase_reports))
    # They hold the reasons of reports, and are counted anew when a page is opened.
    database.write(_doing(delete(delivery_summaries)))
    return Erased(rows, wanted.read_as, leftovers=not database.wipe(wanted.may_be_left_in))


def _erase_deliveries(database: Database, wanted: Wanted) -> int:
    erased = 0
    for rows in _pages(database, deliveries, select(deliveries)):
        found = [
            row for row in rows if _is_about(wanted, row) or any(wanted.in_text(getattr(row, one)) for one in _TEXTS)
        ]
        for row in found:
            erased += database.write(partial(_make_anonymous, wanted=wanted, row=row))
    return erased


def _make_anonymous(connection: Connection, wanted: Wanted, row: Row[Any]) -> int:
    changed = _without_name(wanted, row)
    if _is_about(wanted, row):
        changed |= {"recipient": _new_name(connection, row), "reason": None}
        if row.delivery_status == DeliveryStatus.IN_FLIGHT:
            changed |= {
                "delivery_status": int(DeliveryStatus.UNDELIVERED),
                "failed_batch": _NOT_PUBLISHED,
                "updated_at": datetime.now(UTC),
            }
            # A word of the service's is proof that the request was carried out, so it stays.
            changed["status"] = changed.get("status", row.status) or ERASED
    return connection.execute(update(deliveries).where(*_is(deliveries, row)).values(changed)).rowcount


def _new_name(connection: Connection, row: Row[Any]) -> str:
    """Return a name that says nothing: of the only recipient of a request, that of reports which name no recipient."""
    nameless = unnamed_recipient(row.reference)
    alone = select(requests.c.recipients).where(*_is(requests, row), requests.c.recipients == 1)
    taken = select(deliveries.c.delivery_status).where(*_is(deliveries, row, recipient=nameless))
    if connection.execute(alone).first() is not None and connection.execute(taken).first() is None:
        return nameless
    return f"{UNNAMED_PREFIX}erased-{secrets.token_hex(8)}"


def _is_about(wanted: Wanted, row: Row[Any]) -> bool:
    return row.recipient in wanted.keys or wanted.in_text(row.recipient) or _names(wanted, row.campaign)


def _names(wanted: Wanted, campaign: str) -> bool:
    # Other names of campaigns are our own.
    return campaign.startswith(UNTRACKED_PREFIX) and wanted.in_text(campaign)


def _without_name(wanted: Wanted, row: Row[Any]) -> dict[str, Any]:
    """Return what is to be changed where a row's texts name the recipient, also where the row is about another."""
    named = (name for name in _TEXTS[1:] if wanted.in_text(getattr(row, name)))
    changed: dict[str, Any] = {name: None if deliveries.c[name].nullable else "" for name in named}
    if wanted.in_text(row.status):
        changed["status"] = ERASED
    if _names(wanted, row.campaign):
        changed["campaign"] = f"{UNTRACKED_PREFIX}erased-{secrets.token_hex(8)}"
    return changed


def _erase_requests(database: Database, wanted: Wanted) -> int:
    """Take the ids away that the service gave to requests, where such an id names the recipient."""
    erased = 0
    for rows in _pages(database, requests, select(*requests.primary_key.columns, requests.c.message_id)):
        for row in rows:
            if wanted.in_text(row.message_id):
                erased += database.write(_doing(update(requests).where(*_is(requests, row)).values(message_id=None)))
    return erased


def _erase_reports(database: Database, wanted: Wanted) -> int:
    erased = 0
    for rows in _pages(database, reports, select(reports.c.digest, reports.c.recipient, reports.c.body)):
        found = [row.digest for row in rows if row.recipient in wanted.keys or wanted.in_body(row.body)]
        for digests in batched(found):
            erased += database.write(_doing(delete(reports).where(reports.c.digest.in_(digests))))
    return erased


def _pages(database: Database, table: Table, query: Select[Any]) -> Iterator[Sequence[Row[Any]]]:
    """Yield all rows some at a time, in transactions of their own: a long one would keep writers from the disk."""
    key = tuple(table.primary_key.columns)
    after: tuple[Any, ...] | None = None
    while True:
        page = query if after is None else query.where(_beyond(key, after))
        with database.connect() as connection:
            rows = connection.execute(page.order_by(*key).limit(PAGE_ROWS)).all()
        if not rows:
            return
        after = tuple([getattr(rows[-1], column.name) for column in key])
        yield rows


def _is(table: Table, row: Row[Any], **other: Any) -> list[ColumnElement[bool]]:
    """Return what finds the row of a table with the same key, but for what is given otherwise."""
    key = {column.name: getattr(row, column.name) for column in table.primary_key.columns}
    return [table.c[name] == value for name, value in (key | other).items()]


def _beyond(key: tuple[Any, ...], after: tuple[Any, ...]) -> Any:
    return tuple_(*key) > after if len(key) > 1 else key[0] > after[0]


def _doing(statement: Any) -> Callable[[Connection], int]:
    return lambda connection: connection.execute(statement).rowcount
