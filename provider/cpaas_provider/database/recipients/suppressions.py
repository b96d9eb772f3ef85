"""The stored suppression list: recipients that are not sent to, why, and since when."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, delete, func, insert, select, tuple_
from sqlalchemy.dialects import postgresql, sqlite

from cpaas_provider.database.bulk import batched, insert_many
from cpaas_provider.database.database import Database
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.database.recipients.hash_keys import RecipientHasher, read_hasher, writing_hasher
from cpaas_provider.database.recipients.locks import lock_for_writing
from cpaas_provider.database.schema import suppressions

OPT_OUT, COMPLAINT, HARD_BOUNCE, INVALID_NUMBER = "opt_out", "complaint", "hard_bounce", "invalid_number"
REASONS = (OPT_OUT, COMPLAINT, HARD_BOUNCE, INVALID_NUMBER)
"""Why a recipient is on the list, the strongest reason first."""

WISHES = frozenset({OPT_OUT, COMPLAINT})
"""Reasons that are the recipient's own. They outlive an erasure, as the wish would be lost with them."""

CHANNELS = ("all", "sms", "whatsapp", "email")
ALL_CONNECTIONS = ""
MAX_SOURCE = 100

_PAGE_ROWS = 1_000


class OtherHashKeyError(DatabaseError):
    """An exported entry is hashed with a key that this database does not have."""


class Suppression(NamedTuple):
    """One entry of the list.

    :param recipient_hash: keyed, see ``hash_keys``
    :param conn_id: the connection it holds for; empty for all of them
    :param source: where it comes from, in words that name no recipient
    """

    recipient_hash: bytes
    key_id: str
    channel: str
    conn_id: str
    reason: str
    source: str
    added_at: datetime


class Listed(NamedTuple):
    """What is added to the list for a recipient whose number or address is known.

    :param recipient: the digits of a number in international form, or an email address
    """

    recipient: str
    reason: str
    source: str
    channel: str = "all"
    conn_id: str = ALL_CONNECTIONS


