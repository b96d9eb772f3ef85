"""Recognises delivery reports of permanent failures, whose recipients are added to the suppression list.

The service does not publish its reasons, so a report is recognised by words that are usual in the field. They are few
on purpose, because a mistaken suppression is hard to notice. ``[cpaas] invalid_number_words`` and
``hard_bounce_words`` replace them.
"""

from __future__ import annotations

from typing import NamedTuple

from cpaas_provider.database.recipients.suppressions import HARD_BOUNCE, INVALID_NUMBER, Listed
from cpaas_provider.delivery.reports import DeliveryStatus, Report
from cpaas_provider.provider_info import HARD_BOUNCE_WORDS, INVALID_NUMBER_WORDS

SOURCE = "delivery report"

_TEMPORARY = ("temporar", "transient", "try again", "retry", "greylist", "soft bounce", "soft-bounce")
"""Words that mark a failure as temporary, whatever else the reason contains."""


class PermanentFailure(NamedTuple):
    """The reports with one delivery status that mean a permanent failure.

    :param reason: the reason of the entry on the suppression list
    :param kind: the kind of the report, see ``Report.kind``; also the channel of the entry
    :param words: the status or reason contains one of these
    """

    reason: str
    kind: str
    words: tuple[str, ...]


class PermanentFailures:
    """Recognises reports of permanent failures, by the words of Airflow's configuration."""

    def __init__(self) -> None:
        number_words = _words("invalid_number_words", INVALID_NUMBER_WORDS)
        bounce_words = _words("hard_bounce_words", HARD_BOUNCE_WORDS)
        self._by_status: dict[DeliveryStatus | None, PermanentFailure] = {
            DeliveryStatus.UNDELIVERED: PermanentFailure(INVALID_NUMBER, "sms", number_words),
            DeliveryStatus.BOUNCED: PermanentFailure(HARD_BOUNCE, "email", bounce_words),
        }

    def listed(self, report: Report, recipient: str, kind: str | None, conn_id: str) -> Listed | None:
        """Return the entry that a report adds to the suppression list, ``None`` if it reports no permanent failure.

        :param recipient: the recipient; the report need not name it
        :param kind: the kind of the report's request, used if the report does not name one
        """
        failure = self._by_status.get(report.delivery_status)
        if failure is None or not recipient:
            return None
        kind = report.kind or kind or _kind_of(report, recipient)
        is_address = "@" in recipient
        if kind != failure.kind or is_address is not (kind == "email"):
            return None
        text = f"{report.status} {report.reason or ''}".casefold()
        if any(word in text for word in _TEMPORARY) or not any(word in text for word in failure.words):
            return None
        return Listed(recipient, failure.reason, SOURCE, failure.kind, conn_id)


def _kind_of(report: Report, recipient: str) -> str | None:
    """Return the kind of a report whose request is not recorded yet. The status ``undelivered`` excludes airtime."""
    if "@" in recipient:
        return "email"
    return "sms" if report.status == "undelivered" else None


def _words(option: str, default: str) -> tuple[str, ...]:
    from airflow.sdk.configuration import conf

    configured: str | None = conf.get("cpaas", option, fallback=None)
    text = default if configured is None else configured
    return tuple(word for part in text.split(",") if (word := part.strip().casefold()))
