"""The notifier that sends an SMS (contract.md 4.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from cpaas_provider.notifications.base import CpaasNotifier


class SmsNotifier(CpaasNotifier):
    """Send an SMS when a task or DAG fails, succeeds, is retried or misses its deadline.

    Many alerts within a short time are one SMS that states their number. A request of unknown outcome is not sent
    again. No phone number and no text appears in a log.

    :param recipients: phone numbers in any usual form, as a list or comma-separated. Invalid numbers are left out and
        counted in the log (templated)
    :param sender_id: the sender that the phone shows, at most 11 characters if alphanumeric. Default: the
        connection's (templated)
    :param max_pages: the most billable pages (SMS segments) of a message. A longer text is cut before the number of
        further alerts and the link, never within an emoji or a link
    :param encoding: ``gsm7`` replaces typographic quotes, dashes, spaces and the like, if the whole text is GSM-7 then.
        Default: the text stays as it is written
    """

    template_fields: Sequence[str] = ("recipients", "content", "sender_id", "group", "cpaas_conn_id")
    channel: ClassVar[str] = "sms"

    def __init__(
        self,
        *,
        recipients: str | Sequence[str],
        max_pages: int = 2,
        encoding: Literal["gsm7"] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(recipients=recipients, **kwargs)
        if isinstance(max_pages, bool) or not isinstance(max_pages, int) or not 1 <= max_pages <= 10:
            raise ValueError(f"max_pages must be a whole number from 1 to 10; it is {max_pages!r}.")
        if encoding not in (None, "gsm7"):
            raise ValueError(f"encoding must be 'gsm7' or None; it is {encoding!r}.")
        self.max_pages = max_pages
        self.encoding = encoding
