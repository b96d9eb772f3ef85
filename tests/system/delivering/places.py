"""Where the store is: a file of the run's own, or a schema of its own in PostgreSQL."""

from __future__ import annotations

import contextlib
import json
import secrets
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy

from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.schema.delivery import reports, sends
from cpaas_provider.delivery.tracking.counts import read_counts, read_recipients
from tests.system.delivering.service import as_key


@contextlib.contextmanager
def a_store(url: str | None, home: Path) -> Iterator[str]:
    """Give the URL of a store that is empty, and is gone afterwards.

    :param url: of PostgreSQL; ``None`` for SQLite
    """
    if url is None:
        yield f"sqlite:///{home / 'store.db'}"
        return
    name = f"cpaas_delivering_{secrets.token_hex(6)}"
    address = sqlalchemy.make_url(url).set(drivername="postgresql+psycopg2")
    engine = sqlalchemy.create_engine(address, connect_args={"connect_timeout": 10})
    try:
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text(f"CREATE SCHEMA {name}"))
        try:
            own = address.update_query_dict({"options": f"-csearch_path={name}"})
            yield own.render_as_string(hide_password=False)
        finally:
            with engine.begin() as connection:
                connection.execute(sqlalchemy.text(f"DROP SCHEMA {name} CASCADE"))
    finally:
        engine.dispose()


class Stored:
    """What is in the store, by its tables."""

    def __init__(self, url: str) -> None:
        self._database: Database = open_database(url)

    def close(self) -> None:
        """Let go of it."""
        self._database.close()

    def reports(self) -> Counter[str]:
        """Return how often each report was kept, by its body."""
        with self._database.connect() as connection:
            rows = connection.execute(sqlalchemy.select(reports.c.body, reports.c.received_count))
            return Counter({as_key(json.loads(row.body)): row.received_count for row in rows})

    def words(self) -> set[tuple[str, str]]:
        """Return which recipients what was reported of."""
        with self._database.connect() as connection:
            bodies = [json.loads(body) for body in connection.execute(sqlalchemy.select(reports.c.body)).scalars()]
        return {(body["recipient"], body["status"]) for body in bodies}

    def campaigns(self) -> list[str]:
        """Return all that was sent."""
        with self._database.connect() as connection:
            return list(connection.execute(sqlalchemy.select(sends.c.campaign)).scalars())

    def recipients(self) -> list[dict[str, Any]]:
        """Return what is known of everybody."""
        campaigns = self.campaigns()
        with self._database.connect() as connection:
            return list(read_recipients(connection, campaigns))

    def counts(self) -> dict[str, int]:
        """Return of how many recipients what is known."""
        campaigns = self.campaigns()
        with self._database.connect() as connection:
            found = list(read_counts(connection, campaigns).values())
        return {name: sum(getattr(one, name) for one in found) for name in ("delivered", "undelivered", "in_flight")}
