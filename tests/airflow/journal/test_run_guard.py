"""Backfills, catch-up runs and stale runs do not send."""

from __future__ import annotations

import datetime as dt
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import (
    DAG,
    Asset,
    AssetOrTimeSchedule,
    CronDataIntervalTimetable,
    CronPartitionTimetable,
    CronTriggerTimetable,
    DeltaDataIntervalTimetable,
    DeltaTriggerTimetable,
    MultipleCronTriggerTimetable,
    timezone,
)
from airflow.sdk.api.datamodels._generated import DagRun
from airflow.timetables.base import DagRunInfo, Timetable
from airflow.timetables.events import EventsTimetable
from airflow.utils.types import DagRunType

from cpaas_provider.sending.run_guard import NEVER, RunInfo
from cpaas_provider.tasks.airflow.context import find_next_due, run_info
from tests.airflow.harness.kinds import ROW, SENDS, SMS, FailsAfterSend, Kind
from tests.airflow.harness.task_runner import TaskRunner, digits, phone
from tests.airflow.harness.tries import Run, scheduled_at

EACH = pytest.mark.parametrize("kind", SENDS.values(), ids=SENDS)
DAY = dt.timedelta(days=1)
DAILY: dict[str, Any] = {"schedule": DAY, "start_date": timezone.datetime(2026, 1, 1)}
CATCHUP: dict[str, Any] = {**DAILY, "catchup": True}
BACKFILL: dict[str, Any] = {"run_type": DagRunType.BACKFILL_JOB}


def ago(days: float) -> dt.datetime:
    return timezone.utcnow() - dt.timedelta(days=days)


def caught_up(days: float) -> dict[str, Any]:
    """A run of the schedule that was due so many days ago and begins only now."""
    return scheduled_at(ago(days), started=timezone.utcnow())


class TestBackfills:
    @EACH
    def test_backfill_is_skipped_and_sends_nothing(self, task_runner: TaskRunner, kind: Kind) -> None:
        run = kind.run(task_runner, dag=DAILY, run={**BACKFILL, "run_after": timezone.utcnow()})
        skipped = run.run_try()
        assert (skipped.state, kind.requests(task_runner), run.journal()) == ("skipped", 0, {})
        assert "This run is a backfill. Nothing was sent. `allow_backfill=True`" in skipped.log

    def test_allow_backfill_sends_in_a_late_backfill(self, task_runner: TaskRunner) -> None:
        run = SMS.run(task_runner, dag=DAILY, run={**BACKFILL, "run_after": ago(90)}, allow_backfill=True)
        assert (run.run_try().state, len(SMS.inbox_items(task_runner))) == ("success", 1)

    def test_contact_row_is_created_in_a_backfill(self, task_runner: TaskRunner) -> None:
        run = ROW.run(task_runner, dag=DAILY, run={**BACKFILL, "run_after": ago(90)})
        assert (run.run_try().state, len(ROW.inbox_items(task_runner))) == ("success", 1)


