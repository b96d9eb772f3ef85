"""The object that every part of the sandbox receives: shared state and services, without behaviour."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

from cpaas_sandbox.core.account import DEFAULT_BALANCE, Account
from cpaas_sandbox.core.clock import Clock
from cpaas_sandbox.core.counters import Counters
from cpaas_sandbox.core.database import Database, Row
from cpaas_sandbox.core.settings import Settings
from cpaas_sandbox.core.wakeup import WakeUp
from cpaas_sandbox.faults.rules import Faults


@dataclass
class Options:
    """The options of the command line; a reset restores them."""

    api_key: str
    database: str | None = None
    balance: float = DEFAULT_BALANCE
    settings: dict[str, Any] = field(default_factory=dict)
    allow_remote_callbacks: bool = False
    allowed_hosts: tuple[str, ...] = ()
    """Names that the Host header may have, beside those of the loopback and the address of the connection."""


@dataclass(frozen=True, slots=True)
class Column:
    """One typed column; non-empty ``options`` are the only values of a SELECT or MULTI SELECT."""

    id: str
    name: str
    type: str
    options: tuple[str, ...] = ()


@dataclass(slots=True)
class Table:
    """The one contact table."""

    id: str
    columns: dict[str, Column]
    created: float
    updated: float | None = None


@dataclass
class Sandbox:
    """The state of one sandbox. ``table``, ``templates`` and ``outcomes`` are read from the database by ``state``."""

    options: Options
    database: Database
    clock: Clock
    settings: Settings
    account: Account
    counters: Counters
    wakeup: WakeUp
    """Wakes the scheduler when a purchase changes its status."""
    report_wakeup: WakeUp
    """Wakes the dispatcher when a delivery report is due."""
    table: Table
    templates: dict[str, Row] = field(default_factory=dict)
    outcomes: dict[str, dict[str, str]] = field(default_factory=dict)
    """Seeded outcomes by kind and recipient in small letters; the kind ``refused`` holds the refused recipients."""
    version: int = 0
    """Increases with every change of what requests are checked against: columns, templates, settings."""
    faults: Faults = field(default_factory=Faults)
    started: float = field(default_factory=time.monotonic)
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    cut_off: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the sandbox is reset or ends, for the requests in progress; a reset makes a new event for later ones."""
