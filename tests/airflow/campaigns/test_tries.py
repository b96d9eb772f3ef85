"""Campaigns over several tries: the next try sends to remaining recipients only."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from cpaas_provider.sending.campaign.batcher import Batcher
from cpaas_provider.sending.journal.model import JOURNAL_KEY
from tests.airflow.harness.campaigns import (
    clear_faults,
    count_messages,
    counts,
    digits,
    last_texts,
    limit_batches,
    outcomes,
    read_results,
    record_state_calls,
    reject_recipients,
    requests,
    rows,
    sms,
    stored_state_text,
)
from tests.airflow.harness.kinds import FailsAfterSend
from tests.airflow.harness.task_runner import ATTEMPTS, TaskRunner, fault

SIX = digits(6)
DROPPED = pytest.mark.parametrize("drop_state", [False, True], ids=["kept", "dropped"])
LOST = pytest.mark.parametrize("how", ["cut_after", "cut_before", "error_500_after", "broken_json", "missing_field"])


def lose(task_runner: TaskRunner, how: str, **params: object) -> None:
    """Have an answer lost."""
    task_runner.sandbox.control(
        *fault("send_sms", how, **({"field": "id"} if how == "missing_field" else {}), **params)
    )


class TestOneTry:
    def test_each_recipient_gets_their_own_text_in_one_request(self, task_runner: TaskRunner) -> None:
        done = sms(task_runner, rows(6)).run_try()
        assert done.state == "success"
        assert last_texts(task_runner) == {one: f"Hello Person {n}, your order waits" for n, one in enumerate(SIX)}
        assert requests(task_runner) == 1
        assert counts(done.result) == {"sent": 6}
        assert (done.result["requests"], done.result["charge"], done.result["recipients"]) == (1, 24.0, 6)
        assert done.result["reference"].startswith("cpaas-")

    def test_batches_are_as_large_as_the_connection_allows(self, task_runner: TaskRunner) -> None:
        task_runner.connect("cpaas_default", recipients_per_request=4)
        done = sms(task_runner, rows(10)).run_try()
        assert (done.result["requests"], requests(task_runner), count_messages(task_runner)) == (
            3,
            3,
            Counter(digits(10)),
        )

    def test_duplicates_are_sent_once_and_counted(self, task_runner: TaskRunner) -> None:
        done = sms(task_runner, [*rows(3), *rows(2), {"phone": "0803 120 0000", "name": "Again"}]).run_try()
        assert count_messages(task_runner) == Counter(digits(3))
        assert counts(done.result) == {"sent": 3, "duplicates": 3}
        assert last_texts(task_runner)[SIX[0]].startswith("Hello Person 0,")

    def test_empty_source_is_skipped(self, task_runner: TaskRunner) -> None:
        done = sms(task_runner, []).run_try()
        assert (done.state, requests(task_runner)) == ("skipped", 0)

    def test_two_requests_have_two_references_and_a_retry_the_same(self, task_runner: TaskRunner) -> None:
        limit_batches(task_runner, 2)
        sms(task_runner, rows(4)).run_try()
        references = [one["external_ref"] for one in task_runner.sandbox.inbox("sms")["items"]]
        assert len(set(references)) == 2

    def test_external_ref_of_the_author_is_sent(self, task_runner: TaskRunner) -> None:
        sms(task_runner, rows(1), external_ref="spring-{{ dag.dag_id }}").run_try()
        (one,) = task_runner.sandbox.inbox("sms")["items"]
        assert one["external_ref"].startswith("spring-tries_")

    def test_channel_sender_and_callback_are_in_every_request(self, task_runner: TaskRunner) -> None:
        limit_batches(task_runner)
        sms(
            task_runner, rows(2), channel="whatsapp", sender_id="Other", callback="http://127.0.0.1:9/{{ 'reports' }}"
        ).run_try()
        found = task_runner.sandbox.inbox("sms")["items"]
        assert [(one["channel"], one["sender_id"]) for one in found] == [("whatsapp", "Other")] * 2
        assert {one["callback"] for one in found} == {"http://127.0.0.1:9/reports"}


class TestRetries:
    def test_retry_sends_only_to_remaining_recipients(self, task_runner: TaskRunner, tmp_path: Path) -> None:
        limit_batches(task_runner)
        task_runner.sandbox.control(*fault("send_sms", "rate_limit", after=3, times=ATTEMPTS, retry_after=0))
        run = sms(task_runner, rows(6), results_path=str(tmp_path / "o.jsonl"))
        first = run.run_try()
        assert (first.state, counts(first.report)) == ("up_for_retry", {"sent": 3, "not_sent": 3})
        assert sorted(outcomes(tmp_path / "o.jsonl").values()) == ["not_sent"] * 3 + ["sent"] * 3
        second = run.run_try()
        assert (second.state, counts(second.result), count_messages(task_runner)) == (
            "success",
            {"sent": 6},
            Counter(SIX),
        )
        assert set(outcomes(tmp_path / "o.jsonl").values()) == {"sent"}
        assert (second.result["requests"], second.result["charge"]) == (6, 24.0)

    def test_refused_connection_is_retried(self, task_runner: TaskRunner) -> None:
        run = sms(task_runner, rows(3), cpaas_conn_id="cpaas_{{ 'refused' if ti.try_number == 1 else 'default' }}")
        assert [one.state for one in run.run_to_end()] == ["up_for_retry", "success"]
        assert count_messages(task_runner) == Counter(digits(3))

    def test_retry_after_a_failure_following_the_send_sends_nothing(self, task_runner: TaskRunner) -> None:
        first, second = sms(task_runner, rows(6), post_execute=FailsAfterSend(1)).run_to_end()
        assert (first.state, second.state, requests(task_runner)) == ("up_for_retry", "success", 1)
        assert counts(second.result) == {"sent": 6}

    def test_source_reordered_and_edited_between_tries_sends_to_each_recipient_once(
        self, task_runner: TaskRunner, tmp_path: Path
    ) -> None:
        limit_batches(task_runner)
        task_runner.sandbox.control(*fault("send_sms", "rate_limit", after=3, times=ATTEMPTS, retry_after=0))
        run = sms(task_runner, rows(6), results_path=str(tmp_path / "o.jsonl"))
        run.run_try()
        edited = [*reversed(rows(6)[1:]), *rows(2, first=50)]
        second = run.change(source=edited).run_try()
        assert (second.state, count_messages(task_runner)) == ("success", Counter([*SIX, *digits(2, 50)]))
        gone = [line for line in read_results(tmp_path / "o.jsonl") if line["row"] is None]
        assert [(line["outcome"], line["reason"]) for line in gone] == [("sent", "no longer in the source")]

    def test_remaining_recipients_get_the_changed_content(self, task_runner: TaskRunner) -> None:
        limit_batches(task_runner)
        task_runner.sandbox.control(*fault("send_sms", "rate_limit", after=2, times=ATTEMPTS, retry_after=0))
        run = sms(task_runner, rows(4))
        run.run_try()
        second = run.change(content="Come, {name}").run_try()
        assert (second.state, count_messages(task_runner)) == ("success", Counter(digits(4)))
        assert [text.partition(" ")[0] for _, text in sorted(last_texts(task_runner).items())] == [
            "Hello",
            "Hello",
            "Come,",
            "Come,",
        ]
        assert "changed after an earlier try" in second.log

    def test_campaign_that_ends_with_recipients_left_fails_and_its_retry_sends_to_them(
        self, task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """No campaign is known to end like this. It must not look like a success."""

        async def ends(self: Batcher, pending: int) -> None:
            return None

        run = sms(task_runner, rows(3))
        with monkeypatch.context() as patched:
            patched.setattr(Batcher, "next", ends)
            first = run.run_try()
        assert (first.state, requests(task_runner)) == ("up_for_retry", 0)
        assert "Of 3 recipients, 3 were not sent to" in first.error
        assert run.run_try().state == "success"
        assert count_messages(task_runner) == Counter(digits(3))


class TestUnknown:
    @LOST
    def test_unknown_request_fails_the_task_after_all_others_are_sent(self, task_runner: TaskRunner, how: str) -> None:
        limit_batches(task_runner)
        lose(task_runner, how, after=2, times=1)
        run = sms(task_runner, rows(6))
        failed = run.run_try()
        assert (failed.state, requests(task_runner)) == ("failed", 6)
        assert counts(failed.report) == {"sent": 5, "unknown_recipients": 1}
        assert failed.references == failed.report["unknown_references"]
        assert len(failed.references) == 1
        assert "journal resolve --sent" in failed.error
        assert max(count_messages(task_runner).values()) == 1

    def test_skip_succeeds_and_counts_unknown_recipients(self, task_runner: TaskRunner, tmp_path: Path) -> None:
        limit_batches(task_runner)
        lose(task_runner, "cut_after", after=2, times=1)
        done = sms(task_runner, rows(6), on_unknown="skip", results_path=str(tmp_path / "o.jsonl")).run_try()
        assert (done.state, counts(done.result)) == ("success", {"sent": 5, "unknown_recipients": 1})
        assert (requests(task_runner), len(done.result["unknown_references"])) == (6, 1)
        assert Counter(outcomes(tmp_path / "o.jsonl").values()) == {"sent": 5, "unknown": 1}

    @pytest.mark.parametrize("how", ["cut_after", "cut_before"])
    def test_resend_sends_to_all_recipients(self, task_runner: TaskRunner, how: str) -> None:
        limit_batches(task_runner)
        lose(task_runner, how, after=2, times=1)
        done = sms(task_runner, rows(6), on_unknown="resend").run_try()
        assert (done.state, counts(done.result)) == ("success", {"sent": 6})
        assert set(count_messages(task_runner)) == set(SIX)
        assert requests(task_runner) == 7

    def test_request_unknown_after_all_resends_is_left_to_the_retries(
        self, task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("cpaas_provider.api.backoff.random.uniform", lambda low, high: 0.0)
        lose(task_runner, "cut_after", times=5)
        run = sms(task_runner, rows(2), on_unknown="resend")
        first = run.run_try()
        assert (first.state, requests(task_runner)) == ("up_for_retry", 5)
        assert (run.run_try().state, requests(task_runner)) == ("success", 6)

    def test_resend_with_changed_content_fails_and_sends_nothing(self, task_runner: TaskRunner) -> None:
        lose(task_runner, "cut_after", times=1)
        run = sms(task_runner, rows(2))
        assert run.run_try().state == "failed"
        run.change(on_unknown="resend")
        before = requests(task_runner)
        changed = run.change(content="Come, {name}").clear().run_try()
        assert (changed.state, requests(task_runner)) == ("failed", before)
        assert "The content changed since these requests were made" in changed.error

    def test_resend_with_a_changed_cell_fails_and_sends_nothing(self, task_runner: TaskRunner) -> None:
        lose(task_runner, "cut_after", times=1)
        run = sms(task_runner, rows(2))
        run.run_try()
        changed = run.change(source=[{**one, "name": "Somebody else"} for one in rows(2)]).clear().run_try()
        assert "The content changed since these requests were made" in changed.error
        assert requests(task_runner) == 1

    def test_ten_unknown_requests_in_a_row_end_the_try_and_retries_continue(self, task_runner: TaskRunner) -> None:
        limit_batches(task_runner)
        lose(task_runner, "cut_before", times=10)
        run = sms(task_runner, rows(14), on_unknown="skip")
        first = run.run_try()
        assert (first.state, counts(first.report)) == ("up_for_retry", {"unknown_recipients": 10, "not_sent": 4})
        second = run.run_try()
        assert (second.state, counts(second.result)) == ("success", {"unknown_recipients": 10, "sent": 4})


class TestRejected:
    def test_recipients_named_in_a_rejection_are_left_out_and_others_sent_to(
        self, task_runner: TaskRunner, tmp_path: Path
    ) -> None:
        reject_recipients(task_runner, [SIX[1], SIX[4]])
        failed = sms(task_runner, rows(6), results_path=str(tmp_path / "o.jsonl")).run_try()
        assert (failed.state, counts(failed.report)) == ("failed", {"sent": 4, "rejected": 2})
        found = outcomes(tmp_path / "o.jsonl")
        assert {one for one, outcome in found.items() if outcome == "rejected"} == {SIX[1], SIX[4]}
        assert count_messages(task_runner) == Counter(set(SIX) - {SIX[1], SIX[4]})
        assert requests(task_runner) <= 3

    def test_rejected_batch_without_named_recipients_is_bisected(self, task_runner: TaskRunner, tmp_path: Path) -> None:
        reject_recipients(task_runner, [SIX[1]], named=False)
        failed = sms(task_runner, rows(6), results_path=str(tmp_path / "o.jsonl")).run_try()
        assert counts(failed.report) == {"sent": 5, "rejected": 1}
        assert outcomes(tmp_path / "o.jsonl")[SIX[1]] == "rejected"
        assert count_messages(task_runner) == Counter(set(SIX) - {SIX[1]})
        assert all(line["reason"] for line in read_results(tmp_path / "o.jsonl") if line["outcome"] == "rejected")

    @pytest.mark.parametrize("named", [True, False])
    def test_rejections_within_max_failure_ratio_succeed(self, task_runner: TaskRunner, named: bool) -> None:
        reject_recipients(task_runner, [SIX[1]], named=named)
        done = sms(task_runner, rows(6), max_failure_ratio=0.2).run_try()
        assert (done.state, counts(done.result)) == ("success", {"sent": 5, "rejected": 1})

    def test_rejected_recipients_are_tried_again_after_a_clear_and_not_in_a_retry(
        self, task_runner: TaskRunner
    ) -> None:
        reject_recipients(task_runner, [SIX[1]])
        run = sms(task_runner, rows(3), max_failure_ratio=0.5, post_execute=FailsAfterSend(1))
        assert run.run_try().state == "up_for_retry"
        before = requests(task_runner)
        retried = run.run_try()
        assert (retried.state, counts(retried.result), requests(task_runner)) == (
            "success",
            {"sent": 2, "rejected": 1},
            before,
        )
        run.change(max_failure_ratio=0)
        again = run.clear().run_try()
        assert (again.state, counts(again.report), requests(task_runner)) == (
            "failed",
            {"sent": 2, "rejected": 1},
            before + 1,
        )

    def test_rejected_sender_ends_the_campaign_without_bisecting(self, task_runner: TaskRunner) -> None:
        failed = sms(task_runner, rows(6), sender_id="Much too long a name").run_try()
        assert (failed.state, count_messages(task_runner)) == ("failed", {})
        assert requests(task_runner) <= 1

    def test_unknown_template_ends_the_campaign_at_once(self, task_runner: TaskRunner) -> None:
        failed = sms(task_runner, rows(6), content=None, template_id="tpl_nobody_has", substitutions=["name"]).run_try()
        assert (failed.state, requests(task_runner), counts(failed.report)) == ("failed", 1, {"not_sent": 6})

    def test_campaign_stops_after_20_rejected_requests_in_a_row(self, task_runner: TaskRunner) -> None:
        limit_batches(task_runner)
        reject_recipients(task_runner, digits(30), named=False)
        failed = sms(task_runner, rows(30), max_failure_ratio=1).run_try()
        assert (failed.state, requests(task_runner), counts(failed.report)) == (
            "failed", 20, {"rejected": 20, "not_sent": 10}
        )  # fmt: skip
        assert "20 requests in a row" in failed.error

    def test_too_many_rejections_end_the_campaign_early(self, task_runner: TaskRunner) -> None:
        limit_batches(task_runner)
        reject_recipients(task_runner, digits(20, 5), named=False)
        failed = sms(task_runner, rows(100), max_failure_ratio=0.1).run_try()
        assert (failed.state, requests(task_runner)) == ("failed", 16)
        assert failed.report["not_sent"] == 84
        assert "max_failure_ratio" in failed.error

    def test_invalid_rows_count_together_with_rejected_recipients(
        self, task_runner: TaskRunner, tmp_path: Path
    ) -> None:
        given = [*rows(4), {"phone": "12", "name": "x"}, {"phone": f"+{SIX[5]}"}]
        for ratio in (0, 0.3):
            path = str(tmp_path / f"{ratio}.jsonl")
            failed = sms(task_runner, given, max_failure_ratio=ratio, results_path=path).run_try()
            assert (failed.state, counts(failed.report)) == ("failed", {"sent": 4, "invalid_rows": 2})
        assert sms(task_runner, given, max_failure_ratio=0.34).run_try().state == "success"


class TestAccountThatCannotSend:
    def test_rejected_api_key_fails_the_task_after_one_request(self, task_runner: TaskRunner) -> None:
        failed = sms(task_runner, rows(6), cpaas_conn_id="cpaas_wrong_key").run_try()
        assert (failed.state, counts(failed.report), count_messages(task_runner)) == ("failed", {"not_sent": 6}, {})

    def test_api_key_rejected_midway_leaves_remaining_recipients_to_a_clear(self, task_runner: TaskRunner) -> None:
        limit_batches(task_runner)
        task_runner.sandbox.control(*fault("send_sms", "unauthorized", after=2))
        run = sms(task_runner, rows(6))
        failed = run.run_try()
        assert (failed.state, counts(failed.report), requests(task_runner)) == ("failed", {"sent": 2, "not_sent": 4}, 3)
        clear_faults(task_runner)
        assert (run.clear().run_try().state, count_messages(task_runner)) == ("success", Counter(SIX))

    @pytest.mark.parametrize("how", ["402", "under_200"])
    def test_campaign_fails_without_balance_and_continues_after_a_top_up(
        self, task_runner: TaskRunner, how: str
    ) -> None:
        limit_batches(task_runner)
        task_runner.sandbox.control("PUT", "settings", {"insufficient_balance": how})
        task_runner.sandbox.control("PUT", "balance", {"balance": 10.0})
        run = sms(task_runner, rows(6))
        failed = run.run_try()
        assert (failed.state, counts(failed.report)) == ("failed", {"sent": 2, "not_sent": 4})
        task_runner.sandbox.control("PUT", "balance", {"balance": 1000.0})
        assert (run.clear().run_try().state, count_messages(task_runner)) == ("success", Counter(SIX))


class TestLongRetryAfter:
    def test_long_retry_after_defers_and_then_sends_to_remaining_recipients(self, task_runner: TaskRunner) -> None:
        limit_batches(task_runner)
        task_runner.sandbox.control(*fault("send_sms", "rate_limit", after=2, times=1, retry_after=90))
        run = sms(task_runner, rows(6))
        deferred = run.run_try()
        assert (deferred.state, requests(task_runner)) == ("deferred", 3)
        resumed = run.fire_trigger(early=True).run_try()
        assert (resumed.state, resumed.number, count_messages(task_runner)) == ("success", 1, Counter(SIX))
        assert counts(resumed.result) == {"sent": 6}

    def test_deferred_campaign_stores_nothing_private(self, task_runner: TaskRunner) -> None:
        task_runner.sandbox.control(*fault("send_sms", "rate_limit", times=1, retry_after=90))
        run = sms(task_runner, rows(3))
        deferred = run.run_try()
        kept = f"{deferred.trigger} {deferred.next_kwargs} {stored_state_text(run)}"
        assert not [one for one in (*digits(3), "Person", "order waits") if one in kept]


class TestClears:
    @DROPPED
    def test_clear_of_a_finished_campaign_sends_nothing(self, task_runner: TaskRunner, drop_state: bool) -> None:
        run = sms(task_runner, rows(6))
        first = run.run_try()
        again = run.clear(drop_state=drop_state).run_try()
        assert (count_messages(task_runner), requests(task_runner)) == (Counter(SIX), 1)
        if drop_state:
            assert (again.state, counts(again.report)) == ("failed", {"unknown_recipients": 6})
            assert "left no journal" in again.error
        else:
            assert (again.state, again.result) == ("success", first.result)

    def test_clear_with_a_lost_journal_and_resend_sends_again(self, task_runner: TaskRunner) -> None:
        run = sms(task_runner, rows(3), on_unknown="resend")
        run.run_try()
        again = run.clear(drop_state=True).run_try()
        assert (again.state, counts(again.result), requests(task_runner)) == ("success", {"sent": 3}, 2)

    def test_clear_with_a_lost_journal_and_skip_sends_nothing(self, task_runner: TaskRunner) -> None:
        run = sms(task_runner, rows(3), on_unknown="skip")
        run.run_try()
        again = run.clear(drop_state=True).run_try()
        assert (again.state, counts(again.result), requests(task_runner)) == ("success", {"unknown_recipients": 3}, 1)

    @DROPPED
    def test_resend_on_clear_sends_to_all_recipients_once_per_clear(
        self, task_runner: TaskRunner, drop_state: bool
    ) -> None:
        run = sms(task_runner, rows(3), resend_on_clear=True, post_execute=FailsAfterSend(2))
        run.run_try()
        states = [one.state for one in run.clear(drop_state=drop_state).run_to_end()]
        assert (states, count_messages(task_runner)) == (["up_for_retry", "success"], Counter(digits(3) * 2))
        references = {one["external_ref"] for one in task_runner.sandbox.inbox("sms")["items"]}
        assert len(references) == 2

    def test_unknown_request_stays_unknown_after_a_clear(self, task_runner: TaskRunner) -> None:
        lose(task_runner, "cut_after", times=1)
        run = sms(task_runner, rows(3))
        first = run.run_try()
        again = run.clear().run_try()
        assert (again.state, again.references, requests(task_runner)) == ("failed", first.references, 1)

    def test_clear_after_a_refused_connection_sends(self, task_runner: TaskRunner) -> None:
        run = sms(
            task_runner, rows(3), retries=0, cpaas_conn_id="cpaas_{{ 'refused' if ti.try_number == 1 else 'default' }}"
        )
        assert run.run_try().state == "failed"
        assert (run.clear().run_try().state, count_messages(task_runner)) == ("success", Counter(digits(3)))

    def test_clear_after_an_unreadable_source_sends(self, task_runner: TaskRunner, tmp_path: Path) -> None:
        file = tmp_path / "people.csv"
        run = sms(task_runner, str(file), retries=0)
        failed = run.run_try()
        assert (failed.state, "nothing was sent" in failed.error.lower()) == ("failed", True)
        file.write_text("phone,name\n+2348031200000,Ada\n")
        assert (run.clear().run_try().state, count_messages(task_runner)) == ("success", Counter(digits(1)))

    def test_unreadable_source_in_a_later_try_leaves_earlier_outcomes_in_the_results(
        self, task_runner: TaskRunner, tmp_path: Path
    ) -> None:
        file, out = tmp_path / "people.csv", tmp_path / "o.jsonl"
        file.write_text("phone,name\n+2348031200000,Ada\n")
        run = sms(task_runner, str(file), results_path=str(out), post_execute=FailsAfterSend(1))
        run.run_try()
        file.unlink()
        assert run.run_try().state == "up_for_retry"
        assert outcomes(out) == {SIX[0]: "sent"}


def test_state_holds_nothing_private_and_is_written_once_per_window(
    task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_batches(task_runner)
    asked = record_state_calls(monkeypatch)
    run = sms(task_runner, rows(6))
    run.run_try()
    # The head, then the intent of each request with the result of the one before, then the last result.
    of_journal = [call for call, key in asked if key.startswith(JOURNAL_KEY)]
    assert of_journal == ["get"] + ["set"] * (1 + 6 + 1)
    assert [call for call, _ in asked].count("get") == 1
    stored = stored_state_text(run)
    assert not [one for one in (*SIX, "Person", "order waits", task_runner.sandbox.api_key) if one in stored]
