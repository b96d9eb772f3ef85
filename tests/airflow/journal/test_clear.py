"""Clearing a task: Airflow 3.3 retains its state, 3.4 drops it. Neither sends a second message unasked."""

from __future__ import annotations

import pytest

from tests.airflow.harness.kinds import AIRTIME, KINDS, OTP, SMS, SOME, FailsAfterSend, Kind
from tests.airflow.harness.task_runner import TaskRunner, balance, digits, fault, phone, setting

ENOUGH = pytest.mark.parametrize("kind", SOME.values(), ids=SOME)
# A message with either, each other kind with one of both.
AGAIN = {f"{name}-kept": (kind, False) for name, kind in KINDS.items()} | {"sms-dropped": (SMS, True)}


@ENOUGH
def test_clear_after_success_returns_the_same_result_and_sends_nothing(task_runner: TaskRunner, kind: Kind) -> None:
    run = kind.run(task_runner)
    first, again = run.run_try(), run.clear().run_try()
    assert (again.state, again.result) == ("success", first.result)
    assert (kind.requests(task_runner), len(kind.inbox_items(task_runner))) == (1, 1)


@ENOUGH
def test_clear_that_drops_the_state_fails_with_the_cause_and_sends_nothing(task_runner: TaskRunner, kind: Kind) -> None:
    run = kind.run(task_runner)
    run.run_try()
    (reference,) = run.journal()
    again = run.clear(drop_state=True).run_try()
    assert (again.state, again.number, kind.requests(task_runner)) == ("failed", 2, 1)
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
        assert [one["external_ref"] for one in kind.inbox_items(task_runner)] == [reference]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_new_run_is_a_new_send(task_runner: TaskRunner, kind: Kind) -> None:
    for _ in range(2):
        kind.run(task_runner).run_try()
    assert kind.requests(task_runner) == 2


def test_clear_that_drops_the_state_fails_until_on_unknown_is_changed(task_runner: TaskRunner) -> None:
    run = SMS.run(task_runner)
    run.run_try()
    run.clear(drop_state=True).run_try()
    assert run.clear().run_try().state == "failed"
    run.change(on_unknown="skip").clear()
    skipped = run.run_try()
    assert (skipped.state, skipped.result["unknown_recipients"], skipped.result["recipients"]) == ("success", 1, 0)
    assert SMS.requests(task_runner) == 1


@pytest.mark.parametrize(("kind", "drop_state"), AGAIN.values(), ids=AGAIN)
def test_resend_on_clear_resends_once_per_clear_and_not_in_its_retry(
    task_runner: TaskRunner, kind: Kind, drop_state: bool
) -> None:
    task_runner.sandbox.control(*setting(airtime_guard_seconds=0))
    run = kind.run(task_runner, resend_on_clear=True, post_execute=FailsAfterSend(2))
    first = run.run_try()
    assert (first.state, kind.requests(task_runner)) == ("success", 1)
    run.clear(drop_state=drop_state)
    second, third = run.run_to_end()
    assert (second.state, third.state) == ("up_for_retry", "success")
    assert (kind.requests(task_runner), len(kind.inbox_items(task_runner))) == (2, 2)
    assert third.result[kind.identity] != first.result[kind.identity]


def test_each_resend_on_clear_has_a_new_reference(task_runner: TaskRunner) -> None:
    run = SMS.run(task_runner, resend_on_clear=True)
    run.run_try()
    for _ in range(2):
        run.clear().run_try()
    assert len({one["external_ref"] for one in SMS.inbox_items(task_runner)}) == 3


def test_plain_retry_is_no_clear(task_runner: TaskRunner) -> None:
    run = SMS.run(task_runner, resend_on_clear=True, post_execute=FailsAfterSend(1, 2))
    assert [one.state for one in run.run_to_end()] == ["up_for_retry", "up_for_retry", "success"]
    assert SMS.requests(task_runner) == 1


@pytest.mark.parametrize(("retries", "drop_state"), [(0, False), (5, True)], ids=["none-kept", "five-dropped"])
def test_clear_is_distinguished_from_a_retry_whatever_retries_is(
    task_runner: TaskRunner, retries: int, drop_state: bool
) -> None:
    run = SMS.run(task_runner, retries=retries, resend_on_clear=True)
    run.run_try()
    for sent in (2, 3):
        assert run.clear(drop_state=drop_state).run_try().state == "success"
        assert SMS.requests(task_runner) == sent


def test_clear_between_two_tries_sends_nothing_again(task_runner: TaskRunner) -> None:
    run = SMS.run(task_runner, post_execute=FailsAfterSend(1, 2))
    assert run.run_try().state == "up_for_retry"
    run.clear()
    assert [one.state for one in run.run_to_end()] == ["up_for_retry", "success"]
    assert SMS.requests(task_runner) == 1


