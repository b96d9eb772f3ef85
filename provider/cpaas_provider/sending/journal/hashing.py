"""Keyed hashes: the journal identifies recipients, contents and requests by them, and stores none of these."""

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
"""Two of a million recipients have the same hash in one of ten thousand million campaigns."""

VALUES_HASH_BYTES = 6

_USUAL_CHANNELS = frozenset({"sms", "email"})
"""Channels that the operation says already."""

_INNER_PAD, _OUTER_PAD = (bytes(byte ^ pad for byte in range(256)) for pad in (0x36, 0x5C))
_REFERENCE_PREFIX = "cpaas-"
_LETTERS = str.maketrans("0123456789abcdef", "abcdefghijklmnop")


class KeyedHasher:
    """Makes the hashes of one send, the same in each try.

    There are few enough phone numbers to hash each of them. So the key is a secret that is not stored with the journal.

    :param secret: a secret of the connection
    :param identity: the identity of the send, see ``task_identity`` and ``campaign_identity``
    """

    def __init__(self, secret: str, identity: Sequence[str | int]) -> None:
        key = hmac.digest(secret.encode(), _canonical(["journal", *identity]), sha256)
        # HMAC of RFC 2104, written out: to copy two hash objects takes half the time of copying an HMAC object.
        block = key.ljust(sha256().block_size, b"\0")
        self._inner, self._outer = sha256(block.translate(_INNER_PAD)), sha256(block.translate(_OUTER_PAD))
        self._values = self._started("words\0")
        self._requests: dict[tuple[str, str, int], _Hash] = {}

    @property
    def key_id(self) -> str:
        """Identifies the secret that a journal was written with. The secret cannot be derived from it."""
        return self._hash("lock")

    def member_hasher(self, operation: str, channel: str = "sms") -> Callable[[str], bytes]:
        """Return what hashes the normalised recipients of an operation, in ``MEMBER_BYTES``.

        :param channel: as ``channel_of`` returns it. A message by another channel is another message
        """
        kind = operation if channel in _USUAL_CHANNELS else f"{operation}/{channel}"
        started = self._started(f"member\0{kind}\0")
        ignores_case = channel == "email"
        digest = self._hmac

        def member(recipient: str) -> bytes:
            return digest((recipient.lower() if ignores_case else recipient).encode(), started)[:MEMBER_BYTES]

        return member

    def values_hash(self, values: str) -> bytes:
        """Return the hash of the placeholder values of one recipient, in ``VALUES_HASH_BYTES``."""
        return self._hmac(values.encode(), self._values)[:VALUES_HASH_BYTES]

    def personalisation_hash(self, values: Any) -> bytes:
        """Return ``values_hash`` of any JSON. The order of mappings does not count."""
        return self.values_hash(_canonical(values).decode())

    def reference(self, operation: str, members: Iterable[bytes], nonce: str, resend_epoch: int) -> str:
        """Return the reference of a request to members. Their order does not count.

        :param members: the hashes of its recipients, as of ``member_hasher``
        :param nonce: the random part of the journal's names. A run that is made again has the same identity
        :param resend_epoch: counts the clears after which all recipients are sent to again
        """
        send = operation, nonce, resend_epoch
        if (started := self._requests.get(send)) is None:
            started = self._requests[send] = self._started("pack\0{}\0{}\0{}\0".format(*send))
        digest = self._hmac(b"".join(sorted(members)), started)[:12]
        # Faster than base32. Letters only, so that a reference is never taken for a phone number or a passcode.
        return _REFERENCE_PREFIX + digest.hex().translate(_LETTERS)

    def body(self, fields: Mapping[str, Any]) -> str:
        """Return the hash of the content. The order of the fields does not count."""
        return self._hash("body", fields)

    def _hash(self, *parts: Any) -> str:
        return b32encode(self._hmac(_canonical(list(parts)))[:10]).decode().lower()

    def _started(self, prefix: str) -> _Hash:
        """Return the inner hash after a prefix, for messages that begin with it."""
        inner = self._inner.copy()
        inner.update(prefix.encode())
        return inner

    def _hmac(self, message: bytes, started: _Hash | None = None) -> bytes:
        inner, outer = (self._inner if started is None else started).copy(), self._outer.copy()
        inner.update(message)
        outer.update(inner.digest())
        return outer.digest()


def lookup_hashers(secrets: Sequence[str]) -> list[Callable[[str], bytes]]:
    """Return what hashes a number as the cache of lookups knows it: one for each secret, that of new entries first."""
    return [KeyedHasher(secret, ("lookups",)).member_hasher("lookup_phone") for secret in secrets]


def campaign_identity(idempotency_key: str) -> tuple[str | int, ...]:
    """Return the identity of a campaign with an idempotency key, the same in all runs."""
    return "campaign", idempotency_key


def task_identity(dag_id: str, run_id: str, task_id: str, map_index: int) -> tuple[str | int, ...]:
    """Return the identity of a task instance, the same in all tries."""
    return "task", dag_id, run_id, task_id, map_index


def _canonical(value: Any) -> bytes:
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), default=str).encode()


def _plain(value: Any) -> Any:
    """Return a value that JSON writes in the same way in every process: text as keys, and sets sorted."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, (set, frozenset)):
        return sorted(_canonical(one).decode() for one in value)
    return value
