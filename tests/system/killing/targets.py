"""A try that is to be struck, and when."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import psutil

from tests.system.killing.cases import Case


@dataclass
class Target:
    """A try that is to be struck once its moment has come."""

    case: Case
    number: int
    supervisor: psutil.Process
    task: psutil.Process
    victim: str
    aim: str
    delay: float
    begins: Callable[[], bool]
    """Whether that has come from which on the delay counts."""

    born: float = field(default_factory=time.monotonic)
    began: float | None = None

    @property
    def age(self) -> float:
        """How long ago it was first seen."""
        return time.monotonic() - self.born

    @property
    def due(self) -> bool:
        """Whether its moment has come."""
        if self.began is None and self.begins():
            self.began = time.monotonic()
        return self.began is not None and time.monotonic() - self.began >= self.delay
