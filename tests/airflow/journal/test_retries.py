"""A try that fails after it had sent: the next one returns what was done, and does what was not."""

from __future__ import annotations

import pytest

from tests.airflow.harness.kinds import AIRTIME, EMAIL, KINDS, OTP, RECIPIENT, SMS, UPSERT, FailsAfterwards, Kind
from tests.airflow.harness.stage import Stage, digits, phone

ALL = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


@ALL
def test_a_try_that_failed_after_its_send_is_followed_by_one_with_the_same_result_and_no_request(
    stage: Stage, kind: Kind
) -> None:
    failing = FailsAfterwards(1)
    first, second = kind.run(stage, post_execute=failing).to_the_end()
    assert (first.state, first.result, second.state, second.number) == ("up_for_retry", None, "success", 2)
    assert failing.results == [second.result, second.result]
    assert kind.requests(stage) == 1
    (arrived,) = kind.arrived(stage)
    assert arrived.get("message_id", arrived.get("id")) == second.result[kind.identity]
    assert (second.result["unknown_recipients"], second.result["unknown_references"]) == (0, [])


def test_so_it_is_with_every_further_try(stage: Stage) -> None:
    failing = FailsAfterwards(1, 2, 3)
    tries = SMS.run(stage, post_execute=failing).to_the_end()
    assert [one.state for one in tries] == ["up_for_retry"] * 3 + ["success"]
    assert failing.results == [tries[-1].result] * 4
    assert SMS.requests(stage) == 1
    assert "An earlier try made this request. Nothing is sent again." in tries[-1].log


def test_the_journal_is_never_collected_by_airflow(stage: Stage) -> None:
    run = SMS.run(stage)
    run.once()
    assert [row.expires_at for row in run.stored()] == [None, None]


def test_a_first_try_without_a_connection_claims_nothing_and_the_next_is_a_fresh_start(stage: Stage) -> None:
    run = SMS.run(stage, cpaas_conn_id="cpaas_{{ 'nowhere' if ti.try_number == 1 else 'default' }}")
    first = run.once()
    assert (first.state, run.journal()) == ("up_for_retry", {})
    second = run.once()
    assert (second.state, second.result["unknown_recipients"], len(SMS.arrived(stage))) == ("success", 0, 1)


# Of passcodes it is the records that cannot be read, before there is a claim.
@pytest.mark.parametrize("kind", [SMS, OTP], ids=lambda kind: kind.name)
def test_a_refused_connection_sends_nothing_and_the_next_try_sends(stage: Stage, kind: Kind) -> None:
    run = kind.run(stage, cpaas_conn_id="cpaas_{{ 'refused' if ti.try_number == 1 else 'default' }}")
    first, second = run.to_the_end()
    assert (first.state, second.state, len(kind.arrived(stage))) == ("up_for_retry", "success", 1)


def test_a_first_try_that_lost_its_state_before_a_claim_is_a_fresh_start(stage: Stage) -> None:
    run = SMS.run(stage, cpaas_conn_id="cpaas_{{ 'nowhere' if ti.try_number == 1 else 'default' }}")
    run.once()
    # A kill leaves no note, and a plain retry keeps the state: where there is none, nothing was claimed.
    assert run.drop_state().once().state == "success"
    assert len(SMS.arrived(stage)) == 1


def test_a_pack_is_settled_as_a_whole(stage: Stage) -> None:
    run = SMS.run(stage, recipients=[phone("one"), phone("two")], post_execute=FailsAfterwards(1))
    _, second = run.to_the_end()
    assert second.result["recipients"] == 2
    assert [len(stage.arrived("sms", digits(one))) for one in ("one", "two")] == [1, 1]
    (entry,) = run.journal().values()
    assert (entry["state"], len(entry["recipient_hashes"]), entry["try_number"]) == ("accepted", 2, 1)


def test_a_purchase_keeps_the_amount_it_was_made_with(stage: Stage) -> None:
    run = AIRTIME.run(stage, amount="{{ 100 * ti.try_number }}", post_execute=FailsAfterwards(1))
    _, second = run.to_the_end()
    assert (second.state, AIRTIME.requests(stage)) == ("success", 1)
    assert (second.result["charge"], second.result["amount"]) == (100, "100")


def test_a_row_that_an_earlier_try_added_is_brought_to_what_the_cells_are_now(stage: Stage) -> None:
    run = UPSERT.run(
        stage, columns={"Name": RECIPIENT, "Points": "{{ ti.try_number }}"}, post_execute=FailsAfterwards(1)
    )
    first, second = run.to_the_end()
    assert (first.state, second.state, UPSERT.requests(stage)) == ("up_for_retry", "success", 1)
    (row,) = UPSERT.arrived(stage)
    assert (row["id"], row["columns"]["col_7f3a08"]) == (second.result["row_id"], 2)


def test_state_is_read_once_and_written_twice(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.execution_time.context import TaskStateStoreAccessor as Accessor

    asked: list[str] = []
    for name in ("get", "set"):
        plain = getattr(Accessor, name)

        def noted(*args: object, _plain=plain, _name=name, **kwargs: object) -> object:
            asked.append(_name)
            return _plain(*args, **kwargs)

        monkeypatch.setattr(Accessor, name, noted)
    SMS.run(stage).once()
    assert asked == ["get", "set", "set"]


def test_address_in_other_capitals_is_not_sent_to_again(stage: Stage) -> None:
    run = EMAIL.run(stage, recipients=["Ada@example.com"], post_execute=FailsAfterwards(1))
    assert run.once().state == "up_for_retry"
    again = run.change(recipients=["ada@example.com"]).once()
    assert (again.state, EMAIL.requests(stage)) == ("success", 1)
