"""Recipients that are left out: not allowed on a staging connection, suppressed, or with do-not-disturb."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.harness.campaigns import all_requests, count_messages, counts, digits, outcomes, requests, rows, sms
from tests.airflow.harness.task_runner import TaskRunner, fault

SIX = digits(6)


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database of each test's own."""
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{tmp_path}/store.db")


def set_dnd(task_runner: TaskRunner, *people: str, of: int = 20) -> None:
    """Say of some of the six that they must not be disturbed, and of the others that they may."""
    found = [{"phone": one, "dnd": one in people} for one in digits(of)]
    task_runner.sandbox.control("POST", "seed", {"lookups": found})


class TestStaging:
    def test_recipients_not_allowed_are_left_out_and_counted(self, task_runner: TaskRunner, tmp_path: Path) -> None:
        task_runner.connect("cpaas_default", allowed_recipients=f"{SIX[1]}, {SIX[3]}")
        done = sms(task_runner, rows(6), results_path=str(tmp_path / "o.jsonl")).run_try()
        assert (done.state, counts(done.result)) == ("success", {"sent": 2, "not_allowed": 4})
        assert count_messages(task_runner) == Counter([SIX[1], SIX[3]])
        assert outcomes(tmp_path / "o.jsonl")[SIX[0]] == "not_allowed"

    def test_campaign_without_allowed_recipients_is_skipped(self, task_runner: TaskRunner) -> None:
        task_runner.connect("cpaas_default", allowed_recipients="2348099999999")
        done = sms(task_runner, rows(6)).run_try()
        assert (done.state, all_requests(task_runner), counts(done.report)) == ("skipped", 0, {"not_allowed": 6})

    def test_unknown_recipients_no_longer_allowed_are_not_resent_to(self, task_runner: TaskRunner) -> None:
        task_runner.sandbox.control(*fault("send_sms", "cut_after", times=1))
        run = sms(task_runner, rows(2))
        run.run_try()
        task_runner.connect("cpaas_default", allowed_recipients=SIX[5])
        again = run.change(on_unknown="resend").clear().run_try()
        assert (requests(task_runner), again.report["unknown_recipients"]) == (1, 2)


class TestSuppression:
    def test_suppressed_recipients_are_left_out_and_counted(self, task_runner: TaskRunner, tmp_path: Path) -> None:
        banned = tmp_path / "banned.csv"
        banned.write_text("phone\n0803 120 0001\n+2348031200002\nnobody\n")
        run = sms(task_runner, rows(6), suppression_list=str(banned))
        failed = run.run_try()
        assert (failed.state, all_requests(task_runner)) == ("failed", 0)
        assert "1 of the 3 rows of the suppression list cannot be read (row 4:" in failed.error
        assert "on_invalid_suppression" in failed.error
        done = run.change(on_invalid_suppression="skip").clear().run_try()
        assert (done.state, counts(done.result)) == ("success", {"sent": 4, "suppressed": 2})
        assert done.result["invalid_suppression_rows"] == 1
        assert count_messages(task_runner) == Counter(set(SIX) - {SIX[1], SIX[2]})
        assert "1 of the 3 rows of the suppression list cannot be read" in done.log

    def test_invisible_marks_and_decimals_are_read(self, task_runner: TaskRunner, tmp_path: Path) -> None:
        banned = [f"\u202a+{SIX[0]}\u202c", f"\u200e0{SIX[1][3:]}", Decimal(SIX[2]), int(SIX[3][3:])]
        done = sms(task_runner, rows(6), suppression_list=[{"phone": one} for one in banned]).run_try()
        assert (counts(done.result), count_messages(task_runner)) == ({"sent": 2, "suppressed": 4}, Counter(SIX[4:]))

    def test_national_numbers_without_a_region_fail_before_any_request(self, task_runner: TaskRunner) -> None:
        task_runner.connect("cpaas_default", default_region="")
        failed = sms(task_runner, rows(6), suppression_list=["+2348031200003", "08031200001"]).run_try()
        assert (failed.state, all_requests(task_runner)) == ("failed", 0)
        assert "a national number needs default_region" in failed.error
        assert "0803120" not in failed.error

    def test_suppression_list_of_plain_numbers_may_be_a_template(self, task_runner: TaskRunner) -> None:
        done = sms(task_runner, rows(3), suppression_list=["+{{ '2348031200001' }}"]).run_try()
        assert counts(done.result) == {"sent": 2, "suppressed": 1}

    def test_unreadable_suppression_list_sends_nothing(self, task_runner: TaskRunner, tmp_path: Path) -> None:
        failed = sms(task_runner, rows(3), suppression_list=str(tmp_path / "none.csv")).run_try()
        assert (failed.state, requests(task_runner)) == ("up_for_retry", 0)

    def test_suppression_list_without_the_column_sends_nothing(self, task_runner: TaskRunner, tmp_path: Path) -> None:
        banned = tmp_path / "banned.csv"
        banned.write_text("tel\n08031200001\n")
        failed = sms(task_runner, rows(3), suppression_list=str(banned)).run_try()
        assert (failed.state, requests(task_runner)) == ("failed", 0)
        assert "no column phone. It has: tel" in failed.error

    def test_unknown_recipient_suppressed_since_is_not_resent_to(self, task_runner: TaskRunner) -> None:
        task_runner.sandbox.control(*fault("send_sms", "cut_after", times=1))
        run = sms(task_runner, rows(2))
        run.run_try()
        again = run.change(on_unknown="resend", suppression_list=[f"+{SIX[0]}"]).clear().run_try()
        assert requests(task_runner) == 2
        assert count_messages(task_runner) == Counter({SIX[0]: 1, SIX[1]: 2})
        assert (again.state, again.report["unknown_recipients"]) == ("failed", 1)


