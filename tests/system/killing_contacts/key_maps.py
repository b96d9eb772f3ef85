"""What the key map of a sync says, and what a person records in it who looked at the list."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from cpaas_provider.api.client import CpaasClient
from cpaas_provider.contacts.key_map.entries import RowState
from cpaas_provider.contacts.key_map.maps import find_map
from cpaas_provider.contacts.key_map.overview import unknown_creations
from cpaas_provider.contacts.key_map.resolution import resolve_created, resolve_not_created
from cpaas_provider.database.database import open_database
from tests.sandbox import Sandbox
from tests.system.killing_contacts.sources import Contact
from tests.unit.contacts.listed import NAME


class Resolved(NamedTuple):
    """How many unknown creations had made a row, and how many had not."""

    created: int
    not_created: int


def unknown_names(url: str, conn_id: str, map_name: str, contacts: Iterable[Contact]) -> set[str]:
    """Return the names of contacts whose creation the map has as unknown.

    :param url: of the database with the map
    :param contacts: those of any version of the source
    """
    with open_database(url) as database:
        key_map = find_map(database, conn_id=conn_id, name=map_name)
        hashes = {
            entry.key_hash for page in key_map.pages(states=[RowState.UNKNOWN, RowState.CREATING]) for entry in page
        }
        every = {one.id: one.name for one in contacts}
        return {name for id_, name in every.items() if key_map.hashes.of_key([id_]) in hashes}


def resolve(
    url: str, conn_id: str, contacts: Iterable[Contact], rows: Mapping[str, Mapping[str, Any]], sandbox: Sandbox
) -> Resolved:
    """Do for every unknown creation what ``airflow cpaas contacts resolve`` does for one.

    :param contacts: the source
    :param rows: the list's rows, by row id
    """
    with open_database(url) as database, CpaasClient(sandbox.url, sandbox.api_key) as client:
        key_map = find_map(database, conn_id=conn_id, name="default")
        names = {key_map.hashes.of_key([one.id]): one.name for one in contacts}
        row_ids = {str(cells.get(NAME)): row_id for row_id, cells in rows.items()}
        unknown = list(unknown_creations(key_map))
        found = [entry for entry in unknown if names[entry.key_hash] in row_ids]
        for entry in found:
            resolve_created(key_map, entry, row_ids[names[entry.key_hash]], client)
        rest = [entry for entry in unknown if entry not in found]
        changed = resolve_not_created(key_map, rest)
        assert not changed
        return Resolved(len(found), len(rest))
