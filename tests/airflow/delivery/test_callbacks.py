"""Sends on a connection with ``callback_url``: the delivery reports of every send reach the database."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import re
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, select

from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.schema.delivery import RequestState, deliveries, reports, requests, sends
from cpaas_provider.delivery.callbacks.tokens import CallbackToken
from cpaas_provider.delivery.receiver.app import create_app
from cpaas_provider.delivery.tracking.counts import DeliveryCounts, read_counts, read_recipients
from cpaas_provider.hooks._receiver import get_receiver_connection
from cpaas_provider.links.delivery import DeliveryLink, page_url
from cpaas_provider.operators.airtime import BuyAirtimeOperator
from cpaas_provider.operators.contacts import CreateContactRowOperator
from cpaas_provider.operators.email import EmailCampaignOperator, SendEmailOperator
from cpaas_provider.operators.otp import RequestOtpOperator
from cpaas_provider.operators.sms import SendSmsOperator, SmsCampaignOperator
from cpaas_provider.sensors.delivery import DeliverySensor
from tests.airflow.harness import campaigns
from tests.airflow.harness.campaigns import digits, limit_batches, rows
from tests.airflow.harness.task_runner import TaskRunner, fault
from tests.airflow.harness.tries import Run, Try, new_dag
from tests.ports import closed_port, listening
from tests.unit.api.generated_answers import encoded
from tests.unit.api.question import Answer, Question
from tests.unit.delivery.report_builders import report, save_reports
from tests.unit.delivery.running_receiver import running
from tests.unit.sending.odd_service import OddService, always
from tests.unit.sending.odd_service import serving as serving_odd
from tests.waiting import until

TIMEOUT = 0.5


@dataclasses.dataclass
class Received:
    """A receiver, and the store behind it."""

    url: str
    store: Database
    observed: list[str]

    def counts(self, campaign: str) -> tuple[int, int, int]:
        """Return how many are delivered, undelivered and in flight."""
        with self.store.connect() as connection:
            found = read_counts(connection, [campaign]).get(campaign, DeliveryCounts())
        return found.delivered, found.undelivered, found.in_flight

    def wait_for_counts(self, campaign: str, delivered: int, undelivered: int = 0, in_flight: int = 0) -> None:
        """Wait until so much is known."""
        until(lambda: self.counts(campaign) == (delivered, undelivered, in_flight))

    def recipients(self, campaign: str) -> set[str]:
        with self.store.connect() as connection:
            return {one["recipient"] for one in read_recipients(connection, [campaign])}

    def rows(self, table: Any) -> list[Any]:
        with self.store.connect() as connection:
            return list(connection.execute(select(table)))

    def accepted_requests(self) -> list[Any]:
        return [request for request in self.rows(requests) if request.state == RequestState.ACCEPTED]


@pytest.fixture
def received(task_runner: TaskRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Received]:
    """The receiver at the connection's ``callback_url``, keeping reports in the store that tasks have, too."""
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{tmp_path}/store.db")
    observed: list[str] = []
    app = create_app(get_receiver_connection, guard=None, emit_metric=lambda name, _: observed.append(name))
    with listening() as (listener, url), open_database() as store, running(app, listener):
        task_runner.connect("cpaas_default", callback_url=url, callback_secret="of-callbacks", timeout=TIMEOUT)
        yield Received(url, store, observed)


def run_operator(task_runner: TaskRunner, operator: Callable[..., Any], **given: Any) -> Try:
    """Run a task of one operator once."""
    with new_dag() as dag:
        operator(task_id="send", **given)
    return Run(task_runner, dag).run_try()


def link(run: Run, task_id: str) -> str:
    """Return the address a task's link leads to."""
    found = run.xcom(DeliveryLink().xcom_key, task_id)
    assert isinstance(found, str)
    return found


SMS = {"recipients": ["+2348031000001", "+2348031000002"], "content": "Hello"}
SIGNED = re.compile(r"\.\d{10}\.[\w-]{43}")
"""The end of each callback token: when it was issued, and its signature."""


def shown_callbacks(task_runner: TaskRunner, done: Try) -> list[str]:
    """Return what a try shows of callback URLs. Its log is as the code wrote it, before Airflow masks secrets."""
    urls = [item["callback"] for box in ("sms", "email") for item in task_runner.sandbox.inbox(box)["items"]]
    assert all(SIGNED.search(url) for url in urls)
    return re.findall(rf"/callback/|{SIGNED.pattern}", str((done.log, done.error, done.result, done.report)))


