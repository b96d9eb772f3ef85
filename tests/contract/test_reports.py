"""Delivery reports, sandbox against receiver over HTTP: two readings of what the contract leaves open."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI

from cpaas_provider.api import CpaasClient
from cpaas_provider.database.database import Database, open_database
from cpaas_provider.delivery.callbacks.signatures import verify
from cpaas_provider.delivery.callbacks.tokens import CallbackToken, callback_url
from cpaas_provider.delivery.receiver.app import build_app as receiving
from cpaas_provider.delivery.receiver.secrets_cache import ConnectionSecrets
from cpaas_provider.delivery.receiver.writer import ReportWriter
from cpaas_provider.delivery.reports import DeliveryStatus, read_report
from cpaas_provider.delivery.tracking.counts import read_recipients
from cpaas_provider.delivery.tracking.report_store import ReportStore
from cpaas_provider.delivery.tracking.sent_requests import SentRequest, record_requests
from cpaas_sandbox.server import bind, url_of
from tests.cpaas_sandbox.receiver import Receiver
from tests.sandbox import Sandbox

ADDRESS = "ada@example.com"
PHONE = "2348031234567"
SECRET = "whsec_of_the_contract"
HEADER = "X-Hook-Signature"
CONN_ID = "shop"
TOKEN_KEY = "callback-secret"

STATUS_WORDS = {
    "sms": {
        "sent": DeliveryStatus.IN_FLIGHT,
        "undelivered": DeliveryStatus.UNDELIVERED,
        "delivered": DeliveryStatus.DELIVERED,
        "clicked": DeliveryStatus.CLICKED,
    },
    "email": {
        "sent": DeliveryStatus.IN_FLIGHT,
        "delivered": DeliveryStatus.DELIVERED,
        "bounced": DeliveryStatus.BOUNCED,
        "opened": DeliveryStatus.OPENED,
        "clicked": DeliveryStatus.CLICKED,
    },
    "airtime": {
        "sent": DeliveryStatus.IN_FLIGHT,
        "success": DeliveryStatus.DELIVERED,
        "failed": DeliveryStatus.UNDELIVERED,
        "error": DeliveryStatus.UNDELIVERED,
    },
}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    one = Receiver()
    yield one
    one.close()


@pytest.fixture
def client(sandbox: Sandbox) -> Iterator[CpaasClient]:
    with CpaasClient(sandbox.url, sandbox.api_key, requests_per_second=10_000) as one:
        yield one


def all_said(sandbox: Sandbox, seconds: float = 60.0) -> dict[str, int]:
    """Wait until no report is due and return the counts."""
    deadline = time.monotonic() + seconds
    while (counts := sandbox.counters()["reports"])["due"]:
        assert time.monotonic() < deadline, counts
        time.sleep(0.02)
    return dict(counts)


def send(client: CpaasClient, kind: str, callback: str | None) -> str:
    more: dict[str, Any] = {"external_ref": "order-1", "callback": callback}
    if kind == "sms":
        return str(client.send_sms(PHONE, "ACME", "Hello", is_trackable=True, **more).id)
    if kind == "email":
        return str(client.send_email(ADDRESS, "shop@example.com", "Hello", **more).id)
    return str(client.buy_airtime("MTN", 60, PHONE, **more).id)


@pytest.mark.parametrize("shape", ["status", "status_object", "event", "event_data"])
@pytest.mark.parametrize("kind", STATUS_WORDS)
def test_report_of_any_shape_is_read(
    sandbox: Sandbox, client: CpaasClient, receiver: Receiver, kind: str, shape: str
) -> None:
    webhook_shape = shape if shape.startswith("event") else "event"
    settings = {"callback_shape": shape, "webhook_shape": webhook_shape, "report_in_flight": True}
    settings |= {"webhook_url": receiver.base, "webhook_secret": SECRET, "signature_header": HEADER}
    sandbox.control("PUT", "settings", settings)
    sandbox.control("PUT", "clock", {"frozen": True})
    recipient = ADDRESS if kind == "email" else PHONE
    for outcome in [one for one in STATUS_WORDS[kind] if one != "sent"]:
        sandbox.control("POST", "seed", {"outcomes": {kind: {recipient: outcome}}})
        sandbox.control("PUT", "settings", {"airtime_guard_seconds": 0})
        receiver.received.clear()
        message_id = send(client, kind, receiver.url)
        for _ in range(2):
            sandbox.control("POST", "clock/advance", {"seconds": 1})
            all_said(sandbox)
        states: dict[str, list[DeliveryStatus | None]] = {"callback": [], "webhook": []}
        for one in receiver.received:
            door = "webhook" if HEADER.lower() in one.headers else "callback"
            read = read_report(json.loads(one.raw))
            states[door].append(read.delivery_status)
            assert (read.message_id, read.reference, read.recipient) == (message_id, "order-1", recipient)
            assert read.kind == kind
            assert bool(read.reason) or read.delivery_status not in (DeliveryStatus.UNDELIVERED, DeliveryStatus.BOUNCED)
            if door == "webhook":
                assert verify(one.raw, one.headers[HEADER.lower()], SECRET)
                assert not verify(one.raw + b" ", one.headers[HEADER.lower()], SECRET)
        assert states["callback"][0] is DeliveryStatus.IN_FLIGHT
        assert states["callback"][-1] is STATUS_WORDS[kind][outcome]
        assert states["webhook"] == states["callback"][1:]


@contextmanager
def serving(app: FastAPI) -> Iterator[str]:
    listener = bind("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield url_of(listener)
    finally:
        server.should_exit = True
        thread.join(15)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Database]:
    with open_database(f"sqlite:///{tmp_path}/store.db") as database:
        yield database


@pytest.fixture
def base(store: Database) -> Iterator[str]:
    keys = ConnectionSecrets((TOKEN_KEY,), SECRET, HEADER)
    app = receiving(
        lambda conn_id: keys if conn_id == CONN_ID else None,
        ReportWriter(ReportStore(store).save),
        guard=None,
        database_id=lambda: store.identity,
        emit_metric=lambda name, value: None,
    )
    with serving(app) as url:
        yield url


@pytest.mark.parametrize("doors", [("callback",), ("webhook",), ("callback", "webhook")], ids="+".join)
def test_stored_status_of_every_recipient_equals_the_outcome(
    sandbox: Sandbox, client: CpaasClient, store: Database, base: str, doors: tuple[str, ...]
) -> None:
    """Reports come doubled, out of order, and again although acknowledged."""
    sandbox.control("PUT", "clock", {"frozen": True})
    rates = {"undelivered": 0.2, "clicked": 0.2, "duplicate": 0.3, "repeat": 0.3}
    settings: dict[str, Any] = {f"report_{name}_rate": rate for name, rate in rates.items()}
    settings |= {"report_disorder": 0.5, "report_in_flight": True, "signature_header": HEADER}
    if "webhook" in doors:
        settings |= {"webhook_url": f"{base}/webhook/{CONN_ID}", "webhook_secret": SECRET}
    sandbox.control("PUT", "settings", settings)
    numbers = [str(2348030000000 + n) for n in range(100)]
    for pack in (0, 1):
        reference, mine = f"pack-{pack}", numbers[pack * 50 : pack * 50 + 50]
        url = callback_url(base, CONN_ID, TOKEN_KEY, CallbackToken("spring", reference, len(mine)))
        sent = client.send_sms(
            mine, "ACME", "Hello", is_trackable=True, external_ref=reference,
            callback=url if "callback" in doors else None,
        )  # fmt: skip
        noted = SentRequest(reference, len(mine), sent.id)
        store.write(lambda connection, noted=noted: record_requests(connection, "spring", "shop", [noted]))
    all_said(sandbox)
    sandbox.control("POST", "clock/advance", {"seconds": 3600})
    counts = all_said(sandbox)
    assert counts["acknowledged"] == counts["booked"] == counts["sent"] > 100 * len(doors)
    answer = sandbox.control("GET", "outcomes/sms?limit=1000")
    with store.connect() as connection:
        found = {one["recipient"]: one for one in read_recipients(connection, ["spring"])}
    assert {who: one["outcome"] for who, one in found.items()} == {
        one["recipient"]: one["outcome"] for one in answer["items"]
    }
    assert not any(one["conflict"] for one in found.values())
    assert Counter(one["outcome"] for one in found.values()) == answer["counts"]
    assert len(answer["counts"]) == 3
