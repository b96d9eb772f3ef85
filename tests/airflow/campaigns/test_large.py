"""Campaigns of more requests than a fast test makes."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.airflow.campaigns.test_idempotency import parts
from tests.airflow.campaigns.test_recipients import set_dnd
from tests.airflow.campaigns.test_recipients import store as store
from tests.airflow.harness.campaigns import (
    count_messages,
    counts,
    digits,
    limit_batches,
    reject_recipients,
    requests,
    rows,
    sms,
)
from tests.airflow.harness.task_runner import ATTEMPTS, TaskRunner, fault


def test_report_names_at_most_100_references(task_runner: TaskRunner) -> None:
    task_runner.connect("cpaas_default", recipients_per_request=1, max_concurrency=16)
    task_runner.sandbox.control(*fault("send_sms", "error_500_after", rate=0.6, seed=3))
    *_, last = sms(task_runner, rows(220), on_unknown="skip").run_to_end()
    report = last.result or last.report
    assert report["unknown_recipients"] > 100
    assert len(report["unknown_references"]) == 100


@pytest.mark.parametrize("kind", ["error_500", "reject"])
def test_outage_of_look_ups_fails_the_task_and_the_retry_goes_on(task_runner: TaskRunner, kind: str) -> None:
    how = {"message": "Not now"} if kind == "reject" else {}
    set_dnd(task_runner, of=300)
    task_runner.sandbox.control(*fault("lookup_phone", kind, after=50, **how))
    task_runner.connect("cpaas_default", recipients_per_request=20)
    run = sms(task_runner, rows(300), skip_dnd=True)
    failed = run.run_try()
    assert failed.state == "up_for_retry"
    assert "10 lookups in a row failed" in failed.error
    assert requests(task_runner, "lookup_phone") <= 50 + (10 + 16) * ATTEMPTS
    assert failed.report["not_sent"] > 200
    task_runner.sandbox.control("DELETE", "faults")
    done = run.run_try()
    assert (done.state, counts(done.result)) == ("success", {"sent": 300})
    assert max(count_messages(task_runner).values()) == 1


def test_rejection_of_all_recipients_ends_the_campaign_without_a_limit_too(task_runner: TaskRunner) -> None:
    limit_batches(task_runner)
    reject_recipients(task_runner, digits(70), named=False)
    failed = sms(task_runner, rows(70), max_failure_ratio=1, max_identical_rejections=None).run_try()
    assert (failed.state, requests(task_runner), counts(failed.report)) == (
        "failed", 50, {"rejected": 50, "not_sent": 20}
    )  # fmt: skip
    assert "accepted none" in failed.error


def test_retry_of_one_partition_continues_with_its_own_recipients(task_runner: TaskRunner) -> None:
    limit_batches(task_runner)
    run = parts(task_runner, 2, rows(40))
    task_runner.sandbox.control(*fault("send_sms", "rate_limit", after=3, times=5, retry_after=0))
    assert run.run_try(map_index=0).state == "up_for_retry"
    states = [run.run_try(map_index=index).state for index in (1, 0)]
    assert (states, count_messages(task_runner)) == (["success", "success"], Counter(digits(40)))


def test_request_has_at_most_2500_recipients_whatever_the_connection_allows(task_runner: TaskRunner) -> None:
    """More would not fit into one value of the journal."""
    task_runner.sandbox.control("PUT", "settings", {"max_recipients": 10_000})
    task_runner.connect("cpaas_default", recipients_per_request=10_000)
    done = sms(task_runner, rows(2_501)).run_try()
    assert (done.state, counts(done.result), requests(task_runner)) == ("success", {"sent": 2_501}, 2)
