"""The budget of a connection, over all tasks: what it allows, what counts, and what is and is not sent at its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cpaas_provider.api.errors import CpaasBudgetReachedError
from cpaas_provider.database.database import open_database
from cpaas_provider.hooks._account import budget
from cpaas_provider.hooks._account.options import BudgetOptions
from cpaas_provider.hooks.cpaas import CpaasHook
from cpaas_provider.operators.airtime import BuyAirtimeOperator
from cpaas_provider.operators.otp import RequestOtpOperator
from cpaas_provider.operators.sms import SendSmsOperator
from tests.airflow.harness.campaigns import (
    PRICE,
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
from tests.airflow.harness.tries import Run, new_dag
from tests.unit.database.conftest import postgres_url as postgres_url
from tests.unit.database.conftest import sqlite_url as sqlite_url
from tests.unit.database.conftest import url as url
from tests.waiting import until

LIMITS = BudgetOptions({"daily_budget": 1.0, "monthly_budget": 1.0}, "UTC", {})
ROOT = Path(__file__).parents[3]
ADA = f"+{digits(1)[0]}"


@pytest.fixture(autouse=True)
def database(airflow_db: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", url)
    forget_campaign_database()
    yield
    forget_campaign_database()


def spent(conn_id: str = "cpaas_default") -> dict[str, Decimal]:
    """Return what was spent, in the day and in the month."""
    with open_database() as opened, opened.connect() as connection:
        found = budget.read_budgets(connection, conn_id, LIMITS, datetime.now(UTC))
    return dict(zip(("day", "month"), (status.spent for status in found), strict=True))


def one_task(task_runner: TaskRunner, operator: Any, **given: Any) -> Run:
    with new_dag() as dag:
        operator(task_id="one", **given)
    return Run(task_runner, dag)


class TestCampaigns:
    def test_campaigns_of_all_dags_share_one_budget(self, task_runner: TaskRunner) -> None:
        limit_batches(task_runner, daily_budget=5 * PRICE, monthly_budget=1000)
        assert counts(sms(task_runner, rows(3)).run_try().result) == {"sent": 3}
        run = sms(task_runner, rows(4, 3))
        done = run.run_try()
        assert (done.state, done.number) == ("failed", 1)
        assert counts(done.report) == {"sent": 2, "not_sent": 2}
        assert "daily_budget (20) of connection 'cpaas_default' is reached: 20 is spent or reserved in" in done.error
        assert "This request would cost about 4." in done.error
        assert "4 recipients: 2 sent, 0 rejected, 0 unknown, 2 not sent" in done.error
        assert (spent()["day"], spent()["month"]) == (20, 20)
        limit_batches(task_runner, daily_budget=100)
        run.clear()
        assert counts(run.run_try().result) == {"sent": 4}

    def test_monthly_budget_holds_beside_a_larger_daily_one(self, task_runner: TaskRunner) -> None:
        limit_batches(task_runner, daily_budget=1000, monthly_budget=2 * PRICE)
        done = sms(task_runner, rows(4)).run_try()
        assert counts(done.report) == {"sent": 2, "not_sent": 2}
        assert "monthly_budget (8)" in done.error

    def test_log_has_one_warning_at_four_fifths(self, task_runner: TaskRunner) -> None:
        limit_batches(task_runner, daily_budget=10 * PRICE)
        logs = [sms(task_runner, rows(count, first)).run_try().log for count, first in ((7, 0), (2, 7), (1, 9))]
        assert [log.count("daily_budget (40) of connection 'cpaas_default' is reached to") for log in logs] == [0, 1, 0]
        assert "is reached to 80 % in" in logs[1]

    def test_metrics_have_what_is_spent_and_the_limit(
        self, task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        gauges: list[tuple[str, float, dict[str, str]]] = []

        def gauge(name: str, value: float, *_: Any, tags: dict[str, str], **__: Any) -> None:
            if name.startswith("cpaas.budget."):
                gauges.append((name, value, tags))

        monkeypatch.setattr("airflow.sdk.observability.stats.gauge", gauge)
        limit_batches(task_runner, daily_budget=10 * PRICE, monthly_budget=1000)
        assert sms(task_runner, rows(3)).run_try().state == "success"
        last = {(name, tags["budget"]): value for name, value, tags in gauges}
        assert {tags["conn_id"] for *_, tags in gauges} == {"cpaas_default"}
        assert last == {
            ("cpaas.budget.spent", "daily_budget"): 3 * PRICE,
            ("cpaas.budget.limit", "daily_budget"): 10 * PRICE,
            ("cpaas.budget.spent", "monthly_budget"): 3 * PRICE,
            ("cpaas.budget.limit", "monthly_budget"): 1000,
        }

    def test_request_that_was_not_sent_costs_nothing(self, task_runner: TaskRunner) -> None:
        limit_batches(task_runner, daily_budget=100, max_retries=0)
        task_runner.sandbox.control("POST", "faults", dict(fault("send_sms", "rate_limit", retry_after=0)[2]))
        assert sms(task_runner, rows(3)).run_try().state == "up_for_retry"
        assert spent()["day"] == 0

    def test_request_of_unknown_outcome_counts(self, task_runner: TaskRunner) -> None:
        limit_batches(task_runner, daily_budget=100, max_retries=0, timeout=0.3)
        assert counts(sms(task_runner, rows(1)).run_try().result) == {"sent": 1}
        task_runner.sandbox.control("POST", "faults", {**fault("send_sms", "error_500")[2], "times": 1})
        done = sms(task_runner, rows(2, 1)).run_try()
        assert counts(done.report) == {"sent": 1, "unknown_recipients": 1}
        assert spent()["day"] == 3 * Decimal(PRICE)

    def test_first_request_without_a_price_has_one_recipient(self, task_runner: TaskRunner) -> None:
        limit_batches(task_runner, 500, daily_budget=100, max_concurrency=4)
        run = sms(task_runner, rows(40))
        done = run.run_try()
        # One request of one recipient shows the price. The next one to the 39 others would cost 156.
        assert counts(done.report) == {"sent": 1, "not_sent": 39}
        assert "This request would cost about 156." in done.error
        assert (requests(task_runner), spent()["day"]) == (1, PRICE)
        limit_batches(task_runner, 500, daily_budget=160)
        run.clear()
        assert counts(run.run_try().result) == {"sent": 40}
        assert (requests(task_runner), spent()["day"]) == (2, 160)
        assert count_messages(task_runner) == Counter(digits(40))

    def test_price_on_the_connection_lets_the_first_request_have_all_recipients(self, task_runner: TaskRunner) -> None:
        limit_batches(task_runner, 500, daily_budget=160, price_per_message=PRICE)
        assert counts(sms(task_runner, rows(40)).run_try().result) == {"sent": 40}
        assert requests(task_runner) == 1

    def test_next_request_has_one_recipient_until_one_shows_the_price(self, task_runner: TaskRunner) -> None:
        reject_recipients(task_runner, digits(2))
        limit_batches(task_runner, 500, daily_budget=100, max_concurrency=4)
        done = sms(task_runner, rows(10), max_failure_ratio=0.5).run_try()
        assert counts(done.result) == {"sent": 8, "rejected": 2}
        # Two rejected ones, one that shows the price, and one to the seven others.
        assert (requests(task_runner), spent()["day"]) == (4, 8 * Decimal(PRICE))

    def test_message_without_a_named_charge_ends_the_campaign_and_names_the_option(
        self, task_runner: TaskRunner
    ) -> None:
        task_runner.sandbox.control(*fault("send_sms", "no_charge"))
        limit_batches(task_runner, daily_budget=100)
        run = sms(task_runner, rows(3))
        done = run.run_try()
        assert (done.state, counts(done.report)) == ("failed", {"sent": 1, "not_sent": 2})
        assert "The service names no charge of send_sms" in done.error
        assert "Set price_per_message on the connection" in done.error
        limit_batches(task_runner, daily_budget=100, price_per_message=5)
        run.clear()
        assert counts(run.run_try().result) == {"sent": 3}
        assert spent()["day"] == 10


class TestSingleRequests:
    def test_airtime_counts_its_amount(self, task_runner: TaskRunner) -> None:
        task_runner.connect("cpaas_default", daily_budget=150)
        buy = {"network": "MTN", "amount": 100, "recipient": ADA}
        assert one_task(task_runner, BuyAirtimeOperator, **buy).run_try().state == "success"
        done = one_task(task_runner, BuyAirtimeOperator, **buy).run_try()
        assert (done.state, requests(task_runner, "buy_airtime")) == ("failed", 1)
        assert "This request would cost about 100. Nothing was bought." in done.error
        assert "what is left" not in done.error

    def test_passcode_needs_a_price_and_counts_it(self, task_runner: TaskRunner) -> None:
        task_runner.connect("cpaas_default", daily_budget=5)
        done = one_task(task_runner, RequestOtpOperator, recipient=ADA).run_try()
        assert (done.state, requests(task_runner, "request_otp")) == ("failed", 0)
        assert "Set price_per_passcode on the connection" in done.error
        task_runner.connect("cpaas_default", daily_budget=5, price_per_passcode=3)
        assert one_task(task_runner, RequestOtpOperator, recipient=ADA).run_try().state == "success"
        assert one_task(task_runner, RequestOtpOperator, recipient=ADA).run_try().state == "failed"
        assert spent()["day"] == 3

    def test_message_to_several_recipients_needs_a_price(self, task_runner: TaskRunner) -> None:
        task_runner.connect("cpaas_default", daily_budget=100)
        send = {"recipients": [f"+{number}" for number in digits(3)], "content": "Hello"}
        run = one_task(task_runner, SendSmsOperator, **send)
        done = run.run_try()
        assert (done.state, requests(task_runner)) == ("failed", 0)
        assert "No price of send_sms is known yet" in done.error
        assert "Set price_per_message on the connection" in done.error
        assert spent()["day"] == 0
        task_runner.connect("cpaas_default", daily_budget=100, price_per_message=PRICE)
        run.clear()
        assert run.run_try().state == "success"
        assert (requests(task_runner), spent()["day"]) == (1, 3 * Decimal(PRICE))

    def test_message_to_several_recipients_is_sent_after_one_has_shown_the_price(self, task_runner: TaskRunner) -> None:
        task_runner.connect("cpaas_default", daily_budget=100)
        with CpaasHook().get_conn() as client:
            several = [f"+{number}" for number in digits(3)]
            with pytest.raises(CpaasBudgetReachedError, match="request to 3 recipients"):
                client.send_sms(several, sender_id="Shop", content="Hello")
            client.send_sms([ADA], sender_id="Shop", content="Hello")
            client.send_sms(several, sender_id="Shop", content="Hello")
        assert spent()["day"] == 4 * Decimal(PRICE)

    @pytest.mark.parametrize("kind", ["error_500_after", "cut_after"])
    def test_lookup_whose_answer_is_lost_counts_for_each_attempt(self, task_runner: TaskRunner, kind: str) -> None:
        task_runner.connect("cpaas_default", daily_budget=3, price_per_lookup=1, timeout=0.5)
        task_runner.sandbox.control("POST", "faults", {**fault("lookup_phone", kind)[2], "times": 1})
        with CpaasHook().get_conn() as client:
            client.lookup_phone(ADA)
            assert (requests(task_runner, "lookup_phone"), spent()["day"]) == (2, 2)
            task_runner.sandbox.control("POST", "faults", {**fault("lookup_phone", kind)[2], "times": 5})
            # The retry would exceed the budget.
            with pytest.raises(CpaasBudgetReachedError):
                client.lookup_phone(ADA)
        assert (requests(task_runner, "lookup_phone"), spent()["day"]) == (3, 3)

    def test_price_below_a_millionth_still_counts(self, task_runner: TaskRunner) -> None:
        task_runner.connect("cpaas_default", daily_budget=0.000002, price_per_lookup=0.0000004)
        with CpaasHook().get_conn() as client:
            for _ in range(2):
                client.lookup_phone(ADA)
            with pytest.raises(CpaasBudgetReachedError):
                client.lookup_phone(ADA)
        assert spent()["day"] == Decimal("0.000002")

    def test_charge_that_no_database_can_store_does_not_lose_the_result(self, task_runner: TaskRunner) -> None:
        task_runner.connect("cpaas_default", daily_budget=100)
        task_runner.sandbox.control(*fault("send_sms", "wrong_charge", charge=10**14))
        with CpaasHook().get_conn() as client:
            assert client.send_sms([ADA], sender_id="Shop", content="Hello")
        # The price is not known, so a request still has one recipient.
        assert requests(task_runner) == 1

    def test_lookups_of_a_hook_client_count_and_reads_are_free(self, task_runner: TaskRunner) -> None:
        task_runner.connect("cpaas_default", daily_budget=2, price_per_lookup=1)
        with CpaasHook().get_conn() as client:
            for _ in range(2):
                client.lookup_phone(ADA)
            with pytest.raises(CpaasBudgetReachedError):
                client.lookup_phone(ADA)
            assert client.get_contact_table().columns

    def test_lookup_needs_a_price(self, task_runner: TaskRunner) -> None:
        task_runner.connect("cpaas_default", daily_budget=5)
        with CpaasHook().get_conn() as client, pytest.raises(CpaasBudgetReachedError, match="Set price_per_lookup"):
            client.lookup_phone(ADA)
        assert requests(task_runner, "lookup_phone") == 0

    def test_budget_of_another_connection_is_another(self, task_runner: TaskRunner) -> None:
        for conn_id in ("one_budget", "other_budget"):
            task_runner.connect(conn_id, daily_budget=PRICE)
            send = {"recipients": [ADA], "content": "Hello", "cpaas_conn_id": conn_id}
            assert one_task(task_runner, SendSmsOperator, **send).run_try().state == "success"

    def test_unusable_database_prevents_sending(self, task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch) -> None:
        task_runner.connect("cpaas_default", daily_budget=PRICE)
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", "postgresql://nobody@127.0.0.1:1/none")
        send = {"recipients": [ADA], "content": "Hello", "use_suppression_list": False}
        done = one_task(task_runner, SendSmsOperator, **send).run_try()
        assert (done.state, requests(task_runner)) == ("up_for_retry", 0)
        assert "The budget of connection 'cpaas_default' could not be checked" in done.error


class TestProcesses:
    BUDGET = 20

    def start(self, task_runner: TaskRunner, url: str, *, count: int, processes: int = 1) -> subprocess.Popen[str]:
        sandbox = task_runner.sandbox
        module = "tests.airflow.account.spending"
        command = [sys.executable, "-m", module, str(processes), sandbox.url, sandbox.api_key]
        environment = {**os.environ, "AIRFLOW__CPAAS__DATABASE": url}
        given = [str(self.BUDGET * PRICE), str(count)]
        return subprocess.Popen([*command, *given], cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE)

    def test_ten_processes_at_once_do_not_exceed_the_budget(self, task_runner: TaskRunner, url: str) -> None:
        with open_database(url):
            pass
        started = self.start(task_runner, url, count=10, processes=10)
        lines = started.communicate(timeout=120)[0].splitlines()
        # The other lines are logs.
        sent = [int(line) for line in lines if line.isdecimal()]
        assert (started.returncode, len(sent)) == (0, 10)
        accepted = sum(sent)
        # Every request costs the same, so that nothing exceeds the budget. It is used up.
        assert accepted == requests(task_runner) == self.BUDGET
        assert task_runner.sandbox.counters()["charged"] == self.BUDGET * PRICE
        assert spent("busy")["day"] == Decimal(self.BUDGET * PRICE)

    def test_kill_between_reservation_and_settlement_counts_the_request_once(
        self, task_runner: TaskRunner, url: str
    ) -> None:
        with open_database(url):
            pass
        first = self.start(task_runner, url, count=3)
        assert first.communicate(timeout=120)[0].split()[-1] == "3"
        task_runner.sandbox.control("POST", "faults", {"operation": "send_sms", "kind": "latency", "ms": 20_000})
        killed = self.start(task_runner, url, count=1)
        until(lambda: spent("busy")["day"] == 4 * Decimal(PRICE))
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
        task_runner.sandbox.control("DELETE", "faults")
        # The reservation of the killed process stays, once.
        assert spent("busy")["day"] == 4 * Decimal(PRICE)
        last = self.start(task_runner, url, count=self.BUDGET)
        assert last.communicate(timeout=120)[0].split()[-1] == str(self.BUDGET - 4)
        assert spent("busy")["day"] == Decimal(self.BUDGET * PRICE)
