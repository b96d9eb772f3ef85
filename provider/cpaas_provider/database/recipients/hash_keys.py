"""The keyed hashes that stand for recipients in the database, the same in every process that uses it.

A key is derived from a random salt in the database and a secret in Airflow's configuration. There are few enough phone
numbers to try them all. Without a secret, a copy of the database is enough to find the number of each hash.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from operator import itemgetter
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Row, Table, delete, insert, select

from cpaas_provider.database.bulk import batched
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.database.recipients.locks import lock_for_writing
from cpaas_provider.database.schema.recipients import hash_keys

HASH_BYTES = 16
SHORTEST_SECRET = 16
"""The characters of a secret below which it can be guessed."""


class HashSecretMissingError(DatabaseError):
    """The database has hashes that are keyed with a secret which this process does not have."""


class RecipientHasher:
    """Computes the hashes of recipients.

    :param keys: ids and keys, those of the newest secret first
    """

    def __init__(self, keys: Sequence[tuple[str, bytes]]) -> None:
        self.key_id, self._newest = keys[0]
        self._keys = [key for _, key in keys]
        self.key_ids = frozenset(key_id for key_id, _ in keys)

    def hash(self, recipient: str) -> bytes:
        """Return the hash under which a recipient is stored.

        :param recipient: the digits of a number in international form, or an email address
        """
        return _keyed(self._newest, recipient)

    def hashes(self, recipient: str) -> list[bytes]:
        """Return every hash under which a recipient may be stored, one for each key."""
        return [_keyed(key, recipient) for key in self._keys]

    def by_hash(self, recipients: Iterable[str]) -> dict[bytes, str]:
        """Return the recipients by every hash under which they may be stored."""
        return {value: recipient for recipient in recipients for value in self.hashes(recipient)}


def read_hasher(connection: Connection) -> RecipientHasher | None:
    """Return the hasher for reading, ``None`` if no recipient was ever stored.

    :raises HashSecretMissingError: when this process lacks the secret of a key
    """
    keys, _ = _read(connection)
    return RecipientHasher(keys) if keys else None


def writing_hasher(connection: Connection) -> RecipientHasher:
    """Return the hasher for writing. Create a key of the newest secret if there is none.

    :param connection: in a transaction that writes
    :raises HashSecretMissingError: when this process lacks the secret of a key
    """
    keys, has_newest = _read(connection)
    if not has_newest:
        # Of two processes that create the first key at once, the second must use the key of the first.
        lock_for_writing(connection, "hash_keys")
        keys, has_newest = _read(connection)
    if not has_newest:
        salt = secrets.token_hex(16)
        key = _derive(_configured()[0], salt)
        row = {"key_id": _id_of(key), "salt": salt, "created_at": datetime.now(UTC)}
        connection.execute(insert(hash_keys).values(row))
        keys = [(_id_of(key), key), *keys]
    return RecipientHasher(keys)


def find_rows(
    connection: Connection,
    hasher: RecipientHasher,
    recipients: Iterable[str],
    columns: Sequence[Column[Any]],
    *conditions: ColumnElement[bool],
) -> Iterator[tuple[str, Row[Any]]]:
    """Yield recipients with their rows in a table, whichever key these are hashed with.

    :param columns: what to read; the first is the column of the hashes
    """
    for batch in batched(recipients):
        by_hash = hasher.by_hash(batch)
        for hashes in batched(by_hash):
            for row in connection.execute(select(*columns).where(columns[0].in_(hashes), *conditions)):
                yield by_hash[bytes(row[0])], row


def delete_rows(
    connection: Connection, table: Table, recipients: Iterable[str], *conditions: ColumnElement[bool]
) -> int:
    """Delete the rows of recipients in a table with the column ``recipient_hash``, and return their number."""
    if (hasher := read_hasher(connection)) is None:
        return 0
    deleted = 0
    for hashes in batched(hasher.by_hash(recipients)):
        deleted += connection.execute(delete(table).where(table.c.recipient_hash.in_(hashes), *conditions)).rowcount
    return deleted


def weak_secret_reason(connection: Connection | None) -> str | None:
    """Return what is wrong with the configured secret, ``None`` if nothing is. Shows no secret.

    :param connection: ``None`` without a database
    :raises HashSecretMissingError: when this process lacks the secret of a key in the database
    """
    configured = _configured()
    keys = [] if connection is None else _read(connection)[0]
    if configured == [""]:
        return "[cpaas] recipient_secret is not set. A copy of the database is enough to find the number of each hash."
    if any(len(secret) < SHORTEST_SECRET for secret in configured):
        return f"[cpaas] recipient_secret has a secret of less than {SHORTEST_SECRET} characters, which can be guessed."
    if connection is not None:
        rows = connection.execute(select(hash_keys.c.key_id, hash_keys.c.salt))
        if any(_id_of(_derive("", row.salt)) == row.key_id for row in rows) and keys:
            return (
                "The database has a key of the time before [cpaas] recipient_secret was set. A copy of the database is "
                "enough to find the numbers of the hashes of that time."
            )
    return None


def _read(connection: Connection) -> tuple[list[tuple[str, bytes]], bool]:
    """Return the keys, those of the newest secret first, and whether there is one of the newest secret."""
    rows = connection.execute(select(hash_keys.c.key_id, hash_keys.c.salt).order_by(hash_keys.c.created_at)).all()
    if not rows:
        return [], False
    configured = _configured()
    # A key that was created before a secret was configured stays readable.
    candidates = [*configured, ""] if configured != [""] else configured
    ranked: list[tuple[int, str, bytes]] = []
    for row in rows:
        for age, secret in enumerate(candidates):
            key = _derive(secret, row.salt)
            if _id_of(key) == row.key_id:
                ranked.append((age, row.key_id, key))
                break
        else:
            raise HashSecretMissingError(
                "The database has hashes of recipients that are keyed with a secret this process does not have. It "
                "cannot find recipients on the suppression list. Set [cpaas] recipient_secret to the same secrets on "
                "all workers, the API server and wherever commands run. List an old secret behind a new one."
            )
    ranked.sort(key=itemgetter(0))
    return [(key_id, key) for _, key_id, key in ranked], ranked[0][0] == 0


def _configured() -> list[str]:
    """Return the configured secrets, the newest first; an empty one if none is configured."""
    from airflow.sdk.configuration import conf

    text = conf.get("cpaas", "recipient_secret", fallback=None) or ""
    return [secret for part in text.split(",") if (secret := part.strip())] or [""]


def _derive(secret: str, salt: str) -> bytes:
    return hmac.digest(salt.encode(), f"recipients\0{secret}".encode(), sha256)


def _id_of(key: bytes) -> str:
    """Return the id of a key, which does not reveal it."""
    return hmac.digest(key, b"key_id", sha256)[:8].hex()


def _keyed(key: bytes, recipient: str) -> bytes:
    # In lower case, because sources write the same email address in different cases.
    return hmac.digest(key, b"recipient\0" + recipient.lower().encode(), sha256)[:HASH_BYTES]
