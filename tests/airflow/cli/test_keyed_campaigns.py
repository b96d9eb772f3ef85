"""``airflow cpaas journal`` on campaigns with a key, whose journal is in the provider's own database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from sqlalchemy import update

from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.leases import LeasedState
from cpaas_provider.database.registry import CampaignKey
from cpaas_provider.sending.journal.model import CAMPAIGN_MARKER, JOURNAL_KEY
from tests.airflow.campaigns.test_idempotency import parts
from tests.airflow.cli import test_journal as of_single_requests
from tests.airflow.cli.test_journal import Journal
from tests.airflow.harness.campaigns import count_messages, counts, digits, limit_batches, rows, sms
from tests.airflow.harness.task_runner import TaskRunner, fault
from tests.airflow.harness.tries import Run

task_runner = of_single_requests.task_runner
journal = of_single_requests.journal

KEY = {"idempotency_key": "spring"}
NAME = f"{CampaignKey('cpaas_default', 'sms', 'spring', '').name}/0"


@pytest.fixture(autouse=True)
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """A database of each test's own."""
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{tmp_path}/store.db")
    with open_database() as opened:
        yield opened


def ids(run: Run) -> list[str]:
    return [run.dag.dag_id, run.run_id, "campaign"]


@pytest.fixture
def run(task_runner: TaskRunner) -> Run:
    """A failed run of a campaign to four recipients, two a request; the outcome of the first request is unknown."""
    limit_batches(task_runner, 2)
    task_runner.sandbox.control(*fault("send_sms", "cut_after", times=1))
    made = sms(task_runner, rows(4), **KEY)
    failed = made.run_try()
    assert (failed.state, counts(failed.report)) == ("failed", {"sent": 2, "unknown_recipients": 2})
    return made


class TestListAndShow:
    def test_list_names_unresolved_requests_and_counts_others(self, run: Run, journal: Journal) -> None:
        said = journal("list", "--output", "json")
        (line,) = said.lines
        assert [line["dag_id"], line["run_id"], line["task_id"]] == ids(run)
        assert (line["state"], line["recipients"]) == ("unknown", 2)
        assert "2 requests in all: 1 accepted (2 recipients), 1 unknown (2 recipients)." in said.err
        assert f"airflow cpaas journal resolve --sent {' '.join(ids(run))}" in said.err

    def test_list_filters_keyed_campaigns_as_any_other(self, run: Run, journal: Journal) -> None:
        assert journal("list", "--dag-id", "another", "--output", "json").lines == []
        (line,) = journal("list", "--dag-id", run.dag.dag_id, "--state", "accepted", "--output", "json").lines
        assert (line["recipients"], line["reason"]) == (2, "1 request together")

    def test_list_shows_a_campaign_of_several_runs_once(
        self, task_runner: TaskRunner, run: Run, journal: Journal
    ) -> None:
        later = sms(task_runner, rows(5), **KEY)
        later.run_try()
        (line,) = journal("list", "--output", "json").lines
        assert line["run_id"] == later.run_id

    def test_show_says_in_which_database_it_lies(self, run: Run, journal: Journal, database: Database) -> None:
        said = journal("show", *ids(run), "--output", "json")
        assert [(line["state"], line["recipients"]) for line in said.lines] == [("unknown", 2), ("accepted", 2)]
        assert f"(idempotency_key). It is stored in the database {database.redacted_url}." in said.err
        assert not [one for one in digits(4) if one in said.out + said.err]

    def test_show_of_a_run_without_requests_is_the_same_journal(
        self, task_runner: TaskRunner, run: Run, journal: Journal
    ) -> None:
        later = sms(task_runner, rows(4), **KEY)
        later.run_try()
        assert [row for row in later.state_rows() if row.key == CAMPAIGN_MARKER] == []
        lines = journal("show", *ids(later), "--output", "json").lines
        assert [line["reference"] for line in lines][:1] == [
            line["reference"] for line in journal("list", "--output", "json").lines
        ]

    def test_pending_request_of_a_running_task_is_in_flight_and_not_unresolved(
        self, task_runner: TaskRunner, journal: Journal, database: Database
    ) -> None:
        limit_batches(task_runner, 2)
        run = sms(task_runner, rows(2), **KEY)
        run.run_try()
        at_work = LeasedState(database, NAME, "task instance of another run")
        at_work.acquire()
        stored = at_work.get(JOURNAL_KEY)
        assert isinstance(stored, dict)
        for key in (f"{JOURNAL_KEY}.0.2", f"{JOURNAL_KEY}.0.3"):
            at_work.delete(key)
        said = journal("show", *ids(run))
        assert "task instance of another run is working on it now." in said.out
        assert "In flight: 1 request to 2 recipients, in tasks that Airflow or the lease of the campaign" in said.out
        assert "and the lease ends (5 min after its last write)." in said.out
        assert "No unresolved requests." not in said.out
        at_work.release()
        assert "Unresolved: 1 request to 2 recipients." in journal("show", *ids(run)).out


