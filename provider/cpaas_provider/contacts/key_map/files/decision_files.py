"""Reads a file that resolves many unknown creations: for each its key or row number, and what a person found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cpaas_provider.api.redact import describe_columns
from cpaas_provider.api.values import as_text, is_blank, plain
from cpaas_provider.contacts.errors import CannotResolveError, MapFileError
from cpaas_provider.contacts.key_map.entries import MapEntry
from cpaas_provider.contacts.key_map.files.list_files import Faults
from cpaas_provider.contacts.key_map.key_map import KeyMap
from cpaas_provider.contacts.key_map.overview import KEY_COLUMNS, unknown_creations
from cpaas_provider.contacts.key_map.resolution import check_created, write_resolved
from cpaas_provider.contacts.mapping.keys import key_texts
from cpaas_provider.database.bulk import batched
from cpaas_provider.sources.base import InvalidRow, Source
from cpaas_provider.sources.tables import missing_columns

ROW_COLUMN, ROW_ID_COLUMN = "row", "row_id"
NOT_CREATED = "not created"
"""The row id of a creation that made no row."""


@dataclass
class Decisions:
    """What a file resolves.

    :param created: entries with the ids of their rows
    :param not_created: entries whose creation made no row
    """

    created: list[tuple[MapEntry, str]]
    not_created: list[MapEntry]

    def __len__(self) -> int:
        return len(self.created) + len(self.not_created)


def read_decisions(key_map: KeyMap, source: Source, read_row: Callable[[str], Any]) -> Decisions:
    """Read a file, and check all of it against the map and the contact list.

    It has the columns of the key, named as in the source of the sync, or the column ``row`` with row numbers as
    ``status`` shows them. Its column ``row_id`` has a row id, or ``not created``.

    :param read_row: reads a row of the contact list by its id, as ``CpaasClient.get_contact_row``
    :raises MapFileError: names all faults with their lines; nothing was changed
    :raises SourceError: when the file cannot be read
    :raises CpaasError: when the contact list cannot be read
    :raises DatabaseError: when the database cannot be read
    """
    unknown = {entry.key_hash: entry for entry in unknown_creations(key_map)}
    faults = Faults()
    decisions = Decisions([], [])
    lines: dict[bytes, int] = {}
    row_ids: set[str] = set()
    for line, entry, found in _read(key_map, source, unknown, faults):
        if entry.key_hash in lines:
            faults.add("The creation is on an earlier line, too", line)
            continue
        lines[entry.key_hash] = line
        if found.casefold() == NOT_CREATED:
            decisions.not_created.append(entry)
        elif found in row_ids:
            faults.add("The row id is on an earlier line, too", line)
        else:
            row_ids.add(found)
            decisions.created.append((entry, found))
    # The rows are read only from a file that is right so far, because each costs a request.
    if not faults.counts:
        named, decisions.created = decisions.created, []
        row_ids.clear()
        for entry, found in named:
            try:
                row_id = check_created(key_map, found, read_row)
            except CannotResolveError as error:
                faults.add(str(error).partition(". ")[0], lines[entry.key_hash])
                continue
            if row_id in row_ids:
                faults.add("The row id is on an earlier line, too", lines[entry.key_hash])
            row_ids.add(row_id)
            decisions.created.append((entry, row_id))
    faults.refuse(source, "cannot be used. Nothing was changed.")
    return decisions


def apply_decisions(key_map: KeyMap, decisions: Decisions) -> int:
    """Write what ``read_decisions`` returned. The next sync sends all cells of created rows, and creates the others.

    :return: the number of entries that another task changed meanwhile; these were left
    :raises DatabaseError: when the database cannot be used
    """
    resolved = [(entry, MapEntry(entry.key_hash, row_id=row_id)) for entry, row_id in decisions.created]
    pairs: list[tuple[MapEntry, MapEntry | None]] = [*resolved, *((entry, None) for entry in decisions.not_created)]
    return sum(write_resolved(key_map, batch) for batch in batched(pairs))


def _read(
    key_map: KeyMap, source: Source, unknown: Mapping[bytes, MapEntry], faults: Faults
) -> Iterator[tuple[int, MapEntry, str]]:
    """Yield line, unknown creation and row id of each row that can be used, and add the others to ``faults``."""
    key = list(key_map.value(KEY_COLUMNS) or [])
    with source.open() as table:
        columns = key
        if table.columns is not None and (not key or missing_columns(source, table.columns, key)):
            columns = [ROW_COLUMN]
        wanted = [*columns, ROW_ID_COLUMN]
        if table.columns is not None and missing_columns(source, table.columns, wanted):
            raise MapFileError(
                f"{source} cannot be used. {describe_columns(table.columns)}. Nothing was changed. It needs the column "
                f"{ROW_ID_COLUMN}, and the columns of the key ({' and '.join(key) or 'unknown'}) or {ROW_COLUMN}."
            )
        find = _by_key(key_map, unknown) if columns is key else _by_row_number(unknown)
        for row in table.rows(wanted):
            if isinstance(row, InvalidRow):
                faults.add(f"A row {row.reason}", row.number)
                continue
            *parts, row_id = row.values
            try:
                if is_blank(row_id):
                    raise ValueError(f"The row id is blank; write {NOT_CREATED!r} if the list has no such row")
                yield row.number, find(parts), as_text(plain(row_id)).strip()
            except ValueError as error:
                faults.add(str(error), row.number)


def _by_key(key_map: KeyMap, unknown: Mapping[bytes, MapEntry]) -> Callable[[Sequence[Any]], MapEntry]:
    def find(parts: Sequence[Any]) -> MapEntry:
        try:
            texts = key_texts(parts)
        except ValueError as error:
            raise ValueError(f"The key cannot be used: {error}") from None
        entry = None if texts is None else unknown.get(key_map.hashes.of_key(texts))
        if entry is None:
            raise ValueError("The key is blank" if texts is None else "The key has no unknown creation")
        return entry

    return find


def _by_row_number(unknown: Mapping[bytes, MapEntry]) -> Callable[[Sequence[Any]], MapEntry]:
    by_number: dict[str, list[MapEntry]] = {}
    for entry in unknown.values():
        by_number.setdefault(str(entry.source_row), []).append(entry)

    def find(parts: Sequence[Any]) -> MapEntry:
        entries = by_number.get(as_text(plain(parts[0])).strip() if not is_blank(parts[0]) else "", [])
        if len(entries) != 1:
            raise ValueError(f"{'Several' if entries else 'No'} unknown creations have the row number")
        return entries[0]

    return find
