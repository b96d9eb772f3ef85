"""A service that accepts everything and answers in ways that resemble a failure: nobody gets a message twice."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.harness.campaigns import counts, digits, lines, reached, refuse, requests, rows, sms
from tests.airflow.harness.stage import Stage, fault
from tests.airflow.harness.tries import Run, Try

EVERYBODY = 1_000
PER_REQUEST = 100

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


def campaign(stage: Stage, **given: Any) -> Run:
    stage.connect("cpaas_default", recipients_per_request=PER_REQUEST, requests_per_second=1_000)
    return sms(stage, rows(EVERYBODY), **given)


def to_the_end(run: Run) -> Try:
    """Run tries until there is none left, or one succeeds."""
    ended = run.once()
    while ended.state == "up_for_retry":
        ended = run.once()
    return ended


def messages(stage: Stage) -> int:
    """Return how many messages the service accepted, whoever they are for."""
    return int(stage.sandbox.counters()["sms"]["recipients"])


@pytest.mark.parametrize(
    ("params", "policy"),
    list(zip(WITH_RECORD, itertools.cycle(["resend", "fail", "skip"]))),
    ids=lambda value: named(value) if isinstance(value, dict) else value,
)
def test_accepted_record_in_any_form_is_sent_once(stage: Stage, params: dict[str, Any], policy: str) -> None:
    stage.sandbox.control(*fault("send_sms", "odd_answer", **params))
    run = campaign(stage, on_unknown=policy)
    done = run.once()
    assert (done.state, counts(done.result)) == ("success", {"sent": EVERYBODY})
    assert (messages(stage), requests(stage), len(reached(stage))) == (EVERYBODY, 10, EVERYBODY)
    assert run.clear().once().state == "success"
    assert messages(stage) == EVERYBODY


@pytest.mark.parametrize("policy", ["fail", "skip"])
@pytest.mark.parametrize("params", WITHOUT_RECORD, ids=named)
def test_accepted_without_a_record_is_unknown_and_sent_once(stage: Stage, params: dict[str, Any], policy: str) -> None:
    stage.sandbox.control(*fault("send_sms", "odd_answer", **params))
    run = campaign(stage, on_unknown=policy)
    ended = to_the_end(run)
    assert ended.state == {"fail": "failed", "skip": "success"}[policy]
    assert counts(ended.result or ended.report) == {"unknown_recipients": EVERYBODY}
    to_the_end(run.clear())
    assert (messages(stage), requests(stage), len(reached(stage))) == (EVERYBODY, 10, EVERYBODY)


@pytest.mark.parametrize("policy", ["fail", "resend"])
def test_recipients_that_an_accepted_request_names_are_rejected_within_it(stage: Stage, policy: str) -> None:
    people = digits(EVERYBODY)
    bad = people[7::PER_REQUEST]
    refuse(stage, bad)
    stage.sandbox.control("PUT", "settings", {"refused_recipients": "leave_out"})
    run = campaign(stage, on_unknown=policy, max_failure_ratio=0.0)
    ended = run.once()
    assert (ended.state, counts(ended.report)) == ("failed", {"sent": 990, "rejected": 10})
    assert (messages(stage), requests(stage)) == (990, 10)
    # Cleared, those who were left out are tried again, and nobody else.
    again = run.clear().once()
    assert (again.state, counts(again.report)) == ("failed", {"sent": 990, "rejected": 10})
    assert (messages(stage), requests(stage), len(reached(stage))) == (990, 11, 990)


@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_accepted_request_that_names_recipients_and_lost_its_id_is_unknown(stage: Stage, policy: str) -> None:
    refuse(stage, digits(EVERYBODY)[7::PER_REQUEST])
    stage.sandbox.control("PUT", "settings", {"refused_recipients": "leave_out"})
    stage.sandbox.control(*fault("send_sms", "missing_field", times=1))
    run = campaign(stage, on_unknown=policy)
    ended = to_the_end(run)
    assert counts(ended.report) == {"sent": 891, "rejected": 9, "unknown_recipients": PER_REQUEST}
    to_the_end(run.clear())
    assert messages(stage) == len(reached(stage)) == 990


def test_batch_rejected_as_a_whole_is_not_sent_again_where_the_author_says_so(stage: Stage) -> None:
    refuse(stage, digits(EVERYBODY)[7:8], named=False)
    # One after the other, so that the first answer of all is the rejection.
    stage.connect("cpaas_default", recipients_per_request=PER_REQUEST, requests_per_second=1_000, max_concurrency=1)
    run = sms(stage, rows(EVERYBODY), on_rejected_batch="fail")
    ended = run.once()
    assert (ended.state, counts(ended.report)) == ("failed", {"sent": 900, "rejected": 100})
    assert (messages(stage), requests(stage)) == (900, 10)


def test_retry_does_not_send_to_recipients_rejected_within_an_accepted_request(stage: Stage) -> None:
    refuse(stage, digits(EVERYBODY)[7:8])
    stage.sandbox.control("PUT", "settings", {"refused_recipients": "leave_out"})
    # The last request is not sent by the first try.
    stage.sandbox.control(*fault("send_sms", "rate_limit", after=9, times=100, retry_after=0))
    stage.connect("cpaas_default", recipients_per_request=PER_REQUEST, requests_per_second=1_000, max_concurrency=1)
    run = sms(stage, rows(EVERYBODY))
    ended = run.once()
    assert (ended.state, counts(ended.report)) == ("up_for_retry", {"sent": 899, "rejected": 1, "not_sent": 100})
    stage.sandbox.control("DELETE", "faults")
    ended = run.once()
    assert (ended.state, counts(ended.report)) == ("failed", {"sent": 999, "rejected": 1})
    assert (messages(stage), len(reached(stage))) == (999, 999)


@pytest.mark.parametrize("params", [{}, {"ms": 3}], ids=["at once", "later"])
def test_second_answer_is_that_of_no_other_request(stage: Stage, tmp_path: Path, params: dict[str, Any]) -> None:
    stage.sandbox.control(*fault("send_sms", "two_answers", **params))
    stage.connect("cpaas_default", recipients_per_request=1, requests_per_second=1_000)
    done = sms(stage, rows(40), results_path=str(tmp_path / "o.jsonl")).once()
    assert (done.state, counts(done.result)) == ("success", {"sent": 40})
    stored = {item["recipient"]: item["message_id"] for item in stage.sandbox.inbox("sms", limit=1000)["items"]}
    assert len(stored) == requests(stage) == 40
    assert {line["recipient"]: line["message_id"] for line in lines(tmp_path / "o.jsonl")} == stored
