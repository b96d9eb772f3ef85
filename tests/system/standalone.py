"""A real Airflow to drive: ``airflow standalone`` with a home, ports, keys and processes of its own."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sys
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx

from tests.airflow_home import settings_for, without_airflow
from tests.ports import reserved_ports
from tests.processes import Started

T = TypeVar("T")

USER = "admin"
HEALTHY_WITHIN = 300.0
ENDED = frozenset({"success", "failed"})
PARTS = ("metadatabase", "scheduler", "triggerer", "dag_processor")


class StandaloneError(RuntimeError):
    """Airflow did not do what it was asked to; the message says what, and where to look."""


def is_answering(client: httpx.Client) -> bool:
    """Whether an API server answers within two seconds."""
    try:
        return client.get("/api/v2/version", timeout=2.0).is_success
    except httpx.TransportError:
        return False


def wait_for(what: str, look: Callable[[], T | None], within: float, every: float = 0.2) -> T:
    """Return what ``look`` finds as soon as it finds something; raise when that takes too long."""
    deadline = time.monotonic() + within
    while (found := look()) is None:
        if time.monotonic() > deadline:
            raise StandaloneError(f"Waited {within:g} s for {what}.")
        time.sleep(every)
    return found


@dataclass
class Standalone:
    """One Airflow, from ``start`` to ``stop``; also a context manager.

    :param home: its folder, made where it is missing; nothing outside is touched
    :param dags: the folder of its DAGs
    :param settings: further variables, such as ``AIRFLOW_CONN_CPAAS_DEFAULT``
    """

    home: Path
    dags: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    password: str = field(default_factory=lambda: secrets.token_urlsafe(12), repr=False)
    started: Started | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.home = self.home.absolute()
        self._ports = reserved_ports(3)
        self.url = f"http://127.0.0.1:{self._ports[0]}"
        self.fernet_key = urlsafe_b64encode(secrets.token_bytes(32)).decode()
        self._http = httpx.Client(base_url=self.url, timeout=30.0, trust_env=False)
        self._token: str | None = None

    @classmethod
    def running(cls, home: Path, dags: Path, url: str, password: str) -> Self:
        """Return one that another process started, to drive it; ``stop`` leaves it alone."""
        standalone = cls(home, dags, password=password)
        standalone.url = url
        standalone._http = httpx.Client(base_url=url, timeout=30.0, trust_env=False)
        return standalone

    def start(self) -> Self:
        """Start it; it is of use only after ``wait_until_healthy``."""
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        # SimpleAuthManager takes a password file that is there already, and then prints none.
        passwords = self.home / "simple_auth_manager_passwords.json.generated"
        passwords.write_text(json.dumps({USER: self.password}))
        passwords.chmod(0o600)
        command = [str(Path(sys.executable).parent / "airflow"), "standalone"]
        self.started = Started.start(command, self.environment(), self.log, self.home)
        return self

    def environment(self) -> dict[str, str]:
        """Return the variables it runs with: none of the user's Airflow, and all of ours."""
        api, worker_logs, trigger_logs = map(str, self._ports)
        ours = {
            # Parts of standalone are found by their names.
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "NO_COLOR": "1",
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": api,
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__API__SECRET_KEY": secrets.token_urlsafe(32),
            "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_urlsafe(64),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.dags.absolute()),
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "AIRFLOW__CORE__FERNET_KEY": self.fernet_key,
            "AIRFLOW__CORE__PARALLELISM": "4",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "60",
            "AIRFLOW__DAG_PROCESSOR__PARSING_PROCESSES": "1",
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "30",
            "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": trigger_logs,
            "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": worker_logs,
            "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.2",
        }
        return {**without_airflow(os.environ), **settings_for(self.home), **ours, **self.settings}

    @property
    def log(self) -> Path:
        """The file all its parts write to."""
        return self.home / "logs" / "standalone.log"

    def wait_until_healthy(self, within: float = HEALTHY_WITHIN) -> None:
        """Return when every part says that it is well."""
        unwell = ["api-server"]

        def look() -> bool | None:
            if self.started is None or not self.started.alive:
                raise StandaloneError("Airflow ended at once.")
            try:
                health = self._http.get("/api/v2/monitor/health", timeout=5.0).json()
            except (httpx.TransportError, ValueError):
                return None
            unwell[:] = [part for part in PARTS if health.get(part, {}).get("status") != "healthy"]
            return not unwell or None

        try:
            wait_for("Airflow to be healthy", look, within)
        except StandaloneError as error:
            raise StandaloneError(
                f"{error} Not well: {', '.join(unwell)}. From {self.log}:\n{self.last_words()}"
            ) from None

    @property
    def token(self) -> str:
        """What the login of the user gives."""
        if self._token is None:
            answer = self._http.post("/auth/token", json={"username": USER, "password": self.password})
            answer.raise_for_status()
            self._token = str(answer.json()["access_token"])
        return self._token

    def api(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """Ask Airflow's REST API, ``path`` being what follows ``/api/v2/``; return the answer's JSON."""
        answer = self._ask(method, path, body, query)
        if answer.is_error:
            raise StandaloneError(f"{method} {path}: {answer.status_code} {answer.text[:1000]}")
        return answer.json() if answer.content else None

    def found(self, path: str, **query: Any) -> Any:
        """Return what is at a path of the REST API, or ``None`` where there is nothing."""
        answer = self._ask("GET", path, None, query)
        return None if answer.status_code == httpx.codes.NOT_FOUND else self.api("GET", path, **query)

    def trigger(self, dag_id: str, conf: Mapping[str, Any] | None = None, within: float = 60.0) -> str:
        """Unpause a DAG as soon as Airflow has read it, run it now, and return the run's id."""
        wait_for(f"Airflow to read {dag_id}", lambda: self._read(dag_id), within)
        self.api("PATCH", f"dags/{dag_id}", {"is_paused": False}, update_mask="is_paused")
        run = self.api("POST", f"dags/{dag_id}/dagRuns", {"logical_date": None, "conf": dict(conf or {})})
        return str(run["dag_run_id"])

    def ended(self, dag_id: str, run_id: str, within: float = 120.0) -> str:
        """Return how a run ended, as soon as it has."""

        def look() -> str | None:
            state = str(self.api("GET", f"dags/{dag_id}/dagRuns/{run_id}")["state"])
            return state if state in ENDED else None

        return wait_for(f"the run of {dag_id} to end", look, within)

    def task_log(self, dag_id: str, run_id: str, task_id: str, lines: int = 25, map_index: int | None = None) -> str:
        """Return the end of a task's newest log, or of one mapped instance's, in a form for people."""
        folder = self.home / "logs" / f"dag_id={dag_id}" / f"run_id={run_id}" / f"task_id={task_id}"
        folder = folder if map_index is None else folder / f"map_index={map_index}"
        files = sorted(folder.rglob("attempt=*.log"), key=lambda file: file.stat().st_mtime)
        if not files:
            return ""
        events = map(_readable, files[-1].read_text(errors="replace").splitlines())
        return "\n".join([event for event in events if event][-lines:])

    def last_words(self, lines: int = 40) -> str:
        """Return the end of its log; where something broke, the part from there on."""
        if not self.log.exists():
            return ""
        said = self.log.read_text(errors="replace").splitlines()
        broken = [place for place, line in enumerate(said) if "Traceback (most recent call last)" in line]
        start = broken[-1] if broken else max(0, len(said) - lines)
        return "\n".join(said[start : start + lines])

    def stop(self) -> None:
        """End all its processes."""
        self._http.close()
        if self.started:
            self.started.stop()

    def remove(self) -> None:
        """Delete its home."""
        shutil.rmtree(self.home, ignore_errors=True)

    def __enter__(self) -> Self:
        self.start()
        try:
            self.wait_until_healthy()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _read(self, dag_id: str) -> bool | None:
        if self.found(f"dags/{dag_id}"):
            return True
        errors = self.api("GET", "importErrors")["import_errors"]
        if errors:
            raise StandaloneError("\n".join(f"{one['filename']}: {one['stack_trace']}" for one in errors))
        return None

    def _ask(self, method: str, path: str, body: Any, query: Mapping[str, Any]) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.token}"}
        return self._http.request(method, f"/api/v2/{path.lstrip('/')}", json=body, params=dict(query), headers=headers)


def _readable(line: str) -> str:
    """Return a line of a task's log as time, level and event, with what an exception said; folds are left out."""
    try:
        entry = json.loads(line)
        event = str(entry["event"])
    except (ValueError, KeyError, TypeError):
        return line
    if event.startswith("::"):
        return ""
    said = [f"{detail.get('exc_type')}: {detail.get('exc_value')}" for detail in entry.get("error_detail") or ()]
    return "\n    ".join([f"{str(entry.get('timestamp'))[11:19]} {entry.get('level', ''):<8}{event}", *said])
