"""Real syncs, upserts and checks against a row service that was written from the contract alone."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from cpaas_provider.api.client import AsyncCpaasClient, CpaasClient
from cpaas_provider.api.core import Call
from cpaas_provider.api.recipients.msisdn import INTERNATIONAL
from cpaas_provider.contacts.key_map.entries import MapEntry
from cpaas_provider.contacts.key_map.key_map import KeyMap
from cpaas_provider.contacts.key_map.maps import find_map
from cpaas_provider.contacts.mapping.rules import ColumnRule
from cpaas_provider.contacts.sync.decisions import SyncRules
from cpaas_provider.contacts.sync.rows.single_row import RowUpsert, SingleRow, key_hash
from cpaas_provider.contacts.sync.spool import OutcomeLine
from cpaas_provider.contacts.sync.sync import ContactSync, SyncSpec
from cpaas_provider.contacts.sync.verify import Verification, VerifyReport
from cpaas_provider.database.database import Database
from cpaas_provider.sources.lists import ListSource
from tests.row_service import Column, RowService

COLUMNS = (
    Column("c_key", "Key", required=True),
    Column("c_name", "Name"),
    Column("c_plan", "Plan"),
)
RULES = {name: ColumnRule(source=name.lower()) for name in ("Key", "Name", "Plan")}

_names, _runs = itertools.count(), itertools.count()


class Stop:
    """A stop signal that never comes."""

    requested = False
    grace_left = 0.0

    async def wait(self) -> None:
        await asyncio.Event().wait()


@dataclass
class Ended:
    """How one sync ended."""

    report: dict[str, Any]
    lines: list[OutcomeLine]
    error: Exception | None
    requests: int

    def outcomes(self) -> dict[str | None, str]:
        return {line.key: line.outcome.value for line in self.lines}


@dataclass
class Contacts:
    """A row service and the key map of its list."""

    service: RowService
    database: Database
    map_name: str = field(default_factory=lambda: f"real-{next(_names)}")

    @property
    def key_map(self) -> KeyMap:
        return find_map(self.database, conn_id="c", name=self.map_name)

    def entry(self, key: str) -> MapEntry | None:
        hashed = self.key_map.hashes.of_key([key])
        return self.key_map.entries([hashed]).get(hashed)

    def listed(self) -> dict[str, dict[str, Any]]:
        """Return the rows of the list by their key; those without one by their id."""
        with self.service.locked() as table:
            return {str(row.columns.get("c_key") or row.id): dict(row.columns) for row in table.rows.values()}

    def row_id(self, key: str) -> str:
        with self.service.locked() as table:
            return next(row.id for row in table.rows.values() if row.columns.get("c_key") == key)

    def delete_elsewhere(self, *keys: str) -> None:
        """Delete rows as another client."""
        for key in keys:
            row_id = self.row_id(key)
            with self.service.locked() as table:
                table.delete(row_id, by="other")

    def change_elsewhere(self, key: str, cells: Mapping[str, Any]) -> None:
        """Change a row as another client."""
        row_id = self.row_id(key)
        with self.service.locked() as table:
            table.update(row_id, cells, cells, by="other")

    def client(self, **options: Any) -> AsyncCpaasClient:
        limits = {"requests_per_second": 10_000.0, "max_concurrency": 4, "max_retries": 0}
        return AsyncCpaasClient(self.service.url, self.service.api_key, allow_http=True, **{**limits, **options})

    def sync(self, rows: Sequence[Mapping[str, Any]], **options: Any) -> Ended:
        """Sync these rows."""
        client_options = options.pop("client", {})
        rules = SyncRules(**options.pop("rules", {}))
        spec = SyncSpec(
            key=("key",),
            run=f"run {next(_runs)}",
            owner="task",
            rules=rules,
            map_name=self.map_name,
            **{"columns": RULES, "max_deletes": None, "progress_interval": 0, **options},
        )

        @asynccontextmanager
        async def connect() -> AsyncIterator[AsyncCpaasClient]:
            async with self.client(**client_options) as client:
                yield client

        with CpaasClient(self.service.url, self.service.api_key, allow_http=True) as client:
            table = client.get_contact_table()
        before = self.service.requests
        sync = ContactSync(
            spec,
            self.database,
            table,
            Stop(),
            conn_id="c",
            base_url=self.service.url,
            numbers=INTERNATIONAL,
            requests_per_second=client_options.get("requests_per_second", 10_000.0),
            connect=connect,
        )
        error: Exception | None = None
        with sync:
            try:
                sync.begin()
                sync.run(ListSource(rows))
            except Exception as raised:  # noqa: BLE001 - each test tells which
                error = raised
            lines = list(sync.outcomes())
        return Ended(sync.report(), lines, error, self.service.requests - before)

    def upsert(self, key: str, cells: Mapping[str, Any], **rules: Any) -> SingleRow:
        """Create or update one row by its key."""

        async def run() -> SingleRow:
            async with self.client() as client:

                class Requests:
                    async def run(self, call: Call[Any]) -> Any:
                        return await client.run(call)

                    async def pause(self, seconds: float) -> None:
                        raise AssertionError("no other task uses the map")

                columns = {column.id: column.name for column in COLUMNS}
                upsert = RowUpsert(self.key_map, Requests(), "task", SyncRules(**rules), columns)
                return await upsert.run(key_hash(self.key_map, key), cells)

        return asyncio.run(run())

    def verify(self, *, mend: bool = False) -> VerifyReport:
        """Check all rows of the map."""
        report = VerifyReport()

        async def run() -> None:
            async with self.client() as client:
                table = await client.get_contact_table()
                check = Verification(
                    self.key_map, client, table, report, numbers=INTERNATIONAL, mend=mend, max_gone=100
                )
                await check.run(None, lambda done, total: None)

        asyncio.run(run())
        return report


def rows(count: int, plan: str | None = "basic", first: int = 1) -> list[dict[str, Any]]:
    """Return rows of a source."""
    return [{"key": f"k{n}", "name": f"Person {n}", "plan": plan} for n in range(first, first + count)]
