"""Recognises delivery reports of permanent failures, whose recipients are added to the suppression list.

The service does not publish its reasons, so a report is recognised by words that are usual in the field. They are few
on purpose, because a mistaken suppression is hard to notice. ``[cpaas] invalid_number_words`` and
``hard_bounce_words`` replace them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from cpaas_provider.database.recipients.suppressions import HARD_BOUNCE, INVALID_NUMBER, Listed
from cpaas_provider.delivery.reports import DeliveryStatus, Report
from cpaas_provider.provider_info import HARD_BOUNCE_WORDS, INVALID_NUMBER_WORDS

SOURCE = "delivery report"

_TEMPORARY = ("temporar", "transient", "try again", "retry", "greylist", "soft bounce", "soft-bounce")
"""Words that mark a failure as temporary, whatever else the reason contains."""


@dataclass(frozen=True)
class PermanentFailure:
    """One line of the table: the reports that mean a permanent failure.

    :param reason: the reason of the entry on the suppression list
    :param kind: the kind of the report, see ``Report.kind``
    :param channel: the channel of the entry on the suppression list
    :param statuses: the delivery statuses of such reports
    :param words: the status or reason contains one of these
    """

    reason: str
    kind: str
    channel: str
    statuses: frozenset[DeliveryStatus]
    words: tuple[str, ...]


class PermanentFailures:
    """Recognises reports of permanent failures."""

    def __init__(self, table: Sequence[PermanentFailure]) -> None:
        self._table = table
        self._statuses = frozenset(status for line in table for status in line.statuses)

    @classmethod
    def configured(cls) -> Self:
        """Return the table with the words of Airflow's configuration."""
        undelivered, bounced = frozenset({DeliveryStatus.UNDELIVERED}), frozenset({DeliveryStatus.BOUNCED})
        number_words = _words("invalid_number_words", INVALID_NUMBER_WORDS)
        bounce_words = _words("hard_bounce_words", HARD_BOUNCE_WORDS)
        return cls(
            (
                PermanentFailure(INVALID_NUMBER, "sms", "sms", undelivered, number_words),
                PermanentFailure(HARD_BOUNCE, "email", "email", bounced, bounce_words),
            )
        )

    def listed(self, report: Report, recipient: str, kind: str | None, conn_id: str) -> Listed | None:
        """Return the entry that a report adds to the suppression list, ``None`` if it reports no permanent failure.

        :param recipient: the recipient; the report need not name it
        :param kind: the kind of the report's request, used if the report does not name one
        """
        if report.delivery_status not in self._statuses or not recipient:
            return None
        kind = report.kind or kind or _kind_of(report, recipient)
        text = f"{report.status} {report.reason or ''}".casefold()
        for line in self._table:
            if line.kind == kind and report.delivery_status in line.statuses and _fits(line, recipient, text):
                return Listed(recipient, line.reason, SOURCE, line.channel, conn_id)
        return None


def _fits(line: PermanentFailure, recipient: str, text: str) -> bool:
    is_address = "@" in recipient
    return (
        is_address is (line.kind == "email")
        and any(word in text for word in line.words)
        and not any(word in text for word in _TEMPORARY)
    )


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
