"""The stored suppression list keeps campaigns and single sends from recipients, as real task instances."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from airflow.sdk import task

from cpaas_provider.database import default_file
from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.default_file import spreading_executor
from cpaas_provider.hooks.cpaas import CpaasHook
from cpaas_provider.hooks.suppressions import add_suppressions, find_suppressions, remove_suppressions
from cpaas_provider.operators.airtime import BuyAirtimeOperator
from cpaas_provider.operators.email import SendEmailOperator
from cpaas_provider.operators.otp import RequestOtpOperator
from cpaas_provider.operators.sms import SendSmsOperator
from cpaas_provider.tasks.database import suppressions
from tests.airflow.harness.campaigns import (
    all_requests,
    count_messages,
    counts,
    digits,
    email,
    outcomes,
    read_results,
    rows,
    sms,
)
from tests.airflow.harness.task_runner import TaskRunner, fault
from tests.airflow.harness.tries import Run, new_dag
from tests.unit.database.conftest import postgres_url as postgres_url
from tests.unit.database.conftest import sqlite_url as sqlite_url
from tests.unit.database.conftest import url as url

ADA, BEN, CY = (f"+{one}" for one in digits(3))
DB = "AIRFLOW__CPAAS__DATABASE"
OURS = ("cpaas_suppressions", "cpaas_hash_keys", "cpaas_message_counts")


@pytest.fixture(autouse=True)
def database(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DB, url)


def send(task_runner: TaskRunner, operator: type = SendSmsOperator, **given: Any) -> Run:
    """Return a run of one single send."""
    text = {} if operator in (RequestOtpOperator, BuyAirtimeOperator) else {"content": "Hello"}
    with new_dag() as dag:
        operator(task_id="send", **{**text, **given})
    return Run(task_runner, dag)


class TestSingleSends:
    def test_listed_recipients_are_left_out_and_counted(self, task_runner: TaskRunner) -> None:
        add_suppressions([ADA, CY])
        done = send(task_runner, recipients=[ADA, BEN, CY]).run_try()
        assert done.state == "success"
        assert (done.result["recipients"], done.result["skipped_suppressed"]) == (1, 2)
        assert set(count_messages(task_runner)) == {BEN[1:]}
        assert "Not sent to 2 of 3 recipients, because they are on the suppression list (2 opt_out)." in done.log

    def test_task_without_another_recipient_is_skipped(self, task_runner: TaskRunner) -> None:
        add_suppressions(ADA, reason="complaint")
        run = send(task_runner, recipients=[ADA])
        done = run.run_try()
        assert (done.state, all_requests(task_runner)) == ("skipped", 0)
        assert "The recipient is on the suppression list. Nothing was sent." in done.log
        assert ADA[1:] not in done.log

    def test_listed_recipients_are_sent_to_if_the_list_is_not_used(self, task_runner: TaskRunner) -> None:
        add_suppressions(ADA)
        done = send(task_runner, recipients=[ADA], use_suppression_list=False).run_try()
        assert (done.state, done.result["skipped_suppressed"]) == ("success", 0)

    def test_email_is_left_out_in_whatever_capitals(self, task_runner: TaskRunner) -> None:
        add_suppressions("Ada@Example.com", reason="hard_bounce", channel="email")
        done = send(task_runner, SendEmailOperator, recipients=["ada@example.com", "ben@example.com"]).run_try()
        assert (done.state, set(count_messages(task_runner, "email"))) == ("success", {"ben@example.com"})

    def test_entry_of_another_channel_or_connection_does_not_count(self, task_runner: TaskRunner) -> None:
        add_suppressions(ADA, channel="whatsapp")
        add_suppressions(ADA, conn_id="another")
        assert send(task_runner, recipients=[ADA]).run_try().state == "success"
        assert send(task_runner, recipients=[ADA], channel="whatsapp").run_try().state == "skipped"

    def test_entry_of_a_connection_counts_in_whatever_capitals(self, task_runner: TaskRunner) -> None:
        add_suppressions(ADA, conn_id="CPAAS_Default")
        assert find_suppressions(ADA, conn_id="cpaas_DEFAULT") == ["opt_out"]
        assert send(task_runner, recipients=[ADA]).run_try().state == "skipped"
        assert remove_suppressions(ADA, conn_id="Cpaas_default") == 1
        assert send(task_runner, recipients=[ADA]).run_try().state == "success"

    def test_passcode_is_refused_for_an_invalid_number_only(self, task_runner: TaskRunner) -> None:
        add_suppressions(ADA)
        assert send(task_runner, RequestOtpOperator, recipient=ADA).run_try().state == "success"
        add_suppressions(ADA, reason="invalid_number")
        done = send(task_runner, RequestOtpOperator, recipient=ADA).run_try()
        assert done.state == "skipped"
        assert "The recipient is on the suppression list." in done.log

    def test_airtime_is_bought_whoever_is_listed(self, task_runner: TaskRunner) -> None:
        add_suppressions(ADA, reason="invalid_number")
        bought = send(task_runner, BuyAirtimeOperator, recipient=ADA, network="MTN", amount=100).run_try()
        assert bought.state == "success"

    def test_retry_after_an_opt_out_keeps_what_was_sent(self, task_runner: TaskRunner) -> None:
        run = send(task_runner, recipients=[ADA])
        assert run.run_try().state == "success"
        add_suppressions(ADA)
        run.clear()
        again = run.run_try()
        assert (again.state, again.result["recipients"], count_messages(task_runner)[ADA[1:]]) == ("success", 1, 1)

    def test_recipient_listed_between_two_tries_is_not_sent_to(self, task_runner: TaskRunner) -> None:
        task_runner.sandbox.control("POST", "faults", {"operation": "send_sms", "kind": "rate_limit", "retry_after": 0})
        run = send(task_runner, recipients=[ADA, BEN])
        assert run.run_try().state == "up_for_retry"
        task_runner.sandbox.control("DELETE", "faults")
        add_suppressions(ADA)
        assert (run.run_try().state, set(count_messages(task_runner))) == ("success", {BEN[1:]})

    def test_unknown_request_is_not_resent_to_a_listed_recipient(self, task_runner: TaskRunner) -> None:
        task_runner.sandbox.control("POST", "faults", dict(fault("send_sms", "cut_after")[2]))
        run = send(task_runner, recipients=[ADA], on_unknown="resend")
        assert run.run_try().state == "up_for_retry"
        sent = count_messages(task_runner)
        task_runner.sandbox.control("DELETE", "faults")
        add_suppressions(ADA)
        done = run.run_try()
        assert (done.state, count_messages(task_runner)) == ("failed", sent)
        assert "cannot be sent again, because its recipients are on the suppression list or" in done.error

    def test_idempotent_client_leaves_out_listed_recipients(self, task_runner: TaskRunner) -> None:
        add_suppressions([ADA, CY])

        @task
        def send_both() -> list[Any]:
            with CpaasHook().get_idempotent_client() as client:
                both = client.send_sms([ADA, BEN], "Hello"), client.send_sms(CY, "Hello")
            with CpaasHook().get_idempotent_client(use_suppression_list=False) as client:
                return [*both, client.send_sms(CY, "Hello", idempotency_key="again")]

        with new_dag() as dag:
            send_both()
        done = Run(task_runner, dag).run_try()
        assert [(one["recipients"], one["skipped_suppressed"]) for one in done.result] == [(1, 1), (0, 1), (1, 0)]
        assert set(count_messages(task_runner)) == {BEN[1:], CY[1:]}


class TestCampaigns:
    def test_listed_recipients_are_left_out_and_counted(self, task_runner: TaskRunner, tmp_path: Path) -> None:
        add_suppressions(ADA)
        add_suppressions(CY, reason="invalid_number", channel="sms", conn_id="cpaas_default")
        results = tmp_path / "results.jsonl"
        done = sms(task_runner, rows(5), results_path=str(results)).run_try()
        assert (done.state, counts(done.result)) == ("success", {"sent": 3, "suppressed": 2})
        assert set(count_messages(task_runner)) == set(digits(5)) - {ADA[1:], CY[1:]}
        reasons = {
            line["recipient"]: line["reason"] for line in read_results(results) if line["outcome"] == "suppressed"
        }
        assert reasons == {ADA[1:]: "opt_out", CY[1:]: "invalid_number"}
        assert sum(1 for one in outcomes(results).values() if one == "sent") == 3

    def test_both_lists_count(self, task_runner: TaskRunner) -> None:
        add_suppressions(ADA)
        done = sms(task_runner, rows(3), suppression_list=[{"phone": BEN}]).run_try()
        assert counts(done.result) == {"sent": 1, "suppressed": 2}

    def test_listed_recipients_are_sent_to_if_the_list_is_not_used(self, task_runner: TaskRunner) -> None:
        add_suppressions(ADA)
        done = sms(task_runner, rows(3), use_suppression_list=False).run_try()
        assert counts(done.result) == {"sent": 3}

    def test_campaign_without_another_recipient_is_skipped(self, task_runner: TaskRunner) -> None:
        add_suppressions([ADA, BEN])
        done = sms(task_runner, rows(2)).run_try()
        assert (done.state, all_requests(task_runner)) == ("skipped", 0)
        assert counts(done.report) == {"suppressed": 2}

    def test_dry_run_counts_them(self, task_runner: TaskRunner) -> None:
        add_suppressions(ADA)
        done = sms(task_runner, rows(3), dry_run=True).run_try()
        assert counts(done.result) == {"not_sent": 2, "suppressed": 1}

    def test_listed_test_recipient_ends_the_campaign(self, task_runner: TaskRunner) -> None:
        add_suppressions(CY)
        done = sms(task_runner, rows(2), test_recipients=[{"phone": CY, "name": "Test"}]).run_try()
        assert (done.state, all_requests(task_runner)) == ("failed", 0)
        assert "A test recipient is suppressed (opt_out)." in done.error

    def test_emails_are_left_out(self, task_runner: TaskRunner) -> None:
        add_suppressions("Two@Example.com")
        people = [{"email": f"{name}@example.com", "name": name} for name in ("one", "two", "three")]
        done = email(task_runner, people).run_try()
        assert counts(done.result) == {"sent": 2, "suppressed": 1}

    def test_accepted_recipient_that_opts_out_stays_sent(self, task_runner: TaskRunner) -> None:
        run = sms(task_runner, rows(3))
        assert run.run_try().state == "success"
        add_suppressions(ADA)
        run.clear()
        assert counts(run.run_try().result) == {"sent": 3}


class TestWithoutEntries:
    @pytest.fixture
    def asked(self, url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
        """What the database is asked, its opening aside."""
        statements: list[str] = []

        def query_without_sqlalchemy(*scope: Any) -> bool | None:
            found = default_file.suppresses_any(*scope)
            if found is not None:
                statements.append("SELECT version_num, EXISTS (SELECT 1 FROM cpaas_suppressions)")
            return found

        monkeypatch.setattr(suppressions, "suppresses_any", query_without_sqlalchemy)

        def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
            statements.append(statement)

        open_database(url).close()
        sqlalchemy.event.listen(sqlalchemy.Engine, "before_cursor_execute", note)
        yield statements
        sqlalchemy.event.remove(sqlalchemy.Engine, "before_cursor_execute", note)

    def test_campaign_reads_the_database_once_and_writes_nothing(
        self, task_runner: TaskRunner, asked: list[str]
    ) -> None:
        done = sms(task_runner, rows(20)).run_try()
        assert counts(done.result) == {"sent": 20}
        assert len([one for one in asked if "cpaas_suppressions" in one]) == 1
        assert not [one for one in asked if one.startswith("INSERT") and any(table in one for table in OURS)]

    def test_single_send_reads_the_database_once_and_writes_nothing(
        self, task_runner: TaskRunner, asked: list[str]
    ) -> None:
        assert send(task_runner, recipients=[ADA]).run_try().state == "success"
        assert len([one for one in asked if "cpaas_suppressions" in one]) == 1
        assert not [one for one in asked if one.startswith("INSERT") and any(table in one for table in OURS)]

    def test_no_database_is_created_to_read_an_empty_list(
        self, task_runner: TaskRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv(DB)
        monkeypatch.setattr("cpaas_provider.database.default_file.default_file", lambda: tmp_path / "none.db")
        made: list[Any] = []
        usual = Database.open
        monkeypatch.setattr(Database, "open", lambda self: made.append(usual(self)))
        assert send(task_runner, recipients=[ADA]).run_try().state == "success"
        assert made == []


class TestUnreadable:
    def test_unreadable_list_sends_nothing(
        self, task_runner: TaskRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "file").write_text("")
        monkeypatch.setenv(DB, f"sqlite:///{tmp_path}/file/none.db")
        for run in (send(task_runner, recipients=[ADA]), sms(task_runner, rows(3))):
            done = run.run_try()
            assert (done.state, all_requests(task_runner)) == ("up_for_retry", 0)
            assert "The suppression list could not be read" in done.error
            assert "use_suppression_list=False" in done.error
        # The database may have a stop of the connection.
        done = send(task_runner, recipients=[ADA], use_suppression_list=False).run_try()
        assert (done.state, all_requests(task_runner)) == ("up_for_retry", 0)
        assert "No request leaves, because stops cannot be read from the database" in done.error

    def test_missing_secret_of_the_list_sends_nothing(
        self, task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as patch:
            patch.setenv("AIRFLOW__CPAAS__RECIPIENT_SECRET", "old")
            add_suppressions(ADA)
        done = send(task_runner, recipients=[BEN]).run_try()
        assert (done.state, all_requests(task_runner)) == ("up_for_retry", 0)
        assert "[cpaas] recipient_secret" in done.error


class TestFunctions:
    def test_recipients_are_read_as_operators_read_them(self) -> None:
        assert add_suppressions(["0803 120 0000", "Ada@Example.com"], region="NG", source="form") == 2
        assert find_suppressions(["+234 803 120 0000", "ada@example.com"], conn_id="any", channel="sms") == [
            "opt_out",
            "opt_out",
        ]
        assert remove_suppressions("08031200000", region="NG", reason="complaint") == 0
        assert remove_suppressions("08031200000", region="NG") == 1

    def test_error_names_places_and_no_recipient(self) -> None:
        with pytest.raises(ValueError, match="recipient 2") as error:
            add_suppressions([ADA, "0803 555 nobody"])
        assert "nobody" not in str(error.value)
        assert find_suppressions(ADA, conn_id="any") == [None]

    @pytest.mark.parametrize("given", [{"reason": "bored"}, {"channel": "fax"}, {"source": "x" * 101}, {"source": ""}])
    def test_values_the_list_cannot_hold_are_refused(self, given: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match="must be"):
            add_suppressions(ADA, **given)


ANOTHER = "Another database stores"


class TestOneListForAllWorkers:
    @pytest.fixture
    def list_elsewhere(
        self, task_runner: TaskRunner, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A list that a send consulted on one worker, and another worker with a database of its own."""
        add_suppressions(CY)
        assert send(task_runner, recipients=[ADA]).run_try().state == "success"
        monkeypatch.setenv(DB, f"sqlite:///{tmp_path}/another.db")

    @pytest.mark.usefixtures("list_elsewhere")
    @pytest.mark.parametrize("has_list", [False, True])
    def test_worker_with_another_database_sends_nothing(self, task_runner: TaskRunner, has_list: bool) -> None:
        if has_list:
            add_suppressions(BEN)
        sent = all_requests(task_runner)
        single, campaign = send(task_runner, recipients=[CY]).run_try(), sms(task_runner, rows(5)).run_try()
        assert [(done.state, ANOTHER in done.error) for done in (single, campaign)] == [("failed", True)] * 2
        assert all_requests(task_runner) == sent
        assert send(task_runner, recipients=[CY], use_suppression_list=False).run_try().state == "success"

    @pytest.mark.usefixtures("list_elsewhere")
    def test_worker_without_a_database_sends_nothing(
        self, task_runner: TaskRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv(DB)
        monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "empty"))
        done = send(task_runner, RequestOtpOperator, recipient=CY).run_try()
        assert (done.state, ANOTHER in done.error, "this worker has none" in done.error) == ("failed", True, True)

    @pytest.mark.usefixtures("list_elsewhere")
    def test_idempotent_client_of_another_worker_sends_nothing(self, task_runner: TaskRunner) -> None:
        @task
        def send_one() -> Any:
            with CpaasHook().get_idempotent_client() as client:
                return client.send_sms(CY, "Hello")

        with new_dag() as dag:
            send_one()
        done = Run(task_runner, dag).run_try()
        assert (done.state, ANOTHER in done.error, CY[1:] in count_messages(task_runner)) == ("failed", True, False)

    def test_worker_without_a_list_anywhere_records_nothing_and_sends(
        self, task_runner: TaskRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert send(task_runner, recipients=[ADA]).run_try().state == "success"
        monkeypatch.setenv(DB, f"sqlite:///{tmp_path}/another.db")
        assert send(task_runner, recipients=[ADA]).run_try().state == "success"


class TestWorkersWithoutASharedDatabase:
    @pytest.fixture(autouse=True)
    def no_database(self, database: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv(DB)
        monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))

    @pytest.mark.parametrize(
        ("executor", "named"),
        [("CeleryExecutor", "CeleryExecutor"), ("LocalExecutor,team:my.executors.Spread", "Spread")],
    )
    def test_log_warns_of_lists_on_other_machines(
        self, task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch, executor: str, named: str
    ) -> None:
        monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", executor)
        done = send(task_runner, recipients=[ADA]).run_try()
        assert (done.state, f"the tasks of {named} run on several machines" in done.log) == ("success", True)

    def test_option_refuses_to_send(self, task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "CeleryExecutor")
        monkeypatch.setenv("AIRFLOW__CPAAS__REQUIRE_SHARED_DATABASE", "True")
        done = send(task_runner, recipients=[ADA]).run_try()
        assert (done.state, all_requests(task_runner)) == ("failed", 0)
        assert "Nothing was sent, because of [cpaas] require_shared_database" in done.error
        assert send(task_runner, recipients=[ADA], use_suppression_list=False).run_try().state == "success"

    def test_pod_of_kubernetes_counts_whatever_its_own_executor_is(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "LocalExecutor")
        monkeypatch.setenv("AIRFLOW_IS_K8S_EXECUTOR_POD", "True")
        assert spreading_executor() == "KubernetesExecutor"

    def test_local_executor_needs_no_shared_database(
        self, task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "LocalExecutor")
        monkeypatch.setenv("AIRFLOW__CPAAS__REQUIRE_SHARED_DATABASE", "True")
        done = send(task_runner, recipients=[ADA]).run_try()
        assert (done.state, "several machines" in done.log) == ("success", False)
