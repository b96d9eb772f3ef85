"""A lost response: the outcome of the request is unknown, and ``on_unknown`` decides."""

from __future__ import annotations

from datetime import timedelta

import pytest
from airflow.sdk import timezone

from cpaas_provider.sending import engine
from cpaas_provider.sending.requests.probes import OtpRecordProbe
from tests.airflow.harness.kinds import AIRTIME, EMAIL, LOST, OTP, ROW, SMS, FailsAfterSend, Kind
from tests.airflow.harness.task_runner import TaskRunner, digits, fault, phone

# All operators send by the same engine, which is tested with every loss by itself: here each is wired to it.
CASES = [(SMS, how) for how in LOST] + [(kind, "cut_after") for kind in (EMAIL, AIRTIME, OTP, ROW)]
BY_CASE = {f"{kind.name}-{how}": (kind, how) for kind, how in CASES}
KIND_AND_LOSS = pytest.mark.parametrize(("kind", "how"), BY_CASE.values(), ids=BY_CASE)
# What was accepted, what was not, and an answer that came but cannot be read.
SOME = {name: case for name, case in BY_CASE.items() if case[1] in ("cut_after", "cut_before", "broken_json")}
KIND_AND_SOME_LOSS = pytest.mark.parametrize(("kind", "how"), SOME.values(), ids=SOME)
SOON = {"unknown_timeout": 0}


