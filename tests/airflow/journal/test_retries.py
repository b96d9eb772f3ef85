"""A try that fails after its send: the next try returns the recorded results and sends what was not sent."""

from __future__ import annotations

import pytest

from tests.airflow.harness.kinds import AIRTIME, EMAIL, KINDS, OTP, RECIPIENT, SMS, UPSERT, FailsAfterSend, Kind
from tests.airflow.harness.task_runner import TaskRunner, digits, phone

ALL = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


@ALL
def test_retry_after_a_send_returns_the_same_result_without_a_request(task_runner: TaskRunner, kind: Kind) -> None:
    failing = FailsAfterSend(1)
    first, second = kind.run(task_runner, post_execute=failing).run_to_end()
    assert (first.state, first.result, second.state, second.number) == ("up_for_retry", None, "success", 2)
    assert failing.results == [second.result, second.result]
    assert kind.requests(task_runner) == 1
    (arrived,) = kind.inbox_items(task_runner)
    assert arrived.get("message_id", arrived.get("id")) == second.result[kind.identity]
    assert (second.result["unknown_recipients"], second.result["unknown_references"]) == (0, [])


def test_every_further_retry_returns_the_same_result_without_a_request(task_runner: TaskRunner) -> None:
    failing = FailsAfterSend(1, 2, 3)
    tries = SMS.run(task_runner, post_execute=failing).run_to_end()
    assert [one.state for one in tries] == ["up_for_retry"] * 3 + ["success"]
    assert failing.results == [tries[-1].result] * 4
    assert SMS.requests(task_runner) == 1
    assert "An earlier try made this request. Nothing is sent again." in tries[-1].log


def test_journal_is_never_collected_by_airflow(task_runner: TaskRunner) -> None:
    run = SMS.run(task_runner)
    run.run_try()
    assert [row.expires_at for row in run.state_rows()] == [None, None]


def test_try_without_a_connection_records_nothing_and_its_retry_sends(task_runner: TaskRunner) -> None:
    run = SMS.run(task_runner, cpaas_conn_id="cpaas_{{ 'nowhere' if ti.try_number == 1 else 'default' }}")
    first = run.run_try()
    assert (first.state, run.journal()) == ("up_for_retry", {})
    second = run.run_try()
    assert (second.state, second.result["unknown_recipients"], len(SMS.inbox_items(task_runner))) == ("success", 0, 1)


# Of passcodes it is the records that cannot be read, before there is a claim.
@pytest.mark.parametrize("kind", [SMS, OTP], ids=lambda kind: kind.name)
def test_refused_connection_sends_nothing_and_the_next_try_sends(task_runner: TaskRunner, kind: Kind) -> None:
    run = kind.run(task_runner, cpaas_conn_id="cpaas_{{ 'refused' if ti.try_number == 1 else 'default' }}")
    first, second = run.run_to_end()
    assert (first.state, second.state, len(kind.inbox_items(task_runner))) == ("up_for_retry", "success", 1)


def test_retry_after_a_lost_state_without_a_request_sends(task_runner: TaskRunner) -> None:
    run = SMS.run(task_runner, cpaas_conn_id="cpaas_{{ 'nowhere' if ti.try_number == 1 else 'default' }}")
    run.run_try()
    # A kill leaves no note, and a plain retry keeps the state: where there is none, nothing was claimed.
    assert run.drop_state().run_try().state == "success"
    assert len(SMS.inbox_items(task_runner)) == 1


def test_result_of_a_batch_covers_all_its_recipients(task_runner: TaskRunner) -> None:
    run = SMS.run(task_runner, recipients=[phone("one"), phone("two")], post_execute=FailsAfterSend(1))
    _, second = run.run_to_end()
    assert second.result["recipients"] == 2
    assert [len(task_runner.inbox_items("sms", digits(one))) for one in ("one", "two")] == [1, 1]
    (entry,) = run.journal().values()
    assert (entry["state"], len(entry["recipient_hashes"]), entry["try_number"]) == ("accepted", 2, 1)


def test_purchase_keeps_its_first_amount(task_runner: TaskRunner) -> None:
    run = AIRTIME.run(task_runner, amount="{{ 100 * ti.try_number }}", post_execute=FailsAfterSend(1))
    _, second = run.run_to_end()
    assert (second.state, AIRTIME.requests(task_runner)) == ("success", 1)
    assert (second.result["charge"], second.result["amount"]) == (100, "100")


def test_row_that_an_earlier_try_added_is_brought_to_what_the_cells_are_now(task_runner: TaskRunner) -> None:
    run = UPSERT.run(
        task_runner, columns={"Name": RECIPIENT, "Points": "{{ ti.try_number }}"}, post_execute=FailsAfterSend(1)
    )
    first, second = run.run_to_end()
    assert (first.state, second.state, UPSERT.requests(task_runner)) == ("up_for_retry", "success", 1)
    (row,) = UPSERT.inbox_items(task_runner)
    assert (row["id"], row["columns"]["col_7f3a08"]) == (second.result["row_id"], 2)


def test_state_is_read_once_and_written_twice(task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.execution_time.context import TaskStateStoreAccessor as Accessor

    asked: list[str] = []
    for name in ("get", "set"):
        plain = getattr(Accessor, name)

        def noted(*args: object, _plain=plain, _name=name, **kwargs: object) -> object:
            asked.append(_name)
            return _plain(*args, **kwargs)

        monkeypatch.setattr(Accessor, name, noted)
    SMS.run(task_runner).run_try()
    assert asked == ["get", "set", "set"]


def test_address_in_other_capitals_is_not_sent_to_again(task_runner: TaskRunner) -> None:
    run = EMAIL.run(task_runner, recipients=["Ada@example.com"], post_execute=FailsAfterSend(1))
    assert run.run_try().state == "up_for_retry"
    again = run.change(recipients=["ada@example.com"]).run_try()
    assert (again.state, EMAIL.requests(task_runner)) == ("success", 1)
