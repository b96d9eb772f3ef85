"""Campaigns of more requests than a fast test makes."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.airflow.campaigns.test_idempotency import parts
from tests.airflow.campaigns.test_recipients import disturbing
from tests.airflow.campaigns.test_recipients import store as store
from tests.airflow.harness.campaigns import counts, digits, reached, refuse, requests, rows, small_packs, sms
from tests.airflow.harness.stage import ATTEMPTS, Stage, fault


def test_at_most_a_hundred_references_are_named(stage: Stage) -> None:
    stage.connect("cpaas_default", recipients_per_request=1, max_concurrency=16)
    stage.sandbox.control(*fault("send_sms", "error_500_after", rate=0.6, seed=3))
    *_, last = sms(stage, rows(220), on_unknown="skip").to_the_end()
    report = last.result or last.report
    assert report["unknown_recipients"] > 100
    assert len(report["unknown_references"]) == 100


@pytest.mark.parametrize("kind", ["error_500", "reject"])
def test_outage_of_look_ups_fails_the_task_and_the_retry_goes_on(stage: Stage, kind: str) -> None:
    how = {"message": "Not now"} if kind == "reject" else {}
    disturbing(stage, of=300)
    stage.sandbox.control(*fault("lookup_phone", kind, after=50, **how))
    stage.connect("cpaas_default", recipients_per_request=20)
    run = sms(stage, rows(300), skip_dnd=True)
    failed = run.once()
    assert failed.state == "up_for_retry"
    assert "10 lookups in a row failed" in failed.error
    assert requests(stage, "lookup_phone") <= 50 + (10 + 16) * ATTEMPTS
    assert failed.report["not_sent"] > 200
    stage.sandbox.control("DELETE", "faults")
    done = run.once()
    assert (done.state, counts(done.result)) == ("success", {"sent": 300})
    assert max(reached(stage).values()) == 1


def test_when_everybody_is_rejected_it_stops_trying_without_a_limit_too(stage: Stage) -> None:
    small_packs(stage)
    refuse(stage, digits(70), named=False)
    failed = sms(stage, rows(70), max_failure_ratio=1, max_identical_rejections=None).once()
    assert (failed.state, requests(stage), counts(failed.report)) == (
        "failed", 50, {"rejected": 50, "not_sent": 20}
    )  # fmt: skip
    assert "accepted none" in failed.error


def test_retry_of_one_partition_goes_on_with_its_own_people(stage: Stage) -> None:
    small_packs(stage)
    run = parts(stage, 2, rows(40))
    stage.sandbox.control(*fault("send_sms", "rate_limit", after=3, times=5, retry_after=0))
    assert run.once(map_index=0).state == "up_for_retry"
    states = [run.once(map_index=index).state for index in (1, 0)]
    assert (states, reached(stage)) == (["success", "success"], Counter(digits(40)))