class TestCatchUpRuns:
    def test_catch_up_run_is_skipped_and_sends_nothing(self, task_runner: TaskRunner) -> None:
        run = SMS.run(task_runner, dag=CATCHUP, run=caught_up(2), max_lateness=None)
        skipped = run.run_try()
        assert (skipped.state, SMS.requests(task_runner)) == ("skipped", 0)
        assert "This run is a catch-up run." in skipped.log
        assert run.xcom("skip_reason").startswith("This run is a catch-up run.")

    def test_skip_reason_of_a_delayed_run_names_both_due_times(self, task_runner: TaskRunner) -> None:
        hourly = {**CATCHUP, "schedule": dt.timedelta(hours=1), "max_active_runs": 1}
        due = ago(0.1)
        run = SMS.run(task_runner, dag=hourly, run=scheduled_at(due, started=timezone.utcnow()))
        assert (run.run_try().state, SMS.requests(task_runner)) == ("skipped", 0)
        reason = run.xcom("skip_reason")
        assert f"It was due at {due.isoformat(timespec='minutes')}" in reason
        assert f"the next run was due at {(due + dt.timedelta(hours=1)).isoformat(timespec='minutes')}" in reason
        assert "wait for an earlier one" in reason
        assert "allow_backfill=True" in reason

    def test_allow_backfill_sends_in_a_catch_up_run(self, task_runner: TaskRunner) -> None:
        run = SMS.run(task_runner, dag=CATCHUP, run=caught_up(9), allow_backfill=True)
        assert run.run_try().state == "success"

    def test_latest_run_that_begins_a_little_late_is_no_catch_up_run(self, task_runner: TaskRunner) -> None:
        assert SMS.run(task_runner, dag=CATCHUP, run=caught_up(0.9)).run_try().state == "success"

    def test_run_that_began_in_time_may_take_its_time(self, task_runner: TaskRunner) -> None:
        run = SMS.run(task_runner, dag=CATCHUP, run=scheduled_at(ago(3)), max_lateness=None)
        assert run.run_try().state == "success"

    def test_run_cleared_long_after_is_stale_and_no_catch_up_run(self, task_runner: TaskRunner) -> None:
        run = SMS.run(task_runner, dag=CATCHUP, run=scheduled_at(ago(3)), max_lateness=None, retries=0)
        task_runner.connect("cpaas_default", password="sk_test_of_nobody")
        assert run.run_try().state == "failed"
        task_runner.connect("cpaas_default")
        assert run.clear().run_try().state == "success"
        late = SMS.run(task_runner, dag=CATCHUP, run=scheduled_at(ago(3)))
        assert late.clear().run_try().state == "skipped"

    def test_dag_without_catchup_has_no_catch_up_runs(self, task_runner: TaskRunner) -> None:
        assert SMS.run(task_runner, dag=DAILY, run=caught_up(2), max_lateness=None).run_try().state == "success"


class TestLateRuns:
    def test_stale_run_is_skipped_and_sends_nothing(self, task_runner: TaskRunner) -> None:
        run = SMS.run(task_runner, run={"run_after": ago(1.1)})
        skipped = run.run_try()
        assert (skipped.state, SMS.requests(task_runner), run.journal()) == ("skipped", 0, {})
        assert "longer ago than max_lateness (1 day, 0:00:00) allows" in skipped.log

    @pytest.mark.parametrize(
        ("days", "max_lateness", "state"),
        [(3, dt.timedelta(days=4), "success"), (300, None, "success"), (0.1, 3600, "skipped")],
    )
    def test_max_lateness_decides_whether_a_run_is_stale(
        self, task_runner: TaskRunner, days: float, max_lateness: Any, state: str
    ) -> None:
        assert SMS.run(task_runner, run={"run_after": ago(days)}, max_lateness=max_lateness).run_try().state == state

    def test_late_clear_of_an_accepted_request_returns_its_result(self, task_runner: TaskRunner) -> None:
        run = SMS.run(task_runner)
        first = run.run_try()
        again = run.age(days=30).clear().run_try()
        assert (again.state, again.result, SMS.requests(task_runner)) == ("success", first.result, 1)

    def test_late_retry_after_an_accepted_request_succeeds(self, task_runner: TaskRunner) -> None:
        run = SMS.run(task_runner, post_execute=FailsAfterSend(1))
        run.run_try()
        assert run.age(days=30).run_try().state == "success"

    def test_request_not_sent_is_skipped_in_a_late_retry(self, task_runner: TaskRunner) -> None:
        run = SMS.run(task_runner, cpaas_conn_id="cpaas_{{ 'refused' if ti.try_number == 1 else 'default' }}")
        assert run.run_try().state == "up_for_retry"
        assert (run.age(days=30).run_try().state, SMS.requests(task_runner)) == ("skipped", 0)

    def test_late_retry_of_a_partly_sent_task_fails(self, task_runner: TaskRunner) -> None:
        run = SMS.run(task_runner, recipients=[phone("one")], post_execute=FailsAfterSend(1))
        run.run_try()
        failed = run.change(recipients=[phone("one"), phone("two")]).age(days=30).run_try()
        assert (failed.state, failed.number, task_runner.inbox_items("sms", digits("two"))) == ("failed", 2, [])
        assert "max_lateness" in failed.error
        assert "An earlier try sent a request, or may have" in failed.error
        assert (failed.report["recipients"], failed.report["unknown_recipients"]) == (1, 0)

    @pytest.mark.parametrize(("on_unknown", "state"), [("fail", "failed"), ("resend", "failed"), ("skip", "success")])
    def test_unknown_request_is_not_resent_in_a_late_clear(
        self, task_runner: TaskRunner, on_unknown: str, state: str
    ) -> None:
        SMS.lose(task_runner, "cut_after", times=1)
        run = SMS.run(task_runner)
        run.run_try()
        late = run.change(on_unknown=on_unknown).age(days=30).clear().run_try()
        assert (late.state, SMS.requests(task_runner)) == (state, 1)
        assert (late.report or late.result)["unknown_recipients"] == 1


