"""``airflow cpaas stop``: no further request leaves from any task, client or notifier, and tasks end in good order."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import BaseOperator, task
from sqlalchemy import select

from cpaas_provider.api.client import AsyncCpaasClient
from cpaas_provider.api.errors import CpaasConnectionStoppedError, CpaasNotSentError
from cpaas_provider.database.activity.stops import StopTable
from cpaas_provider.database.database import open_database
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.database.schema.alerts import notifications
from cpaas_provider.hooks._account import guard, stops
from cpaas_provider.hooks.cpaas import CpaasHook
from cpaas_provider.notifications import SmsNotifier
from cpaas_provider.operators.airtime import BuyAirtimeOperator
from cpaas_provider.operators.lookup import BulkPhoneLookupOperator
from cpaas_provider.operators.otp import RequestOtpOperator
from cpaas_provider.operators.sms import SendSmsOperator
from tests.airflow.contacts.test_sync import people, sync
from tests.airflow.harness.campaigns import (
    all_requests,
    around_requests,
    count_messages,
    counts,
    digits,
    limit_batches,
    requests,
    rows,
    sms,
)
from tests.airflow.harness.task_runner import TaskRunner, fault, forget_campaign_database
from tests.airflow.harness.tries import Run, new_dag
from tests.airflow.notifications.conftest import QUICK
from tests.unit.database.conftest import postgres_url as postgres_url
from tests.unit.database.conftest import sqlite_url as sqlite_url
from tests.unit.database.conftest import url as url

ADA = f"+{digits(1)[0]}"
WHO = "ada stopped connection 'cpaas_default' at "
WHY = "UTC: the text is wrong."
WAY_OUT = "airflow cpaas resume --conn-id cpaas_default"


@pytest.fixture(autouse=True)
def database(airflow_db: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", url)
    # So that a test need not wait until a process reads the stop.
    monkeypatch.setattr(guard, "INTERVAL", 0)
    forget_campaign_database()
    yield
    forget_campaign_database()


def stop(conn_id: str = "cpaas_default") -> None:
    with open_database() as opened:
        StopTable(opened).stop(conn_id, "ada", "the text is wrong")


def resume(conn_id: str = "cpaas_default") -> None:
    with open_database() as opened:
        assert StopTable(opened).resume(conn_id)


def one_task(task_runner: TaskRunner, operator: Any, **given: Any) -> Run:
    with new_dag() as dag:
        operator(task_id="one", **given)
    return Run(task_runner, dag)


def run_of(task_runner: TaskRunner, function: Callable[..., Any]) -> Run:
    with new_dag() as dag:
        task(task_id="own")(function)()
    return Run(task_runner, dag)


@pytest.fixture
def stop_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Stop the connection after so many requests of a campaign."""

    def after(number: int) -> None:
        made = 0

        async def around(request: Callable[[], Awaitable[Any]]) -> Any:
            nonlocal made
            made += 1
            if made == number + 1:
                await asyncio.to_thread(stop)
            return await request()

        around_requests(monkeypatch, around)

    return after


