"""Counts the messages of a category to each recipient, over all DAGs. A message is counted before it is sent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from msgspec import Struct
from sqlalchemy import Connection, Row, and_, insert, update

from cpaas_provider.database.bulk import batched, insert_many
from cpaas_provider.database.database import Database
from cpaas_provider.database.recipients.hash_keys import delete_rows, find_rows, writing_hasher
from cpaas_provider.database.recipients.locks import lock_for_writing
from cpaas_provider.database.schema.recipients import message_counts

MAX_PERIOD = timedelta(days=90)
"""The longest period of a cap. Older messages are pruned."""

CONTACT_SEPARATOR = "/"
"""Ends the part of a send's name that it shares with other sends. Their messages to a recipient count as one."""

_INSERTION = insert(message_counts)


class Cap(Struct, frozen=True):
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
    the cap, as they take a lock in the database. Sends of one contact each count their message, so that a message which
    one of them gives back still counts for another one. For the cap they are one.

    :param send: the name of the send, the same in all its tries; may begin with the name of a contact
    """

    def __init__(self, database: Database, cap: Cap, send: str) -> None:
        self._database = database
        self._cap = cap
        self._send = send
        self._contact = _contact_of(send)
        self._lock_name = f"message_counts\0{cap.category}"
        self._is_of_category = message_counts.c.category == cap.category
        self._is_of_send = and_(self._is_of_category, message_counts.c.send == send)

    def reserve(self, recipients: Sequence[str], now: datetime | None = None) -> frozenset[str]:
        """Count a message to each recipient that may get one, and return the recipients that may not.

        :raises DatabaseError: when the database cannot be written; some batches may have been counted
        """
        at = now or datetime.now(UTC)
        capped: set[str] = set()
        for batch in batched(dict.fromkeys(recipients)):
            capped |= self._database.write(partial(self._reserve, recipients=batch, at=at))
        return frozenset(capped)

    def release(self, recipients: Sequence[str]) -> None:
        """Remove this send's counted messages to recipients, because they were not sent.

        :raises DatabaseError: when the database cannot be written; some batches may have been removed
        """
        for batch in batched(dict.fromkeys(recipients)):
            self._database.write(partial(self._release, recipients=batch))

    def _reserve(self, connection: Connection, recipients: Sequence[str], at: datetime) -> set[str]:
        # Of two sends to the same recipient, the second must see what the first counted.
        lock_for_writing(connection, self._lock_name)
        hasher = writing_hasher(connection)
        since, columns = at - self._cap.period, message_counts.c
        read = (columns.recipient_hash, columns.send, columns.counted_at)
        counted: defaultdict[str, list[Row[Any]]] = defaultdict(list)
        for recipient, row in find_rows(connection, hasher, recipients, read, self._is_of_category):
            counted[recipient].append(row)
        capped, new, again = set[str](), list[dict[str, Any]](), list[bytes]()
        for recipient in recipients:
            own = next((row for row in counted[recipient] if row.send == self._send), None)
            contacts = {_contact_of(row.send) for row in counted[recipient] if row.counted_at > since}
            is_counted = self._contact in contacts
            if not is_counted and self._cap.messages is not None and len(contacts) >= self._cap.messages:
                capped.add(recipient)
            elif own is not None:
                # A message of an earlier try may be sent only now. It counts from now on.
                again.append(bytes(own.recipient_hash))
            else:
                values = {"recipient_hash": hasher.hash(recipient), "send": self._send, "counted_at": at}
                new.append({"category": self._cap.category, **values})
        if again:
            is_earlier = and_(self._is_of_send, columns.recipient_hash.in_(again), columns.counted_at < at)
            connection.execute(update(message_counts).where(is_earlier).values(counted_at=at))
        insert_many(connection, _INSERTION, new)
        return capped

    def _release(self, connection: Connection, recipients: Sequence[str]) -> None:
        # Another thread of this task may still be counting them. It must finish first.
        lock_for_writing(connection, self._lock_name)
        delete_rows(connection, message_counts, recipients, self._is_of_send)


def _contact_of(send: str) -> str:
    """Return what a send counts as, together with the other sends of its contact."""
    return send.partition(CONTACT_SEPARATOR)[0]


def erase_counts(database: Database, recipients: Iterable[str]) -> int:
    """Delete the counted messages to one recipient, and return their number.

    :param recipients: the forms in which the recipient may be stored
    :raises DatabaseError: when the database cannot be written
    """
    forms = list(recipients)
    return database.write(lambda connection: delete_rows(connection, message_counts, forms))
