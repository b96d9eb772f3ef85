"""What is deleted from the store: what is old, and what concerns somebody who wants to be forgotten."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Table, delete, func, or_, select, tuple_, update

from cpaas_provider.delivery.reports import recipient_key
from cpaas_provider.store.database import Database
from cpaas_provider.store.schema import deliveries, events, lookups, reports, requests, sends

AT_ONCE = 5_000
"""Rows that are deleted in one transaction: the receiver waits for no longer than that."""

_AGES: tuple[tuple[Table, ColumnElement[datetime]], ...] = (
    (reports, reports.c.received),
    (deliveries, deliveries.c.touched),
    (requests, requests.c.noted),
    (sends, sends.c.began),
    # What DAGs have not been told yet stays, however old.
    (events, events.c.told),
    (lookups, lookups.c.at),
)


class UnknownRecipientError(ValueError):
    """What was given is no phone number in its international form, and no address."""


def prune(database: Database, before: datetime) -> Iterator[tuple[str, int]]:
    """Delete what last changed before a moment; yield, table by table, how many rows went.

    Campaigns that happen once stay, however old: they say who must not be sent to again.

    :raises StoreError: when the store cannot be used; what was deleted by then is
    """
    for table, age in _AGES:
        key = tuple_(*table.primary_key.columns) if len(table.primary_key.columns) > 1 else _only_key(table)
        old = select(*table.primary_key.columns).where(age < before).limit(AT_ONCE)
        gone = 0
        while number := database.write(_deleting(delete(table).where(key.in_(old)))):
            gone += number
        yield table.name, gone


def forget(database: Database, recipient: str) -> int:
    """Delete whom reports are about, and return how many rows named them.

    What became of the messages stays counted, under a name that says nothing. Should the service report once more, it
    is stored again.

    :param recipient: a phone number in its international form, or an email address
    :raises UnknownRecipientError: when it is neither
    :raises StoreError: when the store cannot be used
    """
    key = recipient_key(recipient)
    if key is None:
        raise UnknownRecipientError(
            "That is no phone number in its international form (+234...), and no email address. Nothing was deleted."
        )
    return database.write(lambda connection: _forgotten(connection, key))


def _forgotten(connection: Connection, key: str) -> int:
    theirs = deliveries.c.recipient == key
    campaigns = connection.execute(select(deliveries.c.campaign).where(theirs)).scalars().all()
    for campaign in campaigns:
        row = update(deliveries).where(theirs, deliveries.c.campaign == campaign)
        connection.execute(row.values(recipient=f"#forgotten-{secrets.token_hex(8)}", reason=None))
    # A report may name them where nobody looked for a recipient.
    named = func.lower(reports.c.body).contains(key.lower(), autoescape=True)
    return len(campaigns) + connection.execute(delete(reports).where(or_(reports.c.recipient == key, named))).rowcount


def _only_key(table: Table) -> Column[Any]:
    (column,) = table.primary_key.columns
    return column


def _deleting(statement: Any) -> Callable[[Connection], int]:
    return lambda connection: connection.execute(statement).rowcount
