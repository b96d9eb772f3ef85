"""Wakes a sleeping task when the sandbox's clock reaches a moment."""

from __future__ import annotations

import asyncio
import contextlib
import math

from cpaas_sandbox.core.clock import Clock

_MAX_SLEEP_SECONDS = 60.0


class WakeUp:
    """A moment on the sandbox's clock, for one task that sleeps until then; the first sleep returns at once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._moved = asyncio.Event()
        self._at = -math.inf

    @property
    def due(self) -> bool:
        """Whether the clock has reached the moment."""
        return self._clock.now() >= self._at

    def set(self, moment: float | None) -> None:
        """Set the moment; None is never."""
        self._at = math.inf if moment is None else moment

    def set_by(self, moment: float) -> None:
        """Move the moment forward to this one, unless it is already earlier."""
        if moment < self._at:
            self._at = moment
            self._moved.set()

    def set_now(self) -> None:
        """Wake the task now, because the clock was set or the state replaced."""
        self._at = -math.inf
        self._moved.set()

    async def sleep(self) -> None:
        """Return when the clock reaches the moment, when the moment is moved, or after at most a minute."""
        nap = max(self._at - self._clock.now(), 0.0)
        frozen = self._clock.frozen_at is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_MAX_SLEEP_SECONDS if frozen else min(nap, _MAX_SLEEP_SECONDS)):
                await self._moved.wait()
                self._moved.clear()