def scheduled_run(due: dt.datetime, interval: tuple[str, str] | None = None, **facts: Any) -> Any:
    """Return a run as a worker gets it."""
    start, end = (timezone.parse(moment) for moment in interval) if interval else (None, None)
    given: dict[str, Any] = {
        "run_type": DagRunType.SCHEDULED,
        "start_date": due,
        "data_interval_start": start,
        "data_interval_end": end,
        "partition_key": None,
        "partition_date": None,
        "consumed_asset_events": [],
    }
    return DagRun.model_construct(run_after=due, **{**given, **facts})


def dag_of(schedule: Any, **options: Any) -> DAG:
    return DAG(
        "of_schedule", **{"schedule": schedule, "start_date": BEGIN, "catchup": True, "max_active_runs": 1, **options}
    )


def info_of(dag: DAG, run: Any) -> RunInfo:
    return run_info({"dag_run": run, "dag": dag})  # type: ignore[typeddict-item]


BEGIN = timezone.datetime(2026, 1, 1)
HOUR = dt.timedelta(hours=1)
MONDAY, TUESDAY = timezone.parse("2026-03-02T09:00Z"), timezone.parse("2026-03-03T09:00Z")
ORDERS = Asset("orders")

# A schedule, when a run of it was due, its data interval, and when the next was due.
SCHEDULES: dict[str, tuple[Any, str, tuple[str, str] | None, str | None]] = {
    "cron": ("0 9 * * *", "2026-03-02T09:00Z", None, "2026-03-03T09:00Z"),
    "cron_of_points": (
        CronTriggerTimetable("0 9 * * *", timezone="UTC"), "2026-03-02T09:00Z", ("2026-03-02T09:00Z",) * 2,
        "2026-03-03T09:00Z",
    ),
    "preset": ("@hourly", "2026-03-02T09:00Z", None, "2026-03-02T10:00Z"),
    "span": (dt.timedelta(hours=2), "2026-03-02T09:00Z", None, "2026-03-02T11:00Z"),
    "span_of_points": (DeltaTriggerTimetable(HOUR), "2026-03-02T09:00Z", None, "2026-03-02T10:00Z"),
    "span_with_interval": (
        DeltaDataIntervalTimetable(HOUR), "2026-03-02T10:00Z", ("2026-03-02T09:00Z", "2026-03-02T10:00Z"),
        "2026-03-02T11:00Z",
    ),
    "named_zone": (
        CronTriggerTimetable("0 9 * * *", timezone="Africa/Lagos"), "2026-03-02T08:00Z", None, "2026-03-03T08:00Z",
    ),
    "clocks_go_forward": (
        CronTriggerTimetable("0 9 * * *", timezone="Europe/Berlin"), "2026-03-28T08:00Z", None, "2026-03-29T07:00Z",
    ),
    "several": (
        MultipleCronTriggerTimetable("0 9 * * *", "0 17 * * *", timezone="UTC"), "2026-03-02T09:00Z", None,
        "2026-03-02T17:00Z",
    ),
    "interval_shorter_than_the_schedule": (
        CronTriggerTimetable("0 9 * * 1", timezone="UTC", interval=HOUR), "2026-03-02T09:00Z",
        ("2026-03-02T08:00Z", "2026-03-02T09:00Z"), "2026-03-09T09:00Z",
    ),
    "interval_over_a_weekend": (
        CronDataIntervalTimetable("0 9 * * 1-5", timezone="UTC"), "2026-03-02T09:00Z",
        ("2026-02-27T09:00Z", "2026-03-02T09:00Z"), "2026-03-03T09:00Z",
    ),
    "once": ("@once", "2026-03-02T09:00Z", ("2026-03-02T09:00Z",) * 2, None),
    "events": (
        EventsTimetable([MONDAY, TUESDAY]), "2026-03-02T09:00Z", ("2026-03-02T09:00Z",) * 2, "2026-03-03T09:00Z",
    ),
    "last_event": (EventsTimetable([MONDAY, TUESDAY]), "2026-03-03T09:00Z", ("2026-03-03T09:00Z",) * 2, None),
    "partition_of_the_day_before": (
        CronPartitionTimetable("0 9 * * *", timezone="UTC", run_offset=-1), "2026-03-02T09:00Z", None,
        "2026-03-03T09:00Z",
    ),
}  # fmt: skip


