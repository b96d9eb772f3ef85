"""The cursor of a sync, which the key map stores: rows of the source before it were synced by an earlier run."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

from cpaas_provider.api.amounts import counted
from cpaas_provider.api.values import is_blank, missing_word
from cpaas_provider.contacts.errors import CursorChangedError, CursorError
from cpaas_provider.contacts.key_map.key_map import Lease
from cpaas_provider.contacts.key_map.overview import CURSOR
from cpaas_provider.contacts.mapping.dates import date_parser
from cpaas_provider.contacts.sync.decisions import Plan

log = logging.getLogger(__name__)

CLOCK_TOLERANCE = timedelta(minutes=5)
"""How far the clock that writes the cursor column may be ahead."""

_LARGEST_OFFSET = timedelta(hours=14)
"""How far the local time of a zone is ahead of UTC at most. A time without a zone may be of any."""

_ONE_DAY = timedelta(days=1)
"""No time zone differs from UTC by more."""
_ISO_DATE = "%Y-%m-%d"

_NUMERAL = re.compile(r"[+-]?[0-9]{1,40}(?:\.[0-9]{1,40})?")
_ISO = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[Tt ][0-9]{2}:[0-9]{2}.*)?", re.DOTALL)
_NUMBERS, _DATES, _LOCAL_TIMES, _TIMES = "numbers", "dates", "times without a time zone", "times with a time zone"
_KINDS = "numbers, dates in ISO 8601, or dates in the date_format of a column rule of this source column"


class UnorderedTextError(Exception):
    """A text is of no kind that has a safe order."""


@dataclass
class Cursor:
    """Skips rows before the stored value, and finds the largest value in the source that is not in the future.

    :param column: the cursor column
    :param stored: the largest value of the last run, ``None`` for the first run
    :param date_format: how its text is written, if a column rule says so
    :param now: the current time
    :param reached: the largest value so far
    :param invalid_before: the number of invalid and partial rows, and of those that ``mode`` leaves alone, below it
    :param future: the number of rows with a value in the future
    :param without_value: the number of rows whose value is unknown
    """

    column: str
    stored: Any = None
    date_format: str | None = None
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    reached: Any = None
    invalid_before: int = 0
    future: int = 0
    without_value: int = 0
    _reached: Any = None
    _invalid_at: int = 0

    def __post_init__(self) -> None:
        self._parse_date = date_parser(self.date_format, False) if self.date_format else None
        self._kind: str | None = None
        self._floor: Any = None
        if self.stored is not None:
            self._kind, self._floor = self._read(self.stored)
        self._stored_kind = self._kind
        self._limits = _limits(self.now + CLOCK_TOLERANCE)

    def is_new(self, cells: Mapping[str, Any], number: int = 0) -> bool:
        """Return whether a row's value is not before the stored one. Updates ``reached``.

        :param number: the number of the row, for errors
        :raises ValueError: when the row has no value
        :raises CursorError: when the value is of no kind that has an order, or of another kind than an earlier one
        :raises CursorChangedError: when it is of another kind than the stored one
        """
        value = cells[self.column]
        try:
            kind, position = self._read(value)
        except UnorderedTextError:
            raise CursorError(
                f"Row {number} of the source has text in the cursor column {self.column!r} that is no number and no "
                f"date. Other text has no safe order, so rows could be passed over. Nothing was sent. Give {_KINDS}."
            ) from None
        if self._kind is None:
            self._kind = kind
        elif kind != self._kind:
            self._refuse_kind(kind, number)
        if self._floor is not None and position < self._floor:
            return False
        if (limit := self._limits.get(kind)) is not None and position > limit:
            self.future += 1
        elif self._reached is None or position > self._reached:
            self.reached, self._reached = value, position
            self.invalid_before += self._invalid_at
            self._invalid_at = 0
        return True

    def add_invalid(self, cells: Mapping[str, Any]) -> None:
        """Count an invalid or partial row, or one that ``mode`` leaves alone, after ``is_new`` has seen it."""
        _, position = self._read(cells[self.column])
        # The next run reads the rows from this value on again.
        if self._reached is None or position >= self._reached:
            self._invalid_at += position == self._reached
        else:
            self.invalid_before += 1

    @property
    def is_future(self) -> bool:
        """Whether the stored value is in the future, so that every row would be passed over."""
        limit = None if self._kind is None else self._limits.get(self._kind)
        return limit is not None and self._floor is not None and bool(self._floor > limit)

    @property
    def sql_parameter(self) -> Any:
        """The stored value as the parameter of a query; ``None``, which reads all rows, if there is no safe one.

        A database compares text letter by letter. Of text, only dates in ISO 8601 have the order of their letters.
        Times have not: their separators, fractions and time zones may differ. So a query gets a date that no later
        time is below, in whatever zone. The rows between are passed over once they are read.
        """
        if not isinstance(self.stored, str):
            return self.stored
        if self._kind == _NUMBERS or self.date_format not in (None, _ISO_DATE):
            return None
        if self._kind == _TIMES:
            try:
                return (self._floor.replace(tzinfo=None) - self._floor.utcoffset() - _ONE_DAY).date().isoformat()
            except OverflowError:
                return None
        return self._floor.isoformat()[: len("2026-01-31")]

    def _refuse_kind(self, kind: str, number: int) -> None:
        if self._stored_kind is not None and self.reached is None:
            raise CursorChangedError(
                f"The cursor column {self.column!r} has {kind}, and the stored cursor is of {self._kind}. Nothing was "
                "sent. The stored cursor was removed, so the next try reads all rows."
            )
        raise CursorError(
            f"The cursor column {self.column!r} has {kind} in row {number} of the source, and {self._kind} before. "
            "They have no common order, so rows could be passed over. Nothing was sent. Write all in one form."
        )

    def _read(self, value: Any) -> tuple[str, Any]:
        """Return the kind of a value, and what to compare.

        :raises ValueError: when there is no value
        :raises UnorderedTextError: when it is text of no kind that has an order
        """
        if is_blank(value):
            raise ValueError(f"{self.column} is blank, and it is the cursor column")
        if (word := missing_word(value)) is not None:
            raise ValueError(f"{self.column} is the word {word}, and it is the cursor column")
        if isinstance(value, datetime):
            return _time(value)
        if isinstance(value, date):
            return _DATES, value
        if isinstance(value, str):
            return self._read_text(value.strip())
        if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool) and math.isfinite(value):
            return _NUMBERS, value
        raise ValueError(f"{self.column} is no text, number, date or time, and it is the cursor column")

    def _read_text(self, text: str) -> tuple[str, Any]:
        try:
            if self._parse_date is not None:
                return _DATES, date.fromisoformat(self._parse_date(text))
            if _NUMERAL.fullmatch(text):
                return _NUMBERS, Decimal(text)
            if _ISO.fullmatch(text):
                if len(text) == len("2026-01-31"):
                    return _DATES, date.fromisoformat(text)
                moment = datetime.fromisoformat(text.upper().replace(" UTC", "Z").replace("UTC", "Z"))
                return _time(moment)
        except ValueError:
            raise UnorderedTextError from None
        raise UnorderedTextError


def _time(value: datetime) -> tuple[str, datetime]:
    """Return the kind of a time, and what to compare."""
    offset = value.utcoffset()
    if offset is None:
        return _LOCAL_TIMES, value.replace(tzinfo=None)
    # Python compares times of the same zone by their clocks, which go back in autumn.
    return _TIMES, value.replace(tzinfo=timezone(offset))


def _limits(now: datetime) -> dict[str, Any]:
    """Return the largest value of each kind that is not in the future. A number has none."""
    local = (now + _LARGEST_OFFSET).astimezone(UTC).replace(tzinfo=None)
    return {_DATES: local.date(), _LOCAL_TIMES: local, _TIMES: now}


def cursor_to_json(value: Any) -> Any:
    """Return a cursor's value as it is stored."""
    if isinstance(value, datetime):
        return {"datetime": value.isoformat()}
    if isinstance(value, date):
        return {"date": value.isoformat()}
    if isinstance(value, str):
        return {"text": value}
    if isinstance(value, (int, float)) or value is None:
        return value
    return {"number": str(value)}


