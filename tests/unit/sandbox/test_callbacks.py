"""Delivery reports to the callback of a request, and to nobody else."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from cpaas_provider.sandbox.callbacks import is_loopback
from tests.unit.sandbox.conftest import ADA, BAYO, Harness, until


class Receiver:
    """A receiver of reports that answers as it is told."""

    def __init__(self) -> None:
        self.reports: list[dict[str, Any]] = []
        self.answers: list[int] = []
        self.silent = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.reports.append(json.loads(body) | {"path": self.path, "type": self.headers["content-type"]})
                if receiver.silent.is_set():
                    self.connection.close()
                    return
                status = receiver.answers.pop(0) if receiver.answers else 200
                self.send_response(status)
                self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/reports/7?x=1"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    one = Receiver()
    yield one
    one.close()


def settled(sandbox: Harness) -> dict[str, int]:
    """Wait until no report is pending and return the counts."""

    def done() -> dict[str, int] | None:
        counts = dict(sandbox.counters()["callbacks"])
        return counts if counts["pending"] == 0 else None

    return dict(until(done))


def test_one_report_for_each_recipient(sandbox: Harness, receiver: Receiver) -> None:
    sandbox.control("POST", "seed", {"outcomes": {"sms": {BAYO: "undelivered"}}})
    record = sandbox.sms(recipients=f"{ADA},{BAYO}", callback=receiver.url, external_ref="order-1").json()
    assert settled(sandbox) == {"delivered": 2, "failed": 0, "pending": 0}
    assert {(one["recipient"], one["status"]) for one in receiver.reports} == {
        (ADA, "delivered"),
        (BAYO, "undelivered"),
    }
    for one in receiver.reports:
        assert (one["id"], one["external_ref"], one["channel"]) == (record["id"], "order-1", "sms")
        assert (one["path"], one["type"]) == ("/reports/7?x=1", "application/json")
    shown = sandbox.inbox("callbacks", recipient=ADA)[0]
    assert (shown["state"], shown["result"], shown["attempts"]) == ("delivered", "HTTP 200", 1)


def test_email_is_reported_too(sandbox: Harness, receiver: Receiver) -> None:
    request = {"recipients": "ada@example.com", "sender_id": "n@acme.example", "content": "x", "callback": receiver.url}
    sandbox.ok("POST", "/email/send", request)
    settled(sandbox)
    assert [(one["channel"], one["recipient"]) for one in receiver.reports] == [("email", "ada@example.com")]


def test_airtime_is_reported_when_it_is_final(sandbox: Harness, receiver: Receiver) -> None:
    sandbox.control("PUT", "clock", {"frozen": True})
    request = {"network": "MTN", "amount": 60, "recipient": ADA, "callback": receiver.url}
    purchase = sandbox.ok("POST", "/airtime/buy", request)
    sandbox.control("POST", "clock/advance", {"seconds": 1})
    assert sandbox.inbox("airtime")[0]["status"] == "sent"
    assert sandbox.inbox("callbacks") == []
    sandbox.control("POST", "clock/advance", {"seconds": 1})
    assert settled(sandbox)["delivered"] == 1
    assert [(one["id"], one["status"]) for one in receiver.reports] == [(purchase["id"], "success")]


def test_airtime_moves_by_itself_in_real_time(sandbox: Harness, receiver: Receiver) -> None:
    sandbox.settings(airtime_sent_seconds=0.05, airtime_final_seconds=0.1)
    request = {"network": "MTN", "amount": 60, "recipient": ADA, "callback": receiver.url}
    sandbox.ok("POST", "/airtime/buy", request)
    until(lambda: receiver.reports)
    assert receiver.reports[0]["status"] == "success"


def test_a_delay_on_the_clock(sandbox: Harness, receiver: Receiver) -> None:
    sandbox.control("PUT", "clock", {"frozen": True})
    sandbox.settings(callback_delay_seconds=3600)
    sandbox.sms(callback=receiver.url)
    sandbox.control("POST", "clock/advance", {"seconds": 3599})
    assert sandbox.counters()["callbacks"]["pending"] == 1
    sandbox.control("POST", "clock/advance", {"seconds": 1})
    assert settled(sandbox)["delivered"] == 1


@pytest.mark.parametrize("answers", [[500], [302, 404]])
def test_what_is_not_acknowledged_is_repeated(sandbox: Harness, receiver: Receiver, answers: list[int]) -> None:
    receiver.answers = list(answers)
    sandbox.sms(callback=receiver.url)
    assert settled(sandbox)["delivered"] == 1
    assert len(receiver.reports) == len(answers) + 1
    assert {one["path"] for one in receiver.reports} == {"/reports/7?x=1"}  # no redirect is followed


def test_repeats_are_bounded(sandbox: Harness, receiver: Receiver) -> None:
    sandbox.settings(callback_attempts=2)
    receiver.silent.set()
    sandbox.sms(callback=receiver.url)
    assert settled(sandbox) == {"delivered": 0, "failed": 1, "pending": 0}
    assert len(receiver.reports) == 2
    assert sandbox.inbox("callbacks")[0]["attempts"] == 2


def test_a_stranger_is_never_called(sandbox: Harness) -> None:
    for url in ("http://192.0.2.1/x", "https://example.com", "http://127.0.0.1.example.com/", "http://0/x"):
        assert sandbox.sms(callback=url).status_code == 200
    assert settled(sandbox) == {"delivered": 0, "failed": 4, "pending": 0}
    assert {one["attempts"] for one in sandbox.inbox("callbacks")} == {0}
    assert all("not this machine" in one["result"] for one in sandbox.inbox("callbacks"))


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
def test_what_is_this_machine(url: str, own: bool) -> None:
    assert is_loopback(url) is own


def test_a_reset_takes_pending_reports_away(sandbox: Harness, receiver: Receiver) -> None:
    sandbox.settings(callback_delay_seconds=3600)
    sandbox.sms(callback=receiver.url)
    sandbox.control("POST", "reset")
    sandbox.control("POST", "clock/advance", {"seconds": 7200})
    assert settled(sandbox) == {"delivered": 0, "failed": 0, "pending": 0}
    assert receiver.reports == []
