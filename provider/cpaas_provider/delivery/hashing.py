"""Hashes of reports, computed without releasing Python's global interpreter lock."""

from __future__ import annotations

from typing import Any

CHUNK = 2047
"""The most bytes that Python hashes without releasing the lock."""


def digest_in_chunks(hashed: Any, data: bytes) -> bytes:
    """Add any number of bytes to a hash object of ``hashlib`` or ``hmac``, and return its digest.

    For more than ``CHUNK`` bytes Python releases the lock. To get it back from other threads takes longer than hashing.
    """
    for start in range(0, len(data), CHUNK):
        hashed.update(data[start : start + CHUNK])
    digest: bytes = hashed.digest()
    return digest
