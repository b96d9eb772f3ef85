"""Hashes of reports, computed without releasing Python's global interpreter lock."""

from __future__ import annotations

from hashlib import sha256
from typing import Protocol

CHUNK = 2047
"""The most bytes that Python hashes without releasing the lock."""


class Hashed(Protocol):
    """A hash object of ``hashlib`` or ``hmac``."""

    def update(self, data: bytes, /) -> None:
        """Add data to the hash."""


def update_in_chunks(hashed: Hashed, data: bytes) -> None:
    """Add any number of bytes to a hash.

    For more than ``CHUNK`` bytes Python releases the lock. To get it back from other threads takes longer than hashing.
    """
    for start in range(0, len(data), CHUNK):
        hashed.update(data[start : start + CHUNK])


def sha256_digest(data: bytes) -> bytes:
    """Return the SHA-256 of data."""
    hashed = sha256()
    update_in_chunks(hashed, data)
    return hashed.digest()
