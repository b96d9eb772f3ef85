"""Campaigns with a key: the journal a run continues, and the effect of failed writes, new keys and other databases."""

from __future__ import annotations

import shutil
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from airflow.models.variable import Variable
from airflow.utils.session import create_session
from sqlalchemy import select

from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.database.leases import LeasedState
from cpaas_provider.sending.journal.model import CAMPAIGN_MARKER, CAMPAIGN_TRIES, JOURNAL_KEY
from cpaas_provider.tasks.airflow.store import TaskStateStore
from tests.airflow.cli import test_journal as of_single_requests
from tests.airflow.cli.test_journal import Journal
from tests.airflow.harness.campaigns import (
    around_requests,
    clear_faults,
    count_messages,
    counts,
    digits,
    limit_batches,
    reject_recipients,
    requests,
    rows,
    sms,
)
from tests.airflow.harness.task_runner import TaskRunner, fault, forget_campaign_database
from tests.airflow.harness.tries import Run

journal = of_single_requests.journal
KEY = {"idempotency_key": "spring"}


@pytest.fixture(autouse=True)
def database_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A database of each test's own."""
    use_database(monkeypatch, tmp_path / "store.db")
    return tmp_path / "store.db"


def use_database(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{file}")


def _fails_at_the_journal(work: Callable[..., None]) -> Callable[..., None]:
    """Return a write that fails where a journal is written."""

    def write(state: LeasedState, values: dict[str, Any]) -> None:
        if any(key.startswith(JOURNAL_KEY) for key in values):
            raise DatabaseError("The disk is full.")
        work(state, values)

    return write


def _fails_at_the_second_marker(work: Callable[..., None]) -> Callable[..., None]:
    """Return a write to Airflow that fails from the marker of the first intent on."""
    markers = 0

    def write(store: TaskStateStore, key: str, value: Any) -> None:
        nonlocal markers
        markers += key == CAMPAIGN_MARKER
        if markers > 1:
            raise ConnectionError("the API server is down")
        work(store, key, value)

    return write


class TestFailedWrites:
    def test_retry_after_a_first_write_that_failed_sends_to_all(
        self, task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("cpaas_provider.sending.journal.writer._FIRST_PAUSE", 0.0)
        run = sms(task_runner, rows(3), **KEY)
        with monkeypatch.context() as broken:
            broken.setattr(LeasedState, "set_all", _fails_at_the_journal(LeasedState.set_all))
            failed = run.run_try()
        assert (failed.state, requests(task_runner)) == ("up_for_retry", 0)
        assert (run.run_try().state, count_messages(task_runner)) == ("success", Counter(digits(3)))

    def test_new_run_after_a_first_write_that_failed_sends_to_all(
        self, task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("cpaas_provider.sending.journal.writer._FIRST_PAUSE", 0.0)
        run = sms(task_runner, rows(3), **KEY)
        with monkeypatch.context() as broken:
            broken.setattr(LeasedState, "set_all", _fails_at_the_journal(LeasedState.set_all))
            run.run_try()
        run.run_try()
        assert (sms(task_runner, rows(3), **KEY).run_try().state, count_messages(task_runner)) == (
            "success",
            Counter(digits(3)),
        )

    @pytest.mark.parametrize("again", ["retry", "new run"])
    def test_requests_whose_marker_could_not_be_written_are_sent(
        self, task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch, again: str
    ) -> None:
        monkeypatch.setattr("cpaas_provider.sending.journal.writer._FIRST_PAUSE", 0.0)
        run = sms(task_runner, rows(3), **KEY)
        with monkeypatch.context() as broken:
            broken.setattr(TaskStateStore, "set", _fails_at_the_second_marker(TaskStateStore.set))
            failed = run.run_try()
        assert (failed.state, requests(task_runner)) == ("up_for_retry", 0)
        next_try = run.run_try() if again == "retry" else sms(task_runner, rows(3), **KEY).run_try()
        assert (next_try.state, count_messages(task_runner)) == ("success", Counter(digits(3)))


class TestLostJournals:
    def test_cleared_task_with_a_lost_journal_fails_and_names_the_command(
        self, task_runner: TaskRunner, database_file: Path
    ) -> None:
        run = self.sent_and_restored(task_runner, database_file)
        failed = run.clear().run_try()
        assert (failed.state, requests(task_runner)) == ("failed", 1)
        assert f"airflow cpaas journal forget {run.dag.dag_id}" in failed.error

    def test_copy_with_a_part_of_the_journal_is_refused_too(self, task_runner: TaskRunner, database_file: Path) -> None:
        limit_batches(task_runner)
        task_runner.sandbox.control(*fault("send_sms", "unauthorized", after=1))
        run = sms(task_runner, rows(3), **KEY)
        assert run.run_try().report["sent"] == 1
        restore = copied(database_file)
        clear_faults(task_runner)
        assert run.clear().run_try().state == "success"
        restore()
        failed = run.clear().run_try()
        assert (failed.state, count_messages(task_runner)) == ("failed", Counter(digits(3)))
        assert f"airflow cpaas journal forget {run.dag.dag_id}" in failed.error

    def test_new_run_on_an_older_copy_is_refused_whatever_its_key(
        self, task_runner: TaskRunner, database_file: Path
    ) -> None:
        self.sent_and_restored(task_runner, database_file)
        for key in ("spring", "another"):
            failed = sms(task_runner, rows(3), idempotency_key=key).run_try()
            assert (failed.state, requests(task_runner)) == ("failed", 1)
            assert "restored from an older copy" in failed.error
            assert "airflow variables delete cpaas_campaign_tries." in failed.error

    def test_copy_that_lacks_the_end_of_a_try_is_refused_in_a_new_run(
        self, task_runner: TaskRunner, database_file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        restores: list[Callable[[], None]] = []

        async def copy_first(request: Callable[[], Awaitable[Any]]) -> Any:
            restores.append(copied(database_file))
            return await request()

        with monkeypatch.context() as patch:
            around_requests(patch, copy_first)
            sms(task_runner, rows(3), **KEY).run_try()
        restores[0]()
        assert (sms(task_runner, rows(3), **KEY).run_try().state, count_messages(task_runner)) == (
            "failed",
            Counter(digits(3)),
        )

    def test_database_that_is_not_older_continues(self, task_runner: TaskRunner, database_file: Path) -> None:
        run = sms(task_runner, rows(3), **KEY)
        first = run.run_try()
        copied(database_file)()
        again = run.clear().run_try()
        new = sms(task_runner, rows(3), **KEY).run_try()
        assert (again.result, new.result, requests(task_runner)) == (first.result, first.result, 1)

    def test_number_of_tries_is_in_one_variable(self, task_runner: TaskRunner) -> None:
        for _ in range(3):
            sms(task_runner, rows(3), **KEY).run_try()
        with create_session() as session:
            named = Variable.key.startswith(CAMPAIGN_TRIES)
            assert len(session.scalars(select(Variable.key).where(named)).all()) == 1

    def test_task_sends_missing_requests_after_the_commands(
        self, task_runner: TaskRunner, database_file: Path, journal: Journal
    ) -> None:
        run = self.sent_and_restored(task_runner, database_file)
        failed = run.clear().run_try()
        (variable,) = (word for word in failed.error.split() if word.startswith("cpaas_campaign_tries."))
        Variable.delete(variable.rstrip(";"))
        said = journal("forget", run.dag.dag_id, run.run_id, "campaign", "--yes")
        assert (said.status, "sends again to every recipient" in said.out) == (0, True)
        assert run.clear().run_try().state == "success"
        assert count_messages(task_runner) == Counter(digits(3) * 2)

    @staticmethod
    def sent_and_restored(task_runner: TaskRunner, database_file: Path) -> Run:
        """Return a run that has sent, whose database was restored from a backup that is older."""
        sms(task_runner, rows(1), idempotency_key="another", dry_run=True).run_try()
        restore = copied(database_file)
        run = sms(task_runner, rows(3), **KEY)
        run.run_try()
        restore()
        return run


def copied(database_file: Path) -> Callable[[], None]:
    """Copy the database, and return what restores the copy."""
    backup = database_file.with_name("backup.db")
    with closing(sqlite3.connect(database_file)) as source, closing(sqlite3.connect(backup)) as target:
        source.backup(target)

    def restore() -> None:
        for left in database_file.parent.glob(f"{database_file.name}*"):
            left.unlink()
        shutil.copy(backup, database_file)

    return restore


class TestConnections:
    def test_another_api_key_on_the_same_base_url_leaves_the_first_journal_alone(self, task_runner: TaskRunner) -> None:
        first = sms(task_runner, rows(3), **KEY).run_try()
        sms(task_runner, rows(3), **KEY, cpaas_conn_id="cpaas_wrong_key").run_try()
        again = sms(task_runner, rows(3), **KEY).run_try()
        assert (again.state, again.result, count_messages(task_runner)) == ("success", first.result, Counter(digits(3)))

    def test_two_connections_are_two_campaigns(self, task_runner: TaskRunner) -> None:
        task_runner.connect("cpaas_second")
        for conn_id in ("cpaas_default", "cpaas_second", "cpaas_default", "cpaas_second"):
            assert sms(task_runner, rows(3), **KEY, cpaas_conn_id=conn_id).run_try().state == "success"
        assert count_messages(task_runner) == Counter(digits(3) * 2)

    def test_connection_in_other_capitals_is_the_same_campaign(self, task_runner: TaskRunner) -> None:
        task_runner.connect("shop")
        for conn_id in ("shop", "Shop"):
            assert sms(task_runner, rows(3), **KEY, cpaas_conn_id=conn_id).run_try().state == "success"
        assert count_messages(task_runner) == Counter(digits(3))

    def test_rotated_api_key_continues_the_same_campaign(self, task_runner: TaskRunner) -> None:
        first = sms(task_runner, rows(3), **KEY).run_try()
        task_runner.connect("cpaas_default", password="sk_test_rotated")
        again = sms(task_runner, rows(3), **KEY).run_try()
        assert (again.state, again.result, requests(task_runner)) == ("success", first.result, 1)

    def test_rotated_api_key_with_resend_sends_to_no_recipient_twice(self, task_runner: TaskRunner) -> None:
        task_runner.connect("cpaas_default", callback_secret="one")
        sms(task_runner, rows(3), **KEY).run_try()
        task_runner.connect("cpaas_default")
        again = sms(task_runner, rows(3), **KEY, on_unknown="resend").run_try()
        assert (again.state, count_messages(task_runner)) == ("success", Counter(digits(3)))

    def test_connection_with_another_base_url_is_refused(self, task_runner: TaskRunner) -> None:
        sms(task_runner, rows(3), **KEY).run_try()
        task_runner.connect("cpaas_default", host="https://elsewhere.example.com")
        failed = sms(task_runner, rows(3), **KEY).run_try()
        assert (failed.state, requests(task_runner)) == ("failed", 1)
        assert "had another base URL" in failed.error


class TestDatabases:
    def test_another_database_is_refused_before_the_first_request(
        self, task_runner: TaskRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sms(task_runner, rows(3), **KEY).run_try()
        use_database(monkeypatch, tmp_path / "of_another_worker.db")
        failed = sms(task_runner, rows(3), **KEY).run_try()
        assert (failed.state, count_messages(task_runner)) == ("failed", Counter(digits(3)))
        assert "Another database" in failed.error
        assert "airflow variables delete cpaas_campaign_database." in failed.error

    def test_retry_on_a_worker_with_another_database_is_refused(
        self, task_runner: TaskRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        limit_batches(task_runner)
        task_runner.sandbox.control(*fault("send_sms", "unauthorized", after=2))
        run = sms(task_runner, rows(3), **KEY)
        run.run_try()
        clear_faults(task_runner)
        use_database(monkeypatch, tmp_path / "of_another_worker.db")
        failed = run.clear().run_try()
        assert (failed.state, sum(count_messages(task_runner).values())) == ("failed", 2)

    def test_first_database_continues_after_another_was_refused(
        self, task_runner: TaskRunner, tmp_path: Path, database_file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sms(task_runner, rows(3), **KEY).run_try()
        use_database(monkeypatch, tmp_path / "of_another_worker.db")
        sms(task_runner, rows(3), **KEY).run_try()
        use_database(monkeypatch, database_file)
        assert sms(task_runner, rows(4), **KEY).run_try().state == "success"
        assert count_messages(task_runner) == Counter(digits(4))

    def test_another_database_is_used_after_the_first_is_forgotten(
        self, task_runner: TaskRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sms(task_runner, rows(3), **KEY).run_try()
        use_database(monkeypatch, tmp_path / "moved.db")
        forget_campaign_database()
        assert sms(task_runner, rows(3, 10), **KEY).run_try().state == "success"

    def test_campaign_without_key_and_suppression_list_sends_with_another_database(
        self, task_runner: TaskRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sms(task_runner, rows(3), **KEY).run_try()
        use_database(monkeypatch, tmp_path / "of_another_worker.db")
        assert sms(task_runner, rows(3, 10), use_suppression_list=False).run_try().state == "success"


class TestRejectedRecipients:
    def test_new_run_tries_rejected_recipients_again(self, task_runner: TaskRunner) -> None:
        limit_batches(task_runner)
        task_runner.sandbox.control(*fault("send_sms", "error_under_200", times=1, body_status=422))
        first = sms(task_runner, rows(3), **KEY).run_try()
        assert (first.state, counts(first.report)) == ("failed", {"sent": 2, "rejected": 1})
        again = sms(task_runner, rows(3), **KEY).run_try()
        assert (again.state, count_messages(task_runner)) == ("success", Counter(digits(3)))

    def test_rejected_recipient_is_requested_once_per_run(self, task_runner: TaskRunner) -> None:
        reject_recipients(task_runner, digits(1))
        asked = []
        for _ in range(3):
            before = requests(task_runner)
            assert sms(task_runner, rows(1), **KEY).run_try().state == "failed"
            asked.append(requests(task_runner) - before)
        assert asked == [1, 1, 1]

    def test_retry_in_the_same_run_does_not_try_rejected_recipients_again(self, task_runner: TaskRunner) -> None:
        limit_batches(task_runner)
        reject_recipients(task_runner, digits(1))
        task_runner.sandbox.control(*fault("send_sms", "rate_limit", after=1, times=5, retry_after=0))
        run = sms(task_runner, rows(3), **KEY)
        assert run.run_try().state == "up_for_retry"
        before = requests(task_runner)
        assert run.run_try().report["rejected"] == 1
        assert requests(task_runner) - before == 2
