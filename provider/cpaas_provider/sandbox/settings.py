"""Where the contract leaves a blank, the sandbox can be either: the choices, their defaults, and how to change them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cpaas_provider.sandbox.database import Database
from cpaas_provider.sandbox.dispatch import MAX_CONCURRENCY, MAX_TIMEOUT_SECONDS
from cpaas_provider.sandbox.hosts import is_loopback
from cpaas_provider.sandbox.requests import URL_PATTERN
from cpaas_provider.sandbox.shapes import EVENT_SHAPES, SHAPES

MASK = "********"
_DAY = 86_400


def _refuse_marks(value: str) -> None:
    if value.count("name") != 1 or not value.replace("name", "", 1).strip():
        raise ValueError("must be the word name between marks, such as {name}")
    if not all(value.split("name")) or len(value) > 20:
        raise ValueError("must have a mark before and after the word name, at most 20 characters in all")


def _refuse_url(value: str) -> None:
    if value and not re.fullmatch(URL_PATTERN, value):
        raise ValueError("must be an absolute http or https URL, or empty for none")


def _refuse_secret(value: str) -> None:
    if value and not re.fullmatch("[!-~]{8,200}", value):
        raise ValueError("must be 8 to 200 printable ASCII characters without spaces, or empty for none")
    if value and not value.strip("*"):
        raise ValueError("must be the secret itself: asterisks only hide it")


def _refuse_header(value: str) -> None:
    if not re.fullmatch("[A-Za-z][A-Za-z0-9-]{0,63}", value):
        raise ValueError("must be a header's name: a letter, then letters, digits and dashes, at most 64 in all")
    if value.lower() in ("host", "connection", "user-agent", "expect", "upgrade", "te") or value.lower().startswith(
        ("content-", "transfer-")
    ):
        raise ValueError("must be a header that means nothing else already")


@dataclass(frozen=True, slots=True)
class Setting:
    """One choice: its default, what it may be, and what it means; ``refuse`` looks at a text."""

    default: Any
    means: str
    choices: tuple[str, ...] = ()
    least: float = 0
    most: float = 0
    refuse: Callable[[str], None] | None = None
    secret: bool = False

    def read(self, value: Any) -> Any:
        """Return the value where it is allowed; raise ValueError with what is."""
        if self.choices:
            if value not in self.choices:
                raise ValueError(f"must be one of {', '.join(self.choices)}")
        elif isinstance(self.default, bool):
            if not isinstance(value, bool):
                raise ValueError("must be true or false")
        elif self.refuse:
            if not isinstance(value, str):
                raise ValueError("must be a string")
            self.refuse(value)
        else:
            whole = isinstance(self.default, int)
            if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
                raise ValueError("must be a whole number" if whole else "must be a number")
            if not self.least <= value <= self.most:
                raise ValueError(f"must be from {self.least:.12g} to {self.most:.12g}")
        return value


def _rate(means: str) -> Setting:
    return Setting(0.0, means, most=1)


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
    "refused_recipients": Setting(
        "reject",
        "a send with a refused recipient: rejected whole, or accepted for the others, with errors beside the record",
        ("reject", "leave_out"),
    ),
    "placeholder_format": Setting(
        "{name}", "how a placeholder is written, with the word name in it", refuse=_refuse_marks
    ),
    "max_recipients": Setting(1000, "most recipients in one request", least=1, most=100_000),
    "airtime_guard_seconds": Setting(300.0, "same amount, same recipient within this time: duplicate", most=86_400),
    "airtime_sent_seconds": Setting(1.0, "pending becomes sent after", most=86_400),
    "airtime_final_seconds": Setting(2.0, "sent becomes final after (since creation)", most=86_400),
    "callback_shape": Setting("status", "how reports to a request's callback are written", tuple(SHAPES)),
    "webhook_url": Setting("", "the account's webhook, told of every final report; empty: none", refuse=_refuse_url),
    "webhook_secret": Setting("", "signs what goes to the webhook", refuse=_refuse_secret, secret=True),
    "webhook_shape": Setting("event", "how reports to the webhook are written", EVENT_SHAPES),
    "signature_header": Setting("X-Signature", "header that carries the webhook's signature", refuse=_refuse_header),
    "report_delay_seconds": Setting(0.0, "final reports leave after", most=_DAY),
    "report_engagement_seconds": Setting(
        0.0, "openings and clicks are reported this long after what came before", most=_DAY
    ),
    "report_in_flight": Setting(False, "callbacks also hear that it was sent, before the final report"),
    "report_timeout_seconds": Setting(5.0, "longest wait for one acknowledgement", least=0.1, most=MAX_TIMEOUT_SECONDS),
    "report_concurrency": Setting(8, "reports on their way at a time", least=1, most=MAX_CONCURRENCY),
    "report_interval_seconds": Setting(
        3600.0, "until a report that was not acknowledged is sent again", least=0.05, most=_DAY
    ),
    "report_attempts": Setting(25, "attempts at a report, the first included", least=1, most=1000),
    "report_window_seconds": Setting(float(_DAY), "no repeat later than this after the first attempt", most=30 * _DAY),
    "report_seed": Setting(0, "what all draws below come from, with the recipient", most=10**9),
    "report_undelivered_rate": _rate("share of SMS recipients who are not reached"),
    "report_bounced_rate": _rate("share of email recipients whose mail bounces"),
    "report_failed_rate": _rate("share of airtime recipients whose purchase fails"),
    "report_opened_rate": _rate("share of the emails delivered that are opened"),
    "report_clicked_rate": _rate("share of the trackable SMS and emails delivered in which a link is followed"),
    "report_duplicate_rate": _rate("share of reports sent twice or three times"),
    "report_repeat_rate": _rate("share of reports sent once more after the interval although acknowledged"),
    "report_disorder": _rate("share of recipients whose reports come last first, and at any place among the others"),
}


def _check_together(values: Mapping[str, Any], allow_remote: bool) -> None:
    """Raise ValueError where choices that are each allowed make no sense together."""
    url = values["webhook_url"]
    if url and not values["webhook_secret"]:
        raise ValueError("webhook_url: set webhook_secret too, it signs what goes there")
    if url and not (allow_remote or is_loopback(url)):
        raise ValueError("webhook_url: is not on this machine; start with --allow-remote-callbacks to call it")


class Settings:
    """The present choices, kept in the database."""

    def __init__(self, database: Database, allow_remote: bool) -> None:
        self._database = database
        self._allow_remote = allow_remote
        self._values = {name: setting.default for name, setting in SETTINGS.items()}
        kept = database.row("SELECT value FROM keep WHERE name = 'settings'")
        stored = json.loads(kept["value"]) if kept else {}
        # a file of another version may know others
        self._values.update({name: value for name, value in stored.items() if name in SETTINGS})

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def as_json(self) -> dict[str, Any]:
        """Return all choices; a secret is not shown."""
        return {name: MASK if SETTINGS[name].secret and value else value for name, value in self._values.items()}

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
        if any(name.startswith("webhook_") for name in read):
            _check_together(self._values | read, self._allow_remote)
        self._values.update(read)
        value = json.dumps(self._values)
        self._database.execute("INSERT OR REPLACE INTO keep (name, value) VALUES ('settings', ?)", [value])

    def reset(self) -> None:
        """Return to the defaults."""
        self.change({name: setting.default for name, setting in SETTINGS.items()})
