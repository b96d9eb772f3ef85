"""A frequency cap holds over all campaigns and single sends, also while they run at the same time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import task
from sqlalchemy import func, select, update

from cpaas_provider.database.database import open_database
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.database.recipients.frequency import MessageCounts
from cpaas_provider.database.schema.campaigns import campaigns
from cpaas_provider.database.schema.recipients import message_counts
from cpaas_provider.hooks.cpaas import CpaasHook
from cpaas_provider.operators.email import EmailCampaignOperator, SendEmailOperator
from cpaas_provider.operators.sms import SendSmsOperator, SmsCampaignOperator
from tests.airflow.harness.campaigns import (
    all_requests,
    around_requests,
    clear_faults,
    count_messages,
    counts,
    digits,
    limit_batches,
    read_results,
    reject_recipients,
    rows,
    sms,
)
from tests.airflow.harness.task_runner import TaskRunner, fault, forget_campaign_database
from tests.airflow.harness.tries import Run, new_dag
from tests.unit.database.conftest import postgres_url as postgres_url
from tests.unit.database.conftest import sqlite_url as sqlite_url
from tests.unit.database.conftest import url as url

ONE = (1, timedelta(days=7))
ADA, BEN = (f"+{one}" for one in digits(2))


@pytest.fixture(autouse=True)
def database(airflow_db: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", url)
    forget_campaign_database()
    yield
    forget_campaign_database()


def send(task_runner: TaskRunner, operator: type = SendSmsOperator, **given: Any) -> Run:
    """Return a run of one single send."""
    with new_dag() as dag:
        operator(task_id="send", **{"content": "Hello", "frequency_cap": ONE, **given})
    return Run(task_runner, dag)


class TestCampaigns:
    def test_second_campaign_leaves_out_recipients_of_the_first(self, task_runner: TaskRunner, tmp_path: Path) -> None:
        assert counts(sms(task_runner, rows(3), frequency_cap=ONE).run_try().result) == {"sent": 3}
        results = tmp_path / "results.jsonl"
        done = sms(task_runner, rows(5), frequency_cap=ONE, results_path=str(results)).run_try()
        assert (done.result["sent"], done.result["frequency_capped"]) == (2, 3)
        assert count_messages(task_runner) == Counter(digits(5))
        assert Counter(line["outcome"] for line in read_results(results)) == {"sent": 2, "frequency_capped": 3}
        assert "3 at the frequency cap" in done.log

    def test_campaign_of_another_category_reaches_them(self, task_runner: TaskRunner) -> None:
        sms(task_runner, rows(2), frequency_cap=ONE, frequency_category="offers").run_try()
        done = sms(task_runner, rows(2), frequency_cap=ONE, frequency_category="news").run_try()
        assert counts(done.result) == {"sent": 2}

    def test_category_without_a_cap_counts_and_limits_nothing(self, task_runner: TaskRunner) -> None:
        for _ in range(2):
            assert counts(sms(task_runner, rows(2), frequency_category="offers").run_try().result) == {"sent": 2}
        done = sms(task_runner, rows(2), frequency_category="offers", frequency_cap=(2, timedelta(days=1))).run_try()
        assert (done.state, done.report["frequency_capped"]) == ("skipped", 2)

    def test_retry_does_not_count_again(self, task_runner: TaskRunner) -> None:
        limit_batches(task_runner, 2)
        task_runner.sandbox.control("POST", "faults", {**fault("send_sms", "rate_limit", retry_after=0)[2], "after": 1})
        run = sms(task_runner, rows(6), frequency_cap=ONE)
        assert run.run_try().state == "up_for_retry"
        clear_faults(task_runner)
        assert counts(run.run_try().result) == {"sent": 6}
        run.clear()
        assert counts(run.run_try().result) == {"sent": 6}
        assert count_messages(task_runner) == Counter(digits(6))

    def test_recipients_not_sent_to_are_not_counted(self, task_runner: TaskRunner) -> None:
        task_runner.sandbox.control("POST", "faults", dict(fault("send_sms", "rate_limit", retry_after=0)[2]))
        assert sms(task_runner, rows(3), frequency_cap=ONE).run_try().state == "up_for_retry"
        clear_faults(task_runner)
        assert counts(sms(task_runner, rows(3), frequency_cap=ONE).run_try().result) == {"sent": 3}

    @pytest.mark.parametrize("named", [True, False])
    def test_rejected_recipients_are_not_counted_and_others_of_the_batch_are(
        self, task_runner: TaskRunner, named: bool
    ) -> None:
        reject_recipients(task_runner, digits(2), named=named)
        first = sms(task_runner, rows(5), frequency_cap=ONE, max_failure_ratio=1.0).run_try()
        assert counts(first.result) == {"sent": 3, "rejected": 2}
        second = sms(task_runner, rows(5), frequency_cap=ONE, max_failure_ratio=1.0).run_try()
        assert (second.result["rejected"], second.result["frequency_capped"]) == (2, 3)
        assert count_messages(task_runner) == Counter(digits(5)[2:])

    def test_recipients_of_unknown_outcome_stay_counted(self, task_runner: TaskRunner) -> None:
        task_runner.sandbox.control("POST", "faults", {**fault("send_sms", "cut_after")[2], "times": 1})
        first = sms(task_runner, rows(3), frequency_cap=ONE, on_unknown="skip").run_try()
        assert counts(first.result) == {"unknown_recipients": 3}
        second = sms(task_runner, rows(3), frequency_cap=ONE).run_try()
        assert (second.state, second.report["frequency_capped"]) == ("skipped", 3)

    def test_resend_of_an_unknown_request_counts_once(self, task_runner: TaskRunner) -> None:
        task_runner.sandbox.control("POST", "faults", {**fault("send_sms", "cut_before")[2], "times": 1})
        done = sms(task_runner, rows(3), frequency_cap=ONE, on_unknown="resend").run_try()
        assert counts(done.result) == {"sent": 3}

    def test_campaign_ended_by_a_guard_releases_recipients_not_sent_to(self, task_runner: TaskRunner) -> None:
        limit_batches(task_runner, 2)
        first = sms(task_runner, rows(10), frequency_cap=ONE, max_charge=16, price_per_page=4).run_try()
        assert (first.state, counts(first.report)) == ("failed", {"sent": 4, "not_sent": 6})
        second = sms(task_runner, rows(10), frequency_cap=ONE).run_try()
        assert (second.result["sent"], second.result["frequency_capped"]) == (6, 4)
        assert count_messages(task_runner) == Counter(digits(10))

    def test_worker_with_another_database_sends_nothing(
        self, task_runner: TaskRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert sms(task_runner, rows(2), frequency_cap=ONE).run_try().state == "success"
        sent = all_requests(task_runner)
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{tmp_path}/another.db")
        done = sms(task_runner, rows(2), frequency_cap=ONE).run_try()
        assert (done.state, all_requests(task_runner)) == ("failed", sent)
        assert "Another database stores" in done.error


class TestSingleSends:
    def test_recipients_at_the_cap_are_left_out_and_counted(self, task_runner: TaskRunner) -> None:
        sms(task_runner, rows(1), frequency_cap=ONE).run_try()
        done = send(task_runner, recipients=[ADA, BEN]).run_try()
        assert (done.result["recipients"], done.result["skipped_frequency_cap"]) == (1, 1)
        again = send(task_runner, recipients=[ADA, BEN]).run_try()
        assert (again.state, count_messages(task_runner)) == ("skipped", Counter(digits(2)))
        assert "All recipients are at the frequency cap. Nothing was sent." in again.log

    def test_address_in_any_case_is_one_recipient(self, task_runner: TaskRunner) -> None:
        assert send(task_runner, SendEmailOperator, recipients=["Ada@example.com"]).run_try().state == "success"
        assert send(task_runner, SendEmailOperator, recipients=["ada@example.com"]).run_try().state == "skipped"

    def test_retry_and_clear_do_not_count_again(self, task_runner: TaskRunner) -> None:
        task_runner.sandbox.control("POST", "faults", dict(fault("send_sms", "rate_limit", retry_after=0)[2]))
        run = send(task_runner, recipients=[ADA])
        assert run.run_try().state == "up_for_retry"
        clear_faults(task_runner)
        assert run.run_try().state == "success"
        run.clear()
        assert (run.run_try().state, count_messages(task_runner)) == ("success", Counter(digits(1)))

    @pytest.mark.parametrize("kind", ["rate_limit", "unavailable"])
    def test_recipient_not_sent_to_is_not_counted(self, task_runner: TaskRunner, kind: str) -> None:
        task_runner.sandbox.control("POST", "faults", dict(fault("send_sms", kind, retry_after=0)[2]))
        assert send(task_runner, recipients=[ADA]).run_try().state == "up_for_retry"
        clear_faults(task_runner)
        assert send(task_runner, recipients=[ADA]).run_try().state == "success"

    def test_recipient_of_unknown_outcome_stays_counted(self, task_runner: TaskRunner) -> None:
        task_runner.sandbox.control("POST", "faults", {**fault("send_sms", "cut_after")[2], "times": 1})
        assert send(task_runner, recipients=[ADA]).run_try().state == "failed"
        assert send(task_runner, recipients=[ADA]).run_try().state == "skipped"

    def test_idempotent_client_counts_each_send_once(self, task_runner: TaskRunner) -> None:
        @task
        def remind() -> list[int]:
            with CpaasHook().get_idempotent_client(frequency_cap=ONE) as client:
                sends = [client.send_sms(ADA, "Hello"), client.send_sms(ADA, "Hello")]
                sends.append(client.send_sms(ADA, "Hello", idempotency_key="again"))
            return [one["skipped_frequency_cap"] for one in sends]

        with new_dag() as dag:
            remind()
        assert Run(task_runner, dag).run_try().result == [0, 0, 1]
        assert count_messages(task_runner) == Counter(digits(1))

    def test_whatsapp_message_of_the_idempotent_client_counts_beside_its_sms(self, task_runner: TaskRunner) -> None:
        @task
        def remind() -> list[int]:
            with CpaasHook().get_idempotent_client(frequency_cap=ONE) as client:
                sends = [client.send_sms(ADA, "Hello", channel=channel) for channel in ("sms", "whatsapp")]
            return [send["skipped_frequency_cap"] for send in sends]

        with new_dag() as dag:
            remind()
        assert Run(task_runner, dag).run_try().result == [0, 1]
        assert count_messages(task_runner) == Counter(digits(1))


class TestOverTries:
    """A message counts from the try in which it may have left, and only the current try gives one back."""

    @pytest.mark.parametrize("keyed", [False, True])
    def test_replaced_try_releases_no_count(
        self, task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch, url: str, keyed: bool
    ) -> None:
        limit_batches(task_runner, 1)
        run = sms(task_runner, rows(3), frequency_cap=ONE, **({"idempotency_key": "spring"} if keyed else {}))

        async def replaced_meanwhile(request: Callable[[], Awaitable[Any]]) -> Any:
            run.clear()
            with open_database(url) as database:
                if keyed:
                    database.write(lambda one: one.execute(update(campaigns).values(owner="another", fencing_token=99)))
                # What the new try does before its requests leave.
                database.write(lambda one: one.execute(update(message_counts).values(counted_at=datetime.now(UTC))))
            return await request()

        around_requests(monkeypatch, replaced_meanwhile)
        replaced = run.run_try()
        assert "The other try continues from the journal" in replaced.error
        assert "2 recipients were not sent, and still count for the frequency cap" in replaced.log
        monkeypatch.undo()
        assert counted_messages(url) == 3

    def test_message_of_a_killed_try_counts_from_the_try_that_sends_it(
        self, task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch, url: str
    ) -> None:
        task_runner.sandbox.control("POST", "faults", dict(fault("send_sms", "rate_limit", retry_after=0)[2]))
        run = sms(task_runner, rows(2), frequency_cap=ONE)
        with monkeypatch.context() as killed:
            killed.setattr(MessageCounts, "release", lambda *_: None)
            assert run.run_try().state == "up_for_retry"
        clear_faults(task_runner)
        with open_database(url) as database:
            days_ago = datetime.now(UTC) - timedelta(days=5)
            database.write(lambda one: one.execute(update(message_counts).values(counted_at=days_ago)))
        assert counts(run.run_try().result) == {"sent": 2}
        done = sms(task_runner, rows(2), frequency_cap=(1, timedelta(days=4))).run_try()
        assert (done.state, done.report["frequency_capped"]) == ("skipped", 2)
        assert count_messages(task_runner) == Counter(digits(2))

    @pytest.mark.parametrize("operator", ["campaign", "single"])
    def test_database_that_fails_midway_leaves_no_recipient_counted(
        self, task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch, url: str, operator: str
    ) -> None:
        task_runner.connect("cpaas_default", recipients_per_request=1000)
        reserve, failing = MessageCounts._reserve, iter([False, True])

        def failing_then(*given: Any, **named: Any) -> Any:
            if next(failing):
                raise DatabaseError("It is gone.")
            return reserve(*given, **named)

        monkeypatch.setattr(MessageCounts, "_reserve", failing_then)
        recipients = [f"+{one}" for one in digits(600)]
        if operator == "single":
            failed = send(task_runner, recipients=recipients).run_try()
        else:
            failed = sms(task_runner, rows(600), frequency_cap=ONE).run_try()
        assert "The frequency cap could not be checked" in failed.error
        assert (all_requests(task_runner), counted_messages(url)) == (0, 0)


def counted_messages(url: str) -> int:
    with open_database(url) as database, database.connect() as connection:
        return int(connection.execute(select(func.count()).select_from(message_counts)).scalar_one())


@pytest.mark.parametrize(
    "given",
    [
        {"frequency_cap": 3},
        {"frequency_cap": (0, timedelta(days=1))},
        {"frequency_cap": (1, timedelta())},
        {"frequency_cap": (1, timedelta(days=91))},
        {"frequency_cap": (1.5, timedelta(days=1))},
        {"frequency_category": ""},
        {"frequency_category": 7},
    ],
)
@pytest.mark.parametrize("operator", [SmsCampaignOperator, EmailCampaignOperator, SendSmsOperator, SendEmailOperator])
def test_cap_that_cannot_work_is_refused_in_the_dag_file(operator: type, given: dict[str, Any]) -> None:
    whom = {"recipients": ["x"]} if operator in (SendSmsOperator, SendEmailOperator) else {"source": ["x"]}
    with pytest.raises(ValueError, match="frequency_"), new_dag():
        operator(task_id="send", content="Hello", **whom, **given)
