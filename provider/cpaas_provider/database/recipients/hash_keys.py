"""The keyed hashes by which the database knows recipients, the same in every process that uses it.

A key is made of a random salt in the database and of a secret in Airflow's configuration. Numbers are few enough to be
tried out one by one: without the secret, a copy of the database is enough for that.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256

from sqlalchemy import Connection, insert, select

from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.database.recipients.locks import lock_for_writing
from cpaas_provider.database.schema import hash_keys

HASH_BYTES = 16


class HashSecretMissingError(DatabaseError):
    """The database has recipients whose hashes are keyed with a secret that this process does not have."""


class RecipientHasher:
    """The hashes of recipients.

    :param keys: ids and keys, the newest first
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
        """Return every hash under which a recipient may be stored: one for each key there is."""
        return [_keyed(key, recipient) for key in self._keys]


def read_hasher(connection: Connection) -> RecipientHasher | None:
    """Return the hashes of recipients, ``None`` if no recipient was ever stored.

    :raises HashSecretMissingError: when this process lacks the secret of a key
    """
    keys, _ = _read(connection)
    return RecipientHasher(keys) if keys else None


def writing_hasher(connection: Connection) -> RecipientHasher:
    """Return the hashes of recipients, with a key of the newest secret. To be used in a transaction that writes.

    :raises HashSecretMissingError: when this process lacks the secret of a key
    """
    keys, has_newest = _read(connection)
    if not has_newest:
        # Of two processes that make the first key at once, the second uses that of the first.
        lock_for_writing(connection, "hash_keys")
        keys, has_newest = _read(connection)
    if not has_newest:
        salt = secrets.token_hex(16)
        key = _derive(_configured()[0], salt)
        row = {"key_id": _id_of(key), "salt": salt, "created_at": datetime.now(UTC)}
        connection.execute(insert(hash_keys).values(row))
        keys = [(_id_of(key), key), *keys]
    return RecipientHasher(keys)


def _read(connection: Connection) -> tuple[list[tuple[str, bytes]], bool]:
    """Return the keys, those of the newest secret first, and whether there is one of the newest secret."""
    rows = connection.execute(select(hash_keys.c.key_id, hash_keys.c.salt).order_by(hash_keys.c.created_at)).all()
    if not rows:
        return [], False
    configured = _configured()
    # A key from before there was a secret stays readable.
    candidates = [*configured, ""] if configured != [""] else configured
    found: list[tuple[int, str, bytes]] = []
    for row in rows:
        for age, secret in enumerate(candidates):
            key = _derive(secret, row.salt)
            if _id_of(key) == row.key_id:
                found.append((age, row.key_id, key))
                break
        else:
            raise HashSecretMissingError(
                "The database has hashes of recipients that are keyed with a secret this process does not have. It "
                "cannot find recipients on the suppression list. Set [cpaas] recipient_secret to the same secrets on "
                "all workers, the API server and wherever commands run. List an old secret behind a new one."
            )
    found.sort(key=lambda one: one[0])
    return [(key_id, key) for _, key_id, key in found], found[0][0] == 0


def _configured() -> list[str]:
    """Return the configured secrets, the newest first; an empty one where there is none."""
    from airflow.sdk.configuration import conf

    given = conf.get("cpaas", "recipient_secret", fallback=None) or ""
    return [text for part in given.split(",") if (text := part.strip())] or [""]


def _derive(secret: str, salt: str) -> bytes:
    return hmac.digest(salt.encode(), f"recipients\0{secret}".encode(), sha256)


def _id_of(key: bytes) -> str:
    """Return what tells a key from others; it opens nothing."""
    return hmac.digest(key, b"key_id", sha256)[:8].hex()


def _keyed(key: bytes, recipient: str) -> bytes:
    # No mailbox tells capitals apart, and lists write them as they like.
    return hmac.digest(key, b"recipient\0" + recipient.lower().encode(), sha256)[:HASH_BYTES]
