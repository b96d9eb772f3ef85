"""Loads the rows of a source into the recipient table of a campaign."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from msgspec import Struct

from cpaas_provider.api.amounts import counted
from cpaas_provider.api.recipients.invalid import InvalidRecipientError
from cpaas_provider.api.recipients.reader import RecipientReader, recipient_key
from cpaas_provider.api.redact import describe_columns
from cpaas_provider.api.values import is_blank, plain, readable_text
from cpaas_provider.sending.campaign.content import Content, MissingWords, placeholder_values_as_json
from cpaas_provider.sending.campaign.recipients import RecipientRow, RecipientStatus, RecipientTable
from cpaas_provider.sending.errors import SendingError
from cpaas_provider.sending.journal.hashing import KeyedHasher
from cpaas_provider.sending.partitions import Partition
from cpaas_provider.sending.spec import channel_of
from cpaas_provider.sources.base import InvalidRow, Row, Source, declares_missing_values
from cpaas_provider.sources.tables import missing_columns

log = logging.getLogger(__name__)

_ROWS_AT_ONCE = 200
"""So few objects that Python's garbage collector does not start for them, which took a seventh of the time."""

_LOG_INTERVAL = 10.0
_MAX_NAMED_ROWS = 5
_NOT_SENT = int(RecipientStatus.NOT_SENT)
"""An int, because SQLite's adapter takes longer for an enum."""

T = TypeVar("T")


class CannotPlanError(SendingError):
    """The arguments of the campaign do not fit its source. Nothing was sent."""

    permanent = True


class Columns(Struct, frozen=True):
    """The columns of a source.

    :param recipient: the column of the phone number or address
    :param zone: the column of the time zone; ``None`` without one
    """

    recipient: str
    zone: str | None = None


@dataclass
class SuppressionStats:
    """Counts the rows of a suppression list.

    :param invalid: the number of rows that cannot be read, so that their recipients would be sent to
    :param empty: the number of rows without a recipient
    :param first_invalid: the number and the reason of the first invalid rows
    """

    rows: int = 0
    invalid: int = 0
    empty: int = 0
    first_invalid: list[tuple[int, str]] = field(default_factory=list)

    def add_invalid(self, number: int, reason: str) -> None:
        """Count an invalid row, and remember the first ones."""
        self.invalid += 1
        if len(self.first_invalid) < _MAX_NAMED_ROWS:
            self.first_invalid.append((number, reason))

    def describe_invalid(self) -> str:
        """Return how many rows are invalid and which, as a sentence."""
        which = "; ".join(f"row {number}: {reason}" for number, reason in self.first_invalid)
        unnamed = self.invalid - len(self.first_invalid)
        more = f"; and {unnamed} more" if unnamed else ""
        return f"{self.invalid} of the {self.rows} rows of the suppression list cannot be read ({which}{more})."


@dataclass
class LoadStats:
    """Counts what was read and is not in the table.

    :param rows: the number of rows read
    :param other_partitions: the number of recipients that belong to other partitions of the campaign
    :param invalid_suppression_rows: the number of rows of the suppression list that cannot be read
    :param missing_words: counts words such as ``nan`` in the columns of placeholders
    """

    rows: int = 0
    other_partitions: int = 0
    invalid_suppression_rows: int = 0
    missing_words: MissingWords = field(default_factory=MissingWords)


