"""The settings: each picks one reading of a point that contract.md leaves open."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, Field, ValidationError

from cpaas_sandbox.core.database import Database
from cpaas_sandbox.core.validation import URL, Written, in_words, is_loopback

_MASK = "********"
_DAY = 86_400

_MARKS = Written(
    r"(?=.{6,20}$)(?!.*name.*name)(?!\s*name\s*$).+name.+",
    "must be the word name between marks, such as {name}, at most 20 characters in all",
    "{name}",
)
_URL = Written(f"(?:{URL})?", "must be an absolute http or https URL, or empty for none", "http://127.0.0.1:8086/hook")
_SECRET = Written(
    r"(?:(?!\**$)[!-~]{8,200})?",
    "must be 8 to 200 printable ASCII characters without spaces, not its mask of asterisks, or empty for none",
    "whsec_of_the_sandbox",
)
_HEADER = Written(
    r"(?i:(?!(?:host|connection|user-agent|expect|upgrade|te)$|content-|transfer-))[A-Za-z][A-Za-z0-9-]{0,63}",
    "must be a header's name without another meaning: a letter, then letters, digits and dashes, at most 64 in all",
    "X-Signature",
)

Seconds = Annotated[float, Field(ge=0, le=_DAY)]
Rate = Annotated[float, Field(ge=0, le=1)]


class Settings(BaseModel, extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True):
    """The current settings; ``cpaas-sandbox --help`` shows the docstring of each."""

    auth_scheme: Literal["bearer", "raw", "either"] = "bearer"
    """accepted form of the API key: 'Bearer <key>', raw, or either"""
    envelope: bool = False
    """wrap results as {status, type, message, data}"""
    otp_status_mode: Literal["lifecycle", "sent"] = "lifecycle"
    """lifecycle: SENT, VERIFIED, ...; sent: the status is SENT throughout"""
    revoked_otps: Literal["status", "gone"] = "status"
    """status: a revoked passcode is readable as REVOKED; gone: it is 404"""
    otp_max_attempts: Annotated[int, Field(ge=1, le=100)] = 5
    """wrong codes after which a passcode has FAILED"""
    insufficient_balance: Literal["402", "400", "under_200"] = "402"
    """402, 400: that HTTP status; under_200: the error body with HTTP 200"""
    delete_body: Literal["message", "record", "empty"] = "message"
    """what DELETE returns: a message, the record, or nothing (204)"""
    unknown_fields: Literal["ignore", "reject"] = "ignore"
    """request fields that the interface document does not have"""
    number_cells: Literal["number", "number_or_string"] = "number"
    """NUMBER cells: a JSON number only, or also digits in a string"""
    name_refused_recipients: bool = True
    """a request rejected for some recipients names them in errors"""
    refused_recipients: Literal["reject", "leave_out"] = "reject"
    """a request with a refused recipient is rejected, or accepted for the others with errors beside the record"""
    placeholder_format: Annotated[str, _MARKS] = "{name}"
    """notation of a placeholder, with the word name in it"""
    max_recipients: Annotated[int, Field(ge=1, le=100_000)] = 1000
    """maximum recipients in one request"""
    airtime_guard_seconds: Seconds = 300.0
    """same amount, same recipient within this time: duplicate"""
    airtime_sent_seconds: Seconds = 1.0
    """seconds until a pending purchase is sent"""
    airtime_final_seconds: Seconds = 2.0
    """seconds from the creation of a purchase until it is final"""
    callback_shape: Literal["status", "status_object", "event", "event_data"] = "status"
    """form of the reports to a request's callback"""
    webhook_url: Annotated[str, _URL] = ""
    """the account's webhook, which gets every final report; empty: none"""
    webhook_secret: Annotated[str, _SECRET] = ""
    """secret that signs reports to the webhook"""
    webhook_shape: Literal["event", "event_data"] = "event"
    """form of the reports to the webhook"""
    signature_header: Annotated[str, _HEADER] = "X-Signature"
    """header that carries the webhook's signature"""
    report_delay_seconds: Seconds = 0.0
    """delay of final reports, in seconds"""
    report_engagement_seconds: Seconds = 0.0
    """delay of openings and clicks after the previous report, in seconds"""
    report_in_flight: bool = False
    """callbacks also get a report with status sent, before the final report"""
    report_timeout_seconds: Annotated[float, Field(ge=0.1, le=30)] = 5.0
    """maximum wait for one acknowledgement, in seconds"""
    report_concurrency: Annotated[int, Field(ge=1, le=64)] = 8
    """maximum reports in flight"""
    report_interval_seconds: Annotated[float, Field(ge=0.05, le=_DAY)] = 3600.0
    """seconds until a report that was not acknowledged is sent again"""
    report_attempts: Annotated[int, Field(ge=1, le=1000)] = 25
    """attempts to send a report, the first included"""
    report_window_seconds: Annotated[float, Field(ge=0, le=30 * _DAY)] = float(_DAY)
    """no retry of a report later than this after its first attempt, in seconds"""
    report_seed: Annotated[int, Field(ge=0, le=10**9)] = 0
    """seed of the random outcomes below, with the recipient"""
    report_undelivered_rate: Rate = 0.0
    """share of SMS recipients whose message is undelivered"""
    report_bounced_rate: Rate = 0.0
    """share of email recipients whose message bounces"""
    report_failed_rate: Rate = 0.0
    """share of airtime recipients whose purchase fails"""
    report_opened_rate: Rate = 0.0
    """share of delivered emails that are opened"""
    report_clicked_rate: Rate = 0.0
    """share of delivered emails and trackable SMS whose link is clicked"""
    report_duplicate_rate: Rate = 0.0
    """share of reports sent twice or three times"""
    report_repeat_rate: Rate = 0.0
    """share of acknowledged reports that are sent once more after the interval"""
    report_disorder: Rate = 0.0
    """share of recipients whose reports arrive in reverse order and mixed with others"""

    def as_json(self) -> dict[str, Any]:
        """Return all settings, the secret masked."""
        return self.model_dump() | {"webhook_secret": _MASK if self.webhook_secret else ""}


SETTINGS = Settings.model_fields


def choices(name: str) -> tuple[str, ...]:
    """Return the allowed values of a setting; empty if any text or a number is allowed."""
    return get_args(SETTINGS[name].annotation) if isinstance(SETTINGS[name].default, str) else ()


def read_settings(values: dict[str, Any]) -> Settings:
    """Return settings with these values, the others at their defaults; raise ValueError for what is not allowed."""
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        raise ValueError(in_words(error)) from None


def load_settings(database: Database) -> Settings:
    """Return the stored settings; ignore names that only another version of the sandbox has."""
    stored = database.load("settings") or {}
    return read_settings({name: value for name, value in stored.items() if name in SETTINGS})


def change_settings(database: Database, settings: Settings, changes: dict[str, Any], allow_remote: bool) -> Settings:
    """Apply all changes, store and return the result; raise ValueError naming every change that is not allowed."""
    changed = read_settings(settings.model_dump() | changes)
    if any(name.startswith("webhook_") for name in changes):
        if changed.webhook_url and not changed.webhook_secret:
            raise ValueError("webhook_url: also set webhook_secret, which signs its reports")
        if changed.webhook_url and not (allow_remote or is_loopback(changed.webhook_url)):
            raise ValueError("webhook_url: is not on this machine; start the sandbox with --allow-remote-callbacks")
    database.save("settings", changed.model_dump())
    return changed
