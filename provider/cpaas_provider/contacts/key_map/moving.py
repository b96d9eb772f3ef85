"""Moves a key map: to another connection, map name, base URL or contact table, or to renamed key columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from msgspec import Struct
from msgspec.structs import asdict
from sqlalchemy import Connection, func, select, update

from cpaas_provider.api.amounts import counted
from cpaas_provider.contacts.errors import LeaseTakenError, MapMismatchError
from cpaas_provider.contacts.key_map.key_map import KeyMap
from cpaas_provider.contacts.key_map.maps import is_list_of, read_facts, remove_map
from cpaas_provider.contacts.key_map.overview import KEY_COLUMNS, leases_of, owner_of, released
from cpaas_provider.database.schema.contacts import contact_maps, contact_rows


class Destination(Struct, frozen=True):
    """The connection, name and contact list that a map gets.

    :param base_url: the base URL of the connection
    :param table_id: the contact table at that service
    """

    conn_id: str
    name: str
    base_url: str
    table_id: str

    def is_other_list_of(self, key_map: KeyMap) -> bool:
        """Return whether the rows of a map may be others there: at another connection, base URL or table."""
        facts = key_map.facts
        return self.conn_id != facts.conn_id or not is_list_of(facts, self.base_url, self.table_id)


def move_map(key_map: KeyMap, destination: Destination, key: Sequence[str] | None = None) -> None:
    """Give a map another connection, name, list or names of the key columns. It keeps all its entries.

    A map of the destination's name that has no entries is removed.

    :param key: the new names of the key columns, as many as before, in the same order
    :raises MapNameError: when the new name cannot be that of a map; nothing was changed
    :raises MapMismatchError: when a map of that name has entries, another map there has rows of this one, or ``key``
        has another number of columns; nothing was changed
    :raises LeaseTakenError: when a task uses one of the maps; nothing was changed
    :raises DatabaseError: when the database cannot be written
    """
    with released(key_map.lease(owner_of("move-map"))) as lease:
        for held in leases_of(key_map):
            if held.owner != lease.owner:
                raise LeaseTakenError(
                    f"{held.owner} uses this contact map now. Nothing was changed. Run the command again when that "
                    "task has ended.",
                    held.owner,
                )
        _check_key(key_map, key)
        if destination.is_other_list_of(key_map):
            _check_owners(KeyMap(key_map.database, replace(key_map.facts, **asdict(destination))))

        def work(connection: Connection) -> None:
            lease._assert_held(connection)
            _make_room(connection, key_map, destination)
            connection.execute(
                update(contact_maps)
                .where(contact_maps.c.id == key_map.facts.map_id)
                .values(
                    conn_id=destination.conn_id,
                    name=destination.name,
                    base_url=destination.base_url,
                    table_id=destination.table_id,
                )
            )

        key_map.database.write(work)
        if key is not None:
            lease.write([], {KEY_COLUMNS: list(key)})


def _check_key(key_map: KeyMap, key: Sequence[str] | None) -> None:
    stored = key_map.value(KEY_COLUMNS)
    if key is None:
        return
    if not all(map(str.strip, key)):
        raise MapMismatchError("A key column has no name. Nothing was changed. Name it with --key.")
    if stored is not None and len(stored) == len(key):
        return
    if stored is None:
        raise MapMismatchError("The contact map has no key columns yet. Nothing was changed. Leave --key out.")
    raise MapMismatchError(
        f"The key has {counted(len(stored), 'column')}: {' and '.join(stored)}. Nothing was changed. Give as many with "
        "--key. With other columns the keys are others: import the row ids into another map with import-map --replace."
    )


def _check_owners(moved: KeyMap) -> None:
    """Refuse a map whose rows another map of its new list has: a sync of one would delete rows of the other.

    :param moved: the map as it will be
    """
    for page in moved.pages():
        row_ids = [entry.row_id for entry in page if entry.row_id is not None]
        names = {owner.map_name for owner in moved.owners_of_rows(row_ids)} - {moved.facts.name}
        if names:
            raise MapMismatchError(
                f"The contact map {min(names)!r} of connection {moved.facts.conn_id!r} has rows of this map already. "
                "Nothing was changed. A row belongs to one map. Take the rows that both have out of one of them with: "
                "airflow cpaas contacts forget-row or forget-map"
            )


def _make_room(connection: Connection, key_map: KeyMap, destination: Destination) -> None:
    """Remove the map that has the destination's name, if it has no entries."""
    existing = read_facts(connection, destination.conn_id, destination.name)
    if existing is None or existing.map_id == key_map.facts.map_id:
        return
    query = select(func.count()).where(contact_rows.c.map_id == existing.map_id)
    if entries := connection.execute(query).scalar_one():
        raise MapMismatchError(
            f"Another contact map has this name: {existing.name!r} of connection {existing.conn_id!r}, with "
            f"{counted(entries, 'entry', 'entries')}. Nothing was changed. Give the map another name with --to-map."
        )
    remove_map(connection, existing.map_id)
