"""Where the contenders run: a server of their own, or all together in Airflow's API server; each on a fresh store."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx
import sqlalchemy

from cpaas_provider.database.database import open_database
from cpaas_provider.database.schema.delivery import reports
from cpaas_provider.delivery.callbacks.tokens import CallbackToken, callback_url
from cpaas_provider.delivery.tracking.sent_requests import TrackedSend, record_send_started
from tests.benchmarks.receiver.bodies import SIGNATURE_HEADER, WEBHOOK_SECRET
from tests.ports import reserved_ports
from tests.processes import Started
from tests.unit.database.migrated import POSTGRES

START_SECONDS = 180.0
CONTENDERS = ("bare", "singly", "ours")
_HERE = "tests.benchmarks.receiver.contenders"
_ALONE = {
    "bare": (f"{_HERE}:bare", ""),
    "singly": (f"{_HERE}:singly", ""),
    "ours": ("cpaas_provider.cli.receiver.command:application", ""),
}
_MOUNTED = {"bare": "/bare", "singly": "/singly", "ours": "/cpaas"}
_CONNECTION = {
    "conn_type": "cpaas",
    "host": "https://api.example.com",
    "password": "sk_bench",
    "extra": {"webhook_secret": WEBHOOK_SECRET, "signature_header": SIGNATURE_HEADER},
}


@dataclass
class Place:
    """A contender that answers, and what it writes to."""

    port: int
    paths: Path
    store: str
    body: str

    def load(self, connections: int, seconds: float, rate: float = 0) -> dict[str, object]:
        """Send reports from a process of its own."""
        command = [sys.executable, "-m", "tests.benchmarks.receiver.load"]
        given = [str(self.port), str(self.paths), str(connections), str(seconds), str(rate), self.body]
        done = subprocess.run([*command, *given], capture_output=True, text=True, timeout=seconds + 120, check=True)
        return dict(json.loads(done.stdout))

    def stored(self) -> int:
        """Return how many reports are in the store, repeats among them."""
        with open_database(self.store) as database, database.connect() as reading:
            return int(reading.execute(sqlalchemy.select(sqlalchemy.func.sum(reports.c.received_count))).scalar() or 0)


@contextlib.contextmanager
def airflow_home() -> Iterator[Path]:
    """Make an Airflow, with its database, that mounts the contenders."""
    with tempfile.TemporaryDirectory() as folder:
        command = [str(Path(sys.executable).with_name("airflow")), "db", "migrate"]
        subprocess.run(command, env=_environment(Path(folder), ""), capture_output=True, timeout=300, check=True)
        yield Path(folder)


@contextlib.contextmanager
def running(home: Path, stores: Path, contender: str, kind: str, mounted: bool, body: str) -> Iterator[Place]:
    """Run one contender in one worker.

    :param stores: folder in which an SQLite store lies
    :param body: the kind of report it is sent
    """
    (port,) = reserved_ports(1)
    target, prefix = ("airflow.api_fastapi.main:app", _MOUNTED[contender]) if mounted else _ALONE[contender]
    command = [sys.executable, "-m", "uvicorn", target, "--port", str(port), "--no-access-log"]
    command += ["--log-level", "warning", *([] if mounted else ["--factory"])]
    paths = home / "paths"
    tokens = [CallbackToken(f"campaign-{one % 10}", f"request-{one}", 1000) for one in range(1000)]
    urls = [callback_url(prefix, "cpaas_bench", "sk_bench", token) for token in tokens]
    paths.write_text("\n".join([f"{prefix}/webhook/cpaas_bench"] if body == "webhook" else urls))
    with _store(stores, kind) as store:
        _note_sends(store, {token.campaign for token in tokens})
        log = home / f"{contender}.log"
        started = Started.start(command, _environment(home, store), log, Path.cwd())
        try:
            _wait(port, started, log)
            yield Place(port, paths, store, body)
        finally:
            started.stop()


def _note_sends(store: str, campaigns: set[str]) -> None:
    """Note what is reported of, as operators do before they send."""
    with open_database(store) as database:
        for campaign in campaigns:
            send = TrackedSend(campaign, "send_sms", "cpaas_bench", "bench", "run", "send", -1)
            database.write(partial(record_send_started, send=send))


def _environment(home: Path, store: str) -> dict[str, str]:
    return {
        **os.environ,
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(Path(__file__).parent / "plugins"),
        "AIRFLOW__CPAAS__DATABASE": store,
        "AIRFLOW_CONN_CPAAS_BENCH": json.dumps(_CONNECTION),
        "PYTHONPATH": str(Path.cwd()),
    }


@contextlib.contextmanager
def _store(folder: Path, kind: str) -> Iterator[str]:
    name = f"cpaas_bench_{secrets.token_hex(6)}"
    if kind == "SQLite":
        yield f"sqlite:///{folder / name}.db"
        return
    engine = sqlalchemy.create_engine(POSTGRES)
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text(f"CREATE SCHEMA {name}"))
    try:
        yield f"{POSTGRES}?options=-csearch_path%3D{name}"
    finally:
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text(f"DROP SCHEMA {name} CASCADE"))
        engine.dispose()


def _wait(port: int, started: Started, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        with contextlib.suppress(httpx.TransportError):
            httpx.get(f"http://127.0.0.1:{port}/no-such-page", timeout=5, trust_env=False, verify=False)
            return
        if not started.alive or time.monotonic() > deadline:
            sys.exit(f"The server did not begin:\n{log.read_text()[-2000:]}")
        time.sleep(0.2)
