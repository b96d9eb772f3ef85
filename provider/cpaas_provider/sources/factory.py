"""Makes a source from an argument of a DAG author."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from cpaas_provider.sources import _validators
from cpaas_provider.sources.base import Source

_TEXTS = (".csv", ".tsv", ".txt")
_JSON_LINES = (".jsonl", ".ndjson")
_PARQUET = (".parquet", ".pq")


def as_source(value: Any) -> Source:
    """Return the source for a value: a source itself, a path by its suffix, a data frame, or a list of items.

    :raises ValueError: when the value fits none of these; the message shows nothing of the value
    """
    if isinstance(value, str) or _validators.is_path(value):
        return _by_suffix(value)
    if _validators.data_frame_kind(value):
        from cpaas_provider.sources.lists import DataFrameSource

        return DataFrameSource(value)
    if callable(getattr(value, "open", None)):
        return cast(Source, value)
    if _validators.is_task_output(value):
        raise ValueError("This is a task's output before the task has run. Give it to the operator itself.")
    if isinstance(value, Iterable) and not isinstance(value, (bytes, Mapping)):
        from cpaas_provider.sources.lists import ListSource

        return ListSource(value)
    raise ValueError(
        f"No rows can be read from a {type(value).__name__}. Give a list, a data frame, a path or a source."
    )


def _by_suffix(path: Any) -> Source:
    from cpaas_provider.sources.files import UNPACKERS, suffixes_of

    if isinstance(path, str) and path.lstrip().startswith(("[", "{", "(")):
        raise ValueError(
            "This is a list written as text, as a template renders it. Text is not parsed. Give the task's output "
            "itself (my_task.output), or set render_template_as_native_obj=True on the DAG."
        )
    suffixes = suffixes_of(path)
    compressed = bool(suffixes) and suffixes[0] in UNPACKERS
    suffix = next(iter(suffixes[compressed:]), "")
    if suffix in _TEXTS:
        from cpaas_provider.sources.csv_file import CsvSource

        return CsvSource(path)
    if suffix in _JSON_LINES:
        from cpaas_provider.sources.json_lines import JsonLinesSource

        return JsonLinesSource(path)
    if suffix in _PARQUET and not compressed:
        from cpaas_provider.sources.parquet import ParquetSource

        return ParquetSource(path)
    raise ValueError(
        f"The path has no known suffix ({', '.join(_TEXTS + _JSON_LINES + _PARQUET)}; text files also with "
        f"{', '.join(UNPACKERS)}). For a file, give CsvSource, JsonLinesSource or ParquetSource with the path. For a "
        "query, give SqlSource. For a single recipient, give a list."
    )
