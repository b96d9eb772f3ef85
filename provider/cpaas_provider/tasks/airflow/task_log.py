"""The log lines of a task: what begins, within which limits, and the figures at its end.

Never a number, an address, a code or a text. Only the fields listed here are logged.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from cpaas_provider.api.amounts import counted, format_amount
from cpaas_provider.api.text.sms import describe_savings

if TYPE_CHECKING:
    from cpaas_provider.hooks.connection import CpaasConnection
    from cpaas_provider.sending.partitions import Partition
    from cpaas_provider.tasks.campaign.spec import CampaignSpec

# In the order they are logged; of records that hold personal data everything else stays out.
_OF_A_RESULT = (
    "id", "row_id", "status", "status_desc", "outcome", "verified", "revoked", "created", "deleted", "network",
    "amount",
    "recipients", "encoding", "pages", "charge", "balance", "refunded", "operator", "country", "ported", "dnd",
    "skipped_not_allowed", "skipped_suppressed", "skipped_frequency_cap",
    "expires_at", "delivery_reports", "unknown_recipients", "references",
    "unknown_references",
)  # fmt: skip
_OF_THE_ARGUMENTS = (
    "otp_id", "row_id", "network", "amount", "length", "expires_in", "template_id", "channel",
    "on_unknown", "max_lateness",
)  # fmt: skip
_MONEY = frozenset({"amount", "charge", "balance", "max_charge", "min_balance", "price_per_page", "max_recipients"})
_ROWS = {
    "invalid_rows": ("invalid row", None),
    "duplicates": ("duplicate", None),
    "not_allowed": ("not allowed", "not allowed"),
    "suppressed": ("suppressed", "suppressed"),
    "dnd": ("do-not-disturb", "do-not-disturb"),
    "lookup_failed": ("lookup failed", "lookup failed"),
    "frequency_capped": ("at the frequency cap", "at the frequency cap"),
    "in_other_partitions": ("in other partitions", "in other partitions"),
    "invalid_suppression_rows": ("invalid row of the suppression list", "invalid rows of the suppression list"),
}


def begins(
    task_type: str, conn_id: str, arguments: Mapping[str, Any], origin: str = "", words: Iterable[str] = ()
) -> str:
    """Return the first line of a task.

    :param arguments: the operator's arguments, of which only those that are listed here are logged
    :param origin: names the source, if there is one
    :param words: what the line names before the arguments
    """
    named = _named({name: arguments.get(name) for name in _OF_THE_ARGUMENTS})
    return f"{task_type} begins on connection {conn_id!r}{origin}{_after([*words, *named])}."


def campaign_limits(
    spec: CampaignSpec, connection: CpaasConnection, partition: Partition, confirmed: Mapping[str, int | str]
) -> list[str]:
    """Return what the first line of a campaign names: its rates and its limits.

    :param confirmed: the limits that a user confirmed in place of the author's
    """
    settings = connection.settings
    words = [
        f"at most {counted(connection.recipients_per_request, 'recipient')} per request",
        f"{counted(settings.requests_per_second, 'request')} per second",
        f"{settings.max_concurrency} at a time",
    ]
    for name, limit in spec.limits.items():
        value = "unlimited" if limit is None and name in spec.templates else limit
        words += [
            f"{word}, confirmed: {_written(name, confirmed[name])}" if name in confirmed else word
            for word in _named({name: value})
        ]
    if spec.send_window is not None:
        zone = spec.timezone or f"by column {spec.timezone_column}"
        words.append(f"send_window {' to '.join(map(str, spec.send_window))} {zone}")
    elif "send_window" in spec.templates:
        words.append("send_window always")
    if spec.dnd is not None:
        words.append(f"skip_dnd (lookups cached for {_span(spec.dnd.lookup_ttl)})")
    return [*words, *_named({"partition": partition.label})]


def planned(report: Mapping[str, Any], rows: int) -> str:
    """Return the counts of the rows of a source."""
    earlier = [f"{report['sent']:,} accepted in an earlier try"] if report["sent"] else []
    earlier += [f"{report['unknown_recipients']:,} unknown, held back"] if report["unknown_recipients"] else []
    tries = f" ({'; '.join(earlier)})" if earlier else ""
    return (
        f"Planned: {counted(rows, 'row')} read, {counted(report['not_sent'], 'recipient')} to send to{tries}. "
        f"Left out: {_left_out(report)}."
    )


def dry_run(report: Mapping[str, Any], encoding: str | None) -> str:
    """Return the figures of a campaign that is not sent."""
    pages = [f"{number:,} with {counted(int(page), 'page')}" for page, number in report["pages"].items()]
    encodings = [f"{number:,} in {encoding}" for encoding, number in report["encodings"].items()]
    price = report["estimated_charge"]
    cost = "unknown (price_per_page is not given)" if price is None else format_amount(price)
    texts = ", ".join([*pages, *encodings]) or "pages unknown"
    recipients = counted(report["recipients"], "recipient")
    saves = ""
    if (saved := report["gsm7_saved_pages"]) is not None:
        charge = report["gsm7_saved_charge"]
        saves = f" {describe_savings(encoding, saved, None if charge is None else format_amount(charge))}"
    return f"Dry run, nothing was sent. {recipients}: {texts}, estimated charge {cost}.{saves}"


def campaign_done(report: Mapping[str, Any]) -> str:
    """Return the last line of a campaign: every count of its report."""
    return f"Campaign {report['reference']}, all tries together: {every_count(report)}."


def every_count(report: Mapping[str, Any]) -> str:
    """Return every count of a campaign, in words."""
    return (
        f"{counted(report['recipients'], 'recipient')}: {report['sent']:,} sent, {report['rejected']:,} rejected, "
        f"{report['unknown_recipients']:,} unknown, {report['not_sent']:,} not sent. Left out: {_left_out(report)}. "
        f"{counted(report['requests'], 'request')}, charge {format_amount(report['charge'])}, "
        f"balance {format_amount(report['balance'])}"
    )


def nothing_left(*, campaign: bool = False, has_idempotency_key: bool = False) -> str:
    """Return the line of a try that has nothing left to send."""
    what = "sent everything" if campaign else "made this request"
    how = "give it another idempotency_key" if has_idempotency_key else "clear the task with resend_on_clear=True"
    return f"An earlier try {what}. Nothing is sent again. To send again, {how}."


def done(task_type: str, result: Any) -> str:
    """Return the last line of a task that made one request."""
    if isinstance(result, list):
        words = [counted(len(result), "record")]
    elif isinstance(result, Mapping):
        words = _named({name: result[name] for name in _OF_A_RESULT if name in result})
    else:
        words = []
    return f"{task_type} is done{_after(words)}."


def _left_out(report: Mapping[str, Any]) -> str:
    return ", ".join(counted(report[name], *noun) for name, noun in _ROWS.items())


def _named(values: Mapping[str, Any]) -> list[str]:
    return [
        f"{name.removeprefix('sms_')} {_written(name, value)}" for name, value in values.items() if value is not None
    ]


def _written(name: str, value: Any) -> str:
    if name in _MONEY:
        with contextlib.suppress(TypeError, ValueError):
            return format_amount(float(value))
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    return _span(value) if isinstance(value, timedelta) else str(value)


def _span(value: timedelta) -> str:
    """``30 days``, or with hours, minutes and seconds where it has any."""
    return str(value) if value % timedelta(days=1) else counted(value.days, "day")


def _after(words: Iterable[str]) -> str:
    text = ", ".join(words)
    return f": {text}" if text else ""
