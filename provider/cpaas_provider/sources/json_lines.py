"""JSON Lines: one object a line."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, NoReturn

from cpaas_provider.sources.base import InvalidRow, Row, SourceError, Table, make_row
from cpaas_provider.sources.files import FileSource
from cpaas_provider.sources.tables import AmbiguousColumnError, RecordReader, find_column

MAX_LINE_BYTES = 1 << 20
"""In bytes. A longer line is skipped without reading it into memory."""


class JsonLinesSource(FileSource):
    """A file of JSON objects, each on a line of its own, in UTF-8; ``.gz``, ``.bz2`` and ``.xz`` are unpacked.

    Values have their JSON types: text, numbers, lists. Lines that are not an object are invalid rows. So are objects
    that have a requested key twice.

    :param path: a path or URL, as text, ``Path`` or ``ObjectStoragePath`` (templated)
    :param conn_id: the Airflow connection of its storage; default: the connection in the path, or that of the storage
        (templated)
    """

    kind = "JSON Lines file"

    @contextmanager
    def open(self) -> Iterator[Table]:
        """Open it for one reading."""
        with self.open_bytes() as stream:
            if stream.peek(2)[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
                raise SourceError(f"{self} is in UTF-16. JSON Lines must be UTF-8. Write the file in UTF-8.")
            if stream.peek(3).startswith(codecs.BOM_UTF8):
                stream.read(len(codecs.BOM_UTF8))
            yield _JsonLinesTable(stream)


class _RepeatedKeys(dict[str, Any]):
    """An object that has a key twice."""

    written: Sequence[str]
    """All keys, in the order of the line."""


def _to_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    repeated = _RepeatedKeys(found)
    repeated.written = [key for key, _ in pairs]
    return repeated


class _JsonLinesTable:
    columns: tuple[str, ...] | None = None

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.absent: set[str] = set()

    def rows(self, wanted: Sequence[str]) -> Iterator[Row | InvalidRow]:
        """Read all lines once."""
        decode = json.JSONDecoder(parse_constant=_refuse, object_pairs_hook=_to_object).raw_decode
        reader = RecordReader(wanted)
        self.absent = reader.absent
        for number, line in enumerate(self._lines(), 1):
            if line is None:
                yield InvalidRow(number, f"is longer than {MAX_LINE_BYTES} bytes")
                continue
            if not (line := line.strip()):
                continue
            try:
                text = line.decode()
                found, end = decode(text)
                if end < len(text) or not isinstance(found, dict):
                    raise ValueError("more, or other, than one object")
                if type(found) is _RepeatedKeys:
                    for name in wanted:
                        find_column(found.written, name)
                values = reader.values(found)
                if b"\\ud" in line or b"\\uD" in line:
                    _check_encodable(values)
            except AmbiguousColumnError as error:
                yield InvalidRow(number, f"cannot be read: {error}")
            except UnicodeError:
                yield InvalidRow(number, "is not UTF-8, or contains half a character; write the file in UTF-8")
            except (ValueError, RecursionError):
                # The decoder's message may quote the line.
                yield InvalidRow(number, "is not a JSON object on a line of its own")
            else:
                if values is not None:
                    yield make_row((number, values))

    def _lines(self) -> Iterator[bytes | None]:
        """Return line after line, ``None`` for one that is too long."""
        read = self._stream.readline
        line = read(MAX_LINE_BYTES + 1)
        while line:
            if len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
                while line and not line.endswith(b"\n"):
                    line = read(MAX_LINE_BYTES)
                yield None
            else:
                yield line
            line = read(MAX_LINE_BYTES + 1)


def _check_encodable(values: tuple[Any, ...] | None) -> None:
    """Raise an error if an escape stands for half a character (a lone surrogate), which cannot be sent."""
    json.dumps(values, ensure_ascii=False).encode()


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)
