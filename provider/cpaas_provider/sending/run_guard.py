"""Runs that come too late to send: backfills, catch-ups, and those held up for long."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from cpaas_provider.sending.errors import RunNotAllowedError

MAX_LATENESS = timedelta(days=1)

SCHEDULING_SLACK = timedelta(minutes=5)
"""How late a run may begin, beyond its successor's time, before it counts as caught up: schedulers are busy."""

_LIFTED_BY = "Nothing was sent. `allow_backfill=True` lets such runs send."


@dataclass(frozen=True)
class RunInfo:
    """What decides whether a run may send.

    :param run_type: Airflow's word for what made the run
    :param run_after: from when on it could run
    :param started: when it did; ``None`` where that is not known
    :param catchup: whether its DAG makes up for missed runs
    :param next_due: when the run after it was due; ``None`` where that is not known
    """

    run_type: str
    run_after: datetime
    started: datetime | None = None
    catchup: bool = False
    next_due: datetime | None = None

    @property
    def is_backfill(self) -> bool:
        """Whether a person asked for the run of a time past."""
        return self.run_type == "backfill"

    @property
    def is_caught_up(self) -> bool:
        """Whether the schedule made the run after its successor was due, to make up for a time without runs."""
        if self.run_type != "scheduled" or not self.catchup or self.started is None or self.next_due is None:
            return False
        return self.started > self.next_due + SCHEDULING_SLACK


def check_run_may_send(run: RunInfo, now: datetime, *, allow_backfill: bool, max_lateness: timedelta | None) -> None:
    """Raise where a run must not send: a message of last March helps no recipient.

    :param allow_backfill: let backfills and caught up runs send, however late
    :param max_lateness: how long after its time any other run may send; ``None`` lets it always
    :raises RunNotAllowedError: saying why
    """
    if run.is_backfill or run.is_caught_up:
        if not allow_backfill:
            raise RunNotAllowedError(
                f"This run is a backfill. {_LIFTED_BY}" if run.is_backfill else f"{_caught_up(run)} {_LIFTED_BY}"
            )
    elif max_lateness is not None and now - run.run_after > max_lateness:
        raise RunNotAllowedError(
            f"This run is stale: it was due at {run.run_after.isoformat(timespec='minutes')}, longer ago than "
            f"max_lateness ({max_lateness}) allows. Nothing was sent. Start a new run, or raise max_lateness."
        )


def _caught_up(run: RunInfo) -> str:
    due, began, successor = (
        one.isoformat(timespec="minutes") if one else "an unknown time"
        for one in (run.run_after, run.started, run.next_due)
    )
    return (
        f"This run is a catch-up run. It was due at {due} and began at {began}, after the next run was due at "
        f"{successor}. The scheduler was down or paused, or max_active_runs made this run wait for an earlier one."
    )
