"""What Airflow knows of a run and a try, as the plain facts the journal and its guards use."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from cpaas_provider.operators._runtime.state.store import open_state_store
from cpaas_provider.sending.hashing import task_identity
from cpaas_provider.sending.journal.store import TryInfo, record_nothing_sent
from cpaas_provider.sending.run_guard import RunInfo

if TYPE_CHECKING:
    from airflow.sdk import Context


def task_key(context: Context) -> tuple[str | int, ...]:
    """Return what the task instance is known by in all its tries."""
    instance: Any = context["ti"]
    map_index = -1 if instance.map_index is None else instance.map_index
    identity = task_identity(instance.dag_id, instance.run_id, instance.task_id, map_index)
    if not context.get("loop"):
        return identity
    # Airflow 3.4 has loops: each iteration is a task instance with a state of its own, so it sends for itself.
    return (*identity, str(instance.region_id), instance.region_index)


def task_digest(context: Context) -> str:
    """Return a short name that no other task instance has, the same in each of its tries."""
    return sha256(json.dumps(task_key(context)).encode()).hexdigest()[:12]


def cli_address(context: Context) -> str:
    """Return a task instance as the arguments of a command."""
    instance: Any = context["ti"]
    named = shlex.join([instance.dag_id, instance.run_id, instance.task_id])
    # Of a task in a loop the commands take the iteration.
    index = instance.region_index if context.get("loop") else instance.map_index
    return f"{named} --map-index {index}" if index is not None and index >= 0 else named


def try_info(context: Context, retries: int | None) -> TryInfo:
    """Return which try this is, and of what."""
    instance: Any = context["ti"]
    cleared = getattr(context.get("dag_run"), "clear_number", None)
    return TryInfo(instance.try_number, instance.max_tries, retries or 0, cleared or 0)


def record_failed_rendering(context: Context, retries: int | None) -> None:
    """Record that a try sent nothing whose fields could not be rendered, unless there is a journal."""
    state = open_state_store(context)
    if state is not None:
        record_nothing_sent(state, try_info(context, retries))


def run_info(context: Context) -> RunInfo:
    """Return what decides whether the run comes too late to send."""
    run: Any = context["dag_run"]
    dag: Any = context.get("dag")
    cleared = bool(getattr(run, "clear_number", None))
    return RunInfo(
        run_type=str(getattr(run.run_type, "value", run.run_type)),
        run_after=run.run_after,
        # Clearing a run begins it anew, long after its successor was due: that is no catching up.
        started=None if cleared else run.start_date,
        catchup=bool(getattr(dag, "catchup", False)),
        next_due=_next_due(getattr(dag, "timetable", None), run),
    )


def _next_due(timetable: Any, run: Any) -> datetime | None:
    """Return when the run after this one was due; ``None`` for a timetable that does not say."""
    if following := [due for one in _single(timetable) if (due := _following(one, run.run_after))]:
        return min(following)
    start, end = run.data_interval_start, run.data_interval_end
    # A timetable of the author's own: its intervals are taken to follow upon each other.
    return run.run_after + (end - start) if start and end and end > start else None


def _single(timetable: Any) -> Iterable[Any]:
    """Return what a timetable of several crons consists of."""
    return getattr(timetable, "timetables", None) or (timetable,)


def _following(timetable: Any, after: datetime) -> datetime | None:
    """Return the next moment of a timetable that goes by a cron expression or a span."""
    delta = getattr(timetable, "delta", None)
    if delta is not None:
        due: datetime = after + delta
        return due
    expression = getattr(timetable, "expression", None)
    if not isinstance(expression, str):
        return None
    from croniter import croniter

    zone: Any = getattr(timetable, "timezone", None)
    zone = ZoneInfo(zone) if isinstance(zone, str) else zone
    following: datetime = croniter(expression, after.astimezone(zone) if zone else after).get_next(datetime)
    return following
