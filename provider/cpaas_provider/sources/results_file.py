"""Results files: one line for each row of a source, or each recipient, with its outcome."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from json.encoder import encode_basestring
from pathlib import Path
from typing import IO, Any, Literal

from cpaas_provider.sources.files import redacted_path

Columns = Mapping[str, Literal["text", "number", "flag"]]

CAMPAIGN_COLUMNS: Columns = {
    "row": "number",
    "recipient": "text",
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
    target = _temporary(path) if path.protocol in _DISKS else path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _delete_abandoned(path)
        with target.open("wb") as file:
            write(file, lines, columns)
        if target != path:
            target.rename(path)
    except Exception as error:
        if target != path:
            _delete(target)
        if unread is not None and isinstance(error, unread):
            raise
        raise ResultsFileError(
            f"The results file {redacted_path(path)} could not be written {_reason(error)}"
        ) from None


def as_results_path(path: Any) -> Any:
    """Return the path of a results file as ``write_outcomes`` takes it.

    :raises ValueError: when its suffix is none of ``SUFFIXES``
    """
    from airflow.sdk import ObjectStoragePath

    if not str(path).endswith(SUFFIXES):
        raise ValueError(f"results_path must end in one of {', '.join(SUFFIXES)}.")
    return path if isinstance(path, ObjectStoragePath) else ObjectStoragePath(str(path))


def check_writable(path: Any) -> None:
    """Check, before anything is sent, that the results file can be written. An existing file stays.

    :param path: as ``write_outcomes`` takes it
    :raises ResultsFileError: when it cannot
    """
    trial = _temporary(path)
    try:
        if path.name.endswith(".parquet"):
            import pyarrow.parquet  # noqa: F401 - to check that it is installed
        path.parent.mkdir(parents=True, exist_ok=True)
        _delete_abandoned(path)
        with trial.open("wb") as file:
            # Opening a file succeeds even on a full disk.
            file.write(b"\n")
    except Exception as error:  # noqa: BLE001 - storages raise what they like
        raise ResultsFileError(f"The results file {redacted_path(path)} cannot be written {_reason(error)}") from None
    finally:
        _delete(trial)


def _temporary(path: Any) -> Any:
    """Return a name that no other try has: one of the same name would delete the file that the other is writing."""
    return path.parent / f".{path.name}.{secrets.token_hex(8)}.part"


def _delete_abandoned(path: Any) -> None:
    """Delete the incomplete files of killed tries on a disk, because they contain recipients."""
    if path.protocol not in _DISKS:
        return
    latest = time.time() - _ABANDONED_SECONDS
    with os.scandir(path.parent.path) as files:
        for file in files:
            if file.name.startswith(f".{path.name}.") and file.name.endswith(".part"):
                # Another try may have deleted it.
                with contextlib.suppress(OSError):
                    if file.stat(follow_symlinks=False).st_mtime < latest:
                        Path(file).unlink()


def _reason(error: Exception) -> str:
    """Return why a file cannot be written. Only text of the operating system is shown: other text may quote secrets."""
    if isinstance(error, ImportError):
        return "(Parquet needs one more package: pip install 'airflow-provider-cpaas[parquet]')."
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
    "flag": lambda values: ["null" if value is None else "true" if value else "false" for value in values],
}


def _write_parquet(file: IO[bytes], lines: Iterable[Mapping[str, Any]], columns: Columns) -> None:
    import pyarrow
    from pyarrow import parquet

    kinds = {"text": pyarrow.string(), "number": pyarrow.int64(), "flag": pyarrow.bool_()}
    schema = pyarrow.schema([(name, kinds[kind]) for name, kind in columns.items()])
    with parquet.ParquetWriter(file, schema) as writer:
        for batch in _batched(lines, _PARQUET_BATCH):
            cells = {name: [line[name] for line in batch] for name in columns}
            writer.write_table(pyarrow.table(cells, schema=schema))


def _batched(lines: Iterable[Mapping[str, Any]], size: int) -> Iterable[list[Mapping[str, Any]]]:
    lines = iter(lines)
    while batch := list(itertools.islice(lines, size)):
        yield batch