class TestSingleSend:
    def test_sms_is_tracked_per_recipient(self, task_runner: TaskRunner, received: Received) -> None:
        task_runner.sandbox.control("POST", "seed", {"outcomes": {"sms": {"2348031000002": "undelivered"}}})
        done = run_operator(task_runner, SendSmsOperator, **SMS)
        (reference,) = done.result["references"]
        received.wait_for_counts(reference, 1, 1)
        (sent,) = received.rows(sends)
        assert (sent.campaign, sent.operation, sent.conn_id, sent.task_id) == (
            reference,
            "send_sms",
            "cpaas_default",
            "send",
        )
        assert (sent.expected, sent.ended_at is not None) == (2, True)
        (request,) = received.rows(requests)
        assert (request.reference, request.recipients, request.message_id) == (reference, 2, done.result["id"])

    @pytest.mark.parametrize("extra", [{}, {"callback_secret": "of-callbacks"}])
    def test_receiver_does_not_get_the_api_key(
        self, task_runner: TaskRunner, received: Received, extra: dict[str, Any]
    ) -> None:
        api_key, requested = task_runner.sandbox.connection["password"], list[str]()
        app = create_app(get_receiver_connection, guard=None, emit_metric=None)

        async def recorder(scope: Any, receive: Any, send: Any) -> None:
            async def record() -> Any:
                requested.append(repr(message := await receive()))
                return message

            requested.append(repr([scope.get(name) for name in ("raw_path", "query_string", "headers")]))
            await app(scope, record, send)

        with listening() as (listener, url), running(recorder, listener):
            task_runner.connect("cpaas_default", callback_url=url, **extra)
            assert run_operator(task_runner, SendSmsOperator, **SMS).state == "success"
        assert any("/callback/cpaas_default/handshake." in text for text in requested)
        assert [text for text in requested if api_key in text] == []

    def test_email_is_tracked(self, task_runner: TaskRunner, received: Received) -> None:
        given = {
            "recipients": "uma@example.com",
            "subject": "Hello",
            "content": "Hello",
            "sender_id": "shop@example.com",
        }
        (reference,) = run_operator(task_runner, SendEmailOperator, **given).result["references"]
        received.wait_for_counts(reference, 1)
        assert received.recipients(reference) == {"uma@example.com"}

    def test_airtime_is_tracked(self, task_runner: TaskRunner, received: Received) -> None:
        task_runner.sandbox.control("PUT", "settings", {"airtime_sent_seconds": 0.1, "airtime_final_seconds": 0.2})
        done = run_operator(task_runner, BuyAirtimeOperator, network="MTN", amount=60, recipient="+2348031000003")
        (reference,) = done.result["references"]
        received.wait_for_counts(reference, 1)

    def test_send_with_the_author_s_own_callback_is_not_tracked(
        self, task_runner: TaskRunner, received: Received
    ) -> None:
        done = run_operator(task_runner, SendSmsOperator, **SMS, callback="http://127.0.0.1:9/hook")
        assert done.state == "success"
        assert (received.rows(sends), received.observed) == ([], [])

    def test_send_with_the_author_s_own_reference_is_tracked_by_ours(
        self, task_runner: TaskRunner, received: Received
    ) -> None:
        done = run_operator(task_runner, SendSmsOperator, **SMS, external_ref="order-4711")
        (reference,) = done.result["references"]
        assert {one["external_ref"] for one in task_runner.sandbox.inbox("sms")["items"]} == {"order-4711"}
        received.wait_for_counts(reference, 2)

    def test_send_is_tracked_by_the_account_webhook_alone(self, task_runner: TaskRunner, received: Received) -> None:
        task_runner.connect(
            "cpaas_default",
            callback_url=received.url,
            webhook_secret="of-webhooks",
            signature_header="X-Signature",
        )
        webhook = {"webhook_url": f"{received.url}/webhook/cpaas_default", "webhook_secret": "of-webhooks"}
        task_runner.sandbox.control("PUT", "settings", {**webhook, "signature_header": "X-Signature"})
        done = run_operator(task_runner, SendSmsOperator, **SMS, callback="http://127.0.0.1:9/hook")
        (reference,) = done.result["references"]
        received.wait_for_counts(reference, 2)
        assert [(one.campaign, one.conn_id, one.expected) for one in received.rows(sends)] == [
            (reference, "cpaas_default", 2)
        ]
        # Who knows the reference and has another connection's secret changes nothing of it.
        save_reports(received.store, report("2348031000009", "failed", external_ref=reference, conn_id="staging"))
        assert received.counts(reference) == (2, 0, 0)

    def test_send_whose_dag_writes_the_connection_in_other_letters_is_tracked_by_the_webhook(
        self, task_runner: TaskRunner, received: Received
    ) -> None:
        signing = {"webhook_secret": "of-webhooks", "signature_header": "X-Signature"}
        task_runner.connect("shop", **signing)
        webhook = {"webhook_url": f"{received.url}/webhook/shop", **signing}
        task_runner.sandbox.control("PUT", "settings", webhook)
        done = run_operator(task_runner, SendSmsOperator, **SMS, cpaas_conn_id="Shop")
        assert done.result["delivery_reports"] == "webhook"
        received.wait_for_counts(done.result["references"][0], 2)

    def test_reports_at_both_endpoints_count_once_whatever_letters_the_dag_writes(
        self, task_runner: TaskRunner, received: Received
    ) -> None:
        signing = {"webhook_secret": "of-webhooks", "signature_header": "X-Signature"}
        task_runner.connect("shop", callback_url=received.url, callback_secret="of-callbacks", **signing)
        task_runner.sandbox.control("PUT", "settings", {"webhook_url": f"{received.url}/webhook/shop", **signing})
        outcomes = {"sms": {"2348031000002": "undelivered"}}
        task_runner.sandbox.control("POST", "seed", {"outcomes": outcomes})
        done = run_operator(task_runner, SendSmsOperator, **SMS, cpaas_conn_id="Shop")
        received.wait_for_counts(done.result["references"][0], 1, 1)
        until(lambda: {row.source for row in received.rows(reports)} == {"callback", "webhook"})
        until(lambda: len(received.rows(reports)) >= 4)
        tables = (sends, requests, deliveries, reports)
        assert {row.conn_id for table in tables for row in received.rows(table)} == {"shop"}
        assert len(received.rows(deliveries)) == 2

    def test_track_recipients_records_the_recipients(self, task_runner: TaskRunner, received: Received) -> None:
        task_runner.sandbox.control("PUT", "settings", {"report_delay_seconds": 3600})
        (reference,) = run_operator(task_runner, SendSmsOperator, **SMS, track_recipients=True).result["references"]
        assert received.counts(reference) == (0, 0, 2)
        assert received.recipients(reference) == {"2348031000001", "2348031000002"}

    def test_track_recipients_records_recipients_that_a_later_try_sends_to(
        self, task_runner: TaskRunner, received: Received
    ) -> None:
        task_runner.sandbox.control("PUT", "settings", {"report_delay_seconds": 3600})
        first, second = "+2348031000001", "+2348031000002"
        with new_dag() as dag:
            SendSmsOperator(task_id="send", recipients=[first], content="Hello", track_recipients=True)
        run = Run(task_runner, dag)
        run.run_try()
        earlier, later = run.change(recipients=[first, second]).clear().run_try().result["references"]
        assert [received.recipients(reference) for reference in (earlier, later)] == [{first[1:]}, {second[1:]}]

    def test_track_recipients_records_no_recipient_for_a_request_to_another_one(
        self, task_runner: TaskRunner, received: Received
    ) -> None:
        task_runner.sandbox.control("PUT", "settings", {"report_delay_seconds": 3600})
        with new_dag() as dag:
            SendSmsOperator(task_id="send", recipients=["+2348031000001"], content="Hello")
        run = Run(task_runner, dag)
        run.run_try()
        run.change(recipients=["+2348031000002"], track_recipients=True).clear()
        earlier, later = run.run_try().result["references"]
        assert [received.recipients(reference) for reference in (earlier, later)] == [set(), {"2348031000002"}]

    def test_callback_url_is_in_no_log_and_no_result(self, task_runner: TaskRunner, received: Received) -> None:
        done = run_operator(task_runner, SendSmsOperator, **SMS)
        assert not shown_callbacks(task_runner, done)


