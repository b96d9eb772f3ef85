"""From the rows of a source to the plan of a campaign."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from cpaas_provider.api.recipients.allowlist import AllowedRecipients
from cpaas_provider.api.redact import describe_columns
from cpaas_provider.sending.campaign.content import Content, joined, written
from cpaas_provider.sending.campaign.recipients import RecipientRow, RecipientStatus, RecipientTable, make_recipient_row
from cpaas_provider.sending.errors import SendingError
from cpaas_provider.sending.hashing import KeyedHasher
from cpaas_provider.sending.partitions import Partition
from cpaas_provider.sources.base import InvalidRow, Row, Source

log = logging.getLogger(__name__)

_AT_ONCE = 200
"""Rows: so few that Python does not look for garbage among them, which took a seventh of the time."""

_BETWEEN_WORDS = 10.0
_NAMED = 5
_NOT_SENT = int(RecipientStatus.NOT_SENT)
"""As an enum it would be adapted anew for each row."""

T = TypeVar("T")


class CannotPlanError(SendingError):
    """The arguments of the campaign do not fit its source. Nothing was sent."""

    permanent = True


@dataclass(frozen=True)
class Columns:
    """Where in a source's rows things stand.

    :param recipient: the column of the phone number or address
    :param zone: the column of the time zone, if there is one
    """

    recipient: str
    zone: str | None = None


@dataclass
class Suppressed:
    """What a suppression list holds.

    :param invalid: the number of rows that cannot be read, so that their recipients would be sent to
    :param empty: the number of rows without a recipient
    :param first: the numbers of the first invalid rows, and why they are
    """

    rows: int = 0
    invalid: int = 0
    empty: int = 0
    first: list[tuple[int, str]] = field(default_factory=list)

    def add_invalid(self, number: int, reason: str) -> None:
        """Count a row, and keep it where it is among the first."""
        self.invalid += 1
        if len(self.first) < _NAMED:
            self.first.append((number, reason))

    def in_words(self) -> str:
        """Return how many rows are invalid and which, as a sentence."""
        which = "; ".join(f"row {number}: {reason}" for number, reason in self.first)
        more = f"; and {self.invalid - len(self.first)} more" if self.invalid > len(self.first) else ""
        return f"{self.invalid} of the {self.rows} rows of the suppression list cannot be read ({which}{more})."


@dataclass
class LoadStats:
    """What planning found out beside the plan itself.

    :param elsewhere: how many recipients belong to other parts of the campaign
    :param invalid_suppression_rows: how many rows of the suppression list cannot be read
    """

    rows: int = 0
    other_partitions: int = 0
    invalid_suppression_rows: int = 0


class RecipientLoader:
    """Reads sources into a plan.

    :param check: called now and then; raises where the task must end
    """

    def __init__(
        self,
        plan: RecipientTable,
        message: Content,
        hasher: KeyedHasher,
        *,
        default_region: str | None,
        allowed: AllowedRecipients | None = None,
        partition: Partition = Partition(),  # noqa: B008 - it cannot be changed
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._plan = plan
        self._message = message
        self._region = default_region
        self._allowed = allowed
        self._partition = partition
        self._whole = partition.of == 1
        self._check = check
        self._measure = message.length_estimator()
        self._normalise = message.channel.normalise
        self._member = hasher.member_hasher(message.channel.operation)
        self._said = time.monotonic()
        self.found = LoadStats()

    def read(self, source: Source, columns: Columns, *, test: bool = False) -> None:
        """Add the rows of a source to the plan.

        :param test: whether these are the test recipients, which come first
        :raises SourceError: when the source cannot be read
        :raises CannotPlanError: when it has no such columns
        """
        wanted = [columns.recipient, *self._message.columns.values(), *([columns.zone] if columns.zone else [])]
        with source.open() as table:
            self._refuse_missing(source, wanted, table.columns)
            for rows in _batches(table.rows(wanted)):
                self._check()
                self._count(len(rows))
                self._plan.add([line for row in rows if (line := self._planned(row, columns, test)) is not None])

    def suppress(self, source: Source, column: str) -> Suppressed:
        """Record the recipients in a source as not to be sent to, and return what its rows are."""
        found = Suppressed()

        def members() -> Iterator[bytes]:
            for row in table.rows([column]):
                found.rows += 1
                value = row.values[0] if isinstance(row, Row) else None
                if isinstance(row, InvalidRow):
                    found.add_invalid(row.number, row.reason)
                elif table.columns is not None and written(value) == "":
                    found.empty += 1
                else:
                    try:
                        yield self._member(self._message.channel.normalise(value, self._region))
                    except ValueError as error:
                        found.add_invalid(row.number, f"{column} {error}")

        with source.open() as table:
            self._refuse_missing(source, [column], table.columns)
            for some in _batches(members()):
                self._check()
                self._plan.suppress(some)
        return found

    def _count(self, rows: int) -> None:
        """Count rows, and say now and then how far the reading is."""
        self.found.rows += rows
        if time.monotonic() - self._said > _BETWEEN_WORDS:
            self._said = time.monotonic()
            log.info("Planning: %d rows read.", self.found.rows)

    def _planned(self, row: Row | InvalidRow, columns: Columns, test: bool) -> RecipientRow | None:
        number = 0 if test else row.number
        if isinstance(row, InvalidRow):
            return self._without_recipient(number, row.reason)
        message = self._message
        try:
            address = self._normalise(row.values[0], self._region)
        except ValueError as error:
            return self._without_recipient(number, f"{columns.recipient} {error}")
        if not (test or self._whole or self._partition.holds(address.lower())):
            self.found.other_partitions += 1
            return None
        member = self._member(address)
        if self._allowed is not None and not self._allowed.allows(address):
            return RecipientRow(number, RecipientStatus.NOT_ALLOWED, member, address)
        words, zone = None, None
        try:
            if message.columns:
                words = message.words(row.values[1 : 1 + len(message.columns)])
            if columns.zone:
                zone = _zone(row.values[-1], columns.zone)
        except ValueError as error:
            return RecipientRow(number, RecipientStatus.INVALID_ROW, None, address, reason=str(error))
        kept = None if words is None else joined(words)
        if self._measure is None:
            return RecipientRow(number, _NOT_SENT, member, address, kept, zone=zone)
        length = self._measure(words or ())
        return make_recipient_row((number, _NOT_SENT, member, address, kept, length.pages, length.encoding, zone, None))

    def _without_recipient(self, number: int, reason: str) -> RecipientRow | None:
        """Return the line of a row without a recipient; it belongs to one part, too."""
        part = self._partition
        return (
            RecipientRow(number, RecipientStatus.INVALID_ROW, reason=reason) if number % part.of == part.part else None
        )

    def _refuse_missing(self, source: Source, wanted: Sequence[str], there: Sequence[str] | None) -> None:
        if there is None:
            return
        if missing := sorted(set(wanted) - set(there)):
            raise CannotPlanError(
                f"{source} has no column {', '.join(missing)}. {describe_columns(there)}. Nothing was sent."
            )


def _zone(value: Any, column: str) -> str:
    name = written(value)
    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        raise ValueError(f"{column} is no time zone such as Africa/Lagos") from None
    return name


def _batches(rows: Iterable[T]) -> Iterator[list[T]]:
    """Yield what is there in lists."""
    rows = iter(rows)
    while batch := list(itertools.islice(rows, _AT_ONCE)):
        yield batch
