"""The sandbox as a process of its own, for tests and for the demo."""

from __future__ import annotations

import json
import os
import re
import secrets
import sys
from pathlib import Path
from typing import Any, Self

import httpx

from tests.processes import Started

MOST_IDLE_SECONDS = 60.0
STOP_SECONDS = 10.0

_SERVICE_AT = re.compile(r"service at http://127\.0\.0\.1:(\d+) ")


class SandboxError(RuntimeError):
    """The sandbox did not start, or refused what its control API was asked."""


class Sandbox:
    """A running sandbox: where it is, its key, and what it says of itself.

    Use it as a context manager. Nothing of it survives ``stop``.

    :param log: file its output goes to
    :param database: file it keeps its state in; in memory when left out
    :param port: where its address must be known before it starts; otherwise it picks a free one, and keeps it
    """

    def __init__(self, log: Path, database: Path | None = None, port: int = 0) -> None:
        self.api_key = f"sk_test_{secrets.token_hex(16)}"
        self.log = log
        self.database = database
        self.started: Started | None = None
        self._port = port
        self._client: httpx.Client | None = None

    @classmethod
    def running(cls, log: Path, url: str, api_key: str) -> Self:
        """Return one that another process started, to ask it; ``stop`` leaves it alone."""
        sandbox = cls(log, port=int(url.rpartition(":")[2]))
        sandbox.api_key = api_key
        return sandbox

    @property
    def url(self) -> str:
        """Where it is. One that picks its port itself must have been started."""
        if not self._port:
            raise SandboxError("The sandbox has not started, so it has no port yet.")
        return f"http://127.0.0.1:{self._port}"

    @property
    def connection(self) -> dict[str, Any]:
        """The Airflow connection to it, in the form ``AIRFLOW_CONN_...`` variables take as JSON."""
        extra = {"default_region": "NG", "requests_per_second": 1000, "max_concurrency": 16}
        return {"conn_type": "cpaas", "host": self.url, "password": self.api_key, "extra": extra}

    def start(self) -> Self:
        """Start it and wait until it answers."""
        command = [sys.executable, "-m", "cpaas_sandbox", "--port", str(self._port)]
        if self.database:
            command += ["--db", str(self.database)]
        # The key goes by the environment: everybody on the machine can read a command line.
        environment = {**os.environ, "CPAAS_SANDBOX_API_KEY": self.api_key}
        said_before = self.log.stat().st_size if self.log.exists() else 0
        self.started = Started.start(command, environment, self.log, Path.cwd())
        if not self.started.wait_until(lambda: self._healthy(said_before), MOST_IDLE_SECONDS):
            self.stop()
            raise SandboxError(f"The sandbox does not answer. The end of its log:\n{self._last_words()}")
        return self

    def stop(self) -> None:
        """End it with all its children; it does not matter whether it still runs."""
        if self._client:
            self._client.close()
            self._client = None
        if self.started:
            self.started.stop(STOP_SECONDS)

    def control(self, method: str, path: str, body: Any = None) -> Any:
        """Ask its control API, ``path`` being what follows ``/_control/``; return the answer's JSON."""
        # The sandbox refuses a POST without this header, also one without a body.
        headers = {"Content-Type": "application/json"}
        answer = self._http.request(method, f"/_control/{path.lstrip('/')}", json=body, headers=headers)
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

    def _healthy(self, said_before: int) -> bool:
        """Tell whether it answers; where it picked its port, what it says after so many bytes of its log tells it."""
        if not self._port:
            said = self.log.read_bytes()[said_before:].decode(errors="replace")
            found = _SERVICE_AT.search(said)
            if not found:
                return False
            self._port = int(found[1])
        try:
            return self._http.get("/_control/health", timeout=2.0).status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    @property
    def _http(self) -> httpx.Client:
        if self._client is None:
            self._client = httpx.Client(base_url=self.url, timeout=30.0, trust_env=False)
        return self._client

    def _last_words(self) -> str:
        return self.log.read_text(errors="replace")[-2000:]


def connection_json(connection: dict[str, Any], **extra: Any) -> str:
    """Return a connection as JSON, with extras added or replaced."""
    return json.dumps({**connection, "extra": {**connection["extra"], **extra}})
