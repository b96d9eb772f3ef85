"""A service that stops accepting midway: few further requests, and remaining recipients are not sent to."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.airflow.harness.campaigns import count_messages, counts, digits, requests, rows, sms
from tests.airflow.harness.task_runner import TaskRunner, fault


@pytest.mark.parametrize("words", ["Insufficient balance", "Sender ID not approved"])
def test_rejected_after_the_first_request_a_thousand_recipients_take_few_requests(
    task_runner: TaskRunner, words: str
) -> None:
    task_runner.connect("cpaas_default", recipients_per_request=100)
    task_runner.sandbox.control(*fault("send_sms", "reject", after=1, message=words))
    run = sms(task_runner, rows(1000))
    failed = run.run_try()
    assert failed.state == "failed"
    assert requests(task_runner) < 40
    assert words in failed.error
    assert failed.report["sent"] == 100
    assert failed.report["not_sent"] > 880
    task_runner.sandbox.control("DELETE", "faults")
    done = run.clear().run_try()
    assert (done.state, counts(done.result)) == ("success", {"sent": 1000})
    assert max(count_messages(task_runner).values()) == 1


def test_words_of_no_balance_are_those_of_the_connection(task_runner: TaskRunner) -> None:
    task_runner.connect(
        "cpaas_default", recipients_per_request=10, max_concurrency=4, insufficient_balance_words="Solde epuise"
    )
    task_runner.sandbox.control(*fault("send_sms", "reject", message="SOLDE EPUISE."))
    failed = sms(task_runner, rows(100)).run_try()
    assert (failed.state, counts(failed.report)) == ("failed", {"not_sent": 100})
    assert requests(task_runner) <= 4
    assert "Top up the account" in failed.error


def test_bad_recipients_are_still_found_one_by_one(task_runner: TaskRunner) -> None:
    task_runner.connect("cpaas_default", recipients_per_request=50)
    task_runner.sandbox.control("POST", "seed", {"refused_recipients": digits(100)[::20]})
    task_runner.sandbox.control("PUT", "settings", {"name_refused_recipients": False})
    done = sms(task_runner, rows(100), max_failure_ratio=0.1).run_try()
    assert (done.state, counts(done.result)) == ("success", {"sent": 95, "rejected": 5})
    assert set(count_messages(task_runner)) == set(Counter(digits(100))) - set(digits(100)[::20])
