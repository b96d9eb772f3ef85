"""The keys of a log in the task state, chosen so that a late write never replaces a newer one.

Airflow's client repeats a write that got no response within seconds. The first copy may still arrive, after newer
writes. So no write takes a key under which a value is stored already:

- Each write adds a part of the segment under a key of its own.
- When the segment has many parts, or is full, one write stores the whole segment under another key.
- Each try has a series of segments of its own, so a late write of an earlier try replaces nothing of a later one.

A late copy therefore finds its own value stored, or has a key that is no longer read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from cpaas_provider.sending.journal.model import JOURNAL_KEY

SERIES = 1_000_000
"""The most segments of a try. They are the series of the try: the first series begins with segment 0."""

MOST_PARTS = 32
"""The most parts of a segment. A later try reads them one by one, unless the segment is stored as a whole."""

_GAP = 1
"""How many segments in a row may be missing: a try that continues skips one, which may still arrive."""

Get = Callable[[str], Any]


class Stored(Struct, frozen=True):
    """A segment as it is stored.

    :param parts: the number of its parts; ``None`` if it is stored as a whole, so that no part may follow
    """

    index: int
    value: Any
    parts: int | None


def part_key(index: int, part: int) -> str:
    """Return the key of a part of a segment."""
    return JOURNAL_KEY if index == part == 0 else f"{JOURNAL_KEY}.{index}.{part}"


def series_key(series: int) -> str:
    """Return the key of the first part of a series."""
    return part_key(series * SERIES, 0)


def whole_key(index: int) -> str:
    """Return the key of a segment that is stored as a whole."""
    return f"{JOURNAL_KEY}.{index}"


def superseded(index: int, parts: int) -> list[str]:
    """Return the keys that are no longer read once a segment is stored as a whole."""
    # The first part of a series stays: it shows that the series exists.
    first = 1 if index % SERIES == 0 else 0
    return [part_key(index, part) for part in range(first, parts)]


def newest_series(get: Get, tries: int) -> tuple[int, Any] | None:
    """Return the number and the first part of the last series that has any; ``None`` if no series has.

    :param tries: the number of series to search. The last one is of the current try, so only its first key is read
    """
    for series in reversed(range(tries)):
        # If the first write of a try failed, the series may begin with the next segment.
        for index in range(1 if series == tries - 1 else 1 + _GAP):
            stored = get(part_key(series * SERIES + index, 0))
            if stored is not None:
                return series, stored
    return None


def read_series(get: Get, series: int) -> Iterator[Stored]:
    """Yield the segments of a series, in order."""
    index, missing = series * SERIES, 0
    while missing <= _GAP:
        stored = _read(get, index)
        if stored is not None:
            yield stored
        missing = 0 if stored else missing + 1
        index += 1


def next_index(last: int) -> int:
    """Return the segment to continue with after the last stored one. It skips one, which may still arrive."""
    return last + 1 + _GAP


def _read(get: Get, index: int) -> Stored | None:
    parts: list[Any] = []
    if index % SERIES == 0:
        parts = [get(part_key(index, 0))]
        if parts[0] is None:
            return None
    if (whole := get(whole_key(index))) is not None:
        return Stored(index, whole, None)
    while (following := get(part_key(index, len(parts)))) is not None:
        parts.append(following)
    return Stored(index, _joined(parts), len(parts)) if parts else None


def _joined(parts: list[Any]) -> Any:
    """Return a segment made of its parts. If a part cannot be read, return that, so that the caller reports it."""
    for part in parts:
        if not isinstance(part, Mapping) or not isinstance(part.get("batches"), list):
            return part
    return {**parts[-1], "batches": [batch for part in parts for batch in part["batches"]]}
