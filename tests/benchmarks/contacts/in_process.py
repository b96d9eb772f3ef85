"""One measured process: a sync without Airflow around it, a map that is filled without requests, or a bare loop.

python -m tests.benchmarks.contacts.in_process WORK JSON   prints figures as JSON; WORK is a name in WORKS
"""

from __future__ import annotations

import asyncio
import contextlib
import csv
import json
import resource
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Callable
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any

from cpaas_provider.api.client import AsyncCpaasClient, CpaasClient
from cpaas_provider.api.recipients.msisdn import INTERNATIONAL
from cpaas_provider.contacts.key_map.entries import Change, MapEntry
from cpaas_provider.contacts.key_map.maps import open_map
from cpaas_provider.contacts.mapping.rows import RowMapping
from cpaas_provider.contacts.mapping.rules import parse_mapping
from cpaas_provider.contacts.sync.decisions import SyncRules, in_step
from cpaas_provider.contacts.sync.spool import WorkItem
from cpaas_provider.contacts.sync.sync import ContactSync, SyncSpec
from cpaas_provider.database.database import open_database
from cpaas_provider.sending.shutdown import StopSignal
from cpaas_provider.sources import CsvSource
from tests.benchmarks.contacts.rows import COLUMNS, KEY

_AT_ONCE = 5_000
_MAX_CONCURRENCY = 16
_NO_LIMIT = 10_000
"""Requests a second."""


def fill(given: dict[str, Any]) -> dict[str, Any]:
    """Fill a map as if the list had all rows of a file."""
    with CpaasClient(given["url"], given["key"]) as client, open_database(given["database"]) as database:
        table = client.get_contact_table()
        key_map = open_map(database, conn_id="bench", base_url=given["url"], table_id=table.id)
        lease, rules = key_map.lease("fill"), SyncRules()
        with CsvSource(given["path"]).open() as source:
            mapping = _mapping(table, source.columns)
            secret = key_map.hashes.row_secret(mapping.rules_signature + mapping.type_signature)
            rows = source.rows(mapping.source_columns)
            while some := list(islice(rows, _AT_ONCE)):
                changes = []
                for number, values in some:
                    cells = dict(zip(mapping.source_columns, values, strict=True))
                    key_hash = key_map.hashes.of_key(mapping.key_of(cells) or ())
                    raw_hash = key_map.hashes.of_row(secret, mapping.raw_values(cells))
                    item = WorkItem(key_hash, number, None, raw_hash, mapping.cells(cells))
                    entry = in_step(item, MapEntry(key_hash), f"row_{number}", rules, key_map.hashes)
                    changes.append(Change(MapEntry(key_hash), entry))
                lease.write(changes)
        lease.write([], {"key_columns": [KEY], "column_types": mapping.type_signature})
        lease.release()
    return {}


def sync(given: dict[str, Any]) -> dict[str, Any]:
    """Sync a file, and say what was sent: how many requests, and how many cells."""
    cells: list[int] = []
    per_second = given.get("per_second", _NO_LIMIT)

    class Counting(AsyncCpaasClient):
        async def update_contact_row(self, row_id: str, columns: Any) -> Any:
            cells.append(len(columns))
            return await AsyncCpaasClient.update_contact_row(self, row_id, columns)

    @contextlib.asynccontextmanager
    async def connect() -> AsyncIterator[AsyncCpaasClient]:
        limits = {"max_concurrency": _MAX_CONCURRENCY, "requests_per_second": per_second}
        client = await asyncio.to_thread(Counting, given["url"], given["key"], **limits)
        async with client:
            yield client

    with CpaasClient(given["url"], given["key"]) as client:
        table = client.get_contact_table()
    spec = SyncSpec(
        key=(KEY,), columns=parse_mapping(COLUMNS), run="bench", owner="bench", rules=SyncRules(on_unknown="skip")
    )
    with (
        open_database(given["database"]) as database,
        ContactSync(
            spec,
            database,
            table,
            StopSignal(),
            conn_id="bench",
            base_url=given["url"],
            numbers=INTERNATIONAL,
            requests_per_second=per_second,
            connect=connect,
        ) as one,
    ):
        one.begin()
        one.run(CsvSource(given["path"]))
        report = one.report()
    names = ("rows", "created", "updated", "unchanged", "unknown", "requests")
    return {name: report[name] for name in names} | {"cells": sum(cells), "most_cells": max(cells, default=0)}


def bare(given: dict[str, Any]) -> dict[str, Any]:
    """Read, hash and look up the same rows: the least that anybody has to do who finds out what changed."""
    known = sqlite3.connect(given["database"].removeprefix("sqlite:///"))
    unchanged = rows = 0
    with Path(given["path"]).open(newline="", encoding="utf-8") as file:
        for row in islice(csv.reader(file), 1, None):
            rows += 1
            key = blake2b(row[0].encode(), digest_size=16).digest()
            digest = blake2b(repr(row).encode(), digest_size=16).digest()
            found = known.execute("SELECT digest FROM rows WHERE key = ?", [key]).fetchone()
            unchanged += found is not None and found[0] == digest
    known.close()
    return {"rows": rows, "unchanged": unchanged}


def fill_bare(given: dict[str, Any]) -> dict[str, Any]:
    """Fill the table that ``bare`` looks into."""
    known = sqlite3.connect(given["database"].removeprefix("sqlite:///"))
    known.execute("CREATE TABLE rows (key BLOB PRIMARY KEY, digest BLOB NOT NULL) WITHOUT ROWID")
    with Path(given["path"]).open(newline="", encoding="utf-8") as file:
        known.executemany(
            "INSERT INTO rows VALUES (?, ?)",
            (
                (
                    blake2b(row[0].encode(), digest_size=16).digest(),
                    blake2b(repr(row).encode(), digest_size=16).digest(),
                )
                for row in islice(csv.reader(file), 1, None)
            ),
        )
    known.commit()
    known.close()
    return {}


def _mapping(table: Any, columns: Any) -> RowMapping:
    return RowMapping(
        parse_mapping(COLUMNS), table, columns, numbers=INTERNATIONAL, empty_cell_value="null", key=(KEY,)
    )


WORKS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "fill": fill,
    "sync": sync,
    "bare": bare,
    "fill_bare": fill_bare,
}


def main() -> None:
    """Do one work, and print its figures."""
    began = time.monotonic()
    used = time.process_time()
    done = WORKS[sys.argv[1]](json.loads(sys.argv[2]))
    figures = {
        "seconds": round(time.monotonic() - began, 2),
        "cpu_seconds": round(time.process_time() - used, 2),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }
    print(json.dumps(done | figures))


if __name__ == "__main__":
    main()
