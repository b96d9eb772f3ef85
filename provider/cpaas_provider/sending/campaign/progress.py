"""How far a campaign is, told at a steady pace."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cpaas_provider.api.amounts import counted, format_amount

log = logging.getLogger(__name__)

Publish = Callable[[Mapping[str, float]], None]


@dataclass
class LookUps:
    """Counts the numbers that are looked up before they are sent to."""

    asked: int = 0
    answered: int = 0


@dataclass
class Progress:
    """Counts what this try does.

    :param total: how many recipients it has to send to
    :param publish: where the figures go beside the log
    """

    total: int
    publish: Publish = lambda figures: None
    sent: int = 0
    rejected: int = 0
    unknown: int = 0
    skipped: int = 0
    requests: int = 0
    clock: Callable[[], float] = time.monotonic
    look_ups: LookUps = field(default_factory=LookUps)
    _looked_up: int = field(default=0, init=False)
    _began: float = field(init=False)
    _unpublished: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._began = self.clock()

    @property
    def done(self) -> int:
        """Return how many recipients are dealt with."""
        return self.sent + self.rejected + self.unknown + self.skipped

    def figures(self, spent: float | None, balance: float | None) -> dict[str, float]:
        """Return the figures as they are published."""
        seconds = max(self.clock() - self._began, 1e-6)
        figures: dict[str, Any] = {
            "done": self.done,
            "left": self.total - self.done,
            "sent": self.sent,
            "rejected": self.rejected,
            "unknown": self.unknown,
            "requests": self.requests,
            "recipients_per_second": round(self.done / seconds, 2),
            "charge": spent,
            "balance": balance,
        }
        return {name: value for name, value in figures.items() if value is not None}

    def report(self, spent: float | None, balance: float | None) -> None:
        """Log and publish how far it is."""
        figures = self.figures(spent, balance)
        if self._report_lookups() and not self.done:
            self.publish(figures)
            return
        rate = figures["recipients_per_second"]
        left = span(figures["left"] / rate) if rate else "unknown"
        log.info(
            "Campaign: %d of %d recipients done (%d %%): %d sent, %d rejected, %d unknown, in %s; %.1f a "
            "second, time left: %s, cost so far: %s.",
            self.done,
            self.total,
            100 * self.done / self.total if self.total else 100,
            self.sent,
            self.rejected,
            self.unknown,
            counted(self.requests, "request"),
            rate,
            left,
            format_amount(spent),
        )
        try:
            self.publish(figures)
        except Exception as error:  # noqa: BLE001 - figures must not take the place of what the campaign comes to
            if not self._unpublished:
                log.warning("Metrics could not be published (%s).", type(error).__name__)
            self._unpublished = True

    def _report_lookups(self) -> bool:
        """Log how far look-ups are, and return whether there were any since the last time."""
        asked, answered = self.look_ups.asked, self.look_ups.answered
        if answered == self._looked_up and answered == asked:
            return False
        self._looked_up = answered
        log.info("Lookups: %d of %d numbers looked up, of the recipients to send to next.", answered, asked)
        return True


def span(seconds: float) -> str:
    """Return a span of time in words."""
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
