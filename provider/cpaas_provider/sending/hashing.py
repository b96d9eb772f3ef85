"""Keyed hashes by which the journal knows people, texts and requests without holding any of them."""

from __future__ import annotations

import hmac
import json
from base64 import b32encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hashlib import _Hash

MEMBER_BYTES = 9
"""Among a million, two are alike once in ten thousand million campaigns."""

WORDS_BYTES = 6

EMAIL_OPERATION = "send_email"

_INNER_PAD, _OUTER_PAD = (bytes(byte ^ pad for byte in range(256)) for pad in (0x36, 0x5C))
_REFERENCE_PREFIX = "cpaas-"
_LETTERS = str.maketrans("0123456789abcdef", "abcdefghijklmnop")


class KeyedHasher:
    """The hashes of one task instance, the same in each of its tries.

    Numbers are few enough to be tried out one by one, so the hash is keyed with a secret that does not lie beside it.

    :param secret: the connection's secret they are keyed with
    :param identity: whose send it is: a task instance (see ``task_identity``), or a campaign that happens once
    """

    def __init__(self, secret: str, identity: Sequence[str | int]) -> None:
        key = hmac.digest(secret.encode(), _canonical(["journal", *identity]), sha256)
        # HMAC as RFC 2104 writes it. Copies of two begun hashes take half of what a copy of an HMAC does.
        block = key.ljust(sha256().block_size, b"\0")
        self._inner, self._outer = sha256(block.translate(_INNER_PAD)), sha256(block.translate(_OUTER_PAD))
        self._words = self._begun("words\0")

    @property
    def key_id(self) -> str:
        """What tells whether a journal was written with the same secret; it opens nothing else."""
        return self._hash("lock")

    def recipient(self, operation: str, recipient: str) -> str:
        """Return the hash of an operation's recipient, which is normalised."""
        return self._hash("recipient", operation, known_by(operation, recipient))

    def member(self, operation: str, recipient: str) -> bytes:
        """Return the same in nine bytes, for journals of a million."""
        return self.member_hasher(operation)(recipient)

    def member_hasher(self, operation: str) -> Callable[[str], bytes]:
        """Return what ``member`` does for one operation: quicker, where many are to be hashed."""
        begun, lower = self._begun(f"member\0{operation}\0"), _knows_no_capitals(operation)

        def member(recipient: str) -> bytes:
            return self._of((recipient.lower() if lower else recipient).encode(), begun)[:MEMBER_BYTES]

        return member

    def words(self, words: str) -> bytes:
        """Return the hash of what is said to one recipient alone, in six bytes."""
        return self._of(words.encode(), self._words)[:WORDS_BYTES]

    def personalisation_hash(self, given: Any) -> bytes:
        """Return the hash of values that one recipient alone gets, in whatever order they stand."""
        return self.words(_canonical(given).decode())

    def batch_reference(self, operation: str, members: Iterable[bytes], resend_epoch: int) -> str:
        """Return the name of a request to members, in whatever order they stand."""
        head = f"pack\0{operation}\0{resend_epoch}\0".encode()
        digest = self._of(head + b"".join(sorted(members)))[:12]
        # Quicker than base32, as there may be a million, and in letters alone, lest one looks like a number or a code.
        return _REFERENCE_PREFIX + digest.hex().translate(_LETTERS)

    def body(self, fields: Mapping[str, Any]) -> str:
        """Return the hash of what is sent, in whatever order its fields stand."""
        return self._hash("body", fields)

    def reference(self, operation: str, members: Iterable[str], resend_epoch: int) -> str:
        """Return the name of a request: the same for the same members, in whatever order they stand.

        :param members: hashes of its recipients
        :param resend_epoch: which deliberate repetition of the whole send it belongs to
        """
        return _named(self._digest("reference", operation, resend_epoch, sorted(members)))

    def _hash(self, *parts: Any) -> str:
        return b32encode(self._digest(*parts)[:10]).decode().lower()

    def _digest(self, *parts: Any) -> bytes:
        return self._of(_canonical(list(parts)))

    def _begun(self, prefix: str) -> _Hash:
        """Return the hash of everything that starts with a prefix, to be gone on with."""
        inner = self._inner.copy()
        inner.update(prefix.encode())
        return inner

    def _of(self, message: bytes, begun: _Hash | None = None) -> bytes:
        inner, outer = (begun or self._inner).copy(), self._outer.copy()
        inner.update(message)
        outer.update(inner.digest())
        return outer.digest()


def known_by(operation: str, recipient: str) -> str:
    """Return what tells a recipient apart. No mailbox tells capitals apart, and lists write them as they like."""
    return recipient.lower() if _knows_no_capitals(operation) else recipient


def _knows_no_capitals(operation: str) -> bool:
    return operation.partition("/")[0] == EMAIL_OPERATION


def lookup_hashers(secrets: Sequence[str]) -> list[Callable[[str], bytes]]:
    """Return what hashes a number as the cache of lookups knows it: one for each secret, that of new entries first."""
    return [KeyedHasher(secret, ("lookups",)).member_hasher("lookup_phone") for secret in secrets]


def campaign_identity(idempotency_key: str) -> tuple[str | int, ...]:
    """Return what a campaign is known by that happens once, whatever run asks for it."""
    return "campaign", idempotency_key


def task_identity(dag_id: str, run_id: str, task_id: str, map_index: int) -> tuple[str | int, ...]:
    """Return what a task instance is known by, whatever its try."""
    return "task", dag_id, run_id, task_id, map_index


def _named(digest: bytes) -> str:
    return _REFERENCE_PREFIX + b32encode(digest[:15]).decode().lower()


def _canonical(value: Any) -> bytes:
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), default=str).encode()


def _plain(value: Any) -> Any:
    """Return what is the same in every process, whatever kinds of keys stand beside each other."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, (set, frozenset)):
        return sorted(_canonical(one).decode() for one in value)
    return value
