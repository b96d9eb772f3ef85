"""``[cpaas] journal = database``: the journal of a task survives a clear that drops the task state."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from airflow.models.taskinstance import TaskInstance
from airflow.sdk import task
from airflow.utils.session import create_session
from sqlalchemy import select

from cpaas_provider.hooks.cpaas import CpaasHook
from cpaas_provider.tasks.database import journal as task_journal
from tests.airflow.harness.campaigns import (
    around_requests,
    clear_faults,
    count_messages,
    counts,
    digits,
    limit_batches,
    rows,
    sms,
)
from tests.airflow.harness.command_line import CommandLine
from tests.airflow.harness.kinds import KINDS, OTP, RECIPIENT, SMS, FailsAfterSend, Kind
from tests.airflow.harness.late_writes import LateWrites
from tests.airflow.harness.task_runner import TaskRunner, fault, forget_campaign_database, phone
from tests.airflow.harness.tries import Run, new_dag

DATABASE = "AIRFLOW__CPAAS__DATABASE"
JOURNAL = "AIRFLOW__CPAAS__JOURNAL"


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of a database of each test's own, in which tasks keep their journals."""
    forget_campaign_database()
    monkeypatch.setenv(DATABASE, f"sqlite:///{tmp_path}/cpaas.db")
    monkeypatch.setenv(JOURNAL, "database")
    yield tmp_path / "cpaas.db"
    forget_campaign_database()


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_clear_that_drops_the_state_returns_the_same_result_and_sends_nothing(
    task_runner: TaskRunner, kind: Kind
) -> None:
    run = kind.run(task_runner)
    first = run.run_try()
    again = run.clear(drop_state=True).run_try()
    assert (again.state, again.result) == ("success", first.result)
    assert (kind.requests(task_runner), len(kind.inbox_items(task_runner))) == (1, 1)


def test_campaign_cleared_without_its_state_sends_only_to_remaining_recipients(task_runner: TaskRunner) -> None:
    limit_batches(task_runner)
    task_runner.sandbox.control(*fault("send_sms", "unauthorized", after=2))
    run = sms(task_runner, rows(5))
    assert run.run_try().state == "failed"
    clear_faults(task_runner)
    ended = run.clear(drop_state=True).run_try()
    assert ended.state == "success", ended.error
    assert (counts(ended.result), count_messages(task_runner)) == ({"sent": 5}, Counter(digits(5)))


def test_unknown_request_stays_unknown_after_a_clear_that_drops_the_state(task_runner: TaskRunner) -> None:
    task_runner.sandbox.control(*fault("send_sms", "cut_after", times=1))
    run = SMS.run(task_runner, unknown_timeout=0)
    first = run.run_try()
    again = run.clear(drop_state=True).run_try()
    assert (first.state, again.state, again.references) == ("failed", "failed", first.references)
    assert SMS.requests(task_runner) == 1


@pytest.mark.parametrize("kind", [SMS, OTP], ids=["sms", "otp"])
def test_recreated_run_inherits_nothing(task_runner: TaskRunner, kind: Kind) -> None:
    run = kind.run(task_runner)
    run.run_try()
    first = set(run.journal())
    assert run.recreate().run_try().state == "success"
    assert not first & set(run.journal())
    assert kind.requests(task_runner) == 2
    assert run.clear(drop_state=True).run_try().state == "success"
    assert kind.requests(task_runner) == 2


def test_clear_that_drops_the_state_continues_the_journal_of_a_recreated_run_whose_clock_is_behind(
    task_runner: TaskRunner,
) -> None:
    run = sms(task_runner, rows(1))
    assert run.run_try().state == "success"
    turn_back_id(run.recreate().change(source=rows(3)), milliseconds=600_000)
    assert run.run_try().state == "success"
    assert run.clear(drop_state=True).run_try().state == "success"
    assert count_messages(task_runner) == Counter(digits(3) + digits(1))


def test_resend_on_clear_resends_once_when_the_clear_drops_the_state(task_runner: TaskRunner) -> None:
    run = SMS.run(task_runner, resend_on_clear=True)
    run.run_try()
    assert run.clear(drop_state=True).run_try().state == "success"
    assert SMS.requests(task_runner) == 2