def cursor_from_json(stored: Any) -> Any:
    """Return a cursor's value as the source has it; ``None``, which reads all rows, for one in an unreadable form.

    Earlier releases stored text alone, and compared it letter by letter. So they may have passed over rows.
    """
    if not isinstance(stored, dict):
        return None if isinstance(stored, str) else stored
    ((kind, text),) = stored.items()
    if kind == "text":
        return text
    if kind == "number":
        return Decimal(text)
    return datetime.fromisoformat(text) if kind == "datetime" else date.fromisoformat(text)


class StoredCursor:
    """Loads and moves the cursor of one sync.

    :param column: the cursor column
    :param settings: a hash of the settings of the sync. With others, rows below the cursor may differ from the list
    :param date_format: how text in the column is written, if a column rule says so
    :param reads_all: whether this run ignores the stored cursor and reads all rows
    """

    def __init__(
        self, lease: Lease, column: str, settings: str, date_format: str | None, *, reads_all: bool = False
    ) -> None:
        self._lease = lease
        self._column = column
        self._settings = settings
        self._date_format = date_format
        self._invalid_rows = 0
        self._without_value = 0
        self.is_filtered = False
        """Whether the source leaves out rows below the cursor, and perhaps those without a value."""
        self._columns: Collection[str] | None = None
        self.cursor = self._at(None) if reads_all else self._load()

    def failed_before(self, plan: Plan) -> int:
        """Return the number of rows below the cursor that an earlier run could not use, left alone, or had rejected."""
        not_read = self._known_without_value(plan) - plan.without_cursor
        return self._invalid_rows + plan.rejected_before_cursor + not_read

    def _known_without_value(self, plan: Plan) -> int:
        """Return how many rows have no value. A query that gets the cursor may not return those of an earlier run."""
        return max(plan.without_cursor, self._without_value if self.is_filtered else 0)

    def _load(self) -> Cursor:
        """Return the cursor of the last run, or one that reads all rows."""
        stored = self._lease.key_map.value(CURSOR)
        if not isinstance(stored, dict) or (stored.get("column"), stored.get("of")) != (self._column, self._settings):
            # It belongs to another column or mapping, so rows before it may differ from the list.
            return self._at(None)
        try:
            cursor = self._at(cursor_from_json(stored["value"]))
        except (ValueError, UnorderedTextError):
            return self._at(None)
        if cursor.is_future:
            log.warning("The stored cursor is in the future, so this run reads all rows.")
            return self._at(None)
        if cursor.stored is not None:
            self._invalid_rows = stored.get("invalid_rows", 0)
            self._without_value = stored.get("without_value", 0)
            self._columns = stored.get("columns")
        return cursor

    def _at(self, stored: Any) -> Cursor:
        return Cursor(self._column, stored, self._date_format)

    def check_columns(self, columns: Collection[str]) -> None:
        """Refuse the stored cursor if rows below it lack cells of columns that were not filled then.

        A sync without a mapping fills a further column as soon as source and list share its name.

        :param columns: the names of the columns that this run fills
        :raises CursorChangedError: when there are further columns
        """
        further = [] if self._columns is None else sorted(set(columns).difference(self._columns))
        if further:
            raise CursorChangedError(
                f"The sync fills {' and '.join(map(repr, further))} now, and rows below the stored cursor do not have "
                "these cells. Nothing was sent. The stored cursor was removed, so the next try reads all rows."
            )

    def remove(self) -> None:
        """Remove the stored cursor, so that the next try reads all rows."""
        self._lease.write([], {CURSOR: None})

    def move(self, plan: Plan, report: Mapping[str, Any], unrecorded: int, columns: Iterable[str]) -> None:
        """Store the cursor, if every row up to it was sent, or has failed and is counted.

        A rejected or invalid row does not hold the cursor, or each run would read all rows after it. The number of
        such rows is stored with the cursor, so that later runs, which pass over them, are not reported as complete. A
        rejected row that the map has not recorded as rejected holds it, because the next run sends that row again.

        :param report: the figures of the run
        :param unrecorded: the number of rejected rows that the map has not recorded as rejected
        :param columns: the names of the columns that the run filled
        """
        if plan.future_cursor:
            log.warning(
                "%s of the source have a future value in the cursor column %r. They were compared as all others. The "
                "cursor does not move beyond now, or later rows would be passed over. Correct these values.",
                counted(plan.future_cursor, "row"),
                self._column,
            )
        if plan.cursor is None or report["remaining"] or report["not_sent"]:
            return
        if unrecorded:
            log.warning(
                "The cursor stays where it was, so that the next run sends %s once more.",
                counted(unrecorded, "rejected row"),
            )
            return
        if report["unknown"]:
            log.warning(
                "The cursor stays where it was, so that rows whose creation is unknown are read again once they are "
                "resolved."
            )
            return
        stored = {
            "column": self._column,
            "of": self._settings,
            "value": cursor_to_json(plan.cursor),
            "invalid_rows": self._invalid_rows + plan.invalid_before_cursor,
            "without_value": self._known_without_value(plan),
            "columns": sorted(columns),
        }
        self._lease.write([], {CURSOR: stored})


def recount_invalid_rows(lease: Lease, plan: Plan, settings: str) -> None:
    """Record how many rows a run without a cursor, which read all rows, could not use.

    A later run with the cursor may pass over them. Rows without a value in the cursor column were read as all others.
    Those above the cursor count, too, until the next such run. A run with other settings counts other rows, such as one
    that marks a few contacts.

    :param settings: as for ``StoredCursor``
    """
    stored = lease.key_map.value(CURSOR)
    count = plan.invalid_rows + plan.partial_rows + plan.not_in_mode
    if isinstance(stored, dict) and stored.get("of") == settings:
        lease.write([], {CURSOR: {**stored, "invalid_rows": count, "without_value": 0}})
