"""Outcome files: one line for each row of a source, or each recipient, saying what became of it."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterable, Mapping
from typing import IO, Any, Literal

from cpaas_provider.sending.errors import SendingError

Columns = Mapping[str, Literal["text", "number", "flag"]]

OF_A_CAMPAIGN: Columns = {
    "row": "number",
    "recipient": "text",
    "outcome": "text",
    "reference": "text",
    "message_id": "text",
    "pages": "number",
    "reason": "text",
}
SUFFIXES = (".jsonl", ".ndjson", ".parquet")
_AT_ONCE = 10_000


class OutcomesNotWrittenError(SendingError):
    """The outcome file could not be written; what was sent is sent."""


def write_outcomes(
    path: Any,
    lines: Iterable[Mapping[str, Any]],
    columns: Columns = OF_A_CAMPAIGN,
    *,
    unread: type[Exception] | None = None,
) -> None:
    """Write the file anew, whole or not at all.

    :param path: an ``ObjectStoragePath`` that ends in one of ``SUFFIXES``
    :param columns: what of each line is written, in this order
    :param unread: what is raised where the lines cannot be read, and goes through
    :raises OutcomesNotWrittenError: when it could not be written
    """
    write = _write_parquet if path.name.endswith(".parquet") else _write_json_lines
    # A disk shows a file while it is written; an object store only when that is done.
    target = path.parent / f".{path.name}.part" if path.protocol in {"", "file", "local"} else path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            write(file, lines, columns)
        if target != path:
            target.rename(path)
    except ImportError:
        _take_away(target, path)
        raise OutcomesNotWrittenError(
            "The outcome file could not be written: Parquet needs one more package, pip install "
            "'airflow-provider-cpaas[parquet]'."
        ) from None
    except Exception as error:
        _take_away(target, path)
        if unread is not None and isinstance(error, unread):
            raise
        raise OutcomesNotWrittenError(
            f"The outcome file could not be written ({type(error).__name__}). Look at results_path."
        ) from None


def _take_away(target: Any, path: Any) -> None:
    """Leave no half of a file behind, which has numbers in it."""
    if target != path:
        with contextlib.suppress(Exception):
            target.unlink()


def _write_json_lines(file: IO[bytes], lines: Iterable[Mapping[str, Any]], columns: Columns) -> None:
    encode = json.JSONEncoder(ensure_ascii=False).encode
    for some in _batched(lines):
        file.write("".join(encode({name: line[name] for name in columns}) + "\n" for line in some).encode())


def _write_parquet(file: IO[bytes], lines: Iterable[Mapping[str, Any]], columns: Columns) -> None:
    import pyarrow
    from pyarrow import parquet

    kinds = {"text": pyarrow.string(), "number": pyarrow.int64(), "flag": pyarrow.bool_()}
    schema = pyarrow.schema([(name, kinds[kind]) for name, kind in columns.items()])
    with parquet.ParquetWriter(file, schema) as writer:
        for some in _batched(lines):
            cells = {name: [line[name] for line in some] for name in columns}
            writer.write_table(pyarrow.table(cells, schema=schema))


def _batched(lines: Iterable[Mapping[str, Any]]) -> Iterable[list[Mapping[str, Any]]]:
    lines = iter(lines)
    while some := list(itertools.islice(lines, _AT_ONCE)):
        yield some
