"""The bare server as a process of its own, started, asked and ended."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple, Self

import httpx

from tests.benchmarks.campaign.bare_server import LATENCY
from tests.ports import reserved_ports
from tests.processes import Started
from tests.system.standalone import wait_for

READY_WITHIN = 20.0
STOP_GRACE = 2.0
REPOSITORY = Path(__file__).parents[3]
# What is measured is the checkout that this file is part of, whichever one the environment was made for.
IMPORTED_FROM = (str(REPOSITORY), str(REPOSITORY / "provider"))


class Arrived(NamedTuple):
    """What the server saw of one run; the same measure for whoever sent."""

    requests: int
    recipients: int
    connections: int
    most_in_flight: int
    seconds: float

    @property
    def requests_per_second(self) -> float:
        """The pace from the first arrival to the last, so that nobody's start or end is in it."""
        return (self.requests - 1) / self.seconds if self.seconds else 0.0

    @property
    def recipients_per_second(self) -> float:
        return self.requests_per_second * self.recipients / self.requests if self.requests else 0.0


class BareServer:
    """A running bare server; use it as a context manager."""

    def __init__(self, log: Path, latency: float = LATENCY) -> None:
        self.log = log
        self.latency = latency
        self.port = reserved_ports(1)[0]
        self.url = f"http://127.0.0.1:{self.port}"
        self._http = httpx.Client(base_url=self.url, timeout=10.0, trust_env=False)
        self._started: Started | None = None

    def reset(self) -> None:
        """Forget what arrived."""
        self._http.post("/_reset").raise_for_status()

    def arrived(self) -> Arrived:
        """Tell what arrived since the last reset."""
        told = self._http.get("/_stats").raise_for_status().json()
        first, last = told.pop("first"), told.pop("last")
        return Arrived(**told, seconds=last - first if told["requests"] else 0.0)

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "tests.benchmarks.campaign.bare_server"]
        command += ["--port", str(self.port), "--latency", str(self.latency)]
        self._started = Started.start(command, os.environ, self.log, REPOSITORY)
        try:
            wait_for("the bare server to answer", self._answers, READY_WITHIN, 0.05)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()
        if self._started:
            self._started.stop(STOP_GRACE)

    def _answers(self) -> bool | None:
        try:
            return self._http.get("/_stats").is_success or None
        except httpx.TransportError:
            return None
