"""Keyed hashes, which the key map stores instead of keys, rows and cells. They show nothing of a contact."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

KEY_BYTES = 16
_COLUMN_BYTES = 4
_CELL_BYTES = 8
_ENTRY_BYTES = _COLUMN_BYTES + _CELL_BYTES

BUCKETS = 65_536
"""The number of buckets. The first two bytes of a key's hash are its bucket."""


class ContactHashes:
    """The hashes of one key map.

    :param secret: the map's own secret, so that the same contact has another hash in another map
    """

    def __init__(self, secret: str) -> None:
        self._secret = blake2b(secret.encode(), digest_size=32).digest()

    def of_key(self, key: Sequence[str]) -> bytes:
        """Return the hash of a key, which may have several parts."""
        # A part may contain any character, so each is preceded by its length.
        text = key[0] if len(key) == 1 else "".join(f"{len(part)}:{part}" for part in key)
        return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=KEY_BYTES, key=self._secret).digest()

    def row_secret(self, signature: str) -> bytes:
        """Return the key for ``of_row``. It depends on the mapping, so a changed mapping changes the hash of each row.

        :param signature: everything but a row's values that its cells depend on
        """
        return blake2b(signature.encode("utf-8", "surrogatepass"), digest_size=32, key=self._secret).digest()

    @staticmethod
    def of_row(row_secret: bytes, values: tuple[Any, ...]) -> bytes:
        """Return the hash of a source row's values. Values of different types have different hashes."""
        return blake2b(repr(values).encode("utf-8", "surrogatepass"), digest_size=KEY_BYTES, key=row_secret).digest()

    def of_cells(self, cells: Mapping[str, Any]) -> CellHashes:
        """Return the hashes of a row's cells.

        :param cells: by column id, as on the wire
        """
        return CellHashes({column_tag(column): self.of_cell(column, cell) for column, cell in cells.items()})

    def of_cell(self, column: str, cell: Any) -> bytes:
        """Return the hash of one cell, as on the wire."""
        text = json.dumps([column, cell], ensure_ascii=True, separators=(",", ":"), sort_keys=True)
        return blake2b(text.encode(), digest_size=_CELL_BYTES, key=self._secret).digest()


class CellHashes(dict[bytes, bytes]):
    """The hashes of the known cells of a row of the list, by ``column_tag``."""

    @classmethod
    def from_bytes(cls, packed: bytes | None) -> CellHashes:
        """Read the result of ``to_bytes``."""
        packed = packed or b""
        entries = (packed[start : start + _ENTRY_BYTES] for start in range(0, len(packed), _ENTRY_BYTES))
        return cls((entry[:_COLUMN_BYTES], entry[_COLUMN_BYTES:]) for entry in entries)

    def to_bytes(self) -> bytes:
        """Return the hashes as bytes, for the database."""
        return b"".join(column + cell for column, cell in sorted(self.items()))

    def has(self, column: str, cell_hash: bytes) -> bool:
        """Tell whether the column is known to have this cell."""
        return self.get(column_tag(column)) == cell_hash

    def without(self, columns: Iterable[str]) -> CellHashes:
        """Return the hashes of all other columns."""
        tags = {column_tag(column) for column in columns}
        return CellHashes({tag: cell for tag, cell in self.items() if tag not in tags})


@functools.cache
def column_tag(column: str) -> bytes:
    """Return the four bytes that stand for a column in the hashes of a row's cells."""
    return blake2b(column.encode("utf-8", "surrogatepass"), digest_size=_COLUMN_BYTES).digest()


def bucket_of(key_hash: bytes) -> int:
    """Return the bucket of a key, 0 to 65,535."""
    return int.from_bytes(key_hash[:2])


def first_hash(bucket: int) -> bytes:
    """Return the smallest hash that a key of a bucket may have."""
    return bucket.to_bytes(2).ljust(KEY_BYTES, b"\0")


def buckets_of(part: int, of: int) -> tuple[int, int]:
    """Return the first bucket of a partition, and the first bucket after it.

    :param part: the number of the partition, from 0
    :param of: the number of partitions
    """
    return part * BUCKETS // of, (part + 1) * BUCKETS // of