class TestCallbackUrlOfCampaign:
    @pytest.mark.parametrize("operation", ["send_sms", "send_email"])
    @pytest.mark.parametrize("kind", [None, "echo", "echo_rejection", "cut_after"])
    def test_callback_url_is_in_no_log_no_error_and_no_result(
        self, task_runner: TaskRunner, received: Received, operation: str, kind: str | None
    ) -> None:
        if kind:
            task_runner.sandbox.control(*fault(operation, kind))
        people = [{**row, "email": f"person.{number}@example.com"} for number, row in enumerate(rows(3))]
        if operation == "send_sms":
            done = campaigns.sms(task_runner, people).run_try()
        else:
            done = campaigns.email(task_runner, people, subject="Hello").run_try()
        assert campaigns.requests(task_runner, operation) >= 1
        assert done.log
        assert not shown_callbacks(task_runner, done)


class TestDeliveryReportsOfResult:
    def test_connection_with_callback_url_reports_by_callback(
        self, task_runner: TaskRunner, received: Received
    ) -> None:
        done = run_operator(task_runner, SendSmsOperator, recipients=["08031234567"], content="Hello")
        assert done.result["delivery_reports"] == "callback"
        assert campaigns.sms(task_runner, rows(2)).run_try().result["delivery_reports"] == "callback"

    def test_connection_without_callback_url_has_no_reports(self, task_runner: TaskRunner) -> None:
        done = run_operator(task_runner, SendSmsOperator, recipients=["08031234567"], content="Hello")
        assert done.result["delivery_reports"] is None
        assert campaigns.sms(task_runner, rows(2)).run_try().result["delivery_reports"] is None

    def test_send_with_the_author_s_own_callback_has_no_reports(
        self, task_runner: TaskRunner, received: Received
    ) -> None:
        own = {"content": "Hello", "callback": "http://127.0.0.1:9/own"}
        done = run_operator(task_runner, SendSmsOperator, recipients=["08031234567"], **own)
        assert done.result["delivery_reports"] is None

    def test_account_webhook_reports_single_sends_by_our_reference(self, task_runner: TaskRunner) -> None:
        task_runner.connect("cpaas_default", webhook_secret="of-the-account", signature_header="X-Signature")
        given = {"recipients": ["08031234567"], "content": "Hello"}
        assert run_operator(task_runner, SendSmsOperator, **given).result["delivery_reports"] == "webhook"
        assert (
            run_operator(task_runner, SendSmsOperator, **given, external_ref="mine").result["delivery_reports"] is None
        )
        assert campaigns.sms(task_runner, rows(2)).run_try().result["delivery_reports"] is None

    @pytest.mark.parametrize(
        ("operator", "given"),
        [
            (RequestOtpOperator, {"recipient": "08031234567"}),
            (CreateContactRowOperator, {"columns": {"Name": "Ada"}}),
        ],
    )
    def test_operation_without_reports_records_no_send(
        self, task_runner: TaskRunner, received: Received, operator: type, given: dict[str, Any]
    ) -> None:
        done = run_operator(task_runner, operator, **given)
        assert (done.state, done.error) == ("success", "")
        assert "delivery_reports" not in done.result
        assert received.rows(sends) == []


