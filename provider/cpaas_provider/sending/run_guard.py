"""The run guard: backfills, catch-up runs and stale runs do not send."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from cpaas_provider.sending.errors import RunNotAllowedError

SCHEDULING_SLACK = timedelta(minutes=5)
"""How long after the next run was due a run may begin before it counts as a catch-up run: schedulers may be busy."""

_ALLOW_HINT = "Nothing was sent. `allow_backfill=True` lets such runs send."


@dataclass(frozen=True)
class RunInfo:
    """The facts of a run that decide whether it may send.

    :param run_type: Airflow's run type, such as ``scheduled``
    :param run_after: the earliest time at which the run could begin
    :param started: when it began; ``None`` where that is not known
    :param catchup: the ``catchup`` of its DAG
    :param next_due: when the next run was due; ``None`` where that is not known
    """

    run_type: str
    run_after: datetime
    started: datetime | None = None
    catchup: bool = False
    next_due: datetime | None = None

    @property
    def is_backfill(self) -> bool:
        """Whether the run is part of a backfill."""
        return self.run_type == "backfill"

    @property
    def is_caught_up(self) -> bool:
        """Whether the scheduler began the run after the next one was due, to catch up."""
        if self.run_type != "scheduled" or not self.catchup or self.started is None or self.next_due is None:
            return False
        return self.started > self.next_due + SCHEDULING_SLACK


def check_run_may_send(run: RunInfo, now: datetime, *, allow_backfill: bool, max_lateness: timedelta | None) -> None:
    """Raise if a run must not send, because its message would come too late.

    :param allow_backfill: let backfills and catch-up runs send, however late
    :param max_lateness: how long after it was due any other run may send; ``None`` for no limit
    :raises RunNotAllowedError: when it must not send
    """
    if run.is_backfill or run.is_caught_up:
        if not allow_backfill:
            raise RunNotAllowedError(
                f"This run is a backfill. {_ALLOW_HINT}" if run.is_backfill else f"{_caught_up(run)} {_ALLOW_HINT}"
            )
    elif max_lateness is not None and now - run.run_after > max_lateness:
        raise RunNotAllowedError(
            f"This run is stale: it was due at {run.run_after.isoformat(timespec='minutes')}, longer ago than "
            f"max_lateness ({max_lateness}) allows. Nothing was sent. Start a new run, or raise max_lateness."
        )


def _caught_up(run: RunInfo) -> str:
    due, began, successor = (
        moment.isoformat(timespec="minutes") if moment else "an unknown time"
        for moment in (run.run_after, run.started, run.next_due)
    )
    return (
        f"This run is a catch-up run. It was due at {due} and began at {began}, after the next run was due at "
        f"{successor}. The scheduler was down or paused, or max_active_runs made this run wait for an earlier one."
    )
