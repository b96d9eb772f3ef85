"""Files on any storage Airflow knows, opened for one reading."""

from __future__ import annotations

import importlib
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, ClassVar
from urllib.parse import urlsplit

from cpaas_provider.sources import _validators
from cpaas_provider.sources.base import SourceError

_READ_SIZE = 1 << 20
"""Bytes per read. Many small reads from a remote storage are slow."""

_VERSION = ("size", "mtime", "ETag", "etag", "generation", "LastModified", "last_modified", "updated")
"""What storages tell of a file that differs after a write."""

UNPACKERS = {".gz": "gzip", ".bz2": "bz2", ".xz": "lzma"}
"""The module that opens a compressed file, by the file's suffix."""


class FileSource(_validators.Argument):
    """A file by its path.

    :param path: a path or URL, as text, ``Path`` or ``ObjectStoragePath`` (templated)
    :param conn_id: the Airflow connection of its storage; default: the connection in the path, or that of the storage
        (templated)
    """

    template_fields = ("path", "conn_id")
    kind: ClassVar[str]

    def __init__(self, path: Any, *, conn_id: str | None = None) -> None:
        self.path = _validators.path("path", path)
        self.conn_id = _validators.text_or_none("conn_id", conn_id)

    def __str__(self) -> str:
        return f"{self.kind} {redacted_path(self.path)}"

    @contextmanager
    def open_raw(self) -> Iterator[Any]:
        """Open the file as it is stored, for reading and, on most storages, seeking.

        :raises SourceError: when the file cannot be opened, or at the end when it changed since it was opened
        """
        try:
            from airflow.sdk import ObjectStoragePath

            path = ObjectStoragePath(self.path, conn_id=self.conn_id or None)
            file = path.open("rb")
        except Exception as error:  # noqa: BLE001 - storages raise what they like, and may quote credentials
            raise read_error(self, error) from None
        try:
            before = _version(path, file)
            yield file
            if before is not None and _version(path, file) not in (before, None):
                raise SourceError(
                    f"{self} changed while it was read, so its last line may be cut off. Let the task wait until it is "
                    "written, or write it under another name and rename it."
                )
        finally:
            with suppress(Exception):  # it was only read
                file.close()

    @contextmanager
    def open_bytes(self) -> Iterator[io.BufferedReader[Any]]:
        """Open the file as a stream of bytes, unpacked when its suffix is that of a compressed file."""
        with self.open_raw() as stored:
            stream: io.BufferedReader[Any] = io.BufferedReader(_ErrorTranslatingStream(stored, self), _READ_SIZE)
            suffix = next(iter(suffixes_of(self.path)), None)
            if suffix in UNPACKERS:
                unpacked = importlib.import_module(UNPACKERS[suffix]).open(stream)
                stream = io.BufferedReader(_ErrorTranslatingStream(unpacked, self), _READ_SIZE)
            yield stream


def _version(path: Any, file: Any) -> tuple[Any, ...] | None:
    """Return what differs when a file was written to; ``None`` if its storage does not tell.

    Of a local file that is the open file: a file that was renamed in its place does not count.
    """
    with suppress(Exception):
        status = os.fstat(file.fileno())
        return status.st_size, status.st_mtime_ns
    with suppress(Exception):
        path.fs.invalidate_cache(path.path)
        details = path.fs.info(path.path)
        return tuple(details.get(name) for name in _VERSION)
    return None


def suffixes_of(path: Any) -> list[str]:
    """Return the suffixes of a path or URL from its last one, in lower case: ``[".gz", ".csv", ...]``."""
    written = str(path)
    if "://" in written:
        written = written.partition("?")[0].partition("#")[0]
    name = written.rpartition("/")[2].lower()
    return [f".{part}" for part in reversed(name.split(".")[1:])]


def redacted_path(path: Any) -> str:
    """Return a path for a log: without user, password and query, which may contain keys."""
    written = str(path)
    if "://" not in written:
        return written
    try:
        parts = urlsplit(written)
    except ValueError:
        return "at a URL that cannot be read"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def read_error(source: object, error: Exception) -> SourceError:
    """Return the error for a failure of a file or its storage."""
    advice = next(advice for kind, advice in _ADVICE if isinstance(error, kind))
    return SourceError(f"{source} cannot be read ({type(error).__name__}). {advice}")


_ADVICE: tuple[tuple[type[Exception], str], ...] = (
    (FileNotFoundError, "The file does not exist where this task runs. Check the path."),
    (IsADirectoryError, "It is a folder. Give the path of a file."),
    (PermissionError, "The task may not read it. Give the worker, or the connection of the storage, permission."),
    (EOFError, "It is incomplete: it was not written or copied to its end."),
    (
        Exception,
        "Check the path and conn_id. Check that the Airflow provider of this storage is installed with its file "
        "system.",
    ),
)


class _ErrorTranslatingStream(io.RawIOBase):
    """The bytes of a file. Its errors are raised as ``SourceError``."""

    def __init__(self, file: Any, source: FileSource) -> None:
        self._file = file
        self._source = source

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            chunk = self._file.read(len(buffer))
        except SourceError:
            raise
        except Exception as error:  # noqa: BLE001 - as above
            raise read_error(self._source, error) from None
        buffer[: len(chunk)] = chunk
        return len(chunk)
