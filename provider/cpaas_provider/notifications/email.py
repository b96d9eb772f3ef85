"""The notifier that sends an email (contract.md 4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from cpaas_provider.notifications.base import CpaasNotifier


class EmailNotifier(CpaasNotifier):
    """Send an email when a task or DAG fails, succeeds, is retried or misses its deadline.

    Many alerts within a short time are one email that states their number. A request of unknown outcome is not sent
    again. No address and no text appears in a log.

    :param recipients: email addresses, as a list or comma-separated. Invalid addresses are left out and counted in the
        log (templated)
    :param subject: the subject. Default: what happened (templated)
    :param sender_id: the sender's address. Default: the connection's ``email_sender_id`` (templated)
    :param from_name: the sender's name (templated)
    """

    template_fields: Sequence[str] = (
        "recipients", "content", "subject", "sender_id", "from_name", "group", "cpaas_conn_id",
    )  # fmt: skip
    channel: ClassVar[str] = "email"

    def __init__(
        self,
        *,
        recipients: str | Sequence[str],
        subject: str | None = None,
        from_name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(recipients=recipients, **kwargs)
        self.subject = subject
        self.from_name = from_name
