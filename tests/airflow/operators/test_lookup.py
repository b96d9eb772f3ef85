"""PhoneLookupOperator as real task instances: a lookup is paid for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from airflow.sdk import task

from cpaas_provider.operators.lookup import PhoneLookupOperator
from tests.airflow.harness.task_runner import TaskRunner, balance, busy, digits, fault, open_task_runner, phone
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
def finished_run(airflow_db: object, sandbox_process: Sandbox) -> Iterator[TaskRunner]:
    with open_task_runner(sandbox_process) as task_runner:
        seeded = {"phone": digits("by_params"), "operator": "MTN", "country": "NG", "ported": False, "dnd": True}
        sandbox_process.control("POST", "seed", {"lookups": [seeded]})

        def lookup(case: str, *trouble: tuple, **given: object) -> PhoneLookupOperator:
            return PhoneLookupOperator(task_id=task_runner.prepare(case, *trouble), **{"phone": phone(case), **given})

        with task_runner.dag("lookup", params={"to": phone("by_params")}) as dag:
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
        yield task_runner.run_dag(dag)


def test_record_is_the_result_number_included(finished_run: TaskRunner) -> None:
    assert finished_run.xcom("rendered") == {
        "msisdn": digits("by_params"),
        "operator": "MTN",
        "country": "NG",
        "ported": False,
        "dnd": True,
    }
    assert set(finished_run.xcom("rendered")) == documented_keys(PhoneLookupOperator)


def test_return_fields_narrow_it_in_the_order_given(finished_run: TaskRunner) -> None:
    assert list(finished_run.xcom("narrowed").items()) == [("dnd", True), ("operator", "MTN")]


def test_field_unknown_to_the_service_is_null(finished_run: TaskRunner) -> None:
    assert finished_run.xcom("less_known")["country"] is None


def test_rendered_tab_shows_the_number_masked(finished_run: TaskRunner) -> None:
    assert finished_run.rendered("rendered")["phone"] == f"0803****{phone('by_params')[-3:]}"


def test_number_comes_from_an_upstream_task(finished_run: TaskRunner) -> None:
    assert finished_run.xcom("from_task")["msisdn"] == digits("customer")


def test_mapped_instances_look_up_their_own_and_an_invalid_one_fails_alone(finished_run: TaskRunner) -> None:
    assert finished_run.xcom("mapped", 0) == {"country": "NG"}
    assert [finished_run.outcome("mapped", index) for index in (0, 1)] == [("success", 1), ("failed", 1)]


@pytest.mark.parametrize("case", ["busy_at_first", "error_500_at_first"])
def test_failure_without_a_response_is_retried(finished_run: TaskRunner, case: str) -> None:
    assert finished_run.outcome(case) == ("success", 2)
    assert len(finished_run.inbox_items("lookups", digits(case))) == 1


@pytest.mark.parametrize("kind", PAID)
def test_paid_lookup_is_not_repeated(finished_run: TaskRunner, kind: str) -> None:
    assert finished_run.outcome(f"paid_{kind}") == ("failed", 1)
    assert len(finished_run.inbox_items("lookups", digits(f"paid_{kind}"))) == 1
    assert "may have been charged" in finished_run.error(f"paid_{kind}")


@pytest.mark.parametrize("kind", PERMANENT)
def test_permanent_error_fails_without_a_retry_and_costs_nothing(finished_run: TaskRunner, kind: str) -> None:
    assert finished_run.outcome(f"permanent_{kind}") == ("failed", 1)
    assert PERMANENT[kind][2] in finished_run.error(f"permanent_{kind}")
    assert finished_run.inbox_items("lookups", digits(f"permanent_{kind}")) == []
