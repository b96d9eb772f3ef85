"""Where a receiver is attacked: by itself or in Airflow's API server, on a database of its own."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import sqlalchemy

from cpaas_provider.database.database import open_database
from cpaas_provider.database.schema.delivery import reports
from cpaas_provider.delivery.callbacks.tokens import CallbackToken, callback_url
from cpaas_provider.delivery.tracking.retention import prune
from tests.airflow_database import make_airflow_database
from tests.airflow_home import settings_for, without_airflow
from tests.ports import reserved_ports
from tests.processes import Started
from tests.system.delivering.places import a_store
from tests.system.standalone import wait_for

HONEST, MALLORY = "cpaas_honest", "cpaas_mallory"
SIGNED_BY = {HONEST: "sk_honest", MALLORY: "sk_mallory"}
WEBHOOK_SECRET = {HONEST: "of-honest-webhooks", MALLORY: "of-mallorys-webhooks"}
HEADER = "X-Signature"
START_SECONDS = 300.0
UI_USER, UI_PASSWORD = "admin", "of-the-admin"

_AIRFLOW = str(Path(sys.executable).with_name("airflow"))


@dataclass
class Place:
    """A receiver that answers.

    :param mounted: by Airflow's API server, whose pages have to answer too
    """

    port: int
    store: str
    mounted: bool
    command: list[str]
    environment: dict[str, str]
    log: Path
    started: Started

    def start_again(self) -> None:
        """Start it anew at the same port, once it has ended."""
        self.started = Started.start(self.command, self.environment, self.log, Path.cwd())

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def path(self, token: CallbackToken, conn_id: str = HONEST, secret: str | None = None) -> str:
        """Return the path of a callback URL."""
        return callback_url("/cpaas", conn_id, secret or SIGNED_BY[conn_id], token)

    def stored(self, conn_id: str) -> list[str]:
        """Return the bodies in the database that came for a connection."""
        with open_database(self.store) as database, database.connect() as reading:
            query = sqlalchemy.select(reports.c.body).where(reports.c.conn_id == conn_id)
            return list(reading.execute(query).scalars())

    def stored_of(self, campaign: str) -> int:
        """Return how many reports of a campaign are in the database."""
        with open_database(self.store) as database, database.connect() as reading:
            query = sqlalchemy.select(sqlalchemy.func.count()).where(reports.c.campaign == campaign)
            return int(reading.execute(query).scalar_one())

    def prune_all(self, older_than: timedelta) -> None:
        """Prune all reports as if they had come before that, so that replays of them are of something pruned."""
        before = datetime.now(UTC) - older_than
        long_ago = sqlalchemy.update(reports).values(received_at=before - timedelta(days=1))
        with open_database(self.store) as database:
            database.write(lambda connection: connection.execute(long_ago))
            gone = dict(prune(database, before, before))
        if not gone[reports.name]:
            raise RuntimeError("There was no report to be pruned.")

    def memory(self) -> int:
        """Return what its processes take, in bytes."""
        total = 0
        for process in self.started.processes():
            with contextlib.suppress(Exception):
                total += process.memory_info().rss
        return total


@contextlib.contextmanager
def receiving(
    folder: Path,
    postgres: str | None,
    *,
    mounted: bool = False,
    workers: int = 1,
    store_at: Path | None = None,
    through: Callable[[str], str] = str,
) -> Iterator[Place]:
    """Run a receiver with two connections.

    :param postgres: where its database is made; ``None`` for SQLite
    :param workers: processes that take reports, of one that runs by itself
    :param store_at: a folder for the file of SQLite
    :param through: gives, by the URL of the database, the one the receiver is told
    """
    (port,) = reserved_ports(1)
    with a_store(postgres, store_at or folder) as store:
        environment = _environment(folder, through(store))
        make_airflow_database(folder / "airflow")
        _let_user_in(folder / "airflow")
        log = folder / "receiver.log"
        command = _command(port, mounted, workers)
        started = Started.start(command, environment, log, Path.cwd())
        place = Place(port, store, mounted, command, environment, log, started)
        try:
            wait_for("the receiver to begin", lambda: answers(place), START_SECONDS)
            yield place
        finally:
            place.started.stop()


def _command(port: int, mounted: bool, workers: int) -> list[str]:
    if not mounted:
        return [_AIRFLOW, "cpaas", "receiver", "--port", str(port), "--workers", str(workers)]
    served = ["airflow.api_fastapi.main:app", "--port", str(port), "--no-access-log", "--log-level", "warning"]
    return [sys.executable, "-m", "uvicorn", *served]


def _let_user_in(home: Path) -> None:
    # SimpleAuthManager takes a password file that is there already, and then prints none.
    (home / "simple_auth_manager_passwords.json.generated").write_text(json.dumps({UI_USER: UI_PASSWORD}))


def _environment(folder: Path, store: str) -> dict[str, str]:
    connections = {
        f"AIRFLOW_CONN_{conn_id.upper()}": json.dumps(
            {
                "conn_type": "cpaas",
                "host": "https://api.example.com",
                "password": SIGNED_BY[conn_id],
                "extra": {"webhook_secret": WEBHOOK_SECRET[conn_id], "signature_header": HEADER},
            }
        )
        for conn_id in (HONEST, MALLORY)
    }
    ours = {
        "AIRFLOW__API__SECRET_KEY": secrets.token_urlsafe(32),
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_urlsafe(64),
        "AIRFLOW__CPAAS__DATABASE": store,
        "NO_COLOR": "1",
    }
    return {**without_airflow(os.environ), **settings_for(folder / "airflow"), **connections, **ours}


def answers(place: Place) -> bool | None:
    if not place.started.alive:
        raise RuntimeError(f"The receiver ended at once:\n{place.log.read_text()[-2000:]}")
    with contextlib.suppress(httpx.TransportError):
        httpx.get(f"{place.url}/cpaas/health", timeout=5, trust_env=False, verify=False)
        return True
    return None
