"""From Airflow's context to what an alert is about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

_WORDS = {
    "failed": "failed",
    "up_for_retry": "failed and is retried",
    "success": "succeeded",
    "skipped": "was skipped",
    "running": "started",
}
"""By the state of a task or DAG run."""

_DEADLINE = "missed its deadline"


@dataclass(frozen=True)
class AirflowEvent:
    """What an alert is about.

    :param subject: what happened to which task or DAG; alerts with the same subject are counted together
    :param kind: what happened; alerts of different kinds have notifications of their own
    :param details: what is of interest where there is one alert only
    :param link: to the DAG run
    """

    subject: str
    kind: str
    details: str
    link: str | None


def read_event(context: Mapping[str, Any]) -> AirflowEvent:
    """Read a context as Airflow gives it to the callbacks of tasks, DAGs and deadlines, whatever is missing in it."""
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
    known: list[str] = []
    if error is not None:
        # The text of an error may hold anything: a number, a row, a password.
        known.append(error if isinstance(error, str) and error.isidentifier() else type(error).__name__)
    if (map_index := getattr(instance, "map_index", None)) is not None and map_index >= 0:
        known.append(f"map index {map_index}")
    if error is not None and (number := getattr(instance, "try_number", None)):
        known.append(f"try {number}")
    return AirflowEvent(f"{dag_id}.{instance.task_id} {words}", words, ", ".join(known), link)


def _dag_id(context: Mapping[str, Any]) -> str:
    for owner in (context.get("ti"), context.get("dag"), context.get("dag_run")):
        found = _value(owner, "dag_id")
        if found:
            return str(found)
    return "unknown"


def _run_id(context: Mapping[str, Any]) -> str | None:
    run = context.get("dag_run")
    found = context.get("run_id") or _value(run, "run_id") or _value(run, "dag_run_id")
    return str(found) if found else None


def _value(owner: Any, name: str) -> Any:
    return owner.get(name) if isinstance(owner, Mapping) else getattr(owner, name, None)


def _link(dag_id: str, run_id: str | None) -> str | None:
    """Return the address of a run in Airflow's pages, as Airflow's own emails have it."""
    from airflow.sdk.configuration import conf

    base = conf.get("api", "base_url", fallback=None) or "http://localhost:8080"
    if run_id is None:
        return None
    return f"{base.rstrip('/')}/dags/{quote(dag_id, safe='')}/runs/{quote(run_id, safe='')}"
