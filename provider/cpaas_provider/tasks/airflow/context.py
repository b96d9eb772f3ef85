"""What Airflow knows of a run and a try, as the plain facts the journal and its guards use.

Airflow's own timetables name the moment at which the next run was due, as they do to the scheduler. Airflow has no
public way for a task to ask them. This module uses ``coerce_to_core_timetable`` of its serialization.
``tests/airflow/test_private_parts.py`` fails when it changes.
"""

from __future__ import annotations

import contextlib
import logging
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from cpaas_provider.sending.errors import SendingError
from cpaas_provider.sending.journal import store
from cpaas_provider.sending.journal.store import TryInfo
from cpaas_provider.sending.run_guard import NEVER, RunInfo
from cpaas_provider.tasks.airflow.store import open_journal_store
from cpaas_provider.tasks.errors import PreflightError

if TYPE_CHECKING:
    from airflow.sdk import Context

log = logging.getLogger(__name__)

SKIP_REASON_KEY = "skip_reason"
"""The XCom with the reason of a task that is skipped."""

_TIMETABLES_OF_AIRFLOW = ("airflow.timetables.", "airflow.sdk.definitions.timetables.")


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


def record_nothing_sent(context: Context, tries: TryInfo | None = None, *, is_new: bool = False) -> None:
    """Record that no try has sent anything so far, unless there is a journal. One that is written later counts.

    :param tries: what Airflow states about this try; ``None`` to ask the context
    :param is_new: whether there is no journal, as its log has read
    """
    tries = tries or try_info(context, context["task"].retries)
    try:
        with open_journal_store(context, tries) as opened:
            if opened is not None:
                store.record_nothing_sent(opened, tries, is_new=is_new)
    except (SendingError, PreflightError) as error:
        # The failure that ends the try must not be hidden by this one.
        log.warning("The record that this try sent nothing could not be stored: %s", error)


def push_or_warn(context: Context, key: str, value: Any) -> None:
    """Push an XCom of a try that fails or is skipped. A failure is logged, because what it reports matters more."""
    try:
        context["ti"].xcom_push(key=key, value=value)
    except Exception as error:  # noqa: BLE001 - Airflow raises several kinds
        log.warning("The %s could not be stored as XCom (%s).", key, type(error).__name__)


def run_info(context: Context) -> RunInfo:
    """Return what decides whether the run comes too late to send."""
    run: Any = context["dag_run"]
    dag: Any = context.get("dag")
    return RunInfo(
        run_type=str(getattr(run.run_type, "value", run.run_type)),
        run_after=_due_at(run),
        started=run.start_date,
        # A timetable of another author need not obey catchup=False.
        may_catch_up=dag is None or bool(dag.catchup) or not _is_of_airflow(_inner(dag.timetable)),
        # A cleared run starts again long after its successor was due. That is no catch-up.
        cleared=bool(getattr(run, "clear_number", None)),
        find_next_due=partial(find_next_due, dag, run),
    )


def _due_at(run: Any) -> datetime:
    """Return when a run was due."""
    due: datetime = run.run_after
    # A run of a partition has the moment at which the scheduler made it, which may be long after its last event.
    events = [event.timestamp for event in getattr(run, "consumed_asset_events", None) or ()]
    return min(due, max(events)) if events else due


def find_next_due(dag: Any, run: Any) -> datetime | None:
    """Return when the run after this one was due: ``NEVER`` if there is none, ``None`` if that is not known."""
    try:
        return _next_due(dag, run)
    except Exception as error:  # noqa: BLE001 - a timetable of another author may raise anything
        log.warning("The timetable does not say when the next run was due (%s).", type(error).__name__)
        return None


def _next_due(dag: Any, run: Any) -> datetime | None:
    # Imported for a run that begins late, as these modules are slow to import.
    from airflow.sdk.timezone import coerce_datetime
    from airflow.serialization.encoders import coerce_to_core_timetable
    from airflow.timetables.base import DagRunInfo, DataInterval, TimeRestriction

    timetable: Any = coerce_to_core_timetable(_inner(dag.timetable))
    due = coerce_datetime(run.run_after)
    start, end = coerce_datetime(run.data_interval_start), coerce_datetime(run.data_interval_end)
    interval = None
    if start is not None and end is not None:
        interval = DataInterval(start, end)
    elif not timetable.partitioned:
        # A timetable without data intervals need not have this method.
        with contextlib.suppress(NotImplementedError):
            interval = timetable.infer_manual_data_interval(run_after=due)
    following = timetable.next_dagrun_info_v2(
        last_dagrun_info=DagRunInfo(due, interval, run.partition_date, run.partition_key),
        restriction=TimeRestriction(coerce_datetime(dag.start_date), coerce_datetime(dag.end_date), catchup=True),
    )
    if following is None:
        return NEVER
    next_due: datetime = following.run_after
    # A run of an earlier moment answers another question.
    return next_due if next_due > due else None


def _inner(timetable: Any) -> Any:
    """Return the timetable of the scheduled runs: of a schedule by assets or time, the one it holds."""
    while _is_of_airflow(timetable) and (held := getattr(timetable, "timetable", None)) is not None:
        timetable = held
    return timetable


def _is_of_airflow(timetable: Any) -> bool:
    return type(timetable).__module__.startswith(_TIMETABLES_OF_AIRFLOW)
