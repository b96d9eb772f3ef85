"""The recipients of a campaign and their status: an SQLite table on disk, so that a million take little memory."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from enum import IntEnum
from typing import Any, NamedTuple, Self

from cpaas_provider._common.local_files import open_unnamed_database

_CACHE_KIB = 8_000
_ROWS_PER_STATEMENT = 1_000

_TABLES = """
CREATE TABLE recipient (
    position INTEGER PRIMARY KEY, row INTEGER, status INTEGER NOT NULL, member BLOB, address TEXT,
    placeholder_values TEXT, pages INTEGER, encoding TEXT, zone TEXT, request INTEGER, reason TEXT,
    saved_pages INTEGER
);
CREATE TABLE request (
    number INTEGER PRIMARY KEY, reference TEXT, state INTEGER NOT NULL, body TEXT, at REAL, size INTEGER,
    id TEXT, charge REAL, balance REAL, reason TEXT
);
CREATE TABLE recipient_request (member BLOB, request INTEGER, values_hash BLOB);
CREATE TABLE left_out (member BLOB, request INTEGER);
CREATE TABLE suppressed (member BLOB PRIMARY KEY) WITHOUT ROWID;
"""


LEFT_OUT_SINCE = "left out by a guard since"
"""The reason recorded for a recipient of unknown outcome that a guard now excludes, so that it is not sent to again."""


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
    RecipientStatus.FREQUENCY_CAPPED,
)
"""Recipients that a guard leaves out."""

FAILED = (RecipientStatus.REJECTED, RecipientStatus.INVALID_ROW, RecipientStatus.LOOKUP_FAILED)
"""Recipients and rows that count as failures for ``max_failure_ratio``. That a lookup failed is no property of the
recipient, so it is a failure of the campaign and not a guard."""


class Recipient(NamedTuple):
    """One recipient, as read from the table.

    :param position: the number of the recipient in the table, from 1
    :param row: the number of its row in the source; 0 for a test recipient
    :param member: the keyed hash of the recipient
    :param placeholder_values: JSON list of the values of the placeholders, in their order; ``None`` without
    :param pages: SMS pages of its text; ``None`` where that is not known
    """

    position: int
    row: int
    member: bytes
    address: str
    placeholder_values: str | None
    pages: int | None
    zone: str | None


class RecipientRow(NamedTuple):
    """One row of the source, as it is added to the table.

    :param saved_pages: the pages that ``encoding="gsm7"`` saves; ``None`` where they are not counted
    """

    row: int
    status: int
    member: bytes | None = None
    address: str | None = None
    placeholder_values: str | None = None
    pages: int | None = None
    encoding: str | None = None
    zone: str | None = None
    reason: str | None = None
    saved_pages: int | None = None


class RecipientTable:
    """The table, in a file without a name: the operating system removes it when the process ends, even if killed.

    :param folder: a folder on a local disk; ``None`` for the system's folder for temporary files
    """

    def __init__(self, folder: str | None = None) -> None:
        self._database = open_unnamed_database(folder, _CACHE_KIB)
        self._database.isolation_level = None
        self._database.executescript(_TABLES)
        self._buffered: dict[str, list[Sequence[Any]]] = {}
        self._counts: dict[RecipientStatus, int] = {}
        self._counted_at = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database, which frees its disk space."""
        self._database.close()

    @property
    def database(self) -> sqlite3.Connection:
        """The connection, after all buffered changes are made. Read this property again for each statement."""
        for statement, rows in self._buffered.items():
            self._database.executemany(statement, rows)
        self._buffered.clear()
        return self._database

    def change(self, statement: str, row: Sequence[Any]) -> None:
        """Buffer a change, to run a statement for many rows at once: single changes dominated the cost of a request."""
        if (rows := self._buffered.get(statement)) is None:
            rows = self._buffered[statement] = []
        rows.append(row)
        if len(rows) >= _ROWS_PER_STATEMENT:
            _ = self.database  # makes the buffered changes

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run what is within in one transaction: SQLite then keeps changes in its cache instead of writing each."""
        self.database.execute("BEGIN")
        try:
            yield
        finally:
            self.database.execute("COMMIT")

    def add(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Add rows at the end.

        :param rows: each with the fields of ``RecipientRow``; an empty text counts as ``None``
        """
        self.database.executemany(
            "INSERT INTO recipient (row, status, member, address, placeholder_values, pages, encoding, zone, reason, "
            "saved_pages) VALUES (?, ?, ?, ?, NULLIF(?, ''), NULLIF(?, ''), NULLIF(?, ''), NULLIF(?, ''), "
            "NULLIF(?, ''), NULLIF(?, ''))",
            rows,
        )

    def suppress(self, members: Iterable[bytes]) -> None:
        """Record recipients that must not be sent to."""
        self.database.executemany(
            "INSERT OR IGNORE INTO suppressed VALUES (?)", ((bytearray(member),) for member in members)
        )

    def has_suppressed(self) -> bool:
        """Return whether there are recipients that must not be sent to."""
        return self.database.execute("SELECT 1 FROM suppressed LIMIT 1").fetchone() is not None

    def deduplicate_and_suppress(self) -> None:
        """Mark suppressed recipients, and all rows of a recipient but the first; once, after the last row is added."""
        self.database.execute("CREATE INDEX by_member ON recipient (member) WHERE member IS NOT NULL")
        # The inner query reads the index alone, in its order. Only duplicates need the table.
        self.database.execute(
            """UPDATE recipient SET status = ?, reason = 'the same recipient as '
                || CASE first.row WHEN 0 THEN 'a test recipient' ELSE 'row ' || first.row END
            FROM (
                SELECT member, min(position) AS position FROM recipient WHERE member IS NOT NULL
                GROUP BY member HAVING count(*) > 1
            ) AS several JOIN recipient AS first ON first.position = several.position
            WHERE recipient.member = several.member AND recipient.position > several.position""",
            (RecipientStatus.DUPLICATE,),
        )
        self.database.execute(
            "UPDATE recipient SET status = ? WHERE status = ? AND member IN (SELECT member FROM suppressed)",
            (RecipientStatus.SUPPRESSED, RecipientStatus.NOT_SENT),
        )

    def counts(self) -> dict[RecipientStatus, int]:
        """Return the number of rows of each status."""
        changes = self.database.total_changes
        if changes != self._counted_at:
            # GROUP BY would sort all rows, which takes as much memory again as the cache of SQLite.
            counts = self.database.execute(f"SELECT {_COUNTED} FROM recipient").fetchone()  # noqa: S608 - ours
            self._counts = dict(zip(RecipientStatus, counts, strict=True))
            self._counted_at = changes
        return dict(self._counts)

    def lengths(self) -> list[tuple[str, int, int]]:
        """Return the texts by encoding and pages: ``(encoding, pages, number of texts)``."""
        query = "SELECT encoding, pages FROM recipient WHERE status < ? AND pages IS NOT NULL"
        # Counted here, because GROUP BY would sort all rows.
        texts = Counter(self.database.execute(query, (RecipientStatus.INVALID_ROW,)))
        return [(encoding, pages, count) for (encoding, pages), count in sorted(texts.items())]

    def saved_pages(self) -> int | None:
        """Return the pages that ``encoding="gsm7"`` saves; ``None`` where they were not counted."""
        query = "SELECT sum(saved_pages) FROM recipient WHERE status < ?"
        saved: int | None = self.database.execute(query, (RecipientStatus.INVALID_ROW,)).fetchone()[0]
        return saved

    def units(self, status: RecipientStatus) -> int:
        """Return the billable units of recipients of a status: pages, or recipients where pages are not known."""
        query = "SELECT coalesce(sum(coalesce(pages, 1)), 0) FROM recipient WHERE status = ?"
        units: int = self.database.execute(query, (status,)).fetchone()[0]
        return units

    def tests(self, statuses: Sequence[RecipientStatus]) -> tuple[RecipientStatus, str | None] | None:
        """Return status and reason of the first test recipient with one of the statuses; ``None`` if there is none."""
        marks = ", ".join("?" * len(statuses))
        query = (
            "SELECT status, coalesce(recipient.reason, request.reason) FROM recipient "  # noqa: S608 - only question marks
            f"LEFT JOIN request ON number = request WHERE row = 0 AND status IN ({marks}) ORDER BY position LIMIT 1"
        )
        found = self.database.execute(query, statuses).fetchone()
        return None if found is None else (RecipientStatus(found[0]), found[1])

    def zones(self, *, tests: bool = False) -> list[str | None]:
        """Return the time zones of recipients that are not sent to yet, or of the test recipients among them."""
        query = f"SELECT DISTINCT zone FROM recipient WHERE status = ?{' AND row = 0' if tests else ''}"  # noqa: S608 - ours
        return [zone for (zone,) in self.database.execute(query, (RecipientStatus.NOT_SENT,))]

    def not_sent(self, zones: Sequence[str | None] | None = None, *, tests: bool = False) -> Iterator[Recipient]:
        """Yield the recipients to send to, in order. The status of those already yielded may change meanwhile.

        :param zones: only recipients of these time zones; ``None`` for all
        :param tests: only test recipients
        """
        condition, values, after = " AND row = 0" if tests else "", list[Any](), 0
        if zones is not None:
            condition += f" AND coalesce(zone, '') IN ({', '.join('?' * len(zones))})"
            values = [zone or "" for zone in zones]
        query = (
            "SELECT position, row, member, address, placeholder_values, pages, zone FROM recipient "  # noqa: S608 - only question marks
            f"WHERE position > ? AND status = ?{condition} ORDER BY position LIMIT ?"
        )
        while True:
            arguments = (after, RecipientStatus.NOT_SENT, *values, _ROWS_PER_STATEMENT)
            rows = self.database.execute(query, arguments).fetchall()
            yield from map(Recipient._make, rows)
            if len(rows) < _ROWS_PER_STATEMENT:
                return
            after = rows[-1][0]

    def set_status(
        self, positions: Sequence[int], status: RecipientStatus, request: int | None = None, reason: str | None = None
    ) -> None:
        """Set the status of the recipients at some positions. No position may be given twice."""
        for first, last in [(positions[0], positions[0])] if len(positions) == 1 else _runs(positions):
            self.change(
                "UPDATE recipient SET status = ?, request = ?, reason = ? WHERE position BETWEEN ? AND ?",
                (status, request, reason, first, last),
            )

    def exclude(self, positions: Iterable[int], status: RecipientStatus, reason: str | None = None) -> None:
        """Record that a guard excludes recipients.

        A recipient of unknown outcome keeps that status, with the reason ``LEFT_OUT_SINCE``: it is not sent to again.
        """
        self.database.executemany(
            "UPDATE recipient SET reason = CASE status WHEN :unknown THEN :since ELSE :reason END, "
            "status = CASE status WHEN :unknown THEN :unknown ELSE :status END WHERE position = :position",
            (
                {
                    "position": position,
                    "status": status,
                    "reason": reason,
                    "unknown": RecipientStatus.UNKNOWN,
                    "since": LEFT_OUT_SINCE,
                }
                for position in positions
            ),
        )

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """Yield every row with its request, in order, as the results file has it."""
        query = """
            SELECT recipient.row, address, status, pages, request.reference, request.id,
                coalesce(recipient.reason, request.reason)
            FROM recipient LEFT JOIN request ON request.number = recipient.request ORDER BY position"""
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


def _runs(positions: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last of each run of consecutive positions. Those of one request have few gaps."""
    begin = 0
    for end in range(1, len(positions) + 1):
        if end == len(positions) or positions[end] != positions[end - 1] + 1:
            yield positions[begin], positions[end - 1]
            begin = end
