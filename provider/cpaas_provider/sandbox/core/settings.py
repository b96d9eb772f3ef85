"""Where the contract leaves a blank, the sandbox can be either: the choices, their defaults, and how to change them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cpaas_provider.sandbox.core.database import Database
from cpaas_provider.sandbox.core.hosts import is_loopback
from cpaas_provider.sandbox.core.patterns import URL_PATTERN

MASK = "********"
MAX_CONCURRENCY = 64
MAX_TIMEOUT_SECONDS = 30.0
REPORT_FORMATS = ("status", "status_object", "event", "event_data")
EVENT_FORMATS = ("event", "event_data")
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
        raise ValueError("must be the secret itself, not its mask of asterisks")


def _refuse_header(value: str) -> None:
    if not re.fullmatch("[A-Za-z][A-Za-z0-9-]{0,63}", value):
        raise ValueError("must be a header's name: a letter, then letters, digits and dashes, at most 64 in all")
    if value.lower() in ("host", "connection", "user-agent", "expect", "upgrade", "te") or value.lower().startswith(
        ("content-", "transfer-")
    ):
        raise ValueError("must be a header without another meaning")


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
    "auth_scheme": Setting(
        "bearer", "accepted form of the API key: 'Bearer <key>', raw, or either", ("bearer", "raw", "either")
    ),
    "envelope": Setting(False, "wrap results as {status, type, message, data}"),
    "otp_status_mode": Setting(
        "lifecycle", "lifecycle: SENT, VERIFIED, ...; sent: the status is SENT throughout", ("lifecycle", "sent")
    ),
    "revoked_otps": Setting(
        "status", "status: a revoked passcode is readable as REVOKED; gone: it is 404", ("status", "gone")
    ),
    "otp_max_attempts": Setting(5, "wrong codes until a passcode has FAILED", least=1, most=100),
    "insufficient_balance": Setting(
        "402", "402: HTTP 402; under_200: the error body with HTTP 200", ("402", "under_200")
    ),
    "delete_body": Setting(
        "message", "what DELETE returns: a message, the record, or nothing (204)", ("message", "record", "empty")
    ),
    "unknown_fields": Setting(
        "ignore", "request fields that the interface document does not have", ("ignore", "reject")
    ),
    "number_cells": Setting(
        "number", "NUMBER cells: a JSON number only, or also digits in a string", ("number", "number_or_string")
    ),
    "name_refused_recipients": Setting(True, "a request rejected for some recipients names them in errors"),
    "refused_recipients": Setting(
        "reject",
        "a request with a refused recipient is rejected, or accepted for the others with errors beside the record",
        ("reject", "leave_out"),
    ),
    "placeholder_format": Setting(
        "{name}", "notation of a placeholder, with the word name in it", refuse=_refuse_marks
    ),
    "max_recipients": Setting(1000, "maximum recipients in one request", least=1, most=100_000),
    "airtime_guard_seconds": Setting(300.0, "same amount, same recipient within this time: duplicate", most=86_400),
    "airtime_sent_seconds": Setting(1.0, "seconds until a pending purchase is sent", most=86_400),
    "airtime_final_seconds": Setting(2.0, "seconds from the creation of a purchase until it is final", most=86_400),
    "callback_shape": Setting("status", "form of the reports to a request's callback", REPORT_FORMATS),
    "webhook_url": Setting("", "the account's webhook, which gets every final report; empty: none", refuse=_refuse_url),
    "webhook_secret": Setting("", "secret that signs reports to the webhook", refuse=_refuse_secret, secret=True),
    "webhook_shape": Setting("event", "form of the reports to the webhook", EVENT_FORMATS),
    "signature_header": Setting("X-Signature", "header that carries the webhook's signature", refuse=_refuse_header),
    "report_delay_seconds": Setting(0.0, "delay of final reports, in seconds", most=_DAY),
    "report_engagement_seconds": Setting(
        0.0, "delay of openings and clicks after the previous report, in seconds", most=_DAY
    ),
    "report_in_flight": Setting(False, "callbacks also get a report with status sent, before the final report"),
    "report_timeout_seconds": Setting(
        5.0, "maximum wait for one acknowledgement, in seconds", least=0.1, most=MAX_TIMEOUT_SECONDS
    ),
    "report_concurrency": Setting(8, "maximum reports in flight", least=1, most=MAX_CONCURRENCY),
    "report_interval_seconds": Setting(
        3600.0, "seconds until a report that was not acknowledged is sent again", least=0.05, most=_DAY
    ),
    "report_attempts": Setting(25, "attempts to send a report, the first included", least=1, most=1000),
    "report_window_seconds": Setting(
        float(_DAY), "no retry of a report later than this after its first attempt, in seconds", most=30 * _DAY
    ),
    "report_seed": Setting(0, "seed of the random outcomes below, with the recipient", most=10**9),
    "report_undelivered_rate": _rate("share of SMS recipients whose message is undelivered"),
    "report_bounced_rate": _rate("share of email recipients whose message bounces"),
    "report_failed_rate": _rate("share of airtime recipients whose purchase fails"),
    "report_opened_rate": _rate("share of delivered emails that are opened"),
    "report_clicked_rate": _rate("share of delivered emails and trackable SMS whose link is clicked"),
    "report_duplicate_rate": _rate("share of reports sent twice or three times"),
    "report_repeat_rate": _rate("share of acknowledged reports that are sent once more after the interval"),
    "report_disorder": _rate("share of recipients whose reports arrive in reverse order and mixed with others"),
}


def _check_together(values: Mapping[str, Any], allow_remote: bool) -> None:
    """Raise ValueError where choices that are each allowed make no sense together."""
    url = values["webhook_url"]
    if url and not values["webhook_secret"]:
        raise ValueError("webhook_url: also set webhook_secret, which signs its reports")
    if url and not (allow_remote or is_loopback(url)):
        raise ValueError("webhook_url: is not on this machine; start the sandbox with --allow-remote-callbacks")


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