class TestResolve:
    def test_task_cleared_after_resolve_not_sent_sends_only_those_requests(
        self, task_runner: TaskRunner, run: Run, journal: Journal
    ) -> None:
        said = journal("resolve", "--not-sent", *ids(run), "--yes")
        assert (said.status, "Resolved as not sent: 1 request to 2 recipients" in said.out) == (0, True), said.err
        assert "clear the task, or start another run with the same idempotency_key" in said.out
        assert "3.4" not in said.out
        done = run.clear().run_try()
        assert (done.state, counts(done.result)) == ("success", {"sent": 4})
        assert sorted(count_messages(task_runner).values()) == [1, 1, 2, 2]

    def test_request_resolved_as_sent_is_not_sent_by_any_run(
        self, task_runner: TaskRunner, run: Run, journal: Journal
    ) -> None:
        assert journal("resolve", "--sent", *ids(run), "--id", "msg_9", "--yes").status == 0
        (line,) = journal("list", "--state", "accepted", "--each", "--limit", "1", "--output", "json").lines
        assert line["state"] == "accepted"
        done = sms(task_runner, rows(5), **KEY).run_try()
        assert (done.state, counts(done.result), count_messages(task_runner)) == (
            "success",
            {"sent": 5},
            Counter(digits(5)),
        )
        assert journal("list", "--output", "json").lines == []

    def test_dropped_state_does_not_undo_the_resolution(
        self, task_runner: TaskRunner, run: Run, journal: Journal
    ) -> None:
        assert journal("resolve", "--sent", *ids(run), "--yes").status == 0
        assert run.clear(drop_state=True).run_try().state == "success"
        assert count_messages(task_runner) == Counter(digits(4))

    def test_error_of_the_task_names_the_command(self, task_runner: TaskRunner) -> None:
        task_runner.sandbox.control(*fault("send_sms", "cut_after", times=1))
        run = sms(task_runner, rows(1), **KEY)
        assert f"airflow cpaas journal resolve --sent {' '.join(ids(run))}" in run.run_try().error


class TestRefused:
    def test_resolve_while_a_task_holds_the_lease_is_refused(
        self, run: Run, journal: Journal, database: Database
    ) -> None:
        LeasedState(database, NAME, "task instance of another run").acquire()
        said = journal("resolve", "--not-sent", *ids(run), "--yes")
        assert (said.status, "working on this campaign: task instance of another run" in said.err) == (1, True)
        assert len(journal("list", "--state", "unknown", "--output", "json").lines) == 1

    def test_journal_that_changed_during_the_confirmation_is_refused(
        self, run: Run, journal: Journal, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def think(*_: object, **__: object) -> bool:
            state = LeasedState(database, NAME, "task instance of another run")
            state.acquire()
            parts = [key for key in (f"{JOURNAL_KEY}.0.{part}" for part in range(1, 9)) if state.get(key) is None]
            state.set(parts[0], {**state.get(JOURNAL_KEY), "batches": []})
            state.release()
            return True

        monkeypatch.setattr("cpaas_provider.cli.terminal.ask_yesno", think)
        said = journal("resolve", "--not-sent", *ids(run))
        assert (said.status, "is no longer as it was read. Nothing was changed." in said.err) == (1, True)
        assert [line["state"] for line in journal("list", "--output", "json").lines] == ["unknown"]

    @pytest.mark.parametrize("state", ["running", "deferred"])
    def test_running_task_instance_is_refused(self, run: Run, journal: Journal, state: str) -> None:
        with create_session() as session:
            session.execute(update(TaskInstance).where(TaskInstance.run_id == run.run_id).values(state=state))
        said = journal("resolve", "--not-sent", *ids(run), "--yes")
        assert (said.status, f"is {state}, so its try may still write" in said.err) == (1, True)


class TestOtherDatabase:
    """The command runs where [cpaas] database names another database than that of the workers."""

    @pytest.fixture
    def other(self, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{tmp_path}/other.db")
        return f"sqlite:///{tmp_path}/other.db"

    @pytest.mark.parametrize("command", ["show", "resolve --sent", "resolve --not-sent"])
    def test_command_names_the_database_that_has_it(
        self, run: Run, journal: Journal, database: Database, other: str, command: str
    ) -> None:
        said = journal(*command.split(), *ids(run))
        assert said.status == 1
        assert (
            f"the journal of its campaign is not in the database {other}, which [cpaas] database names here."
            in said.err
        )
        assert f"The workers use {database.redacted_url}. Nothing was changed." in said.err

    def test_list_says_that_it_could_not_be_read(self, run: Run, journal: Journal, other: str) -> None:
        said = journal("list")
        assert (said.status, "could not be read and may hold unresolved requests" in said.err) == (1, True)

    def test_database_that_cannot_be_opened_is_named_once(
        self, task_runner: TaskRunner, run: Run, journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sms(task_runner, rows(1), idempotency_key="summer").run_try()
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{tmp_path}/store.db/none.db")
        said = journal("list")
        assert (said.status, said.err.count("are stored in the database that [cpaas] database names")) == (1, 1)


def test_each_partition_has_its_own_journal(task_runner: TaskRunner, journal: Journal) -> None:
    run = parts(task_runner, 2, rows(6), **KEY)
    run.run_try(map_index=0)
    task_runner.sandbox.control(*fault("send_sms", "cut_after", times=1))
    assert run.run_try(map_index=1).state == "failed"
    (line,) = journal("list", "--output", "json").lines
    assert (line["map_index"], line["state"]) == (1, "unknown")
    assert journal("resolve", "--sent", *ids(run), "--map-index", "1", "--yes").status == 0
    assert run.clear(map_index=1).run_try(map_index=1).state == "success"
    assert count_messages(task_runner) == Counter(digits(6))
    # A run that finds all done stores nothing that names its partition.
    later = parts(task_runner, 2, rows(6), **KEY)
    later.run_try(map_index=0)
    said = journal("show", *ids(later), "--map-index", "0")
    assert (said.status, "which has 2 partitions" in said.err) == (1, True)


def test_run_that_requested_nothing_is_said_to_have_no_journal(task_runner: TaskRunner, journal: Journal) -> None:
    dry = sms(task_runner, rows(1), dry_run=True, **KEY)
    dry.run_try()
    said = journal("show", *ids(dry))
    assert (said.status, "the campaign has made no request yet" in said.err) == (1, True)
