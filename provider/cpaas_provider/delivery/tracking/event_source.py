"""The recipients of a delivery event, as rows of a source. The partition key of the DAG run identifies the event."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any

from sqlalchemy import Connection, Select, and_, or_, select

from cpaas_provider.api.recipients.invalid import InvalidRecipientError
from cpaas_provider.api.recipients.msisdn import NumberReader
from cpaas_provider.api.recipients.reader import RecipientReader, recipient_key
from cpaas_provider.api.values import no_value_reason
from cpaas_provider.database.database import open_database
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.database.schema.delivery import deliveries
from cpaas_provider.delivery.reports import DeliveryStatus
from cpaas_provider.delivery.tracking.counts import IS_COUNTED, known_campaigns
from cpaas_provider.delivery.tracking.events import BATCHED, HAS_FAILED
from cpaas_provider.delivery.tracking.request_recipients import UNNAMED_PREFIX
from cpaas_provider.sources.base import NO_ABSENT_COLUMNS, InvalidRow, Row, Source, SourceError, Table
from cpaas_provider.sources.results_file import international
from cpaas_provider.sources.tables import FilteredTable, missing_columns

COLUMNS = ("recipient", "campaign", "outcome", "status", "reason")

_BATCH = re.compile(r"(?:([A-Za-z0-9_-]{0,100})\.)?([0-9]{17})")
_CAMPAIGN = re.compile(r"[A-Za-z0-9_-]{1,100}")


@contextmanager
def open_recipients(key: str) -> Iterator[Table]:
    """Open the recipients of a partition key. They can be read once.

    :raises SourceError: when it is no key of a delivery event, or the database cannot be read
    """
    query = _query(key)
    try:
        with open_database() as database, database.connect() as connection:
            _require_known(connection, key)
            yield _Recipients(connection, query)
    except DatabaseError as error:
        raise SourceError(f"The recipients of the partition key {key} could not be read. {error}") from None


@contextmanager
def open_contacts(key: str, contacts: Source, *, column: str, region: str | None) -> Iterator[Table]:
    """Open the rows of another source whose column holds a recipient of a partition key.

    :param region: the two-letter region of national numbers in the column
    :raises SourceError: when it is no key of a delivery event, the database cannot be read, or the source has no such
        column
    """
    with open_recipients(key) as table:
        recipients = {recipient_key(row.values[0]) for row in table.rows(("recipient",)) if isinstance(row, Row)}
    reader = RecipientReader("any", NumberReader(region, "possible"))
    with contacts.open() as table:
        if missing_columns(contacts, table.columns, [column]):
            raise SourceError(
                f"{contacts} has no column {column!r}. Set column to the one that holds the number or address."
            )
        # An invalid row matches no recipient.
        yield FilteredTable(table, [column], partial(_is_one_of, recipients, reader.read), keep_invalid=False)


def _is_one_of(recipients: set[str], read: Callable[[Any], str], value: Any) -> bool:
    try:
        return recipient_key(read(value)) in recipients
    except InvalidRecipientError:
        return False


class _Recipients:
    absent = NO_ABSENT_COLUMNS
    columns: tuple[str, ...] | None = COLUMNS

    def __init__(self, connection: Connection, query: Select[Any]) -> None:
        self._connection, self._query = connection, query

    def rows(self, wanted: Sequence[str]) -> Iterator[Row | InvalidRow]:
        """Yield each recipient of a campaign once, also if several of its requests have the recipient."""
        rows = self._connection.execution_options(yield_per=1000).execute(self._query)
        for number, (_, (row, *_)) in enumerate(groupby(rows, attrgetter("campaign", "conn_id", "recipient")), 1):
            outcome = DeliveryStatus(row.delivery_status).word
            values = {**row._mapping, "recipient": international(row.recipient), "outcome": outcome}
            yield Row(number, tuple([values[name] if name in COLUMNS else None for name in wanted]))


def _require_known(connection: Connection, key: str) -> None:
    """Raise ``SourceError`` for the reference of a campaign that the database has no record of.

    It may be mistyped. Without an error it would be a campaign without recipients.
    """
    if _BATCH.fullmatch(key) or known_campaigns(connection, [key]):
        return
    reported = select(deliveries.c.campaign).where(deliveries.c.campaign == key).limit(1)
    if connection.execute(reported).first() is None:
        raise SourceError(
            f"The database has no record of a campaign {key}. Nothing was read. Check partition_key. If sender and "
            "receiver do not share one database, set [cpaas] database to the same database for both."
        )


def _query(key: str) -> Select[Any]:
    """Return the query for the recipients of a partition key."""
    if reason := no_value_reason(key):
        raise SourceError(
            f"partition_key {reason}. A run has a key only if one of the assets of cpaas_provider.assets started it. "
            "Nothing was read."
        )
    if match := _BATCH.fullmatch(key):
        campaign, batch = match[1], int(match[2])
        condition = or_(*(and_(kind.condition, kind.batch == batch) for kind in BATCHED.values()))
        if campaign:
            condition = and_(condition, deliveries.c.campaign == campaign)
    elif _CAMPAIGN.fullmatch(key):
        condition = and_(deliveries.c.campaign == key, HAS_FAILED, IS_COUNTED)
    else:
        raise SourceError(
            "The partition key is neither a campaign reference nor a key from cpaas_provider.assets. Nothing was read."
        )
    is_named = and_(deliveries.c.recipient != "", ~deliveries.c.recipient.startswith(UNNAMED_PREFIX))
    # Of several requests with one recipient, the one with the strongest report comes first.
    order = (deliveries.c[name] for name in ("campaign", "conn_id", "recipient"))
    strongest = (deliveries.c.delivery_status.desc(), deliveries.c.reported_at, deliveries.c.reference)
    return select(deliveries).where(condition, is_named).order_by(*order, *strongest)
