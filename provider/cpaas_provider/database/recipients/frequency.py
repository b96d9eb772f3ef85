"""Counts the messages of a category to each recipient, over all DAGs. A message is counted before it is sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from cpaas_provider.database.bulk import batched, insert_many
from cpaas_provider.database.database import Database
from cpaas_provider.database.recipients.hash_keys import RecipientHasher, read_hasher, writing_hasher
from cpaas_provider.database.recipients.locks import lock_for_writing
from cpaas_provider.database.schema import message_counts

MAX_PERIOD = timedelta(days=90)
"""The longest period of a cap. Older messages are pruned."""

_INSERTION = insert(message_counts)


@dataclass(frozen=True)
class Cap:
    """The number of messages of a category that a recipient may get within a period.

    :param messages: ``None`` for no limit; messages are counted nevertheless
    :param period: at most ``MAX_PERIOD``
    """

    category: str
    messages: int | None
    period: timedelta


class MessageCounts:
    """Counts messages to recipients.

    A message is identified by its send, so a retry of the send does not count it again. Concurrent sends cannot exceed
    the cap, as they take a lock in the database.

    :param send: the name of the send, the same in all its tries
    """

    def __init__(self, database: Database, cap: Cap, send: str) -> None:
        self._database = database
        self._cap = cap
        self._send = send

    def reserve(self, recipients: Sequence[str], now: datetime | None = None) -> frozenset[str]:
        """Count a message to each recipient that may get one, and return the recipients that may not.

        :raises DatabaseError: when the database cannot be written; some batches may have been counted
        """
        at = now or datetime.now(UTC)
        capped: set[str] = set()
        for batch in batched(dict.fromkeys(recipients)):
            capped |= self._database.write(partial(_reserve, cap=self._cap, send=self._send, recipients=batch, at=at))
        return frozenset(capped)

    def release(self, recipients: Sequence[str]) -> None:
        """Remove this send's counted messages to recipients, because they were not sent.

        :raises DatabaseError: when the database cannot be written; some batches may have been removed
        """
        for batch in batched(dict.fromkeys(recipients)):
            self._database.write(partial(_release, cap=self._cap, send=self._send, recipients=batch))


def erase_counts(database: Database, recipients: Iterable[str]) -> int:
    """Delete the counted messages to one recipient, and return their number.

    :param recipients: the forms in which the recipient may be stored
    :raises DatabaseError: when the database cannot be written
    """

    def work(connection: Connection) -> int:
        if (hasher := read_hasher(connection)) is None:
            return 0
        hashes = list(hasher.by_hash(forms))
        return connection.execute(delete(message_counts).where(message_counts.c.recipient_hash.in_(hashes))).rowcount

    forms = list(recipients)
    return database.write(work)


def _reserve(connection: Connection, cap: Cap, send: str, recipients: Sequence[str], at: datetime) -> set[str]:
    # Of two sends to the same recipient, the second must see what the first counted.
    lock_for_writing(connection, _lock_name(cap))
    hasher = writing_hasher(connection)
    since = at - cap.period
    counted = _counted(connection, hasher, cap.category, recipients)
    capped, new, again = set[str](), list[dict[str, Any]](), list[bytes]()
    for recipient in recipients:
        messages = counted.get(recipient, [])
        own = next((message for message in messages if message.send == send), None)
        if own is not None and own.at > since:
            # A message of an earlier try may be sent only now. It counts from now on.
            again.append(own.recipient_hash)
            continue
        others = sum(1 for message in messages if message.send != send and message.at > since)
        if cap.messages is not None and others >= cap.messages:
            capped.add(recipient)
        elif own is not None:
            again.append(own.recipient_hash)
        else:
            row = {"category": cap.category, "recipient_hash": hasher.hash(recipient), "send": send, "counted_at": at}
            new.append(row)
    if again:
        of_send = (*_of_send(cap.category, send, again), message_counts.c.counted_at < at)
        connection.execute(update(message_counts).where(*of_send).values(counted_at=at))
    if new:
        _insert(connection, new)
    return capped


@dataclass(frozen=True, slots=True)
class _Message:
    recipient_hash: bytes
    send: str
    at: datetime


def _counted(
    connection: Connection, hasher: RecipientHasher, category: str, recipients: Sequence[str]
) -> Mapping[str, list[_Message]]:
    """Return the counted messages of each recipient, whichever key they are hashed with."""
    by_hash = hasher.by_hash(recipients)
    columns = message_counts.c
    counted: dict[str, list[_Message]] = {}
    for hashes in batched(by_hash):
        query = select(columns.recipient_hash, columns.send, columns.counted_at).where(
            columns.category == category, columns.recipient_hash.in_(hashes)
        )
        for row in connection.execute(query):
            message = _Message(bytes(row.recipient_hash), row.send, row.counted_at)
            counted.setdefault(by_hash[message.recipient_hash], []).append(message)
    return counted


def _release(connection: Connection, cap: Cap, send: str, recipients: Sequence[str]) -> None:
    # Another thread of this task may still be counting them. It must finish first.
    lock_for_writing(connection, _lock_name(cap))
    if (hasher := read_hasher(connection)) is None:
        return
    for hashes in batched(hasher.by_hash(recipients)):
        connection.execute(delete(message_counts).where(*_of_send(cap.category, send, hashes)))


def _lock_name(cap: Cap) -> str:
    return f"message_counts\0{cap.category}"


def _of_send(category: str, send: str, hashes: Sequence[bytes]) -> tuple[Any, ...]:
    columns = message_counts.c
    return columns.category == category, columns.send == send, columns.recipient_hash.in_(hashes)


def _insert(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    if connection.dialect.name in ("sqlite", "postgresql"):
        insert_many(connection, _INSERTION, rows)
    else:
        connection.execute(_INSERTION, list(rows))
