"""Opens, finds, lists and removes the key maps of the database."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Row, Select, delete, func, insert, select

from cpaas_provider.api.amounts import counted
from cpaas_provider.api.settings import canonical_base_url
from cpaas_provider.contacts.errors import LeaseTakenError, MapMismatchError, MapNameError, NoMapError, SecondMapError
from cpaas_provider.contacts.key_map.entries import MapFacts, RowState
from cpaas_provider.contacts.key_map.key_map import KeyMap
from cpaas_provider.database.database import Database
from cpaas_provider.database.schema.contacts import (
    contact_leases,
    contact_map_values,
    contact_maps,
    contact_rejections,
    contact_rows,
)

DEFAULT_MAP = "default"
MAX_MAP_NAME = 100
"""The most characters of a map's name."""


def open_map(database: Database, *, conn_id: str, base_url: str, table_id: str, name: str = DEFAULT_MAP) -> KeyMap:
    """Return the key map of a contact list. It is made if it does not exist.

    :param conn_id: the Airflow connection of the list
    :param base_url: the connection's base URL now
    :param table_id: the contact table at that service
    :param name: distinguishes several maps of one list, for example those of two sources
    :raises MapMismatchError: when the map belongs to another service or table
    :raises DatabaseError: when the database cannot be used
    """

    def work(connection: Connection) -> MapFacts:
        if (facts := read_facts(connection, conn_id, name)) is not None:
            return facts
        secret = secrets.token_hex(16)
        return insert_map(connection, conn_id=conn_id, name=name, base_url=base_url, table_id=table_id, secret=secret)

    with database.connect() as connection:
        stored = read_facts(connection, conn_id, name)
    facts = stored or database.write(work)
    if not is_list_of(facts, base_url, table_id):
        what = "contact table" if is_list_of(facts, base_url, facts.table_id) else "base URL"
        raise MapMismatchError(
            f"The contact map {name!r} of connection {conn_id!r} was made for another {what}. Nothing was sent. If the "
            "same list is there now, with the same row ids, run: airflow cpaas contacts move-map "
            f"--conn-id {conn_id} --map {name}. It reads a few rows first. If it is another list, set map_name to "
            "another map."
        )
    return KeyMap(database, facts)


def is_list_of(facts: MapFacts, base_url: str, table_id: str) -> bool:
    """Return whether a map belongs to a contact list.

    :param base_url: the base URL of a connection, in any form that the client takes
    """
    return facts.table_id == table_id and canonical_base_url(facts.base_url) == canonical_base_url(base_url)


def check_new_map(database: Database, *, conn_id: str, base_url: str, table_id: str, name: str) -> None:
    """Refuse to create rows under a map without rows, if another map has rows of the same contact list.

    They are most often the same contacts: the connection or the map was renamed, or its name is misspelt. Then the list
    would have each of them twice. A task that uses another map now has perhaps not recorded its first row yet. So a
    sync or upsert checks this once more when it has its own lease: of two that begin at the same time, at least one
    sees the other.

    :raises SecondMapError: when another map has rows, and this one has none or does not exist
    :raises LeaseTakenError: when a task uses another map without rows now
    :raises DatabaseError: when the database cannot be read
    """
    is_row = contact_rows.c.state != int(RowState.REJECTED)
    has_rows = select(contact_rows.c.map_id).where(contact_rows.c.map_id == contact_maps.c.id, is_row).exists()
    with database.connect() as connection:
        filled = [_facts(row) for row in connection.execute(select(contact_maps).where(has_rows))]
        if any((facts.conn_id, facts.name) == (conn_id, name) for facts in filled):
            return
        same_list = [facts for facts in filled if is_list_of(facts, base_url, table_id)]
        if not same_list:
            _check_other_tasks(connection, conn_id=conn_id, base_url=base_url, table_id=table_id, name=name)
            return
        count = select(contact_rows.c.map_id, func.count().label("rows")).where(
            contact_rows.c.map_id.in_([facts.map_id for facts in same_list]), is_row
        )
        rows = connection.execute(count.group_by(contact_rows.c.map_id))
        counts = {row.map_id: row.rows for row in rows}
    fullest = max(same_list, key=lambda facts: counts.get(facts.map_id, 0))
    several = f" {counted(len(same_list) - 1, 'other map')} have rows of it, too." if len(same_list) > 1 else ""
    raise SecondMapError(
        f"The contact map {name!r} of connection {conn_id!r} has no rows. The map {fullest.name!r} of connection "
        f"{fullest.conn_id!r} has {counted(counts.get(fullest.map_id, 0), 'row')} of the same contact list.{several} "
        "Contacts that are in both would be created twice. Nothing was sent. If the connection or the map was renamed, "
        f"run: airflow cpaas contacts move-map --conn-id {fullest.conn_id} --map {fullest.name} --to-conn-id {conn_id} "
        f"--to-map {name}. If map_name or the connection is wrong, correct it. If the source has other contacts, "
        "or the connection leads to another account, set new_map=True."
    )


