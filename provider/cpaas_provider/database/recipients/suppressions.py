"""The stored suppression list: the recipients that get no message, and the reasons."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, and_, func, insert, select, tuple_, update

from cpaas_provider.database.activity.upsert import insert_into
from cpaas_provider.database.bulk import batched, insert_many
from cpaas_provider.database.database import Database
from cpaas_provider.database.default_file import ALL_CHANNELS, ALL_CONNECTIONS
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.database.recipients.hash_keys import (
    RecipientHasher,
    delete_rows,
    find_rows,
    read_hasher,
    writing_hasher,
)
from cpaas_provider.database.recipients.locks import lock_for_writing
from cpaas_provider.database.schema.base import REPORT_DIALECTS, has_conn_id
from cpaas_provider.database.schema.recipients import suppressions

OPT_OUT, COMPLAINT, HARD_BOUNCE, INVALID_NUMBER = "opt_out", "complaint", "hard_bounce", "invalid_number"
REASONS = (OPT_OUT, COMPLAINT, HARD_BOUNCE, INVALID_NUMBER)
"""Why a recipient is on the list, the strongest reason first."""

WISHES = frozenset({OPT_OUT, COMPLAINT})
"""The reasons that are the recipient's own wish. An erasure keeps these entries, because the wish must stay known."""

CHANNELS = (ALL_CHANNELS, "sms", "whatsapp", "email")
MAX_SOURCE = 100

_PAGE_ROWS = 1_000
_KEY = tuple(suppressions.primary_key.columns)

Key = tuple[bytes, str, str, str]
"""The primary key of an entry: hash, channel, connection and reason."""


class OtherHashKeyError(DatabaseError):
    """An exported entry is hashed with a key that this database does not have."""


class Suppression(NamedTuple):
    """One stored entry of the list.

    :param recipient_hash: the keyed hash, see ``hash_keys``
    :param key_id: the id of the hash's key
    :param conn_id: the connection to which the entry applies, in lower case; empty for all
    :param source: where the entry comes from, without personal data
    :param reported_at: the time of the newest delivery report that lists the recipient; ``None`` if a person added it
    """

    recipient_hash: bytes
    key_id: str
    channel: str
    conn_id: str
    reason: str
    source: str
    added_at: datetime
    reported_at: datetime | None = None


class Listed(NamedTuple):
    """An entry to add to the list, with the recipient in clear.

    :param recipient: the digits of a number in international form, or an email address
    :param conn_id: the connection to which the entry applies; empty for all
    :param reported_at: the time of the delivery report that lists the recipient; ``None`` if a person does
    """

    recipient: str
    reason: str
    source: str
    channel: str = ALL_CHANNELS
    conn_id: str = ALL_CONNECTIONS
    reported_at: datetime | None = None


