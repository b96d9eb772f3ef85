"""The recipients of a run that was started on delivery, as rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cpaas_provider.sources.base import NO_ABSENT_COLUMNS, InvalidRow, Row, Source, SourceError, Table

if TYPE_CHECKING:
    from sqlalchemy import Connection, Select

COLUMNS = ("recipient", "campaign", "outcome", "status", "reason")

_BATCH = re.compile(r"(?:([A-Za-z0-9_-]{0,100})\.)?([0-9]{17})")
_CAMPAIGN = re.compile(r"[A-Za-z0-9_-]{1,100}")


@contextmanager
def open_recipients(key: str) -> Iterator[Table]:
    """Read the recipients that a partition key concerns, for one reading.

    :raises SourceError: when the key is none of ours, or the database cannot be read
    """
    from cpaas_provider.database.database import open_database
    from cpaas_provider.database.errors import DatabaseError

    query = _query(key)
    try:
        with open_database() as database, database.connect() as connection:
            yield _Concerned(connection, query)
    except DatabaseError as error:
        raise SourceError(f"The recipients of the partition key {key} could not be read. {error}") from None


@contextmanager
def open_contacts(key: str, contacts: Source, *, column: str, region: str | None) -> Iterator[Table]:
    """Read the rows of another source whose column holds a recipient that a partition key concerns.

    :raises SourceError: when the key is none of ours, the database cannot be read, or there is no such column
    """
    with open_recipients(key) as recipients:
        wanted = {row.values[0] for row in recipients.rows(("recipient",)) if isinstance(row, Row)}
    with contacts.open() as table:
        if table.columns is not None and column not in table.columns:
            raise SourceError(
                f"{contacts} has no column {column!r}. Set column to the one that holds the number or address."
            )
        yield _Contacts(table, column, _is_one_of(wanted, region))


def _is_one_of(wanted: set[Any], region: str | None) -> Callable[[Any], bool]:
    from cpaas_provider.api.recipients.msisdn import InvalidMsisdnError, normalise_msisdn

    def is_one(value: Any) -> bool:
        if isinstance(value, str) and "@" in value:
            return value.strip().lower() in wanted
        try:
            return normalise_msisdn(value, region) in wanted
        except InvalidMsisdnError:
            return False

    return is_one


class _Concerned:
    absent = NO_ABSENT_COLUMNS
    columns: tuple[str, ...] | None = COLUMNS

    def __init__(self, connection: Connection, query: Select[Any]) -> None:
        self._connection, self._query = connection, query

    def rows(self, wanted: Sequence[str]) -> Iterator[Row | InvalidRow]:
        """Read all of them once."""
        for number, found in enumerate(_rows_of(self._connection, self._query), 1):
            row = _plain(found)
            yield Row(number, tuple([row.get(name) for name in wanted]))


class _Contacts:
    def __init__(self, table: Table, column: str, is_one: Callable[[Any], bool]) -> None:
        self.columns = table.columns
        self._table, self._column, self._is_one = table, column, is_one

    @property
    def absent(self) -> AbstractSet[str]:
        """Return what no contact had."""
        return self._table.absent

    def rows(self, wanted: Sequence[str]) -> Iterator[Row | InvalidRow]:
        """Read those contacts that are concerned; of rows that cannot be read it cannot be told."""
        for row in self._table.rows((*wanted, self._column)):
            if isinstance(row, Row) and self._is_one(row.values[-1]):
                yield Row(row.number, row.values[:-1])


def _plain(found: Any) -> dict[str, Any]:
    from cpaas_provider.delivery.reports import DeliveryStatus

    return {
        "recipient": found.recipient,
        "campaign": found.campaign,
        "outcome": DeliveryStatus(found.delivery_status).name.lower(),
        "status": found.status,
        "reason": found.reason,
    }


def _rows_of(connection: Connection, query: Select[Any]) -> Iterator[Any]:
    return iter(connection.execution_options(yield_per=1000).execute(query))


def _query(key: str) -> Select[Any]:
    """Return the query for the recipients that a key concerns."""
    from sqlalchemy import and_, or_, select

    from cpaas_provider.database.schema import deliveries
    from cpaas_provider.delivery.tracking.counts import IS_COUNTED
    from cpaas_provider.delivery.tracking.events import BATCHED, HAS_FAILED

    if found := _BATCH.fullmatch(key):
        campaign, batch = found[1], int(found[2])
        who = or_(*(and_(one.who, one.published_batch == batch) for one in BATCHED.values()))
        if campaign:
            who = and_(who, deliveries.c.campaign == campaign)
    elif _CAMPAIGN.fullmatch(key):
        who = and_(deliveries.c.campaign == key, HAS_FAILED, IS_COUNTED)
    else:
        raise SourceError(
            "The partition key is neither a campaign reference nor a key from cpaas_provider.assets. Nothing was read."
        )
    named = and_(deliveries.c.recipient != "", ~deliveries.c.recipient.startswith("#"))
    return select(deliveries).where(who, named).order_by(deliveries.c.campaign, deliveries.c.recipient)
