"""Results files: one line for each row of a source, or each recipient, with its outcome."""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from json.encoder import encode_basestring
from pathlib import Path
from typing import IO, Any, Literal

from cpaas_provider._common.extras import describe_install
from cpaas_provider._common.local_files import create_whole_file, make_folders
from cpaas_provider.sources.files import redacted_path

log = logging.getLogger(__name__)

Columns = Mapping[str, Literal["text", "number", "flag", "recipient"]]
"""The columns of a results file. A recipient is written so that it reads back as the same: a number with its plus."""

CAMPAIGN_COLUMNS: Columns = {
    "row": "number",
    "recipient": "recipient",
    "outcome": "text",
    "reference": "text",
    "message_id": "text",
    "pages": "number",
    "reason": "text",
}
SUFFIXES = (".jsonl", ".ndjson", ".parquet")
_JSON_BATCH, _PARQUET_BATCH = 1_000, 10_000
_DISKS = frozenset({"", "file", "local"})
_ABANDONED_SECONDS = 300.0
_MODE = re.compile("(?:0o?)?(6[046][04])")


class ResultsFileError(Exception):
    """The results file cannot be written. The message shows nothing of its content, and no credentials."""


def write_outcomes(
    path: Any,
    lines: Iterable[Mapping[str, Any]],
    columns: Columns = CAMPAIGN_COLUMNS,
    *,
    unread: type[Exception] | None = None,
) -> None:
    """Write the file completely, or leave an existing file as it is.

    Two tries of a task may write at once, because Airflow replaces a try whose heartbeat is late. The file is then that
    of the try that ends last, and complete.

    :param path: an ``ObjectStoragePath`` that ends in one of ``SUFFIXES``
    :param columns: the columns to write, in this order, with their types
    :param unread: the error of ``lines`` if they cannot be read; it is raised unchanged
    :raises ResultsFileError: when the file could not be written
    """
    write = _write_parquet if path.name.endswith(".parquet") else _write_json_lines
    # On a disk an incomplete file is visible, in an object store only the complete one.
    final = _local(path)
    target = path if final is None else _temporary(final)
    try:
        with _create(path, target) as file:
            write(file, lines, columns)
        if final is not None:
            target.replace(final)
    except Exception as error:
        if final is not None:
            _delete(target)
        if unread is not None and isinstance(error, unread):
            raise
        raise ResultsFileError(
            f"The results file {redacted_path(path)} could not be written {_reason(error)}"
        ) from None


def as_results_path(path: Any) -> Any:
    """Return the path of a results file as ``write_outcomes`` takes it.

    :raises ValueError: when its suffix is none of ``SUFFIXES``, or the file is on a disk and ``results_file_mode``
        cannot be used
    """
    from airflow.sdk import ObjectStoragePath

    if not str(path).endswith(SUFFIXES):
        raise ValueError(f"results_path must end in one of {', '.join(SUFFIXES)}.")
    results_path = path if isinstance(path, ObjectStoragePath) else ObjectStoragePath(str(path))
    if _local(results_path) is not None:
        results_file_mode()
    return results_path


def remove_results(path: Any) -> None:
    """Remove a results file if there is one, so that no task reads that of an earlier wait.

    :param path: as ``as_results_path`` returns it
    :raises ResultsFileError: when it could not be removed
    """
    try:
        (_local(path) or path).unlink()
    except (FileNotFoundError, NotADirectoryError):
        return
    except Exception as error:  # noqa: BLE001 - storages raise what they like
        raise ResultsFileError(
            f"The earlier results file {redacted_path(path)} could not be removed {_reason(error)}"
        ) from None


def international(recipient: str) -> str:
    """Return the form of a stored recipient that reads back as the same in every region: a number with its plus."""
    return f"+{recipient}" if recipient.isdigit() and recipient[0] != "0" else recipient


def results_file_mode() -> int:
    """Return the mode of results files on a disk, by ``[cpaas] results_file_mode``.

    :raises ValueError: when it is no such mode
    """
    from airflow.sdk.configuration import conf

    configured = conf.get("cpaas", "results_file_mode", fallback=None) or "600"
    mode = _MODE.fullmatch(configured.strip())
    if mode is None:
        raise ValueError(
            f"[cpaas] results_file_mode is {configured!r}. It must be three octal digits such as 600 or 640: 6 for the "
            "owner, then 0, 4 or 6 for the group, then 0 or 4 for all other users."
        )
    return int(mode[1], 8)