class SuppressionTable:
    """The stored suppression list."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, listed: Iterable[Listed]) -> int:
        """Add entries, and return the number of new ones.

        :raises DatabaseError: when the database cannot be written; some entries may have been added
        """
        return sum(self._database.write(partial(add_listed, listed=batch)) for batch in batched(listed))

    def restore(self, entries: Iterable[Suppression]) -> int:
        """Add the entries of an export, and return the number of new ones.

        :raises OtherHashKeyError: when a hash is keyed with a key that this database does not have
        :raises DatabaseError: when the database cannot be written; some entries may have been added
        """

        def work(connection: Connection, batch: Sequence[Suppression]) -> int:
            hasher = read_hasher(connection)
            known = frozenset() if hasher is None else hasher.key_ids
            if any(entry.key_id not in known for entry in batch):
                raise OtherHashKeyError(
                    "Entries of the export are hashed with a key that this database does not have, so they would match "
                    "no recipient. An export can be imported only into the database that it comes from, or into a copy "
                    "of it."
                )
            batch = [entry._replace(conn_id=entry.conn_id.lower()) for entry in batch]
            _take_over(connection, batch, {entry.recipient_hash: entry.recipient_hash for entry in batch})
            return _insert(connection, batch)

        return sum(self._database.write(partial(work, batch=batch)) for batch in batched(entries))

    def remove(self, recipients: Sequence[str], where: Mapping[str, str] | None = None) -> int:
        """Remove the entries of recipients, and return their number.

        :param where: only those with this ``channel``, ``conn_id`` or ``reason``
        :raises DatabaseError: when the database cannot be written; some entries may have been removed
        """

        def work(connection: Connection, batch: Sequence[str]) -> int:
            if connection.dialect.name in REPORT_DIALECTS:
                _forget_failures(connection, batch, where or {})
            return delete_rows(connection, suppressions, batch, *_equal(where))

        return sum(self._database.write(partial(work, batch=batch)) for batch in batched(recipients))

    def holds_any(self, conn_id: str, channel: str, reasons: Iterable[str] | None = None) -> bool:
        """Return whether any entry applies to a connection and channel.

        :raises DatabaseError: when the database cannot be read
        """
        query = select(suppressions.c.reason).where(*_applies(conn_id, channel, reasons)).limit(1)
        with self._database.connect() as connection:
            return connection.execute(query).first() is not None

    def find(
        self, recipients: Sequence[str], conn_id: str, channel: str, reasons: Iterable[str] | None = None
    ) -> dict[str, str]:
        """Return the suppressed recipients among those given, each with its strongest reason.

        :raises DatabaseError: when the database cannot be read
        """
        reasons_of: defaultdict[str, set[str]] = defaultdict(set)
        columns = (suppressions.c.recipient_hash, suppressions.c.reason)
        with self._database.connect() as connection:
            if (hasher := read_hasher(connection)) is not None:
                applies = _applies(conn_id, channel, reasons)
                for recipient, row in find_rows(connection, hasher, recipients, columns, *applies):
                    reasons_of[recipient].add(row.reason)
        return {recipient: min(found, key=REASONS.index) for recipient, found in reasons_of.items()}

    def entries(self, where: Mapping[str, str] | None = None) -> Iterator[Suppression]:
        """Yield all entries in the order of their hashes.

        :param where: only those with this ``channel``, ``conn_id`` or ``reason``
        :raises DatabaseError: when the database cannot be read
        """
        yield from self._pages(_equal(where))

    def entries_of(self, recipient: str, where: Mapping[str, str] | None = None) -> Iterator[Suppression]:
        """Yield the entries of one recipient.

        :param where: only those with this ``channel``, ``conn_id`` or ``reason``
        :raises DatabaseError: when the database cannot be read
        """
        with self._database.connect() as connection:
            hasher = read_hasher(connection)
        if hasher is not None:
            is_recipient = suppressions.c.recipient_hash.in_(hasher.hashes(recipient))
            yield from self._pages([is_recipient, *_equal(where)])

    def _pages(self, conditions: Sequence[ColumnElement[bool]]) -> Iterator[Suppression]:
        query = select(*[suppressions.c[name] for name in Suppression._fields]).where(*conditions)
        page = query = query.order_by(*_KEY).limit(_PAGE_ROWS)
        while True:
            with self._database.connect() as connection:
                rows = connection.execute(page).all()
            yield from (Suppression(bytes(row[0]), *row[1:]) for row in rows)
            if len(rows) < _PAGE_ROWS:
                return
            last: Any = tuple(getattr(rows[-1], column.name) for column in _KEY)
            page = query.where(tuple_(*_KEY) > last)

    def counts(self) -> dict[str, int]:
        """Return the number of entries by reason.

        :raises DatabaseError: when the database cannot be read
        """
        query = select(suppressions.c.reason, func.count()).group_by(suppressions.c.reason)
        with self._database.connect() as connection:
            return {row[0]: row[1] for row in connection.execute(query)}

    def erase(self, recipients: Iterable[str]) -> tuple[int, int]:
        """Remove the entries that are no wish of the recipient, and return how many were removed and how many remain.

        :param recipients: the forms in which one recipient may be stored
        :raises DatabaseError: when the database cannot be written
        """
        forms = list(recipients)

        def work(connection: Connection) -> tuple[int, int]:
            removed = delete_rows(connection, suppressions, forms, suppressions.c.reason.not_in(sorted(WISHES)))
            hasher = read_hasher(connection)
            hashes = [] if hasher is None else list(hasher.by_hash(forms))
            remain = select(func.count()).where(suppressions.c.recipient_hash.in_(hashes))
            return removed, connection.execute(remain).scalar_one()

        return self._database.write(work)


def add_listed(connection: Connection, listed: Sequence[Listed], hasher: RecipientHasher | None = None) -> int:
    """Add entries within a transaction, and return the number of new ones."""
    if not listed:
        return 0
    hasher = hasher or writing_hasher(connection)
    now = datetime.now(UTC)
    entries = [
        Suppression(
            hasher.hash(entry.recipient),
            hasher.key_id,
            entry.channel,
            entry.conn_id.lower(),
            entry.reason,
            entry.source,
            now,
            entry.reported_at,
        )
        for entry in listed
    ]
    hashes = {old: hasher.hash(entry.recipient) for entry in listed for old in hasher.hashes(entry.recipient)}
    _take_over(connection, entries, hashes)
    return _insert(connection, entries, _stored_with_older_key(connection, hasher, listed))


def entry_by_report(recipient: str) -> tuple[str, str]:
    """Return the reason and the channel of the entry that a delivery report of a permanent failure makes."""
    return (HARD_BOUNCE, "email") if "@" in recipient else (INVALID_NUMBER, "sms")


def _take_over(connection: Connection, entries: Iterable[Suppression], newest: Mapping[bytes, bytes]) -> None:
    """Make entries of reports those of the persons who add them now, so that no later report removes them.

    :param newest: by every hash under which a recipient may be stored, the one in the entries
    """
    added = {_key_of(entry): entry for entry in entries if entry.reported_at is None}
    for hashes in batched(newest) if added else ():
        of_reports = and_(suppressions.c.recipient_hash.in_(hashes), suppressions.c.reported_at.is_not(None))
        for key in connection.execute(select(*_KEY).where(of_reports)).all():
            entry = added.get((newest[bytes(key[0])], key[1], key[2], key[3]))
            if entry is not None:
                same = and_(*(column == value for column, value in zip(_KEY, key, strict=True)))
                values = {"source": entry.source, "added_at": entry.added_at, "reported_at": None}
                connection.execute(update(suppressions).where(same).values(values))


def _key_of(entry: Suppression) -> Key:
    return entry.recipient_hash, entry.channel, entry.conn_id, entry.reason


def _forget_failures(connection: Connection, recipients: Sequence[str], where: Mapping[str, str]) -> None:
    """Have reports that arrived so far list recipients no more, as a person removes the entries that they make."""
    conn_id = where.get("conn_id")
    listed = [
        recipient
        for recipient in recipients
        for reason, channel in [entry_by_report(recipient)]
        if where.get("reason", reason) == reason and where.get("channel", channel) == channel
    ]
    # Reports make no entry for all connections.
    if not listed or conn_id == ALL_CONNECTIONS:
        return
    # Imported here, so that a send that reads the list defines few tables.
    from cpaas_provider.database.schema.delivery import deliveries

    failed = and_(deliveries.c.recipient.in_(listed), deliveries.c.permanent_failure_at.is_not(None))
    if conn_id is not None:
        failed = and_(failed, has_conn_id(deliveries.c.conn_id, conn_id))
    connection.execute(update(deliveries).where(failed).values(permanent_failure_at=None))


def _stored_with_older_key(connection: Connection, hasher: RecipientHasher, listed: Sequence[Listed]) -> set[Key]:
    """Return the keys that the listed entries would get, for those that are stored under a hash of an older key."""
    if len(hasher.key_ids) == 1:
        return set()
    newest = {old: hasher.hash(entry.recipient) for entry in listed for old in hasher.hashes(entry.recipient)}
    stored: set[Key] = set()
    for hashes in batched(newest):
        stored |= {(newest[key[0]], *key[1:]) for key in _stored(connection, hashes)}
    return stored


def _stored(connection: Connection, hashes: Sequence[bytes]) -> set[Key]:
    query = select(*_KEY).where(suppressions.c.recipient_hash.in_(hashes))
    return {(bytes(row[0]), *row[1:]) for row in connection.execute(query)}


def _insert(connection: Connection, entries: Iterable[Suppression], stored: Collection[Key] = ()) -> int:
    """Insert the entries that are not stored yet, and return their number."""
    by_key = {_key_of(entry): entry for entry in entries}
    # Sorted, so that two processes cannot deadlock.
    rows = {key: by_key[key]._asdict() for key in sorted(by_key.keys() - stored)}
    if (dialect := connection.dialect.name) in REPORT_DIALECTS:
        return len(insert_many(connection, _insertion(dialect), list(rows.values())))
    lock_for_writing(connection, "suppressions")
    found = _stored(connection, [row["recipient_hash"] for row in rows.values()])
    missing = [row for key, row in rows.items() if key not in found]
    if missing:
        connection.execute(insert(suppressions), missing)
    return len(missing)


@functools.cache
def _insertion(dialect: str) -> Any:
    return insert_into(dialect, suppressions).on_conflict_do_nothing().returning(suppressions.c.reason)


def _applies(conn_id: str, channel: str, reasons: Iterable[str] | None) -> list[ColumnElement[bool]]:
    return [
        suppressions.c.conn_id.in_(sorted({ALL_CONNECTIONS, conn_id.lower()})),
        suppressions.c.channel.in_(sorted({ALL_CHANNELS, channel})),
        suppressions.c.reason.in_(sorted(reasons or REASONS)),
    ]


def _equal(where: Mapping[str, str] | None) -> list[ColumnElement[bool]]:
    # Channels and reasons are lower case.
    return [suppressions.c[name] == value.lower() for name, value in (where or {}).items()]
