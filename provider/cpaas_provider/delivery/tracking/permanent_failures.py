"""Which delivery reports say that a number or address can never be reached, so that it goes on the suppression list.

The service's reasons are not published, so the tables hold the field's usual words. They are few on purpose: a
recipient who is left out by mistake notices nothing. ``[cpaas] invalid_number_words`` and ``hard_bounce_words`` replace
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from cpaas_provider.database.recipients.suppressions import HARD_BOUNCE, INVALID_NUMBER, Listed
from cpaas_provider.delivery.reports import DeliveryStatus, Report
from cpaas_provider.provider_info import HARD_BOUNCE_WORDS, INVALID_NUMBER_WORDS

SOURCE = "delivery report"

_TEMPORARY = ("temporar", "transient", "try again", "retry", "greylist", "soft bounce", "soft-bounce")
"""Words of a reason for a failure that may pass, whatever else is in it."""


@dataclass(frozen=True)
class PermanentFailure:
    """One line of the table: which reports mean that a recipient can never be reached.

    :param kind: what the report is about, as ``Report.kind``
    :param channel: the channel of the entry on the suppression list
    :param statuses: what the report says of the recipient
    :param words: one of them is in the status or the reason
    """

    reason: str
    kind: str
    channel: str
    statuses: frozenset[DeliveryStatus]
    words: tuple[str, ...]


class PermanentFailures:
    """Tells which reports are of a permanent failure."""

    def __init__(self, table: Sequence[PermanentFailure]) -> None:
        self._table = table
        self._statuses = frozenset(status for line in table for status in line.statuses)

    @classmethod
    def configured(cls) -> Self:
        """Return those that Airflow's configuration says."""
        undelivered, bounced = frozenset({DeliveryStatus.UNDELIVERED}), frozenset({DeliveryStatus.BOUNCED})
        numbers = _words("invalid_number_words", INVALID_NUMBER_WORDS)
        bounces = _words("hard_bounce_words", HARD_BOUNCE_WORDS)
        return cls(
            (
                PermanentFailure(INVALID_NUMBER, "sms", "sms", undelivered, numbers),
                PermanentFailure(HARD_BOUNCE, "email", "email", bounced, bounces),
            )
        )

    def listed(self, report: Report, kind: str | None, conn_id: str) -> Listed | None:
        """Return what a report adds to the suppression list of its connection, ``None`` for nearly all of them.

        :param kind: what the report's request sends, where the report does not say it
        """
        if report.delivery_status not in self._statuses or not report.recipient:
            return None
        kind = report.kind or kind or _kind_of(report)
        text = f"{report.status} {report.reason or ''}".casefold()
        for line in self._table:
            if line.kind == kind and report.delivery_status in line.statuses and _fits(line, report.recipient, text):
                return Listed(report.recipient, line.reason, SOURCE, line.channel, conn_id)
        return None


def _fits(line: PermanentFailure, recipient: str, text: str) -> bool:
    is_address = "@" in recipient
    return (
        is_address is (line.kind == "email")
        and any(word in text for word in line.words)
        and not any(word in text for word in _TEMPORARY)
    )


def _kind_of(report: Report) -> str | None:
    """Return what a report is about whose request is not recorded yet. Of airtime no report says ``undelivered``."""
    if "@" in report.recipient:
        return "email"
    return "sms" if report.status == "undelivered" else None


def _words(option: str, default: str) -> tuple[str, ...]:
    from airflow.sdk.configuration import conf

    given: str | None = conf.get("cpaas", option, fallback=None)
    return tuple(_parts((default if given is None else given).split(",")))


def _parts(words: Iterable[str]) -> Iterable[str]:
    return (text for word in words if (text := word.strip().casefold()))
