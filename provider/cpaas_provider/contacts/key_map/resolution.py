"""What a person decides of single rows: what an unknown creation came to, and that a rejected row is sent again.

The service has no operation that lists rows or finds one by our key, so only a person can do this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from cpaas_provider.api.client import CpaasClient
from cpaas_provider.api.errors import CpaasNotFoundError
from cpaas_provider.contacts.errors import CannotResolveError
from cpaas_provider.contacts.key_map.entries import Change, MapEntry, RowState
from cpaas_provider.contacts.key_map.files.map_files import check_row_id
from cpaas_provider.contacts.key_map.key_map import KeyMap
from cpaas_provider.contacts.key_map.maps import maps_of_list
from cpaas_provider.contacts.key_map.overview import owner_of, released, unknown_creations, without_cursor
from cpaas_provider.contacts.key_map.rejections import RETRY, of_source_row
from cpaas_provider.contacts.key_map.rejections import pages as rejection_pages
from cpaas_provider.contacts.mapping.keys import key_texts
from cpaas_provider.database.bulk import batched

_RESOLVED_STATES = {
    RowState.SYNCED: "its row is known",
    RowState.UPDATING: "its row is known",
    RowState.DELETING: "its row is known",
    RowState.CREATING: "a task has its creation under way now",
    RowState.REJECTED: "the service rejected its creation",
}


def find_by_key(key_map: KeyMap, parts: Sequence[str]) -> MapEntry:
    """Return the unknown creation of a key.

    :param parts: the parts of the key, as in the source
    :raises CannotResolveError: when there is none
    :raises DatabaseError: when the database cannot be read
    """
    entry = entry_of_key(key_map, parts)
    if not entry.is_unknown():
        raise CannotResolveError(
            f"This key has no unknown creation: {_RESOLVED_STATES[entry.state]}. Nothing was changed."
        )
    return entry


def rejected_by_key(key_map: KeyMap, parts: Sequence[str]) -> bytes:
    """Return the hash of the key of a rejected row.

    :param parts: the parts of the key, as in the source
    :raises CannotResolveError: when there is no such row
    :raises DatabaseError: when the database cannot be read
    """
    entry = entry_of_key(key_map, parts)
    if entry.rejected_hash is None:
        raise CannotResolveError("The service did not reject the row of this key. Nothing was changed.")
    return entry.key_hash


def rejected_by_row_number(key_map: KeyMap, number: int) -> bytes:
    """Return the hash of the key of a rejected row.

    :param number: the number of the row in the source when it was rejected last
    :raises CannotResolveError: when there is no such row, or there are several
    :raises DatabaseError: when the database cannot be read
    """
    with key_map.database.connect() as connection:
        found = of_source_row(connection, key_map.facts.map_id, number)
    if len(found) != 1:
        raise CannotResolveError(
            f"{'Several' if found else 'No'} rejected rows have the row number {number}. Nothing was changed. Name the "
            "key with --key."
        )
    return found[0].key_hash


def retry_rejected(key_map: KeyMap, key_hashes: Sequence[bytes] | None) -> tuple[int, int]:
    """Have the next sync send rejected rows, although they did not change.

    :param key_hashes: the rows; ``None`` for all rejected ones
    :return: the number of rows, and the number of those that were left: another task changed them meanwhile, or has a
        request for them in flight, whose result could not be recorded then
    :raises DatabaseError: when the database cannot be used
    """
    if key_hashes is not None:
        pages: Iterable[list[bytes]] = [list(key_hashes)]
    else:
        found = rejection_pages(key_map.database, key_map.facts.map_id)
        pages = ([rejection.key_hash for rejection in page] for page in found)
    marked = changed = 0
    for page in pages:
        entries = [entry for entry in key_map.entries(page).values() if entry.rejected_hash is not None]
        idle = [entry for entry in entries if not entry.is_busy()]
        written = len(idle) - write_resolved(key_map, [(entry, replace(entry, rejected_hash=RETRY)) for entry in idle])
        marked, changed = marked + written, changed + len(entries) - written
    return marked, changed


def entry_of_key(key_map: KeyMap, parts: Sequence[str]) -> MapEntry:
    """Return the entry of a key.

    :param parts: the parts of the key, as in the source
    :raises CannotResolveError: when there is none
    :raises DatabaseError: when the database cannot be read
    """
    try:
        texts = key_texts(parts)
    except ValueError as error:
        raise CannotResolveError(f"The key cannot be used: {error}. Nothing was changed.") from None
    if texts is None:
        raise CannotResolveError("A part of the key is blank. Nothing was changed.")
    key_hash = key_map.hashes.of_key(texts)
    entry = key_map.entries([key_hash]).get(key_hash)
    if entry is None:
        raise CannotResolveError(
            "The contact map has no entry for this key. Nothing was changed. Check the spelling, the order of its "
            "parts, and --map."
        )
    return entry


def find_by_row_number(key_map: KeyMap, number: int) -> MapEntry:
    """Return the unknown creation of a row of the source.

    :param number: the number of the row in the source
    :raises CannotResolveError: when there is none, or several
    :raises DatabaseError: when the database cannot be read
    """
    entries = [entry for entry in unknown_creations(key_map) if entry.source_row == number]
    if len(entries) != 1:
        raise CannotResolveError(
            f"{'Several' if entries else 'No'} unknown creations have the row number {number}. Nothing was changed. "
            "Name the key with --key."
        )
    return entries[0]


def resolve_created(key_map: KeyMap, entry: MapEntry, row_id: str, client: CpaasClient) -> None:
    """Record the row that a creation made. The next sync sends all its cells once.

    :param row_id: the id of the row in the list
    :param client: reads the row, to check that it exists
    :raises CannotResolveError: when there is no such row, another key has it, or the entry changed meanwhile
    :raises CpaasError: when the row cannot be read; nothing was changed
    :raises DatabaseError: when the database cannot be used
    """
    row_id = check_created(key_map, row_id, client.get_contact_row)
    if write_resolved(key_map, [(entry, MapEntry(entry.key_hash, row_id=row_id))]):
        raise CannotResolveError("Another task changed this entry meanwhile. Nothing was changed. Look at it again.")


def check_created(key_map: KeyMap, row_id: str, read_row: Callable[[str], Any]) -> str:
    """Check that a row exists, and that no key of any map has it. Return its id as the service writes it.

    A service may read an id in another form, such as a UUID in capitals. Then it would not be that of another key.

    :param read_row: reads the row by its id
    :raises CannotResolveError: when there is no such row, or another key has it
    :raises CpaasError: when the row cannot be read
    :raises DatabaseError: when the database cannot be read
    """
    try:
        own_id: str = read_row(check_row_id(row_id)).row.id
    except CpaasNotFoundError:
        raise CannotResolveError("The contact list has no row of this id. Nothing was changed.") from None
    except ValueError as error:
        raise CannotResolveError(f"This is no row id: {error}. Nothing was changed.") from None
    for known_map in maps_of_list(key_map.database, key_map.facts.base_url, key_map.facts.table_id):
        if known_map.entries_of_rows([own_id]):
            facts = known_map.facts
            which = "" if facts == key_map.facts else f" {facts.name!r} of connection {facts.conn_id!r}"
            raise CannotResolveError(
                f"The contact map{which} has this row for another key already. Nothing was changed. Check the row id."
            )
    return own_id


def resolve_not_created(key_map: KeyMap, entries: Sequence[MapEntry]) -> int:
    """Record that creations made no row, so that the next sync creates the rows.

    :return: the number of entries that another task changed meanwhile; these were left

    :raises DatabaseError: when the database cannot be used
    """
    return sum(write_resolved(key_map, [(entry, None) for entry in batch]) for batch in batched(entries))


def forget_row(key_map: KeyMap, entry: MapEntry) -> None:
    """Remove the entry of one key. The list keeps its row.

    :raises CannotResolveError: when a task has a request for it in flight, its creation has an unknown outcome, or
        another task changed it meanwhile; nothing was changed
    :raises DatabaseError: when the database cannot be used
    """
    if entry.is_busy():
        raise CannotResolveError(
            "A task has a request for this row in flight. Nothing was changed. Run the command again when the task has "
            "ended."
        )
    if entry.is_unknown():
        raise CannotResolveError(
            "The outcome of this key's creation is unknown, so the list may have a row that the map cannot name. "
            "Nothing was changed. Look for the row in the list, then run: airflow cpaas contacts resolve"
        )
    if write_resolved(key_map, [(entry, None)], "forget-row"):
        raise CannotResolveError("Another task changed this entry meanwhile. Nothing was changed. Look at it again.")


def write_resolved(
    key_map: KeyMap, resolved: Sequence[tuple[MapEntry, MapEntry | None]], command: str = "resolve"
) -> int:
    """Write entries, each with the one before it; ``None`` removes it. The next sync reads all rows.

    :param command: the words after ``airflow cpaas contacts``
    :return: the number of entries that another task changed meanwhile; these were left
    :raises DatabaseError: when the database cannot be used
    """
    with released(key_map.row_lease(owner_of(command))) as lease:
        changes = [Change(before, after) for before, after in resolved]
        return len(lease.write(changes, without_cursor(key_map)))
