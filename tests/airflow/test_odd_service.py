"""The real operators and the idempotent client against a service that carries out requests and responds at random."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import task
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cpaas_provider.hooks.cpaas import CpaasHook
from tests.airflow.harness.campaigns import digits, email, outcomes, rows, sms
from tests.airflow.harness.kinds import AIRTIME, KINDS, Kind
from tests.airflow.harness.task_runner import TaskRunner, phone
from tests.airflow.harness.tries import Run, Try, new_dag
from tests.tiers import few
from tests.unit.api.generated_answers import encoded, envelope, resource
from tests.unit.api.outcome_oracle import ACCEPTED, NOT_SENT, REJECTED, UNKNOWN, judge
from tests.unit.api.outcome_purchases import Purchase, purchase_outcomes
from tests.unit.api.question import Answer, Question
from tests.unit.sending.odd_service import OddService, Respond, always, oddly, serving, targets

POLICIES = ("fail", "skip")
PER_REQUEST = 5
RUN = settings(suppress_health_check=list(HealthCheck), max_examples=max(3, settings().max_examples // 16))
"""A try takes a hundred times as long as an answer."""


@pytest.fixture(autouse=True)
def own_store(own_database: None) -> None:
    """A database of each test's own."""


def connect(task_runner: TaskRunner, service: OddService, **extras: Any) -> None:
    options = {"recipients_per_request": PER_REQUEST, "requests_per_second": 1_000, "max_concurrency": 2, **extras}
    task_runner.connect("cpaas_default", host=service.url, **options)


def check(service: OddService, ended: Try) -> None:
    """Check what is true whatever the service does."""
    told = [(exchange.answer.status, exchange.answer.body[:300]) for exchange in service.exchanges]
    assert not service.twice, f"{service.twice} got it more than once: {told}"
    assert ended.state in ("success", "failed", "up_for_retry"), ended.error


@pytest.mark.parametrize("policy", POLICIES)
@RUN
@given(seed=st.integers(0, 2**32))
def test_campaign_sends_to_no_recipient_twice_and_names_those_not_sent_to(
    task_runner: TaskRunner, tmp_path: Path, policy: str, seed: int
) -> None:
    with serving(OddService(oddly(seed, most=6), random.Random(seed))) as service:
        connect(task_runner, service)
        file = tmp_path / f"{seed}.jsonl"
        run = sms(task_runner, rows(12), on_unknown=policy, results_path=str(file), max_failure_ratio=1.0)
        for ended in run.run_with_clears():
            check(service, ended)
            said = outcomes(file)
            assert set(said) == set(digits(12))
            sent = {recipient for recipient, outcome in said.items() if outcome == "sent"}
            assert sent <= service.claimed
            report = ended.result or ended.report
            assert report["sent"] == len(sent)
            if ended.state == "success":
                assert "not_sent" not in said.values()
                assert policy == "skip" or "unknown" not in said.values()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@RUN
@given(seed=st.integers(0, 2**32))
def test_single_send_is_made_once(task_runner: TaskRunner, kind: Kind, policy: str, seed: int) -> None:
    with serving(OddService(oddly(seed, most=4), random.Random(seed))) as service:
        connect(task_runner, service)
        run = kind.run(task_runner, on_unknown=policy, unknown_timeout=0)
        for ended in run.run_with_clears():
            check(service, ended)
            if ended.state == "success" and not ended.result.get("unknown_recipients"):
                assert service.claimed, f"{ended.result} has no answer with an id"


@RUN
@given(seed=st.integers(0, 2**32))
def test_idempotent_client_sends_each_message_once(task_runner: TaskRunner, seed: int) -> None:
    recipients = [f"+{number}" for number in digits(4)]

    def own() -> None:
        with CpaasHook().get_idempotent_client(on_unknown="skip", unknown_timeout=0) as client:
            for recipient in recipients:
                client.send_sms(recipient, "Your parcel is here")

    with serving(OddService(oddly(seed, most=6), random.Random(seed))) as service:
        connect(task_runner, service)
        with new_dag() as dag:
            task(task_id="own")(own)()
        for ended in Run(task_runner, dag).run_with_clears():
            check(service, ended)


@pytest.mark.parametrize("policy", POLICIES)
def test_email_campaign_whose_rejection_carries_an_id_is_unknown(task_runner: TaskRunner, policy: str) -> None:
    body = {"id": "m-1", "message": "Some are invalid", "errors": [{"field": "recipients", "message": "is invalid"}]}
    people = [{"email": f"person{number}@example.com", "name": "Ada"} for number in range(20)]
    with serving(OddService(always(400, body))) as service:
        connect(task_runner, service)
        run = email(task_runner, people, on_unknown=policy)
        ended = list(run.run_with_clears())[-1]
    assert sorted(map(len, service.batches)) == [PER_REQUEST] * 4
    assert (ended.result or ended.report)["unknown_recipients"] == 20


