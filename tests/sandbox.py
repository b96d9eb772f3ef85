"""The sandbox as a process of its own, for tests and for the demo."""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from pathlib import Path
from typing import Any, Self

import httpx

from tests.processes import Started, free_ports

START_SECONDS = 60.0
STOP_SECONDS = 10.0


class SandboxError(RuntimeError):
    """The sandbox did not start, or refused what its control API was asked."""


class Sandbox:
    """A running sandbox: where it is, its key, and what it says of itself.

    Use it as a context manager. Nothing of it survives ``stop``.

    :param log: file its output goes to
    :param database: file it keeps its state in; in memory when left out
    """

    def __init__(self, log: Path, database: Path | None = None, port: int | None = None) -> None:
        self.api_key = f"sk_test_{secrets.token_hex(16)}"
        self.port = port or free_ports(1)[0]
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = log
        self.database = database
        self.started: Started | None = None
        self._http = httpx.Client(base_url=self.url, timeout=30.0, trust_env=False)

    @classmethod
    def running(cls, log: Path, url: str, api_key: str) -> Self:
        """Return one that another process started, to ask it; ``stop`` leaves it alone."""
        sandbox = cls(log, port=int(url.rpartition(":")[2]))
        sandbox.api_key = api_key
        return sandbox

    @property
    def connection(self) -> dict[str, Any]:
        """The Airflow connection to it, in the form ``AIRFLOW_CONN_...`` variables take as JSON."""
        extra = {"default_region": "NG", "requests_per_second": 1000, "max_concurrency": 16}
        return {"conn_type": "cpaas", "host": self.url, "password": self.api_key, "extra": extra}

    def start(self) -> Self:
        """Start it and wait until it answers."""
        command = [sys.executable, "-m", "cpaas_provider.sandbox", "--port", str(self.port)]
        if self.database:
            command += ["--db", str(self.database)]
        # The key goes by the environment: everybody on the machine can read a command line.
        environment = {**os.environ, "CPAAS_SANDBOX_API_KEY": self.api_key}
        self.started = Started.start(command, environment, self.log, Path.cwd())
        deadline = time.monotonic() + START_SECONDS
        while not self._healthy():
            if not self.started.alive:
                raise SandboxError(f"The sandbox ended at once. Its last words:\n{self._last_words()}")
            if time.monotonic() > deadline:
                self.stop()
                raise SandboxError(f"The sandbox did not answer within {START_SECONDS:g} s:\n{self._last_words()}")
            time.sleep(0.05)
        return self

    def stop(self) -> None:
        """End it with all its children; it does not matter whether it still runs."""
        self._http.close()
        if self.started:
            self.started.stop(STOP_SECONDS)

    def control(self, method: str, path: str, body: Any = None) -> Any:
        """Ask its control API, ``path`` being what follows ``/_control/``; return the answer's JSON."""
        answer = self._http.request(method, f"/_control/{path.lstrip('/')}", json=body)
        if answer.is_error:
            raise SandboxError(f"{method} {path}: {answer.status_code} {answer.text}")
        return answer.json() if answer.content else None

    def counters(self) -> dict[str, Any]:
        """Return what it accepted since it was last reset."""
        return dict(self.control("GET", "counters"))

    def inbox(self, kind: str, **query: Any) -> Any:
        """Return what arrived: ``sms``, ``email`` and so on, narrowed by the query the control API knows."""
        answer = self._http.get(f"/_control/inbox/{kind}", params=query)
        answer.raise_for_status()
        return answer.json()

    def reset(self) -> None:
        """Forget all traffic, faults, settings and seeded data."""
        self.control("POST", "reset")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _healthy(self) -> bool:
        try:
            return self._http.get("/_control/health", timeout=2.0).status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    def _last_words(self) -> str:
        return self.log.read_text(errors="replace")[-2000:]


def connection_json(connection: dict[str, Any], **extra: Any) -> str:
    """Return a connection as JSON, with extras added or replaced."""
    return json.dumps({**connection, "extra": {**connection["extra"], **extra}})
