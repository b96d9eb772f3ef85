"""What all tries of a run changed in the list, stored beside the map's rows in the transactions of the results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cpaas_provider.contacts.key_map.key_map import KeyMap

CHANGED = ("created", "updated", "deleted")
"""The outcomes that are counted."""


@dataclass
class RunTotals:
    """What earlier tries of a run changed.

    :param key: the name of the stored value, one for each part of the list
    :param run: identifies the task instance; the same in all its tries
    :param results: a digest of the path of the results file that an earlier try wrote, ``None`` if none did
    """

    key: str
    run: str
    created: int = 0
    updated: int = 0
    deleted: int = 0
    results: str | None = None

    @classmethod
    def read(cls, key_map: KeyMap, buckets: tuple[int, int], run: str) -> RunTotals:
        """Return what earlier tries of this run changed; of another run nothing counts.

        :raises DatabaseError: when the database cannot be read
        """
        key = f"run/{buckets[0]}-{buckets[1]}"
        stored = key_map.value(key)
        if not isinstance(stored, dict) or stored.get("run") != run:
            return cls(key, run)
        created, updated, deleted = (int(stored[name]) for name in CHANGED)
        return cls(key, run, created, updated, deleted, stored.get("results"))

    def value(self, counts: Any, finished: tuple[int, int, int] = (0, 0, 0)) -> dict[str, Any]:
        """Return the value to store.

        :param counts: what this try changed so far, by the names of ``CHANGED``
        :param finished: what is not counted there yet
        """
        totals = {
            name: getattr(self, name) + getattr(counts, name) + more
            for name, more in zip(CHANGED, finished, strict=True)
        }
        return {self.key: {"run": self.run, **totals, "results": self.results}}

    def figures(self, counts: Any) -> dict[str, int]:
        """Return what all tries changed, for the report."""
        return {name: getattr(self, name) + getattr(counts, name) for name in CHANGED}
