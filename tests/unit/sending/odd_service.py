"""A service over HTTP that carries out what it likes and answers as oddly as it likes.

It breaks one rule of nobody: where PROMISES.md lets a client take an answer for a refusal, it has carried out nothing.
"""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.unit.api.generated_answers import OddAnswers, encoded, envelope, resource
from tests.unit.api.outcome_oracle import ACCEPTED, NOT_SENT, REJECTED, Judgement, judge
from tests.unit.api.question import Answer, Question

OPERATIONS = {
    "/sms/send": "send_sms",
    "/email/send": "send_email",
    "/otp/request_token": "request_otp",
    "/airtime/buy": "buy_airtime",
    "/lists/contact/rows": "create_contact_row",
}
TABLE = {"id": "table-1", "columns": [{"id": "name", "name": "Name", "type": "TEXT"}]}

Respond = Callable[[Question], Answer]


@dataclass(frozen=True)
class Exchange:
    """A request, its answer, what the promises allow to be made of it, and what was carried out."""

    question: Question
    answer: Answer
    judgement: Judgement
    reached: frozenset[str]


def targets(question: Question) -> tuple[str, ...]:
    """Return what a request is for: its recipients, or the cells of a row."""
    fields = question.fields
    if question.recipients:
        return question.recipients
    return (str(fields["recipient"]) if "recipient" in fields else json.dumps(fields.get("columns"), sort_keys=True),)


@dataclass
class OddService:
    """What answers, and what it did.

    :param respond: returns the answer to a request
    :param chance: decides what is carried out where the answer says nothing of it
    """

    respond: Respond
    chance: random.Random = field(default_factory=lambda: random.Random(7))
    exchanges: list[Exchange] = field(default_factory=list)
    url: str = ""

    @property
    def reached(self) -> Counter[str]:
        """How many messages each recipient got."""
        return Counter(recipient for exchange in self.exchanges for recipient in exchange.reached)

    @property
    def batches(self) -> list[tuple[str, ...]]:
        return [targets(exchange.question) for exchange in self.exchanges]

    @property
    def claimed(self) -> set[str]:
        """The recipients of requests whose answers have an id that means something, or may have."""
        return {
            recipient
            for exchange in self.exchanges
            if ACCEPTED in exchange.judgement.verdicts
            for recipient in targets(exchange.question)
        }

    @property
    def twice(self) -> dict[str, int]:
        return {recipient: count for recipient, count in self.reached.items() if count > 1}

    def handle(self, question: Question) -> Answer:
        """Answer a request, and carry out of it what fits the answer."""
        answer = self.respond(question)
        judgement = judge(question, answer)
        self.exchanges.append(Exchange(question, answer, judgement, self._carry_out(question, judgement)))
        return answer

    def _carry_out(self, question: Question, judgement: Judgement) -> frozenset[str]:
        everything = targets(question)
        if judgement.verdicts & {REJECTED, NOT_SENT}:
            return frozenset()
        if ACCEPTED in judgement.verdicts:
            return frozenset(everything) - judgement.rejectable
        share = self.chance.choice((0.0, 0.5, 1.0, 1.0))
        return frozenset(one for one in everything if self.chance.random() < share)


@contextmanager
def serving(service: OddService) -> Iterator[OddService]:
    """Let a service answer over HTTP."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            with lock:
                self._send(service.handle(Question(OPERATIONS[self.path], json.loads(body))))

        def do_GET(self) -> None:
            self._send(Answer(200, encoded([] if self.path.startswith("/otp") else TABLE)))

        def _send(self, answer: Answer) -> None:
            self.send_response(answer.status, "Odd")
            if answer.retry_after is not None:
                self.send_header("Retry-After", answer.retry_after)
            if answer.status not in (204, 304):
                self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            if answer.status not in (204, 304):
                self.wfile.write(answer.body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        service.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield service
        finally:
            server.shutdown()
            thread.join(5)


def plain(question: Question, id_: str) -> Answer:
    """Return the contract's own answer to what is accepted."""
    return Answer(200, encoded(resource(question, id_)))


def oddly(seed: int, most: int) -> Respond:
    """Answer the first requests oddly, and the others as the contract has it."""
    chance, count = random.Random(seed), iter(range(10_000))

    def respond(question: Question) -> Answer:
        number = next(count)
        if number >= most or chance.random() < 0.2:
            return plain(question, f"m-{number}")
        odd = OddAnswers(chance, question)
        answer = odd.answer() if chance.random() < 0.5 else Answer(200, odd.raw_body())
        # Nothing ends with 1xx on the wire, and a test waits for nothing.
        status = 200 if answer.status < 200 else answer.status
        return Answer(status, answer.body, None if answer.retry_after is None else "0")

    return respond


def always(status: int, body: Any) -> Respond:
    """Answer each request in the same way."""
    return lambda question: Answer(status, encoded(body(question) if callable(body) else body))


def rejecting(recipients: frozenset[str], refuse: Callable[[Question, list[str]], Answer]) -> Respond:
    """Refuse each request with one of these recipients in it, and accept the others."""

    def respond(question: Question) -> Answer:
        bad = [recipient for recipient in targets(question) if recipient in recipients]
        return refuse(question, bad) if bad else Answer(200, encoded(envelope(resource(question, f"m-{len(bad)}"))))

    return respond
