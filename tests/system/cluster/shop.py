"""The shop's database, from which tasks read recipients and contacts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy
from psycopg2.extras import execute_values

from tests.system.killing_contacts.sources import Contact

TABLES = {
    "people": "place integer, phone text, name text",
    "contacts": "place integer, id text, name text, phone text, plan text, points integer",
}


class Shop:
    """Two tables, whose rows are replaced at one stroke.

    :param url: an empty database in PostgreSQL
    """

    def __init__(self, url: str) -> None:
        self._url = sqlalchemy.make_url(url)
        self._engine = sqlalchemy.create_engine(self._url)
        with self._engine.begin() as connection:
            for name, columns in TABLES.items():
                connection.execute(sqlalchemy.text(f"CREATE TABLE {name} ({columns})"))

    @property
    def connection(self) -> str:
        """The Airflow connection to it, as its variable holds it."""
        url = self._url
        parts = {"host": url.host, "port": url.port, "login": url.username, "password": url.password}
        return json.dumps({"conn_type": "postgres", "schema": url.database, **parts})

    def close(self) -> None:
        """Let go of it."""
        self._engine.dispose()

    def put_people(self, people: Sequence[str]) -> None:
        """Have these be the recipients."""
        self._replace("people", ((place, f"+{phone}", f"Person {place}") for place, phone in enumerate(people)))

    def put_contacts(self, contacts: Sequence[Contact]) -> None:
        """Have these be the contacts."""
        rows = ((place, one.id, one.name, f"+{one.phone}", one.plan, one.points) for place, one in enumerate(contacts))
        self._replace("contacts", rows)

    def _replace(self, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
        with self._engine.begin() as connection:
            connection.execute(sqlalchemy.text(f"DELETE FROM {table}"))
            cursor = connection.connection.cursor()
            execute_values(cursor, f"INSERT INTO {table} VALUES %s", list(rows), page_size=2000)
