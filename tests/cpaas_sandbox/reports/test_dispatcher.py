"""Delivery reports on their way: acknowledged, repeated, given up, and never to a stranger."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cpaas_sandbox.core.context import Options
from cpaas_sandbox.core.validation import is_loopback
from tests.cpaas_sandbox.conftest import ADA, BAYO, KEY, Harness, running
from tests.cpaas_sandbox.receiver import Receiver
from tests.waiting import until

HOUR = 3600
SECRET = "whsec_of_the_tests"


def counts(**more: int) -> dict[str, int]:
    return dict.fromkeys(("booked", "pending", "sent", "acknowledged", "refused", "given_up"), 0) | more


def numbers(count: int) -> list[str]:
    return [str(2348030000000 + n) for n in range(count)]


def test_each_recipient_gets_one_report(sandbox: Harness, receiver: Receiver) -> None:
    sandbox.control("POST", "seed", {"outcomes": {"sms": {BAYO: "undelivered"}}})
    record = sandbox.sms(recipients=f"{ADA},{BAYO}", callback=receiver.url, external_ref="order-1").json()
    assert sandbox.reported() == counts(booked=2, sent=2, acknowledged=2)
    assert {(one["recipient"], one["status"]) for one in receiver.bodies} == {(ADA, "delivered"), (BAYO, "undelivered")}
    for one in receiver.received:
        assert (one.body["id"], one.body["external_ref"], one.body["channel"]) == (record["id"], "order-1", "sms")
        assert (one.path, one.headers["content-type"]) == ("/reports/7?x=1", "application/json")
    shown = sandbox.inbox("reports", recipient=ADA)[0]
    assert (shown["state"], shown["result"], shown["attempts"]) == ("acknowledged", "HTTP 200", 1)


@pytest.mark.parametrize("status", [200, 201, 202])
def test_200_to_202_acknowledge_a_report(frozen: Harness, receiver: Receiver, status: int) -> None:
    receiver.answer = status
    frozen.sms(callback=receiver.url)
    assert frozen.reported() == counts(booked=1, sent=1, acknowledged=1)
    frozen.advance(HOUR)
    frozen.reported()
    assert len(receiver.received) == 1


@pytest.mark.parametrize("status", [203, 204, 302, 307, 400, 404, 500, 503])
def test_unacknowledged_report_is_repeated_an_hour_later(frozen: Harness, receiver: Receiver, status: int) -> None:
    receiver.answers = [status]
    frozen.sms(callback=receiver.url)
    assert frozen.reported() == counts(booked=1, sent=1, refused=1, pending=1)
    assert frozen.inbox("reports")[0]["result"] == f"HTTP {status}"
    frozen.advance(HOUR - 1)
    frozen.reported()
    assert len(receiver.received) == 1
    frozen.advance(1)
    assert frozen.reported() == counts(booked=1, sent=2, refused=1, acknowledged=1)
    first, again = receiver.received
    assert first.raw == again.raw
    assert {one.path for one in receiver.received} == {"/reports/7?x=1"}  # no redirect is followed


def test_report_without_acknowledgement_is_given_up_after_a_day(frozen: Harness, receiver: Receiver) -> None:
    receiver.answer = 500
    frozen.sms(callback=receiver.url)
    for hour in range(24):
        assert frozen.reported() == counts(booked=1, sent=hour + 1, refused=hour + 1, pending=1)
        frozen.advance(HOUR)
    assert frozen.reported() == counts(booked=1, sent=25, refused=25, given_up=1)
    frozen.advance(24 * HOUR)
    frozen.reported()
    assert len(receiver.received) == 25
    shown = frozen.inbox("reports")[0]
    assert (shown["state"], shown["attempts"], shown["result"]) == ("given_up", 25, "HTTP 500")


def test_after_the_day_is_over_there_is_one_late_attempt_and_no_more(frozen: Harness, receiver: Receiver) -> None:
    receiver.answer = 204
    frozen.sms(callback=receiver.url)
    frozen.reported()
    frozen.advance(48 * HOUR)
    assert frozen.reported() == counts(booked=1, sent=2, refused=2, given_up=1)


def test_attempts_and_interval_are_as_set(sandbox: Harness, receiver: Receiver) -> None:
    """In real time: a receiver that closes the connection without a word is tried as often as is set."""
    sandbox.settings(report_attempts=3, report_interval_seconds=0.05)
    receiver.silent = True
    sandbox.sms(callback=receiver.url)
    until(lambda: sandbox.counters()["reports"]["given_up"] == 1)
    assert len(receiver.received) == 3
    assert sandbox.inbox("reports")[0]["result"] == "RemoteProtocolError"


def test_report_to_a_silent_receiver_times_out(sandbox: Harness, receiver: Receiver) -> None:
    sandbox.settings(report_timeout_seconds=0.1)
    receiver.gate.clear()
    sandbox.sms(callback=receiver.url)
    assert sandbox.reported() == counts(booked=1, sent=1, refused=1, pending=1)
    assert sandbox.inbox("reports")[0]["result"] == "no response within 0.1 s"


def test_url_of_another_host_is_never_called(sandbox: Harness) -> None:
    for url in ("http://192.0.2.1/x", "https://example.com", "http://127.0.0.1.example.com/", "http://0/x"):
        assert sandbox.sms(callback=url).status_code == 200
    assert sandbox.reported() == counts(booked=4, given_up=4)
    assert {one["attempts"] for one in sandbox.inbox("reports")} == {0}
    assert all("not this machine" in one["result"] for one in sandbox.inbox("reports"))


@pytest.mark.parametrize(
    ("url", "own"),
    [
        ("http://127.0.0.1:80/x", True),
        ("http://127.9.9.9/", True),
        ("http://localhost/", True),
        ("http://LOCALHOST:1/", True),
        ("http://[::1]:80/", True),
        ("http://0.0.0.0/", False),
        ("http://10.0.0.1/", False),
        ("http://localhost.example.com/", False),
        ("http://127.0.0.1@example.com/", False),
        ("http://2130706433/", False),
        ("http://[::2]/", False),
        ("http://[bad/", False),
        ("nonsense", False),
    ],
)
def test_only_loopback_urls_count_as_this_machine(url: str, own: bool) -> None:
    assert is_loopback(url) is own


def test_report_concurrency_limits_requests_over_reused_connections(sandbox: Harness, receiver: Receiver) -> None:
    sandbox.settings(report_concurrency=3)
    receiver.gate.clear()
    sandbox.sms(recipients=",".join(numbers(60)), callback=receiver.url)
    until(lambda: receiver.at_once == 3)
    receiver.gate.set()
    assert sandbox.reported() == counts(booked=60, sent=60, acknowledged=60)
    assert receiver.most_at_once == 3
    assert len({one.connection for one in receiver.received}) == 3


def test_service_responds_while_reports_are_awaiting_responses(sandbox: Harness, receiver: Receiver) -> None:
    receiver.gate.clear()
    sandbox.sms(recipients=",".join(numbers(20)), callback=receiver.url)
    until(lambda: receiver.at_once == 8)
    assert sandbox.sms().status_code == 200
    request = {"network": "MTN", "amount": 60, "recipient": ADA}
    sandbox.settings(airtime_sent_seconds=0.01, airtime_final_seconds=0.02)
    sandbox.ok("POST", "/airtime/buy", request)
    until(lambda: sandbox.inbox("airtime")[0]["status"] == "success")
    assert sandbox.counters()["reports"]["acknowledged"] == 0


def test_reset_removes_pending_reports(frozen: Harness, receiver: Receiver) -> None:
    frozen.settings(report_delay_seconds=HOUR)
    frozen.sms(callback=receiver.url)
    frozen.control("POST", "reset")
    frozen.advance(2 * HOUR)
    assert frozen.reported() == counts()
    assert receiver.received == []


def test_report_in_flight_at_a_reset_is_not_counted(sandbox: Harness, receiver: Receiver) -> None:
    receiver.gate.clear()
    sandbox.sms(callback=receiver.url)
    until(lambda: receiver.at_once == 1)
    sandbox.control("POST", "reset")
    receiver.gate.set()
    until(lambda: receiver.at_once == 0)
    sandbox.sms(callback=receiver.url)
    assert sandbox.reported() == counts(booked=1, sent=1, acknowledged=1)


def test_pending_reports_survive_a_restart(tmp_path: Path, receiver: Receiver) -> None:
    database = str(tmp_path / "state.sqlite")
    receiver.answer = 503
    with running(Options(KEY, database)) as url:
        sandbox = Harness(url)
        sandbox.sms(recipients=f"{ADA},{BAYO}", callback=receiver.url)
        assert sandbox.reported()["refused"] == 2
    receiver.answer = 200
    with running(Options(KEY, database)) as url:
        sandbox = Harness(url)
        assert sandbox.counters()["reports"] == counts(booked=2, sent=2, refused=2, pending=2, due=0)
        sandbox.advance(HOUR)
        assert sandbox.reported() == counts(booked=2, sent=4, refused=2, acknowledged=2)
    assert Counter(receiver.count_by("recipient")) == {ADA: 2, BAYO: 2}


# -- the account's webhook ------------------------------------------------------------------------------------------


def signed(one: Any, secret: str, header: str = "x-signature") -> bool:
    expected = base64.b64encode(hmac.new(secret.encode(), one.raw, hashlib.sha512).digest()).decode()
    return bool(one.headers[header] == expected)


@pytest.fixture
def webhook(sandbox: Harness, receiver: Receiver) -> Receiver:
    sandbox.settings(webhook_url=f"{receiver.base}/hook", webhook_secret=SECRET)
    return receiver


def test_webhook_receives_events_signed_over_the_raw_body(sandbox: Harness, webhook: Receiver) -> None:
    record = sandbox.sms(external_ref="é-1").json()
    assert sandbox.reported() == counts(booked=1, sent=1, acknowledged=1)
    (one,) = webhook.received
    assert one.path == "/hook"
    told = {key: one.body[key] for key in ("event", "id", "recipient", "external_ref")}
    assert told == {"event": "text.delivered", "id": record["id"], "recipient": ADA, "external_ref": "é-1"}
    assert signed(one, SECRET)
    assert not signed(one, SECRET + "x")


def test_webhook_uses_header_and_secret_set_at_the_time_of_sending(sandbox: Harness, webhook: Receiver) -> None:
    sandbox.control("PUT", "clock", {"frozen": True})
    webhook.answers = [401]
    sandbox.sms()
    sandbox.reported()
    sandbox.settings(webhook_secret="a-newer-secret", signature_header="X-Of-Ours")
    sandbox.advance(HOUR)
    assert sandbox.reported()["acknowledged"] == 1
    first, again = webhook.received
    assert signed(first, SECRET)
    assert signed(again, "a-newer-secret", "x-of-ours")


def test_callback_and_webhook_both_receive_the_report(sandbox: Harness, webhook: Receiver) -> None:
    sandbox.sms(callback=webhook.url)
    assert sandbox.reported()["acknowledged"] == 2
    endpoints = {one.path: one for one in webhook.received}
    assert "x-signature" not in endpoints["/reports/7?x=1"].headers
    assert endpoints["/reports/7?x=1"].body["status"] == "delivered"
    assert endpoints["/hook"].body["event"] == "text.delivered"
    assert {one["endpoint"] for one in sandbox.inbox("reports")} == {"callback", "webhook"}


def test_removed_webhook_is_not_called(sandbox: Harness, webhook: Receiver) -> None:
    sandbox.control("PUT", "clock", {"frozen": True})
    sandbox.settings(report_delay_seconds=HOUR)
    sandbox.sms()
    sandbox.settings(webhook_url="", webhook_secret="")
    sandbox.advance(HOUR)
    assert sandbox.reported() == counts(booked=1, given_up=1)
    assert webhook.received == []


def test_message_without_callback_and_webhook_has_no_report(sandbox: Harness) -> None:
    sandbox.sms()
    assert sandbox.reported() == counts()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"webhook_url": "http://127.0.0.1:9/"}, "also set webhook_secret"),
        ({"webhook_url": "http://hooks.example.com/", "webhook_secret": SECRET}, "--allow-remote-callbacks"),
        ({"webhook_url": "hooks", "webhook_secret": SECRET}, "http or https URL"),
        ({"webhook_secret": "short"}, "8 to 200"),
        ({"webhook_secret": "with spaces in it"}, "8 to 200"),
        ({"webhook_secret": "********"}, "asterisks"),
        ({"webhook_secret": 12345678}, "webhook_secret: Input should be a valid string"),
        ({"signature_header": "X Signature"}, "header's name"),
        ({"signature_header": ""}, "header's name"),
        ({"signature_header": "Content-Length"}, "without another meaning"),
        ({"webhook_shape": "status"}, "'event' or 'event_data'"),
        ({"callback_shape": "xml"}, "'status', 'status_object'"),
        ({"report_concurrency": 65}, "less than or equal to 64"),
        ({"report_concurrency": 0}, "greater than or equal to 1"),
        ({"report_interval_seconds": 0}, "greater than or equal to 0.05"),
        ({"report_attempts": 2.5}, "valid integer"),
        ({"report_duplicate_rate": 1.1}, "less than or equal to 1"),
        ({"report_seed": -1}, "greater than or equal to 0"),
        ({"callback_attempts": 3}, "callback_attempts: is not known here"),
    ],
)
def test_settings_of_reports_that_make_no_sense(sandbox: Harness, change: dict[str, Any], said: str) -> None:
    before = sandbox.control("GET", "settings")
    answer = sandbox.call("PUT", "/_control/settings", change)
    assert answer.status_code == 400
    assert said in answer.json()["message"]
    assert sandbox.control("GET", "settings") == before


def test_settings_mask_the_webhook_secret(sandbox: Harness, webhook: Receiver) -> None:
    shown = sandbox.call("GET", "/_control/settings").text
    assert SECRET not in shown
    assert sandbox.control("GET", "settings")["webhook_secret"] == "********"
