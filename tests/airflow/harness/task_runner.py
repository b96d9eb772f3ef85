"""Many cases in one DAG run: each task with its own recipient and its own faults, and a record of its logs.

``dag.test()`` costs seconds, a further task in it milliseconds. So a module runs all its cases in one run, once, and
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
from cpaas_provider.sending.requests.probes import OtpRecordProbe
from tests.airflow.harness.examples import bounded
from tests.airflow.harness.running import DagRunResult, run
from tests.ports import closed_port
from tests.sandbox import Sandbox

RETRIES = 3
ATTEMPTS = 5  # a client's first, and its four repeats
RUN_WITHIN = 120
PLENTY = 1_000_000.0

_STARTING = re.compile(r"\[DAG TEST\] starting task_id=(\S+) map_index=(-?\d+)")


def phone(case: str) -> str:
    """Return a national number that no other case has."""
    return f"0803{zlib.crc32(case.encode()) % 10**7:07d}"


def digits(case: str) -> str:
    """Return the same number as it goes over the wire."""
    return f"234{phone(case)[1:]}"


def address(case: str) -> str:
    """Return an email address that no other case has."""
    return f"{case.replace('_', '.')}@people.example.com"


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


class TaskRunner:
    """Runs the tasks of a module against the sandbox; afterwards, it has their states, errors and logs."""

    def __init__(self, sandbox: Sandbox, patch: pytest.MonkeyPatch, settings: Mapping[str, Any]) -> None:
        self.sandbox = sandbox
        self._patch = patch
        self._settings = dict(settings)
        self.result: DagRunResult
        self.task_logs: dict[tuple[str, int], list[str]] = defaultdict(list)
        self.errors: dict[tuple[str, int], list[BaseException]] = defaultdict(list)
        self.all_logs: list[str] = []
        self._conditions: dict[str, tuple[tuple[str, str, Any], ...]] = {}
        self._current_task = ("", -1)
        # Of a task that was deferred or rescheduled it is not the try's number that tells whether it is new.
        self._started: dict[tuple[str, int], bool] = defaultdict(bool)

    def connect(self, conn_id: str, **changes: Any) -> None:
        """Make or change a connection: ``host``, ``password``, and extras."""
        self._patch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(_connection(self.sandbox, changes)))

    def dag(self, dag_id: str, **options: Any) -> DAG:
        """Return a DAG whose tasks have retries in hand and are watched."""
        watched = {"on_execute_callback": self._on_start, "on_failure_callback": self._on_failure}
        defaults = {"retries": RETRIES, "retry_delay": timedelta(0), "on_retry_callback": self._on_failure, **watched}
        return DAG(dag_id, schedule=None, default_args=defaults, **options)

    def prepare(self, task_id: str, *case: tuple[str, str, Any]) -> str:
        """Set the faults, balance and settings of the service for a task's tries; return the task's id."""
        self._conditions[task_id] = case
        return task_id

    def run_dag(self, dag: DAG) -> TaskRunner:
        """Run the DAG, whatever becomes of its tasks."""
        with self.record_logs(), bounded(RUN_WITHIN):
            self.result = run(dag)
        return self

    # -- results ------------------------------------------------------------------------------------------------

    def outcome(self, task_id: str, map_index: int = -1) -> tuple[str, int]:
        """Return a task's final state and how many tries it took."""
        instance = self.result.instance(task_id, map_index)
        return str(instance.state), int(instance.try_number)

    def xcom(self, task_id: str, map_index: int = -1) -> Any:
        return self.result.xcom(task_id, map_index)

    def rendered(self, task_id: str, map_index: int = -1) -> dict[str, Any]:
        return self.result.rendered(task_id, map_index)

    def error(self, task_id: str, map_index: int = -1) -> str:
        """Return the error message of a task's last failed try."""
        errors = self.errors.get((task_id, map_index))
        assert errors, f"{task_id} did not fail"
        return str(errors[-1])

    def log(self, task_id: str, map_index: int = -1) -> str:
        """Return all log lines of a task's tries."""
        return "\n".join(self.task_logs.get((task_id, map_index), []))

    def inbox_items(self, box: str, recipient: str) -> list[dict[str, Any]]:
        """Return what the service accepted for a recipient, oldest first."""
        return list(reversed(self.sandbox.inbox(box, recipient=recipient)["items"]))

    # -- callbacks and logs -------------------------------------------------------------------------------------------

    def _on_start(self, context: Any) -> None:
        instance = context["ti"]
        which = instance.task_id, _index(instance)
        case: dict[str, Any] = {"faults": [], **balance(PLENTY)[2], "settings": self._settings}
        for _, path, body in self._conditions.get(instance.task_id, ()):
            if path == "faults":
                if not self._started[which] or "times" not in body:
                    case["faults"].append(body)
            elif path == "settings":
                case["settings"] = {**case["settings"], **body}
            else:
                case.update(body)
        self.sandbox.control("PUT", "scene", case)
        self._started[which] = True

    def _on_failure(self, context: Any) -> None:
        instance = context["ti"]
        self.errors[instance.task_id, _index(instance)].append(context["exception"])

    @contextlib.contextmanager
    def record_logs(self) -> Iterator[None]:
        """Record all log lines before they are masked or cut, and do not show them."""
        processors = structlog.get_config()["processors"]
        processor = self._record_event
        processors.insert(-1, processor)
        handler = _Handler(self._record)
        logging.getLogger().addHandler(handler)
        try:
            yield
        finally:
            processors.remove(processor)
            logging.getLogger().removeHandler(handler)

    def _record_event(self, _logger: Any, _method: str, event: Any) -> Any:
        line = " ".join(f"{key}={value}" for key, value in event.items() if key not in ("exc_info", "timestamp"))
        self._record(line, event.get("exc_info"))
        # Airflow draws an error with all that stands around it, which takes longer than the try.
        raise structlog.DropEvent

    def _record(self, line: str, error: Any = None) -> None:
        if starting := _STARTING.search(line):
            self._current_task = starting[1], int(starting[2])
        if error:
            line += "\n" + (traceback.format_exc() if error is True else _trace(error))
        self.task_logs[self._current_task].append(line)
        self.all_logs.append(line)


