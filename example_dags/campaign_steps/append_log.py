"""An append-only file of entries, so that a later try continues where this one ended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from airflow.sdk import ObjectStoragePath


class AppendLog:
    """An append-only file of JSON Lines. Use it in a ``with`` block to add entries.

    :param path: the file. Its storage must support appending, as a disk does
    """

    def __init__(self, path: ObjectStoragePath) -> None:
        self.path = path
        self._file: IO[str] | None = None

    def entries(self) -> Iterator[dict[str, Any]]:
        """Yield the entries, oldest first. A last line that a kill cut off is skipped."""
        if not self.path.exists():
            return
        with self.path.open("r", encoding="utf-8") as lines:
            for line in lines:
                try:
                    yield json.loads(line)
                except ValueError:
                    continue

    def add(self, entry: dict[str, Any]) -> None:
        """Append one entry and flush it."""
        assert self._file is not None, "add() needs a with block"
        self._file.write(json.dumps(entry, ensure_ascii=False) + "\n")
        self._file.flush()

    def __enter__(self) -> Self:
        self._file = self.path.open("a", encoding="utf-8")
        if self._cut_off():
            self._file.write("\n")
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def _cut_off(self) -> bool:
        with self.path.open("rb") as file:
            if file.seek(0, 2) == 0:
                return False
            file.seek(-1, 2)
            return bool(file.read(1) != b"\n")