def check_writable(path: Any) -> None:
    """Check, before anything is sent, that the results file can be written. An existing file stays.

    :param path: as ``write_outcomes`` takes it
    :raises ResultsFileError: when it cannot
    """
    trial = _temporary(_local(path) or path)
    try:
        if path.name.endswith(".parquet"):
            import pyarrow.parquet  # noqa: F401 - to check that it is installed
        with _create(path, trial) as file:
            # Opening a file succeeds even on a full disk.
            file.write(b"\n")
    except Exception as error:  # noqa: BLE001 - storages raise what they like
        raise ResultsFileError(f"The results file {redacted_path(path)} cannot be written {_reason(error)}") from None
    finally:
        _delete(trial)


def _local(path: Any) -> Path | None:
    """Return the path of a results file on a disk; ``None`` for one in an object store."""
    return Path(path.path).expanduser() if path.protocol in _DISKS else None


def _temporary(path: Any) -> Any:
    """Return a name that no other try has: one of the same name would delete the file that the other is writing."""
    return path.parent / f".{path.name}.{secrets.token_hex(8)}.part"


def _create(path: Any, target: Any) -> Any:
    """Open a file for the content of the results file, as a context manager."""
    final = _local(path)
    if final is None:
        path.parent.mkdir(parents=True, exist_ok=True)
        return target.open("wb")
    if final.is_dir():
        # No file replaces a folder, and that would fail only after everything was sent.
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    mode = results_file_mode()
    if not final.parent.is_dir():
        log.info("Creating the folder of the results file: %s.", final.parent)
    make_folders(final.parent, mode)
    _delete_abandoned(final)
    return create_whole_file(target, mode)


def _delete_abandoned(path: Path) -> None:
    """Delete the incomplete files of killed tries, because they contain recipients."""
    latest = time.time() - _ABANDONED_SECONDS
    with os.scandir(path.parent) as files:
        for file in files:
            if file.name.startswith(f".{path.name}.") and file.name.endswith(".part"):
                # Another try may have deleted it.
                with contextlib.suppress(OSError):
                    if file.stat(follow_symlinks=False).st_mtime < latest:
                        Path(file).unlink()


def _reason(error: Exception) -> str:
    """Return why a file cannot be written. Only text of the operating system is shown: other text may quote secrets."""
    if isinstance(error, ImportError):
        return f"(Parquet needs one more package: {describe_install('parquet')})."
    reason = f": {error.strerror}" if isinstance(error, OSError) and error.strerror else ""
    return f"({type(error).__name__}{reason}). Check results_path."


def _delete(target: Any) -> None:
    """Delete an incomplete file, because it contains recipients."""
    with contextlib.suppress(Exception):
        target.unlink()


def _write_json_lines(file: IO[bytes], lines: Iterable[Mapping[str, Any]], columns: Columns) -> None:
    # The same text as json.dumps in half the time: column by column, because the type of each column is known.
    names = [encode_basestring(name).replace("%", "%%") for name in columns]
    line = "{" + ", ".join(f"{name}: %s" for name in names) + "}\n"
    for batch in _batched(lines, _JSON_BATCH):
        cells = [_JSON[kind]([line[name] for line in batch]) for name, kind in columns.items()]
        file.write("".join([line % values for values in zip(*cells, strict=True)]).encode())


_JSON: Mapping[str, Callable[[list[Any]], list[str]]] = {
    "text": lambda values: ["null" if value is None else encode_basestring(value) for value in values],
    "number": lambda values: ["null" if value is None else int.__repr__(value) for value in values],
    "recipient": lambda values: [
        "null" if value is None else encode_basestring(international(value)) for value in values
    ],
    "flag": lambda values: ["null" if value is None else "true" if value else "false" for value in values],
}


def _write_parquet(file: IO[bytes], lines: Iterable[Mapping[str, Any]], columns: Columns) -> None:
    import pyarrow
    from pyarrow import parquet

    kinds = {
        "recipient": pyarrow.string(),
        "text": pyarrow.string(),
        "number": pyarrow.int64(),
        "flag": pyarrow.bool_(),
    }
    schema = pyarrow.schema([(name, kinds[kind]) for name, kind in columns.items()])
    with parquet.ParquetWriter(file, schema) as writer:
        for batch in _batched(lines, _PARQUET_BATCH):
            cells = {name: [line[name] for line in batch] for name in columns}
            for name in (name for name, kind in columns.items() if kind == "recipient"):
                cells[name] = [None if value is None else international(value) for value in cells[name]]
            writer.write_table(pyarrow.table(cells, schema=schema))


def _batched(lines: Iterable[Mapping[str, Any]], size: int) -> Iterable[list[Mapping[str, Any]]]:
    lines = iter(lines)
    while batch := list(itertools.islice(lines, size)):
        yield batch
