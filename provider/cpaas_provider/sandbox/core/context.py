"""The sandbox as a whole: everything a handler needs, and what happens when time passes."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from cpaas_provider.sandbox.core import default_data
from cpaas_provider.sandbox.core.account import Account
from cpaas_provider.sandbox.core.clock import Clock
from cpaas_provider.sandbox.core.counters import Counters
from cpaas_provider.sandbox.core.database import SEEDED, TRAFFIC, Database, Row
from cpaas_provider.sandbox.core.settings import Settings
from cpaas_provider.sandbox.core.wakeup import WakeUp
from cpaas_provider.sandbox.faults.rules import Faults
from cpaas_provider.sandbox.reports.dispatcher import Dispatch
from cpaas_provider.sandbox.reports.schedule import Reports
from cpaas_provider.sandbox.service.cells import Column
from cpaas_provider.sandbox.service.errors import FieldError, invalid, invalid_field
from cpaas_provider.sandbox.service.handlers import airtime

_NEXT = "SELECT min(due) AS due FROM airtime WHERE due IS NOT NULL"


@dataclass(slots=True)
class Table:
    """The one contact table."""

    id: str
    columns: dict[str, Column]
    created: float
    updated: float | None = None


@dataclass
class Options:
    """How the program was started; a reset returns here."""

    api_key: str
    database: str | None = None
    balance: float | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    allow_remote_callbacks: bool = False


class Sandbox:
    """State and rules of the service, without the wire."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.started = time.monotonic()
        self.database = Database(options.database)
        self.clock = Clock(self.database)
        self.settings = Settings(self.database, options.allow_remote_callbacks)
        self.account = Account(self.database)
        self.counters = Counters(self.database)
        self.faults = Faults()
        self.wakeup = WakeUp(self.clock)
        self.reports = Reports(self)
        self.dispatch = Dispatch(self, options.allow_remote_callbacks)
        self.closing = asyncio.Event()
        self.cut_off = asyncio.Event()
        """Set for the requests that are under way when the sandbox is reset or ends; those after have another."""
        self.version = 0
        self.table: Table
        self.templates: dict[str, Row]
        self._outcomes: dict[str, dict[str, str]]
        self.settings.change(options.settings)
        if self.database.row("SELECT 1 FROM keep WHERE name = 'table'") is None:
            self._fresh()
        self.reload()

    def _fresh(self) -> None:
        """Lay out a new sandbox: balance, templates and columns."""
        self._fund()
        self.save_table([Column(**column) for column in default_data.COLUMNS])
        for template in default_data.TEMPLATES:
            self.save_template(template)

    def _fund(self) -> None:
        if self.options.balance is not None:
            self.account.set_balance(self.options.balance)

    def reload(self) -> None:
        """Read from the database what handlers ask for at every request; requests are described anew."""
        kept = self.database.row("SELECT value FROM keep WHERE name = 'table'") or {}
        table = json.loads(kept["value"])
        columns = [Column(id_, name, type_, tuple(options)) for id_, name, type_, options in table["columns"]]
        by_id = {column.id: column for column in columns}
        self.table = Table(table["id"], by_id, table["created"], table["updated"])
        self.templates = {row["id"]: row for row in self.database.rows("SELECT * FROM templates")}
        self._outcomes = {}
        for row in self.database.rows("SELECT * FROM outcomes"):
            self._outcomes.setdefault(row["kind"], {})[row["recipient"]] = row["outcome"]
        self.version += 1
        self.wake()

    def save_table(self, columns: list[Column], updated: float | None = None) -> None:
        """Store the table's columns."""
        kept = self.database.row("SELECT value FROM keep WHERE name = 'table'")
        old = json.loads(kept["value"]) if kept else {"id": uuid.uuid4().hex, "created": self.clock.now()}
        shapes = [[column.id, column.name, column.type, list(column.options)] for column in columns]
        value = json.dumps({"id": old["id"], "created": old["created"], "updated": updated, "columns": shapes})
        self.database.execute("INSERT OR REPLACE INTO keep (name, value) VALUES ('table', ?)", [value])

    def save_template(self, template: dict[str, Any]) -> None:
        """Store a template, replacing one of the same id."""
        values = [template["id"], template["channel"], template.get("subject"), template["content"]]
        sql = "INSERT OR REPLACE INTO templates (id, channel, subject, content) VALUES (?, ?, ?, ?)"
        self.database.execute(sql, values)

    def reset(self, keep_seeding: bool = False) -> None:
        """Forget all traffic; unless told otherwise also what was seeded, set and priced."""
        with self.database.transaction():
            self.database.empty(TRAFFIC)
            self.faults.clear()
            self.clock.reset()
            if keep_seeding:
                self.account.reset(keep_prices=True)
                self._fund()
            else:
                self.database.empty(SEEDED)
                self.account.reset()
                self.settings.reset()
                self.settings.change(self.options.settings)
                self._fresh()
        self.cut_off.set()
        self.cut_off = asyncio.Event()
        self.reload()

    # -- what handlers share --------------------------------------------------------------------------------------

    def recipients(self, listed: str) -> tuple[list[str], dict[str, Any]]:
        """Split the comma-separated list of a send, and refuse what cannot be reached, or leave it out.

        Returns the recipients, and what the record says of those that are left out.
        """
        recipients = [recipient.strip() for recipient in listed.split(",")]
        most = self.settings["max_recipients"]
        if len(recipients) > most:
            raise invalid_field("recipients", f"at most {most} recipients in one request", "too_long")
        taken = [one for one in recipients if one not in self._outcomes.get("refused", ())]
        if self.settings["refused_recipients"] == "leave_out" and 0 < len(taken) < len(recipients):
            bad = [one for one in recipients if one not in taken]
            errors = [self._unreachable("recipients", one).as_json() for one in bad]
            return taken, {"message": "Some recipients are left out", "errors": errors}
        self.refuse_recipients(recipients, "recipients")
        return recipients, {}

    @staticmethod
    def _unreachable(name: str, recipient: str) -> FieldError:
        return FieldError(name, f"{recipient} is not a valid recipient", "invalid_recipient")

    def refuse_recipients(self, recipients: list[str], name: str) -> None:
        """Refuse recipients seeded as unreachable, naming them where the settings say so."""
        refused = self._outcomes.get("refused")
        bad = [recipient for recipient in recipients if recipient in refused] if refused else []
        if bad and self.settings["name_refused_recipients"]:
            raise invalid([self._unreachable(name, one) for one in bad])
        if bad:
            raise invalid_field(name, "a recipient is not valid", "invalid_recipient")

    def outcomes(self, kind: str) -> dict[str, str]:
        """Return the outcomes forced by recipient for a kind of message."""
        return self._outcomes.get(kind, {})

    def deleted(self, message: str, record: dict[str, Any]) -> Any:
        """Return what a DELETE answers, as set: a message, the record, or nothing."""
        bodies = {"message": {"status": 200, "type": "success", "message": message}, "record": record}
        return bodies.get(self.settings["delete_body"])

    # -- time passing ---------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """See to it that whatever is due happens now."""
        self.wakeup.set_now()
        self.dispatch.wakeup.set_now()

    def tick(self) -> None:
        """Let what is due happen; cheap when nothing is."""
        if self.wakeup.due:
            with self.database.transaction():
                self.wakeup.set(None)
                airtime.settle(self)
                self.wakeup.set((self.database.row(_NEXT) or {}).get("due"))

    async def run(self) -> None:
        """Let time pass until the server ends."""
        while not self.closing.is_set():
            self.tick()
            await self.wakeup.sleep()

    def begin_closing(self) -> None:
        """Wake all that waits: the server ends."""
        self.closing.set()
        self.cut_off.set()

    def close(self) -> None:
        """End, and let the database go."""
        self.begin_closing()
        self.database.close()
