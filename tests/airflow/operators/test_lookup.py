"""PhoneLookupOperator as real task instances: a look-up is paid for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from airflow.sdk import task

from cpaas_provider.operators.lookup import PhoneLookupOperator
from tests.airflow.harness.stage import Stage, balance, busy, digits, fault, on_stage, phone
from tests.sandbox import Sandbox
from tests.unit.docs.results import documented_keys

# What was charged and cannot be read, and is not charged again.
PAID = {
    "broken_json": [fault("lookup_phone", "broken_json")],
    "missing_number": [fault("lookup_phone", "missing_field", field="msisdn")],
    "stall_body": [fault("lookup_phone", "stall_body", seconds=5)],
}
PERMANENT = {
    "wrong_key": ([], {"cpaas_conn_id": "cpaas_wrong_key"}, "API key"),
    "no_balance": ([balance(1)], {}, "Top up the account"),
    "bad_number": ([], {"phone": "0803"}, "phone"),
    "no_number": ([], {"phone": "{{ none }}"}, "phone"),
    "unknown_field": ([], {"return_fields": ["operator", "colour"]}, "colour"),
}


@pytest.fixture(scope="module")
def played(airflow_db: object, sandbox_process: Sandbox) -> Iterator[Stage]:
    with on_stage(sandbox_process) as stage:
        seeded = {"phone": digits("by_params"), "operator": "MTN", "country": "NG", "ported": False, "dnd": True}
        sandbox_process.control("POST", "seed", {"lookups": [seeded]})

        def lookup(scene: str, *trouble: tuple, **given: object) -> PhoneLookupOperator:
            return PhoneLookupOperator(task_id=stage.set(scene, *trouble), **{"phone": phone(scene), **given})

        with stage.dag("lookup", params={"to": phone("by_params")}) as dag:
            lookup("rendered", phone="{{ params.to }}", cpaas_conn_id="cpaas_{{ 'default' }}")
            lookup("narrowed", phone="{{ params.to }}", return_fields=["dnd", "operator"])

            @task
            def customer() -> str:
                return phone("customer")

            lookup("from_task", phone=customer())
            PhoneLookupOperator.partial(task_id="mapped", return_fields=["country"]).expand(
                phone=[phone("mapped_0"), "nobody"]
            )
            lookup("busy_at_first", busy("lookup_phone"))
            lookup("error_500_at_first", fault("lookup_phone", "error_500", times=5))
            lookup("less_known", fault("lookup_phone", "missing_field", field="country"))
            for name, trouble in PAID.items():
                lookup(f"paid_{name}", *trouble)
            for name, (trouble, arguments, _) in PERMANENT.items():
                lookup(f"permanent_{name}", *trouble, **arguments)
        yield stage.play(dag)


def test_the_record_is_the_result_number_included(played: Stage) -> None:
    assert played.xcom("rendered") == {
        "msisdn": digits("by_params"),
        "operator": "MTN",
        "country": "NG",
        "ported": False,
        "dnd": True,
    }
    assert set(played.xcom("rendered")) == documented_keys(PhoneLookupOperator)


def test_return_fields_narrow_it_in_the_order_given(played: Stage) -> None:
    assert list(played.xcom("narrowed").items()) == [("dnd", True), ("operator", "MTN")]


def test_what_the_service_does_not_know_is_null(played: Stage) -> None:
    assert played.xcom("less_known")["country"] is None


def test_the_rendered_tab_shows_the_number_masked(played: Stage) -> None:
    assert played.rendered("rendered")["phone"] == f"0803****{phone('by_params')[-3:]}"


def test_the_number_comes_from_an_upstream_task(played: Stage) -> None:
    assert played.xcom("from_task")["msisdn"] == digits("customer")


def test_mapped_instances_look_up_their_own_and_a_bad_one_fails_alone(played: Stage) -> None:
    assert played.xcom("mapped", 0) == {"country": "NG"}
    assert [played.outcome("mapped", index) for index in (0, 1)] == [("success", 1), ("failed", 1)]


@pytest.mark.parametrize("scene", ["busy_at_first", "error_500_at_first"])
def test_a_failure_without_an_answer_is_tried_again(played: Stage, scene: str) -> None:
    assert played.outcome(scene) == ("success", 2)
    assert len(played.arrived("lookups", digits(scene))) == 1


@pytest.mark.parametrize("kind", PAID)
def test_an_answer_that_was_paid_for_is_not_bought_again(played: Stage, kind: str) -> None:
    assert played.outcome(f"paid_{kind}") == ("failed", 1)
    assert len(played.arrived("lookups", digits(f"paid_{kind}"))) == 1
    assert "may have been charged" in played.error(f"paid_{kind}")


@pytest.mark.parametrize("kind", PERMANENT)
def test_what_repeating_cannot_mend_fails_at_once_and_costs_nothing(played: Stage, kind: str) -> None:
    assert played.outcome(f"permanent_{kind}") == ("failed", 1)
    assert PERMANENT[kind][2] in played.error(f"permanent_{kind}")
    assert played.arrived("lookups", digits(f"permanent_{kind}")) == []