class TestDeliveryLink:
    """What a task's page offers as ``Delivery``."""

    def test_link_of_a_campaign_shows_its_counts_while_it_sends(
        self, task_runner: TaskRunner, received: Received
    ) -> None:
        limit_batches(task_runner, 2, callback_url=received.url, callback_secret="of-callbacks")
        task_runner.sandbox.control(*fault("send_sms", "unavailable", retry_after=0))
        run = campaigns.sms(task_runner, rows(2, 500))
        assert run.run_try().state == "up_for_retry"
        (sent,) = received.rows(sends)
        assert link(run, "campaign").endswith(f"/cpaas/deliveries?campaign={sent.campaign}")

    def test_all_sending_operators_have_the_link(self) -> None:
        campaign_operators = (SmsCampaignOperator, EmailCampaignOperator)
        for operator in (SendSmsOperator, SendEmailOperator, BuyAirtimeOperator, *campaign_operators):
            assert [one.name for one in operator.operator_extra_links] == ["Delivery"]

    def test_link_of_a_campaign_is_there_before_its_first_request(
        self, task_runner: TaskRunner, received: Received, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        links: list[str] = []

        async def around(request: Callable[[], Awaitable[Any]]) -> Any:
            links.append(await asyncio.to_thread(link, run, "campaign"))
            return await request()

        campaigns.around_requests(monkeypatch, around)
        run = campaigns.sms(task_runner, rows(2, 510))
        assert run.run_try().state == "success"
        (sent,) = received.rows(sends)
        (first,) = links
        assert first.endswith(f"/cpaas/deliveries?campaign={sent.campaign}")

    def test_link_names_references_up_to_the_length_of_a_url(self, airflow_db: object) -> None:
        with new_dag():
            task = SendSmsOperator(task_id="send", **SMS)
        (one,) = task.operator_extra_links
        assert one.get_link(task, ti_key=None) == ""
        task.delivery_link = page_url(f"reference-{number}" for number in range(150))
        address = one.get_link(task, ti_key=None)
        assert address.count("campaign=") == 100
        assert "/cpaas/deliveries?campaign=reference-0&campaign=reference-1&" in address


class TestWeakSecrets:
    def sends(self, task_runner: TaskRunner, conn_id: str) -> str:
        """Run three sends and a campaign with a connection in this process, and return what they logged."""
        sent = [run_operator(task_runner, SendSmsOperator, cpaas_conn_id=conn_id, **SMS) for _ in range(3)]
        sent.append(campaigns.sms(task_runner, rows(2), cpaas_conn_id=conn_id).run_try("campaign"))
        assert [done.state for done in sent] == ["success"] * 4
        return "".join(done.log for done in sent)

    @pytest.mark.parametrize(
        ("conn_id", "secrets", "fault"),
        [
            ("cpaas_keyless", {}, "callback_secret is not set, so the API key signs callback URLs."),
            ("cpaas_short", {"callback_secret": "hunter22"}, "callback_secret has a secret that is shorter than 16"),
            ("cpaas_rotated", {"callback_secret": "long-enough-for-anybody,hunter22"}, "callback_secret has a secret"),
        ],
    )
    def test_first_send_of_a_process_warns_and_no_other(
        self, task_runner: TaskRunner, received: Received, conn_id: str, secrets: dict[str, str], fault: str
    ) -> None:
        task_runner.connect(conn_id, callback_url=received.url, timeout=TIMEOUT, **secrets)
        logged = self.sends(task_runner, conn_id)
        assert logged.count(f"Connection '{conn_id}': {fault}") == 1
        assert "hunter22" not in logged

    def test_long_secret_warns_of_nothing(self, task_runner: TaskRunner, received: Received) -> None:
        task_runner.connect("cpaas_strong", callback_url=received.url, timeout=TIMEOUT, callback_secret="x" * 16)
        assert "callback_secret" not in self.sends(task_runner, "cpaas_strong")

    def test_short_webhook_secret_warns_at_the_first_send_it_proves(
        self, task_runner: TaskRunner, received: Received
    ) -> None:
        webhook = {"webhook_secret": "hunter22", "signature_header": "X-Signature", "timeout": TIMEOUT}
        task_runner.connect("cpaas_webhook", **webhook)
        done = run_operator(task_runner, SendSmsOperator, cpaas_conn_id="cpaas_webhook", **SMS)
        assert done.log.count("Connection 'cpaas_webhook': webhook_secret is shorter than 16 characters") == 1
        assert "hunter22" not in done.log


class TestUnreachableReceiver:
    def test_receiver_on_another_database_fails_the_task_and_nothing_is_sent(
        self, task_runner: TaskRunner, received: Received, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert received.store.identity
        assert run_operator(task_runner, SendSmsOperator, **SMS).state == "success"
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{tmp_path}/another.db")
        done = run_operator(task_runner, SendSmsOperator, recipients="+2348031000009", content="Hello")
        assert done.state == "failed"
        assert "another database" in done.error
        assert "[cpaas] database" in done.error
        assert "Nothing was sent." in done.error
        assert not task_runner.inbox_items("sms", "2348031000009")

    def test_callback_url_of_another_server_fails_the_task_and_nothing_is_sent(
        self, task_runner: TaskRunner, received: Received
    ) -> None:
        for place in (f"{received.url}/elsewhere", task_runner.sandbox.url):
            task_runner.connect("cpaas_default", callback_url=place, callback_secret="of-callbacks")
            done = run_operator(task_runner, SendSmsOperator, recipients="+2348031000008", content="Hello")
            assert done.state == "failed"
            assert "rejected this connection's callback URLs" in done.error
        assert not task_runner.inbox_items("sms", "2348031000008")

    def test_receiver_that_does_not_respond_leaves_the_check_undecided(
        self, task_runner: TaskRunner, received: Received
    ) -> None:
        with closed_port() as url:
            task_runner.connect("cpaas_default", callback_url=url, callback_secret="s")
            done = run_operator(task_runner, SendSmsOperator, **SMS)
        assert done.state == "success"
        assert "did not respond" in done.log

    def test_database_that_cannot_be_opened_leaves_the_task_to_its_retries(
        self, task_runner: TaskRunner, received: Received, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "file").touch()
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{tmp_path}/file/store.db")
        done = run_operator(task_runner, SendSmsOperator, **SMS)
        assert done.state == "up_for_retry"
        assert "Nothing was sent." in done.error


class TestReportProbe:
    def test_report_resolves_an_unknown_send(self, task_runner: TaskRunner, received: Received) -> None:
        task_runner.sandbox.control(*fault("send_sms", "cut_after", times=1))
        with new_dag() as dag:
            SendSmsOperator(task_id="send", **SMS)
        run = Run(task_runner, dag)
        first = run.run_try()
        if first.state == "deferred":
            until(lambda: any(one == "received" for one in received.observed))
            first = run.fire_trigger().run_try()
        assert first.state == "success"
        assert (first.result["recipients"], first.result["unknown_recipients"]) == (2, 0)
        assert all(len(task_runner.inbox_items("sms", phone)) == 1 for phone in ("2348031000001", "2348031000002"))

    def test_unknown_send_without_a_report_is_deferred_and_then_fails(
        self, task_runner: TaskRunner, received: Received
    ) -> None:
        task_runner.sandbox.control("PUT", "settings", {"report_delay_seconds": 3600})
        task_runner.sandbox.control(*fault("send_sms", "cut_after", times=1))
        with new_dag() as dag:
            SendSmsOperator(task_id="send", unknown_timeout=dt.timedelta(0), **SMS)
        done = Run(task_runner, dag).run_try()
        assert done.state == "failed"
        assert "Outcome unknown" in done.error

    def test_reports_resolve_requests_of_a_campaign(self, task_runner: TaskRunner, received: Received) -> None:
        limit_batches(task_runner, 2, callback_url=received.url, callback_secret="of-callbacks", timeout=TIMEOUT)
        task_runner.sandbox.control(*fault("send_sms", "cut_after", times=2))
        run = campaigns.sms(task_runner, rows(6, 100))
        done = run.run_try()
        for _ in range(5):
            if done.state != "deferred":
                break
            done = run.fire_trigger().run_try()
        assert done.state == "success", done.error
        assert (done.result["sent"], done.result["unknown_recipients"]) == (6, 0)
        assert set(campaigns.count_messages(task_runner).values()) == {1}

    def test_account_webhook_reports_alone_resolve_requests_of_a_campaign(
        self, task_runner: TaskRunner, received: Received
    ) -> None:
        """Where callbacks went is gone by the time there is something to report."""
        signing = {"webhook_secret": "of-webhooks", "signature_header": "X-Signature"}
        app = create_app(get_receiver_connection, guard=None, emit_metric=lambda *_: None)
        with listening() as (listener, url), running(app, listener):
            place = {"callback_url": url, "callback_secret": "of-callbacks"}
            limit_batches(task_runner, 2, **place, **signing, timeout=TIMEOUT)
            webhook = {"webhook_url": f"{received.url}/webhook/cpaas_default", **signing}
            task_runner.sandbox.control("PUT", "settings", {**webhook, "report_delay_seconds": 600})
            task_runner.sandbox.control(*fault("send_sms", "cut_after", times=1))
            run = campaigns.sms(task_runner, rows(5, 600))
            assert run.run_try().state == "deferred"
            assert run.fire_trigger(early=True).run_try().state == "deferred"
        noted = {one.reference for one in received.rows(requests)}
        assert len(noted) == 2
        task_runner.sandbox.control("POST", "clock/advance", {"seconds": 601})
        until(lambda: len(received.rows(deliveries)) == 5)
        (doubted,) = {one.reference for one in received.rows(deliveries)} - noted
        assert received.counts(doubted) == (2, 0, 0)
        done = run.fire_trigger(early=True).run_try()
        assert done.state == "success", done.error
        assert (done.result["sent"], done.result["unknown_recipients"]) == (5, 0)
        assert set(campaigns.count_messages(task_runner).values()) == {1}
        assert (received.counts(done.result["reference"]), received.counts(doubted)) == ((5, 0, 0), (0, 0, 0))
        assert {one.reference for one in received.rows(requests)} == {*noted, doubted}


class TestPartlyAccepted:
    """A request from which the service rejected a recipient. A report of it ends no wait for the others."""

    @pytest.mark.parametrize("is_campaign", [True, False])
    @pytest.mark.parametrize("track_recipients", [True, False])
    def test_partly_accepted_send_is_tracked_for_accepted_recipients(
        self, task_runner: TaskRunner, received: Received, is_campaign: bool, track_recipients: bool
    ) -> None:
        accepted, rejected = digits(2, 900)
        errors = [{"field": "recipients", "message": f"The number {rejected} is invalid."}]
        with serving_odd(OddService(always(200, {"id": "m-1", "message": "Partly sent", "errors": errors}))) as service:
            callbacks = {"callback_url": received.url, "callback_secret": "of-callbacks", "host": service.url}
            limit_batches(task_runner, 2, **callbacks)
            if is_campaign:
                options = {"track_recipients": track_recipients, "max_failure_ratio": 1.0}
                campaigns.sms(task_runner, rows(2, 900), **options).run_try()
            else:
                recipients = [f"+{number}" for number in (accepted, rejected)]
                options = {"recipients": recipients, "content": "Hello", "track_recipients": track_recipients}
                run_operator(task_runner, SendSmsOperator, **options)
        (request,) = received.accepted_requests()
        assert (request.recipients, bool(request.rejected), rejected in request.rejected) == (1, True, False)
        token = CallbackToken(request.campaign, request.reference, 2)
        for recipient, expected in ((rejected, (0, 0, int(track_recipients))), (accepted, (1, 0, 0))):
            save_reports(received.store, report(recipient, "delivered", token=token, conn_id="cpaas_default"))
            assert received.counts(request.campaign) == expected
        assert received.recipients(request.campaign) == {accepted}

    def test_later_try_records_the_rejected_recipients(self, task_runner: TaskRunner, received: Received) -> None:
        _, rejected, later, _ = digits(4, 940)
        errors = [{"field": "recipients", "message": f"The number {rejected} is invalid."}]
        partly = Answer(200, encoded({"id": "m-1", "message": "Partly sent", "errors": errors}))
        full = Answer(200, encoded({"id": "m-2", "message": "Sent"}))
        is_busy = [True]

        def respond(question: Question) -> Answer:
            if later not in " ".join(question.recipients):
                return partly
            return Answer(429, encoded({"message": "Slow down"}), "0") if is_busy else full

        with serving_odd(OddService(respond)) as service:
            callbacks = {"callback_url": received.url, "callback_secret": "of-callbacks", "host": service.url}
            limit_batches(task_runner, 2, **callbacks)
            run = campaigns.sms(task_runner, rows(4, 940), max_failure_ratio=1.0)
            assert run.run_try().state == "up_for_retry"
            # As if the try had been killed before it recorded the request.
            received.store.write(lambda connection: connection.execute(delete(requests)))
            is_busy.clear()
            run.run_try()
        first = min(received.accepted_requests(), key=lambda request: request.message_id)
        assert (first.recipients, bool(first.rejected)) == (1, True)
        token = CallbackToken(first.campaign, first.reference, 2)
        save_reports(received.store, report(rejected, "delivered", token=token, conn_id="cpaas_default"))
        assert received.counts(first.campaign) == (0, 0, 0)


class TestCampaign:
    def test_campaign_is_tracked_per_recipient(self, task_runner: TaskRunner, received: Received) -> None:
        limit_batches(task_runner, 2, callback_url=received.url, callback_secret="of-callbacks")
        phones = digits(5, 200)
        task_runner.sandbox.control("POST", "seed", {"outcomes": {"sms": {phones[0]: "undelivered"}}})
        done = campaigns.sms(task_runner, rows(5, 200)).run_try()
        received.wait_for_counts(done.result["reference"], 4, 1)
        (sent,) = received.rows(sends)
        assert (sent.campaign, sent.expected, sent.ended_at is not None) == (done.result["reference"], 5, True)
        noted = received.rows(requests)
        assert sorted(one.recipients for one in noted) == [1, 2, 2]
        assert all(one.message_id and one.campaign == done.result["reference"] for one in noted)

    def test_retried_campaign_is_finished_only_after_its_last_try(
        self, task_runner: TaskRunner, received: Received
    ) -> None:
        limit_batches(task_runner, 2, callback_url=received.url, callback_secret="of-callbacks")
        task_runner.sandbox.control(*fault("send_sms", "unavailable", retry_after=0))
        run = campaigns.sms(task_runner, rows(4, 300))
        assert run.run_try().state == "up_for_retry"
        assert [one.ended_at for one in received.rows(sends)] == [None]
        campaigns.clear_faults(task_runner)
        done = run.run_try()
        assert done.state == "success"
        received.wait_for_counts(done.result["reference"], 4)
        assert [one.expected for one in received.rows(sends)] == [4]

    def test_unknown_recipients_with_reports_count_as_expected_and_delivered(
        self, task_runner: TaskRunner, received: Received
    ) -> None:
        limit_batches(task_runner, 2, callback_url=received.url, callback_secret="of-callbacks", timeout=TIMEOUT)
        task_runner.sandbox.control("PUT", "settings", {"report_delay_seconds": 3600})
        task_runner.sandbox.control(*fault("send_sms", "cut_after", times=1))
        done = campaigns.sms(task_runner, rows(6, 700), on_unknown="skip", unknown_timeout=dt.timedelta(0)).run_try()
        assert (done.result["sent"], done.result["unknown_recipients"]) == (4, 2)
        assert [(send.expected, send.unknown) for send in received.rows(sends)] == [(4, 0)]
        assert sum(request.unknown for request in received.rows(requests)) == 2
        (lost,) = done.result["unknown_references"]
        token = CallbackToken(done.result["reference"], lost, 2)
        strangers = digits(2, 700)
        save_reports(
            received.store, *(report(one, "delivered", token=token, conn_id="cpaas_default") for one in strangers)
        )
        sensor = DeliverySensor(task_id="delivered", send_result=done.result, min_delivered=0.5)
        assert sensor.poke({}) is False
        assert sensor._snapshot is not None
        assert sensor._snapshot.sent.criteria.summary(sensor._snapshot.counts) == {
            "expected": 6, "delivered": 2, "undelivered": 0, "in_flight": 0, "unreported": 4,
        }  # fmt: skip

    def test_requests_that_could_not_be_recorded_are_recorded_at_the_end(
        self, task_runner: TaskRunner, received: Received
    ) -> None:
        limit_batches(task_runner, 2, callback_url=received.url, callback_secret="of-callbacks")
        task_runner.sandbox.control(*fault("send_sms", "unavailable", after=1, retry_after=0))
        run = campaigns.sms(task_runner, rows(4, 800))
        assert run.run_try().state == "up_for_retry"
        before = received.rows(requests)
        # As if the try had been killed before it came to that.
        received.store.write(lambda connection: connection.execute(delete(requests)))
        campaigns.clear_faults(task_runner)
        done = run.run_try()
        assert done.state == "success"
        assert before
        assert {one.reference for one in before} < {one.reference for one in received.rows(requests)}
        assert sum(one.recipients for one in received.rows(requests)) == 4
        received.wait_for_counts(done.result["reference"], 4)

    def test_each_partition_is_its_own_campaign(self, task_runner: TaskRunner, received: Received) -> None:
        limit_batches(task_runner, 2, callback_url=received.url, callback_secret="of-callbacks")
        people = rows(8, 400)
        references = set()
        for part in range(2):
            given = {"partition": {"part": part, "of": 2}, "idempotency_key": f"in parts {task_runner.sandbox.url}"}
            done = campaigns.sms(task_runner, people, **given).run_try()
            references.add(done.result["reference"])
            received.wait_for_counts(done.result["reference"], done.result["sent"])
        assert len(references) == 2
        assert sum(one.expected for one in received.rows(sends)) == 8


def test_resends_of_a_campaign_are_counted_over_its_deferrals(task_runner: TaskRunner, received: Received) -> None:
    task_runner.sandbox.control(*fault("send_sms", "cut_before"))
    run = campaigns.sms(task_runner, rows(1), on_unknown="resend", unknown_timeout=20)
    ended = run.run_try()
    for _ in range(6):
        if ended.state == "deferred":
            ended = run.backdate_requests(seconds=20).fire_trigger(early=True).run_try()
    assert (ended.state, campaigns.requests(task_runner)) == ("up_for_retry", 5)
    assert "They were sent to 4 more times in this try" in ended.error
