"""Erasing a recipient from the key maps: removes entries whose key or cells are the recipient.

The maps store only hashes. So the recipient's possible forms are hashed and compared. The contact list and the source
still contain the recipient, and a sync of that source would create the row again.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import dataclass

from cpaas_provider.api.recipients.msisdn import NumberReader
from cpaas_provider.api.recipients.reader import RecipientReader, recipient_key
from cpaas_provider.contacts.key_map import rejections
from cpaas_provider.contacts.key_map.entries import Change
from cpaas_provider.contacts.key_map.hashes import CellHashes
from cpaas_provider.contacts.key_map.key_map import KeyMap
from cpaas_provider.contacts.key_map.maps import all_maps
from cpaas_provider.contacts.key_map.overview import RECIPIENT_COLUMNS, owner_of, released
from cpaas_provider.database.bulk import batched
from cpaas_provider.database.database import Database
from cpaas_provider.sources.results_file import international


@dataclass
class ErasedEntries:
    """The result of an erasure.

    :param removed: the number of entries removed
    :param maps: the number of maps that had such entries
    :param busy: entries that were left, because a task has a request for them in flight or changed them meanwhile
    """

    removed: int = 0
    maps: int = 0
    busy: int = 0


def erase_entries(database: Database, recipient: str, region: str | None, forms: Collection[str]) -> ErasedEntries:
    """Remove the entries of a recipient from all key maps.

    :param recipient: a valid email address or phone number
    :param region: two-letter region of national numbers
    :param forms: further forms of the recipient that a key may have
    :raises DatabaseError: when the database cannot be used
    """
    read = RecipientReader("any", NumberReader(region, "possible")).read(recipient)
    cells = {read, recipient_key(read)}
    keys = {*cells, *forms, recipient.strip(), international(read)}
    erased = ErasedEntries()
    for key_map in all_maps(database):
        before = erased.removed
        _erase(key_map, keys, cells, erased)
        erased.maps += erased.removed > before
    return erased


def _erase(key_map: KeyMap, keys: Collection[str], cells: Collection[str], erased: ErasedEntries) -> None:
    hashes = key_map.hashes
    entries = key_map.entries(hashes.of_key([key]) for key in keys)
    columns = key_map.value(RECIPIENT_COLUMNS) or []
    if cell_hashes := [(column, hashes.of_cell(column, cell)) for column in columns for cell in cells]:
        for entry in itertools.chain.from_iterable(key_map.pages()):
            known = CellHashes.from_bytes(entry.cell_hashes)
            if any(known.has(column, cell_hash) for column, cell_hash in cell_hashes):
                entries[entry.key_hash] = entry
        # The map has no cells of a row whose creation was rejected.
        for page in rejections.pages(key_map.database, key_map.facts.map_id):
            found = [
                rejection.key_hash
                for rejection in page
                if any(CellHashes.from_bytes(rejection.cell_hashes).has(*cell) for cell in cell_hashes)
            ]
            entries |= key_map.entries(found)
    if not entries:
        return
    busy = {key for key, entry in entries.items() if entry.is_busy()}
    erased.busy += len(busy)
    for batch in batched(entry for key, entry in entries.items() if key not in busy):
        with released(key_map.row_lease(owner_of("erase"), while_importing=True)) as lease:
            changed = lease.write([Change(entry, None) for entry in batch])
        erased.removed += len(batch) - len(changed)
        erased.busy += sum(1 for current in changed.values() if current is not None)
