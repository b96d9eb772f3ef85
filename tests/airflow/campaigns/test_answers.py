"""A service that accepts all requests with responses that resemble a failure: no recipient gets a message twice."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.harness.campaigns import (
    count_messages,
    counts,
    digits,
    read_results,
    reject_recipients,
    requests,
    rows,
    sms,
)
from tests.airflow.harness.task_runner import TaskRunner, fault
from tests.airflow.harness.tries import Run, Try

EVERYBODY = 100
PER_REQUEST = 10

WITH_RECORD: list[dict[str, Any]] = [
    {"form": "empty_errors"},
    {"form": "queued"},
    *({"form": "status_beside", "body_status": status} for status in (400, 429, 500, 503, 504)),
]
WITHOUT_RECORD: list[dict[str, Any]] = [
    {"form": "message"},
    {"form": "redirect"},
    *({"form": "status_alone", "body_status": status} for status in (500, 503)),
]


def named(params: dict[str, Any]) -> str:
    return "-".join(map(str, params.values()))


def campaign(task_runner: TaskRunner, **given: Any) -> Run:
    task_runner.connect("cpaas_default", recipients_per_request=PER_REQUEST, requests_per_second=1_000)
    return sms(task_runner, rows(EVERYBODY), **given)


def run_to_end(run: Run) -> Try:
    """Run tries until there is none left, or one succeeds."""
    ended = run.run_try()
    while ended.state == "up_for_retry":
        ended = run.run_try()
    return ended


def messages(task_runner: TaskRunner) -> int:
    """Return the number of messages the service accepted."""
    return int(task_runner.sandbox.counters()["sms"]["recipients"])


@pytest.mark.parametrize(
    ("params", "policy"),
    list(zip(WITH_RECORD, itertools.cycle(["resend", "fail", "skip"]))),
    ids=lambda value: named(value) if isinstance(value, dict) else value,
)
def test_accepted_record_in_any_form_is_sent_once(task_runner: TaskRunner, params: dict[str, Any], policy: str) -> None:
    task_runner.sandbox.control(*fault("send_sms", "odd_answer", **params))
    run = campaign(task_runner, on_unknown=policy)
    done = run.run_try()
    assert (done.state, counts(done.result)) == ("success", {"sent": EVERYBODY})
    assert (messages(task_runner), requests(task_runner), len(count_messages(task_runner))) == (
        EVERYBODY,
        10,
        EVERYBODY,
    )
    assert run.clear().run_try().state == "success"
    assert messages(task_runner) == EVERYBODY


@pytest.mark.parametrize("policy", ["fail", "skip"])
@pytest.mark.parametrize("params", WITHOUT_RECORD, ids=named)
def test_accepted_without_a_record_is_unknown_and_sent_once(
    task_runner: TaskRunner, params: dict[str, Any], policy: str
) -> None:
    task_runner.sandbox.control(*fault("send_sms", "odd_answer", **params))
    run = campaign(task_runner, on_unknown=policy)
    ended = run_to_end(run)
    assert ended.state == {"fail": "failed", "skip": "success"}[policy]
    assert counts(ended.result or ended.report) == {"unknown_recipients": EVERYBODY}
    run_to_end(run.clear())
    assert (messages(task_runner), requests(task_runner), len(count_messages(task_runner))) == (
        EVERYBODY,
        10,
        EVERYBODY,
    )


@pytest.mark.parametrize("policy", ["fail", "resend"])
def test_recipients_that_an_accepted_request_names_are_rejected_within_it(task_runner: TaskRunner, policy: str) -> None:
    people = digits(EVERYBODY)
    bad = people[7::PER_REQUEST]
    reject_recipients(task_runner, bad)
    task_runner.sandbox.control("PUT", "settings", {"refused_recipients": "leave_out"})
    run = campaign(task_runner, on_unknown=policy, max_failure_ratio=0.0)
    ended = run.run_try()
    assert (ended.state, counts(ended.report)) == ("failed", {"sent": 90, "rejected": 10})
    assert (messages(task_runner), requests(task_runner)) == (90, 10)
    # After a clear, only recipients that were left out are tried again.
    again = run.clear().run_try()
    assert (again.state, counts(again.report)) == ("failed", {"sent": 90, "rejected": 10})
    assert (messages(task_runner), requests(task_runner), len(count_messages(task_runner))) == (90, 11, 90)


@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_accepted_request_that_names_recipients_and_lost_its_id_is_unknown(
    task_runner: TaskRunner, policy: str
) -> None:
    reject_recipients(task_runner, digits(EVERYBODY)[7::PER_REQUEST])
    task_runner.sandbox.control("PUT", "settings", {"refused_recipients": "leave_out"})
    task_runner.sandbox.control(*fault("send_sms", "missing_field", times=1))
    run = campaign(task_runner, on_unknown=policy)
    ended = run_to_end(run)
    assert counts(ended.report) == {"sent": 81, "rejected": 9, "unknown_recipients": PER_REQUEST}
    run_to_end(run.clear())
    assert messages(task_runner) == len(count_messages(task_runner)) == 90


def test_batch_rejected_as_a_whole_is_not_sent_again_where_the_author_says_so(task_runner: TaskRunner) -> None:
    reject_recipients(task_runner, digits(EVERYBODY)[7:8], named=False)
    # One after the other, so that the first answer of all is the rejection.
    task_runner.connect(
        "cpaas_default", recipients_per_request=PER_REQUEST, requests_per_second=1_000, max_concurrency=1
    )
    run = sms(task_runner, rows(EVERYBODY), on_rejected_batch="fail")
    ended = run.run_try()
    assert (ended.state, counts(ended.report)) == ("failed", {"sent": 90, "rejected": 10})
    assert (messages(task_runner), requests(task_runner)) == (90, 10)


def test_retry_does_not_send_to_recipients_rejected_within_an_accepted_request(task_runner: TaskRunner) -> None:
    reject_recipients(task_runner, digits(EVERYBODY)[7:8])
    task_runner.sandbox.control("PUT", "settings", {"refused_recipients": "leave_out"})
    # The last request is not sent by the first try.
    task_runner.sandbox.control(*fault("send_sms", "rate_limit", after=9, times=100, retry_after=0))
    task_runner.connect(
        "cpaas_default", recipients_per_request=PER_REQUEST, requests_per_second=1_000, max_concurrency=1
    )
    run = sms(task_runner, rows(EVERYBODY))
    ended = run.run_try()
    assert (ended.state, counts(ended.report)) == ("up_for_retry", {"sent": 89, "rejected": 1, "not_sent": 10})
    task_runner.sandbox.control("DELETE", "faults")
    ended = run.run_try()
    assert (ended.state, counts(ended.report)) == ("failed", {"sent": 99, "rejected": 1})
    assert (messages(task_runner), len(count_messages(task_runner))) == (99, 99)


@pytest.mark.parametrize("params", [{}, {"ms": 3}], ids=["at once", "later"])
def test_second_answer_is_that_of_no_other_request(
    task_runner: TaskRunner, tmp_path: Path, params: dict[str, Any]
) -> None:
    task_runner.sandbox.control(*fault("send_sms", "two_answers", **params))
    task_runner.connect("cpaas_default", recipients_per_request=1, requests_per_second=1_000)
    done = sms(task_runner, rows(40), results_path=str(tmp_path / "o.jsonl")).run_try()
    assert (done.state, counts(done.result)) == ("success", {"sent": 40})
    stored = {item["recipient"]: item["message_id"] for item in task_runner.sandbox.inbox("sms", limit=1000)["items"]}
    assert len(stored) == requests(task_runner) == 40
    assert {line["recipient"]: line["message_id"] for line in read_results(tmp_path / "o.jsonl")} == stored
