"""A campaign, the hook's client and the command line against a server that carries out every request.

The server speaks HTTP by hand, and its answers leave in doubt what was carried out.
"""

from __future__ import annotations

import gzip
import json
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cpaas_provider.api.errors import CpaasUnknownOutcomeError
from cpaas_provider.hooks.cpaas import CpaasHook
from tests.airflow.harness.campaigns import digits, outcomes, rows, sms
from tests.airflow.harness.command_line import CommandLine
from tests.airflow.harness.task_runner import TaskRunner
from tests.airflow.harness.tries import Run
from tests.unit.api.loopback import Loopback, Seen

ITEM = {"field": "recipients", "message": "is not valid", "type": "invalid"}
TABLE = {"id": "table-1", "columns": [{"id": "name", "name": "Name", "type": "TEXT"}]}
OPTIONS = {"recipients_per_request": 4, "requests_per_second": 1_000, "max_concurrency": 2}

Reply = Callable[[dict[str, Any]], bytes]


@pytest.fixture(autouse=True)
def own_store(own_database: None) -> None:
    """A database of each test's own."""


def reply(status: int, body: Any, *headers: str) -> bytes:
    """Return a response as it goes over the wire."""
    content = body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()
    lines = [f"HTTP/1.1 {status} Odd", f"Content-Length: {len(content)}", "Connection: close", *headers, "", ""]
    return "\r\n".join(lines).encode() + content


@dataclass
class RawService:
    """Carries out every request, and answers as it likes."""

    answer: Reply
    received: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    url: str = ""

    def handle(self, method: str, path: str, fields: dict[str, Any]) -> bytes:
        if method == "GET":
            return reply(200, [] if path.startswith("/otp") else TABLE)
        self.requests += 1
        target = fields.get("recipients") or fields.get("recipient") or json.dumps(fields)
        self.received.update(str(target).split(",") if "recipients" in fields else [str(target)])
        return self.answer(fields)


@contextmanager
def serving(service: RawService) -> Iterator[RawService]:
    def respond(connection: socket.socket, request: Seen) -> None:
        connection.sendall(service.handle(request.method, request.target, json.loads(request.body or b"{}")))

    with Loopback(respond) as server:
        service.url = server.url
        yield service


def result_list(fields: dict[str, Any]) -> bytes:
    listed = str(fields.get("recipients") or "2348031200000,2348031200001").split(",")
    results = [{"to": one, "code": 0 if place % 2 == 0 else 21211} for place, one in enumerate(listed)]
    return reply(400, {"message": "Bad request", "results": results, "message_ids": ["m-1"]})


DOUBTFUL: dict[str, Reply] = {
    "200 whose status is a word": lambda _: reply(200, {"status": "P", "message": "Bad request", "errors": [ITEM]}),
    "400 with results": result_list,
    "400 with XML": lambda _: reply(400, "<response><MessageId>17</MessageId><error>bad</error></response>"),
    "400 in UTF-16": lambda _: reply(400, "Message accepted".encode("utf-16")),
    "400 in gzip": lambda _: reply(400, gzip.compress(b'{"id_message": "m-1"}'), "Content-Encoding: gzip"),
    "400 of a part": lambda _: reply(400, {"message": "Some messages could not be sent"}),
    "400 of an upstream": lambda _: reply(400, {"message": 'upstream said {"message_id":"m-1"}'}),
    "400 after a reset": lambda _: reply(400, {"message": "read ECONNRESET"}),
    "400 that is huge": lambda _: reply(400, {"message": "x" * 3_000_000, "id": "m-1"}),
}


def check(service: RawService, run: Run) -> None:
    for ended in run.run_with_clears():
        assert max(service.received.values()) == 1, service.received
        report = ended.result or ended.report or {}
        assert not report.get("sent")
        assert report.get("unknown_recipients"), (ended.state, ended.error, report)


@pytest.mark.parametrize("answer", DOUBTFUL.values(), ids=DOUBTFUL)
def test_campaign_resends_no_unknown_request(task_runner: TaskRunner, tmp_path: Path, answer: Reply) -> None:
    with serving(RawService(answer)) as service:
        task_runner.connect("cpaas_default", host=service.url, **OPTIONS)
        file = tmp_path / "outcomes.jsonl"
        check(service, sms(task_runner, rows(8), on_unknown="skip", unknown_timeout=0, results_path=str(file)))
        assert set(outcomes(file).values()) == {"unknown"}
    assert set(service.received) == set(digits(8))


def test_clients_and_command_line_call_it_unknown(
    task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = iter([*DOUBTFUL.values()] * 2)
    run = CommandLine(monkeypatch, capsys, "cpaas")

    def answer(fields: dict[str, Any]) -> bytes:
        return next(answers)(fields)

    with serving(RawService(answer)) as service:
        task_runner.connect("cpaas_default", host=service.url, **OPTIONS)
        for recipient in digits(len(DOUBTFUL)):
            with CpaasHook().get_conn() as client, pytest.raises(CpaasUnknownOutcomeError):
                client.send_sms(f"+{recipient}", "Shop", "Your parcel is here")
        for recipient in digits(len(DOUBTFUL), first=100):
            said = run("send-sms", f"+{recipient}", "--content", "Hi", "--sender-id", "Shop", "--output", "json")
            assert "unknown" in said.err + said.out, said
    assert set(service.received.values()) == {1}
