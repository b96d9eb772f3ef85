"""What changes between two tries: the text, the recipients, the API key."""

from __future__ import annotations

import pytest

from tests.airflow.harness.kinds import AIRTIME, EMAIL, KINDS, RECIPIENT, ROW, SMS, FailsAfterwards, Kind
from tests.airflow.harness.stage import Stage, digits, phone

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


def got(stage: Stage, *people: str) -> list[int]:
    return [len(stage.arrived("sms", digits(one))) for one in people]


class TestAnotherText:
    @BY_KIND
    def test_settled_it_is_not_sent_again_and_a_warning_says_so(self, stage: Stage, kind: Kind) -> None:
        run = kind.run(stage, post_execute=FailsAfterwards(1), **BY_TRY[kind.name])
        _, second = run.to_the_end()
        assert (second.state, kind.requests(stage)) == ("success", 1)
        assert WARNING in second.log
        assert "No other recipient is left" in second.log

    @pytest.mark.parametrize("on_unknown", ["fail", "skip", "resend"])
    def test_unknown_it_fails_for_good_whatever_the_author_wants_of_the_unknown(
        self, stage: Stage, on_unknown: str
    ) -> None:
        SMS.lose(stage, "cut_after", times=1)
        run = SMS.run(stage, **BY_TRY["sms"])
        first = run.once()
        run.change(on_unknown=on_unknown)
        again = run.clear().once()
        assert (again.state, again.number, SMS.requests(stage)) == ("failed", 2, 1)
        assert "The content changed since these requests were made" in again.error
        assert again.references == first.references

    def test_between_two_tries_of_a_deliberate_repetition_too(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("cpaas_provider.sending.engine._FIRST_PAUSE", 0.0)
        SMS.lose(stage, "error_500_after")
        run = SMS.run(stage, on_unknown="resend", **BY_TRY["sms"])
        first, second = run.to_the_end()
        assert (first.state, second.state) == ("up_for_retry", "failed")
        assert "The content changed" in second.error
        assert {one["text"] for one in SMS.arrived(stage)} == {"Try 1"}

    def test_changed_back_it_is_decided_as_ever(self, stage: Stage) -> None:
        SMS.lose(stage, "cut_after", times=1)
        run = SMS.run(stage)
        run.once()
        run.change(content="Another", on_unknown="resend").clear()
        assert "The content changed" in run.once().error
        run.change(content="Your parcel is here").clear()
        assert run.once().state == "success"
        assert len(SMS.arrived(stage)) == 2

    def test_who_was_not_reached_gets_the_new_text(self, stage: Stage) -> None:
        run = SMS.run(stage, recipients=[phone("one")], post_execute=FailsAfterwards(1), **BY_TRY["sms"])
        run.once()
        second = run.change(recipients=[phone("one"), phone("two")]).once()
        assert (second.state, got(stage, "one", "two")) == ("success", [1, 1])
        assert "The other 1 get the new content" in second.log
        assert [one["text"] for one in stage.arrived("sms", digits("two"))] == ["Try 2"]

    def test_a_rejected_text_may_be_mended(self, stage: Stage) -> None:
        run = SMS.run(stage, content=None, template_id="tpl_none")
        assert run.once().state == "failed"
        assert run.change(content="Hello", template_id=None).clear().once().state == "success"

    def test_a_value_of_one_person_counts_as_text(self, stage: Stage) -> None:
        entries = [{"to": phone(one), "substitutions": {"name": f"{one} {{{{ ti.try_number }}}}"}} for one in ("one",)]
        run = SMS.run(
            stage,
            recipients=[phone("one")],
            content="Dear {name}",
            personalisation=entries,
            post_execute=FailsAfterwards(1),
        )
        _, second = run.to_the_end()
        assert (second.state, got(stage, "one")) == ("success", [1])
        assert WARNING in second.log

    def test_a_reference_or_callback_of_ones_own_is_no_text(self, stage: Stage) -> None:
        SMS.lose(stage, "cut_after", times=1)
        run = SMS.run(stage, on_unknown="fail")
        run.once()
        run.change(external_ref="order-2", callback="http://127.0.0.1:9/", on_unknown="skip")
        assert run.clear().once().state == "success"


class TestOtherRecipients:
    def test_only_who_was_not_reached_is_sent_to(self, stage: Stage) -> None:
        run = SMS.run(stage, recipients=[phone("one"), phone("two")], post_execute=FailsAfterwards(1))
        run.once()
        second = run.change(recipients=[phone("three"), phone("two"), phone("one")]).once()
        assert (second.state, got(stage, "one", "two", "three")) == ("success", [1, 1, 1])
        assert second.result["recipients"] == 3
        assert len(second.result["references"]) == 2

    def test_another_order_or_way_to_write_a_number_is_the_same_person(self, stage: Stage) -> None:
        run = SMS.run(stage, recipients=[phone("one"), phone("two")], post_execute=FailsAfterwards(1))
        run.once()
        second = run.change(recipients=f"+{digits('two')}, {phone('one')}, {phone('two')}").once()
        assert (second.state, got(stage, "one", "two"), second.result["recipients"]) == ("success", [1, 1], 2)

    def test_who_was_taken_off_the_list_was_sent_to_all_the_same(self, stage: Stage) -> None:
        run = SMS.run(stage, recipients=[phone("one"), phone("two")], post_execute=FailsAfterwards(1))
        run.once()
        second = run.change(recipients=[phone("one")]).once()
        assert (second.state, second.result["recipients"], SMS.requests(stage)) == ("success", 2, 1)

    def test_new_ones_are_sent_to_even_where_others_are_unknown_and_those_are_named(self, stage: Stage) -> None:
        SMS.lose(stage, "cut_after", times=1)
        run = SMS.run(stage, recipients=[phone("one"), phone("two")])
        first = run.once()
        again = run.change(recipients=[phone("two"), phone("three")]).clear().once()
        assert (again.state, got(stage, "one", "two", "three")) == ("failed", [1, 1, 1])
        assert again.references == first.references
        assert (again.report["recipients"], again.report["unknown_recipients"]) == (1, 2)

    def test_with_resend_who_is_unknown_and_still_on_the_list_is_sent_to_again(self, stage: Stage) -> None:
        SMS.lose(stage, "cut_before", times=1)
        run = SMS.run(stage, recipients=[phone("one"), phone("two")])
        run.once()
        again = run.change(recipients=[phone("two")], on_unknown="resend").clear().once()
        assert (again.state, got(stage, "one", "two")) == ("success", [0, 1])
        # The one who was taken off the list is still unknown, and said to be so.
        assert (again.result["recipients"], again.result["unknown_recipients"]) == (1, 1)

    @pytest.mark.parametrize("kind", [AIRTIME, EMAIL], ids=lambda kind: kind.name)
    def test_somebody_else_altogether_is_another_deed(self, stage: Stage, kind: Kind) -> None:
        field = {"airtime": "recipient", "email": "recipients"}[kind.name]
        other = {"airtime": phone("other"), "email": "other@people.example.com"}[kind.name]
        run = kind.run(stage, post_execute=FailsAfterwards(1))
        run.once()
        assert run.change(**{field: other}).once().state == "success"
        assert (kind.requests(stage), len(kind.arrived(stage))) == (2, 1)


class TestAnotherKey:
    def test_without_another_secret_nobody_can_tell_who_was_sent_to_and_nothing_is_sent(self, stage: Stage) -> None:
        run = SMS.run(stage, post_execute=FailsAfterwards(1))
        run.once()
        stage.connect("cpaas_default", password="sk_test_the_new_one")
        failed = run.once()
        assert (failed.state, failed.number, SMS.requests(stage)) == ("failed", 2, 1)
        assert "secrets changed" in failed.error

    def test_a_callback_secret_outlives_the_key(self, stage: Stage) -> None:
        stage.connect("cpaas_default", callback_secret="a secret that stays")
        failing = FailsAfterwards(1)
        run = SMS.run(stage, post_execute=failing)
        run.once()
        stage.connect("cpaas_default", callback_secret="a secret that stays", password="sk_test_the_new_one")
        second = run.once()
        assert (second.state, SMS.requests(stage)) == ("success", 1)
        assert failing.results == [second.result] * 2

    def test_a_callback_secret_that_came_later_does_not_hide_what_the_key_had_written(self, stage: Stage) -> None:
        run = SMS.run(stage, post_execute=FailsAfterwards(1))
        run.once()
        stage.connect("cpaas_default", callback_secret="new")
        assert (run.once().state, SMS.requests(stage)) == ("success", 1)

    def test_callback_secrets_may_be_changed_one_after_the_other(self, stage: Stage) -> None:
        stage.connect("cpaas_default", callback_secret="old")
        run = SMS.run(stage, post_execute=FailsAfterwards(1, 2))
        run.once()
        stage.connect("cpaas_default", callback_secret="new, old", password="sk_test_the_new_one")
        assert run.once().state == "up_for_retry"
        stage.connect("cpaas_default", callback_secret="new")
        lost = run.once()
        assert (lost.state, SMS.requests(stage)) == ("failed", 1)
        assert "secrets changed" in lost.error

    def test_what_was_surely_not_sent_is_sent_with_the_new_key(self, stage: Stage) -> None:
        stage.connect("cpaas_default", password="sk_test_of_nobody")
        run = SMS.run(stage)
        assert run.once().state == "failed"
        stage.connect("cpaas_default")
        assert run.clear().once().state == "success"
        assert len(SMS.arrived(stage)) == 1

    def test_after_a_clear_that_sent_again_a_retry_with_another_secret_does_not_send_a_third_time(
        self, stage: Stage
    ) -> None:
        stage.connect("cpaas_default", callback_secret="old")
        run = SMS.run(stage, resend_on_clear=True, post_execute=FailsAfterwards(2))
        run.once()
        assert run.clear().once().state == "up_for_retry"
        assert SMS.requests(stage) == 2
        stage.connect("cpaas_default", callback_secret="new")
        assert (run.once().state, SMS.requests(stage)) == ("failed", 2)


class TestWhatIsRefusedNow:
    """What an earlier try did is not passed over because the task would not do it any more."""

    @pytest.mark.parametrize("kind", [SMS, AIRTIME], ids=lambda kind: kind.name)
    def test_nobody_skips_over_a_request_in_doubt_because_the_connection_was_narrowed(
        self, stage: Stage, kind: Kind
    ) -> None:
        kind.lose(stage, "cut_after", times=1)
        run = kind.run(stage)
        first = run.once()
        stage.connect("cpaas_default", allowed_recipients="+2348030000000")
        again = run.clear().once()
        assert (again.state, kind.requests(stage)) == ("failed", 1)
        assert again.report["unknown_references"] == first.references
        assert first.references[0] in again.log

    def test_nor_over_one_that_was_sent(self, stage: Stage) -> None:
        run = SMS.run(stage, post_execute=FailsAfterwards(1))
        run.once()
        stage.connect("cpaas_default", allowed_recipients="+2348030000000")
        again = run.once()
        assert (again.state, again.report["recipients"], SMS.requests(stage)) == ("failed", 1, 1)
        assert "report" in again.error

    def test_recipients_that_became_invalid_do_not_hide_it_either(self, stage: Stage) -> None:
        SMS.lose(stage, "cut_after", times=1)
        run = SMS.run(stage)
        first = run.once()
        again = run.clear().change(recipients="nobody").once()
        assert (again.state, again.report["unknown_references"]) == ("failed", first.references)

    def test_a_row_that_was_added_is_returned_whatever_became_of_the_table(self, stage: Stage) -> None:
        run = ROW.run(stage, post_execute=FailsAfterwards(1))
        run.once()
        stage.sandbox.control("POST", "faults", {"operation": "get_contact_table", "kind": "error_500"})
        again = run.once()
        assert (again.state, again.result["created"], ROW.requests(stage)) == ("success", True, 1)

    def test_mended_and_cleared_a_task_that_was_refused_at_first_sends(self, stage: Stage) -> None:
        run = SMS.run(stage, recipients="nobody")
        assert run.once().state == "failed"
        again = run.clear().change(recipients=phone("there")).once()
        assert (again.state, again.number, SMS.requests(stage)) == ("success", 2, 1)
