"""Nobody gets two messages and no guard is passed over where something beside the campaign went wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.campaigns.test_idempotency import parts
from tests.airflow.campaigns.test_recipients import disturbing
from tests.airflow.harness.campaigns import (
    PRICE,
    accept_all,
    around_requests,
    counts,
    digits,
    email,
    reached,
    requests,
    rows,
    small_packs,
    sms,
)
from tests.airflow.harness.stage import Stage, fault

KEY = {"idempotency_key": "spring"}


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database of each test's own."""
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{tmp_path}/store.db")


async def without_charge(request: Callable[[], Awaitable[Any]]) -> Any:
    """The service does not say what a request cost."""
    return (await request()).model_copy(update={"meta": None})


def test_what_was_spent_counts_in_later_tries_also_where_only_the_author_knows_the_price(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_packs(stage)
    around_requests(monkeypatch, without_charge)
    run = sms(stage, rows(20), max_charge=5 * PRICE, price_per_page=PRICE)
    run.once()
    run.clear().once()
    assert requests(stage) == 5


@pytest.mark.parametrize("field", ["suppression_list", "test_recipients"])
def test_a_guard_that_is_rendered_as_nothing_is_not_passed_over(stage: Stage, field: str) -> None:
    given: dict[str, Any] = {field: "{{ none }}"}
    failed = sms(stage, rows(3), dag={"render_template_as_native_obj": True}, **given).once()
    assert (failed.state, requests(stage)) == ("failed", 0)
    assert f"{field} is None" in failed.error


def test_a_suppression_list_that_names_nobody_sends_nothing(stage: Stage) -> None:
    failed = sms(stage, rows(3), suppression_list=[{"msisdn": one["phone"]} for one in rows(3)]).once()
    assert (failed.state, requests(stage)) == ("failed", 0)
    assert "3 of the 3 rows of the suppression list cannot be read (row 1: phone is empty" in failed.error


def test_an_empty_suppression_list_keeps_nobody_out(stage: Stage) -> None:
    assert sms(stage, rows(3), suppression_list=[]).once().state == "success"


def test_an_address_in_other_capitals_is_the_same_mailbox(stage: Stage) -> None:
    people = [{"email": one, "name": "A"} for one in ("ada@example.com", "Ada@example.com", "obi@example.com")]
    done = email(stage, people, suppression_list=["OBI@example.com"]).once()
    assert counts(done.result) == {"sent": 1, "duplicates": 1, "suppressed": 1}
    assert reached(stage, "email") == Counter(["ada@example.com"])


def test_half_a_character_is_an_invalid_row(stage: Stage) -> None:
    done = sms(stage, [*rows(2), {"phone": "+2348031299999", "name": "Ada\ud83d"}], max_failure_ratio=1).once()
    assert (done.state, counts(done.result)) == ("success", {"sent": 2, "invalid_rows": 1})


class TestOfACampaignThatHappensOnce:
    def test_a_new_api_key_makes_no_new_campaign(self, stage: Stage) -> None:
        sms(stage, rows(3), **KEY).once()
        stage.connect("cpaas_default", password="sk_test_rotated")
        again = sms(stage, rows(3), **KEY).once()
        assert (again.state, counts(again.result), requests(stage)) == ("success", {"sent": 3}, 1)

    def test_without_its_key_the_task_does_not_take_itself_for_one_that_sent_nothing(self, stage: Stage) -> None:
        small_packs(stage)
        stage.sandbox.control(*fault("send_sms", "unauthorized", after=2))
        run = sms(stage, rows(4), **KEY)
        run.once()
        accept_all(stage)
        run.change(idempotency_key=None).clear().once()
        assert reached(stage) == Counter(digits(2))

    def test_a_retry_on_a_worker_with_a_store_of_its_own_does_not_begin_anew(
        self, stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        small_packs(stage)
        stage.sandbox.control(*fault("send_sms", "rate_limit", after=2, retry_after=0))
        run = sms(stage, rows(4), **KEY)
        run.once()
        accept_all(stage)
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{tmp_path}/another.db")
        run.once()
        assert set(reached(stage).values()) == {1}


def test_a_test_recipient_who_is_in_another_part_gets_one_message(stage: Stage) -> None:
    run = parts(stage, 4, rows(8), test_recipients=rows(8))
    for index in range(4):
        run.once(map_index=index)
    assert reached(stage) == Counter(digits(8))


def test_a_resend_after_a_lost_journal_disturbs_nobody_who_must_not_be(stage: Stage) -> None:
    disturbing(stage, digits(3)[1])
    run = sms(stage, rows(3), skip_dnd=True, on_unknown="resend")
    run.once()
    run.clear(drop_state=True).once()
    assert reached(stage)[digits(3)[1]] == 0
