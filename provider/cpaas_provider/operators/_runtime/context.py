"""What Airflow knows of a run and a try, as the plain facts the journal and its guards use."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from zoneinfo import ZoneInfo

from cpaas_provider.operators._runtime.state.store import open_state_store
from cpaas_provider.sending.journal.store import TryInfo, record_nothing_sent
from cpaas_provider.sending.run_guard import RunInfo

if TYPE_CHECKING:
    from airflow.sdk import Context


class TaskPlace(NamedTuple):
    """Where a task instance is: the same in all of its tries, and of all iterations of a loop."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int


def try_info(context: Context, retries: int | None) -> TryInfo:
    """Return which try this is, and of what."""
    instance: Any = context["ti"]
    cleared = getattr(context.get("dag_run"), "clear_number", None)
    return TryInfo(instance.try_number, instance.max_tries, retries or 0, cleared or 0)


def record_failed_rendering(context: Context, retries: int | None) -> None:
    """Record that a try sent nothing because its fields could not be rendered, unless there is a journal."""
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
        # A cleared run starts again long after its successor was due. That is no catch-up.
        started=None if cleared else run.start_date,
        catchup=bool(getattr(dag, "catchup", False)),
        next_due=_next_due(getattr(dag, "timetable", None), run),
    )


def _next_due(timetable: Any, run: Any) -> datetime | None:
    """Return when the run after this one was due; ``None`` for a timetable that does not say."""
    # A timetable of several crons consists of others.
    parts = getattr(timetable, "timetables", None) or (timetable,)
    if following := [due for part in parts if (due := _following(part, run.run_after))]:
        return min(following)
    start, end = run.data_interval_start, run.data_interval_end
    # A custom timetable: it is assumed that each interval begins where the one before it ends.
    return run.run_after + (end - start) if start and end and end > start else None


def _following(timetable: Any, after: datetime) -> datetime | None:
    """Return the next due time of a timetable with a cron expression or a timedelta; else ``None``."""
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
