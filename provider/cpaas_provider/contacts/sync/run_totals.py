"""What all tries of a run changed in the list, stored beside the map's rows in the transactions of the results.

An entry that a run created or updated has the fencing token of the try that did. A deletion leaves no entry, so the ids
of deleted rows are stored in values of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from cpaas_provider.contacts.key_map.entries import MapEntry, RowState
from cpaas_provider.contacts.key_map.key_map import KeyMap, Lease
from cpaas_provider.contacts.sync.spool import RowOutcome

CHANGED = ("created", "updated", "deleted")
"""The outcomes that are counted."""
_IDS_EACH = 500
"""The most ids of deleted rows in one value, which each further deletion writes again."""


@dataclass
class RunTotals:
    """What earlier tries of a run changed.

    :param key: the name of the stored value, one for each part of the list
    :param run: identifies the task instance; the same in all its tries
    :param token: the fencing token of this try
    :param tokens: those of the earlier tries
    :param id_values: the number of values with ids of deleted rows that earlier tries stored
    :param old_values: the number of those that the run before stored
    """

    key: str
    run: str
    token: int = 0
    created: int = 0
    updated: int = 0
    deleted: int = 0
    tokens: tuple[int, ...] = ()
    id_values: int = 0
    old_values: int = 0
    _full_values: int = 0
    _deleted_ids: list[str | None] = field(default_factory=list)

    @classmethod
    def read(cls, lease: Lease, run: str) -> RunTotals:
        """Return what earlier tries of this run changed; of another run nothing counts.

        :raises DatabaseError: when the database cannot be read
        """
        key = "run/{}-{}".format(*lease.buckets)
        stored = lease.key_map.value(key)
        if not isinstance(stored, dict):
            return cls(key, run, lease.fencing_token)
        id_values = int(stored.get("id_values", 0))
        if stored.get("run") != run:
            return cls(key, run, lease.fencing_token, old_values=id_values)
        created, updated, deleted = (int(stored[name]) for name in CHANGED)
        tokens = tuple(stored.get("tokens", ()))
        return cls(key, run, lease.fencing_token, created, updated, deleted, tokens, id_values)

    def outcome_of(self, entry: MapEntry) -> RowOutcome | None:
        """Return what earlier tries of this run did with the row of an entry, ``None`` if they did not change it."""
        if entry.state is not RowState.SYNCED or entry.fencing_token not in self.tokens:
            return None
        return RowOutcome.UPDATED if entry.source_row is None else RowOutcome.CREATED

    def earlier_deleted_ids(self, key_map: KeyMap) -> Iterator[str | None]:
        """Yield the ids of the rows that earlier tries of this run deleted.

        :raises DatabaseError: when the database cannot be read
        """
        for number in range(self.id_values):
            yield from key_map.value(self._ids_key(number)) or ()

    def add_deleted(self, row_id: str | None) -> None:
        """Add the id of a row whose deletion is recorded."""
        self._deleted_ids.append(row_id)
        if len(self._deleted_ids) >= _IDS_EACH:
            self._full_values += 1
            self._deleted_ids.clear()

    def value(
        self, counts: Any, finished: tuple[int, int, int] = (0, 0, 0), deleted_ids: Sequence[str | None] = ()
    ) -> dict[str, Any]:
        """Return the values to store.

        :param counts: what this try changed so far, by the names of ``CHANGED``
        :param finished: what is not counted there yet
        :param deleted_ids: the ids of the deleted rows among them
        """
        totals = {
            name: getattr(self, name) + getattr(counts, name) + more
            for name, more in zip(CHANGED, finished, strict=True)
        }
        number = self.id_values + self._full_values
        values: dict[str, Any] = {}
        if deleted_ids:
            values[self._ids_key(number)] = [*self._deleted_ids, *deleted_ids]
        written = number + bool(deleted_ids or self._deleted_ids)
        values[self.key] = {
            "run": self.run,
            **totals,
            "tokens": [*self.tokens, self.token],
            "id_values": written,
        }
        return values

    def removed_values(self) -> dict[str, None]:
        """Return the values to store when the run begins to send, in place of those of the run before."""
        return {self._ids_key(number): None for number in range(self.old_values)}

    def figures(self, counts: Any) -> dict[str, int]:
        """Return what all tries changed, for the report."""
        return {name: getattr(self, name) + getattr(counts, name) for name in CHANGED}

    def _ids_key(self, number: int) -> str:
        return f"{self.key}/deleted/{number}"
