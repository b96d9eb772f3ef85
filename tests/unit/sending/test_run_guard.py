"""Runs that come too late to send."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from cpaas_provider.sending.errors import RunNotAllowedError
from cpaas_provider.sending.run_guard import NEVER, SCHEDULING_SLACK, RunInfo, check_run_may_send

DUE = datetime(2026, 3, 1, 8, tzinfo=UTC)
DAY = timedelta(days=1)
A_MOMENT = timedelta(seconds=1)


def refused(run: RunInfo, now: datetime, *, allow_backfill: bool = False, max_lateness: timedelta | None = DAY) -> bool:
    try:
        check_run_may_send(run, now, allow_backfill=allow_backfill, max_lateness=max_lateness)
    except RunNotAllowedError:
        return True
    return False


@pytest.mark.parametrize("kind", ["scheduled", "manual", "asset_triggered", "operator_triggered"])
def test_any_other_run_may_send_until_max_lateness_has_passed(kind: str) -> None:
    run = RunInfo(kind, run_after=DUE)
    assert not refused(run, DUE)
    assert not refused(run, DUE + DAY)
    assert refused(run, DUE + DAY + A_MOMENT)
    assert not refused(run, DUE + 400 * DAY, max_lateness=None)
    assert refused(run, DUE + A_MOMENT, max_lateness=timedelta(0))


def test_backfill_of_today_does_not_send() -> None:
    assert refused(RunInfo("backfill", run_after=DUE), DUE)
    assert refused(RunInfo("backfill", run_after=DUE), DUE, max_lateness=None)


def test_allowed_backfill_sends_at_any_lateness() -> None:
    assert not refused(RunInfo("backfill", run_after=DUE), DUE + 400 * DAY, allow_backfill=True)


def run_due_daily(late: timedelta, *, kind: str = "scheduled", may_catch_up: bool = True) -> RunInfo:
    """Return a run that began so long after its successor was due."""
    return RunInfo(kind, DUE, started=DUE + DAY + late, may_catch_up=may_catch_up, find_next_due=lambda: DUE + DAY)


def test_run_that_began_after_its_successor_was_due_is_a_catch_up() -> None:
    assert refused(run_due_daily(SCHEDULING_SLACK + A_MOMENT), DUE, max_lateness=None)
    assert not refused(run_due_daily(SCHEDULING_SLACK + A_MOMENT), DUE + 400 * DAY, allow_backfill=True)


def test_delay_of_a_busy_scheduler_is_no_catch_up() -> None:
    assert not refused(run_due_daily(SCHEDULING_SLACK), DUE)


def test_manual_run_or_dag_without_catchup_is_no_catch_up() -> None:
    assert not refused(run_due_daily(DAY, kind="manual"), DUE)
    assert not refused(run_due_daily(DAY, may_catch_up=False), DUE)


def unanswered(began_after: timedelta) -> RunInfo:
    """Return a run whose timetable does not say when the next run was due."""
    return RunInfo("scheduled", DUE, started=DUE + began_after, may_catch_up=True, find_next_due=lambda: None)


@pytest.mark.parametrize("max_lateness", [DAY, None])
def test_run_whose_successor_is_not_known_counts_as_catch_up_run(max_lateness: timedelta | None) -> None:
    late = unanswered(SCHEDULING_SLACK + A_MOMENT)
    assert refused(late, DUE, max_lateness=max_lateness)
    assert not refused(late, DUE, max_lateness=max_lateness, allow_backfill=True)
    assert "its timetable does not say when the next run was due" in late.describe_catch_up(DUE)


def test_run_that_began_when_it_was_due_needs_no_answer_of_its_timetable() -> None:
    assert not refused(unanswered(SCHEDULING_SLACK), DUE)


def test_run_of_unknown_begin_counts_from_now() -> None:
    run = RunInfo("scheduled", DUE, may_catch_up=True, find_next_due=lambda: DUE + DAY)
    assert not refused(run, DUE + DAY)
    assert refused(run, DUE + DAY + SCHEDULING_SLACK + A_MOMENT, max_lateness=None)


def test_last_run_of_a_schedule_is_no_catch_up_but_may_be_late() -> None:
    run = RunInfo("scheduled", DUE, started=DUE + DAY, may_catch_up=True, find_next_due=lambda: NEVER)
    assert not refused(run, DUE + DAY)
    assert refused(run, DUE + DAY + A_MOMENT)


def test_cleared_run_is_no_catch_up_but_may_be_late() -> None:
    run = RunInfo("scheduled", DUE, started=DUE + 9 * DAY, may_catch_up=True, cleared=True)
    assert not refused(run, DUE + DAY)
    assert refused(run, DUE + DAY + A_MOMENT)


def test_allowing_backfills_does_not_let_other_late_runs_send() -> None:
    assert refused(RunInfo("scheduled", run_after=DUE), DUE + 2 * DAY, allow_backfill=True)


def test_error_names_the_option_that_lets_the_run_send() -> None:
    with pytest.raises(RunNotAllowedError, match=r"Nothing was sent.*allow_backfill"):
        check_run_may_send(RunInfo("backfill", DUE), DUE, allow_backfill=False, max_lateness=None)
    with pytest.raises(RunNotAllowedError, match=r"2026-03-01T08:00.*max_lateness.*Nothing was sent"):
        check_run_may_send(RunInfo("manual", DUE), DUE + 2 * DAY, allow_backfill=False, max_lateness=DAY)
