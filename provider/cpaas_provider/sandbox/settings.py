"""Where the contract leaves a blank, the sandbox can be either: the choices, their defaults, and how to change them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from cpaas_provider.sandbox.database import Database


@dataclass(frozen=True, slots=True)
class Setting:
    """One choice: its default, what it may be, and what it means."""

    default: Any
    means: str
    choices: tuple[str, ...] = ()
    least: float = 0
    most: float = 0

    def read(self, value: Any) -> Any:
        """Return the value where it is allowed; raise ValueError with what is."""
        if self.choices:
            if value not in self.choices:
                raise ValueError(f"must be one of {', '.join(self.choices)}")
        elif isinstance(self.default, bool):
            if not isinstance(value, bool):
                raise ValueError("must be true or false")
        elif isinstance(self.default, str):
            if not isinstance(value, str) or value.count("name") != 1 or not value.replace("name", "", 1).strip():
                raise ValueError("must be the word name between marks, such as {name}")
            if not all(value.split("name")) or len(value) > 20:
                raise ValueError("must have a mark before and after the word name, at most 20 characters in all")
        else:
            whole = isinstance(self.default, int)
            if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
                raise ValueError("must be a whole number" if whole else "must be a number")
            if not self.least <= value <= self.most:
                raise ValueError(f"must be from {self.least:g} to {self.most:g}")
        return value


SETTINGS: dict[str, Setting] = {
    "auth_scheme": Setting("bearer", "how the key comes: 'Bearer <key>', raw, or either", ("bearer", "raw", "either")),
    "envelope": Setting(False, "wrap results as {status, type, message, data}"),
    "otp_status_mode": Setting(
        "lifecycle", "lifecycle: SENT, VERIFIED, ...; sent: the record says SENT throughout", ("lifecycle", "sent")
    ),
    "revoked_otps": Setting("status", "a revoked token stays readable as REVOKED, or is gone: 404", ("status", "gone")),
    "otp_max_attempts": Setting(5, "wrong attempts after which a token is FAILED", least=1, most=100),
    "insufficient_balance": Setting(
        "402", "402: HTTP 402; under_200: the error body with HTTP 200", ("402", "under_200")
    ),
    "delete_body": Setting(
        "message", "what DELETE returns: a message, the record, or nothing (204)", ("message", "record", "empty")
    ),
    "unknown_fields": Setting("ignore", "request fields the contract does not know", ("ignore", "reject")),
    "number_cells": Setting(
        "number", "NUMBER cells: a JSON number only, or also digits in a string", ("number", "number_or_string")
    ),
    "name_refused_recipients": Setting(True, "a pack refused for one recipient names that recipient"),
    "placeholder_format": Setting("{name}", "how a placeholder is written, with the word name in it"),
    "max_recipients": Setting(1000, "most recipients in one request", least=1, most=100_000),
    "airtime_guard_seconds": Setting(300.0, "same amount, same recipient within this time: duplicate", most=86_400),
    "airtime_sent_seconds": Setting(1.0, "pending becomes sent after", most=86_400),
    "airtime_final_seconds": Setting(2.0, "sent becomes final after (since creation)", most=86_400),
    "callback_delay_seconds": Setting(0.0, "delivery reports leave after", most=86_400),
    "callback_timeout_seconds": Setting(5.0, "longest wait for one answer of a callback URL", least=0.1, most=30),
    "callback_attempts": Setting(3, "attempts per delivery report", least=1, most=10),
}


class Settings:
    """The present choices, kept in the database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._values = {name: setting.default for name, setting in SETTINGS.items()}
        kept = database.row("SELECT value FROM keep WHERE name = 'settings'")
        self._values.update(json.loads(kept["value"]) if kept else {})

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def as_json(self) -> dict[str, Any]:
        """Return all choices."""
        return dict(self._values)

    def change(self, changes: dict[str, Any]) -> None:
        """Take over all changes or none; raise ValueError naming every one that is not allowed."""
        wrong = [f"{name}: no such setting" for name in changes if name not in SETTINGS]
        read: dict[str, Any] = {}
        for name, value in changes.items():
            if name in SETTINGS:
                try:
                    read[name] = SETTINGS[name].read(value)
                except ValueError as error:
                    wrong.append(f"{name}: {error}")
        if wrong:
            raise ValueError("; ".join(wrong))
        self._values.update(read)
        value = json.dumps(self._values)
        self._database.execute("INSERT OR REPLACE INTO keep (name, value) VALUES ('settings', ?)", [value])

    def reset(self) -> None:
        """Return to the defaults."""
        self.change({name: setting.default for name, setting in SETTINGS.items()})
