"""Limits of what a campaign may cost: they hold across tries, and a clear with a raised limit continues."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.airflow.harness.campaigns import PRICE, count_messages, counts, digits, limit_batches, requests, rows, sms
from tests.airflow.harness.kinds import FailsAfterSend
from tests.airflow.harness.task_runner import TaskRunner, fault


class TestMaxCharge:
    def test_campaign_stops_before_max_charge_and_names_the_remedy(self, task_runner: TaskRunner) -> None:
        limit_batches(task_runner)
        failed = sms(task_runner, rows(10), max_charge=5 * PRICE + 1).run_try()
        assert (failed.state, counts(failed.report)) == ("failed", {"sent": 5, "not_sent": 5})
        assert (failed.report["charge"], requests(task_runner)) == (5 * PRICE, 5)
        assert "max_charge (21) is reached: 20 was charged" in failed.error
        assert "clear the task to send the rest" in failed.error

    def test_clear_with_a_raised_max_charge_sends_to_remaining_recipients(self, task_runner: TaskRunner) -> None:
        limit_batches(task_runner)
        run = sms(task_runner, rows(10), max_charge=5 * PRICE)
        run.run_try()
        done = run.change(max_charge=10 * PRICE).clear().run_try()
        assert (done.state, count_messages(task_runner)) == ("success", Counter(digits(10)))
        assert done.result["charge"] == 10 * PRICE

    def test_charge_of_earlier_tries_counts(self, task_runner: TaskRunner) -> None:
        limit_batches(task_runner)
        run = sms(task_runner, rows(10), max_charge=5 * PRICE)
        run.run_try()
        again = run.clear().run_try()
        assert (again.state, requests(task_runner), counts(again.report)) == ("failed", 5, {"sent": 5, "not_sent": 5})

    def test_charge_before_a_resend_on_clear_counts(self, task_runner: TaskRunner) -> None:
        limit_batches(task_runner)
        run = sms(task_runner, rows(4), max_charge=10 * PRICE, resend_on_clear=True)
        assert run.run_try().state == "success"
        assert run.clear().run_try().state == "success"
        failed = run.clear().run_try()
        assert (failed.state, failed.report["sent"]) == ("failed", 2)
        assert task_runner.sandbox.counters()["charged"] == 10 * PRICE
        assert "max_charge (40) is reached: 40 was charged" in failed.error

    def test_first_request_goes_alone_and_others_stay_within_max_charge(self, task_runner: TaskRunner) -> None:
        task_runner.connect("cpaas_default", recipients_per_request=2, max_concurrency=16)
        task_runner.sandbox.control(*fault("send_sms", "latency", ms=30))
        failed = sms(task_runner, rows(60), max_charge=21 * PRICE).run_try()
        assert (failed.state, failed.report["sent"]) == ("failed", 21)
        assert task_runner.sandbox.counters()["charged"] == 21 * PRICE

    def test_only_the_first_request_may_exceed_max_charge_and_has_one_recipient(self, task_runner: TaskRunner) -> None:
        task_runner.connect("cpaas_default", recipients_per_request=4)
        failed = sms(task_runner, rows(20), max_charge=PRICE).run_try()
        assert (requests(task_runner), counts(failed.report)) == (1, {"sent": 1, "not_sent": 19})

    def test_first_request_stays_within_max_charge_if_the_price_is_given(self, task_runner: TaskRunner) -> None:
        failed = sms(task_runner, rows(20), max_charge=3 * PRICE, price_per_page=PRICE).run_try()
        assert (failed.report["sent"], task_runner.sandbox.counters()["charged"]) == (3, 3 * PRICE)

    def test_pages_are_what_is_paid_for(self, task_runner: TaskRunner) -> None:
        limit_batches(task_runner)
        long = [{**one, "name": "x" * 150} for one in rows(3, 10)]
        failed = sms(task_runner, [*rows(2), *long], max_charge=5 * PRICE, price_per_page=PRICE).run_try()
        assert (failed.state, counts(failed.report)) == ("failed", {"sent": 3, "not_sent": 2})
        assert task_runner.sandbox.counters()["charged"] == 4 * PRICE

    def test_enough_for_all_is_enough(self, task_runner: TaskRunner) -> None:
        assert sms(task_runner, rows(6), max_charge=6 * PRICE).run_try().state == "success"

    def test_unknown_requests_count_as_charged(self, task_runner: TaskRunner) -> None:
        limit_batches(task_runner)
        task_runner.sandbox.control(*fault("send_sms", "cut_after", after=1, times=2))
        failed = sms(task_runner, rows(10), max_charge=5 * PRICE, on_unknown="skip").run_try()
        assert counts(failed.report) == {"sent": 3, "unknown_recipients": 2, "not_sent": 5}
        assert "for requests of unknown outcome" in failed.error

    def test_unknown_requests_count_as_charged_in_later_tries(self, task_runner: TaskRunner) -> None:
        limit_batches(task_runner)
        task_runner.sandbox.control(*fault("send_sms", "cut_after", after=1, times=2))
        run = sms(task_runner, rows(10), max_charge=5 * PRICE, on_unknown="skip", price_per_page=PRICE)
        run.run_try()
        again = run.clear().run_try()
        assert (again.state, requests(task_runner)) == ("failed", 5)

    def test_each_resend_of_unknown_outcome_counts_as_charged(self, task_runner: TaskRunner) -> None:
        task_runner.sandbox.control(*fault("send_sms", "cut_after"))
        run = sms(task_runner, rows(4), max_charge=10 * PRICE, on_unknown="resend", price_per_page=PRICE)
        failed = run.run_try()
        assert (failed.state, task_runner.sandbox.counters()["charged"]) == ("failed", 10 * PRICE)
        assert "0 was charged, and up to 40 for requests of unknown outcome" in failed.error

    def test_unknown_request_counts_as_charged_after_its_resend(self, task_runner: TaskRunner) -> None:
        limit_batches(task_runner)
        task_runner.sandbox.control(*fault("send_sms", "cut_after", times=4))
        run = sms(task_runner, rows(4), max_charge=6 * PRICE, on_unknown="resend", price_per_page=PRICE)
        for ended in (run.run_try(), run.clear().run_try()):
            assert (ended.state, counts(ended.report)) == ("failed", {"sent": 2, "unknown_recipients": 2})
            assert task_runner.sandbox.counters()["charged"] == 6 * PRICE


class TestMinBalance:
    def test_campaign_stops_before_the_balance_falls_below_min_balance(self, task_runner: TaskRunner) -> None:
        limit_batches(task_runner)
        task_runner.sandbox.control("PUT", "balance", {"balance": 40.0})
        run = sms(task_runner, rows(10), min_balance=20.0)
        failed = run.run_try()
        assert (failed.state, counts(failed.report)) == ("failed", {"sent": 5, "not_sent": 5})
        assert (failed.report["balance"], task_runner.sandbox.counters()["balance"]) == (20.0, 20.0)
        assert "Top up the account" in failed.error
        task_runner.sandbox.control("PUT", "balance", {"balance": 500.0})
        assert (run.clear().run_try().state, count_messages(task_runner)) == ("success", Counter(digits(10)))

    def test_campaign_with_a_price_stops_exactly_at_min_balance(self, task_runner: TaskRunner) -> None:
        task_runner.sandbox.control("PUT", "balance", {"balance": 100.0})
        failed = sms(task_runner, rows(60), min_balance=60.0, price_per_page=PRICE).run_try()
        assert (failed.state, counts(failed.report)) == ("failed", {"sent": 10, "not_sent": 50})
        assert task_runner.sandbox.counters()["balance"] == 60.0

    def test_balance_below_it_already_costs_one_message_at_most(self, task_runner: TaskRunner) -> None:
        task_runner.sandbox.control("PUT", "balance", {"balance": 100.0})
        failed = sms(task_runner, rows(20), min_balance=5000.0, price_per_page=PRICE).run_try()
        assert (failed.state, requests(task_runner), failed.report["sent"]) == ("failed", 1, 1)

    def test_pending_requests_reserve_their_price(self, task_runner: TaskRunner) -> None:
        task_runner.connect("cpaas_default", recipients_per_request=2, max_concurrency=16)
        task_runner.sandbox.control(*fault("send_sms", "latency", ms=30))
        task_runner.sandbox.control("PUT", "balance", {"balance": 200.0})
        failed = sms(task_runner, rows(60), min_balance=100.0).run_try()
        assert (failed.state, failed.report["sent"], task_runner.sandbox.counters()["balance"]) == ("failed", 25, 100.0)


class TestChargeThatIsNoEvidence:
    """The service charges ``PRICE`` for each page, and names another charge, or something else."""

    def test_balance_is_believed_instead(self, task_runner: TaskRunner) -> None:
        task_runner.sandbox.control(*fault("send_sms", "wrong_charge", charge="4.0"))
        failed = sms(task_runner, rows(60), max_charge=10 * PRICE).run_try()
        assert (failed.state, failed.report["sent"]) == ("failed", 10)
        assert task_runner.sandbox.counters()["charged"] == 10 * PRICE

    def test_author_price_is_believed_instead(self, task_runner: TaskRunner) -> None:
        task_runner.sandbox.control(*fault("send_sms", "wrong_charge", charge=0.5))
        failed = sms(task_runner, rows(60), max_charge=10 * PRICE, price_per_page=PRICE).run_try()
        assert (failed.state, task_runner.sandbox.counters()["charged"]) == ("failed", 10 * PRICE)

    def test_balance_is_believed_over_a_lower_charge(self, task_runner: TaskRunner) -> None:
        task_runner.sandbox.control(*fault("send_sms", "wrong_charge", charge=0.25))
        failed = sms(task_runner, rows(60), max_charge=10 * PRICE).run_try()
        assert (failed.state, task_runner.sandbox.counters()["charged"]) == ("failed", 10 * PRICE)
        assert "The balance fell by" in failed.error

    @pytest.mark.parametrize(("charge", "price"), [(-4.0, None), (True, PRICE / 2)])
    def test_balance_is_believed_of_earlier_tries_too(
        self, task_runner: TaskRunner, charge: Any, price: float | None
    ) -> None:
        task_runner.connect("cpaas_default", recipients_per_request=2)
        task_runner.sandbox.control(*fault("send_sms", "wrong_charge", charge=charge))
        run = sms(task_runner, rows(60), max_charge=10 * PRICE, price_per_page=price)
        assert run.run_try().state == "failed"
        spent = task_runner.sandbox.counters()["charged"]
        assert [run.clear().run_try().state for _ in range(3)] == ["failed"] * 3
        assert task_runner.sandbox.counters()["charged"] == spent

    def test_report_names_no_such_charge(self, task_runner: TaskRunner) -> None:
        task_runner.sandbox.control(*fault("send_sms", "wrong_charge", charge=True))
        assert sms(task_runner, rows(3)).run_try().result["charge"] is None


class TestPriceUnknown:
    """After one answer the campaign goes on in whole requests, whatever that answer says of money."""

    @pytest.mark.parametrize("bound", [{"max_charge": 1000.0}, {"min_balance": 1.0}])
    def test_price_of_nought_is_a_price(self, task_runner: TaskRunner, bound: dict[str, float]) -> None:
        task_runner.connect("cpaas_default", recipients_per_request=50)
        task_runner.sandbox.control("PUT", "prices", {"sms": 0})
        done = sms(task_runner, rows(200), **bound).run_try()
        assert (done.state, counts(done.result)) == ("success", {"sent": 200})
        assert requests(task_runner) <= 6

    @pytest.mark.parametrize("bound", [{"max_charge": 1000.0}, {"min_balance": 1.0}])
    def test_answers_without_charge_go_on_by_the_balance(
        self, task_runner: TaskRunner, bound: dict[str, float]
    ) -> None:
        task_runner.connect("cpaas_default", recipients_per_request=50)
        task_runner.sandbox.control(*fault("send_sms", "no_charge"))
        done = sms(task_runner, rows(200), **bound).run_try()
        assert (done.state, counts(done.result)) == ("success", {"sent": 200})
        assert requests(task_runner) <= 6
        assert done.log.count("Responses name no charge") == 1

    def test_bound_holds_without_charge(self, task_runner: TaskRunner) -> None:
        task_runner.connect("cpaas_default", recipients_per_request=10)
        task_runner.sandbox.control(*fault("send_sms", "no_charge"))
        failed = sms(task_runner, rows(100), max_charge=40 * PRICE).run_try()
        assert (failed.state, failed.report["sent"]) == ("failed", 40)
        assert task_runner.sandbox.counters()["charged"] == 40 * PRICE

    def test_missing_charge_ends_the_campaign_with_on_missing_charge_fail(self, task_runner: TaskRunner) -> None:
        task_runner.sandbox.control(*fault("send_sms", "no_charge"))
        failed = sms(task_runner, rows(10), max_charge=1000, on_missing_charge="fail").run_try()
        assert (failed.state, counts(failed.report)) == ("failed", {"sent": 1, "not_sent": 9})
        assert "on_missing_charge" in failed.error

    def test_campaign_ends_if_responses_have_neither_charge_nor_balance(self, task_runner: TaskRunner) -> None:
        task_runner.sandbox.control(*fault("send_sms", "no_charge", balance="drop"))
        failed = sms(task_runner, rows(10), max_charge=1000).run_try()
        assert (failed.state, counts(failed.report)) == ("failed", {"sent": 1, "not_sent": 9})
        assert "price_per_page" in failed.error


class TestMaxRecipients:
    def test_campaign_for_more_is_refused_before_anything_is_sent(self, task_runner: TaskRunner) -> None:
        run = sms(task_runner, [*rows(6), *rows(6)], max_recipients=5)
        failed = run.run_try()
        assert (failed.state, requests(task_runner)) == ("failed", 0)
        assert "has 6 recipients, more than max_recipients (5)" in failed.error
        assert run.change(max_recipients=6).clear().run_try().state == "success"

    def test_recipients_of_earlier_tries_count_for_max_recipients(self, task_runner: TaskRunner) -> None:
        run = sms(task_runner, rows(4), max_recipients=6)
        assert run.run_try().state == "success"
        assert run.change(source=rows(4, 10)).clear().run_try().state == "failed"

    def test_resend_on_clear_counts_only_recipients_since_the_clear(self, task_runner: TaskRunner) -> None:
        failing = FailsAfterSend(2)
        run = sms(task_runner, rows(4), max_recipients=4, resend_on_clear=True, post_execute=failing)
        assert run.run_try().state == "success"
        # The same recipients again, then others: each clear sends one list.
        assert run.clear().run_try().state == "up_for_retry"
        assert run.run_try().state == "success"
        assert run.change(source=rows(4, 10)).clear().run_try().state == "success"
        assert sum(count_messages(task_runner).values()) == 12

    def test_recipients_sent_to_since_a_resending_clear_count(self, task_runner: TaskRunner) -> None:
        run = sms(task_runner, rows(4), max_recipients=6, resend_on_clear=True, post_execute=FailsAfterSend(2))
        run.run_try()
        assert run.clear().run_try().state == "up_for_retry"
        failed = run.change(source=rows(4, 10)).run_try()
        assert failed.state == "failed"
        assert "has 8 recipients, more than max_recipients (6)" in failed.error


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_charge", -1), ("max_charge", "5"), ("min_balance", float("inf")), ("price_per_page", True),
        ("max_recipients", 0), ("max_failure_ratio", 1.5), ("preview_count", -1), ("max_pending_requests", 0),
        ("dry_run", "yes"), ("test_only", 1), ("progress_interval", -1), ("on_lookup_error", "perhaps"),
        ("on_rejected_batch", "halve"), ("on_missing_charge", "hope"), ("on_invalid_suppression", "hope"),
        ("max_identical_rejections", 0),
        ("channel", "fax"), ("on_unknown", "hope"), ("skip_dnd", None), ("lookup_ttl", -5),
    ],
)  # fmt: skip
def test_invalid_limit_is_refused_in_the_dag_file(task_runner: TaskRunner, name: str, value: object) -> None:
    with pytest.raises(ValueError, match=name):
        sms(task_runner, rows(1), **{name: value})
