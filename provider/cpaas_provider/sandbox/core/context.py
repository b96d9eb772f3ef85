"""What every part of the sandbox is handed: its state and its tools, without behaviour of its own."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

from cpaas_provider.sandbox.core.account import Account
from cpaas_provider.sandbox.core.clock import Clock
from cpaas_provider.sandbox.core.counters import Counters
from cpaas_provider.sandbox.core.database import Database, Row
from cpaas_provider.sandbox.core.settings import Settings
from cpaas_provider.sandbox.core.wakeup import WakeUp
from cpaas_provider.sandbox.faults.rules import Faults


@dataclass
class Options:
    """How the program was started; a reset returns here."""

    api_key: str
    database: str | None = None
    balance: float | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    allow_remote_callbacks: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    """One typed column; ``options`` narrow a SELECT or MULTI SELECT where they are given."""

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
    """For purchases that move on."""
    report_wakeup: WakeUp
    table: Table
    templates: dict[str, Row] = field(default_factory=dict)
    outcomes: dict[str, dict[str, str]] = field(default_factory=dict)
    """Seeded outcomes by kind and recipient; the kind ``refused`` holds those that are not reachable."""
    version: int = 0
    """Changes with everything that requests are described and checked by."""
    faults: Faults = field(default_factory=Faults)
    started: float = field(default_factory=time.monotonic)
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    cut_off: asyncio.Event = field(default_factory=asyncio.Event)
    """Set for the requests that are under way when the sandbox is reset or ends; those after have another."""
