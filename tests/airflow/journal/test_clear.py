"""Clearing a task: Airflow 3.3 keeps its state, 3.4 drops it. Neither sends anybody a second message unasked."""

from __future__ import annotations

import pytest

from tests.airflow.harness.kinds import AIRTIME, KINDS, OTP, SMS, SOME, FailsAfterwards, Kind
from tests.airflow.harness.stage import Stage, balance, digits, fault, phone, setting

ENOUGH = pytest.mark.parametrize("kind", SOME.values(), ids=SOME)
# A message with either, each other kind with one of both.
AGAIN = {f"{name}-kept": (kind, False) for name, kind in KINDS.items()} | {"sms-dropped": (SMS, True)}


@ENOUGH
def test_cleared_after_success_it_returns_the_same_and_sends_nothing(stage: Stage, kind: Kind) -> None:
    run = kind.run(stage)
    first, again = run.once(), run.clear().once()
    assert (again.state, again.result) == ("success", first.result)
    assert (kind.requests(stage), len(kind.arrived(stage))) == (1, 1)


@ENOUGH
def test_cleared_with_its_state_gone_it_fails_for_good_says_why_and_sends_nothing(stage: Stage, kind: Kind) -> None:
    run = kind.run(stage)
    run.once()
    (reference,) = run.journal()
    again = run.clear(drop_state=True).once()
    assert (again.state, again.number, kind.requests(stage)) == ("failed", 2, 1)
    assert "Airflow dropped the task state in a clear" in again.error
    # The reference of the first request cannot be computed again.
    (after_loss,) = again.references
    assert after_loss != reference
    assert again.report == {
        "recipients": 0,
        "references": [],
        "unknown_recipients": 1,
        "unknown_references": [after_loss],
    }
    if kind.has_reference:
        assert [one["external_ref"] for one in kind.arrived(stage)] == [reference]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_new_run_is_a_new_send(stage: Stage, kind: Kind) -> None:
    for _ in range(2):
        kind.run(stage).once()
    assert kind.requests(stage) == 2


def test_it_stays_so_until_somebody_decides(stage: Stage) -> None:
    run = SMS.run(stage)
    run.once()
    run.clear(drop_state=True).once()
    assert run.clear().once().state == "failed"
    run.change(on_unknown="skip").clear()
    skipped = run.once()
    assert (skipped.state, skipped.result["unknown_recipients"], skipped.result["recipients"]) == ("success", 1, 0)
    assert SMS.requests(stage) == 1


@pytest.mark.parametrize(("kind", "drop_state"), AGAIN.values(), ids=AGAIN)
def test_with_resend_on_clear_it_is_done_again_once_and_a_retry_does_not_do_it_a_third_time(
    stage: Stage, kind: Kind, drop_state: bool
) -> None:
    stage.sandbox.control(*setting(airtime_guard_seconds=0))
    run = kind.run(stage, resend_on_clear=True, post_execute=FailsAfterwards(2))
    first = run.once()
    assert (first.state, kind.requests(stage)) == ("success", 1)
    run.clear(drop_state=drop_state)
    second, third = run.to_the_end()
    assert (second.state, third.state) == ("up_for_retry", "success")
    assert (kind.requests(stage), len(kind.arrived(stage))) == (2, 2)
    assert third.result[kind.identity] != first.result[kind.identity]


def test_each_time_it_goes_out_under_another_reference(stage: Stage) -> None:
    run = SMS.run(stage, resend_on_clear=True)
    run.once()
    for _ in range(2):
        run.clear().once()
    assert len({one["external_ref"] for one in SMS.arrived(stage)}) == 3


def test_a_plain_retry_is_no_clear(stage: Stage) -> None:
    run = SMS.run(stage, resend_on_clear=True, post_execute=FailsAfterwards(1, 2))
    assert [one.state for one in run.to_the_end()] == ["up_for_retry", "up_for_retry", "success"]
    assert SMS.requests(stage) == 1


@pytest.mark.parametrize(("retries", "drop_state"), [(0, False), (5, True)], ids=["none-kept", "five-dropped"])
def test_a_clear_is_told_from_a_retry_however_many_retries_there_are(
    stage: Stage, retries: int, drop_state: bool
) -> None:
    run = SMS.run(stage, retries=retries, resend_on_clear=True)
    run.once()
    for sent in (2, 3):
        assert run.clear(drop_state=drop_state).once().state == "success"
        assert SMS.requests(stage) == sent


def test_a_clear_between_two_tries_sends_nothing_again(stage: Stage) -> None:
    run = SMS.run(stage, post_execute=FailsAfterwards(1, 2))
    assert run.once().state == "up_for_retry"
    run.clear()
    assert [one.state for one in run.to_the_end()] == ["up_for_retry", "success"]
    assert SMS.requests(stage) == 1


