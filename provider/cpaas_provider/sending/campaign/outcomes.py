"""The outcome file of a campaign: one line for each row of the source, saying what became of it."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterable, Mapping
from typing import IO, Any

from cpaas_provider.sending.errors import SendingError

FIELDS = ("row", "recipient", "outcome", "reference", "message_id", "pages", "reason")
SUFFIXES = (".jsonl", ".ndjson", ".parquet")
_AT_ONCE = 10_000


class OutcomesNotWrittenError(SendingError):
    """The outcome file could not be written; what was sent is sent."""


def write_outcomes(path: Any, lines: Iterable[Mapping[str, Any]]) -> None:
    """Write the file anew, whole or not at all.

    :param path: an ``ObjectStoragePath`` that ends in one of ``SUFFIXES``
    :raises OutcomesNotWrittenError: when it could not be written
    """
    write = _write_parquet if path.name.endswith(".parquet") else _write_json_lines
    # A disk shows a file while it is written; an object store only when that is done.
    target = path.parent / f".{path.name}.part" if path.protocol in {"", "file", "local"} else path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            write(file, lines)
        if target != path:
            target.rename(path)
    except ImportError:
        _take_away(target, path)
        raise OutcomesNotWrittenError(
            "The outcome file could not be written: Parquet needs one more package, pip install "
            "'airflow-provider-cpaas[parquet]'."
        ) from None
    except Exception as error:  # noqa: BLE001 - each file system has errors of its own
        _take_away(target, path)
        raise OutcomesNotWrittenError(
            f"The outcome file could not be written ({type(error).__name__}). Look at results_path."
        ) from None


def _take_away(target: Any, path: Any) -> None:
    """Leave no half of a file behind, which has numbers in it."""
    if target != path:
        with contextlib.suppress(Exception):
            target.unlink()


def _write_json_lines(file: IO[bytes], lines: Iterable[Mapping[str, Any]]) -> None:
    encode = json.JSONEncoder(ensure_ascii=False).encode
    for some in _batched(lines):
        file.write("".join(encode({name: line[name] for name in FIELDS}) + "\n" for line in some).encode())


def _write_parquet(file: IO[bytes], lines: Iterable[Mapping[str, Any]]) -> None:
    import pyarrow
    from pyarrow import parquet

    kinds = {"row": pyarrow.int64(), "pages": pyarrow.int32()}
    schema = pyarrow.schema([(name, kinds.get(name, pyarrow.string())) for name in FIELDS])
    with parquet.ParquetWriter(file, schema) as writer:
        for some in _batched(lines):
            columns = {name: [line[name] for line in some] for name in FIELDS}
            writer.write_table(pyarrow.table(columns, schema=schema))


def _batched(lines: Iterable[Mapping[str, Any]]) -> Iterable[list[Mapping[str, Any]]]:
    lines = iter(lines)
    while some := list(itertools.islice(lines, _AT_ONCE)):
        yield some
