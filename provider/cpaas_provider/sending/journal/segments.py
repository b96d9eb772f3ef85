"""Where a campaign's log stands in the task's state, so that no late copy of a write hides a newer one.

Airflow's client repeats a write that was not answered within seconds, and the first copy may yet be carried out, after
newer writes. So what was written once is not written over: each write adds a part under a key of its own, and when
there are many, one write puts the whole segment under another key. A copy that comes late finds itself there already,
or stands where nothing is read again. Each try has numbers of its own, so that a write of an earlier try that failed,
and comes after all, takes the place of nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cpaas_provider.sending.journal.model import JOURNAL_KEY

SERIES = 1_000_000
"""Segments a try may have; that of a number are its series, the first try's begins with 0."""

MOST_PARTS = 32
"""Parts of a segment, which a later try reads one by one unless they were put together."""

_GAP = 1
"""Segments that may be missing in a row: a try that goes on leaves out one that may yet appear."""

Get = Callable[[str], Any]


@dataclass(frozen=True)
class Stored:
    """A segment as it is stored.

    :param parts: how many it has; ``None`` where it was put together, and nothing is added
    """

    index: int
    value: Any
    parts: int | None


def part_key(index: int, part: int) -> str:
    """Return the key under which a part of a segment stands."""
    return JOURNAL_KEY if index == part == 0 else f"{JOURNAL_KEY}.{index}.{part}"


def whole_key(index: int) -> str:
    """Return the key under which a segment stands when its parts were put together."""
    return f"{JOURNAL_KEY}.{index}"


def superseded(index: int, parts: int) -> list[str]:
    """Return the keys that are not read any more once a segment was put together."""
    # That of a series' first part tells that there is something.
    first = 1 if index % SERIES == 0 else 0
    return [part_key(index, part) for part in range(first, parts)]


def newest_series(get: Get, tries: int) -> tuple[int, Any] | None:
    """Return the last series that holds anything, and the first part of it.

    :param tries: how many series there may be; of the last, which a try begins, only its first part is looked for
    """
    for series in reversed(range(tries)):
        # Where the first write of a try failed, there may be a second.
        for index in range(1 if series == tries - 1 else 1 + _GAP):
            stored = get(part_key(series * SERIES + index, 0))
            if stored is not None:
                return series, stored
    return None


def read_series(get: Get, series: int) -> Iterator[Stored]:
    """Yield the segments of a series, in order."""
    index, missing = series * SERIES, 0
    while missing <= _GAP:
        found = _read(get, index)
        if found is not None:
            yield found
        missing = 0 if found else missing + 1
        index += 1


def next_index(last: int) -> int:
    """Return the segment to go on with behind the last that is there: the next may yet be written by who was before."""
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
    """Return a segment made of its parts; one that cannot be read in its place."""
    for part in parts:
        if not isinstance(part, Mapping) or not isinstance(part.get("batches"), list):
            return part
    return {**parts[-1], "batches": [batch for part in parts for batch in part["batches"]]}