def _check_other_tasks(connection: Connection, *, conn_id: str, base_url: str, table_id: str, name: str) -> None:
    leased = select(contact_maps, contact_leases.c.owner).join(contact_leases)
    for row in connection.execute(leased.where(contact_leases.c.until > datetime.now(UTC))):
        facts = _facts(row)
        if (facts.conn_id, facts.name) != (conn_id, name) and is_list_of(facts, base_url, table_id):
            raise LeaseTakenError(
                f"{row.owner} uses the contact map {facts.name!r} of connection {facts.conn_id!r}, which is of the "
                f"same contact list, and the map {name!r} has no rows. If both create rows, contacts that are in both "
                "sources would be created twice. Nothing was sent. If the source has other contacts, set new_map=True.",
                row.owner,
            )


def find_map(database: Database, *, conn_id: str, name: str = DEFAULT_MAP) -> KeyMap:
    """Return the key map of a connection.

    :raises NoMapError: when there is none
    :raises DatabaseError: when the database cannot be read
    """
    with database.connect() as connection:
        facts = read_facts(connection, conn_id, name)
    if facts is None:
        raise NoMapError(f"Connection {conn_id!r} has no contact map {name!r}.")
    return KeyMap(database, facts)


def all_maps(database: Database) -> list[KeyMap]:
    """Return all key maps, in the order of connection and name.

    :raises DatabaseError: when the database cannot be read
    """
    query = select(contact_maps).order_by(contact_maps.c.conn_id, contact_maps.c.name)
    with database.connect() as connection:
        return [KeyMap(database, _facts(row)) for row in connection.execute(query)]


def maps_of_list(database: Database, base_url: str, table_id: str) -> list[KeyMap]:
    """Return the key maps of a contact list, of all connections.

    :raises DatabaseError: when the database cannot be read
    """
    return [key_map for key_map in all_maps(database) if is_list_of(key_map.facts, base_url, table_id)]


def forget_map(key_map: KeyMap) -> int:
    """Remove a map with all its entries, and return the number of entries. The contact list keeps its rows.

    :raises LeaseTakenError: when a task works on the list now
    :raises DatabaseError: when the database cannot be written
    """
    lease = key_map.lease("airflow cpaas contacts forget-map", while_importing=True)

    def work(connection: Connection) -> int:
        lease._assert_held(connection)
        return remove_map(connection, key_map.facts.map_id)

    return key_map.database.write(work)


def read_facts(connection: Connection, conn_id: str, name: str) -> MapFacts | None:
    """Return the identity of a map, ``None`` if there is none.

    :raises MapNameError: when it cannot be the name of a map, or the database finds another map by it
    """
    if not isinstance(name, str) or not name.strip() or len(name) > MAX_MAP_NAME:
        raise MapNameError(
            f"The name of a contact map must be text of 1 to {MAX_MAP_NAME} characters. Nothing was sent or changed."
        )
    row = connection.execute(_named(conn_id, name)).one_or_none()
    if row is not None and row.name != name:
        # MariaDB and MySQL compare texts without case. Two sources with one map would delete rows of each other.
        raise MapNameError(
            f"The database finds the contact map {row.name!r} by the name {name!r}. Nothing was "
            "sent or changed. Use that name for the same map, and another name for another map."
        )
    return None if row is None else _facts(row)


def insert_map(
    connection: Connection, *, conn_id: str, name: str, base_url: str, table_id: str, secret: str
) -> MapFacts:
    """Add a map without entries to the database, and return its identity."""
    connection.execute(
        insert(contact_maps).values(
            conn_id=conn_id,
            name=name,
            base_url=base_url,
            table_id=table_id,
            secret=secret,
            fencing_token=0,
            created=datetime.now(UTC),
        )
    )
    return _facts(connection.execute(_named(conn_id, name)).one())


def remove_map(connection: Connection, map_id: int) -> int:
    """Remove a map from the database, and return the number of its entries."""
    removed = connection.execute(delete(contact_rows).where(contact_rows.c.map_id == map_id)).rowcount
    for table in (contact_rejections, contact_map_values, contact_leases):
        connection.execute(delete(table).where(table.c.map_id == map_id))
    connection.execute(delete(contact_maps).where(contact_maps.c.id == map_id))
    return removed


def _named(conn_id: str, name: str) -> Select[Any]:
    return select(contact_maps).where(contact_maps.c.conn_id == conn_id, contact_maps.c.name == name)


def _facts(row: Row[Any]) -> MapFacts:
    return MapFacts(row.id, row.conn_id, row.name, row.base_url, row.table_id, row.secret, row.created)
