"""Hashes of what a report says, made without letting other threads run."""

from __future__ import annotations

from hashlib import sha256
from typing import Protocol

CHUNK = 2047
"""Bytes that Python hashes at a time without letting other threads run."""


class Hashed(Protocol):
    """A hash that is being made."""

    def update(self, data: bytes, /) -> None:
        """Take in what comes next."""


def update_in_chunks(hashed: Hashed, data: bytes) -> None:
    """Have a hash take in any number of bytes.

    For more than a piece Python gives way to other threads, and waits longer for its next turn than the hash takes.
    """
    if len(data) <= CHUNK:
        hashed.update(data)
        return
    for start in range(0, len(data), CHUNK):
        hashed.update(data[start : start + CHUNK])


def sha256_digest(data: bytes) -> bytes:
    """Return the SHA-256 of data, likewise."""
    hashed = sha256(data[:CHUNK])
    if len(data) > CHUNK:
        update_in_chunks(hashed, data[CHUNK:])
    return hashed.digest()
