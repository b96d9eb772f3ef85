"""Campaigns with a key: which campaign a run goes on with, and what a failed write, a key or a database changes."""

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
from cpaas_provider.operators._runtime.state.store import TaskStateStore
from cpaas_provider.sending.journal.model import CAMPAIGN_MARKER, CAMPAIGN_TRIES, JOURNAL_KEY
from tests.airflow.cli import test_journal as of_single_requests
from tests.airflow.cli.test_journal import Journal
from tests.airflow.harness.campaigns import (
    accept_all,
    around_requests,
    counts,
    digits,
    reached,
    refuse,
    requests,
    rows,
    small_packs,
    sms,
)
from tests.airflow.harness.stage import Stage, fault, forget_campaign_database
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
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("cpaas_provider.sending.journal.writer._FIRST_PAUSE", 0.0)
        run = sms(stage, rows(3), **KEY)
        with monkeypatch.context() as broken:
            broken.setattr(LeasedState, "set_all", _fails_at_the_journal(LeasedState.set_all))
            failed = run.once()
        assert (failed.state, requests(stage)) == ("up_for_retry", 0)
        assert (run.once().state, reached(stage)) == ("success", Counter(digits(3)))

    def test_new_run_after_a_first_write_that_failed_sends_to_all(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("cpaas_provider.sending.journal.writer._FIRST_PAUSE", 0.0)
        run = sms(stage, rows(3), **KEY)
        with monkeypatch.context() as broken:
            broken.setattr(LeasedState, "set_all", _fails_at_the_journal(LeasedState.set_all))
            run.once()
        run.once()
        assert (sms(stage, rows(3), **KEY).once().state, reached(stage)) == ("success", Counter(digits(3)))

    @pytest.mark.parametrize("again", ["retry", "new run"])
    def test_requests_whose_marker_could_not_be_written_are_sent(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch, again: str
    ) -> None:
        monkeypatch.setattr("cpaas_provider.sending.journal.writer._FIRST_PAUSE", 0.0)
        run = sms(stage, rows(3), **KEY)
        with monkeypatch.context() as broken:
            broken.setattr(TaskStateStore, "set", _fails_at_the_second_marker(TaskStateStore.set))
            failed = run.once()
        assert (failed.state, requests(stage)) == ("up_for_retry", 0)
        next_try = run.once() if again == "retry" else sms(stage, rows(3), **KEY).once()
        assert (next_try.state, reached(stage)) == ("success", Counter(digits(3)))


class TestLostJournals:
    def test_cleared_task_whose_journal_is_gone_is_refused_and_names_the_command(
        self, stage: Stage, database_file: Path
    ) -> None:
        run = self.sent_and_restored(stage, database_file)
        failed = run.clear().once()
        assert (failed.state, requests(stage)) == ("failed", 1)
        assert f"airflow cpaas journal forget {run.dag.dag_id}" in failed.error

    def test_copy_with_a_part_of_the_journal_is_refused_too(self, stage: Stage, database_file: Path) -> None:
        small_packs(stage)
        stage.sandbox.control(*fault("send_sms", "unauthorized", after=1))
        run = sms(stage, rows(3), **KEY)
        assert run.once().report["sent"] == 1
        restore = copied(database_file)
        accept_all(stage)
        assert run.clear().once().state == "success"
        restore()
        failed = run.clear().once()
        assert (failed.state, reached(stage)) == ("failed", Counter(digits(3)))
        assert f"airflow cpaas journal forget {run.dag.dag_id}" in failed.error

    def test_new_run_on_an_older_copy_is_refused_whatever_its_key(self, stage: Stage, database_file: Path) -> None:
        self.sent_and_restored(stage, database_file)
        for key in ("spring", "another"):
            failed = sms(stage, rows(3), idempotency_key=key).once()
            assert (failed.state, requests(stage)) == ("failed", 1)
            assert "restored from an older copy" in failed.error
            assert "airflow variables delete cpaas_campaign_tries." in failed.error

    def test_copy_that_lacks_the_end_of_a_try_is_refused_in_a_new_run(
        self, stage: Stage, database_file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        restores: list[Callable[[], None]] = []

        async def copy_first(request: Callable[[], Awaitable[Any]]) -> Any:
            restores.append(copied(database_file))
            return await request()

        with monkeypatch.context() as patch:
            around_requests(patch, copy_first)
            sms(stage, rows(3), **KEY).once()
        restores[0]()
        assert (sms(stage, rows(3), **KEY).once().state, reached(stage)) == ("failed", Counter(digits(3)))

    def test_database_that_is_not_older_continues(self, stage: Stage, database_file: Path) -> None:
        run = sms(stage, rows(3), **KEY)
        first = run.once()
        copied(database_file)()
        again = run.clear().once()
        new = sms(stage, rows(3), **KEY).once()
        assert (again.result, new.result, requests(stage)) == (first.result, first.result, 1)

    def test_one_variable_has_the_number_however_many_tries_there_are(self, stage: Stage) -> None:
        for _ in range(3):
            sms(stage, rows(3), **KEY).once()
        with create_session() as session:
            named = Variable.key.startswith(CAMPAIGN_TRIES)
            assert len(session.scalars(select(Variable.key).where(named)).all()) == 1

    def test_after_the_commands_the_task_sends_what_the_database_does_not_have(
        self, stage: Stage, database_file: Path, journal: Journal
    ) -> None:
        run = self.sent_and_restored(stage, database_file)
        failed = run.clear().once()
        (variable,) = (word for word in failed.error.split() if word.startswith("cpaas_campaign_tries."))
        Variable.delete(variable.rstrip(";"))
        said = journal("forget", run.dag.dag_id, run.run_id, "campaign", "--yes")
        assert (said.status, "sends again to every recipient" in said.out) == (0, True)
        assert run.clear().once().state == "success"
        assert reached(stage) == Counter(digits(3) * 2)

    @staticmethod
    def sent_and_restored(stage: Stage, database_file: Path) -> Run:
        """Return a run that has sent, whose database was restored from a backup that is older."""
        sms(stage, rows(1), idempotency_key="another", dry_run=True).once()
        restore = copied(database_file)
        run = sms(stage, rows(3), **KEY)
        run.once()
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
    def test_another_api_key_on_the_same_base_url_leaves_the_first_journal_alone(self, stage: Stage) -> None:
        first = sms(stage, rows(3), **KEY).once()
        sms(stage, rows(3), **KEY, cpaas_conn_id="cpaas_wrong_key").once()
        again = sms(stage, rows(3), **KEY).once()
        assert (again.state, again.result, reached(stage)) == ("success", first.result, Counter(digits(3)))

    def test_two_connections_are_two_campaigns(self, stage: Stage) -> None:
        stage.connect("cpaas_second")
        for conn_id in ("cpaas_default", "cpaas_second", "cpaas_default", "cpaas_second"):
            assert sms(stage, rows(3), **KEY, cpaas_conn_id=conn_id).once().state == "success"
        assert reached(stage) == Counter(digits(3) * 2)

    def test_a_rotated_api_key_goes_on_with_the_same_campaign(self, stage: Stage) -> None:
        first = sms(stage, rows(3), **KEY).once()
        stage.connect("cpaas_default", password="sk_test_rotated")
        again = sms(stage, rows(3), **KEY).once()
        assert (again.state, again.result, requests(stage)) == ("success", first.result, 1)

    def test_a_rotated_api_key_with_resend_sends_to_nobody_again(self, stage: Stage) -> None:
        stage.connect("cpaas_default", callback_secret="one")
        sms(stage, rows(3), **KEY).once()
        stage.connect("cpaas_default")
        again = sms(stage, rows(3), **KEY, on_unknown="resend").once()
        assert (again.state, reached(stage)) == ("success", Counter(digits(3)))

    def test_a_connection_that_leads_elsewhere_is_refused(self, stage: Stage) -> None:
        sms(stage, rows(3), **KEY).once()
        stage.connect("cpaas_default", host="https://elsewhere.example.com")
        failed = sms(stage, rows(3), **KEY).once()
        assert (failed.state, requests(stage)) == ("failed", 1)
        assert "had another base URL" in failed.error


class TestDatabases:
    def test_another_database_is_refused_before_the_first_request(
        self, stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sms(stage, rows(3), **KEY).once()
        use_database(monkeypatch, tmp_path / "of_another_worker.db")
        failed = sms(stage, rows(3), **KEY).once()
        assert (failed.state, reached(stage)) == ("failed", Counter(digits(3)))
        assert "Another database" in failed.error
        assert "airflow variables delete cpaas_campaign_database." in failed.error

    def test_also_a_retry_on_a_worker_with_a_database_of_its_own_is_refused(
        self, stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        small_packs(stage)
        stage.sandbox.control(*fault("send_sms", "unauthorized", after=2))
        run = sms(stage, rows(3), **KEY)
        run.once()
        accept_all(stage)
        use_database(monkeypatch, tmp_path / "of_another_worker.db")
        failed = run.clear().once()
        assert (failed.state, sum(reached(stage).values())) == ("failed", 2)

    def test_the_first_database_still_goes_on(
        self, stage: Stage, tmp_path: Path, database_file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sms(stage, rows(3), **KEY).once()
        use_database(monkeypatch, tmp_path / "of_another_worker.db")
        sms(stage, rows(3), **KEY).once()
        use_database(monkeypatch, database_file)
        assert sms(stage, rows(4), **KEY).once().state == "success"
        assert reached(stage) == Counter(digits(4))

    def test_once_the_old_one_is_forgotten_another_database_is_used(
        self, stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sms(stage, rows(3), **KEY).once()
        use_database(monkeypatch, tmp_path / "moved.db")
        forget_campaign_database()
        assert sms(stage, rows(3, 10), **KEY).once().state == "success"

    def test_campaign_without_key_and_suppression_list_sends_with_another_database(
        self, stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sms(stage, rows(3), **KEY).once()
        use_database(monkeypatch, tmp_path / "of_another_worker.db")
        assert sms(stage, rows(3, 10), use_suppression_list=False).once().state == "success"


class TestRejectedRecipients:
    def test_new_run_tries_rejected_recipients_again(self, stage: Stage) -> None:
        small_packs(stage)
        stage.sandbox.control(*fault("send_sms", "error_under_200", times=1, body_status=422))
        first = sms(stage, rows(3), **KEY).once()
        assert (first.state, counts(first.report)) == ("failed", {"sent": 2, "rejected": 1})
        again = sms(stage, rows(3), **KEY).once()
        assert (again.state, reached(stage)) == ("success", Counter(digits(3)))

    def test_who_is_rejected_in_each_run_is_asked_for_once_a_run(self, stage: Stage) -> None:
        refuse(stage, digits(1))
        asked = []
        for _ in range(3):
            before = requests(stage)
            assert sms(stage, rows(1), **KEY).once().state == "failed"
            asked.append(requests(stage) - before)
        assert asked == [1, 1, 1]

    def test_retry_in_the_same_run_does_not(self, stage: Stage) -> None:
        small_packs(stage)
        refuse(stage, digits(1))
        stage.sandbox.control(*fault("send_sms", "rate_limit", after=1, times=5, retry_after=0))
        run = sms(stage, rows(3), **KEY)
        assert run.once().state == "up_for_retry"
        before = requests(stage)
        assert run.once().report["rejected"] == 1
        assert requests(stage) - before == 2
