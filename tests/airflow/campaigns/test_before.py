"""Before the send: dry run, preview and test recipients."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.harness.campaigns import (
    TEXT,
    all_requests,
    clear_faults,
    count_messages,
    counts,
    digits,
    email,
    last_texts,
    limit_batches,
    read_results,
    reject_recipients,
    requests,
    rows,
    sms,
)
from tests.airflow.harness.task_runner import TaskRunner, fault
from tests.airflow.harness.tries import Run

TESTERS = [{"phone": "+2348099000001", "name": "Tess"}, {"phone": "+2348099000002", "name": "Timo"}]
TEST_DIGITS = ["2348099000001", "2348099000002"]


def xcom(run: Run, key: str) -> Any:
    return run.xcom(key, "campaign")


class TestDryRun:
    def test_dry_run_makes_no_request_and_reports_counts_encodings_pages_and_cost(
        self, task_runner: TaskRunner, tmp_path: Path
    ) -> None:
        given = [*rows(3), *rows(1), {"phone": "x"}, {"phone": "08031200010", "name": "ọ" * 70}]
        run = sms(
            task_runner,
            given,
            dry_run=True,
            price_per_page=2.5,
            results_path=str(tmp_path / "o.jsonl"),
            max_failure_ratio=1,
        )
        done = run.run_try()
        assert (done.state, all_requests(task_runner)) == ("success", 0)
        assert counts(done.result) == {"not_sent": 4, "invalid_rows": 1, "duplicates": 1}
        assert (done.result["pages"], done.result["encodings"]) == ({"1": 3, "2": 1}, {"GSM-7": 3, "UCS-2": 1})
        assert (done.result["estimated_charge"], done.result["charge"], done.result["dry_run"]) == (12.5, None, True)
        assert Counter(line["outcome"] for line in read_results(tmp_path / "o.jsonl"))["not_sent"] == 4

    def test_dry_run_without_a_price_has_no_estimated_charge(self, task_runner: TaskRunner) -> None:
        assert sms(task_runner, rows(3), dry_run=True).run_try().result["estimated_charge"] is None

    def test_clear_after_a_dry_run_sends(self, task_runner: TaskRunner) -> None:
        run = sms(task_runner, rows(3), dry_run=True)
        run.run_try()
        done = run.change(without_sending=False).clear().run_try()
        assert (done.state, count_messages(task_runner)) == ("success", Counter(digits(3)))

    def test_dry_run_after_a_partial_send_counts_remaining_recipients(self, task_runner: TaskRunner) -> None:
        limit_batches(task_runner)
        task_runner.sandbox.control(*fault("send_sms", "unauthorized", after=2))
        run = sms(task_runner, rows(5))
        run.run_try()
        before = all_requests(task_runner)
        dry = run.change(without_sending=True).clear().run_try()
        assert (counts(dry.result), all_requests(task_runner)) == ({"sent": 2, "not_sent": 3}, before)
        clear_faults(task_runner)
        assert (run.change(without_sending=False).clear().run_try().state, count_messages(task_runner)) == (
            "success",
            Counter(digits(5)),
        )

    def test_dry_run_of_email_has_no_pages(self, task_runner: TaskRunner) -> None:
        done = email(
            task_runner, [{"email": "ada@example.org", "name": "Ada"}], dry_run=True, price_per_page=1.0
        ).run_try()
        assert (done.state, done.result["pages"], done.result["encodings"]) == ("success", {}, {})

    def test_dry_run_of_email_estimates_the_charge_per_recipient(self, task_runner: TaskRunner) -> None:
        done = email(
            task_runner, [{"email": "ada@example.org", "name": "Ada"}], dry_run=True, price_per_page=1.5
        ).run_try()
        assert done.result["estimated_charge"] == 1.5

    def test_dry_run_fails_where_a_send_would(self, task_runner: TaskRunner) -> None:
        assert sms(task_runner, rows(6), dry_run=True, max_recipients=5).run_try().state == "failed"


class TestPreview:
    def test_preview_is_rendered_and_masked_in_its_own_xcom(self, task_runner: TaskRunner) -> None:
        run = sms(task_runner, rows(5), preview_count=2, dry_run=True)
        done = run.run_try()
        assert xcom(run, "preview") == [
            {"recipient": xcom(run, "preview")[n]["recipient"], "texts": [TEXT.format(name=f"Person {n}")], "pages": 1}
            for n in (0, 1)
        ]
        assert not [one for one in digits(5) if one in str(xcom(run, "preview"))]
        assert "Person 0" not in done.log
        assert "Stored 2 rendered messages in the XCom 'preview'" in done.log

    def test_preview_of_email_has_subject_and_body(self, task_runner: TaskRunner) -> None:
        run = email(
            task_runner,
            [{"email": "ada@example.org", "name": "Ada"}],
            preview_count=5,
            dry_run=True,
            subject="For {name}",
        )
        run.run_try()
        assert xcom(run, "preview")[0]["texts"] == ["For Ada", TEXT.format(name="Ada")]
        assert "ada@example.org" not in str(xcom(run, "preview"))

    def test_preview_is_stored_by_a_campaign_that_sends(self, task_runner: TaskRunner) -> None:
        run = sms(task_runner, rows(3), preview_count=1)
        assert (run.run_try().state, len(xcom(run, "preview")), count_messages(task_runner)) == (
            "success",
            1,
            Counter(digits(3)),
        )

    def test_preview_is_absent_without_preview_count(self, task_runner: TaskRunner) -> None:
        run = sms(task_runner, rows(3))
        run.run_try()
        assert xcom(run, "preview") is None


class TestTestRecipients:
    def test_test_recipients_are_sent_to_first_in_their_own_request(self, task_runner: TaskRunner) -> None:
        done = sms(task_runner, rows(4), test_recipients=TESTERS).run_try()
        arrived = [one["recipient"] for one in reversed(task_runner.sandbox.inbox("sms", limit=100)["items"])]
        assert (done.state, set(arrived[:2]), set(arrived[2:])) == ("success", set(TEST_DIGITS), set(digits(4)))
        assert requests(task_runner) == 2
        assert last_texts(task_runner)[TEST_DIGITS[0]] == TEXT.format(name="Tess")

    def test_test_recipient_who_is_in_the_source_gets_one_message(self, task_runner: TaskRunner) -> None:
        sms(task_runner, [*rows(2), TESTERS[0]], test_recipients=TESTERS).run_try()
        assert count_messages(task_runner) == Counter([*digits(2), *TEST_DIGITS])

    def test_test_only_sends_to_test_recipients_only(self, task_runner: TaskRunner) -> None:
        run = sms(task_runner, rows(4), test_recipients=TESTERS, test_only=True)
        done = run.run_try()
        assert (done.state, count_messages(task_runner)) == ("success", Counter(TEST_DIGITS))
        assert counts(done.result) == {"sent": 2, "not_sent": 4}
        assert (run.clear().run_try().state, requests(task_runner)) == ("success", 1)
        later = run.change(test_only=False).clear().run_try()
        assert (later.state, count_messages(task_runner)) == ("success", Counter([*TEST_DIGITS, *digits(4)]))

    @pytest.mark.parametrize("named", [True, False])
    def test_rejected_test_recipient_ends_the_campaign(self, task_runner: TaskRunner, named: bool) -> None:
        reject_recipients(task_runner, [TEST_DIGITS[1]], named=named)
        failed = sms(task_runner, rows(4), test_recipients=TESTERS, max_failure_ratio=1).run_try()
        assert failed.state == "failed"
        assert not set(digits(4)) & set(count_messages(task_runner))

    def test_unknown_test_recipient_ends_this_try_and_the_next(self, task_runner: TaskRunner) -> None:
        task_runner.sandbox.control(*fault("send_sms", "cut_after", times=1))
        run = sms(task_runner, rows(4), test_recipients=TESTERS)
        assert (run.run_try().state, count_messages(task_runner)) == ("failed", Counter(TEST_DIGITS))
        again = run.clear().run_try()
        assert (again.state, requests(task_runner)) == ("failed", 1)
        assert "test recipient is unknown" in again.error

    def test_test_recipients_not_sent_to_are_tried_again_by_the_retry(self, task_runner: TaskRunner) -> None:
        task_runner.sandbox.control(*fault("send_sms", "rate_limit", times=5, retry_after=0))
        first, second = sms(task_runner, rows(4), test_recipients=TESTERS).run_to_end()
        assert (first.state, second.state) == ("up_for_retry", "success")
        assert count_messages(task_runner) == Counter([*TEST_DIGITS, *digits(4)])

    @pytest.mark.parametrize("given", [["x"], ["+2348099000001"], [None]], ids=["no number", "no name", "nothing"])
    def test_invalid_test_recipient_ends_the_campaign_before_any_request(
        self, task_runner: TaskRunner, given: list[Any]
    ) -> None:
        failed = sms(task_runner, rows(4), test_recipients=given, max_failure_ratio=1).run_try()
        assert (failed.state, requests(task_runner)) == ("failed", 0)
        assert "test recipient" in failed.error

    def test_failed_lookup_of_a_test_recipient_ends_the_campaign_before_any_message(
        self, task_runner: TaskRunner
    ) -> None:
        sms(task_runner, rows(4), skip_dnd=True).run_try()
        before = requests(task_runner)
        task_runner.sandbox.control(*fault("lookup_phone", "error_under_200", times=50, body_status=400))
        failed = sms(task_runner, rows(4), test_recipients=TESTERS[:1], skip_dnd=True, max_failure_ratio=1).run_try()
        assert (failed.state, requests(task_runner) - before) == ("failed", 0)
        assert "its lookup failed" in failed.error

    def test_test_only_looks_up_no_other_recipient(self, task_runner: TaskRunner) -> None:
        task_runner.sandbox.control("POST", "seed", {"lookups": [{"phone": to, "dnd": False} for to in TEST_DIGITS]})
        done = sms(task_runner, rows(4), test_recipients=TESTERS, test_only=True, skip_dnd=True).run_try()
        assert (done.state, task_runner.sandbox.counters()["lookups"]) == ("success", len(TESTERS))

    def test_test_only_without_test_recipients_is_refused_in_the_dag_file(self, task_runner: TaskRunner) -> None:
        with pytest.raises(ValueError, match="test_only needs test_recipients"):
            sms(task_runner, rows(1), test_only=True)
