"""When a run was due, and when the next one of its schedule was: Airflow's own timetables answer, as to the scheduler.

Airflow has no public way for a task to ask its timetable. This module uses ``coerce_to_core_timetable`` of its
serialization. ``tests/airflow/test_private_parts.py`` fails when it changes.
"""

from __future__ import annotations

import contextlib
import logging
from datetime import datetime
from typing import Any

from cpaas_provider.sending.run_guard import NEVER

log = logging.getLogger(__name__)

_TIMETABLES_OF_AIRFLOW = ("airflow.timetables.", "airflow.sdk.definitions.timetables.")


def due_at(run: Any) -> datetime:
    """Return when a run was due."""
    due: datetime = run.run_after
    # A run of a partition has the moment at which the scheduler made it, which may be long after its last event.
    events = [event.timestamp for event in getattr(run, "consumed_asset_events", None) or ()]
    return min(due, max(events)) if events else due


def may_catch_up(dag: Any) -> bool:
    """Return whether the schedule of a DAG may make runs whose successors are due already."""
    # A timetable of another author need not obey catchup=False.
    return dag is None or bool(dag.catchup) or not _is_of_airflow(_inner(dag.timetable))


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
