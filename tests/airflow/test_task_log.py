"""What a task logs: its settings, the progress of each phase and its result; never a number, an address or a code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cpaas_provider.operators import (
    BuyAirtimeOperator,
    FindOtpsOperator,
    GetOtpOperator,
    PhoneLookupOperator,
    RequestOtpOperator,
    SendEmailOperator,
    SendSmsOperator,
)
from tests.airflow.harness.campaigns import digits, limit_batches, reject_recipients, rows, sms
from tests.airflow.harness.kinds import FailsAfterSend
from tests.airflow.harness.task_runner import ATTEMPTS, TaskRunner, fault
from tests.airflow.harness.tries import Run, new_dag, run_operator

PHONE = "08031234567"
DIGITS = "2348031234567"


def logged(log: str, words: str) -> str:
    """Return the line that has these words."""
    found = [line for line in log.splitlines() if words in line]
    assert len(found) == 1, f"{len(found)} lines with {words!r}"
    return found[0]


class TestCampaign:
    def test_log_begins_with_operator_settings_and_limits(self, task_runner: TaskRunner) -> None:
        task_runner.connect("cpaas_default", recipients_per_request=100, requests_per_second=50, max_concurrency=2)
        done = sms(task_runner, rows(3), max_charge=1_000_000, max_recipients=5000, price_per_page=4.5).run_try()
        line = logged(done.log, "SmsCampaignOperator begins")
        for words in (
            "connection 'cpaas_default'", "at most 100 recipients per request", "50 requests per second", "2 at a time",
            "max_recipients 5,000", "max_charge 1,000,000", "price_per_page 4.5", "on_unknown fail",
        ):  # fmt: skip
            assert words in line

    def test_log_has_the_counts_of_rows_before_the_send(self, task_runner: TaskRunner) -> None:
        given = [*rows(4), *rows(1), {"phone": "x"}]
        banned = [{"phone": f"+{digits(4)[3]}"}]
        done = sms(task_runner, given, suppression_list=banned, max_failure_ratio=1).run_try()
        line = logged(done.log, "Planned:")
        assert "6 rows read, 3 recipients to send to" in line
        assert "1 invalid row, 1 duplicate, 0 not allowed, 1 suppressed" in line

    def test_log_ends_with_all_counts(self, task_runner: TaskRunner) -> None:
        given = [*rows(4), *rows(1), {"phone": "x"}]
        reject_recipients(task_runner, [digits(4)[2]])
        done = sms(task_runner, given, suppression_list=[f"+{digits(4)[3]}"], max_failure_ratio=1).run_try()
        line = logged(done.log, "Campaign cpaas-")
        assert "3 recipients: 2 sent, 1 rejected, 0 unknown, 0 not sent." in line
        for words in (
            "1 invalid row", "1 duplicate", "1 suppressed", "0 not allowed", "0 do-not-disturb", "0 lookup failed",
            "0 in other partitions", "1 request", "charge 8", "balance 99,999,992",
        ):  # fmt: skip
            assert words in line
        assert not [number for number in digits(4) if number in done.log]

    def test_log_of_a_failed_campaign_has_all_counts(self, task_runner: TaskRunner) -> None:
        done = sms(task_runner, [*rows(2), {"phone": "x"}]).run_try()
        assert done.state == "failed"
        assert "2 recipients: 2 sent, 0 rejected, 0 unknown, 0 not sent. Left out: 1 invalid row" in done.log

    def test_log_of_a_dry_run_has_its_figures(self, task_runner: TaskRunner) -> None:
        given = [*rows(3), {"phone": "08031200010", "name": "ọ" * 70}]
        done = sms(task_runner, given, dry_run=True, price_per_page=250.5).run_try()
        line = logged(done.log, "Dry run")
        for words in ("4 recipients", "3 with 1 page", "1 with 2 pages", "GSM-7", "UCS-2", "estimated charge 1,252.5"):
            assert words in line

    # Numbers that another test looked up are in its database.
    @pytest.mark.usefixtures("own_database")
    def test_lookups_are_logged_as_lookups(self, task_runner: TaskRunner) -> None:
        limit_batches(task_runner, 10, requests_per_second=15)
        done = sms(task_runner, rows(10), skip_dnd=True, progress_interval=0.05).run_try()
        assert done.state == "success"
        # On a busy machine, further reports come before the first lookup and after the last one.
        during = done.log[done.log.index("Lookups: ") : done.log.rindex("Lookups: ")]
        assert re.search(r"Lookups: [1-9] of 10 numbers", during)
        assert "0 of 10 recipients done" not in during
        assert "Lookups: 10 of 10 numbers" in done.log


class TestEarlierTry:
    def test_log_of_a_cleared_campaign_names_resend_on_clear(self, task_runner: TaskRunner) -> None:
        run = sms(task_runner, rows(3))
        assert "An earlier try" not in run.run_try().log
        again = run.clear().run_try()
        line = logged(again.log, "An earlier try sent everything. Nothing is sent again")
        assert "resend_on_clear=True" in line

    def test_log_of_a_cleared_keyed_campaign_names_the_key(
        self, task_runner: TaskRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{tmp_path}/store.db")
        run = sms(task_runner, rows(3), idempotency_key="summer")
        run.run_try()
        line = logged(run.clear().run_try().log, "An earlier try sent everything. Nothing is sent again")
        assert "another idempotency_key" in line
        assert "resend_on_clear" not in line

    def test_log_of_a_cleared_send_names_resend_on_clear(self, task_runner: TaskRunner) -> None:
        with new_dag() as dag:
            SendSmsOperator(task_id="one", recipients=[PHONE], content="Hello")
        run = Run(task_runner, dag)
        assert "An earlier try" not in run.run_try().log
        assert "resend_on_clear=True" in logged(
            run.clear().run_try().log, "An earlier try made this request. Nothing is sent again"
        )

    def test_plan_of_a_retry_names_unknown_recipients_that_are_held_back(self, task_runner: TaskRunner) -> None:
        limit_batches(task_runner, 1)
        task_runner.sandbox.control(*fault("send_sms", "cut_before", times=1))
        run = sms(task_runner, rows(3))
        assert "held back" not in run.run_try().log
        line = logged(run.clear().run_try().log, "Planned:")
        assert "0 recipients to send to (2 accepted in an earlier try; 1 unknown, held back)." in line

    def test_log_of_a_retry_without_requests_names_the_earlier_try(self, task_runner: TaskRunner) -> None:
        run = sms(task_runner, rows(3), post_execute=FailsAfterSend(1))
        *_, second = run.run_to_end()
        assert "An earlier try sent everything" in second.log

    def test_log_names_the_results_file_only_if_there_is_one(self, task_runner: TaskRunner, tmp_path: Path) -> None:
        given = [*rows(2), {"phone": "x"}]
        without = sms(task_runner, given).run_try()
        assert "The results file has" not in without.error
        assert "results_path" in without.error
        assert (
            "The results file has each of them"
            in sms(task_runner, given, results_path=str(tmp_path / "o.jsonl")).run_try().error
        )


class TestSingleRequest:
    def test_log_of_sms_has_its_figures(self, task_runner: TaskRunner) -> None:
        done = run_operator(SendSmsOperator, task_runner, recipients=[PHONE], content="Hello")
        assert "SendSmsOperator begins on connection 'cpaas_default'" in done.log
        line = logged(done.log, "SendSmsOperator is done")
        for words in (
            f"id {done.result['id']}",
            "recipients 1",
            "charge 4",
            "balance 99,999,996",
            "unknown_recipients 0",
        ):
            assert words in line
        assert DIGITS not in done.log
        assert "Hello" not in done.log

    def test_log_of_email_has_its_id_and_no_address(self, task_runner: TaskRunner) -> None:
        done = run_operator(SendEmailOperator, task_runner, recipients=["ada@example.org"], content="Hello")
        assert f"id {done.result['id']}" in logged(done.log, "SendEmailOperator is done")
        assert "ada@example.org" not in done.log

    def test_log_of_a_passcode_has_its_settings_and_id(self, task_runner: TaskRunner) -> None:
        done = run_operator(RequestOtpOperator, task_runner, recipient=PHONE, length=6, expires_in=20, token="135790")
        assert "length 6, expires_in 20" in logged(done.log, "RequestOtpOperator begins")
        line = logged(done.log, "RequestOtpOperator is done")
        assert (f"id {done.result['id']}" in line, "status_desc SENT" in line) == (True, True)
        assert DIGITS not in done.log
        assert "135790" not in done.log
        read = run_operator(GetOtpOperator, task_runner, otp_id=done.result["id"])
        assert "outcome pending" in logged(read.log, "GetOtpOperator is done")
        found = run_operator(FindOtpsOperator, task_runner, recipient=PHONE)
        assert "1 record" in logged(found.log, "FindOtpsOperator is done")

    def test_log_of_a_purchase_has_amount_and_status(self, task_runner: TaskRunner) -> None:
        done = run_operator(BuyAirtimeOperator, task_runner, network="MTN", amount=1500, recipient=PHONE)
        assert "network MTN, amount 1,500" in logged(done.log, "BuyAirtimeOperator begins")
        line = logged(done.log, "BuyAirtimeOperator is done")
        assert f"id {done.result['id']}, status pending" in line
        assert "charge 1,500, balance 99,998,500" in line
        assert DIGITS not in done.log

    def test_log_of_a_lookup_has_no_number(self, task_runner: TaskRunner) -> None:
        done = run_operator(PhoneLookupOperator, task_runner, phone=PHONE)
        line = logged(done.log, "PhoneLookupOperator is done")
        assert f"operator {done.result['operator']}" in line
        assert DIGITS not in done.log

    def test_log_of_a_failed_send_has_no_done_line(self, task_runner: TaskRunner) -> None:
        task_runner.sandbox.control(*fault("send_sms", "unauthorized"))
        failed = run_operator(SendSmsOperator, task_runner, recipients=[PHONE], content="Hello")
        assert "SendSmsOperator begins" in failed.log
        assert "is done" not in failed.log


def test_retryable_error_is_logged_without_a_second_error(task_runner: TaskRunner) -> None:
    task_runner.sandbox.control(*fault("send_sms", "rate_limit", times=ATTEMPTS, retry_after=0))
    failed = run_operator(SendSmsOperator, task_runner, recipients=PHONE, content="Hello")
    assert failed.state == "up_for_retry"
    assert "CpaasRateLimitedError" in failed.log
    assert "During handling of the above exception" not in failed.log


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ var.value.offer_text }}", "Variable offer_text not found"),
        ("{{ conn.offers.host }}", "The conn_id `offers` isn't defined"),
    ],
    ids=["variable", "connection"],
)
def test_missing_variable_or_connection_of_a_template_is_named(
    task_runner: TaskRunner, template: str, words: str
) -> None:
    failed = run_operator(SendSmsOperator, task_runner, recipients=PHONE, content=template)
    assert (failed.state, words in failed.error) == ("up_for_retry", True), failed.error
