"""A service that asks for a client certificate: real task instances, ``ping`` and ``doctor``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import BaseOperator

from cpaas_provider.hooks.cpaas import CpaasHook
from cpaas_provider.operators.airtime import BuyAirtimeOperator
from cpaas_provider.operators.sms import SendSmsOperator, SmsCampaignOperator
from cpaas_provider.sources import ListSource
from tests.airflow.harness.task_runner import TaskRunner, phone
from tests.airflow.harness.tries import Run, new_dag
from tests.certificates import Authority
from tests.tls_server import TlsServer, relay_to

OPERATORS: dict[str, tuple[type[BaseOperator], dict[str, Any]]] = {
    "send_sms": (SendSmsOperator, {"recipients": [phone("one")], "content": "Hello"}),
    "buy_airtime": (BuyAirtimeOperator, {"recipient": phone("one"), "network": "MTN", "amount": 60}),
    "campaign": (
        SmsCampaignOperator,
        {"source": ListSource([{"phone": phone("one")}]), "recipient_column": "phone", "content": "Hello"},
    ),
}


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "service")


@pytest.fixture
def tls_front(task_runner: TaskRunner, authority: Authority, tmp_path: Path) -> Iterator[TlsServer]:
    """The sandbox behind TLS that requires a client certificate. ``cpaas_default`` leads there and has none."""
    context = authority.server_context(clients=authority.path)
    with TlsServer(context, tmp_path, relay_to(task_runner.sandbox.url)) as server:
        task_runner.connect("cpaas_default", host=server.url, verify=str(authority.path))
        yield server


def give_certificate(task_runner: TaskRunner, authority: Authority, tls_front: TlsServer) -> None:
    cert, key = authority.issue("client", password="pa55word")
    task_runner.connect(
        "cpaas_default", host=tls_front.url, verify=str(authority.path),
        client_cert=str(cert), client_key=str(key), client_key_password="pa55word",
    )  # fmt: skip


@pytest.mark.parametrize("case", ["send_sms", "campaign"])
def test_task_without_client_certificate_sends_nothing_and_the_next_try_sends_once(
    task_runner: TaskRunner, authority: Authority, tls_front: TlsServer, case: str
) -> None:
    kind, arguments = OPERATORS[case]
    with new_dag() as dag:
        kind(task_id="send", **arguments)
    run = Run(task_runner, dag)
    first = run.run_try()
    assert first.state == "up_for_retry"
    assert "certificate_required" in first.error + first.log
    assert "unknown" not in first.error
    assert tls_front.bytes_read == 0
    give_certificate(task_runner, authority, tls_front)
    assert [attempt.state for attempt in run.run_to_end()] == ["success"]
    assert sum(task_runner.sandbox.counters()["accepted"].values()) == 1
    assert set(tls_front.peers) == {"client"}


def test_purchase_without_client_certificate_is_unknown_and_named(
    task_runner: TaskRunner, authority: Authority, tls_front: TlsServer
) -> None:
    kind, arguments = OPERATORS["buy_airtime"]
    with new_dag() as dag:
        kind(task_id="send", **arguments)
    run = Run(task_runner, dag)
    first = run.run_try()
    assert first.state == "failed"
    assert first.error.startswith("Outcome unknown: ")
    assert "check client_cert and client_key" in first.error
    assert sum(task_runner.sandbox.counters()["accepted"].values()) == 0


def test_ping_names_a_missing_client_certificate_and_accepts_a_valid_one(
    task_runner: TaskRunner, authority: Authority, tls_front: TlsServer
) -> None:
    works, message = CpaasHook("cpaas_default").test_connection()
    assert not works
    assert message.startswith("No connection to the host: ")
    assert "check client_cert and client_key" in message
    give_certificate(task_runner, authority, tls_front)
    assert CpaasHook("cpaas_default").test_connection()[0]
    task_runner.connect("cpaas_default", host=tls_front.url, client_cert="/no/such/file.pem")
    works, message = CpaasHook("cpaas_default").test_connection()
    assert not works
    assert message.startswith("client_cert names a file that cannot be read (FileNotFoundError).")
