"""What wakes a task when the sandbox's clock reaches a moment."""

from __future__ import annotations

import asyncio
import math

from cpaas_provider.sandbox.core.clock import Clock

_MAX_SLEEP_SECONDS = 60.0


class WakeUp:
    """A moment on the sandbox's clock, and the task that sleeps until then; the first sleep ends at once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._moved = asyncio.Event()
        self._at = -math.inf

    @property
    def due(self) -> bool:
        """Whether the moment has come."""
        return self._clock.now() >= self._at

    def set(self, moment: float | None) -> None:
        """Wake at this moment, or never."""
        self._at = math.inf if moment is None else moment

    def set_by(self, moment: float) -> None:
        """Wake at this moment at the latest."""
        if moment < self._at:
            self._at = moment
            self._moved.set()

    def set_now(self) -> None:
        """Wake now: the clock was set, or anything may have become due."""
        self.set_by(-math.inf)
        self._moved.set()

    async def sleep(self) -> None:
        """Return when the moment has come or was moved; at times also without reason."""
        nap = max(self._at - self._clock.now(), 0.0)
        frozen = self._clock.frozen_at is not None
        try:
            async with asyncio.timeout(_MAX_SLEEP_SECONDS if frozen else min(nap, _MAX_SLEEP_SECONDS)):
                await self._moved.wait()
        except TimeoutError:
            return
        self._moved.clear()