class SuppressionTable:
    """The stored suppression list."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, listed: Iterable[Listed]) -> int:
        """Add recipients, each with its reason, and return how many entries are new.

        :raises DatabaseError: when the database cannot be written; some of them may have been
        """
        return sum(self._database.write(partial(add_listed, listed=some)) for some in batched(listed))

    def restore(self, entries: Iterable[Suppression]) -> int:
        """Add entries as an export has them, and return how many are new.

        :raises OtherHashKeyError: when the hash of one is keyed otherwise than those of this database
        :raises DatabaseError: when the database cannot be written; some of them may have been
        """
        return sum(self._database.write(partial(_restore, entries=some)) for some in batched(entries))

    def remove(self, recipients: Sequence[str], where: Mapping[str, str] | None = None) -> int:
        """Remove the entries of recipients, and return how many there were.

        :param where: only those with this ``channel``, ``conn_id`` or ``reason``
        :raises DatabaseError: when the database cannot be written
        """
        return sum(
            self._database.write(partial(_remove, recipients=some, where=where or {})) for some in batched(recipients)
        )

    def holds_any(self, conn_id: str, channel: str, reasons: Iterable[str] = REASONS) -> bool:
        """Return whether the list has any entry that holds for a connection and channel.

        :raises DatabaseError: when the database cannot be read
        """
        query = select(suppressions.c.reason).where(*_holds(conn_id, channel, reasons)).limit(1)
        with self._database.connect() as connection:
            return connection.execute(query).first() is not None

    def find(
        self, recipients: Sequence[str], conn_id: str, channel: str, reasons: Iterable[str] = REASONS
    ) -> dict[str, str]:
        """Return the strongest reason of each of the recipients that is not to be sent to.

        :raises DatabaseError: when the database cannot be read
        """
        holds = _holds(conn_id, channel, reasons)
        with self._database.connect() as connection:
            hasher = read_hasher(connection)
            found: dict[str, str] = {}
            for some in batched(recipients):
                found |= _find(connection, hasher, some, holds)
            return found

    def entries(self, where: Mapping[str, str] | None = None) -> Iterator[Suppression]:
        """Yield all entries in the order of their hashes.

        :param where: only those with this ``channel``, ``conn_id`` or ``reason``
        :raises DatabaseError: when the database cannot be read
        """
        yield from self._pages(_equal(where or {}))

    def entries_of(self, recipient: str, where: Mapping[str, str] | None = None) -> Iterator[Suppression]:
        """Yield the entries of one recipient.

        :param where: only those with this ``channel``, ``conn_id`` or ``reason``
        :raises DatabaseError: when the database cannot be read
        """
        with self._database.connect() as connection:
            hasher = read_hasher(connection)
        if hasher is not None:
            whose = suppressions.c.recipient_hash.in_(hasher.hashes(recipient))
            yield from self._pages([whose, *_equal(where or {})])

    def _pages(self, conditions: Sequence[ColumnElement[bool]]) -> Iterator[Suppression]:
        key = tuple(suppressions.primary_key.columns)
        after: ColumnElement[bool] | None = None
        while True:
            query = select(*[suppressions.c[name] for name in Suppression._fields]).where(*conditions)
            with self._database.connect() as connection:
                page = query if after is None else query.where(after)
                rows = connection.execute(page.order_by(*key).limit(_PAGE_ROWS)).all()
            yield from (Suppression(bytes(row[0]), *row[1:]) for row in rows)
            if len(rows) < _PAGE_ROWS:
                return
            last: Any = tuple(getattr(rows[-1], column.name) for column in key)
            after = tuple_(*key) > last

    def counts(self) -> dict[str, int]:
        """Return how many entries there are of each reason.

        :raises DatabaseError: when the database cannot be read
        """
        query = select(suppressions.c.reason, func.count()).group_by(suppressions.c.reason)
        with self._database.connect() as connection:
            return {row[0]: row[1] for row in connection.execute(query)}

    def erase(self, recipients: Iterable[str]) -> tuple[int, int]:
        """Remove what is no wish of the recipient, and return how many entries went and how many stay.

        :param recipients: the forms in which one recipient may be stored
        :raises DatabaseError: when the database cannot be written
        """
        return self._database.write(partial(_erase, recipients=list(recipients)))


def add_listed(connection: Connection, listed: Sequence[Listed], hasher: RecipientHasher | None = None) -> int:
    """Add recipients within a transaction, and return how many entries are new."""
    if not listed:
        return 0
    hasher = hasher or writing_hasher(connection)
    now = datetime.now(UTC)
    return _insert(
        connection,
        [
            Suppression(
                hasher.hash(one.recipient), hasher.key_id, one.channel, one.conn_id, one.reason, one.source, now
            )
            for one in listed
        ],
        # Who is there under an older key is there.
        _there_by_older_key(connection, hasher, listed),
    )


def _there_by_older_key(
    connection: Connection, hasher: RecipientHasher, listed: Sequence[Listed]
) -> set[tuple[bytes, str, str, str]]:
    if len(hasher.key_ids) == 1:
        return set()
    newest = {old: hasher.hash(one.recipient) for one in listed for old in hasher.hashes(one.recipient)}
    key = [suppressions.c[name] for name in ("recipient_hash", "channel", "conn_id", "reason")]
    found: set[tuple[bytes, str, str, str]] = set()
    for some in batched(newest):
        for row in connection.execute(select(*key).where(suppressions.c.recipient_hash.in_(some))):
            found.add((newest[bytes(row.recipient_hash)], row.channel, row.conn_id, row.reason))
    return found


def _key_of(entry: Suppression) -> tuple[bytes, str, str, str]:
    return entry.recipient_hash, entry.channel, entry.conn_id, entry.reason


def _insert(
    connection: Connection, entries: Iterable[Suppression], there: Iterable[tuple[bytes, str, str, str]] = ()
) -> int:
    """Insert the entries that are not there yet, and return how many."""
    known = set(there)
    # In one order, or two processes could wait for each other.
    new = {key: one for one in entries if (key := _key_of(one)) not in known}
    rows = [new[key]._asdict() for key in sorted(new)]
    if (insertion := _insertion(connection.dialect.name)) is not None:
        return len(insert_many(connection, insertion, rows))
    lock_for_writing(connection, "suppressions")
    columns = [suppressions.c[name] for name in ("recipient_hash", "channel", "conn_id", "reason")]
    hashes = [row["recipient_hash"] for row in rows]
    stored = {(bytes(row[0]), *row[1:]) for row in connection.execute(select(*columns).where(columns[0].in_(hashes)))}
    missing = [row for row, key in zip(rows, sorted(new), strict=True) if key not in stored]
    if missing:
        connection.execute(insert(suppressions), missing)
    return len(missing)


@functools.cache
def _insertion(dialect: str) -> Any:
    inserts: dict[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}
    if dialect not in inserts:
        return None
    return inserts[dialect](suppressions).on_conflict_do_nothing().returning(suppressions.c.reason)


def _restore(connection: Connection, entries: Sequence[Suppression]) -> int:
    hasher = read_hasher(connection)
    known = frozenset() if hasher is None else hasher.key_ids
    if any(one.key_id not in known for one in entries):
        raise OtherHashKeyError(
            "Entries of the export are hashed with a key that this database does not have, so they would match no "
            "recipient. An export can be imported only into the database that it comes from, or into a copy of it."
        )
    return _insert(connection, entries)


def _remove(connection: Connection, recipients: Sequence[str], where: Mapping[str, str]) -> int:
    if (hasher := read_hasher(connection)) is None:
        return 0
    removed = 0
    for some in batched(one for recipient in recipients for one in hasher.hashes(recipient)):
        gone = delete(suppressions).where(suppressions.c.recipient_hash.in_(some), *_equal(where))
        removed += connection.execute(gone).rowcount
    return removed


def _erase(connection: Connection, recipients: Sequence[str]) -> tuple[int, int]:
    if (hasher := read_hasher(connection)) is None:
        return 0, 0
    hashes = [one for recipient in recipients for one in hasher.hashes(recipient)]
    theirs = suppressions.c.recipient_hash.in_(hashes)
    gone = connection.execute(delete(suppressions).where(theirs, suppressions.c.reason.not_in(sorted(WISHES)))).rowcount
    stay: int = connection.execute(select(func.count()).select_from(suppressions).where(theirs)).scalar_one()
    return gone, stay


def _holds(conn_id: str, channel: str, reasons: Iterable[str]) -> list[ColumnElement[bool]]:
    return [
        suppressions.c.conn_id.in_(sorted({ALL_CONNECTIONS, conn_id})),
        suppressions.c.channel.in_(sorted({"all", channel})),
        suppressions.c.reason.in_(sorted(reasons)),
    ]


def _equal(where: Mapping[str, str]) -> list[ColumnElement[bool]]:
    return [suppressions.c[name] == value for name, value in where.items()]


def _find(
    connection: Connection,
    hasher: RecipientHasher | None,
    recipients: Sequence[str],
    holds: Sequence[ColumnElement[bool]],
) -> dict[str, str]:
    if hasher is None:
        return {}
    whose = {one: recipient for recipient in recipients for one in hasher.hashes(recipient)}
    reasons: dict[str, set[str]] = {}
    for some in batched(whose):
        query = select(suppressions.c.recipient_hash, suppressions.c.reason).where(
            suppressions.c.recipient_hash.in_(some), *holds
        )
        for row in connection.execute(query):
            reasons.setdefault(whose[bytes(row.recipient_hash)], set()).add(row.reason)
    return {recipient: min(found, key=REASONS.index) for recipient, found in reasons.items()}