def test_rejected_request_is_sent_once_after_the_cause_is_corrected_and_cleared(task_runner: TaskRunner) -> None:
    run = SMS.run(task_runner)
    task_runner.sandbox.control(*fault("send_sms", "error_under_200", times=1))
    first = run.run_try()
    assert (first.state, first.number, SMS.inbox_items(task_runner)) == ("failed", 1, [])
    again = run.clear().run_try()
    assert (again.state, len(SMS.inbox_items(task_runner))) == ("success", 1)
    assert run.clear().run_try().result == again.result
    assert len(SMS.inbox_items(task_runner)) == 1


def test_partly_accepted_request_fails_and_a_clear_sends_to_remaining_recipients(task_runner: TaskRunner) -> None:
    bad, good = digits("bad"), digits("good")
    task_runner.sandbox.control("POST", "seed", {"refused_recipients": [bad]})
    task_runner.sandbox.control(*setting(refused_recipients="leave_out"))
    run = SMS.run(task_runner, recipients=[phone("bad"), phone("good")])
    first = run.run_try()
    assert (first.state, first.number, first.report["recipients"]) == ("failed", 1, 1)
    assert "The service accepted 1 of 2 recipients" in first.error
    assert "It sends to the rejected recipients only" in first.error
    assert bad[3:] not in first.error + first.log
    assert {entry["state"]: len(entry["recipient_hashes"]) for entry in run.journal().values()} == {
        "accepted": 1,
        "rejected": 1,
    }
    again = run.clear().run_try()
    assert (again.state, SMS.requests(task_runner)) == ("failed", 2)
    done = run.change(recipients=[phone("good")]).clear().run_try()
    assert (done.state, done.result["recipients"], SMS.requests(task_runner)) == ("success", 1, 2)
    assert len(task_runner.inbox_items("sms", good)) == 1


def test_request_rejected_for_an_empty_balance_is_repeated_after_each_clear(task_runner: TaskRunner) -> None:
    task_runner.sandbox.control(*balance(1))
    run = SMS.run(task_runner)
    for asked in (1, 2):
        assert (run.run_try().state, SMS.requests(task_runner)) == ("failed", asked)
        run.clear()
    task_runner.sandbox.control(*balance(1000))
    assert (run.run_try().state, len(SMS.inbox_items(task_runner))) == ("success", 1)


def test_request_not_sent_is_sent_after_a_clear(task_runner: TaskRunner) -> None:
    run = SMS.run(task_runner, retries=0, cpaas_conn_id="cpaas_{{ 'refused' if ti.try_number == 1 else 'default' }}")
    assert run.run_try().state == "failed"
    assert run.clear().run_try().state == "success"
    assert len(SMS.inbox_items(task_runner)) == 1


def test_try_without_a_request_is_followed_by_a_clear_that_sends(
    task_runner: TaskRunner,
) -> None:
    run = SMS.run(task_runner, cpaas_conn_id="cpaas_{{ 'nowhere' if ti.try_number == 1 else 'default' }}")
    assert run.run_try().state == "up_for_retry"
    assert run.clear().run_try().state == "success"
    assert len(SMS.inbox_items(task_runner)) == 1


def test_unknown_request_stays_unknown_after_a_clear(task_runner: TaskRunner) -> None:
    SMS.lose(task_runner, "cut_after", times=1)
    run = SMS.run(task_runner)
    first = run.run_try()
    again = run.clear().run_try()
    assert (first.state, again.state, again.references) == ("failed", "failed", first.references)
    assert SMS.requests(task_runner) == 1


def test_resend_on_clear_resends_unknown_requests(task_runner: TaskRunner) -> None:
    SMS.lose(task_runner, "cut_after", times=1)
    run = SMS.run(task_runner, resend_on_clear=True)
    assert run.run_try().state == "failed"
    assert run.clear().run_try().state == "success"
    assert SMS.requests(task_runner) == 2


def test_duplicate_response_resolves_a_purchase_repeated_after_lost_state(task_runner: TaskRunner) -> None:
    run = AIRTIME.run(task_runner, on_unknown="resend")
    run.run_try()
    again = run.clear(drop_state=True).run_try()
    assert (again.state, again.result["status"], len(AIRTIME.inbox_items(task_runner))) == ("success", "duplicate", 1)


def test_passcode_of_lost_state_is_not_taken_for_one_of_the_records(task_runner: TaskRunner) -> None:
    run = OTP.run(task_runner)
    run.run_try()
    assert run.clear(drop_state=True).run_try().state == "failed"
    assert len(OTP.inbox_items(task_runner)) == 1


def test_clear_of_one_mapped_instance_resends_only_that_one(task_runner: TaskRunner) -> None:
    run = SMS.mapped(task_runner, [{"recipients": phone(one)} for one in ("m0", "m1")], resend_on_clear=True)
    before = [run.run_try(map_index=index) for index in (0, 1)]
    run.clear(map_index=1).run_try(map_index=1)
    assert [one.state for one in before] == ["success", "success"]
    assert [len(task_runner.inbox_items("sms", digits(one))) for one in ("m0", "m1")] == [1, 2]
    references = [*run.journal(map_index=0), *run.journal(map_index=1)]
    assert len(set(references)) == 2
