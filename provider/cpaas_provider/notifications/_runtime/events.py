"""Reads the event that an alert reports from Airflow's context."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from msgspec import Struct

_WORDS = {
    "failed": "failed",
    "up_for_retry": "failed and is retried",
    "success": "succeeded",
    "skipped": "was skipped",
    "running": "started",
}
"""What happened, by the state of a task or DAG run."""

_DEADLINE = "missed its deadline"


class AirflowEvent(Struct, frozen=True):
    """The event that an alert reports.

    :param subject: the task or DAG and what happened to it. Alerts with the same subject are counted together
    :param kind: what happened. Alerts of different kinds have different notifications
    :param details: details for a notification about one alert
    :param link: the URL of the DAG run; ``None`` if the run is not known
    """

    subject: str
    kind: str
    details: str
    link: str | None


def read_event(context: Mapping[str, Any]) -> AirflowEvent:
    """Return the event of a context as callbacks of tasks, DAGs and deadlines get it. Any part of it may be missing."""
    dag_id, run_id = _dag_id(context), _run_id(context)
    link = _link(dag_id, run_id)
    if "deadline" in context:
        deadline = context["deadline"]
        moment = str(deadline.get("deadline_time", "") if isinstance(deadline, Mapping) else "")[:16]
        moment = f"{moment.replace('T', ' ')} UTC" if moment else ""
        return AirflowEvent(f"DAG {dag_id} {_DEADLINE}", _DEADLINE, moment, link)
    instance = context.get("ti") or context.get("task_instance")
    if instance is None or "reason" in context:
        reason = context.get("reason")
        words = _WORDS["success" if reason == "success" else "failed"]
        details = "" if reason in ("success", "task_failure", None) else str(reason).replace("_", " ")
        return AirflowEvent(f"DAG {dag_id} {words}", words, details, link)
    error = context.get("exception")
    state = getattr(instance, "state", None) or ("failed" if error else "success")
    state = str(getattr(state, "value", state))
    words = _WORDS.get(state, state)
    parts = []
    if error is not None:
        # Only the type: the text of an error may have a phone number, a row or a password.
        parts.append(error if isinstance(error, str) and error.isidentifier() else type(error).__name__)
    if (map_index := getattr(instance, "map_index", None)) is not None and map_index >= 0:
        parts.append(f"map index {map_index}")
    if error is not None and (number := getattr(instance, "try_number", None)):
        parts.append(f"try {number}")
    return AirflowEvent(f"{dag_id}.{instance.task_id} {words}", words, ", ".join(parts), link)


def _dag_id(context: Mapping[str, Any]) -> str:
    owners = (context.get("ti"), context.get("dag"), context.get("dag_run"))
    return str(next(filter(None, (_value(owner, "dag_id") for owner in owners)), "unknown"))


def _run_id(context: Mapping[str, Any]) -> str | None:
    run = context.get("dag_run")
    run_id = context.get("run_id") or _value(run, "run_id") or _value(run, "dag_run_id")
    return str(run_id) if run_id else None


def _value(owner: Any, name: str) -> Any:
    """Return a value of a mapping or of an object: contexts have both."""
    return owner.get(name) if isinstance(owner, Mapping) else getattr(owner, name, None)


def _link(dag_id: str, run_id: str | None) -> str | None:
    """Return the URL of a DAG run in Airflow's UI, as in Airflow's own emails."""
    from airflow.sdk.configuration import conf

    base = conf.get("api", "base_url", fallback=None) or "http://localhost:8080"
    if run_id is None:
        return None
    return f"{base.rstrip('/')}/dags/{quote(dag_id, safe='')}/runs/{quote(run_id, safe='')}"
