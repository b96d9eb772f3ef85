"""No recipient gets two messages and no guard is bypassed when something beside the campaign fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.campaigns.test_idempotency import parts
from tests.airflow.campaigns.test_recipients import set_dnd
from tests.airflow.harness.campaigns import (
    PRICE,
    around_requests,
    clear_faults,
    count_messages,
    counts,
    digits,
    email,
    limit_batches,
    requests,
    rows,
    sms,
)
from tests.airflow.harness.task_runner import TaskRunner, fault

KEY = {"idempotency_key": "spring"}


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database of each test's own."""
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{tmp_path}/store.db")


async def without_charge(request: Callable[[], Awaitable[Any]]) -> Any:
    """The service does not say what a request cost."""
    return (await request()).model_copy(update={"meta": None})


def test_charge_from_a_given_price_counts_in_later_tries(
    task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_batches(task_runner)
    around_requests(monkeypatch, without_charge)
    run = sms(task_runner, rows(20), max_charge=5 * PRICE, price_per_page=PRICE)
    run.run_try()
    run.clear().run_try()
    assert requests(task_runner) == 5


@pytest.mark.parametrize("field", ["suppression_list", "test_recipients"])
def test_guard_that_renders_to_nothing_is_not_ignored(task_runner: TaskRunner, field: str) -> None:
    given: dict[str, Any] = {field: "{{ none }}"}
    failed = sms(task_runner, rows(3), dag={"render_template_as_native_obj": True}, **given).run_try()
    assert (failed.state, requests(task_runner)) == ("failed", 0)
    assert f"{field} is None" in failed.error


def test_suppression_list_without_readable_rows_sends_nothing(task_runner: TaskRunner) -> None:
    failed = sms(task_runner, rows(3), suppression_list=[{"msisdn": one["phone"]} for one in rows(3)]).run_try()
    assert (failed.state, requests(task_runner)) == ("failed", 0)
    assert "3 of the 3 rows of the suppression list cannot be read (row 1: phone is empty" in failed.error


def test_empty_suppression_list_leaves_out_no_recipient(task_runner: TaskRunner) -> None:
    assert sms(task_runner, rows(3), suppression_list=[]).run_try().state == "success"


def test_address_in_other_capitals_is_the_same_mailbox(task_runner: TaskRunner) -> None:
    people = [{"email": one, "name": "A"} for one in ("ada@example.com", "Ada@example.com", "obi@example.com")]
    done = email(task_runner, people, suppression_list=["OBI@example.com"]).run_try()
    assert counts(done.result) == {"sent": 1, "duplicates": 1, "suppressed": 1}
    assert count_messages(task_runner, "email") == Counter(["ada@example.com"])


def test_half_a_character_is_an_invalid_row(task_runner: TaskRunner) -> None:
    done = sms(task_runner, [*rows(2), {"phone": "+2348031299999", "name": "Ada\ud83d"}], max_failure_ratio=1).run_try()
    assert (done.state, counts(done.result)) == ("success", {"sent": 2, "invalid_rows": 1})


class TestKeyedCampaign:
    def test_new_api_key_continues_the_same_campaign(self, task_runner: TaskRunner) -> None:
        sms(task_runner, rows(3), **KEY).run_try()
        task_runner.connect("cpaas_default", password="sk_test_rotated")
        again = sms(task_runner, rows(3), **KEY).run_try()
        assert (again.state, counts(again.result), requests(task_runner)) == ("success", {"sent": 3}, 1)

    def test_task_whose_key_is_removed_does_not_send_again(self, task_runner: TaskRunner) -> None:
        limit_batches(task_runner)
        task_runner.sandbox.control(*fault("send_sms", "unauthorized", after=2))
        run = sms(task_runner, rows(4), **KEY)
        run.run_try()
        clear_faults(task_runner)
        run.change(idempotency_key=None).clear().run_try()
        assert count_messages(task_runner) == Counter(digits(2))

    def test_retry_on_a_worker_with_another_database_does_not_start_over(
        self, task_runner: TaskRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        limit_batches(task_runner)
        task_runner.sandbox.control(*fault("send_sms", "rate_limit", after=2, retry_after=0))
        run = sms(task_runner, rows(4), **KEY)
        run.run_try()
        clear_faults(task_runner)
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{tmp_path}/another.db")
        run.run_try()
        assert set(count_messages(task_runner).values()) == {1}


def test_test_recipient_of_another_partition_gets_one_message(task_runner: TaskRunner) -> None:
    run = parts(task_runner, 4, rows(8), test_recipients=rows(8))
    for index in range(4):
        run.run_try(map_index=index)
    assert count_messages(task_runner) == Counter(digits(8))


def test_resend_after_a_lost_journal_leaves_out_dnd_recipients(task_runner: TaskRunner) -> None:
    set_dnd(task_runner, digits(3)[1])
    run = sms(task_runner, rows(3), skip_dnd=True, on_unknown="resend")
    run.run_try()
    run.clear(drop_state=True).run_try()
    assert count_messages(task_runner)[digits(3)[1]] == 0
