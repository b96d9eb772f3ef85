"""What can be struck, and how a strike is told."""

from __future__ import annotations

import time
from dataclasses import dataclass

TASK, SUPERVISOR, API_SERVER = "task", "supervisor", "api-server"
FROZEN_SUPERVISOR, FROZEN_API_SERVER = "supervisor frozen", "api-server frozen"
TOLD_TO_END = "task told to end"
KILLED = frozenset({TASK, SUPERVISOR, API_SERVER})
AT_A_MOMENT, ON_CLAIM, ON_ARRIVAL = "at a moment", "on claim", "on arrival"


@dataclass(frozen=True)
class Strike:
    """What was killed or frozen, when, and how far the try had come; an API server belongs to no case."""

    victim: str
    at: float
    key: tuple[str, int] | None = None
    number: int = 0
    age: float = 0.0
    aim: str = ""
    phase: str = ""

    @property
    def killed(self) -> bool:
        """Whether something died."""
        return self.victim in KILLED

    def __str__(self) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(self.at))
        if self.key is None:
            return f"{clock} {self.victim}"
        return f"{clock} {self.victim} of try {self.number}, {self.age:.2f} s old, {self.phase} ({self.aim})"
