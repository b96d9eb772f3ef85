"""An answer that was lost: nobody knows what became of the request, and the author has said what is to be done."""

from __future__ import annotations

from datetime import timedelta

import pytest
from airflow.sdk import timezone

from cpaas_provider.sending import engine, resolver
from cpaas_provider.sending.probes import OtpRecordProbe
from tests.airflow.harness.kinds import AIRTIME, EMAIL, LOST, OTP, ROW, SMS, FailsAfterwards, Kind
from tests.airflow.harness.stage import Stage, digits, fault, phone

# All operators send by the same engine, which is tested with every loss by itself: here each is wired to it.
CASES = [(SMS, how) for how in LOST] + [(kind, "cut_after") for kind in (EMAIL, AIRTIME, OTP, ROW)]
BY_CASE = {f"{kind.name}-{how}": (kind, how) for kind, how in CASES}
KIND_AND_LOSS = pytest.mark.parametrize(("kind", "how"), BY_CASE.values(), ids=BY_CASE)
# What was accepted, what was not, and an answer that came but cannot be read.
SOME = {name: case for name, case in BY_CASE.items() if case[1] in ("cut_after", "cut_before", "broken_json")}
KIND_AND_SOME_LOSS = pytest.mark.parametrize(("kind", "how"), SOME.values(), ids=SOME)
SOON = {"unknown_timeout": 0}


