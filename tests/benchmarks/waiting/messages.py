"""What is waited for until it is delivered, and which reports come in: the same for all who take part.

Nearly all wait for one message each, a few for a campaign. Most reports end no wait: they are of recipients of those
campaigns, or of messages nobody here waits for, which the store counts all the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from cpaas_provider.delivery.callbacks.tokens import CallbackToken
from cpaas_provider.delivery.receiver.writer import ReceivedReport
from cpaas_provider.delivery.reports import read_report

CONN_ID = "cpaas_bench"
RATE = 200.0
PEOPLE = 1000
"""Recipients of a campaign."""
LOOKED_BACK = 60.0
"""Seconds of reports that whoever asks what is new counts again."""
_CAMPAIGNS = 10
_ENDED = 0.4


@dataclass(frozen=True)
class Messages:
    """What is sent to and reported on.

    :param waiters: how many wait for delivery
    :param seconds: for how long reports come in
    """

    waiters: int
    seconds: float

    @property
    def campaigns(self) -> list[str]:
        return [f"campaign-{number}" for number in range(min(_CAMPAIGNS, self.waiters // 10))]

    @property
    def singles(self) -> list[str]:
        return [f"cpaas-{number:024d}" for number in range(self.waiters - len(self.campaigns))]

    @property
    def ended(self) -> list[str]:
        """The messages that are reported to be delivered meanwhile: they end so many waits."""
        return self.singles[: int(min(_ENDED * self.waiters, self._reports / 2))]

    def earlier(self) -> Iterator[ReceivedReport]:
        """Yield as many reports as came within the time that is looked back to."""
        for number in range(int(RATE * LOOKED_BACK)):
            yield _delivered(f"cpaas-e{number:023d}", 1, number)

    def reports(self) -> Iterator[ReceivedReport]:
        """Yield the reports that come in while it is measured."""
        ended, campaigns, done = self.ended, self.campaigns, 0
        for number in range(self._reports):
            if done < (number + 1) * len(ended) // self._reports:
                yield _delivered(ended[done], 1, done)
                done += 1
            elif campaigns and number % 2:
                yield _delivered(campaigns[number // 2 % len(campaigns)], PEOPLE, number % PEOPLE)
            else:
                yield _delivered(f"cpaas-o{number:023d}", 1, number)

    @property
    def _reports(self) -> int:
        return int(RATE * self.seconds)


def recipient(number: int) -> str:
    return f"23480{number:08d}"


def _delivered(campaign: str, recipients: int, number: int) -> ReceivedReport:
    now = datetime.now(UTC)
    body = {
        "id": f"msg_{number}", "channel": "sms", "recipient": f"+{recipient(number)}", "status": "delivered",
        "created_datetime": now.isoformat(),
    }  # fmt: skip
    return ReceivedReport(
        CONN_ID, "callback", CallbackToken(campaign, campaign, recipients), read_report(body), json.dumps(body), now
    )