def by_assets_or(schedule: Any) -> AssetOrTimeSchedule:
    """Return a schedule whose runs are made by the given one, or by an asset."""
    return AssetOrTimeSchedule(assets=[ORDERS], timetable=dag_of(schedule).timetable)


class EveryHour(Timetable):
    """A timetable of another author, without data intervals, that makes each missed run."""

    def next_dagrun_info_v2(self, *, last_dagrun_info: Any, restriction: Any) -> DagRunInfo | None:
        due = restriction.earliest if last_dagrun_info is None else last_dagrun_info.run_after + HOUR
        return DagRunInfo(run_after=due, data_interval=None)


class OneRun(Timetable):
    """A timetable that answers for the first run only."""

    def next_dagrun_info(self, *, last_automated_data_interval: Any, restriction: Any) -> DagRunInfo | None:
        return DagRunInfo(run_after=restriction.earliest, data_interval=None)


class Broken(Timetable):
    """A timetable that cannot answer."""

    def next_dagrun_info_v2(self, *, last_dagrun_info: Any, restriction: Any) -> DagRunInfo | None:
        raise KeyError("holidays")


class TestRunInfo:
    @pytest.mark.parametrize("wrap", [lambda schedule: schedule, by_assets_or], ids=["plain", "assets_or_time"])
    @pytest.mark.parametrize(("schedule", "run_after", "interval", "following"), SCHEDULES.values(), ids=SCHEDULES)
    def test_next_due_time_follows_the_schedule(
        self, schedule: Any, run_after: str, interval: Any, following: str | None, wrap: Any
    ) -> None:
        due = find_next_due(dag_of(wrap(schedule)), scheduled_run(timezone.parse(run_after), interval))
        assert due == (timezone.parse(following) if following else NEVER)

    @pytest.mark.parametrize("wrap", [lambda schedule: schedule, by_assets_or], ids=["plain", "assets_or_time"])
    def test_continuous_run_is_never_caught_up(self, wrap: Any) -> None:
        interval = ("2026-03-02T08:59Z", "2026-03-02T09:00Z")
        run = scheduled_run(MONDAY, interval, start_date=timezone.utcnow())
        assert info_of(dag_of(wrap("@continuous")), run).describe_catch_up(timezone.utcnow()) == ""

    def test_run_after_the_end_of_the_schedule_is_not_due(self) -> None:
        dag = dag_of("0 9 * * *", end_date=timezone.parse("2026-03-02T12:00Z"))
        assert find_next_due(dag, scheduled_run(MONDAY, ("2026-03-01T09:00Z", "2026-03-02T09:00Z"))) == NEVER

    @pytest.mark.parametrize("catchup", [True, False])
    @pytest.mark.parametrize(
        "schedule",
        [EveryHour(), AssetOrTimeSchedule(assets=[ORDERS], timetable=EveryHour())],
        ids=["plain", "assets_or_time"],
    )
    def test_timetable_of_another_author_is_asked_too(self, schedule: Any, catchup: bool) -> None:
        dag = dag_of(schedule, catchup=catchup)
        late = scheduled_run(MONDAY, start_date=MONDAY + 6 * HOUR)
        assert "the next run was due at 2026-03-02T10:00" in info_of(dag, late).describe_catch_up(timezone.utcnow())
        in_time = scheduled_run(MONDAY, start_date=MONDAY + HOUR)
        assert info_of(dag, in_time).describe_catch_up(timezone.utcnow()) == ""

    @pytest.mark.parametrize("timetable", [OneRun(), Broken()], ids=["one_run", "broken"])
    def test_timetable_without_an_answer_makes_a_late_run_a_catch_up_run(self, timetable: Timetable) -> None:
        dag = dag_of(timetable)
        assert find_next_due(dag, scheduled_run(MONDAY)) is None
        late = info_of(dag, scheduled_run(MONDAY, start_date=MONDAY + HOUR))
        assert "its timetable does not say" in late.describe_catch_up(timezone.utcnow())
        assert info_of(dag, scheduled_run(MONDAY)).describe_catch_up(timezone.utcnow()) == ""

    @pytest.mark.parametrize(
        ("started", "caught_up"),
        [
            ("2026-03-02T09:01Z", False),
            ("2026-03-03T09:04Z", False),
            ("2026-03-03T09:06Z", True),
            ("2026-09-01T00:00Z", True),
        ],
    )
    def test_run_that_begins_when_its_successor_was_due_for_a_while_catches_up(
        self, started: str, caught_up: bool
    ) -> None:
        run = scheduled_run(MONDAY, start_date=timezone.parse(started))
        assert bool(info_of(dag_of("0 9 * * *"), run).describe_catch_up(timezone.utcnow())) is caught_up

    def test_run_that_began_late_because_of_a_clear_is_no_catch_up_run(self) -> None:
        run = scheduled_run(MONDAY, start_date=timezone.parse("2026-09-01T00:00Z"), clear_number=1)
        assert info_of(dag_of("0 9 * * *"), run).describe_catch_up(timezone.utcnow()) == ""

    @pytest.mark.parametrize(
        ("run_type", "word"),
        [(DagRunType.BACKFILL_JOB, "backfill"), ("backfill", "backfill"), (DagRunType.MANUAL, "manual")],
    )
    def test_run_type_is_text_and_manual_runs_and_backfills_catch_up_nothing(self, run_type: Any, word: str) -> None:
        found = info_of(DAG("by_hand", schedule=None), scheduled_run(MONDAY, run_type=run_type, start_date=None))
        assert found.run_type == word
        assert found.describe_catch_up(timezone.utcnow()) == ""


