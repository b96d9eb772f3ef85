"""How long each page takes: ``make bench-pages``.

python -m tests.benchmarks.pages [--postgres URL] [--campaigns 10000] [--reports 1000000] [--rounds 40]

It fills an empty database by bulk SQL and asks for each page in this process, without Airflow's own share. SQLite by
default, in a folder that is deleted at the end. In PostgreSQL it uses a schema of its own and drops it.
"""

from __future__ import annotations

import argparse
import contextlib
import secrets
import statistics
import tempfile
import time
from collections.abc import Iterator

import sqlalchemy
from fastapi import FastAPI
from fastapi.testclient import TestClient

from cpaas_provider.database.database import Database, open_database
from cpaas_provider.pages.access import Viewer
from cpaas_provider.pages.app import add_pages
from tests.benchmarks.pages.filling import Filled, fill

LIMIT = 300.0
"""Milliseconds at p95."""


@contextlib.contextmanager
def opened(postgres: str | None) -> Iterator[Database]:
    """Give an empty database, and remove it."""
    if postgres is None:
        with tempfile.TemporaryDirectory() as folder, open_database(f"sqlite:///{folder}/cpaas.db") as database:
            yield database
        return
    name = f"cpaas_bench_{secrets.token_hex(4)}"
    engine = sqlalchemy.create_engine(postgres)
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text(f"CREATE SCHEMA {name}"))
    try:
        with open_database(f"{postgres}?options=-csearch_path%3D{name}") as database:
            yield database
    finally:
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text(f"DROP SCHEMA {name} CASCADE"))
        engine.dispose()


def pages_of(filled: Filled) -> dict[str, tuple[str, dict[str, str] | None]]:
    """Return the pages: an address, and what is asked by a form."""
    return {
        "campaigns": ("/campaigns", None),
        "campaigns, by connection": ("/campaigns?conn_id=conn_1", None),
        "campaigns, by DAG": ("/campaigns?dag_id=dag_007", None),
        "campaigns, by date": ("/campaigns?first=2020-01-01&last=2099-01-01", None),
        "campaigns, last page": ("/campaigns?before=2000-01-01T00:00:00~x", None),
        "a campaign": (f"/campaigns/{filled.small}", None),
        "the largest campaign": (f"/campaigns/{filled.large}", None),
        "over time": ("/over-time", None),
        "contact syncs": ("/contact-syncs", None),
        "passcodes, 7 days": ("/passcodes?days=7", None),
        "passcodes, 90 days": ("/passcodes?days=90", None),
        "airtime, 30 days": ("/airtime?days=30", None),
        "reports a minute": ("/reports", None),
        "search by recipient": ("/search", {"q": filled.recipient}),
        "search by reference": ("/search", {"q": filled.request}),
        "search, nothing found": ("/search", {"q": "2348099999999"}),
    }


def measure(client: TestClient, filled: Filled, rounds: int) -> bool:
    """Print the times of each page; return whether all of them keep to the limit."""
    kept = True
    print(f"{'page':28} {'first':>8} {'p50':>8} {'p95':>8} {'max':>8}  ms")
    for name, (path, form) in pages_of(filled).items():
        times = []
        for _ in range(rounds):
            began = time.perf_counter()
            answer = client.get(path) if form is None else client.post(path, data=form)
            times.append(1000 * (time.perf_counter() - began))
            assert answer.status_code == 200, (path, answer.status_code)
        p95 = statistics.quantiles(times, n=20)[-1]
        kept &= p95 <= LIMIT
        print(f"{name:28} {times[0]:8.1f} {statistics.median(times):8.1f} {p95:8.1f} {max(times):8.1f}")
    return kept


def main() -> int:
    """Fill, measure, clean up; return the exit status."""
    parser = argparse.ArgumentParser(prog="bench-pages", description=__doc__)
    parser.add_argument("--postgres", help="URL of a PostgreSQL database to make a schema in")
    parser.add_argument("--campaigns", type=int, default=10_000)
    parser.add_argument("--reports", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=40)
    given = parser.parse_args()
    began = time.monotonic()
    with opened(given.postgres) as database:
        filled = fill(
            database,
            given.campaigns,
            given.reports,
            lambda words: print(f"{time.monotonic() - began:6.0f} s  {words}", flush=True),
        )
        app = add_pages(FastAPI(), lambda: Viewer(set, True), lambda: database, lambda places: {})
        with TestClient(app) as client:
            kept = measure(client, filled, given.rounds)
    print(f"Every page keeps to {LIMIT:.0f} ms at p95." if kept else f"Not every page keeps to {LIMIT:.0f} ms at p95.")
    return 0 if kept else 1


if __name__ == "__main__":
    raise SystemExit(main())