class TestDoNotDisturb:
    def test_recipients_with_dnd_are_left_out_and_counted(self, task_runner: TaskRunner, tmp_path: Path) -> None:
        set_dnd(task_runner, SIX[1], SIX[4])
        done = sms(task_runner, rows(6), skip_dnd=True, results_path=str(tmp_path / "o.jsonl")).run_try()
        assert (done.state, counts(done.result)) == ("success", {"sent": 4, "dnd": 2})
        assert count_messages(task_runner) == Counter(set(SIX) - {SIX[1], SIX[4]})
        assert outcomes(tmp_path / "o.jsonl")[SIX[4]] == "dnd"
        assert task_runner.sandbox.counters()["lookups"] == 6

    def test_number_is_looked_up_once_across_campaigns(self, task_runner: TaskRunner) -> None:
        set_dnd(task_runner, SIX[1])
        sms(task_runner, rows(3), skip_dnd=True).run_try()
        done = sms(task_runner, rows(6), skip_dnd=True).run_try()
        assert (counts(done.result), task_runner.sandbox.counters()["lookups"]) == ({"sent": 5, "dnd": 1}, 6)

    def test_cached_lookup_expires_after_lookup_ttl(self, task_runner: TaskRunner) -> None:
        set_dnd(task_runner)
        sms(task_runner, rows(3), skip_dnd=True).run_try()
        sms(task_runner, rows(3), skip_dnd=True, lookup_ttl=0).run_try()
        assert task_runner.sandbox.counters()["lookups"] == 6

    def test_no_number_is_looked_up_without_skip_dnd(self, task_runner: TaskRunner) -> None:
        sms(task_runner, rows(3)).run_try()
        assert task_runner.sandbox.counters()["lookups"] == 0

    @pytest.mark.parametrize(
        ("on_error", "found", "state"),
        [
            ("skip", {"sent": 5, "lookup_failed": 1}, "up_for_retry"),
            ("send", {"sent": 6}, "success"),
            ("fail", {"not_sent": 6}, "failed"),
        ],
    )
    def test_number_that_cannot_be_looked_up(
        self, task_runner: TaskRunner, on_error: str, found: dict[str, int], state: str
    ) -> None:
        set_dnd(task_runner)
        task_runner.sandbox.control(*fault("lookup_phone", "error_under_200", times=1, body_status=400))
        ended = sms(task_runner, rows(6), skip_dnd=True, on_lookup_error=on_error).run_try()
        assert (ended.state, counts(ended.result or ended.report)) == (state, found)

    def test_recipients_whose_lookup_fails_count_for_max_failure_ratio(self, task_runner: TaskRunner) -> None:
        set_dnd(task_runner, of=40)
        task_runner.sandbox.control(*fault("lookup_phone", "error_under_200", rate=0.3, seed=2, body_status=400))
        run = sms(task_runner, rows(40), skip_dnd=True)
        failed = run.run_try()
        missing = failed.report["lookup_failed"]
        assert (failed.state, failed.report["sent"]) == ("up_for_retry", 40 - missing)
        assert f"{missing} recipients not sent to because the lookup failed, of 40" in failed.error
        assert "looks these numbers up again" in failed.error
        task_runner.sandbox.control("DELETE", "faults")
        done = run.clear().run_try()
        assert (done.state, counts(done.result)) == ("success", {"sent": 40})
        assert count_messages(task_runner) == Counter(digits(40))

    def test_lookups_that_fail_within_max_failure_ratio_are_tolerated(self, task_runner: TaskRunner) -> None:
        set_dnd(task_runner, of=40)
        task_runner.sandbox.control(*fault("lookup_phone", "error_under_200", after=4, times=4, body_status=400))
        done = sms(task_runner, rows(40), skip_dnd=True, max_failure_ratio=0.1).run_try()
        assert (done.state, counts(done.result)) == ("success", {"sent": 36, "lookup_failed": 4})

    @pytest.mark.parametrize(
        "answer",
        [{"kind": "other_record"}, {"kind": "odd_answer", "form": "status_beside", "body_status": 404}],
        ids=["of another number", "beside an error"],
    )
    def test_answer_that_proves_nothing_is_not_believed_and_not_stored(
        self, task_runner: TaskRunner, answer: dict[str, Any]
    ) -> None:
        set_dnd(task_runner)
        task_runner.sandbox.control(*fault("lookup_phone", times=2, **answer))
        first = sms(task_runner, rows(6), skip_dnd=True).run_try()
        assert counts(first.result or first.report) == {"sent": 4, "lookup_failed": 2}
        assert task_runner.sandbox.counters()["lookups"] == 6
        second = sms(task_runner, rows(6), skip_dnd=True).run_try()
        assert (counts(second.result), task_runner.sandbox.counters()["lookups"]) == ({"sent": 6}, 8)

    def test_campaign_fails_if_every_lookup_failed(self, task_runner: TaskRunner) -> None:
        set_dnd(task_runner)
        task_runner.sandbox.control(*fault("lookup_phone", "reject", message="Not now"))
        run = sms(task_runner, rows(5), skip_dnd=True)
        failed = run.run_try()
        assert (failed.state, counts(failed.report)) == ("up_for_retry", {"lookup_failed": 5})
        assert "The lookup failed for each of the 5 recipients" in failed.error
        task_runner.sandbox.control("DELETE", "faults")
        done = run.run_try()
        assert (done.state, counts(done.result)) == ("success", {"sent": 5})

    def test_campaign_whose_recipients_all_have_dnd_is_skipped(self, task_runner: TaskRunner) -> None:
        set_dnd(task_runner, *SIX)
        done = sms(task_runner, rows(6), skip_dnd=True).run_try()
        assert (done.state, requests(task_runner), counts(done.report)) == ("skipped", 0, {"dnd": 6})

    def test_retry_after_a_busy_service_repeats_no_paid_lookup(self, task_runner: TaskRunner) -> None:
        set_dnd(task_runner)
        task_runner.connect("cpaas_default", max_concurrency=1)
        task_runner.sandbox.control(*fault("lookup_phone", "rate_limit", after=3, times=100, retry_after=0))
        run = sms(task_runner, rows(6), skip_dnd=True)
        assert run.run_try().state == "up_for_retry"
        assert task_runner.sandbox.counters()["lookups"] >= 3
        task_runner.sandbox.control("DELETE", "faults")
        assert (run.run_try().state, task_runner.sandbox.counters()["lookups"]) == ("success", 6)

    def test_campaign_sends_nothing_if_its_database_cannot_be_opened(
        self, task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        set_dnd(task_runner)
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", "sqlite:////proc/nowhere/store.db")
        done = sms(task_runner, rows(3), skip_dnd=True, use_suppression_list=False).run_try()
        assert (done.state, requests(task_runner)) == ("up_for_retry", 0)
        assert "stops cannot be read" in done.error


def test_unknown_option_is_refused(task_runner: TaskRunner) -> None:
    given: dict[str, Any] = {"skip_everybody": True}
    with pytest.raises(TypeError):
        sms(task_runner, rows(1), **given)