@dataclass(eq=False, repr=False)
class RecipientLoader:
    """Reads sources into a recipient table.

    :param check: called between parts of a source; raises if the task must end
    """

    plan: RecipientTable
    message: Content
    hasher: KeyedHasher
    _: KW_ONLY
    reader: RecipientReader
    partition: Partition = field(default_factory=Partition)
    check: Callable[[], None] = lambda: None
    stats: LoadStats = field(default_factory=LoadStats, init=False)

    def __post_init__(self) -> None:
        self._has_all_recipients = self.partition.of == 1
        self._measure = self.message.length_estimator()
        self._read_recipient, self._allowed = self.reader.read, self.reader.allowed
        operation = self.message.channel.endpoint.operation
        self._member = self.hasher.member_hasher(operation, channel_of(operation, self.message.body))
        self._logged_at = time.monotonic()

    def read(self, source: Source, columns: Columns, *, test: bool = False) -> None:
        """Add the rows of a source to the table.

        :param test: whether these are the test recipients, which must be added first
        :raises SourceError: when the source cannot be read
        :raises CannotPlanError: when the source lacks one of the columns
        """
        wanted = [columns.recipient, *self.message.columns.values(), *([columns.zone] if columns.zone else [])]
        with source.open() as table:
            self._refuse_missing(source, wanted, table.columns)
            words = self.stats.missing_words
            words.are_values = declares_missing_values(table)
            for rows in _batches(table.rows(wanted)):
                self.check()
                self._count(len(rows))
                self.plan.add([line for row in rows if (line := self._table_row(row, columns, test)) is not None])
        if not test:
            for sentence in words.describe():
                log.warning("%s", sentence)

    def suppress(self, source: Source, column: str) -> SuppressionStats:
        """Record the recipients in a source as suppressed, and return the counts of its rows."""
        stats = SuppressionStats()

        def members() -> Iterator[bytes]:
            for row in table.rows([column]):
                stats.rows += 1
                value = row.values[0] if isinstance(row, Row) else None
                if isinstance(row, InvalidRow):
                    stats.add_invalid(row.number, row.reason)
                elif table.columns is not None and is_blank(plain(value)):
                    stats.empty += 1
                else:
                    try:
                        yield self._member(self._read_recipient(value))
                    except InvalidRecipientError as error:
                        stats.add_invalid(row.number, f"{column} {error}")

        with source.open() as table:
            self._refuse_missing(source, [column], table.columns)
            for batch in _batches(members()):
                self.check()
                self.plan.suppress(batch)
        return stats

    def _count(self, rows: int) -> None:
        """Count rows, and log the progress at intervals."""
        self.stats.rows += rows
        if time.monotonic() - self._logged_at > _LOG_INTERVAL:
            self._logged_at = time.monotonic()
            log.info("Planning: %s read.", counted(self.stats.rows, "row"))

    def _table_row(self, row: Row | InvalidRow, columns: Columns, test: bool) -> tuple[Any, ...] | None:
        """Return a row as the table has it; ``None`` if it belongs to another partition."""
        number = 0 if test else row.number
        if isinstance(row, InvalidRow):
            return self._without_recipient(number, row.reason)
        message = self.message
        try:
            # A plain str, because SQLite's adapter takes longer for a subclass.
            address = str(self._read_recipient(row.values[0]))
        except InvalidRecipientError as error:
            return self._without_recipient(number, f"{columns.recipient} {error}")
        if not (self._has_all_recipients or self.partition.holds(recipient_key(address))):
            self.stats.other_partitions += 1
            return None
        member = self._member(address)
        if self._allowed is not None and not self._allowed.allows(address):
            return RecipientRow(number, RecipientStatus.NOT_ALLOWED, member, address)
        # No None and no bytes: SQLite's adapter takes as long for these as for the rest of the row.
        stored_values, zone, reason = "", "", ""
        pages: int | str = ""
        saved_pages: int | str = ""
        encoding = ""
        values = None
        try:
            if message.columns:
                values = message.values(row.values[1 : 1 + len(message.columns)], self.stats.missing_words)
            if message.saved_pages is not None:
                saved_pages = message.saved_pages(values or [])
            if message.writer is not None and values is not None:
                values = message.writer.values(values)
            if columns.zone:
                zone = _zone(row.values[-1], columns.zone)
        except ValueError as error:
            return RecipientRow(number, RecipientStatus.INVALID_ROW, None, address, reason=str(error))
        if values is not None:
            stored_values = placeholder_values_as_json(values)
        if self._measure is not None:
            length = self._measure(values or ())
            pages, encoding = length.pages, length.encoding
        member_bytes = bytearray(member)
        return number, _NOT_SENT, member_bytes, address, stored_values, pages, encoding, zone, reason, saved_pages

    def _without_recipient(self, number: int, reason: str) -> RecipientRow | None:
        """Return a row without a recipient; ``None`` in all partitions but one, chosen by the number of the row."""
        if number % self.partition.of != self.partition.part:
            return None
        return RecipientRow(number, RecipientStatus.INVALID_ROW, reason=reason)

    def _refuse_missing(self, source: Source, wanted: Sequence[str], columns: Sequence[str] | None) -> None:
        if columns is not None and (missing := missing_columns(source, columns, wanted)):
            raise CannotPlanError(
                f"{source} has no column {', '.join(missing)}. {describe_columns(columns)}. Nothing was sent."
            )


def _zone(value: Any, column: str) -> str:
    name = readable_text(value) or ""
    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        raise ValueError(f"{column} is no time zone such as Africa/Lagos") from None
    return name


def _batches(rows: Iterable[T]) -> Iterator[list[T]]:
    """Yield the rows in lists of at most ``_ROWS_AT_ONCE``."""
    rows = iter(rows)
    while batch := list(itertools.islice(rows, _ROWS_AT_ONCE)):
        yield batch