def test_rejected_it_is_done_once_when_the_cause_is_mended_and_the_task_cleared(stage: Stage) -> None:
    run = SMS.run(stage)
    stage.sandbox.control(*fault("send_sms", "error_under_200", times=1))
    first = run.once()
    assert (first.state, first.number, SMS.arrived(stage)) == ("failed", 1, [])
    again = run.clear().once()
    assert (again.state, len(SMS.arrived(stage))) == ("success", 1)
    assert run.clear().once().result == again.result
    assert len(SMS.arrived(stage)) == 1


def test_accepted_for_some_it_fails_and_a_clear_sends_only_to_the_others(stage: Stage) -> None:
    bad, good = digits("bad"), digits("good")
    stage.sandbox.control("POST", "seed", {"refused_recipients": [bad]})
    stage.sandbox.control(*setting(refused_recipients="leave_out"))
    run = SMS.run(stage, recipients=[phone("bad"), phone("good")])
    first = run.once()
    assert (first.state, first.number, first.report["recipients"]) == ("failed", 1, 1)
    assert "The service accepted 1 of 2 recipients" in first.error
    assert "It sends to the rejected recipients only" in first.error
    assert bad[3:] not in first.error + first.log
    assert {entry["state"]: len(entry["recipient_hashes"]) for entry in run.journal().values()} == {
        "accepted": 1,
        "rejected": 1,
    }
    again = run.clear().once()
    assert (again.state, SMS.requests(stage)) == ("failed", 2)
    done = run.change(recipients=[phone("good")]).clear().once()
    assert (done.state, done.result["recipients"], SMS.requests(stage)) == ("success", 1, 2)
    assert len(stage.arrived("sms", good)) == 1


def test_rejected_for_want_of_money_it_asks_again_after_each_clear(stage: Stage) -> None:
    stage.sandbox.control(*balance(1))
    run = SMS.run(stage)
    for asked in (1, 2):
        assert (run.once().state, SMS.requests(stage)) == ("failed", asked)
        run.clear()
    stage.sandbox.control(*balance(1000))
    assert (run.once().state, len(SMS.arrived(stage))) == ("success", 1)


def test_what_surely_was_not_sent_is_sent_after_a_clear(stage: Stage) -> None:
    run = SMS.run(stage, retries=0, cpaas_conn_id="cpaas_{{ 'refused' if ti.try_number == 1 else 'default' }}")
    assert run.once().state == "failed"
    assert run.clear().once().state == "success"
    assert len(SMS.arrived(stage)) == 1


def test_a_try_that_claimed_nothing_leaves_word_so_that_a_clear_of_another_task_does_not_frighten(
    stage: Stage,
) -> None:
    run = SMS.run(stage, cpaas_conn_id="cpaas_{{ 'nowhere' if ti.try_number == 1 else 'default' }}")
    assert run.once().state == "up_for_retry"
    assert run.clear().once().state == "success"
    assert len(SMS.arrived(stage)) == 1


def test_what_is_unknown_stays_unknown_over_a_clear(stage: Stage) -> None:
    SMS.lose(stage, "cut_after", times=1)
    run = SMS.run(stage)
    first = run.once()
    again = run.clear().once()
    assert (first.state, again.state, again.references) == ("failed", "failed", first.references)
    assert SMS.requests(stage) == 1


def test_with_resend_on_clear_what_was_unknown_is_sent_again_as_all_else(stage: Stage) -> None:
    SMS.lose(stage, "cut_after", times=1)
    run = SMS.run(stage, resend_on_clear=True)
    assert run.once().state == "failed"
    assert run.clear().once().state == "success"
    assert SMS.requests(stage) == 2


def test_a_purchase_of_lost_state_that_is_made_again_is_settled_by_the_word_duplicate(stage: Stage) -> None:
    run = AIRTIME.run(stage, on_unknown="resend")
    run.once()
    again = run.clear(drop_state=True).once()
    assert (again.state, again.result["status"], len(AIRTIME.arrived(stage))) == ("success", "duplicate", 1)


def test_a_passcode_of_lost_state_is_not_taken_for_one_of_the_records(stage: Stage) -> None:
    run = OTP.run(stage)
    run.once()
    assert run.clear(drop_state=True).once().state == "failed"
    assert len(OTP.arrived(stage)) == 1


def test_only_the_cleared_one_of_mapped_instances_is_looked_at_again(stage: Stage) -> None:
    run = SMS.mapped(stage, [{"recipients": phone(one)} for one in ("m0", "m1")], resend_on_clear=True)
    before = [run.once(map_index=index) for index in (0, 1)]
    run.clear(map_index=1).once(map_index=1)
    assert [one.state for one in before] == ["success", "success"]
    assert [len(stage.arrived("sms", digits(one))) for one in ("m0", "m1")] == [1, 2]
    references = [*run.journal(map_index=0), *run.journal(map_index=1)]
    assert len(set(references)) == 2
