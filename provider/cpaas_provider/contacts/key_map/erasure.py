"""Erasing a recipient from the key maps: removes entries whose key or cells are the recipient.

The maps store only hashes. So the recipient's possible forms are hashed and compared. The contact list and the source
still contain the recipient, and a sync of that source would create the row again.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from cpaas_provider.api.recipients.email_address import normalise_email
from cpaas_provider.api.recipients.msisdn import normalise_msisdn
from cpaas_provider.contacts.key_map.entries import REQUESTED, Change, MapEntry
from cpaas_provider.contacts.key_map.hashes import column_tag
from cpaas_provider.contacts.key_map.key_map import KeyMap
from cpaas_provider.contacts.key_map.maps import all_maps
from cpaas_provider.contacts.key_map.overview import RECIPIENT_COLUMNS, owner_of, released
from cpaas_provider.database.bulk import batched
from cpaas_provider.database.database import Database

_CELL_ENTRY_BYTES = 12
"""Bytes of one cell in the packed hashes of a row."""


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
    is_email = "@" in recipient
    normalised = normalise_email(recipient) if is_email else normalise_msisdn(recipient, region)
    cells = {normalised, normalised.lower()}
    keys = {*cells, *forms, recipient.strip()} | (set() if is_email else {f"+{normalised}"})
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
    cell_hashes = [column_tag(column) + hashes.of_cell(column, cell) for column in columns for cell in cells]
    if cell_hashes:
        for page in key_map.pages():
            entries.update((entry.key_hash, entry) for entry in page if _has_cell(entry, cell_hashes))
    if not entries:
        return
    leased = key_map.leased()
    busy = {key for key, entry in entries.items() if entry.state in REQUESTED and entry.fencing_token in leased}
    erased.busy += len(busy)
    for batch in batched(entry for key, entry in entries.items() if key not in busy):
        with released(key_map.row_lease(owner_of("erase"), while_importing=True)) as lease:
            changed = lease.write([Change(entry, None) for entry in batch])
        erased.removed += len(batch) - len(changed)
        erased.busy += sum(1 for current in changed.values() if current is not None)


def _has_cell(entry: MapEntry, cell_hashes: Collection[bytes]) -> bool:
    packed = entry.cell_hashes or b""
    return any(_contains(packed, cell_hash) for cell_hash in cell_hashes)


def _contains(packed: bytes, cell_hash: bytes) -> bool:
    """Return whether the packed hashes of a row contain the hash of a cell, at a place where a cell begins."""
    place = packed.find(cell_hash)
    while place % _CELL_ENTRY_BYTES and place != -1:
        place = packed.find(cell_hash, place + 1)
    return place != -1