ASSET_RUN: dict[str, Any] = {"run_type": DagRunType.ASSET_TRIGGERED, "logical_date": None}


class TestAssetOrTimeSchedules:
    def test_missed_runs_of_the_time_schedule_are_skipped(self, task_runner: TaskRunner) -> None:
        schedule = AssetOrTimeSchedule(assets=[ORDERS], timetable=CronTriggerTimetable("0 * * * *", timezone="UTC"))
        hourly = {"schedule": schedule, "start_date": BEGIN, "catchup": True}
        newest = timezone.utcnow().replace(minute=0, second=0, microsecond=0)
        missed = [newest - number * HOUR for number in (6, 5, 4, 3, 2)]
        runs = [SMS.run(task_runner, dag=hourly, run=scheduled_at(due, started=timezone.utcnow())) for due in missed]
        assert [run.run_try().state for run in runs] == ["skipped"] * len(missed)
        assert SMS.requests(task_runner) == 0

    def test_new_run_of_an_asset_sends(self, task_runner: TaskRunner) -> None:
        schedule = AssetOrTimeSchedule(assets=[ORDERS], timetable=CronTriggerTimetable("0 * * * *", timezone="UTC"))
        hourly = {"schedule": schedule, "start_date": BEGIN, "catchup": True}
        run = SMS.run(task_runner, dag=hourly, run={**ASSET_RUN, "run_after": timezone.utcnow()})
        assert (run.run_try().state, len(SMS.inbox_items(task_runner))) == ("success", 1)

    def test_run_of_an_asset_is_due_with_its_newest_event(self) -> None:
        old, new = (SimpleNamespace(timestamp=moment) for moment in (MONDAY - 9 * DAY, MONDAY))
        made = scheduled_run(MONDAY + 3 * DAY, run_type=DagRunType.ASSET_TRIGGERED, consumed_asset_events=[new, old])
        assert info_of(dag_of([ORDERS]), made).run_after == MONDAY


def test_mapped_instances_of_a_late_run_are_skipped_each(task_runner: TaskRunner) -> None:
    run = SMS.mapped(task_runner, [{"recipients": phone(one)} for one in ("m0", "m1")])
    assert isinstance(run, Run)
    run.age(days=2)
    assert [run.run_try(map_index=index).state for index in (0, 1)] == ["skipped", "skipped"]
