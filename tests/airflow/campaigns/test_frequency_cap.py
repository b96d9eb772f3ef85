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
    accept_all,
    all_requests,
    around_requests,
    counts,
    digits,
    lines,
    reached,
    refuse,
    rows,
    small_packs,
    sms,
)
from tests.airflow.harness.stage import Stage, fault, forget_campaign_database
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


def send(stage: Stage, operator: type = SendSmsOperator, **given: Any) -> Run:
    """Return a run of one single send."""
    with new_dag() as dag:
        operator(task_id="send", **{"content": "Hello", "frequency_cap": ONE, **given})
    return Run(stage, dag)


class TestCampaigns:
    def test_second_campaign_leaves_out_recipients_of_the_first(self, stage: Stage, tmp_path: Path) -> None:
        assert counts(sms(stage, rows(3), frequency_cap=ONE).once().result) == {"sent": 3}
        results = tmp_path / "results.jsonl"
        done = sms(stage, rows(5), frequency_cap=ONE, results_path=str(results)).once()
        assert (done.result["sent"], done.result["frequency_capped"]) == (2, 3)
        assert reached(stage) == Counter(digits(5))
        assert Counter(line["outcome"] for line in lines(results)) == {"sent": 2, "frequency_capped": 3}
        assert "3 at the frequency cap" in done.log

    def test_campaign_of_another_category_reaches_them(self, stage: Stage) -> None:
        sms(stage, rows(2), frequency_cap=ONE, frequency_category="offers").once()
        done = sms(stage, rows(2), frequency_cap=ONE, frequency_category="news").once()
        assert counts(done.result) == {"sent": 2}

    def test_category_without_a_cap_counts_and_limits_nothing(self, stage: Stage) -> None:
        for _ in range(2):
            assert counts(sms(stage, rows(2), frequency_category="offers").once().result) == {"sent": 2}
        done = sms(stage, rows(2), frequency_category="offers", frequency_cap=(2, timedelta(days=1))).once()
        assert (done.state, done.report["frequency_capped"]) == ("skipped", 2)

    def test_retry_does_not_count_again(self, stage: Stage) -> None:
        small_packs(stage, 2)
        stage.sandbox.control("POST", "faults", {**fault("send_sms", "rate_limit", retry_after=0)[2], "after": 1})
        run = sms(stage, rows(6), frequency_cap=ONE)
        assert run.once().state == "up_for_retry"
        accept_all(stage)
        assert counts(run.once().result) == {"sent": 6}
        run.clear()
        assert counts(run.once().result) == {"sent": 6}
        assert reached(stage) == Counter(digits(6))

    def test_recipients_that_were_not_sent_to_are_given_back(self, stage: Stage) -> None:
        stage.sandbox.control("POST", "faults", dict(fault("send_sms", "rate_limit", retry_after=0)[2]))
        assert sms(stage, rows(3), frequency_cap=ONE).once().state == "up_for_retry"
        accept_all(stage)
        assert counts(sms(stage, rows(3), frequency_cap=ONE).once().result) == {"sent": 3}

    @pytest.mark.parametrize("named", [True, False])
    def test_rejected_recipients_are_given_back_and_others_of_the_batch_are_not(
        self, stage: Stage, named: bool
    ) -> None:
        refuse(stage, digits(2), named=named)
        first = sms(stage, rows(5), frequency_cap=ONE, max_failure_ratio=1.0).once()
        assert counts(first.result) == {"sent": 3, "rejected": 2}
        second = sms(stage, rows(5), frequency_cap=ONE, max_failure_ratio=1.0).once()
        assert (second.result["rejected"], second.result["frequency_capped"]) == (2, 3)
        assert reached(stage) == Counter(digits(5)[2:])

    def test_recipients_of_unknown_outcome_stay_counted(self, stage: Stage) -> None:
        stage.sandbox.control("POST", "faults", {**fault("send_sms", "cut_after")[2], "times": 1})
        first = sms(stage, rows(3), frequency_cap=ONE, on_unknown="skip").once()
        assert counts(first.result) == {"unknown_recipients": 3}
        second = sms(stage, rows(3), frequency_cap=ONE).once()
        assert (second.state, second.report["frequency_capped"]) == ("skipped", 3)

    def test_resend_of_an_unknown_request_counts_once(self, stage: Stage) -> None:
        stage.sandbox.control("POST", "faults", {**fault("send_sms", "cut_before")[2], "times": 1})
        done = sms(stage, rows(3), frequency_cap=ONE, on_unknown="resend").once()
        assert counts(done.result) == {"sent": 3}

    def test_campaign_ended_by_a_guard_gives_the_rest_back(self, stage: Stage) -> None:
        small_packs(stage, 2)
        first = sms(stage, rows(10), frequency_cap=ONE, max_charge=16, price_per_page=4).once()
        assert (first.state, counts(first.report)) == ("failed", {"sent": 4, "not_sent": 6})
        second = sms(stage, rows(10), frequency_cap=ONE).once()
        assert (second.result["sent"], second.result["frequency_capped"]) == (6, 4)
        assert reached(stage) == Counter(digits(10))

    def test_worker_with_another_database_sends_nothing(
        self, stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert sms(stage, rows(2), frequency_cap=ONE).once().state == "success"
        sent = all_requests(stage)
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{tmp_path}/another.db")
        done = sms(stage, rows(2), frequency_cap=ONE).once()
        assert (done.state, all_requests(stage)) == ("failed", sent)
        assert "Another database stores" in done.error


class TestSingleSends:
    def test_recipients_at_the_cap_are_left_out_and_counted(self, stage: Stage) -> None:
        sms(stage, rows(1), frequency_cap=ONE).once()
        done = send(stage, recipients=[ADA, BEN]).once()
        assert (done.result["recipients"], done.result["skipped_frequency_cap"]) == (1, 1)
        again = send(stage, recipients=[ADA, BEN]).once()
        assert (again.state, reached(stage)) == ("skipped", Counter(digits(2)))
        assert "All recipients are at the frequency cap. Nothing was sent." in again.log

    def test_address_is_one_recipient_in_whatever_capitals(self, stage: Stage) -> None:
        assert send(stage, SendEmailOperator, recipients=["Ada@example.com"]).once().state == "success"
        assert send(stage, SendEmailOperator, recipients=["ada@example.com"]).once().state == "skipped"

    def test_retry_and_clear_do_not_count_again(self, stage: Stage) -> None:
        stage.sandbox.control("POST", "faults", dict(fault("send_sms", "rate_limit", retry_after=0)[2]))
        run = send(stage, recipients=[ADA])
        assert run.once().state == "up_for_retry"
        accept_all(stage)
        assert run.once().state == "success"
        run.clear()
        assert (run.once().state, reached(stage)) == ("success", Counter(digits(1)))

    @pytest.mark.parametrize("kind", ["rate_limit", "unavailable"])
    def test_recipient_that_was_not_sent_to_is_given_back(self, stage: Stage, kind: str) -> None:
        stage.sandbox.control("POST", "faults", dict(fault("send_sms", kind, retry_after=0)[2]))
        assert send(stage, recipients=[ADA]).once().state == "up_for_retry"
        accept_all(stage)
        assert send(stage, recipients=[ADA]).once().state == "success"

    def test_recipient_of_unknown_outcome_stays_counted(self, stage: Stage) -> None:
        stage.sandbox.control("POST", "faults", {**fault("send_sms", "cut_after")[2], "times": 1})
        assert send(stage, recipients=[ADA]).once().state == "failed"
        assert send(stage, recipients=[ADA]).once().state == "skipped"

    def test_idempotent_client_counts_each_send_once(self, stage: Stage) -> None:
        @task
        def remind() -> list[int]:
            with CpaasHook().get_idempotent_client(frequency_cap=ONE) as client:
                sends = [client.send_sms(ADA, "Hello"), client.send_sms(ADA, "Hello")]
                sends.append(client.send_sms(ADA, "Hello", idempotency_key="again"))
            return [one["skipped_frequency_cap"] for one in sends]

        with new_dag() as dag:
            remind()
        assert Run(stage, dag).once().result == [0, 0, 1]
        assert reached(stage) == Counter(digits(1))


class TestOverTries:
    """A message counts from the try in which it may have left, and only the current try gives one back."""

    @pytest.mark.parametrize("keyed", [False, True])
    def test_replaced_try_gives_nothing_back(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch, url: str, keyed: bool
    ) -> None:
        small_packs(stage, 1)
        run = sms(stage, rows(3), frequency_cap=ONE, **({"idempotency_key": "spring"} if keyed else {}))

        async def replaced_meanwhile(request: Callable[[], Awaitable[Any]]) -> Any:
            run.clear()
            with open_database(url) as database:
                if keyed:
                    database.write(lambda one: one.execute(update(campaigns).values(owner="another", fencing_token=99)))
                # What the new try does before its requests leave.
                database.write(lambda one: one.execute(update(message_counts).values(counted_at=datetime.now(UTC))))
            return await request()

        around_requests(monkeypatch, replaced_meanwhile)
        replaced = run.once()
        assert "The other try continues from the journal" in replaced.error
        assert "2 recipients were not sent, and still count for the frequency cap" in replaced.log
        monkeypatch.undo()
        assert counted_messages(url) == 3

    def test_message_of_a_killed_try_counts_from_the_try_that_sends_it(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch, url: str
    ) -> None:
        stage.sandbox.control("POST", "faults", dict(fault("send_sms", "rate_limit", retry_after=0)[2]))
        run = sms(stage, rows(2), frequency_cap=ONE)
        with monkeypatch.context() as killed:
            killed.setattr(MessageCounts, "release", lambda *_: None)
            assert run.once().state == "up_for_retry"
        accept_all(stage)
        with open_database(url) as database:
            days_ago = datetime.now(UTC) - timedelta(days=5)
            database.write(lambda one: one.execute(update(message_counts).values(counted_at=days_ago)))
        assert counts(run.once().result) == {"sent": 2}
        done = sms(stage, rows(2), frequency_cap=(1, timedelta(days=4))).once()
        assert (done.state, done.report["frequency_capped"]) == ("skipped", 2)
        assert reached(stage) == Counter(digits(2))

    @pytest.mark.parametrize("operator", ["campaign", "single"])
    def test_database_that_fails_in_the_middle_leaves_nobody_counted(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch, url: str, operator: str
    ) -> None:
        stage.connect("cpaas_default", recipients_per_request=1000)
        reserve, failing = MessageCounts._reserve, iter([False, True])

        def failing_then(*given: Any, **named: Any) -> Any:
            if next(failing):
                raise DatabaseError("It is gone.")
            return reserve(*given, **named)

        monkeypatch.setattr(MessageCounts, "_reserve", failing_then)
        recipients = [f"+{one}" for one in digits(600)]
        if operator == "single":
            failed = send(stage, recipients=recipients).once()
        else:
            failed = sms(stage, rows(600), frequency_cap=ONE).once()
        assert "The frequency cap could not be checked" in failed.error
        assert (all_requests(stage), counted_messages(url)) == (0, 0)


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