@pytest.fixture(autouse=True)
def short_timeout(task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    task_runner.connect("cpaas_default", timeout=0.5)
    monkeypatch.setattr(engine, "_FIRST_PAUSE", 0.0)


def accepted(how: str) -> int:
    return 0 if how == "cut_before" else 1


@KIND_AND_LOSS
def test_unknown_request_fails_the_task_by_default_and_is_named(task_runner: TaskRunner, kind: Kind, how: str) -> None:
    kind.lose(task_runner, how)
    run = kind.run(task_runner, **SOON)
    failed = run.run_try()
    (reference,) = run.journal()
    assert (failed.state, failed.number, failed.references) == ("failed", 1, [reference])
    assert "resolve --sent" in failed.error
    assert failed.report == {
        "recipients": 0,
        "references": [],
        "unknown_recipients": 1,
        "unknown_references": [reference],
    }
    assert (kind.requests(task_runner), len(kind.inbox_items(task_runner))) == (1, accepted(how))
    if kind.has_reference:
        assert [one["external_ref"] for one in kind.inbox_items(task_runner)] == [reference] * accepted(how)


@KIND_AND_SOME_LOSS
def test_skip_succeeds_and_counts_the_recipient_as_unknown(task_runner: TaskRunner, kind: Kind, how: str) -> None:
    kind.lose(task_runner, how)
    run = kind.run(task_runner, on_unknown="skip", post_execute=FailsAfterSend(1), **SOON)
    first, second = run.run_to_end()
    (reference,) = run.journal()
    assert (first.state, second.state, second.report) == ("up_for_retry", "success", None)
    assert (second.result["unknown_recipients"], second.result["unknown_references"]) == (1, [reference])
    assert second.result[kind.identity] is None
    assert second.result.get("recipients", 0) == 0
    assert kind.requests(task_runner) == 1


@KIND_AND_SOME_LOSS
def test_resend_repeats_the_request_until_its_outcome_is_known(task_runner: TaskRunner, kind: Kind, how: str) -> None:
    kind.lose(task_runner, how, times=1)
    run = kind.run(task_runner, on_unknown="resend", **SOON)
    (done,) = run.run_to_end()
    assert (done.state, done.result["unknown_recipients"]) == ("success", 0)
    assert kind.requests(task_runner) == 2
    # The service itself knows of a purchase that was made already, and makes no second one.
    twice = accepted(how) and kind is not AIRTIME
    assert len(kind.inbox_items(task_runner)) == (2 if twice else 1)
    if kind is AIRTIME and accepted(how):
        assert done.result["status"] == "duplicate"
    (entry,) = run.journal().values()
    assert entry["state"] == "accepted"


def test_duplicate_response_to_a_first_request_is_no_purchase(task_runner: TaskRunner) -> None:
    AIRTIME.run(task_runner).run_try()
    failed = AIRTIME.run(task_runner, on_unknown="resend").run_try()
    assert (failed.state, failed.number) == ("failed", 1)
    assert "not buy it again" in failed.error


@pytest.mark.parametrize("kind", [SMS, EMAIL, AIRTIME], ids=lambda kind: kind.name)
def test_author_s_own_reference_goes_on_the_wire_and_ours_into_the_error(task_runner: TaskRunner, kind: Kind) -> None:
    kind.lose(task_runner, "cut_after")
    run = kind.run(task_runner, external_ref="order-4711")
    failed = run.run_try()
    assert [one["external_ref"] for one in kind.inbox_items(task_runner)] == ["order-4711"]
    assert failed.references == list(run.journal())


def test_request_unknown_after_all_resends_is_left_to_the_task_retries(task_runner: TaskRunner) -> None:
    SMS.lose(task_runner, "error_500")
    run = SMS.run(task_runner, on_unknown="resend", retries=1)
    first, second = run.run_to_end()
    assert (first.state, second.state) == ("up_for_retry", "failed")
    assert "sent 4 more times" in first.error
    assert first.references == second.references == list(run.journal())
    assert SMS.requests(task_runner) == 1 + 4 + 4


def test_rejected_resend_proves_nothing_about_the_first_request(task_runner: TaskRunner) -> None:
    SMS.lose(task_runner, "cut_after", times=1)
    task_runner.sandbox.control(*fault("send_sms", "error_under_200", times=1))
    run = SMS.run(task_runner, on_unknown="resend")
    failed = run.run_try()
    (reference,) = run.journal()
    assert (failed.state, failed.report["unknown_references"]) == ("failed", [reference])
    assert run.journal()[reference]["state"] == "unknown"
    # Cleared, it is sent again, because the author wants that of what is unknown.
    assert run.clear().run_try().state == "success"
    assert len(SMS.inbox_items(task_runner)) == 2


def test_resend_that_was_not_sent_proves_nothing_about_the_first_request(task_runner: TaskRunner) -> None:
    SMS.lose(task_runner, "cut_after", times=1)
    task_runner.sandbox.control(*fault("send_sms", "rate_limit", retry_after=0, times=5))
    run = SMS.run(task_runner, on_unknown="resend")
    first = run.run_try()
    assert (first.state, first.report["unknown_recipients"]) == ("up_for_retry", 1)
    run.change(on_unknown="fail")
    assert run.run_try().state == "failed"
    assert len(SMS.inbox_items(task_runner)) == 1


def test_request_of_a_try_killed_before_its_result_was_recorded_is_unknown(task_runner: TaskRunner) -> None:
    run = SMS.run(task_runner, post_execute=FailsAfterSend(1))
    run.run_try()
    (reference,) = run.journal()
    run.leave_in_flight(timezone.utcnow())
    failed = run.run_try()
    assert (failed.state, failed.references) == ("failed", [reference])
    assert "ended before a response was recorded" in failed.error
    assert SMS.requests(task_runner) == 1


def test_recipients_of_an_unknown_batch_are_unknown_and_others_count_as_sent(task_runner: TaskRunner) -> None:
    run = SMS.run(task_runner, recipients=[phone("one")], post_execute=FailsAfterSend(1))
    run.run_try()
    SMS.lose(task_runner, "cut_after", times=1)
    run.change(recipients=[phone("one"), phone("two"), phone("three")])
    failed = run.run_try()
    assert (failed.state, failed.report["recipients"], failed.report["unknown_recipients"]) == ("failed", 1, 2)
    assert "(2 recipients)" in failed.error
    assert [len(task_runner.inbox_items("sms", digits(one))) for one in ("one", "two", "three")] == [1, 1, 1]


class TestPasscodes:
    @pytest.fixture(autouse=True)
    def probe_wait(self, short_timeout: None, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(OtpRecordProbe, "max_wait", timedelta(seconds=30))

    def test_single_new_otp_record_resolves_the_request(self, task_runner: TaskRunner) -> None:
        OTP.lose(task_runner, "cut_after")
        task_runner.sandbox.control("DELETE", "faults")
        OTP.run(task_runner).run_try()
        # An older passcode of the same person is no proof of a new one.
        task_runner.sandbox.control(*fault("request_otp", "missing_field", field=OTP.field))
        done = OTP.run(task_runner).run_try()
        older, newer = OTP.inbox_items(task_runner)
        assert (done.state, done.result["id"], done.result["unknown_recipients"]) == ("success", newer["id"], 0)
        assert older["id"] != newer["id"]

    def test_request_without_a_new_record_is_deferred_and_then_fails(self, task_runner: TaskRunner) -> None:
        task_runner.sandbox.control(*fault("request_otp", "cut_before", times=1))
        run = OTP.run(task_runner, unknown_timeout=20)
        waiting = run.run_try()
        assert (waiting.state, waiting.number) == ("deferred", 1)
        assert waiting.trigger[0] == "cpaas_provider.triggers.wait.WaitTrigger"
        failed = run.backdate_requests(seconds=20).fire_trigger(early=True).run_try()
        assert (failed.state, OTP.requests(task_runner), OTP.inbox_items(task_runner)) == ("failed", 1, [])

    def test_resend_requests_the_passcode_again_after_unknown_timeout(self, task_runner: TaskRunner) -> None:
        task_runner.sandbox.control(*fault("request_otp", "cut_before", times=1))
        run = OTP.run(task_runner, unknown_timeout=20, on_unknown="resend")
        waiting = run.run_try()
        done = run.backdate_requests(seconds=20).fire_trigger(early=True).run_try()
        assert (waiting.state, done.state, done.number) == ("deferred", "success", 1)
        assert [one["id"] for one in OTP.inbox_items(task_runner)] == [done.result["id"]]

    def test_resends_of_a_try_are_counted_over_its_deferrals(self, task_runner: TaskRunner) -> None:
        task_runner.sandbox.control(*fault("request_otp", "cut_before"))
        run = OTP.run(task_runner, unknown_timeout=20, on_unknown="resend")
        ended = run.run_try()
        for _ in range(6):
            if ended.state == "deferred":
                ended = run.backdate_requests(seconds=20).fire_trigger(early=True).run_try()
        assert (ended.state, OTP.requests(task_runner)) == ("up_for_retry", 5)
        assert "It was sent 4 more times in this try" in ended.error

    def test_request_is_not_sent_if_earlier_records_cannot_be_read(self, task_runner: TaskRunner) -> None:
        task_runner.sandbox.control(*fault("find_otps", "error_500", times=5))
        run = OTP.run(task_runner)
        first = run.run_try()
        assert (first.state, OTP.requests(task_runner), run.journal()) == ("up_for_retry", 0, {})
        assert (run.run_try().state, len(OTP.inbox_items(task_runner))) == ("success", 1)

    def test_two_new_records_prove_nothing(self, task_runner: TaskRunner) -> None:
        run = OTP.run(task_runner, **SOON)
        task_runner.sandbox.control(*fault("request_otp", "cut_before", times=1))
        run.run_try()
        for _ in range(2):
            OTP.run(task_runner).run_try()
        failed = run.clear().run_try()
        assert (failed.state, len(OTP.inbox_items(task_runner))) == ("failed", 2)
