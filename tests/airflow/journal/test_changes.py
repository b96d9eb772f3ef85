"""Changes between two tries: the content, the recipients, the API key."""

from __future__ import annotations

import pytest

from tests.airflow.harness.kinds import AIRTIME, EMAIL, KINDS, OTP, RECIPIENT, ROW, SMS, FailsAfterSend, Kind
from tests.airflow.harness.task_runner import TaskRunner, digits, phone

WARNING = "The content changed after an earlier try sent it to 1 of 1 recipients."
# Arguments that render differently in each try.
BY_TRY = {
    "sms": {"content": "Try {{ ti.try_number }}"},
    "email": {"subject": "Try {{ ti.try_number }}"},
    "airtime": {"amount": "{{ 100 * ti.try_number }}"},
    "otp": {"length": "{{ 3 + ti.try_number }}"},
    "row": {"columns": {"Name": RECIPIENT, "Points": "{{ ti.try_number }}"}},
}
BY_KIND = pytest.mark.parametrize("kind", [KINDS[name] for name in BY_TRY], ids=BY_TRY)


def message_counts(task_runner: TaskRunner, *people: str) -> list[int]:
    return [len(task_runner.inbox_items("sms", digits(one))) for one in people]


class TestChangedContent:
    @BY_KIND
    def test_accepted_request_is_not_resent_and_the_log_warns(self, task_runner: TaskRunner, kind: Kind) -> None:
        run = kind.run(task_runner, post_execute=FailsAfterSend(1), **BY_TRY[kind.name])
        _, second = run.run_to_end()
        assert (second.state, kind.requests(task_runner)) == ("success", 1)
        assert WARNING in second.log
        assert "No other recipient is left" in second.log

    @pytest.mark.parametrize("on_unknown", ["fail", "skip", "resend"])
    def test_unknown_request_fails_the_task_whatever_on_unknown_is(
        self, task_runner: TaskRunner, on_unknown: str
    ) -> None:
        SMS.lose(task_runner, "cut_after", times=1)
        run = SMS.run(task_runner, **BY_TRY["sms"])
        first = run.run_try()
        run.change(on_unknown=on_unknown)
        again = run.clear().run_try()
        assert (again.state, again.number, SMS.requests(task_runner)) == ("failed", 2, 1)
        assert "The content changed since these requests were made" in again.error
        assert again.references == first.references

    def test_content_changed_between_two_resends_fails_the_task(
        self, task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("cpaas_provider.sending.engine._FIRST_PAUSE", 0.0)
        SMS.lose(task_runner, "error_500_after")
        run = SMS.run(task_runner, on_unknown="resend", **BY_TRY["sms"])
        first, second = run.run_to_end()
        assert (first.state, second.state) == ("up_for_retry", "failed")
        assert "The content changed" in second.error
        assert {one["text"] for one in SMS.inbox_items(task_runner)} == {"Try 1"}

    def test_content_that_is_changed_back_is_resent(self, task_runner: TaskRunner) -> None:
        SMS.lose(task_runner, "cut_after", times=1)
        run = SMS.run(task_runner)
        run.run_try()
        run.change(content="Another", on_unknown="resend").clear()
        assert "The content changed" in run.run_try().error
        run.change(content="Your parcel is here").clear()
        assert run.run_try().state == "success"
        assert len(SMS.inbox_items(task_runner)) == 2

    def test_recipient_not_yet_sent_to_gets_the_new_content(self, task_runner: TaskRunner) -> None:
        run = SMS.run(task_runner, recipients=[phone("one")], post_execute=FailsAfterSend(1), **BY_TRY["sms"])
        run.run_try()
        second = run.change(recipients=[phone("one"), phone("two")]).run_try()
        assert (second.state, message_counts(task_runner, "one", "two")) == ("success", [1, 1])
        assert "The other 1 get the new content" in second.log
        assert [one["text"] for one in task_runner.inbox_items("sms", digits("two"))] == ["Try 2"]

    def test_rejected_content_may_be_corrected(self, task_runner: TaskRunner) -> None:
        run = SMS.run(task_runner, content=None, template_id="tpl_none")
        assert run.run_try().state == "failed"
        assert run.change(content="Hello", template_id=None).clear().run_try().state == "success"

    def test_changed_substitution_counts_as_changed_content(self, task_runner: TaskRunner) -> None:
        entries = [{"to": phone(one), "substitutions": {"name": f"{one} {{{{ ti.try_number }}}}"}} for one in ("one",)]
        run = SMS.run(
            task_runner,
            recipients=[phone("one")],
            content="Dear {name}",
            personalisation=entries,
            post_execute=FailsAfterSend(1),
        )
        _, second = run.run_to_end()
        assert (second.state, message_counts(task_runner, "one")) == ("success", [1])
        assert WARNING in second.log

    def test_changed_external_ref_or_callback_is_no_changed_content(self, task_runner: TaskRunner) -> None:
        SMS.lose(task_runner, "cut_after", times=1)
        run = SMS.run(task_runner, on_unknown="fail")
        run.run_try()
        run.change(external_ref="order-2", callback="http://127.0.0.1:9/", on_unknown="skip")
        assert run.clear().run_try().state == "success"


class TestChangedRecipients:
    def test_retry_sends_only_to_added_recipients(self, task_runner: TaskRunner) -> None:
        run = SMS.run(task_runner, recipients=[phone("one"), phone("two")], post_execute=FailsAfterSend(1))
        run.run_try()
        second = run.change(recipients=[phone("three"), phone("two"), phone("one")]).run_try()
        assert (second.state, message_counts(task_runner, "one", "two", "three")) == ("success", [1, 1, 1])
        assert second.result["recipients"] == 3
        assert len(second.result["references"]) == 2

    def test_another_order_or_notation_of_a_number_is_the_same_recipient(self, task_runner: TaskRunner) -> None:
        run = SMS.run(task_runner, recipients=[phone("one"), phone("two")], post_execute=FailsAfterSend(1))
        run.run_try()
        second = run.change(recipients=f"+{digits('two')}, {phone('one')}, {phone('two')}").run_try()
        assert (second.state, message_counts(task_runner, "one", "two"), second.result["recipients"]) == (
            "success",
            [1, 1],
            2,
        )

    def test_removed_recipient_still_counts_as_sent(self, task_runner: TaskRunner) -> None:
        run = SMS.run(task_runner, recipients=[phone("one"), phone("two")], post_execute=FailsAfterSend(1))
        run.run_try()
        second = run.change(recipients=[phone("one")]).run_try()
        assert (second.state, second.result["recipients"], SMS.requests(task_runner)) == ("success", 2, 1)

    def test_added_recipients_are_sent_to_and_unknown_requests_are_named(self, task_runner: TaskRunner) -> None:
        SMS.lose(task_runner, "cut_after", times=1)
        run = SMS.run(task_runner, recipients=[phone("one"), phone("two")])
        first = run.run_try()
        again = run.change(recipients=[phone("two"), phone("three")]).clear().run_try()
        assert (again.state, message_counts(task_runner, "one", "two", "three")) == ("failed", [1, 1, 1])
        assert again.references == first.references
        assert (again.report["recipients"], again.report["unknown_recipients"]) == (1, 2)

    def test_resend_sends_only_to_unknown_recipients_still_listed(self, task_runner: TaskRunner) -> None:
        SMS.lose(task_runner, "cut_before", times=1)
        run = SMS.run(task_runner, recipients=[phone("one"), phone("two")])
        run.run_try()
        again = run.change(recipients=[phone("two")], on_unknown="resend").clear().run_try()
        assert (again.state, message_counts(task_runner, "one", "two")) == ("success", [0, 1])
        # The one who was taken off the list is still unknown, and said to be so.
        assert (again.result["recipients"], again.result["unknown_recipients"]) == (1, 1)

    @pytest.mark.parametrize("kind", [AIRTIME, EMAIL], ids=lambda kind: kind.name)
    def test_another_recipient_is_another_request(self, task_runner: TaskRunner, kind: Kind) -> None:
        field = {"airtime": "recipient", "email": "recipients"}[kind.name]
        other = {"airtime": phone("other"), "email": "other@people.example.com"}[kind.name]
        run = kind.run(task_runner, post_execute=FailsAfterSend(1))
        run.run_try()
        assert run.change(**{field: other}).run_try().state == "success"
        assert (kind.requests(task_runner), len(kind.inbox_items(task_runner))) == (2, 1)

    @pytest.mark.parametrize("kind", [AIRTIME, OTP], ids=lambda kind: kind.name)
    def test_unknown_request_to_another_recipient_has_no_result_of_the_earlier_one(
        self, task_runner: TaskRunner, kind: Kind
    ) -> None:
        run = kind.run(task_runner, on_unknown="skip", unknown_timeout=0, post_execute=FailsAfterSend(1))
        run.run_try()
        kind.lose(task_runner, "cut_after", times=1)
        second = run.change(recipient=phone("other"), **({"amount": 200} if kind is AIRTIME else {})).run_try()
        assert (second.state, second.result["unknown_recipients"], second.result["id"]) == ("success", 1, None)
        if kind is AIRTIME:
            assert (second.result["amount"], second.result["charge"]) == (200, None)

    @pytest.mark.parametrize("kind", [AIRTIME, OTP], ids=lambda kind: kind.name)
    def test_recipient_that_is_changed_back_has_the_result_of_its_own_request(
        self, task_runner: TaskRunner, kind: Kind
    ) -> None:
        failing = FailsAfterSend(1, 2)
        run = kind.run(task_runner, post_execute=failing)
        run.run_try()
        run.change(recipient=phone("other"), **({"amount": 200} if kind is AIRTIME else {})).run_try()
        third = run.change(recipient=phone(RECIPIENT)).run_try()
        first, second = failing.results[:2]
        assert (third.state, kind.requests(task_runner)) == ("success", 2)
        assert third.result["id"] == first["id"] != second["id"]
        if kind is AIRTIME:
            assert [result["amount"] for result in (first, second, third.result)] == [100, 200, 100]


class TestChangedSecret:
    def test_new_api_key_without_a_callback_secret_sends_nothing(self, task_runner: TaskRunner) -> None:
        run = SMS.run(task_runner, post_execute=FailsAfterSend(1))
        run.run_try()
        task_runner.connect("cpaas_default", password="sk_test_the_new_one")
        failed = run.run_try()
        assert (failed.state, failed.number, SMS.requests(task_runner)) == ("failed", 2, 1)
        assert "secrets changed" in failed.error

    def test_callback_secret_identifies_recipients_after_a_new_api_key(self, task_runner: TaskRunner) -> None:
        task_runner.connect("cpaas_default", callback_secret="a secret that stays")
        failing = FailsAfterSend(1)
        run = SMS.run(task_runner, post_execute=failing)
        run.run_try()
        task_runner.connect("cpaas_default", callback_secret="a secret that stays", password="sk_test_the_new_one")
        second = run.run_try()
        assert (second.state, SMS.requests(task_runner)) == ("success", 1)
        assert failing.results == [second.result] * 2

    def test_callback_secret_added_later_finds_hashes_made_with_the_api_key(self, task_runner: TaskRunner) -> None:
        run = SMS.run(task_runner, post_execute=FailsAfterSend(1))
        run.run_try()
        task_runner.connect("cpaas_default", callback_secret="new")
        assert (run.run_try().state, SMS.requests(task_runner)) == ("success", 1)

    def test_callback_secrets_may_be_changed_one_after_the_other(self, task_runner: TaskRunner) -> None:
        task_runner.connect("cpaas_default", callback_secret="old")
        run = SMS.run(task_runner, post_execute=FailsAfterSend(1, 2))
        run.run_try()
        task_runner.connect("cpaas_default", callback_secret="new, old", password="sk_test_the_new_one")
        assert run.run_try().state == "up_for_retry"
        task_runner.connect("cpaas_default", callback_secret="new")
        lost = run.run_try()
        assert (lost.state, SMS.requests(task_runner)) == ("failed", 1)
        assert "secrets changed" in lost.error

    def test_request_not_sent_is_sent_with_the_new_api_key(self, task_runner: TaskRunner) -> None:
        task_runner.connect("cpaas_default", password="sk_test_of_nobody")
        run = SMS.run(task_runner)
        assert run.run_try().state == "failed"
        task_runner.connect("cpaas_default")
        assert run.clear().run_try().state == "success"
        assert len(SMS.inbox_items(task_runner)) == 1

    def test_retry_with_another_secret_after_a_resending_clear_sends_nothing(self, task_runner: TaskRunner) -> None:
        task_runner.connect("cpaas_default", callback_secret="old")
        run = SMS.run(task_runner, resend_on_clear=True, post_execute=FailsAfterSend(2))
        run.run_try()
        assert run.clear().run_try().state == "up_for_retry"
        assert SMS.requests(task_runner) == 2
        task_runner.connect("cpaas_default", callback_secret="new")
        assert (run.run_try().state, SMS.requests(task_runner)) == ("failed", 2)


class TestArgumentsNowRejected:
    """What an earlier try did is not passed over because the task would not do it any more."""

    @pytest.mark.parametrize("kind", [SMS, AIRTIME], ids=lambda kind: kind.name)
    def test_unknown_request_is_reported_though_its_recipient_is_no_longer_allowed(
        self, task_runner: TaskRunner, kind: Kind
    ) -> None:
        kind.lose(task_runner, "cut_after", times=1)
        run = kind.run(task_runner)
        first = run.run_try()
        task_runner.connect("cpaas_default", allowed_recipients="+2348030000000")
        again = run.clear().run_try()
        assert (again.state, kind.requests(task_runner)) == ("failed", 1)
        assert again.report["unknown_references"] == first.references
        assert first.references[0] in again.log

    def test_accepted_request_is_reported_though_its_recipient_is_no_longer_allowed(
        self, task_runner: TaskRunner
    ) -> None:
        run = SMS.run(task_runner, post_execute=FailsAfterSend(1))
        run.run_try()
        task_runner.connect("cpaas_default", allowed_recipients="+2348030000000")
        again = run.run_try()
        assert (again.state, again.report["recipients"], SMS.requests(task_runner)) == ("failed", 1, 1)
        assert "report" in again.error

    def test_recipients_that_became_invalid_do_not_hide_an_earlier_request(self, task_runner: TaskRunner) -> None:
        SMS.lose(task_runner, "cut_after", times=1)
        run = SMS.run(task_runner)
        first = run.run_try()
        again = run.clear().change(recipients="nobody").run_try()
        assert (again.state, again.report["unknown_references"]) == ("failed", first.references)

    def test_row_that_was_added_is_returned_whatever_became_of_the_table(self, task_runner: TaskRunner) -> None:
        run = ROW.run(task_runner, post_execute=FailsAfterSend(1))
        run.run_try()
        task_runner.sandbox.control("POST", "faults", {"operation": "get_contact_table", "kind": "error_500"})
        again = run.run_try()
        assert (again.state, again.result["created"], ROW.requests(task_runner)) == ("success", True, 1)

    def test_corrected_and_cleared_task_sends(self, task_runner: TaskRunner) -> None:
        run = SMS.run(task_runner, recipients="nobody")
        assert run.run_try().state == "failed"
        again = run.clear().change(recipients=phone("there")).run_try()
        assert (again.state, again.number, SMS.requests(task_runner)) == ("success", 2, 1)
