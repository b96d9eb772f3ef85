"""Opens and resets a sandbox, and stores its contact columns and templates."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

from cpaas_sandbox.core import default_data
from cpaas_sandbox.core.account import Account
from cpaas_sandbox.core.clock import Clock
from cpaas_sandbox.core.context import Column, Options, Sandbox, Table
from cpaas_sandbox.core.counters import Counters
from cpaas_sandbox.core.database import SEEDED, TRAFFIC, Database
from cpaas_sandbox.core.settings import Settings, change_settings, load_settings
from cpaas_sandbox.core.wakeup import WakeUp


def open_sandbox(options: Options) -> Sandbox:
    """Return a sandbox with the state of the database file, or with the default data if the file is new."""
    database = Database(options.database)
    clock = Clock(database)
    settings = change_settings(database, load_settings(database), options.settings, options.allow_remote_callbacks)
    account = Account(database, options.balance)
    if database.load("table") is None:
        _insert_defaults(database, clock)
    wakeups = (WakeUp(clock), WakeUp(clock))
    sandbox = Sandbox(options, database, clock, settings, account, Counters(database), *wakeups, _read_table(database))
    reload(sandbox)
    return sandbox


def change(sandbox: Sandbox, changes: dict[str, Any]) -> None:
    """Change settings, all or none; raise ValueError naming every change that is not allowed."""
    allow_remote = sandbox.options.allow_remote_callbacks
    sandbox.settings = change_settings(sandbox.database, sandbox.settings, changes, allow_remote)


def _insert_defaults(database: Database, clock: Clock) -> None:
    """Store the templates and columns of a new sandbox."""
    save_columns(database, clock, [Column(**column) for column in default_data.COLUMNS])
    for template in default_data.TEMPLATES:
        save_template(database, template)


def save_columns(database: Database, clock: Clock, columns: list[Column], updated: float | None = None) -> None:
    """Store the table's columns."""
    table = database.load("table") or {"id": uuid.uuid4().hex, "created": clock.now()}
    stored = [[column.id, column.name, column.type, list(column.options)] for column in columns]
    database.save("table", table | {"updated": updated, "columns": stored})


def save_template(database: Database, template: dict[str, Any]) -> None:
    """Store a template; it replaces a template of the same id."""
    values = [template["id"], template["channel"], template.get("subject"), template["content"]]
    database.execute("INSERT OR REPLACE INTO templates (id, channel, subject, content) VALUES (?, ?, ?, ?)", values)


def _read_table(database: Database) -> Table:
    table = database.load("table")
    columns = [Column(id_, name, type_, tuple(options)) for id_, name, type_, options in table["columns"]]
    return Table(table["id"], {column.id: column for column in columns}, table["created"], table["updated"])


def reload(sandbox: Sandbox) -> None:
    """Read columns, templates and outcomes from the database, and invalidate the request schemas built from them."""
    sandbox.table = _read_table(sandbox.database)
    sandbox.templates = {row["id"]: row for row in sandbox.database.rows("SELECT * FROM templates")}
    sandbox.outcomes = {}
    for row in sandbox.database.rows("SELECT * FROM outcomes"):
        sandbox.outcomes.setdefault(row["kind"], {})[row["recipient"].lower()] = row["outcome"]
    sandbox.version += 1
    wake(sandbox)


def wake(sandbox: Sandbox) -> None:
    """Wake the scheduler and the dispatcher, because purchases or reports may have become due."""
    sandbox.wakeup.set_now()
    sandbox.report_wakeup.set_now()


def reset(sandbox: Sandbox, keep_seeding: bool = False) -> None:
    """Delete all traffic and faults; without ``keep_seeding`` also seeded data, settings and prices."""
    with sandbox.database.transaction():
        sandbox.database.empty(TRAFFIC)
        sandbox.faults.replace()
        sandbox.clock.reset()
        if not keep_seeding:
            sandbox.database.empty(SEEDED)
            sandbox.settings = Settings()
            change(sandbox, sandbox.options.settings)
        sandbox.account.reset(keep_prices=keep_seeding)
        if not keep_seeding:
            _insert_defaults(sandbox.database, sandbox.clock)
    sandbox.cut_off.set()
    sandbox.cut_off = asyncio.Event()
    reload(sandbox)


def begin_closing(sandbox: Sandbox) -> None:
    """End the loops of scheduler and dispatcher, and every paused response."""
    sandbox.closing.set()
    sandbox.cut_off.set()
