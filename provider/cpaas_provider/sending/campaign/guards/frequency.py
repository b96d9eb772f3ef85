"""How often recipients may be sent to: a message is counted before its request, and released if it was not sent."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from cpaas_provider.sending.campaign.recipients import Recipient, RecipientStatus, RecipientTable
from cpaas_provider.sending.shutdown import in_thread
from cpaas_provider.sending.spec import FrequencyCap

log = logging.getLogger(__name__)


class FrequencyFilter:
    """Leaves out recipients who got as many messages as they may.

    :param is_resend: whether the recipients may have got this message already, so that it stays counted
    """

    batch_size = 500
    """Recipients that are taken from the plan together, at least, however few one request takes."""

    def __init__(self, plan: RecipientTable, cap: FrequencyCap, *, is_resend: bool) -> None:
        self._plan = plan
        self._cap = cap
        self._is_resend = is_resend
        self._not_sent: dict[int, str] = {}
        """The addresses of recipients that are counted and not sent to, by place."""

    async def filter(self, recipients: Sequence[Recipient]) -> list[Recipient]:
        """Return the recipients that may be sent to, in order. The others are recorded in the plan."""
        if not recipients:
            return []
        addresses = [one.address for one in recipients]
        try:
            capped = await in_thread(lambda: self._cap.reserve(addresses))
        except BaseException:
            # Some of them may be counted.
            self.not_sent(recipients)
            raise
        self._plan.exclude([one.place for one in recipients if one.address in capped], RecipientStatus.FREQUENCY_CAPPED)
        permitted = [one for one in recipients if one.address not in capped]
        self.not_sent(permitted)
        return permitted

    def sent(self, recipients: Iterable[Recipient]) -> None:
        """Take note that a request to recipients leaves: they may have got the message from now on."""
        for one in recipients:
            self._not_sent.pop(one.place, None)

    def not_sent(self, recipients: Iterable[Recipient]) -> None:
        """Take note that recipients certainly did not get the message."""
        if not self._is_resend:
            self._not_sent.update((one.place, one.address) for one in recipients)

    async def close(self) -> None:
        """Release what was counted and not sent."""
        addresses = list(self._not_sent.values())
        self._not_sent.clear()
        if not addresses:
            return
        try:
            await in_thread(lambda: self._cap.release(addresses))
        except Exception as error:  # noqa: BLE001 - the end of the campaign matters more
            log.warning(
                "Messages to %d recipients were not sent, and still count for the frequency cap (%s).",
                len(addresses),
                type(error).__name__,
            )