def _index(instance: Any) -> int:
    return -1 if instance.map_index is None else int(instance.map_index)


class _Handler(logging.Handler):
    def __init__(self, record_line: Any) -> None:
        super().__init__()
        self._record_line = record_line

    def emit(self, record: logging.LogRecord) -> None:
        self._record_line(record.getMessage(), record.exc_info)


def _trace(error: Any) -> str:
    error = error[1] if isinstance(error, tuple) else error
    return "".join(traceback.format_exception(error))


def forget_campaign_database() -> None:
    """Have Airflow know nothing of the database of campaigns with a key: tests have one each."""
    with create_session() as session:
        for prefix in (CAMPAIGN_DATABASE, CAMPAIGN_TRIES):
            session.execute(delete(Variable).where(Variable.key.startswith(prefix)))


@contextlib.contextmanager
def open_task_runner(sandbox: Sandbox, **connections: Mapping[str, Any]) -> Iterator[TaskRunner]:
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
        # The client's pauses between attempts grow from this; no test needs them.
        patch.setattr(core, "_FIRST_BACKOFF", 0.001)
        # Nor those between two resends of a campaign.
        patch.setattr(engine, "_FIRST_PAUSE", 0.01)
        # Nor the time a passcode's record is waited for: in these cases it is there at once or never.
        patch.setattr(OtpRecordProbe, "max_wait", timedelta())
        task_runner = TaskRunner(sandbox, patch, settings)
        for name, changes in {**usual, **connections}.items():
            task_runner.connect(name, **changes)
        yield task_runner


def _connection(sandbox: Sandbox, changes: Mapping[str, Any]) -> dict[str, Any]:
    extra = {"sender_id": "Shop", "email_sender_id": "shop@example.com", "timeout": 2}
    connection = {**sandbox.connection, "extra": {**sandbox.connection["extra"], **extra}}
    for name, value in changes.items():
        (connection if name in ("host", "password") else connection["extra"])[name] = value
    return connection