class TestOtherDatabase:
    def test_retry_with_another_database_sends_nothing_and_names_the_cause(
        self, task_runner: TaskRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = SMS.run(task_runner)
        run.run_try()
        monkeypatch.setenv(DATABASE, f"sqlite:///{tmp_path}/other.db")
        ended = run.clear().run_try()
        assert (ended.state, SMS.requests(task_runner)) == ("failed", 1)
        assert "Another database stores" in ended.error

    def test_retry_with_an_older_copy_sends_nothing(self, task_runner: TaskRunner, file: Path, tmp_path: Path) -> None:
        limit_batches(task_runner)
        task_runner.sandbox.control(*fault("send_sms", "unauthorized", after=1))
        run = sms(task_runner, rows(3))
        run.run_try()
        copy_database(file, tmp_path / "copy")
        clear_faults(task_runner)
        task_runner.sandbox.control(*fault("send_sms", "unauthorized", after=1))
        run.clear().run_try()
        sent = count_messages(task_runner)
        copy_database(tmp_path / "copy", file)
        clear_faults(task_runner)
        ended = run.clear().run_try()
        assert (ended.state, count_messages(task_runner)) == ("failed", sent)
        assert "restored from an older copy" in ended.error
        assert "airflow cpaas journal forget" in ended.error

    def test_task_with_a_forgotten_journal_counts_all_recipients_as_unknown(
        self,
        task_runner: TaskRunner,
        file: Path,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        run = SMS.run(task_runner, unknown_timeout=0)
        run.run_try()
        command = CommandLine(monkeypatch, capsys, "cpaas", "journal")
        said = command("forget", run.dag.dag_id, run.run_id, *run.dag.task_ids, "--yes")
        assert (said.status, "all earlier requests is unknown" in said.out) == (0, True), said.err
        ended = run.clear().run_try()
        assert (ended.state, ended.report["unknown_recipients"], SMS.requests(task_runner)) == ("failed", 1, 1)

    def test_journal_of_a_task_that_is_up_for_retry_is_not_forgotten(
        self, task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        run = SMS.run(task_runner, post_execute=FailsAfterSend(1))
        assert run.run_try().state == "up_for_retry"
        command = CommandLine(monkeypatch, capsys, "cpaas", "journal")
        said = command("forget", run.dag.dag_id, run.run_id, *run.dag.task_ids, "--yes")
        assert (said.status, "up for retry" in said.err) == (1, True), said.out
        assert run.run_try().state == "success"
        assert SMS.requests(task_runner) == 1


class TestChangedSetting:
    def test_forgotten_journal_counts_as_lost_although_an_earlier_try_recorded_that_it_sent_nothing(
        self, task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv(JOURNAL, "task_state")
        run = SMS.run(task_runner, recipients="nonsense", unknown_timeout=0)
        assert run.run_try().state == "failed"
        monkeypatch.setenv(JOURNAL, "database")
        run.change(recipients=phone(RECIPIENT), resend_on_clear=True)
        assert run.clear().run_try().state == "success"
        command = CommandLine(monkeypatch, capsys, "cpaas", "journal")
        assert command("forget", run.dag.dag_id, run.run_id, *run.dag.task_ids, "--yes").status == 0
        monkeypatch.setenv(JOURNAL, "task_state")
        ended = run.change(resend_on_clear=False).clear().run_try()
        assert (ended.state, SMS.requests(task_runner)) == ("failed", 1)

    def test_journal_begun_in_the_task_state_continues_there(
        self, task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(JOURNAL, "task_state")
        run = SMS.run(task_runner)
        first = run.run_try()
        monkeypatch.setenv(JOURNAL, "database")
        assert run.clear().run_try().result == first.result
        assert SMS.requests(task_runner) == 1

    def test_journal_begun_in_the_database_is_not_replaced_by_one_in_the_task_state(
        self, task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = SMS.run(task_runner)
        run.run_try()
        monkeypatch.setenv(JOURNAL, "task_state")
        ended = run.clear().run_try()
        assert (ended.state, SMS.requests(task_runner)) == ("up_for_retry", 1)
        assert "set [cpaas] journal to database again" in ended.error

    def test_unknown_setting_is_refused(self, task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(JOURNAL, "databse")
        ended = SMS.run(task_runner).run_try()
        assert (ended.state, SMS.requests(task_runner)) == ("failed", 0)
        assert "[cpaas] journal must be task_state or database" in ended.error


def test_default_file_is_refused_where_workers_do_not_share_it(
    task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(DATABASE)
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "CeleryExecutor")
    ended = SMS.run(task_runner).run_try()
    assert (ended.state, SMS.requests(task_runner)) == ("failed", 0)
    assert "each with a database of its own" in ended.error


def test_try_that_a_newer_one_replaced_starts_no_further_request(
    task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_batches(task_runner)
    run = sms(task_runner, rows(6), max_pending_requests=1)
    taken_over: list[int] = []

    async def take_over(request: Callable[[], Awaitable[Any]]) -> Any:
        if len(count_messages(task_runner)) == 2 and not taken_over:
            taken_over.append(1)
            open_as_newer_try(run)
        return await request()

    around_requests(monkeypatch, take_over)
    run.run_try()
    assert taken_over
    assert sum(count_messages(task_runner).values()) <= 3


def test_late_marker_of_an_earlier_try_does_not_replace_the_journal_of_a_later_one(
    task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_batches(task_runner)
    run = sms(task_runner, rows(3), max_pending_requests=1, unknown_timeout=0, on_unknown="skip")
    late = LateWrites(monkeypatch)
    assert (run.run_try().state, count_messages(task_runner)) == ("up_for_retry", Counter())
    late.are_answered = True
    assert run.run_try().state == "success"
    late.arrive(run)
    assert run.clear().run_try().state == "success"
    assert count_messages(task_runner) == Counter(digits(3))


def test_retry_continues_where_the_clock_that_made_its_id_is_behind(task_runner: TaskRunner) -> None:
    limit_batches(task_runner)
    task_runner.sandbox.control(*fault("send_sms", "unauthorized", after=2))
    run = sms(task_runner, rows(4))
    assert run.run_try().state == "failed"
    clear_faults(task_runner)
    turn_back_id(run.clear(), milliseconds=60_000)
    ended = run.run_try()
    assert (ended.state, count_messages(task_runner)) == ("success", Counter(digits(4))), ended.error


class TestCommands:
    @pytest.fixture
    def journal(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
        return CommandLine(monkeypatch, capsys, "cpaas", "journal")

    @pytest.mark.parametrize("drop_state", [False, True], ids=["kept", "dropped"])
    def test_unknown_request_is_listed_shown_and_resolved(
        self, task_runner: TaskRunner, journal: CommandLine, drop_state: bool
    ) -> None:
        task_runner.sandbox.control(*fault("send_sms", "cut_after", times=1))
        run = SMS.run(task_runner, unknown_timeout=0)
        (reference,) = run.run_try().references
        if drop_state:
            run.drop_state()
        ids = [run.dag.dag_id, run.run_id, *run.dag.task_ids]
        assert reference in journal("list", "--output", "json").out
        shown = journal("show", *ids)
        assert (reference in shown.out, "stored in the database" in shown.out) == (True, True), shown.err
        said = journal("resolve", "--sent", *ids, "--yes")
        assert said.status == 0, said.err
        assert "From Airflow 3.4 on" not in said.out
        ended = run.clear(drop_state=True).run_try()
        assert (ended.state, SMS.requests(task_runner)) == ("success", 1)

    @pytest.mark.parametrize("journal_is", ["database", "task_state"])
    def test_journal_in_another_database_is_no_empty_one(
        self,
        task_runner: TaskRunner,
        journal: CommandLine,
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
        journal_is: str,
    ) -> None:
        SMS.lose(task_runner, "cut_after", times=1)
        run = SMS.run(task_runner, unknown_timeout=0)
        assert run.run_try().state == "failed"
        place = (run.dag.dag_id, run.run_id, *run.dag.task_ids)
        monkeypatch.setenv(DATABASE, f"sqlite:///{tmp_path}/other.db")
        monkeypatch.setenv(JOURNAL, journal_is)
        listed = journal("list", "--dag-id", run.dag.dag_id)
        assert (listed.status, "No unresolved requests" in listed.out) == (1, False)
        for said in (listed, journal("show", *place), journal("resolve", "--sent", *place, "--yes")):
            assert said.status == 1
            assert "is not in the database sqlite:///" in said.err

    def test_listing_omits_runs_that_were_deleted(self, task_runner: TaskRunner, journal: CommandLine) -> None:
        task_runner.sandbox.control(*fault("send_sms", "cut_after", times=1))
        run = SMS.run(task_runner, unknown_timeout=0)
        (reference,) = run.run_try().references
        run.recreate().run_try()
        assert reference not in journal("list", "--state", "all", "--each", "--output", "json").out

    def test_recreated_run_that_has_not_begun_does_not_show_the_journal_of_the_deleted_run(
        self, task_runner: TaskRunner, journal: CommandLine
    ) -> None:
        task_runner.sandbox.control(*fault("send_sms", "cut_after", times=1))
        run = SMS.run(task_runner, unknown_timeout=0)
        (reference,) = run.run_try().references
        assert run.clear().run_try().state == "failed"
        run.recreate()
        assert reference not in journal("list", "--output", "json").out
        shown = journal("show", run.dag.dag_id, run.run_id, *run.dag.task_ids)
        assert (shown.status, reference in shown.out, "has no journal" in shown.err) == (1, False, True)


@pytest.mark.parametrize("inner_sends", [False, True], ids=["unused", "used"])
def test_client_sends_after_another_client_of_the_task_is_closed(task_runner: TaskRunner, inner_sends: bool) -> None:
    @task(task_id="send")
    def send() -> None:
        with CpaasHook().get_idempotent_client() as outer:
            outer.send_sms(phone("first"), "Hello")
            with CpaasHook().get_idempotent_client() as inner:
                if inner_sends:
                    inner.send_sms(phone("second"), "Hello")
            outer.send_sms(phone("third"), "Hello")

    with new_dag() as dag:
        send()
    run = Run(task_runner, dag)
    ended = run.run_try()
    assert (ended.state, SMS.requests(task_runner)) == ("success", 3 if inner_sends else 2), ended.error
    assert run.clear(drop_state=True).run_try().state == "success"
    assert SMS.requests(task_runner) == (3 if inner_sends else 2)


def test_replaced_try_stops_although_the_new_one_has_not_begun(
    task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_journal, "MARK_INTERVAL", 0.0)
    limit_batches(task_runner)
    run = sms(task_runner, rows(6), max_pending_requests=1, unknown_timeout=0, on_unknown="skip")
    replaced: list[int] = []

    async def replace(request: Callable[[], Awaitable[Any]]) -> Any:
        if len(count_messages(task_runner)) == 2 and not replaced:
            replaced.append(1)
            run.clear()
        return await request()

    around_requests(monkeypatch, replace)
    run.run_try()
    assert (len(replaced), sum(count_messages(task_runner).values()) <= 3) == (1, True)
    assert run.run_try().state == "success"
    assert max(count_messages(task_runner).values()) == 1
    assert len(count_messages(task_runner)) >= 5


def copy_database(source: Path, target: Path) -> None:
    """Copy a SQLite file with its log."""
    for suffix in ("", "-wal", "-shm"):
        one, other = Path(f"{source}{suffix}"), Path(f"{target}{suffix}")
        other.unlink(missing_ok=True)
        if one.exists():
            shutil.copyfile(one, other)


def open_as_newer_try(run: Run) -> None:
    """Open the journal of a run's task as the next try does."""
    from cpaas_provider.database.database import open_database
    from cpaas_provider.database.task_journals import TaskInstanceName, TaskJournal, TaskTry, newest_journal

    name = TaskInstanceName(run.dag.dag_id, run.run_id, *run.dag.task_ids, -1)
    with open_database() as database:
        newest = TaskTry(name, "ffffffff-ffff-7fff-bfff-ffffffffffff", 2)
        journal = newest_journal(database, name)
        assert journal is not None
        assert TaskJournal(database, newest, journal.name).open()


def turn_back_id(run: Run, *, milliseconds: int) -> None:
    """Give the task instance the id that a scheduler makes whose clock is behind."""
    with create_session() as session:
        instance = session.scalars(select(TaskInstance).where(TaskInstance.run_id == run.run_id)).one()
        # The first 48 bits of the id are the time in milliseconds.
        instance.id = UUID(int=UUID(str(instance.id)).int - (milliseconds << 80))
