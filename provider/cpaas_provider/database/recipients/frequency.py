"""How many messages of a category recipients got lately, over all DAGs: counted before a request leaves."""

from __future__ import annotations

import functools
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
"""Longest period that messages are counted in. Older ones are pruned."""

MAX_CATEGORY = 100


@dataclass(frozen=True)
class Cap:
    """How many messages of a category a recipient may get within a period.

    :param messages: ``None`` counts messages, and limits none
    """

    category: str
    messages: int | None
    period: timedelta


class MessageCounts:
    """Counts messages to recipients.

    A message is known by its send, so that a retry of the send does not count it again. Between two sends to the same
    recipient at the same time, the database decides: no more than the cap allows are counted.

    :param send: the name of a send in all its tries
    """

    def __init__(self, database: Database, cap: Cap, send: str) -> None:
        self._database = database
        self._cap = cap
        self._send = send

    def reserve(self, recipients: Sequence[str], now: datetime | None = None) -> frozenset[str]:
        """Count a message to each recipient who may get one, in one transaction a batch, and return the others.

        :raises DatabaseError: when the database cannot be written; some of it may have been
        """
        at = now or datetime.now(UTC)
        capped: set[str] = set()
        for some in batched(dict.fromkeys(recipients)):
            capped |= self._database.write(partial(_reserve, cap=self._cap, send=self._send, recipients=some, at=at))
        return frozenset(capped)

    def release(self, recipients: Sequence[str]) -> None:
        """Do not count the messages of this send to recipients: they were not sent.

        :raises DatabaseError: when the database cannot be written; some of it may have been
        """
        for some in batched(dict.fromkeys(recipients)):
            self._database.write(partial(_release, cap=self._cap, send=self._send, recipients=some))


def erase_counts(database: Database, recipients: Iterable[str]) -> int:
    """Delete the counted messages to one recipient, and return how many there were.

    :param recipients: the forms in which the recipient may be stored
    :raises DatabaseError: when the database cannot be written
    """

    def work(connection: Connection) -> int:
        if (hasher := read_hasher(connection)) is None:
            return 0
        hashes = [one for recipient in wanted for one in hasher.hashes(recipient)]
        return connection.execute(delete(message_counts).where(message_counts.c.recipient_hash.in_(hashes))).rowcount

    wanted = list(recipients)
    return database.write(work)


def _reserve(connection: Connection, cap: Cap, send: str, recipients: Sequence[str], at: datetime) -> set[str]:
    # Of two sends to the same recipient, the second counts what the first has counted.
    lock_for_writing(connection, _lock_name(cap))
    hasher = writing_hasher(connection)
    since = at - cap.period
    counted = _counted(connection, hasher, cap.category, recipients)
    capped, new, again = set[str](), list[dict[str, Any]](), list[bytes]()
    for recipient in recipients:
        messages = counted.get(recipient, [])
        own = next((one for one in messages if one.send == send), None)
        if own is not None and own.at > since:
            # It may leave only now, and counts from then on.
            again.append(own.recipient_hash)
            continue
        others = sum(1 for one in messages if one.send != send and one.at > since)
        if cap.messages is not None and others >= cap.messages:
            capped.add(recipient)
        elif own is not None:
            again.append(own.recipient_hash)
        else:
            row = {"category": cap.category, "recipient_hash": hasher.hash(recipient), "send": send, "counted_at": at}
            new.append(row)
    if again:
        theirs = (*_of_send(cap.category, send, again), message_counts.c.counted_at < at)
        connection.execute(update(message_counts).where(*theirs).values(counted_at=at))
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
    """Return the counted messages of each recipient, under whatever key they are hashed."""
    whose = {one: recipient for recipient in recipients for one in hasher.hashes(recipient)}
    columns = message_counts.c
    found: dict[str, list[_Message]] = {}
    for some in batched(whose):
        query = select(columns.recipient_hash, columns.send, columns.counted_at).where(
            columns.category == category, columns.recipient_hash.in_(some)
        )
        for row in connection.execute(query):
            message = _Message(bytes(row.recipient_hash), row.send, row.counted_at)
            found.setdefault(whose[message.recipient_hash], []).append(message)
    return found


def _release(connection: Connection, cap: Cap, send: str, recipients: Sequence[str]) -> None:
    # What counts them at this moment, in another thread that is not waited for, comes first.
    lock_for_writing(connection, _lock_name(cap))
    if (hasher := read_hasher(connection)) is None:
        return
    for some in batched(one for recipient in recipients for one in hasher.hashes(recipient)):
        connection.execute(delete(message_counts).where(*_of_send(cap.category, send, some)))


def _lock_name(cap: Cap) -> str:
    return f"message_counts\0{cap.category}"


def _of_send(category: str, send: str, hashes: Sequence[bytes]) -> tuple[Any, ...]:
    columns = message_counts.c
    return columns.category == category, columns.send == send, columns.recipient_hash.in_(hashes)


def _insert(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    if connection.dialect.name in ("sqlite", "postgresql"):
        insert_many(connection, _insertion(), rows)
    else:
        connection.execute(insert(message_counts), list(rows))


@functools.cache
def _insertion() -> Any:
    return insert(message_counts)
