"""Before the send: a dry run, a preview, people to test with."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.harness.campaigns import (
    TEXT,
    accept_all,
    all_requests,
    counts,
    digits,
    email,
    lines,
    reached,
    refuse,
    requests,
    rows,
    small_packs,
    sms,
    texts,
)
from tests.airflow.harness.stage import Stage, fault
from tests.airflow.harness.tries import Run

TESTERS = [{"phone": "+2348099000001", "name": "Tess"}, {"phone": "+2348099000002", "name": "Timo"}]
TEST_DIGITS = ["2348099000001", "2348099000002"]


def xcom(run: Run, key: str) -> Any:
    return run.pushed(key, "campaign")


class TestADryRun:
    def test_makes_no_request_and_tells_counts_encodings_pages_and_cost(self, stage: Stage, tmp_path: Path) -> None:
        given = [*rows(3), *rows(1), {"phone": "x"}, {"phone": "08031200010", "name": "ọ" * 70}]
        run = sms(
            stage, given, dry_run=True, price_per_page=2.5, results_path=str(tmp_path / "o.jsonl"), max_failure_ratio=1
        )
        done = run.once()
        assert (done.state, all_requests(stage)) == ("success", 0)
        assert counts(done.result) == {"not_sent": 4, "invalid_rows": 1, "duplicates": 1}
        assert (done.result["pages"], done.result["encodings"]) == ({"1": 3, "2": 1}, {"GSM-7": 3, "UCS-2": 1})
        assert (done.result["estimated_charge"], done.result["charge"], done.result["dry_run"]) == (12.5, None, True)
        assert Counter(line["outcome"] for line in lines(tmp_path / "o.jsonl"))["not_sent"] == 4

    def test_without_a_price_the_cost_is_not_known(self, stage: Stage) -> None:
        assert sms(stage, rows(3), dry_run=True).once().result["estimated_charge"] is None

    def test_leaves_no_claim_and_a_clear_without_it_sends(self, stage: Stage) -> None:
        run = sms(stage, rows(3), dry_run=True)
        run.once()
        done = run.change(without_sending=False).clear().once()
        assert (done.state, reached(stage)) == ("success", Counter(digits(3)))

    def test_after_a_send_it_tells_who_is_left(self, stage: Stage) -> None:
        small_packs(stage)
        stage.sandbox.control(*fault("send_sms", "unauthorized", after=2))
        run = sms(stage, rows(5))
        run.once()
        before = all_requests(stage)
        dry = run.change(without_sending=True).clear().once()
        assert (counts(dry.result), all_requests(stage)) == ({"sent": 2, "not_sent": 3}, before)
        accept_all(stage)
        assert (run.change(without_sending=False).clear().once().state, reached(stage)) == (
            "success",
            Counter(digits(5)),
        )

    def test_of_an_email_has_no_pages(self, stage: Stage) -> None:
        done = email(stage, [{"email": "ada@example.org", "name": "Ada"}], dry_run=True, price_per_page=1.0).once()
        assert (done.state, done.result["pages"], done.result["encodings"]) == ("success", {}, {})

    def test_of_an_email_a_price_for_each_recipient_makes_the_cost(self, stage: Stage) -> None:
        done = email(stage, [{"email": "ada@example.org", "name": "Ada"}], dry_run=True, price_per_page=1.5).once()
        assert done.result["estimated_charge"] == 1.5

    def test_still_refuses_what_could_not_be_sent(self, stage: Stage) -> None:
        assert sms(stage, rows(6), dry_run=True, max_recipients=5).once().state == "failed"


class TestAPreview:
    def test_is_rendered_and_masked_and_in_an_xcom_of_its_own(self, stage: Stage) -> None:
        run = sms(stage, rows(5), preview_count=2, dry_run=True)
        done = run.once()
        assert xcom(run, "preview") == [
            {"recipient": xcom(run, "preview")[n]["recipient"], "texts": [TEXT.format(name=f"Person {n}")], "pages": 1}
            for n in (0, 1)
        ]
        assert not [one for one in digits(5) if one in str(xcom(run, "preview"))]
        assert "Person 0" not in done.log
        assert "Stored 2 rendered messages in the XCom 'preview'" in done.log

    def test_of_an_email_shows_subject_and_body(self, stage: Stage) -> None:
        run = email(
            stage, [{"email": "ada@example.org", "name": "Ada"}], preview_count=5, dry_run=True, subject="For {name}"
        )
        run.once()
        assert xcom(run, "preview")[0]["texts"] == ["For Ada", TEXT.format(name="Ada")]
        assert "ada@example.org" not in str(xcom(run, "preview"))

    def test_goes_before_the_send(self, stage: Stage) -> None:
        run = sms(stage, rows(3), preview_count=1)
        assert (run.once().state, len(xcom(run, "preview")), reached(stage)) == ("success", 1, Counter(digits(3)))

    def test_nobody_asked_for_is_not_there(self, stage: Stage) -> None:
        run = sms(stage, rows(3))
        run.once()
        assert xcom(run, "preview") is None


class TestTestRecipients:
    def test_are_sent_to_first_and_alone_and_then_it_goes_on(self, stage: Stage) -> None:
        done = sms(stage, rows(4), test_recipients=TESTERS).once()
        arrived = [one["recipient"] for one in reversed(stage.sandbox.inbox("sms", limit=100)["items"])]
        assert (done.state, set(arrived[:2]), set(arrived[2:])) == ("success", set(TEST_DIGITS), set(digits(4)))
        assert requests(stage) == 2
        assert texts(stage)[TEST_DIGITS[0]] == TEXT.format(name="Tess")

    def test_who_is_in_the_source_too_gets_one_message(self, stage: Stage) -> None:
        sms(stage, [*rows(2), TESTERS[0]], test_recipients=TESTERS).once()
        assert reached(stage) == Counter([*digits(2), *TEST_DIGITS])

    def test_only_they(self, stage: Stage) -> None:
        run = sms(stage, rows(4), test_recipients=TESTERS, test_only=True)
        done = run.once()
        assert (done.state, reached(stage)) == ("success", Counter(TEST_DIGITS))
        assert counts(done.result) == {"sent": 2, "not_sent": 4}
        later = run.change(test_only=False).clear().once()
        assert (later.state, reached(stage)) == ("success", Counter([*TEST_DIGITS, *digits(4)]))

    @pytest.mark.parametrize("named", [True, False])
    def test_one_who_is_rejected_ends_the_campaign(self, stage: Stage, named: bool) -> None:
        refuse(stage, [TEST_DIGITS[1]], named=named)
        failed = sms(stage, rows(4), test_recipients=TESTERS, max_failure_ratio=1).once()
        assert failed.state == "failed"
        assert not set(digits(4)) & set(reached(stage))

    def test_one_who_is_unknown_ends_the_campaign_for_this_try_and_the_next(self, stage: Stage) -> None:
        stage.sandbox.control(*fault("send_sms", "cut_after", times=1))
        run = sms(stage, rows(4), test_recipients=TESTERS)
        assert (run.once().state, reached(stage)) == ("failed", Counter(TEST_DIGITS))
        again = run.clear().once()
        assert (again.state, requests(stage)) == ("failed", 1)
        assert "test recipient is unknown" in again.error

    def test_with_a_service_that_is_busy_are_tried_again_by_the_retry(self, stage: Stage) -> None:
        stage.sandbox.control(*fault("send_sms", "rate_limit", times=5, retry_after=0))
        first, second = sms(stage, rows(4), test_recipients=TESTERS).to_the_end()
        assert (first.state, second.state) == ("up_for_retry", "success")
        assert reached(stage) == Counter([*TEST_DIGITS, *digits(4)])

    @pytest.mark.parametrize("given", [["x"], ["+2348099000001"], [None]], ids=["no number", "no name", "nothing"])
    def test_one_who_cannot_be_sent_to_ends_it_before_anything_leaves(self, stage: Stage, given: list[Any]) -> None:
        failed = sms(stage, rows(4), test_recipients=given, max_failure_ratio=1).once()
        assert (failed.state, requests(stage)) == ("failed", 0)
        assert "test recipient" in failed.error

    @pytest.mark.parametrize("testers", [TESTERS[:1], TESTERS], ids=["only_one", "first_of_two"])
    def test_lookup_that_fails_for_a_test_recipient_ends_it_before_all_others(
        self, stage: Stage, testers: list[dict[str, str]]
    ) -> None:
        # One lookup at a time, so the test recipients are looked up first.
        small_packs(stage, 5)
        known = [{"phone": number, "dnd": False} for number in (*TEST_DIGITS, *digits(4))]
        stage.sandbox.control("POST", "seed", {"lookups": known})
        stage.sandbox.control(*fault("lookup_phone", "error_under_200", times=1, body_status=400))
        failed = sms(stage, rows(4), test_recipients=testers, skip_dnd=True, max_failure_ratio=1).once()
        assert (failed.state, failed.report["lookup_failed"]) == ("failed", 1)
        assert reached(stage) == Counter(TEST_DIGITS[1 : len(testers)])
        assert "its lookup failed" in failed.error

    def test_test_only_without_them_is_refused_where_the_dag_is_written(self, stage: Stage) -> None:
        with pytest.raises(ValueError, match="test_only needs test_recipients"):
            sms(stage, rows(1), test_only=True)
