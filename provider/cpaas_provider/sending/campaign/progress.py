"""The progress of a campaign: its counts, logged and published at intervals."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cpaas_provider.api.amounts import counted, format_amount, span

log = logging.getLogger(__name__)

Publish = Callable[[Mapping[str, float]], None]


@dataclass
class LookUps:
    """Counts the phone lookups that are made before sending.

    :param asked: the number of lookups wanted
    :param answered: the number of lookups done
    """

    asked: int = 0
    answered: int = 0


@dataclass
class Progress:
    """Counts recipients and requests of this try.

    :param total: the number of recipients to send to
    :param publish: takes the figures, beside the log
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
    _has_warned: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._began = self.clock()

    @property
    def done(self) -> int:
        """Return the number of recipients with an outcome."""
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
        """Log and publish the progress.

        :param spent: what accepted requests of all tries cost; ``None`` where that is not known
        :param balance: the last balance that the service returned
        """
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
        except Exception as error:  # noqa: BLE001 - metrics must not fail the campaign
            if not self._has_warned:
                log.warning("Metrics could not be published (%s).", type(error).__name__)
            self._has_warned = True

    def _report_lookups(self) -> bool:
        """Log the progress of the lookups. Return whether there were any since the last report."""
        asked, answered = self.look_ups.asked, self.look_ups.answered
        if answered == self._looked_up and answered == asked:
            return False
        self._looked_up = answered
        log.info("Lookups: %d of %d numbers looked up, of the recipients to send to next.", answered, asked)
        return True
