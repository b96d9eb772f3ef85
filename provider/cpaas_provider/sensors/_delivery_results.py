"""The outcome file of a wait for deliveries: one line for each recipient of whom anything is known."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Any

from cpaas_provider.sending.campaign.outcomes import SUFFIXES, OutcomesNotWrittenError

FIELDS = ("campaign", "recipient", "outcome", "status", "reason", "conflict", "reported", "reference", "message_id")

_AT_ONCE = 10_000


def results_file(path: Any) -> Any:
    """Return where the file goes.

    :raises ValueError: when its name says no format there is
    """
    from airflow.sdk import ObjectStoragePath

    if not str(path).endswith(SUFFIXES):
        raise ValueError(f"results_path must end in one of {', '.join(SUFFIXES)}.")
    return path if isinstance(path, ObjectStoragePath) else ObjectStoragePath(str(path))


def write_results(path: Any, lines: Iterable[Mapping[str, Any]]) -> int:
    """Write the file anew, whole or not at all; return of how many recipients reports contradict one another.

    :param path: an ``ObjectStoragePath`` that ends in one of ``SUFFIXES``
    :raises OutcomesNotWrittenError: when it could not be written
    :raises StoreError: when the lines could not be read; nothing was written
    """
    from cpaas_provider.store.errors import StoreError

    write = _write_parquet if path.name.endswith(".parquet") else _write_json_lines
    # A disk shows a file while it is written; an object store only when that is done.
    target = path.parent / f".{path.name}.part" if path.protocol in {"", "file", "local"} else path
    conflicts = _Conflicts()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            write(file, conflicts.counted(lines))
        if target != path:
            target.rename(path)
    except Exception as error:
        if target != path:
            # No half of a file is left behind: it has numbers in it.
            with contextlib.suppress(Exception):
                target.unlink()
        if isinstance(error, StoreError):
            raise
        raise OutcomesNotWrittenError(_why(error)) from None
    return conflicts.number


class _Conflicts:
    def __init__(self) -> None:
        self.number = 0

    def counted(self, lines: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        for line in lines:
            self.number += bool(line["conflict"])
            yield line


def _why(error: Exception) -> str:
    if isinstance(error, ImportError):
        return (
            "The outcome file could not be written: Parquet needs one more package, pip install "
            "'airflow-provider-cpaas[parquet]'."
        )
    return f"The outcome file could not be written ({type(error).__name__}). Look at results_path."


def _write_json_lines(file: IO[bytes], lines: Iterable[Mapping[str, Any]]) -> None:
    encode = json.JSONEncoder(ensure_ascii=False).encode
    for some in _batched(lines):
        file.write("".join(encode({name: line[name] for name in FIELDS}) + "\n" for line in some).encode())


def _write_parquet(file: IO[bytes], lines: Iterable[Mapping[str, Any]]) -> None:
    import pyarrow
    from pyarrow import parquet

    kinds = {"conflict": pyarrow.bool_()}
    schema = pyarrow.schema([(name, kinds.get(name, pyarrow.string())) for name in FIELDS])
    with parquet.ParquetWriter(file, schema) as writer:
        for some in _batched(lines):
            columns = {name: [line[name] for line in some] for name in FIELDS}
            writer.write_table(pyarrow.table(columns, schema=schema))


def _batched(lines: Iterable[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    lines = iter(lines)
    while some := list(itertools.islice(lines, _AT_ONCE)):
        yield some
