"""What reads recipients in tests: national numbers are Nigerian."""

from __future__ import annotations

from cpaas_provider.api.recipients.msisdn import NumberReader
from cpaas_provider.api.recipients.reader import RecipientReader
from cpaas_provider.sending.campaign.content import Content

NIGERIAN = NumberReader("NG")


def nigerian_reader(content: Content) -> RecipientReader:
    """Return the reader of a campaign."""
    return RecipientReader(content.channel.recipients, NIGERIAN)