# -- money ------------------------------------------------------------------------------------------------------------

WORDS: tuple[Any, ...] = (
    "pending", "sent", "success", "failed", "error", "duplicate", "FAILED ", "Success", "declined", "reversed",
    "cancelled", "expired", "refunded", "unknown", "", None, 0, 7, True, {"text": "failed"}, {"text": "success"},
    ["success"], "not success",
)  # fmt: skip


def bought(status: Any, **more: Any) -> Callable[[Question], dict[str, Any]]:
    return lambda question: {**resource(question), "status": status, **more}


def refunded(status: str) -> Callable[[Question], dict[str, Any]]:
    charge = {"amount": 100, "available_balance": 900, "balance_before": 1000, "refunded": True}
    return bought(status, meta={"method": "POST", "resource": "airtime", "charge": charge})


def within(status: Any, outer: Any) -> Callable[[Question], dict[str, Any]]:
    return lambda question: envelope({**resource(question), "status": status}, status=outer)


PURCHASES: dict[str, Callable[[Question], dict[str, Any]]] = {
    **{str(word): bought(word) for word in WORDS},
    **{f"{word} in an envelope": within(word, 200) for word in ("pending", "success", "failed", "declined")},
    **{f"{word} refunded": refunded(word) for word in ("success", "pending")},
    "success around failed": within("failed", "success"),
    "failed around success": within("success", "failed"),
    "a second status inside data": bought("success", data={"status": "failed"}),
}


def outcome_of(ended: Try) -> Purchase:
    """Return what a try calls a purchase."""
    if ended.state == "success":
        return Purchase.UNKNOWN if ended.result.get("unknown_recipients") else Purchase.BOUGHT
    report = ended.report or {}
    return Purchase.UNKNOWN if report.get("unknown_recipients") else Purchase.FAILED


@pytest.mark.parametrize("name", few(tuple(PURCHASES), 3))
def test_purchase_is_called_what_the_contract_calls_it(task_runner: TaskRunner, name: str) -> None:
    answer = PURCHASES[name]
    with serving(OddService(always(200, answer))) as service:
        connect(task_runner, service)
        run = AIRTIME.run(task_runner, on_unknown="fail", unknown_timeout=0)
        first = next(made := run.run_with_clears())
        list(made)
    allowed = purchase_outcomes(answer(service.exchanges[0].question))
    assert outcome_of(first) in allowed, first.error or first.result
    if outcome_of(first) is not Purchase.FAILED:
        assert len(service.exchanges) == 1, "it was bought again"


# -- the answers of the issue, by each way to send ---------------------------------------------------------------------

ITEM = {"field": "recipients", "message": "is invalid", "type": "invalid"}
ANSWERS: dict[str, tuple[int, Any]] = {
    "gateway": (200, {"message": "Gateway timeout", "errors": ["upstream timed out"]}),
    "null": (200, {"message": "It failed", "errors": [None]}),
    "504 in an item": (200, {"message": "It failed", "errors": [{**ITEM, "code": 504}]}),
    "id in a 400": (400, {"message": "It failed", "errors": [ITEM], "id": "m-1"}),
    "499": (499, {"message": "It failed", "errors": [ITEM]}),
    "460": (460, {"message": "It failed", "errors": [ITEM]}),
    "queued": (400, {"message": "Message queued"}),
    "dead id": (200, {"id": 0, "message": "It failed"}),
}


@pytest.mark.parametrize(("kind", "answer"), few(tuple(itertools.product(KINDS, ANSWERS)), 3))
def test_request_that_may_have_been_carried_out_is_made_once(task_runner: TaskRunner, kind: str, answer: str) -> None:
    status, body = ANSWERS[answer]
    with serving(OddService(always(status, body))) as service:
        connect(task_runner, service)
        ended = list(KINDS[kind].run(task_runner, on_unknown="fail", unknown_timeout=0).run_with_clears())[-1]
    assert len(service.exchanges) == 1
    assert judge(service.exchanges[0].question, Answer(status, encoded(body))).verdicts == {UNKNOWN}
    assert (ended.state, ended.report["unknown_recipients"]) == ("failed", 1)


def test_service_model_gives_answers_of_every_verdict() -> None:
    """Otherwise the tests above would see nothing of one of them."""
    question = Question("send_sms", {"recipients": phone("a"), "sender_id": "Shop", "content": "Hello"})
    respond: Respond = oddly(3, most=400)
    seen = {verdict for _ in range(400) for verdict in judge(question, respond(question)).verdicts}
    assert seen == {ACCEPTED, NOT_SENT, REJECTED, UNKNOWN}
    assert targets(question) == (phone("a"),)
