"""Erasing a recipient from the key maps: entries whose key is the recipient, or whose cells hold it, are removed.

The maps have hashes alone, so a recipient is found in the forms that are hashed again. The contact list and the source
still hold the recipient, and a sync of that source would create the row again.
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

_HASHES = 12
"""Bytes of one cell among the packed hashes of a row."""


@dataclass
class ErasedEntries:
    """What was removed from the key maps.

    :param removed: how many entries
    :param maps: of how many maps
    :param busy: entries that a task has a request under way for, or changed meanwhile; these were left
    """

    removed: int = 0
    maps: int = 0
    busy: int = 0


def erase_entries(database: Database, recipient: str, region: str | None, forms: Collection[str]) -> ErasedEntries:
    """Remove the entries of a recipient from all key maps.

    :param recipient: an email address or a phone number that can be read
    :param region: two-letter region of national numbers
    :param forms: further forms in which a key may have it
    :raises DatabaseError: when the database cannot be used
    """
    email = "@" in recipient
    wire = normalise_email(recipient) if email else normalise_msisdn(recipient, region)
    cells = {wire, wire.lower()}
    keys = {*cells, *forms, recipient.strip()} | (set() if email else {f"+{wire}"})
    erased = ErasedEntries()
    for key_map in all_maps(database):
        before = erased.removed
        _erase(key_map, keys, cells, erased)
        erased.maps += erased.removed > before
    return erased


def _erase(key_map: KeyMap, keys: Collection[str], cells: Collection[str], erased: ErasedEntries) -> None:
    hashes = key_map.hashes
    found = key_map.entries(hashes.of_key([key]) for key in keys)
    columns = key_map.value(RECIPIENT_COLUMNS) or []
    wanted = [column_tag(column) + hashes.of_cell(column, cell) for column in columns for cell in cells]
    if wanted:
        for page in key_map.pages():
            found.update((entry.key_hash, entry) for entry in page if _has(entry, wanted))
    if not found:
        return
    leased = key_map.leased()
    busy = {key for key, entry in found.items() if entry.state in REQUESTED and entry.fencing_token in leased}
    erased.busy += len(busy)
    for some in batched(entry for key, entry in found.items() if key not in busy):
        with released(key_map.row_lease(owner_of("erase"), while_importing=True)) as lease:
            changed = lease.write([Change(entry, None) for entry in some])
        erased.removed += len(some) - len(changed)
        erased.busy += sum(1 for now in changed.values() if now is not None)


def _has(entry: MapEntry, wanted: Collection[bytes]) -> bool:
    packed = entry.cell_hashes or b""
    return any(_is_in(packed, one) for one in wanted)


def _is_in(packed: bytes, one: bytes) -> bool:
    """Return whether the hash of a cell is among those of a row, where a cell begins."""
    place = packed.find(one)
    while place % _HASHES and place != -1:
        place = packed.find(one, place + 1)
    return place != -1
