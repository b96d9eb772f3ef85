"""A service that stops accepting in the middle of a campaign: few requests more, and everybody else is not reached."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.airflow.harness.campaigns import counts, digits, reached, requests, rows, sms
from tests.airflow.harness.stage import Stage, fault


@pytest.mark.parametrize("words", ["Insufficient balance", "Sender ID not approved"])
def test_rejected_after_the_first_request_a_thousand_recipients_take_few_requests(stage: Stage, words: str) -> None:
    stage.connect("cpaas_default", recipients_per_request=100)
    stage.sandbox.control(*fault("send_sms", "reject", after=1, message=words))
    run = sms(stage, rows(1000))
    failed = run.once()
    assert failed.state == "failed"
    assert requests(stage) < 40
    assert words in failed.error
    assert failed.report["sent"] == 100
    assert failed.report["not_sent"] > 880
    stage.sandbox.control("DELETE", "faults")
    done = run.clear().once()
    assert (done.state, counts(done.result)) == ("success", {"sent": 1000})
    assert max(reached(stage).values()) == 1


def test_words_of_no_balance_are_those_of_the_connection(stage: Stage) -> None:
    stage.connect(
        "cpaas_default", recipients_per_request=10, max_concurrency=4, insufficient_balance_words="Solde epuise"
    )
    stage.sandbox.control(*fault("send_sms", "reject", message="SOLDE EPUISE."))
    failed = sms(stage, rows(100)).once()
    assert (failed.state, counts(failed.report)) == ("failed", {"not_sent": 100})
    assert requests(stage) <= 4
    assert "Top up the account" in failed.error


def test_bad_recipients_are_still_found_one_by_one(stage: Stage) -> None:
    stage.connect("cpaas_default", recipients_per_request=50)
    stage.sandbox.control("POST", "seed", {"refused_recipients": digits(100)[::20]})
    stage.sandbox.control("PUT", "settings", {"name_refused_recipients": False})
    done = sms(stage, rows(100), max_failure_ratio=0.1).once()
    assert (done.state, counts(done.result)) == ("success", {"sent": 95, "rejected": 5})
    assert set(reached(stage)) == set(Counter(digits(100))) - set(digits(100)[::20])
