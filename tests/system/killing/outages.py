"""Times in which the API server, and the state store with it, is away or silent."""

from __future__ import annotations

import itertools
import random
import time
from dataclasses import dataclass, field
from typing import Self

from tests.system.killing import strikes
from tests.system.killing.parts import API_SERVER, AirflowInParts

AWAY_SECONDS = (0.5, 6.0)
SILENT_SECONDS = (4.0, 14.0)
CALM_SECONDS = (10.0, 25.0)


@dataclass
class Outages:
    """So many outages, one after the other, with calm between; as a context, what is away is brought back."""

    airflow: AirflowInParts
    chance: random.Random
    quota: int
    under_way: str | None = field(default=None, init=False)

    def __enter__(self) -> Self:
        self._next = time.monotonic() + self.chance.uniform(*CALM_SECONDS)
        self._kinds = itertools.cycle((strikes.API_SERVER, strikes.API_SERVER, strikes.FROZEN_API_SERVER))
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def tick(self) -> str | None:
        """Begin or end an outage whose time has come; return what kind began."""
        if time.monotonic() < self._next:
            return None
        if self.under_way:
            return self._wait_for_the_server()
        if self.quota <= 0:
            return None
        self.quota -= 1
        self._back = False
        self.under_way = next(self._kinds)
        if self.under_way == strikes.API_SERVER:
            self.airflow.kill_api_server()
            self._next = time.monotonic() + self.chance.uniform(*AWAY_SECONDS)
        else:
            self.airflow.freeze_api_server()
            self._next = time.monotonic() + self.chance.uniform(*SILENT_SECONDS)
        return self.under_way

    def _wait_for_the_server(self) -> None:
        """Bring the server back once; calm begins when it answers."""
        if not self._back:
            self._bring_back()
            self._back = True
        elif self.airflow.answers():
            self.under_way = None
            self._next = time.monotonic() + self.chance.uniform(*CALM_SECONDS)

    def _bring_back(self) -> None:
        if self.under_way == strikes.FROZEN_API_SERVER:
            self.airflow.thaw_api_server()
        else:
            self.airflow.start_part(API_SERVER)

    def _end(self) -> None:
        if self.under_way and not self._back:
            self._bring_back()
        self.under_way = None
