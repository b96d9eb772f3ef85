"""What wakes a task when the sandbox's clock reaches a moment."""

from __future__ import annotations

import asyncio
import math

from cpaas_provider.sandbox.core.clock import Clock

_LONGEST_NAP_SECONDS = 60.0


class WakeUp:
    """A moment on the sandbox's clock, and whoever sleeps until then; rings at once to begin with."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rung = asyncio.Event()
        self._at = -math.inf

    @property
    def due(self) -> bool:
        """Whether the moment has come."""
        return self._clock.now() >= self._at

    def set(self, moment: float | None) -> None:
        """Ring at this moment, or never."""
        self._at = math.inf if moment is None else moment

    def set_by(self, moment: float) -> None:
        """Ring at this moment at the latest."""
        if moment < self._at:
            self._at = moment
            self._rung.set()

    def set_now(self) -> None:
        """Ring now: the clock was turned, or anything may have become due."""
        self.set_by(-math.inf)
        self._rung.set()

    async def sleep(self) -> None:
        """Return when the moment has come or it has rung; now and then also for nothing."""
        nap = max(self._at - self._clock.now(), 0.0)
        stands = self._clock.frozen_at is not None
        try:
            async with asyncio.timeout(_LONGEST_NAP_SECONDS if stands else min(nap, _LONGEST_NAP_SECONDS)):
                await self._rung.wait()
        except TimeoutError:
            return
        self._rung.clear()
