"""Many scenes in one DAG run: each task with its own recipient, its own trouble, and a note of what it said.

``dag.test()`` costs seconds, a further task in it milliseconds. So a module plays all its scenes in one run, once, and
each of its tests looks at one of them.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import traceback
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest
import structlog
from airflow.models.variable import Variable
from airflow.sdk import DAG
from airflow.utils.session import create_session
from sqlalchemy import delete

from cpaas_provider.api import core
from cpaas_provider.sending import engine
from cpaas_provider.sending.journal.model import CAMPAIGN_DATABASE, CAMPAIGN_TRIES
from cpaas_provider.sending.probes import OtpRecordProbe
from tests.airflow.harness.examples import bounded
from tests.airflow.harness.running import DagRunResult, run
from tests.ports import closed_port
from tests.sandbox import Sandbox

RETRIES = 3
ATTEMPTS = 5  # a client's first, and its four repeats
RUN_WITHIN = 120
PLENTY = 1_000_000.0

_STARTING = re.compile(r"\[DAG TEST\] starting task_id=(\S+) map_index=(-?\d+)")


def phone(scene: str) -> str:
    """Return a national number that no other scene has."""
    return f"0803{zlib.crc32(scene.encode()) % 10**7:07d}"


def digits(scene: str) -> str:
    """Return the same number as it goes over the wire."""
    return f"234{phone(scene)[1:]}"


def address(scene: str) -> str:
    """Return an email address that no other scene has."""
    return f"{scene.replace('_', '.')}@people.example.com"


def fault(operation: str, kind: str, **params: Any) -> tuple[str, str, Any]:
    """Something that goes wrong in every try, or, where it has ``times``, in the first."""
    return "POST", "faults", {"operation": operation, "kind": kind, **params}


def busy(operation: str, kind: str = "rate_limit", **params: Any) -> tuple[str, str, Any]:
    """The service refuses everything the first try attempts, and nothing afterwards."""
    return fault(operation, kind, times=ATTEMPTS, **{"retry_after": 0, **params})


def balance(amount: float) -> tuple[str, str, Any]:
    """What is on the account."""
    return "PUT", "balance", {"balance": amount}


def setting(**changes: Any) -> tuple[str, str, Any]:
    """How the service is set."""
    return "PUT", "settings", changes


class Stage:
    """What the scenes of a module are played on; afterwards, what was seen of them."""

    def __init__(self, sandbox: Sandbox, patch: pytest.MonkeyPatch, settings: Mapping[str, Any]) -> None:
        self.sandbox = sandbox
        self._patch = patch
        self._settings = dict(settings)
        self.result: DagRunResult
        self.said: dict[tuple[str, int], list[str]] = defaultdict(list)
        self.errors: dict[tuple[str, int], list[BaseException]] = defaultdict(list)
        self.all_logs: list[str] = []
        self._scenes: dict[str, tuple[tuple[str, str, Any], ...]] = {}
        self._playing = ("", -1)
        # Of a task that was deferred or rescheduled it is not the try's number that tells whether it is new.
        self._began: dict[tuple[str, int], bool] = defaultdict(bool)

    def connect(self, conn_id: str, **changes: Any) -> None:
        """Make or change a connection: ``host``, ``password``, and extras."""
        self._patch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(_connection(self.sandbox, changes)))

    def dag(self, dag_id: str, **options: Any) -> DAG:
        """Return a DAG whose tasks have retries in hand and are watched."""
        watched = {"on_execute_callback": self._begins, "on_failure_callback": self._fails}
        defaults = {"retries": RETRIES, "retry_delay": timedelta(0), "on_retry_callback": self._fails, **watched}
        return DAG(dag_id, schedule=None, default_args=defaults, **options)

    def set(self, task_id: str, *scene: tuple[str, str, Any]) -> str:
        """Say what the service is to be like when a task's tries begin; return the task's id."""
        self._scenes[task_id] = scene
        return task_id

    def play(self, dag: DAG) -> Stage:
        """Run the DAG, whatever becomes of its tasks."""
        with self.listening(), bounded(RUN_WITHIN):
            self.result = run(dag)
        return self

    # -- what was seen ------------------------------------------------------------------------------------------------

    def outcome(self, task_id: str, map_index: int = -1) -> tuple[str, int]:
        """Return a task's final state and how many tries it took."""
        instance = self.result.instance(task_id, map_index)
        return str(instance.state), int(instance.try_number)

    def xcom(self, task_id: str, map_index: int = -1) -> Any:
        return self.result.xcom(task_id, map_index)

    def rendered(self, task_id: str, map_index: int = -1) -> dict[str, Any]:
        return self.result.rendered(task_id, map_index)

    def error(self, task_id: str, map_index: int = -1) -> str:
        """Return the words a task's last failed try ended with."""
        errors = self.errors.get((task_id, map_index))
        assert errors, f"{task_id} did not fail"
        return str(errors[-1])

    def log(self, task_id: str, map_index: int = -1) -> str:
        """Return all a task's tries logged."""
        return "\n".join(self.said.get((task_id, map_index), []))

    def arrived(self, box: str, recipient: str) -> list[dict[str, Any]]:
        """Return what the service accepted for a recipient, oldest first."""
        return list(reversed(self.sandbox.inbox(box, recipient=recipient)["items"]))

    # -- behind the scenes --------------------------------------------------------------------------------------------

    def _begins(self, context: Any) -> None:
        instance = context["ti"]
        which = instance.task_id, _index(instance)
        scene: dict[str, Any] = {"faults": [], **balance(PLENTY)[2], "settings": self._settings}
        for _, path, body in self._scenes.get(instance.task_id, ()):
            if path == "faults":
                if not self._began[which] or "times" not in body:
                    scene["faults"].append(body)
            elif path == "settings":
                scene["settings"] = {**scene["settings"], **body}
            else:
                scene.update(body)
        self.sandbox.control("PUT", "scene", scene)
        self._began[which] = True

    def _fails(self, context: Any) -> None:
        instance = context["ti"]
        self.errors[instance.task_id, _index(instance)].append(context["exception"])

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Take down all that is logged, before anything of it is masked or cut, and keep it from being shown."""
        processors = structlog.get_config()["processors"]
        heard = self._structured
        processors.insert(-1, heard)
        handler = _Handler(self._note)
        logging.getLogger().addHandler(handler)
        try:
            yield
        finally:
            processors.remove(heard)
            logging.getLogger().removeHandler(handler)

    def _structured(self, _logger: Any, _method: str, event: Any) -> Any:
        line = " ".join(f"{key}={value}" for key, value in event.items() if key not in ("exc_info", "timestamp"))
        self._note(line, event.get("exc_info"))
        # Airflow draws an error with all that stands around it, which takes longer than the try.
        raise structlog.DropEvent

    def _note(self, line: str, error: Any = None) -> None:
        if starting := _STARTING.search(line):
            self._playing = starting[1], int(starting[2])
        if error:
            line += "\n" + (traceback.format_exc() if error is True else _trace(error))
        self.said[self._playing].append(line)
        self.all_logs.append(line)


def _index(instance: Any) -> int:
    return -1 if instance.map_index is None else int(instance.map_index)


class _Handler(logging.Handler):
    def __init__(self, note: Any) -> None:
        super().__init__()
        self._told = note

    def emit(self, record: logging.LogRecord) -> None:
        self._told(record.getMessage(), record.exc_info)


def _trace(error: Any) -> str:
    error = error[1] if isinstance(error, tuple) else error
    return "".join(traceback.format_exception(error))


def forget_campaign_database() -> None:
    """Have Airflow know nothing of the database of campaigns with a key: tests have one each."""
    with create_session() as session:
        for prefix in (CAMPAIGN_DATABASE, CAMPAIGN_TRIES):
            session.execute(delete(Variable).where(Variable.key.startswith(prefix)))


@contextlib.contextmanager
def on_stage(sandbox: Sandbox, **connections: Mapping[str, Any]) -> Iterator[Stage]:
    """Set up a fresh service and the connections to it.

    There are always ``cpaas_default``, ``cpaas_wrong_key`` and ``cpaas_refused``.

    :param connections: further ones, or changes of these, by id: ``host``, ``password``, and extras
    """
    settings = sandbox.control("POST", "reset")["settings"]
    forget_campaign_database()
    with closed_port() as refusing, pytest.MonkeyPatch.context() as patch:
        usual: dict[str, Mapping[str, Any]] = {
            "cpaas_default": {},
            "cpaas_wrong_key": {"password": "sk_test_of_somebody_else"},
            "cpaas_refused": {"host": refusing},
        }
        # The client's pauses between repeats grow from this; nobody needs to sit them out.
        patch.setattr(core, "_FIRST_BACKOFF", 0.001)
        # Nor those between two times that a campaign sends to the same people again.
        patch.setattr(engine, "_FIRST_PAUSE", 0.01)
        # Nor the time a passcode's record is waited for: in these scenes it is there at once or never.
        patch.setattr(OtpRecordProbe, "max_wait", timedelta())
        stage = Stage(sandbox, patch, settings)
        for name, changes in {**usual, **connections}.items():
            stage.connect(name, **changes)
        yield stage


def _connection(sandbox: Sandbox, changes: Mapping[str, Any]) -> dict[str, Any]:
    extra = {"sender_id": "Shop", "email_sender_id": "shop@example.com", "timeout": 2}
    connection = {**sandbox.connection, "extra": {**sandbox.connection["extra"], **extra}}
    for name, value in changes.items():
        (connection if name in ("host", "password") else connection["extra"])[name] = value
    return connection
