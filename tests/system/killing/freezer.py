"""Processes that are kept from running for a time."""

from __future__ import annotations

import contextlib
import math
import time
from dataclasses import dataclass, field
from typing import Self

import psutil


@dataclass
class Freezer:
    """Keeps processes from running for a time; as a context, lets all of them go on in the end."""

    frozen: dict[psutil.Process, float] = field(default_factory=dict)

    def freeze(self, process: psutil.Process, seconds: float) -> None:
        """Stop a process where it is."""
        process.suspend()
        self.frozen[process] = time.monotonic() + seconds

    def thaw_due(self, by: float | None = None) -> None:
        """Let those go on whose time is over."""
        for process, until in list(self.frozen.items()):
            if until <= (by or time.monotonic()):
                del self.frozen[process]
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.resume()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.thaw_due(by=math.inf)
