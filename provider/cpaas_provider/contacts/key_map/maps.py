"""Opens, finds, lists and removes the key maps of the database."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Row, Select, delete, insert, select

from cpaas_provider.contacts.errors import MapMismatchError, NoMapError
from cpaas_provider.contacts.key_map.entries import MapFacts
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
    if (facts.base_url, facts.table_id) != (base_url, table_id):
        what = "base URL" if facts.base_url != base_url else "contact table"
        raise MapMismatchError(
            f"The contact map {name!r} of connection {conn_id!r} was made for another {what}. Its row ids mean nothing "
            "there. Nothing was sent. Set map_name to start another map, or remove this one with: airflow cpaas "
            f"contacts forget-map --conn-id {conn_id} --map {name}"
        )
    return KeyMap(database, facts)


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
    """Return the identity of a map, ``None`` if there is none."""
    row = connection.execute(_named(conn_id, name)).one_or_none()
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
