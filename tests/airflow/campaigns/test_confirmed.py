"""A campaign that a limit stopped and that a person confirms: what was confirmed is sent, and no recipient twice."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from cpaas_provider.operators.sms import SmsCampaignOperator
from cpaas_provider.sending.partitions import partitions
from tests.airflow.harness.campaigns import PRICE, count_messages, counts, digits, limit_batches, requests, rows, sms
from tests.airflow.harness.confirming import answer, expire, form, lose_process
from tests.airflow.harness.task_runner import TaskRunner, fault
from tests.airflow.harness.tries import Run, new_dag, scheduled_at

TASK = "campaign"


def asking(task_runner: TaskRunner, source: Any, **given: Any) -> Run:
    """Return a run of a campaign that asks, once it has stopped at its limit."""
    run = sms(task_runner, source, on_limit="ask", **given)
    stopped = run.run_try()
    assert (stopped.state, stopped.report) == ("awaiting_input", None), stopped.error
    return run


class TestMaxRecipients:
    def test_approved_campaign_is_sent_to_the_confirmed_recipients(self, task_runner: TaskRunner) -> None:
        run = asking(task_runner, rows(6), max_recipients=5, price_per_page=PRICE)
        assert requests(task_runner) == 0
        shown = form(run, TASK)
        assert "campaign stopped at max_recipients. Continue?" in shown
        for row in ("| Recipients | 6 |", "| Not sent | 6 |", "| Estimated charge of all | 24 |"):
            assert row in shown
        assert "continues with `max_recipients` 6." in shown
        done = answer(run, TASK, "Approve").run_try()
        assert (done.state, done.number, count_messages(task_runner)) == ("success", 1, Counter(digits(6))), done.error
        assert "max_recipients 5, confirmed: 6" in done.log

    def test_form_names_no_recipient_and_no_text(self, task_runner: TaskRunner) -> None:
        shown = form(asking(task_runner, rows(6), max_recipients=5), TASK)
        assert "Person" not in shown
        assert "Hello" not in shown
        assert "803" not in shown

    def test_more_recipients_than_confirmed_stop_again(self, task_runner: TaskRunner) -> None:
        run = asking(task_runner, rows(6), max_recipients=5)
        answer(run, TASK, "Approve")
        again = run.change(source=rows(7)).run_try()
        assert (again.state, requests(task_runner)) == ("failed", 0)
        assert "has 7 recipients, more than max_recipients (6)" in again.error
        # Airflow would show the form with 6 recipients once more.
        cleared = run.clear().run_try()
        assert (cleared.state, requests(task_runner)) == ("failed", 0)
        assert "cannot be confirmed in this run" in cleared.error
        assert run.change(max_recipients=7).clear().run_try().result["sent"] == 7

    def test_clear_asks_again_with_the_same_figures(self, task_runner: TaskRunner) -> None:
        run = asking(task_runner, rows(6), max_recipients=5)
        assert answer(run, TASK, "Reject").run_try().state == "failed"
        assert run.clear().run_try().state == "awaiting_input"
        assert "| Recipients | 6 |" in form(run, TASK)
        assert answer(run, TASK, "Approve").run_try().result["sent"] == 6

    @pytest.mark.parametrize(("option", "state", "sent"), [("Approve", "success", 6), ("Reject", "failed", 0)])
    def test_answer_counts_although_another_task_was_cleared_meanwhile(
        self, task_runner: TaskRunner, option: str, state: str, sent: int
    ) -> None:
        with new_dag() as dag:
            SmsCampaignOperator(task_id=TASK, source=rows(6), content="Hello", max_recipients=5, on_limit="ask")
            SmsCampaignOperator(task_id="other", source=rows(1), content="Hello")
        run = Run(task_runner, dag)
        assert run.run_try(TASK).state == "awaiting_input"
        run.clear("other")
        ended = answer(run, TASK, option).run_try(TASK)
        assert (ended.state, requests(task_runner) > 0, count_messages(task_runner).total()) == (state, sent > 0, sent)

    def test_approval_outlives_a_kill_although_another_task_was_cleared_before(self, task_runner: TaskRunner) -> None:
        limit_batches(task_runner)
        with new_dag() as dag:
            SmsCampaignOperator(task_id=TASK, source=rows(12), content="Hello", max_charge=4 * PRICE, on_limit="ask")
            SmsCampaignOperator(task_id="other", source=rows(1), content="Hello")
        run = Run(task_runner, dag)
        assert run.run_try(TASK).state == "awaiting_input"
        run.clear("other")
        answer(run, TASK, "Approve")
        task_runner.sandbox.control(*fault("send_sms", "rate_limit", after=3, retry_after=0))
        assert run.run_try(TASK).state == "up_for_retry"
        task_runner.sandbox.control("DELETE", "faults")
        assert run.run_try(TASK).state == "success"
        assert count_messages(task_runner) == Counter(digits(12))

    def test_fewer_recipients_than_confirmed_are_sent_to(self, task_runner: TaskRunner) -> None:
        run = asking(task_runner, rows(6), max_recipients=3)
        answer(run, TASK, "Approve")
        assert run.change(source=rows(5)).run_try().result["sent"] == 5

    @pytest.mark.parametrize("source", [6, 2], ids=["as it was", "within the limit now"])
    def test_rejected_campaign_fails_without_a_request(self, task_runner: TaskRunner, source: int) -> None:
        run = asking(task_runner, rows(6), max_recipients=5)
        answer(run, TASK, "Reject")
        failed = run.change(source=rows(source)).run_try()
        assert (failed.state, failed.report["not_sent"], requests(task_runner)) == ("failed", source, 0)
        assert "more than max_recipients (5)" in failed.error
        assert "asked to confirm it, and rejected it" in failed.error

    def test_campaign_without_an_answer_in_time_fails(self, task_runner: TaskRunner) -> None:
        run = asking(task_runner, rows(6), max_recipients=5, confirmation_timeout=60)
        assert "or no response within 0:01:00: " in form(run, TASK)
        failed = expire(run, TASK).run_try()
        assert (failed.state, requests(task_runner)) == ("failed", 0)
        assert "confirmation_timeout passed without a response" in failed.error

    def test_default_fails_at_once(self, task_runner: TaskRunner) -> None:
        assert sms(task_runner, rows(6), max_recipients=5).run_try().state == "failed"

    def test_on_limit_is_a_template(self, task_runner: TaskRunner) -> None:
        for word, state in (("ask", "awaiting_input"), ("fail", "failed"), ("", "failed")):
            run = sms(task_runner, rows(3), {"params": {"w": word}}, max_recipients=2, on_limit="{{ params.w }}")
            assert run.run_try().state == state

    def test_dry_run_does_not_ask(self, task_runner: TaskRunner) -> None:
        run = sms(task_runner, rows(3), max_recipients=2, on_limit="ask", dry_run=True)
        assert run.run_try().state == "failed"

    def test_backfill_does_not_ask_and_does_not_send(self, task_runner: TaskRunner) -> None:
        from airflow.sdk import timezone
        from airflow.utils.types import DagRunType

        options = scheduled_at(timezone.utcnow()) | {"run_type": DagRunType.BACKFILL_JOB}
        run = sms(task_runner, rows(3), None, options, max_recipients=2, on_limit="ask")
        skipped = run.run_try()
        assert (skipped.state, requests(task_runner)) == ("skipped", 0), skipped.error


class TestMaxCharge:
    def test_approved_campaign_sends_the_rest_within_the_confirmed_charge(self, task_runner: TaskRunner) -> None:
        limit_batches(task_runner)
        run = asking(task_runner, rows(10), max_charge=5 * PRICE + 1)
        shown = form(run, TASK)
        for row in (
            "| Sent | 5 |",
            "| Not sent | 5 |",
            "| Charge so far | 20 |",
            "| Estimated charge of the rest | 20 |",
        ):
            assert row in shown
        assert "continues with `max_charge` 40.00." in shown
        done = answer(run, TASK, "Approve").run_try()
        assert (done.state, count_messages(task_runner)) == ("success", Counter(digits(10))), done.error
        assert done.result["charge"] == 10 * PRICE

    def test_higher_price_than_confirmed_stops_again(self, task_runner: TaskRunner) -> None:
        limit_batches(task_runner)
        run = asking(task_runner, rows(20), max_charge=5 * PRICE)
        task_runner.sandbox.control("PUT", "prices", {"sms": 2 * PRICE})
        again = answer(run, TASK, "Approve").run_try()
        assert again.state == "failed"
        assert task_runner.sandbox.counters()["charged"] <= 20 * PRICE
        assert "max_charge (80) is reached" in again.error
        before = requests(task_runner)
        cleared = run.clear().run_try()
        assert (cleared.state, requests(task_runner)) == ("failed", before)
        assert "cannot be confirmed in this run" in cleared.error
        assert run.change(max_charge=1000).clear().run_try().state == "success"
        assert count_messages(task_runner) == Counter(digits(20))

    def test_rejected_campaign_sends_nothing_more(self, task_runner: TaskRunner) -> None:
        limit_batches(task_runner)
        # A retry without a confirmation would have enough left for the request that finds out the price.
        run = asking(task_runner, rows(10), max_charge=5 * PRICE + 1)
        failed = answer(run, TASK, "Reject").run_try()
        assert (failed.state, counts(failed.report)) == ("failed", {"sent": 5, "not_sent": 5})
        assert requests(task_runner) == 5

    def test_approval_outlives_a_kill_and_no_recipient_gets_it_twice(self, task_runner: TaskRunner) -> None:
        limit_batches(task_runner)
        run = asking(task_runner, rows(12), max_charge=4 * PRICE)
        answer(run, TASK, "Approve")
        task_runner.sandbox.control(*fault("send_sms", "rate_limit", after=3, retry_after=0))
        broken = run.run_try()
        assert broken.state == "up_for_retry"
        task_runner.sandbox.control("DELETE", "faults")
        done = run.run_try()
        assert (done.state, done.number) == ("success", 2), done.error
        assert count_messages(task_runner) == Counter(digits(12))

    def test_try_that_dies_before_the_answer_is_stored_asks_again(self, task_runner: TaskRunner) -> None:
        limit_batches(task_runner)
        run = asking(task_runner, rows(12), max_charge=4 * PRICE)
        lose_process(answer(run, TASK, "Approve"), TASK)
        asked = run.run_try()
        assert (asked.state, asked.number, requests(task_runner)) == ("awaiting_input", 2, 4)
        assert "| Sent | 4 |" in form(run, TASK)
        assert answer(run, TASK, "Approve").run_try().state == "success"
        assert count_messages(task_runner) == Counter(digits(12))

    def test_partition_confirms_its_share(self, task_runner: TaskRunner) -> None:
        limit_batches(task_runner)
        with new_dag() as dag:
            SmsCampaignOperator.partial(
                task_id=TASK, source=rows(16), content="Hello", max_charge=4 * PRICE, on_limit="ask"
            ).expand(partition=partitions(2))
        run = Run(task_runner, dag)
        states = []
        for index in (0, 1):
            assert run.run_try(TASK, index).state == "awaiting_input"
        for index in (0, 1):
            states.append(answer(run, TASK, "Approve", map_index=index).run_try(TASK, index).state)
        assert states == ["success", "success"]
        assert count_messages(task_runner) == Counter(digits(16))

    def test_limit_that_cannot_be_checked_fails(self, task_runner: TaskRunner) -> None:
        task_runner.sandbox.control(*fault("send_sms", "no_charge", balance="drop"))
        assert sms(task_runner, rows(10), max_charge=1000, on_limit="ask").run_try().state == "failed"


class TestMinBalance:
    def test_approved_campaign_uses_the_balance_down_to_the_confirmed_one(self, task_runner: TaskRunner) -> None:
        limit_batches(task_runner)
        task_runner.sandbox.control("PUT", "balance", {"balance": 60.0})
        run = asking(task_runner, rows(10), min_balance=40.0)
        assert "continues with `min_balance` 20.00." in form(run, TASK)
        done = answer(run, TASK, "Approve").run_try()
        assert (done.state, task_runner.sandbox.counters()["balance"]) == ("success", 20.0), done.error

    def test_balance_that_is_too_low_for_the_rest_cannot_be_confirmed(self, task_runner: TaskRunner) -> None:
        limit_batches(task_runner)
        task_runner.sandbox.control("PUT", "balance", {"balance": 60.0})
        failed = sms(task_runner, rows(40), min_balance=40.0, on_limit="ask").run_try()
        assert failed.state == "failed"
        assert "Top up the account" in failed.error


def test_campaign_that_waited_for_an_answer_is_not_late(task_runner: TaskRunner) -> None:
    run = asking(task_runner, rows(3), max_recipients=2, max_lateness=timedelta(hours=1))
    run.age(days=1)
    assert answer(run, TASK, "Approve").run_try().result["sent"] == 3
