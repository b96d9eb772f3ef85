"""The stored suppression list while a campaign runs: recipients that were listed since the campaign began."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cpaas_provider.api.amounts import counted
from cpaas_provider.sending.campaign.recipients import Recipient, RecipientStatus, RecipientTable
from cpaas_provider.sending.shutdown import in_thread
from cpaas_provider.sending.spec import SuppressionList

log = logging.getLogger(__name__)

CHECK_EVERY = 30.0
"""The longest time, in seconds, between the check of a recipient and the moment when its batch is taken."""


@dataclass(eq=False, repr=False)
class SuppressionFilter:
    """Excludes recipients that were added to the stored suppression list.

    :param checked_at: when all recipients of the campaign were checked, by ``clock``
    """

    batch_size = 500
    """The least number of recipients that are checked at once, however few one request takes."""

    plan: RecipientTable
    suppressions: SuppressionList
    checked_at: float
    clock: Callable[[], float] = time.monotonic

    def is_due(self, checked_at: float) -> bool:
        """Return whether recipients that were checked at a moment must be checked again."""
        return self.clock() - checked_at >= CHECK_EVERY

    async def filter(self, recipients: Sequence[Recipient]) -> list[Recipient]:
        """Return the recipients that may be sent to, in order. The others are marked in the table."""
        if not recipients or not self.is_due(self.checked_at):
            return list(recipients)
        return await self.check(recipients)

    async def check(self, recipients: Sequence[Recipient]) -> list[Recipient]:
        """Do what ``filter`` does, also shortly after the campaign began."""
        addresses = [recipient.address for recipient in recipients]
        reasons = await in_thread(lambda: self.suppressions.find(addresses))
        if not reasons:
            return list(recipients)
        for reason in set(reasons.values()):
            positions = [recipient.position for recipient in recipients if reasons.get(recipient.address) == reason]
            self.plan.exclude(positions, RecipientStatus.SUPPRESSED, reason)
        permitted = [recipient for recipient in recipients if recipient.address not in reasons]
        added = counted(len(recipients) - len(permitted), "recipient")
        log.info("Added to the suppression list since the campaign began, and left out: %s.", added)
        return permitted
