"""The recipients of a campaign and their status, on disk, so that a million of them take no memory."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

_CACHE_KIB = 8_000
_AT_ONCE = 1_000

_TABLES = """
CREATE TABLE recipient (
    place INTEGER PRIMARY KEY, row INTEGER, status INTEGER NOT NULL, member BLOB, address TEXT, words TEXT,
    pages INTEGER, encoding TEXT, zone TEXT, request INTEGER, reason TEXT
);
CREATE TABLE request (
    number INTEGER PRIMARY KEY, reference TEXT, state INTEGER NOT NULL, body TEXT, at TEXT, size INTEGER,
    id TEXT, charge REAL, balance REAL, reason TEXT, now INTEGER NOT NULL
);
CREATE TABLE recipient_request (member BLOB, request INTEGER, words BLOB);
CREATE TABLE left_out (member BLOB, request INTEGER);
CREATE TABLE suppressed (member BLOB PRIMARY KEY) WITHOUT ROWID;
"""


LEFT_OUT_SINCE = "left out by a guard since"
"""Why a recipient of unknown outcome is not sent to again."""


class RecipientStatus(IntEnum):
    """The status of one recipient of a campaign; the results file has these names."""

    NOT_SENT = 0
    SENT = 1
    REJECTED = 2
    UNKNOWN = 3
    INVALID_ROW = 4
    DUPLICATE = 5
    NOT_ALLOWED = 6
    SUPPRESSED = 7
    DND = 8
    LOOKUP_FAILED = 9
    FREQUENCY_CAPPED = 10

    @property
    def word(self) -> str:
        """Return the name as the results file has it."""
        return self.name.lower()


_OUTCOMES = {int(status): status.word for status in RecipientStatus}
_COUNTED = ", ".join(f"count(*) FILTER (WHERE status = {status:d})" for status in RecipientStatus)

LEFT_OUT = (
    RecipientStatus.NOT_ALLOWED,
    RecipientStatus.SUPPRESSED,
    RecipientStatus.DND,
    RecipientStatus.LOOKUP_FAILED,
    RecipientStatus.FREQUENCY_CAPPED,
)
"""Recipients that a guard leaves out."""


class Recipient(NamedTuple):
    """One recipient as planned.

    :param row: where in the source; 0 for a test recipient
    :param words: JSON of the values of the placeholders, in their order; ``None`` where nothing is personal
    """

    place: int
    row: int
    member: bytes
    address: str
    words: str | None
    pages: int | None
    zone: str | None


class RecipientRow(NamedTuple):
    """One line of the plan as it is made."""

    row: int
    status: int
    member: bytes | None = None
    address: str | None = None
    words: str | None = None
    pages: int | None = None
    encoding: str | None = None
    zone: str | None = None
    reason: str | None = None


make_recipient_row: Callable[[tuple[Any, ...]], RecipientRow] = partial(tuple.__new__, RecipientRow)
"""Makes a line out of all its fields in half the time."""


class RecipientTable:
    """The plan, in a file that has no name and is gone with the process, whatever ends that.

    :param folder: a folder of the local disk; ``None`` for the system's own for temporary files
    """

    def __init__(self, folder: str | None = None) -> None:
        self._database = _anonymous_database(folder)
        self._database.executescript(_TABLES)
        self._kept_back: dict[str, list[Sequence[Any]]] = {}
        self._counts: dict[RecipientStatus, int] = {}
        self._counted_at = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the disk back."""
        self._database.close()

    @property
    def database(self) -> sqlite3.Connection:
        """The database, nothing kept back: to be asked for anew each time."""
        for change, rows in self._kept_back.items():
            self._database.executemany(change, rows)
        self._kept_back.clear()
        return self._database

    def change(self, change: str, row: Sequence[Any]) -> None:
        """Make a change, many of a kind together: one by one they cost more than all else a request needs here."""
        rows = self._kept_back.setdefault(change, [])
        rows.append(row)
        if len(rows) >= _AT_ONCE:
            _ = self.database

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Keep what changes in memory, as far as it has room, until the end: a write a change is dear."""
        self.database.execute("BEGIN")
        try:
            yield
        finally:
            self.database.execute("COMMIT")

    def add(self, lines: Iterable[RecipientRow]) -> None:
        """Add lines at the end."""
        self.database.executemany(
            "INSERT INTO recipient (row, status, member, address, words, pages, encoding, zone, reason) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            lines,
        )

    def suppress(self, members: Iterable[bytes]) -> None:
        """Record recipients that must not be sent to."""
        self.database.executemany("INSERT OR IGNORE INTO suppressed VALUES (?)", ((member,) for member in members))

    def has_suppressed(self) -> bool:
        """Return whether there are recipients that must not be sent to."""
        return self.database.execute("SELECT 1 FROM suppressed LIMIT 1").fetchone() is not None

    def deduplicate_and_suppress(self) -> None:
        """Mark all but the first line of a recipient, and suppressed recipients; once, when all lines are there."""
        self.database.execute("CREATE INDEX by_member ON recipient (member) WHERE member IS NOT NULL")
        # A recipient with one line is read from the index alone, in its order.
        self.database.execute(
            """UPDATE recipient SET status = ?, reason = 'the same recipient as '
                || CASE first.row WHEN 0 THEN 'a test recipient' ELSE 'row ' || first.row END
            FROM (
                SELECT member, min(place) AS place FROM recipient WHERE member IS NOT NULL
                GROUP BY member HAVING count(*) > 1
            ) AS several JOIN recipient AS first ON first.place = several.place
            WHERE recipient.member = several.member AND recipient.place > several.place""",
            (RecipientStatus.DUPLICATE,),
        )
        self.database.execute(
            "UPDATE recipient SET status = ? WHERE status = ? AND member IN (SELECT member FROM suppressed)",
            (RecipientStatus.SUPPRESSED, RecipientStatus.NOT_SENT),
        )

    def counts(self) -> dict[RecipientStatus, int]:
        """Return how many there are of each status."""
        changes = self.database.total_changes
        if changes != self._counted_at:
            # To group lines SQLite would sort them all, in as much memory again as its cache has.
            found = self.database.execute(f"SELECT {_COUNTED} FROM recipient").fetchone()  # noqa: S608 - ours
            self._counts = dict(zip(RecipientStatus, found, strict=True))
            self._counted_at = changes
        return dict(self._counts)

    def lengths(self) -> list[tuple[str, int, int]]:
        """Return how many texts of the recipients travel in which encoding and take how many pages."""
        query = "SELECT encoding, pages FROM recipient WHERE status < ? AND pages IS NOT NULL"
        # Not grouped by SQLite, for the same reason.
        found = Counter(self.database.execute(query, (RecipientStatus.INVALID_ROW,)))
        return [(encoding, pages, count) for (encoding, pages), count in sorted(found.items())]

    def units(self, status: RecipientStatus) -> int:
        """Return the billable units of recipients of a status: pages, or recipients where pages are not known."""
        query = "SELECT coalesce(sum(coalesce(pages, 1)), 0) FROM recipient WHERE status = ?"
        units: int = self.database.execute(query, (status,)).fetchone()[0]
        return units

    def unpriced(self) -> int:
        """Return the units of accepted requests whose charge is not known."""
        query = (
            "SELECT coalesce(sum(coalesce(pages, 1)), 0) FROM recipient JOIN request ON number = request "
            "WHERE status = ? AND charge IS NULL"
        )
        units: int = self.database.execute(query, (RecipientStatus.SENT,)).fetchone()[0]
        return units

    def tests(self, statuses: Sequence[RecipientStatus]) -> tuple[RecipientStatus, str | None] | None:
        """Return the first of the test recipients with one of these statuses, and why."""
        marks = ", ".join("?" * len(statuses))
        query = (
            "SELECT status, coalesce(recipient.reason, request.reason) FROM recipient "  # noqa: S608 - only question marks
            f"LEFT JOIN request ON number = request WHERE row = 0 AND status IN ({marks}) ORDER BY place LIMIT 1"
        )
        found = self.database.execute(query, statuses).fetchone()
        return None if found is None else (RecipientStatus(found[0]), found[1])

    def zones(self, *, tests: bool = False) -> list[str | None]:
        """Return the time zones of recipients that are not sent to yet, or of the test recipients among them."""
        query = f"SELECT DISTINCT zone FROM recipient WHERE status = ?{' AND row = 0' if tests else ''}"  # noqa: S608 - ours
        return [zone for (zone,) in self.database.execute(query, (RecipientStatus.NOT_SENT,))]

    def not_sent(self, zones: Sequence[str | None] | None = None, after: int = 0) -> Iterator[Recipient]:
        """Yield recipients to send to, in order, while the status of the first of them changes.

        :param zones: only of these time zones; ``None`` for all
        :param after: the place to begin behind
        """
        condition, values = "", list[Any]()
        if zones is not None:
            condition = f" AND coalesce(zone, '') IN ({', '.join('?' * len(zones))})"
            values = [zone or "" for zone in zones]
        query = (
            "SELECT place, row, member, address, words, pages, zone FROM recipient "  # noqa: S608 - only question marks
            f"WHERE place > ? AND status = ?{condition} ORDER BY place LIMIT ?"
        )
        while True:
            found = self.database.execute(query, (after, RecipientStatus.NOT_SENT, *values, _AT_ONCE)).fetchall()
            yield from map(Recipient._make, found)
            if len(found) < _AT_ONCE:
                return
            after = found[-1][0]

    def set_status(
        self, places: Sequence[int], status: RecipientStatus, request: int | None = None, reason: str | None = None
    ) -> None:
        """Set the status of recipients by their places, each of them once."""
        for first, last in _runs(places):
            self.change(
                "UPDATE recipient SET status = ?, request = ?, reason = ? WHERE place BETWEEN ? AND ?",
                (status, request, reason, first, last),
            )

    def exclude(self, places: Iterable[int], status: RecipientStatus, reason: str | None = None) -> None:
        """Record that a guard leaves recipients out; those of unknown outcome stay so, and are not sent to again."""
        self.database.executemany(
            "UPDATE recipient SET reason = CASE status WHEN :unknown THEN :since ELSE :reason END, "
            "status = CASE status WHEN :unknown THEN :unknown ELSE :status END WHERE place = :place",
            (
                {
                    "place": place,
                    "status": status,
                    "reason": reason,
                    "unknown": RecipientStatus.UNKNOWN,
                    "since": LEFT_OUT_SINCE,
                }
                for place in places
            ),
        )

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """Yield every line with its request, in order."""
        query = """
            SELECT recipient.row, address, status, pages, request.reference, request.id,
                coalesce(recipient.reason, request.reason)
            FROM recipient LEFT JOIN request ON request.number = recipient.request ORDER BY place"""
        with closing(self.database.cursor()) as cursor:
            for row, address, status, pages, reference, message_id, reason in cursor.execute(query):
                yield {
                    "row": row,
                    "recipient": address,
                    "outcome": _OUTCOMES[status],
                    "pages": pages,
                    "reference": reference,
                    "message_id": message_id,
                    "reason": reason,
                }


def _runs(places: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last of each run of places without a gap; those of one request have few gaps."""
    begin = 0
    for end in range(1, len(places) + 1):
        if end == len(places) or places[end] != places[end - 1] + 1:
            yield places[begin], places[end - 1]
            begin = end


def _anonymous_database(folder: str | None) -> sqlite3.Connection:
    """Open a database whose file is taken out of its folder at once, so that no number stays behind."""
    handle, name = tempfile.mkstemp(prefix="cpaas-plan-", dir=folder)
    os.close(handle)
    try:
        # The loop's thread uses it, and so does the one that writes the outcome file; never both at once.
        database = sqlite3.connect(name, isolation_level=None, check_same_thread=False)
        database.execute("PRAGMA journal_mode = OFF")
        database.execute("PRAGMA synchronous = OFF")
        database.execute("PRAGMA locking_mode = EXCLUSIVE")
        database.execute("PRAGMA temp_store = FILE")
        database.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        # The file is opened with the first write.
        database.execute("CREATE TABLE opened (yes)")
    finally:
        Path(name).unlink()
    return database