class TestCampaigns:
    def test_stop_in_the_middle_fails_without_a_retry_and_a_clear_sends_the_rest_once(
        self, task_runner: TaskRunner, stop_at: Callable[[int], None]
    ) -> None:
        limit_batches(task_runner)
        stop_at(3)
        run = sms(task_runner, rows(8))
        done = run.run_try()
        assert (done.state, done.number) == ("failed", 1)
        assert counts(done.report) == {"sent": 3, "not_sent": 5}
        assert requests(task_runner) == 3
        assert WHO in done.error
        assert WHY in done.error
        assert WAY_OUT in done.error
        assert "8 recipients: 3 sent, 0 rejected, 0 unknown, 5 not sent" in done.error
        assert ADA[1:] not in done.error
        # Somebody clears too early: nothing leaves.
        run.clear()
        assert (run.run_try().state, requests(task_runner)) == ("failed", 3)
        resume()
        run.clear()
        assert counts(run.run_try().result) == {"sent": 8}
        assert count_messages(task_runner) == Counter(digits(8))

    def test_stop_while_a_task_is_deferred_lets_it_send_nothing(self, task_runner: TaskRunner) -> None:
        limit_batches(task_runner)
        task_runner.sandbox.control(
            "POST", "faults", {**fault("send_sms", "rate_limit", retry_after=600)[2], "times": 1}
        )
        run = sms(task_runner, rows(3))
        assert (run.run_try().state, requests(task_runner)) == ("deferred", 1)
        stop()
        run.fire_trigger(early=True)
        assert (run.run_try().state, requests(task_runner)) == ("failed", 1)
        resume()
        run.clear()
        assert counts(run.run_try().result) == {"sent": 3}

    def test_stop_during_the_pause_before_a_retry_of_the_client_prevents_the_retry(
        self, task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        usual = AsyncCpaasClient._sleep

        async def sleep(client: AsyncCpaasClient, seconds: float) -> None:
            if requests(task_runner):
                await asyncio.to_thread(stop)
            await usual(client, seconds)

        monkeypatch.setattr(AsyncCpaasClient, "_sleep", sleep)
        task_runner.sandbox.control("POST", "faults", {**fault("send_sms", "rate_limit", retry_after=1)[2], "times": 1})
        run = one_task(task_runner, SendSmsOperator, recipients=[ADA], content="Hello")
        assert (run.run_try().state, requests(task_runner)) == ("failed", 1)

    def test_requests_in_flight_are_recorded_as_accepted(
        self, task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        limit_batches(task_runner, max_concurrency=4)
        arrived: list[None] = []

        async def around(request: Callable[[], Awaitable[Any]]) -> Any:
            arrived.append(None)
            position = len(arrived)
            response = await request()
            if position == 1:
                # The service has answered, and the journal does not know yet.
                await asyncio.to_thread(stop)
            return response

        around_requests(monkeypatch, around)
        run = sms(task_runner, rows(40))
        done = run.run_try()
        sent = count_messages(task_runner)
        assert done.state == "failed"
        assert done.report["sent"] == len(sent) < 40
        assert done.report["sent"] + done.report["not_sent"] == 40
        resume()
        run.clear()
        again = run.run_try()
        assert again.state == "success", again.error
        assert counts(again.result) == {"sent": 40}
        assert count_messages(task_runner) == Counter(digits(40))

    def test_lookup_of_a_stopped_connection_is_no_failed_lookup(self, task_runner: TaskRunner) -> None:
        stop()
        run = sms(task_runner, rows(3), skip_dnd=True)
        done = run.run_try()
        assert (done.state, counts(done.report), all_requests(task_runner)) == ("failed", {"not_sent": 3}, 0)
        resume()
        run.clear()
        assert counts(run.run_try().result) == {"sent": 3}

    def test_stop_of_another_connection_stops_nothing(self, task_runner: TaskRunner) -> None:
        stop("other")
        assert sms(task_runner, rows(2)).run_try().state == "success"

    def test_name_of_the_connection_has_no_regard_to_case(self, task_runner: TaskRunner) -> None:
        stop("CPAAS_Default")
        assert sms(task_runner, rows(2)).run_try().state == "failed"

    def test_accepted_campaign_succeeds_while_stopped(self, task_runner: TaskRunner) -> None:
        run = sms(task_runner, rows(2))
        assert run.run_try().state == "success"
        stop()
        run.clear()
        assert counts(run.run_try().result) == {"sent": 2}


class TestOtherRequests:
    @pytest.mark.parametrize(
        ("operator", "given"),
        [
            (SendSmsOperator, {"recipients": [ADA], "content": "Hello"}),
            (RequestOtpOperator, {"recipient": ADA}),
            (BuyAirtimeOperator, {"recipient": ADA, "network": "MTN", "amount": 100}),
        ],
        ids=["sms", "otp", "airtime"],
    )
    def test_single_request_is_not_sent_and_a_clear_sends_it_once(
        self, task_runner: TaskRunner, operator: Any, given: dict[str, Any]
    ) -> None:
        stop()
        run = one_task(task_runner, operator, **given)
        done = run.run_try()
        assert (done.state, done.number) == ("failed", 1)
        # A passcode's records are listed before, which is a read.
        assert not {"send_sms", "request_otp", "buy_airtime"} & task_runner.sandbox.counters()["requests"].keys()
        assert WHO in done.error
        assert {request["state"] for request in run.journal().values()} <= {"not_sent"}
        resume()
        run.clear()
        assert run.run_try().state == "success"

    def test_reads_of_a_hook_client_still_work_and_sends_do_not(self, task_runner: TaskRunner) -> None:
        stop()
        with CpaasHook().get_conn() as client:
            assert client.get_contact_table().columns
            with pytest.raises(CpaasConnectionStoppedError, match=WAY_OUT) as raised:
                client.send_sms([ADA], content="Hello", sender_id="Shop")
            with pytest.raises(CpaasConnectionStoppedError):
                client.lookup_phone(ADA)
            with pytest.raises(CpaasConnectionStoppedError):
                client.create_contact_row({"any": "Ada"})
        assert raised.value.is_permanent
        assert set(task_runner.sandbox.counters()["requests"]) == {"get_contact_table"}

    def test_idempotent_client_fails_the_task_without_a_retry(self, task_runner: TaskRunner) -> None:
        def own() -> None:
            with CpaasHook().get_idempotent_client() as client:
                for number, phone in enumerate(digits(3)):
                    if number == 2:
                        stop()
                    client.send_sms(f"+{phone}", "Hello")

        run = run_of(task_runner, own)
        done = run.run_try()
        assert (done.state, done.number, requests(task_runner)) == ("failed", 1, 2)
        assert WHO in done.error

    def test_notifier_keeps_its_alert_for_the_next_notification(
        self, task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from cpaas_provider.notifications._runtime import background, run

        monkeypatch.setattr(run, "TIMING", QUICK)
        monkeypatch.setattr(background, "TIMING", QUICK)

        class Fails(BaseOperator):
            def execute(self, context: Any) -> None:
                raise ConnectionError("broken")

        stop()
        with new_dag(default_args={"retries": 0}) as dag:
            Fails(task_id="load", on_failure_callback=SmsNotifier(recipients=ADA))
        done = Run(task_runner, dag).run_try()
        assert requests(task_runner) == 0
        assert "Notification not sent, alerts: 1." in done.log
        with open_database() as opened, opened.connect() as connection:
            assert connection.execute(select(notifications.c.alerts)).scalar_one() == 1

    def test_contact_sync_ends_at_once_and_a_clear_creates_each_row_once(self, task_runner: TaskRunner) -> None:
        stop()
        run = sync(task_runner, people(30), "stopped")
        done = run.run_try()
        assert (done.state, done.number) == ("failed", 1)
        assert WHO in done.error
        assert "In all tries of this run 0 rows were created" in done.error
        assert "The list does not equal the source: ended early, 14 remaining, 16 not sent." in done.error
        assert "create_contact_row" not in task_runner.sandbox.counters()["requests"]
        resume()
        run.clear()
        again = run.run_try()
        assert (again.state, again.result["created"], again.result["unknown"]) == ("success", 30, 0)

    def test_bulk_lookup_ends_and_says_what_was_looked_up(self, task_runner: TaskRunner, tmp_path: Path) -> None:
        stop()
        source = [{"phone": f"+{number}"} for number in digits(3)]
        results = str(tmp_path / "found.jsonl")
        done = one_task(task_runner, BulkPhoneLookupOperator, source=source, results_path=results).run_try()
        assert (done.state, done.number, all_requests(task_runner)) == ("failed", 1, 0)
        assert "So far: 3 rows, 0 found" in done.error


class TestDatabase:
    def test_unreadable_database_prevents_sending_and_leaves_a_retry(
        self, task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", "postgresql://nobody@127.0.0.1:1/none")
        run = one_task(task_runner, SendSmsOperator, recipients=[ADA], content="Hello", use_suppression_list=False)
        done = run.run_try()
        assert (done.state, all_requests(task_runner)) == ("up_for_retry", 0)
        assert "No request leaves, because stops cannot be read from the database" in done.error
        assert "Nothing more was sent, also with use_suppression_list=False." in done.error
        assert "Make the database readable, see `airflow cpaas doctor`, or correct [cpaas] database." in done.error

    def test_machine_without_any_database_is_not_held_up(
        self, task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.delenv("AIRFLOW__CPAAS__DATABASE")
        monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
        with CpaasHook().get_conn() as client:
            for _ in range(2):
                client.send_sms([ADA], content="Hello", sender_id="Shop")
        assert requests(task_runner) == 2
        assert not (tmp_path / "cpaas").exists()

    def test_alert_is_sent_although_the_database_is_unreadable(
        self, task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", "postgresql://nobody@127.0.0.1:1/none")
        with CpaasHook().get_connection_settings().make_client(needs_database=False) as client:
            client.send_sms([ADA], content="The database is down", sender_id="Shop")
        assert requests(task_runner) == 1

    def test_last_state_counts_for_ten_seconds_while_the_database_cannot_be_read(
        self, task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = time.monotonic()
        monkeypatch.setattr(guard.time, "monotonic", lambda: now)
        known = stops.find_stop
        with CpaasHook().get_conn() as client:
            client.send_sms([ADA], content="1", sender_id="Shop")

            def broken(*_: Any) -> None:
                raise DatabaseError("The server is down.")

            monkeypatch.setattr(stops, "find_stop", broken)
            now += 10
            client.send_sms([ADA], content="2", sender_id="Shop")
            now += 0.1
            with pytest.raises(CpaasNotSentError, match=r"read from the database: The server is down\. "):
                client.send_sms([ADA], content="3", sender_id="Shop")
            monkeypatch.setattr(stops, "find_stop", known)
            now += 0.1
            client.send_sms([ADA], content="4", sender_id="Shop")
        assert requests(task_runner) == 3

    def test_state_is_read_once_an_interval_for_all_clients_of_a_process(
        self, task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(guard, "INTERVAL", 60)
        known, reads = stops.find_stop, list[str]()

        def counting(conn_id: str, *given: Any) -> Any:
            reads.append(conn_id)
            return known(conn_id, *given)

        monkeypatch.setattr(stops, "find_stop", counting)
        for _ in range(2):
            with CpaasHook().get_conn() as client:
                for _ in range(3):
                    client.send_sms([ADA], content="Hello", sender_id="Shop")
        assert reads == ["cpaas_default"]

    def test_client_that_only_reads_does_not_touch_the_database(
        self, task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", "postgresql://nobody@127.0.0.1:1/none")
        with CpaasHook().get_conn() as client:
            assert client.get_contact_table().columns
