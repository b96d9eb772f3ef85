"""The results file of a wait for deliveries: one line for each recipient that the database has a record of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.sources.results_file import SUFFIXES, Columns, write_outcomes

COLUMNS: Columns = {
    "campaign": "text",
    "recipient": "text",
    "outcome": "text",
    "status": "text",
    "reason": "text",
    "conflict": "flag",
    "reported": "text",
    "reference": "text",
    "message_id": "text",
}


def results_file(path: Any) -> Any:
    """Return the path of the file.

    :raises ValueError: when its suffix is not that of a supported format
    """
    from airflow.sdk import ObjectStoragePath

    if not str(path).endswith(SUFFIXES):
        raise ValueError(f"results_path must end in one of {', '.join(SUFFIXES)}.")
    return path if isinstance(path, ObjectStoragePath) else ObjectStoragePath(str(path))


def write_results(path: Any, lines: Iterable[Mapping[str, Any]]) -> int:
    """Replace the file, completely or not at all; return the number of recipients with conflicting reports.

    :param path: an ``ObjectStoragePath`` that ends in one of ``SUFFIXES``
    :raises ResultsFileError: when it could not be written
    :raises DatabaseError: when the lines could not be read; nothing was written
    """
    conflicts = 0

    def counted() -> Iterator[Mapping[str, Any]]:
        nonlocal conflicts
        for line in lines:
            conflicts += bool(line["conflict"])
            yield line

    write_outcomes(path, counted(), COLUMNS, unread=DatabaseError)
    return conflicts
