"""What Airflow knows of a run and a try, as the plain facts the journal and its guards use."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from cpaas_provider.operators._runtime.schedule import due_at, find_next_due, may_catch_up
from cpaas_provider.operators._runtime.state.store import open_state_store
from cpaas_provider.sending.journal import store
from cpaas_provider.sending.journal.store import TryInfo
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


def record_nothing_sent(context: Context) -> None:
    """Record that no try has sent anything so far, unless there is a journal. One that is written later counts."""
    state, task = open_state_store(context), context["task"]
    if state is not None:
        store.record_nothing_sent(state, try_info(context, task.retries))


def run_info(context: Context) -> RunInfo:
    """Return what decides whether the run comes too late to send."""
    run: Any = context["dag_run"]
    dag: Any = context.get("dag")
    return RunInfo(
        run_type=str(getattr(run.run_type, "value", run.run_type)),
        run_after=due_at(run),
        started=run.start_date,
        may_catch_up=may_catch_up(dag),
        # A cleared run starts again long after its successor was due. That is no catch-up.
        cleared=bool(getattr(run, "clear_number", None)),
        find_next_due=partial(find_next_due, dag, run),
    )
