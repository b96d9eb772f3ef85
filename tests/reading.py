"""What reads recipients in tests: national numbers are Nigerian."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cpaas_provider.api.recipients.msisdn import NumberReader
from cpaas_provider.api.recipients.reader import RecipientReader
from cpaas_provider.sending.campaign.content import Content

NIGERIAN = NumberReader("NG")


def nigerian_reader(content: Content) -> RecipientReader:
    """Return the reader of a campaign."""
    return RecipientReader(content.channel.recipients, NIGERIAN)


def with_service_numbers(line: dict[str, Any]) -> dict[str, Any]:
    """Return a line of a results file with the number as the service has it, without its plus."""
    recipient = line.get("recipient")
    return line if not recipient or "@" in recipient else {**line, "recipient": recipient.removeprefix("+")}


def results_in(file: Path) -> list[dict[str, Any]]:
    """Return the lines of a results file in JSON Lines, with numbers as the service has them."""
    return [with_service_numbers(json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]
