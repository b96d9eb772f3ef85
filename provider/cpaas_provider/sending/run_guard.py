"""The run guard: backfills, catch-up runs and stale runs do not send.

A run needs proof that it is in time. A run without that proof counts as a catch-up run.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from cpaas_provider.sending.errors import RunNotAllowedError

SCHEDULING_SLACK = timedelta(minutes=5)
"""How long after it was due a run may begin before it counts as late: schedulers may be busy."""

NEVER = datetime.max.replace(tzinfo=UTC)
"""When the run after the last one of a schedule is due."""

_ALLOW_HINT = "Nothing was sent. `allow_backfill=True` lets such runs send."


def _not_known() -> None:
    return None


class RunInfo(NamedTuple):
    """The facts of a run that decide whether it may send.

    :param run_type: Airflow's run type, such as ``scheduled``
    :param run_after: when the run was due
    :param started: when it began; ``None`` where that is not known
    :param may_catch_up: whether its schedule may make a run whose successor is due already
    :param cleared: whether a person let it run again, so that it began again long after it was due
    :param find_next_due: returns when the next run was due, ``NEVER`` if there is none, ``None`` if that is not known
    """

    run_type: str
    run_after: datetime
    started: datetime | None = None
    may_catch_up: bool = False
    cleared: bool = False
    find_next_due: Callable[[], datetime | None] = _not_known

    def describe_catch_up(self, now: datetime) -> str:
        """Return why the run counts as a catch-up run, empty if it is none."""
        if self.run_type != "scheduled" or not self.may_catch_up or self.cleared:
            return ""
        began = self.started or now
        if began <= self.run_after + SCHEDULING_SLACK:
            # Its successor was due later still.
            return ""
        due = f"It was due at {_minute(self.run_after)} and began at {_minute(began)}"
        next_due = self.find_next_due()
        if next_due is None:
            return (
                f"This run counts as a catch-up run. {due}, and its timetable does not say when the next run was due."
            )
        if began - next_due <= SCHEDULING_SLACK:
            return ""
        return (
            f"This run is a catch-up run. {due}, after the next run was due at {_minute(next_due)}. The scheduler was "
            "down or paused, or max_active_runs made this run wait for an earlier one."
        )


def check_run_may_send(run: RunInfo, now: datetime, *, allow_backfill: bool, max_lateness: timedelta | None) -> None:
    """Raise if a run must not send, because its message would come too late.

    :param allow_backfill: let backfills and catch-up runs send, however late
    :param max_lateness: how long after it was due any other run may send; ``None`` for no limit
    :raises RunNotAllowedError: when it must not send
    """
    reason = "This run is a backfill." if run.run_type == "backfill" else run.describe_catch_up(now)
    if reason:
        if not allow_backfill:
            raise RunNotAllowedError(f"{reason} {_ALLOW_HINT}")
    elif max_lateness is not None and now - run.run_after > max_lateness:
        raise RunNotAllowedError(
            f"This run is stale: it was due at {_minute(run.run_after)}, longer ago than "
            f"max_lateness ({max_lateness}) allows. Nothing was sent. Start a new run, or raise max_lateness."
        )


def _minute(moment: datetime) -> str:
    return moment.isoformat(timespec="minutes")
