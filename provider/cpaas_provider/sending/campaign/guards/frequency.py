"""The frequency cap: counts a message before its request, and releases the count if the message was not sent."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from cpaas_provider.api.amounts import counted
from cpaas_provider.sending.campaign.recipients import Recipient, RecipientStatus, RecipientTable
from cpaas_provider.sending.shutdown import in_thread
from cpaas_provider.sending.spec import FrequencyCap

log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class FrequencyFilter:
    """Excludes recipients who have as many messages as the cap allows.

    :param is_resend: whether the recipients may have this message already, so that its count is never released
    """

    batch_size = 500
    """The least number of recipients that are filtered at once, however few one request takes."""

    plan: RecipientTable
    cap: FrequencyCap
    is_resend: bool = field(kw_only=True)
    _not_sent: dict[int, str] = field(default_factory=dict, init=False)
    """The addresses of recipients that are counted and not sent to yet, by position."""

    async def filter(self, recipients: Sequence[Recipient]) -> list[Recipient]:
        """Return the recipients that may be sent to, in order. The others are marked in the table."""
        if not recipients:
            return []
        addresses = [recipient.address for recipient in recipients]
        try:
            capped = await in_thread(lambda: self.cap.reserve(addresses))
        except BaseException:
            # Some of them may be counted.
            self.not_sent(recipients)
            raise
        positions = [recipient.position for recipient in recipients if recipient.address in capped]
        self.plan.exclude(positions, RecipientStatus.FREQUENCY_CAPPED)
        permitted = [recipient for recipient in recipients if recipient.address not in capped]
        self.not_sent(permitted)
        return permitted

    def sent(self, recipients: Iterable[Recipient]) -> None:
        """Keep the count of recipients, because a request to them leaves: they may get the message."""
        for recipient in recipients:
            self._not_sent.pop(recipient.position, None)

    def not_sent(self, recipients: Iterable[Recipient]) -> None:
        """Release the count of recipients when the filter is closed: they certainly did not get the message."""
        if not self.is_resend:
            self._not_sent.update((recipient.position, recipient.address) for recipient in recipients)

    async def close(self) -> None:
        """Release the messages that were counted and not sent."""
        addresses = list(self._not_sent.values())
        self._not_sent.clear()
        if not addresses:
            return
        try:
            await in_thread(lambda: self.cap.release(addresses))
        except Exception as error:  # noqa: BLE001 - a failed release must not hide how the campaign ended
            log.warning(
                "Messages to %s were not sent, and still count for the frequency cap (%s).",
                counted(len(addresses), "recipient"),
                type(error).__name__,
            )
