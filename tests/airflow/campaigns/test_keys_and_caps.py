"""What an idempotency key and a frequency cap hold for: channels, groups of campaigns, dry runs and clears."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from tests.airflow.harness.campaigns import count_messages, counts, digits, rows, sms
from tests.airflow.harness.task_runner import TaskRunner

pytestmark = pytest.mark.usefixtures("own_database")

KEY = {"idempotency_key": "spring"}
CAP: dict[str, Any] = {"frequency_cap": (1, timedelta(days=7))}


def test_sms_and_whatsapp_under_one_key_are_two_campaigns(task_runner: TaskRunner) -> None:
    for channel in ("sms", "whatsapp"):
        done = sms(task_runner, rows(2), channel=channel, **KEY).run_try()
        assert (done.state, counts(done.result)) == ("success", {"sent": 2})
    channels = Counter(item["channel"] for item in task_runner.sandbox.inbox("sms")["items"])
    assert channels == {"sms": 2, "whatsapp": 2}


def test_second_campaign_leaves_out_recipients_at_the_cap(task_runner: TaskRunner) -> None:
    sms(task_runner, rows(2), **CAP).run_try()
    done = sms(task_runner, rows(3), **CAP).run_try()
    assert (done.result["sent"], done.result["frequency_capped"]) == (1, 2)
    assert count_messages(task_runner) == Counter(digits(3))


def test_sms_and_whatsapp_count_together_for_the_cap(task_runner: TaskRunner) -> None:
    sms(task_runner, rows(2), **CAP).run_try()
    done = sms(task_runner, rows(2), channel="whatsapp", **CAP).run_try()
    assert (done.state, done.report["frequency_capped"]) == ("skipped", 2)


def test_campaigns_of_one_frequency_contact_count_as_one_message(task_runner: TaskRunner) -> None:
    for channel in ("sms", "whatsapp"):
        done = sms(task_runner, rows(2), channel=channel, frequency_contact="closed-on-friday", **CAP).run_try()
        assert counts(done.result) == {"sent": 2}


def test_dry_run_makes_no_request_and_does_not_apply_the_cap(task_runner: TaskRunner) -> None:
    sms(task_runner, rows(2), **CAP).run_try()
    before = task_runner.sandbox.counters()["requests"]
    shown = sms(task_runner, rows(3), dry_run=True, skip_dnd=True, price_per_page=4, **CAP).run_try().result
    assert (shown["recipients"], shown["frequency_capped"], shown["estimated_charge"]) == (3, 0, 12)
    assert task_runner.sandbox.counters()["requests"] == before


def test_each_resend_on_clear_counts_as_another_message(task_runner: TaskRunner) -> None:
    run = sms(task_runner, rows(2), resend_on_clear=True, **CAP)
    assert counts(run.run_try().result) == {"sent": 2}
    cleared = run.clear().run_try()
    assert (cleared.state, cleared.report["frequency_capped"]) == ("skipped", 2)
    assert count_messages(task_runner) == Counter(digits(2))