@pytest.fixture(autouse=True)
def impatient(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.connect("cpaas_default", timeout=0.5)
    monkeypatch.setattr(engine, "_FIRST_PAUSE", 0.0)


def accepted(how: str) -> int:
    return 0 if how == "cut_before" else 1


@KIND_AND_LOSS
def test_by_default_it_fails_for_good_and_names_the_request(stage: Stage, kind: Kind, how: str) -> None:
    kind.lose(stage, how)
    run = kind.run(stage, **SOON)
    failed = run.once()
    (reference,) = run.journal()
    assert (failed.state, failed.number, failed.references) == ("failed", 1, [reference])
    assert "resolve --sent" in failed.error
    assert failed.report == {
        "recipients": 0,
        "references": [],
        "unknown_recipients": 1,
        "unknown_references": [reference],
    }
    assert (kind.requests(stage), len(kind.arrived(stage))) == (1, accepted(how))
    if kind.has_reference:
        assert [one["external_ref"] for one in kind.arrived(stage)] == [reference] * accepted(how)


@KIND_AND_SOME_LOSS
def test_with_skip_it_succeeds_and_counts_it_apart(stage: Stage, kind: Kind, how: str) -> None:
    kind.lose(stage, how)
    run = kind.run(stage, on_unknown="skip", post_execute=FailsAfterwards(1), **SOON)
    first, second = run.to_the_end()
    (reference,) = run.journal()
    assert (first.state, second.state, second.report) == ("up_for_retry", "success", None)
    assert (second.result["unknown_recipients"], second.result["unknown_references"]) == (1, [reference])
    assert second.result[kind.identity] is None
    assert second.result.get("recipients", 0) == 0
    assert kind.requests(stage) == 1


@KIND_AND_SOME_LOSS
def test_with_resend_it_is_done_again_until_it_is_known(stage: Stage, kind: Kind, how: str) -> None:
    kind.lose(stage, how, times=1)
    run = kind.run(stage, on_unknown="resend", **SOON)
    (done,) = run.to_the_end()
    assert (done.state, done.result["unknown_recipients"]) == ("success", 0)
    assert kind.requests(stage) == 2
    # The service itself knows of a purchase that was made already, and makes no second one.
    twice = accepted(how) and kind is not AIRTIME
    assert len(kind.arrived(stage)) == (2 if twice else 1)
    if kind is AIRTIME and accepted(how):
        assert done.result["status"] == "duplicate"
    (entry,) = run.journal().values()
    assert entry["state"] == "accepted"


def test_a_duplicate_nobody_asked_for_is_no_purchase(stage: Stage) -> None:
    AIRTIME.run(stage).once()
    failed = AIRTIME.run(stage, on_unknown="resend").once()
    assert (failed.state, failed.number) == ("failed", 1)
    assert "not buy it again" in failed.error


@pytest.mark.parametrize("kind", [SMS, EMAIL, AIRTIME], ids=lambda kind: kind.name)
def test_an_author_s_own_reference_goes_on_the_wire_and_ours_into_the_error(stage: Stage, kind: Kind) -> None:
    kind.lose(stage, "cut_after")
    run = kind.run(stage, external_ref="order-4711")
    failed = run.once()
    assert [one["external_ref"] for one in kind.arrived(stage)] == ["order-4711"]
    assert failed.references == list(run.journal())


def test_unknown_still_after_all_repetitions_it_is_the_tasks_to_retry(stage: Stage) -> None:
    SMS.lose(stage, "error_500")
    run = SMS.run(stage, on_unknown="resend", retries=1)
    first, second = run.to_the_end()
    assert (first.state, second.state) == ("up_for_retry", "failed")
    assert f"sent {resolver.MAX_RESENDS} more times" in first.error
    assert first.references == second.references == list(run.journal())
    assert SMS.requests(stage) == 1 + 2 * resolver.MAX_RESENDS


def test_a_repetition_that_is_refused_says_nothing_about_the_first_request(stage: Stage) -> None:
    SMS.lose(stage, "cut_after", times=1)
    stage.sandbox.control(*fault("send_sms", "error_under_200", times=1))
    run = SMS.run(stage, on_unknown="resend")
    failed = run.once()
    (reference,) = run.journal()
    assert (failed.state, failed.report["unknown_references"]) == ("failed", [reference])
    assert run.journal()[reference]["state"] == "unknown"
    # Cleared, it is sent again, because the author wants that of what is unknown.
    assert run.clear().once().state == "success"
    assert len(SMS.arrived(stage)) == 2


def test_a_repetition_that_surely_did_not_leave_says_nothing_either(stage: Stage) -> None:
    SMS.lose(stage, "cut_after", times=1)
    stage.sandbox.control(*fault("send_sms", "rate_limit", retry_after=0, times=5))
    run = SMS.run(stage, on_unknown="resend")
    first = run.once()
    assert (first.state, first.report["unknown_recipients"]) == ("up_for_retry", 1)
    run.change(on_unknown="fail")
    assert run.once().state == "failed"
    assert len(SMS.arrived(stage)) == 1


def test_a_request_whose_try_was_killed_before_its_answer_was_noted_is_unknown(stage: Stage) -> None:
    run = SMS.run(stage, post_execute=FailsAfterwards(1))
    run.once()
    (reference,) = run.journal()
    run.broken_off(timezone.utcnow())
    failed = run.once()
    assert (failed.state, failed.references) == ("failed", [reference])
    assert "ended before a response was recorded" in failed.error
    assert SMS.requests(stage) == 1


def test_of_a_pack_every_recipient_is_unknown_and_the_rest_is_counted_as_sent(stage: Stage) -> None:
    run = SMS.run(stage, recipients=[phone("one")], post_execute=FailsAfterwards(1))
    run.once()
    SMS.lose(stage, "cut_after", times=1)
    run.change(recipients=[phone("one"), phone("two"), phone("three")])
    failed = run.once()
    assert (failed.state, failed.report["recipients"], failed.report["unknown_recipients"]) == ("failed", 1, 2)
    assert "(2 recipients)" in failed.error
    assert [len(stage.arrived("sms", digits(one))) for one in ("one", "two", "three")] == [1, 1, 1]


class TestPasscodes:
    @pytest.fixture(autouse=True)
    def patient(self, impatient: None, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(OtpRecordProbe, "max_wait", timedelta(seconds=30))

    def test_the_one_new_record_settles_it(self, stage: Stage) -> None:
        OTP.lose(stage, "cut_after")
        stage.sandbox.control("DELETE", "faults")
        OTP.run(stage).once()
        # An older passcode of the same person is no proof of a new one.
        stage.sandbox.control(*fault("request_otp", "missing_field", field=OTP.field))
        done = OTP.run(stage).once()
        older, newer = OTP.arrived(stage)
        assert (done.state, done.result["id"], done.result["unknown_recipients"]) == ("success", newer["id"], 0)
        assert older["id"] != newer["id"]

    def test_without_a_new_record_it_waits_for_one_and_then_does_what_the_author_wants(self, stage: Stage) -> None:
        stage.sandbox.control(*fault("request_otp", "cut_before", times=1))
        run = OTP.run(stage, unknown_timeout=20)
        waiting = run.once()
        assert (waiting.state, waiting.number) == ("deferred", 1)
        assert waiting.trigger[0] == "cpaas_provider.triggers.wait.WaitTrigger"
        failed = run.requested_earlier(seconds=20).fires(early=True).once()
        assert (failed.state, OTP.requests(stage), OTP.arrived(stage)) == ("failed", 1, [])

    def test_with_resend_it_is_asked_for_again_once_that_time_is_over(self, stage: Stage) -> None:
        stage.sandbox.control(*fault("request_otp", "cut_before", times=1))
        run = OTP.run(stage, unknown_timeout=20, on_unknown="resend")
        waiting = run.once()
        done = run.requested_earlier(seconds=20).fires(early=True).once()
        assert (waiting.state, done.state, done.number) == ("deferred", "success", 1)
        assert [one["id"] for one in OTP.arrived(stage)] == [done.result["id"]]

    def test_records_that_cannot_be_read_beforehand_keep_the_request_from_leaving(self, stage: Stage) -> None:
        stage.sandbox.control(*fault("find_otps", "error_500", times=5))
        run = OTP.run(stage)
        first = run.once()
        assert (first.state, OTP.requests(stage), run.journal()) == ("up_for_retry", 0, {})
        assert (run.once().state, len(OTP.arrived(stage))) == ("success", 1)

    def test_two_new_records_prove_nothing(self, stage: Stage) -> None:
        run = OTP.run(stage, **SOON)
        stage.sandbox.control(*fault("request_otp", "cut_before", times=1))
        run.once()
        for _ in range(2):
            OTP.run(stage).once()
        failed = run.clear().once()
        assert (failed.state, len(OTP.arrived(stage))) == ("failed", 2)
