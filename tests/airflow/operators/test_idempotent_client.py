"""The idempotent client in custom tasks: what a retry sends, and what it returns without a request."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import task
from airflow.sdk.exceptions import AirflowException
from airflow.utils.types import DagRunType

from cpaas_provider.hooks.cpaas import CpaasHook
from cpaas_provider.sending.journal import writer
from cpaas_provider.sending.journal.journal import Journal
from cpaas_provider.sending.requests.probes import OtpRecordProbe
from cpaas_provider.tasks.airflow.store import TaskStateStore
from cpaas_provider.tasks.idempotent_client import AsyncIdempotentClient
from tests.airflow.harness.task_runner import TaskRunner, fault, phone
from tests.airflow.harness.tries import Run, Try, new_dag

RECIPIENTS = [f"+23480351{number:05d}" for number in range(10)]


def run_of(task_runner: TaskRunner, function: Callable[..., Any], **run: Any) -> Run:
    """Return a run of one task that calls a function."""
    with new_dag() as dag:
        task(task_id="own")(function)()
    return Run(task_runner, dag, **run)


def sent(task_runner: TaskRunner) -> list[str]:
    """Return who was sent an SMS, in order."""
    return [one["recipient"] for one in task_runner.sandbox.inbox("sms")["items"]][::-1]


def requests(task_runner: TaskRunner, operation: str = "send_sms") -> int:
    return int(task_runner.sandbox.counters()["requests"].get(operation, 0))


def without_plus(recipients: list[str]) -> list[str]:
    return [one.removeprefix("+") for one in recipients]


class TestLoop:
    def test_retry_after_a_failure_in_the_loop_sends_only_remaining_recipients(self, task_runner: TaskRunner) -> None:
        tries: list[list[dict[str, Any]]] = []

        def own() -> list[Any]:
            results: list[dict[str, Any]] = []
            tries.append(results)
            with CpaasHook().get_idempotent_client() as client:
                for number, recipient in enumerate(RECIPIENTS):
                    if number == 5 and len(tries) == 1:
                        raise RuntimeError("the task dies after five sends")
                    results.append(client.send_sms(recipient, "Your parcel is here"))
            return [one["id"] for one in results]

        first, second = run_of(task_runner, own).run_to_end()
        assert (first.state, second.state) == ("up_for_retry", "success")
        assert (sorted(sent(task_runner)), requests(task_runner)) == (without_plus(RECIPIENTS), 10)
        assert tries[1][:5] == tries[0]
        assert len(set(second.result)) == 10

    def test_message_by_another_channel_is_another_message(self, task_runner: TaskRunner) -> None:
        tries: list[str] = []

        def own() -> list[Any]:
            with CpaasHook().get_idempotent_client() as client:
                tries.append(client.send_sms(RECIPIENTS[0], "Your parcel is here")["id"])
                if len(tries) == 1:
                    raise RuntimeError("the task dies before it sends by WhatsApp")
                return [client.send_sms(RECIPIENTS[0], "Your parcel is here", channel="whatsapp")["id"]]

        first, second = run_of(task_runner, own).run_to_end()
        assert (first.state, second.state, requests(task_runner)) == ("up_for_retry", "success", 2)
        assert tries[0] == tries[1] != second.result[0]

    def test_order_and_batches_of_a_later_try_do_not_matter(self, task_runner: TaskRunner) -> None:
        tries: list[int] = []

        def own() -> None:
            tries.append(1)
            with CpaasHook().get_idempotent_client() as client:
                if len(tries) == 1:
                    client.send_sms(RECIPIENTS[:3], "Hello")
                    raise RuntimeError("the task dies")
                found = client.send_sms(list(reversed(RECIPIENTS[2:5])), "Hello")
                assert found["recipients"] == 3

        assert run_of(task_runner, own).run_to_end()[-1].state == "success"
        assert sorted(sent(task_runner)) == without_plus(RECIPIENTS[:5])

    def test_same_recipient_and_content_again_sends_nothing_and_returns_the_first_result(
        self, task_runner: TaskRunner
    ) -> None:
        def own() -> bool:
            with CpaasHook().get_idempotent_client() as client:
                results = [client.send_sms(RECIPIENTS[0], "Hello") for _ in range(3)]
            return results[0] == results[1] == results[2]

        assert run_of(task_runner, own).run_try().result is True
        assert requests(task_runner) == 1

    @pytest.mark.parametrize(
        ("given", "reason"),
        [
            ({"content": "your code is {code}"}, "no value of a placeholder (code)"),
            ({"content": "None"}, "content is the word 'None'"),
            ({"content": " "}, "content is empty"),
            ({"content": "Hello", "sender_id": ""}, "sender_id is empty"),
            ({"content": "Hello", "external_ref": "nan"}, "external_ref is the word 'nan'"),
            ({"content": "Hello", "idempotency_key": "None"}, "idempotency_key must be text with a value"),
        ],
    )
    def test_text_without_a_value_is_refused_before_it_is_sent(
        self, task_runner: TaskRunner, given: dict[str, Any], reason: str
    ) -> None:
        def own() -> None:
            with CpaasHook().get_idempotent_client() as client:
                client.send_sms(RECIPIENTS[0], **given)

        failed = run_of(task_runner, own).run_try()
        assert (failed.state != "success", requests(task_runner), reason in failed.error) == (True, 0, True)

    def test_values_are_written_as_recipients_read_them(self, task_runner: TaskRunner) -> None:
        def own() -> None:
            entry = {"to": RECIPIENTS[0], "substitutions": {"points": 5.0}}
            with CpaasHook().get_idempotent_client() as client:
                client.send_sms(RECIPIENTS[0], "You have {points} points", personalisation=[entry])

        assert run_of(task_runner, own).run_try().state == "success"
        assert [one["text"] for one in task_runner.sandbox.inbox("sms")["items"]] == ["You have 5 points"]

    def test_encoding_replaces_typography_and_other_values_are_refused(self, task_runner: TaskRunner) -> None:
        def own() -> None:
            with CpaasHook().get_idempotent_client() as client:
                client.send_sms(RECIPIENTS[0], "It\u2019s\u200b", encoding="gsm7")
                for given in ({"encoding": "ucs2"}, {"encoding": "gsm7", "channel": "whatsapp"}):
                    with pytest.raises(ValueError, match=r"encoding .* Nothing was sent"):
                        client.send_sms(RECIPIENTS[0], "x", **given)

        assert run_of(task_runner, own).run_try().state == "success"
        assert [item["text"] for item in task_runner.sandbox.inbox("sms")["items"]] == ["It's"]

    def test_other_content_for_the_recipient_fails_the_task_and_sends_nothing(self, task_runner: TaskRunner) -> None:
        def own() -> None:
            with CpaasHook().get_idempotent_client() as client:
                client.send_sms(RECIPIENTS[0], "Order 1 is ready")
                client.send_sms(RECIPIENTS[:2], "Order 2 is ready")

        ended = run_of(task_runner, own).run_try()
        assert (ended.state, requests(task_runner)) == ("failed", 1)
        assert "sent other content to 1 of 2 recipients" in ended.error
        assert "A call that was made is made again if its key changes" in ended.error

    def test_idempotency_key_allows_both_and_a_retry_repeats_neither(self, task_runner: TaskRunner) -> None:
        tries: list[int] = []

        def own() -> None:
            tries.append(1)
            with CpaasHook().get_idempotent_client() as client:
                for order in ("1", "2"):
                    client.send_sms(RECIPIENTS[0], f"Order {order} is ready", idempotency_key=order)
                    client.send_email(
                        "Ada@example.com", f"Order {order}", sender_id="a@b.example", idempotency_key=order
                    )
            if len(tries) == 1:
                raise RuntimeError("the task dies")

        assert run_of(task_runner, own).run_to_end()[-1].state == "success"
        assert (requests(task_runner), requests(task_runner, "send_email"), len(tries)) == (2, 2, 2)

    def test_content_that_changes_between_tries_is_not_sent_again(self, task_runner: TaskRunner) -> None:
        tries: list[int] = []

        def own() -> None:
            tries.append(1)
            with CpaasHook().get_idempotent_client() as client:
                client.send_sms(RECIPIENTS[0], f"It is {len(tries)} o'clock")
            if len(tries) == 1:
                raise RuntimeError("the task dies")

        last = run_of(task_runner, own).run_to_end()[-1]
        assert (last.state, requests(task_runner)) == ("success", 1)
        assert "The content changed after an earlier try" in last.log


class TestOtherSends:
    @pytest.mark.parametrize("key", [None, "order-1"])
    def test_address_in_other_case_is_the_same_recipient(self, task_runner: TaskRunner, key: str | None) -> None:
        task_runner.connect("cpaas_default", email_sender_id="shop@example.com")

        def own() -> None:
            with CpaasHook().get_idempotent_client() as client:
                for recipient in ("Ada@example.com", "ada@example.com"):
                    client.send_email(recipient, "Hello", subject="News", idempotency_key=key)

        assert run_of(task_runner, own).run_try().state == "success"
        assert requests(task_runner, "send_email") == 1

    def test_passcodes_and_purchases_are_made_once(self, task_runner: TaskRunner) -> None:
        tries: list[list[str]] = []

        def own() -> None:
            with CpaasHook().get_idempotent_client() as client:
                code = client.request_otp(RECIPIENTS[0])
                airtime = client.buy_airtime("MTN", 100, RECIPIENTS[0])
                text = client.send_sms(RECIPIENTS[0], "Hello")
            tries.append([one["id"] for one in (code, airtime, text)])
            if len(tries) == 1:
                raise RuntimeError("the task dies")

        assert run_of(task_runner, own).run_to_end()[-1].state == "success"
        assert tries[0] == tries[1]
        assert [requests(task_runner, one) for one in ("request_otp", "buy_airtime", "send_sms")] == [1, 1, 1]

    def test_mapped_tasks_have_journals_of_their_own(self, task_runner: TaskRunner) -> None:
        with new_dag() as dag:

            @task
            def own(text: str) -> int:
                with CpaasHook().get_idempotent_client() as client:
                    return int(client.send_sms(RECIPIENTS[0], text)["recipients"])

            own.expand(text=["one", "two"])
        run = Run(task_runner, dag)
        assert [run.run_try(map_index=index).result for index in (0, 1)] == [1, 1]
        assert requests(task_runner) == 2

    def test_async_client_in_a_task_group_sends_to_each_once(self, task_runner: TaskRunner) -> None:
        tries: list[int] = []

        async def send_all() -> None:
            async with CpaasHook().get_async_idempotent_client() as client, asyncio.TaskGroup() as group:
                for recipient in RECIPIENTS[:4]:
                    group.create_task(client.send_sms(recipient, "Hello"))

        async def own() -> None:
            tries.append(1)
            await send_all()
            if len(tries) == 1:
                raise RuntimeError("the task dies")

        assert run_of(task_runner, own).run_to_end()[-1].state == "success"
        assert (sorted(sent(task_runner)), len(tries)) == (without_plus(RECIPIENTS[:4]), 2)

    def test_recipient_that_is_not_allowed_is_counted_and_the_task_continues(self, task_runner: TaskRunner) -> None:
        task_runner.connect("cpaas_default", allowed_recipients=phone("allowed"))

        def own() -> list[Any]:
            with CpaasHook().get_idempotent_client() as client:
                return [client.send_sms(one, "Hello") for one in (RECIPIENTS[0], phone("allowed"))]

        left_out, allowed = run_of(task_runner, own).run_try().result
        assert (left_out["recipients"], left_out["skipped_not_allowed"], left_out["id"]) == (0, 1, None)
        assert (allowed["recipients"], requests(task_runner)) == (1, 1)

    def test_no_send_reaches_a_recipient_that_is_not_allowed(self, task_runner: TaskRunner) -> None:
        task_runner.connect("cpaas_default", allowed_recipients=phone("allowed"), email_sender_id="shop@example.com")

        def own() -> list[Any]:
            with CpaasHook().get_idempotent_client() as client:
                return [
                    client.send_sms(RECIPIENTS[0], "Hello"),
                    client.send_email("ada@example.com", "Hello", subject="News"),
                    client.request_otp(RECIPIENTS[0]),
                    client.buy_airtime("MTN", 100, RECIPIENTS[0]),
                ]

        results = run_of(task_runner, own).run_try().result
        assert [one["id"] for one in results] == [None] * 4
        assert task_runner.sandbox.counters()["requests"] == {}


class TestUnknownOutcome:
    @staticmethod
    def unknown(task_runner: TaskRunner, **options: Any) -> list[Try]:
        task_runner.sandbox.control(*fault("send_sms", "cut_after", times=1))

        def own() -> Any:
            with CpaasHook().get_idempotent_client(**options) as client:
                first = client.send_sms(RECIPIENTS[0], "Hello")
                client.send_sms(RECIPIENTS[1], "Hello")
                return first

        return run_of(task_runner, own).run_to_end()

    def test_unknown_request_fails_the_task_without_a_retry_by_default(self, task_runner: TaskRunner) -> None:
        (ended,) = self.unknown(task_runner)
        assert (ended.state, requests(task_runner)) == ("failed", 1)
        assert "Outcome unknown: request cpaas-" in ended.error
        assert "airflow cpaas journal resolve --sent" in ended.error

    def test_skip_counts_the_unknown_request_and_continues(self, task_runner: TaskRunner) -> None:
        (ended,) = self.unknown(task_runner, on_unknown="skip")
        assert (ended.state, requests(task_runner)) == ("success", 2)
        assert (ended.result["recipients"], ended.result["unknown_recipients"]) == (0, 1)

    def test_resend_sends_the_unknown_request_again(self, task_runner: TaskRunner) -> None:
        (ended,) = self.unknown(task_runner, on_unknown="resend")
        assert (ended.state, requests(task_runner), ended.result["recipients"]) == ("success", 3, 1)

    def test_passcode_of_another_key_is_no_proof_of_an_unknown_one(self, task_runner: TaskRunner) -> None:
        task_runner.sandbox.control(*fault("request_otp", "cut_before", times=1))
        tries: list[list[Any]] = []

        def own() -> None:
            with CpaasHook().get_idempotent_client(on_unknown="skip", unknown_timeout=0) as client:
                keys = ("login", "payment")
                tries.append([client.request_otp(RECIPIENTS[0], idempotency_key=key)["id"] for key in keys])
            if len(tries) == 1:
                raise RuntimeError("the task dies")

        assert run_of(task_runner, own).run_to_end()[-1].state == "success"
        (lost, payment), retried = tries
        assert (lost, payment is None, requests(task_runner, "request_otp")) == (None, False, 2)
        assert retried == [None, payment]

    def test_passcode_of_a_later_unknown_request_is_no_proof_of_an_earlier_one(self, task_runner: TaskRunner) -> None:
        tries: list[list[Any]] = []

        async def kill(*given: Any) -> None:
            raise RuntimeError("as after a kill")

        def own() -> None:
            tries.append([])
            with pytest.MonkeyPatch.context() as patched, CpaasHook().get_idempotent_client(**options) as client:
                for key, kind in (("login", "cut_before"), ("payment", "cut_after")):
                    if len(tries) == 1:
                        task_runner.sandbox.control(*fault("request_otp", kind, times=1))
                    if len(tries) == 1 and key == "payment":
                        patched.setattr(OtpRecordProbe, "check", kill)
                    tries[-1].append(client.request_otp(RECIPIENTS[0], idempotency_key=key)["id"])

        options: dict[str, Any] = {"on_unknown": "skip", "unknown_timeout": 0}
        first, second = run_of(task_runner, own).run_to_end()
        assert (first.state, second.state, requests(task_runner, "request_otp")) == ("up_for_retry", "success", 2)
        login, payment = tries[1]
        assert (login, payment is None) == (None, False)

    def test_duplicate_of_another_purchase_is_no_proof_of_an_unknown_one(self, task_runner: TaskRunner) -> None:
        def own() -> None:
            with CpaasHook().get_idempotent_client(on_unknown="resend") as client:
                client.buy_airtime("MTN", 100, RECIPIENTS[0], idempotency_key="first")
                task_runner.sandbox.control(*fault("buy_airtime", "cut_before", times=1))
                client.buy_airtime("MTN", 100, RECIPIENTS[0], idempotency_key="second")

        ended = run_of(task_runner, own).run_try()
        assert (ended.state, requests(task_runner, "buy_airtime")) == ("up_for_retry", 3)
        assert "did not buy it again" in ended.error

    def test_duplicate_after_a_purchase_of_another_amount_is_proof(self, task_runner: TaskRunner) -> None:
        def own() -> None:
            with CpaasHook().get_idempotent_client(on_unknown="resend") as client:
                client.buy_airtime("MTN", 100, RECIPIENTS[0], idempotency_key="first")
                task_runner.sandbox.control(*fault("buy_airtime", "cut_after", times=1))
                client.buy_airtime("MTN", 200, RECIPIENTS[0], idempotency_key="second")

        ended = run_of(task_runner, own).run_try()
        assert (ended.state, requests(task_runner, "buy_airtime")) == ("success", 3)

    def test_killed_task_leaves_its_request_unknown_for_the_retry(self, task_runner: TaskRunner) -> None:
        def own() -> None:
            with CpaasHook().get_idempotent_client() as client:
                for recipient in RECIPIENTS[:3]:
                    client.send_sms(recipient, "Hello")

        run = run_of(task_runner, own)
        ends: list[int] = []
        end = Journal.end

        def killed(journal: Journal, *given: Any, **named: Any) -> Any:
            ends.append(1)
            if len(ends) >= 2:
                raise RuntimeError("as after a kill: no result is recorded any more")
            return end(journal, *given, **named)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Journal, "end", killed)
            assert run.run_try().state == "up_for_retry"
        ended = run.run_try()
        assert (ended.state, sent(task_runner)) == ("failed", without_plus(RECIPIENTS[:2]))
        assert "the try ended before a response was recorded" in ended.error


class TestStateStoreThatFails:
    @pytest.fixture
    def failing_sets(self, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
        """Whether each of the next writes of the state fails."""
        monkeypatch.setattr(writer, "_FIRST_PAUSE", 0.0)
        store, failing = TaskStateStore.set, list[bool]()

        def set_(state: TaskStateStore, key: str, value: Any) -> None:
            if failing and failing.pop(0):
                raise OSError("down")
            store(state, key, value)

        monkeypatch.setattr(TaskStateStore, "set", set_)
        return failing

    @staticmethod
    def send_to_all(client: Any) -> list[str]:
        """Send to five recipients, and return who could not be sent to."""
        failed = []
        for recipient in RECIPIENTS[:5]:
            try:
                client.send_sms(recipient, "Hello")
            except AirflowException:
                failed.append(recipient)
        return failed

    @pytest.mark.parametrize("first", [0, 1])
    def test_retry_after_unrecorded_sends_sends_to_no_recipient_twice(
        self, task_runner: TaskRunner, failing_sets: list[bool], first: int
    ) -> None:
        failed: list[list[str]] = []

        def own() -> None:
            if not failed:
                # Of a recipient the intent takes three attempts; there is nothing to write at the end.
                failing_sets.extend([*[False] * 2 * first, *[True] * 9])
            with CpaasHook().get_idempotent_client() as client:
                failed.append(self.send_to_all(client))
            if len(failed) == 1:
                raise RuntimeError("the task dies")

        assert run_of(task_runner, own).run_to_end()[-1].state == "success"
        assert (len(failed[0]) in (2, 3), failed[1]) == (True, [])
        assert sorted(sent(task_runner)) == without_plus(RECIPIENTS[:5])

    def test_second_client_of_the_try_sends_to_no_recipient_twice(
        self, task_runner: TaskRunner, failing_sets: list[bool]
    ) -> None:
        def own() -> None:
            failing_sets.extend([True] * 3)
            for _ in range(2):
                with CpaasHook().get_idempotent_client() as client:
                    self.send_to_all(client)
                del client

        assert run_of(task_runner, own).run_try().state == "success"
        assert sorted(sent(task_runner)) == without_plus(RECIPIENTS[:5])


class TestGuards:
    def test_stopped_task_begins_no_further_request_and_its_retry_continues(self, task_runner: TaskRunner) -> None:
        tries: list[int] = []

        def own() -> None:
            tries.append(1)
            with CpaasHook().get_idempotent_client() as client:
                client.send_sms(RECIPIENTS[0], "Hello")
                if len(tries) == 1:
                    os.kill(os.getpid(), signal.SIGTERM)
                client.send_sms(RECIPIENTS[1], "Hello")

        first, second = run_of(task_runner, own).run_to_end()
        assert "Airflow stopped the task" in first.error
        assert (second.state, sent(task_runner), requests(task_runner)) == ("success", without_plus(RECIPIENTS[:2]), 2)

    def test_backfill_is_skipped_unless_it_is_allowed(self, task_runner: TaskRunner) -> None:
        def own() -> None:
            with CpaasHook().get_idempotent_client() as client:
                client.send_sms(RECIPIENTS[0], "Hello")

        def allowed() -> None:
            with CpaasHook().get_idempotent_client(allow_backfill=True) as client:
                client.send_sms(RECIPIENTS[0], "Hello")

        assert run_of(task_runner, own, run_type=DagRunType.BACKFILL_JOB).run_try().state == "skipped"
        assert requests(task_runner) == 0
        assert run_of(task_runner, allowed, run_type=DagRunType.BACKFILL_JOB).run_try().state == "success"

    def test_stale_run_is_skipped(self, task_runner: TaskRunner) -> None:
        def own() -> None:
            with CpaasHook().get_idempotent_client(max_lateness=timedelta(hours=1)) as client:
                client.send_sms(RECIPIENTS[0], "Hello")

        run = run_of(task_runner, own).age(days=1)
        assert run.run_try().state == "skipped"
        assert "max_lateness" in run.xcom("skip_reason")

    def test_second_connection_in_one_task_is_refused(self, task_runner: TaskRunner) -> None:
        task_runner.connect("cpaas_other")

        def own() -> None:
            with CpaasHook().get_idempotent_client() as client, CpaasHook("cpaas_other").get_idempotent_client() as two:
                client.send_sms(RECIPIENTS[0], "Hello")
                two.send_sms(RECIPIENTS[1], "Hello")

        ended = run_of(task_runner, own).run_try()
        assert (ended.state, requests(task_runner)) == ("failed", 1)
        assert "a task's journal belongs to one connection" in ended.error

    @pytest.mark.parametrize("on_unknown", ["fail", "resend"])
    def test_second_connection_after_the_first_client_is_gone_is_refused(
        self, task_runner: TaskRunner, on_unknown: Any
    ) -> None:
        task_runner.connect("cpaas_other", password="sk_test_of_another_account")

        def own() -> None:
            for number, conn_id in enumerate(("cpaas_default", "cpaas_other")):
                with CpaasHook(conn_id).get_idempotent_client(on_unknown=on_unknown) as client:
                    client.send_sms(RECIPIENTS[number], "Hello")
                del client
                gc.collect()

        run = run_of(task_runner, own)
        for ended in (run.run_try(), run.clear().run_try(), run.clear().run_try()):
            assert (ended.state, requests(task_runner)) == ("failed", 1)
            assert "a task's journal belongs to one connection" in ended.error

    @pytest.mark.parametrize("key", ["", " ", 7])
    def test_key_that_is_no_text_is_refused(self, task_runner: TaskRunner, key: Any) -> None:
        def own() -> None:
            with CpaasHook().get_idempotent_client() as client:
                client.send_sms(RECIPIENTS[0], "Hello", idempotency_key=key)

        assert "idempotency_key must be text" in run_of(task_runner, own).run_try().error


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"on_unknown": "retry"}, "on_unknown must be one of fail, skip, resend"),
        ({"unknown_timeout": -1}, "unknown_timeout must not be negative"),
        ({"resend_on_clear": "no"}, "resend_on_clear must be True or False"),
        ({"max_lateness": "1 day"}, "max_lateness must be a timedelta or a number of seconds"),
        ({"stop_grace_period": float("inf")}, "stop_grace_period must be a number of seconds"),
    ],
)
def test_option_that_cannot_be_used_is_refused_before_anything_is_sent(
    task_runner: TaskRunner, option: dict[str, Any], words: str
) -> None:
    def own() -> None:
        with CpaasHook().get_idempotent_client(**option) as client:
            client.send_sms(RECIPIENTS[0], "Hello")

    ended = run_of(task_runner, own).run_try()
    assert (ended.state, requests(task_runner)) == ("up_for_retry", 0)
    assert f"get_idempotent_client: {words}" in ended.error


async def test_async_client_is_closed_off_the_event_loop_and_stops_listening_on_it() -> None:
    threads: list[int] = []
    client: Any = SimpleNamespace(
        stop_listening=lambda: threads.append(threading.get_ident()),
        release=lambda: threads.append(threading.get_ident()),
    )
    await AsyncIdempotentClient(client).close()
    listened, released = threads
    assert listened == threading.get_ident() != released
