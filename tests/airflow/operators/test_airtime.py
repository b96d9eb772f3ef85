"""BuyAirtimeOperator as real task instances: a purchase is made once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from airflow.sdk import task

from cpaas_provider.operators.airtime import BuyAirtimeOperator
from tests.airflow.harness.fixed_response import fixed_response_server
from tests.airflow.harness.task_runner import TaskRunner, balance, busy, digits, fault, open_task_runner, phone
from tests.sandbox import Sandbox
from tests.unit.docs.results import documented_keys

DEPRECATED = "The service has deprecated airtime purchases and may remove them."
UNKNOWN = {
    "cut_after": [fault("buy_airtime", "cut_after")],
    "error_500_after": [fault("buy_airtime", "error_500_after")],
    "broken_json": [fault("buy_airtime", "broken_json")],
    "missing_id": [fault("buy_airtime", "missing_field", field="id")],
    "stall_body": [fault("buy_airtime", "stall_body", seconds=5)],
}
# How a purchase may be refused: what to set up, the arguments, what the error says.
PERMANENT = {
    "wrong_key": ([], {"cpaas_conn_id": "cpaas_wrong_key"}, "API key"),
    "no_balance": ([balance(99)], {}, "Top up the account"),
    "bad_number": ([], {"recipient": "0803"}, "recipient"),
    "network": ([], {"network": "{{ 'Nobody' }}"}, "network"),
    "small_amount": ([], {"amount": "{{ 49 }}"}, "amount"),
    "no_amount": ([], {"amount": "{{ none }}"}, "amount"),
    "error_under_200": ([fault("buy_airtime", "error_under_200")], {}, "rejected"),
    "removed_404": ([], {"cpaas_conn_id": "cpaas_without_404"}, "no longer offers it"),
    "removed_410": ([], {"cpaas_conn_id": "cpaas_without_410"}, "no longer offers it"),
}


@pytest.fixture(scope="module")
def finished_run(airflow_db: object, sandbox_process: Sandbox) -> Iterator[TaskRunner]:
    with (
        fixed_response_server(404) as gone_by_404,
        fixed_response_server(410) as gone_by_410,
        open_task_runner(
            sandbox_process,
            cpaas_staging={"allowed_recipients": phone("allowed")},
            cpaas_without_404={"host": gone_by_404},
            cpaas_without_410={"host": gone_by_410},
        ) as task_runner,
    ):

        def airtime(case: str, *trouble: tuple, **given: object) -> BuyAirtimeOperator:
            arguments = {"network": "MTN", "amount": 100, "recipient": phone(case)} | given
            return BuyAirtimeOperator(task_id=task_runner.prepare(case, *trouble), **arguments)

        with task_runner.dag("airtime", params={"network": "glo", "amount": 75, "to": phone("by_params")}) as dag:
            airtime(
                "rendered",
                network="{{ params.network }}",
                amount="{{ params.amount }}",
                recipient="{{ params.to }}",
                external_ref="ref-{{ dag.dag_id }}",
                callback="http://127.0.0.1:9/{{ params.network }}",
                cpaas_conn_id="cpaas_{{ 'default' }}",
            )

            @task
            def winner() -> str:
                return phone("winner")

            airtime("from_task", recipient=winner())
            BuyAirtimeOperator.partial(task_id="mapped", network="MTN").expand_kwargs(
                [{"recipient": phone(f"mapped_{amount}"), "amount": amount} for amount in (60, 70)]
            )
            first = airtime("bought", recipient=phone("twice"))
            first >> airtime("duplicate", recipient=phone("twice"))
            airtime("busy_at_first", busy("buy_airtime"))
            airtime("refused_at_first", cpaas_conn_id="cpaas_{{ 'refused' if ti.try_number == 1 else 'default' }}")
            airtime("unavailable", fault("buy_airtime", "unavailable", retry_after=0))
            for name, trouble in UNKNOWN.items():
                airtime(f"unknown_{name}", *trouble)
            for name, (trouble, arguments, _) in PERMANENT.items():
                airtime(f"permanent_{name}", *trouble, **arguments)
            airtime("allowed", cpaas_conn_id="cpaas_staging")
            airtime("outsider", cpaas_conn_id="cpaas_staging")
        yield task_runner.run_dag(dag)


class TestResult:
    def test_templated_fields_reach_the_service_rendered(self, finished_run: TaskRunner) -> None:
        (purchase,) = finished_run.inbox_items("airtime", digits("by_params"))
        assert (purchase["network"], purchase["amount"]) == ("Glo", 75)
        assert (purchase["external_ref"], purchase["callback"]) == ("ref-airtime", "http://127.0.0.1:9/glo")

    def test_result_is_the_purchase_without_the_number(self, finished_run: TaskRunner) -> None:
        (purchase,) = finished_run.inbox_items("airtime", digits("by_params"))
        result = finished_run.xcom("rendered")
        assert set(result) == documented_keys(BuyAirtimeOperator) == {
            "id", "status", "network", "amount", "charge", "balance", "refunded", "created_datetime",
            "references", "delivery_reports", "unknown_recipients", "unknown_references",
        }  # fmt: skip
        assert (result["id"], result["status"], result["charge"]) == (purchase["id"], "pending", 75)
        assert result["refunded"] is False

    def test_rendered_tab_shows_the_number_masked(self, finished_run: TaskRunner) -> None:
        shown = finished_run.rendered("rendered")
        assert shown["recipient"] == f"0803****{phone('by_params')[-3:]}"
        assert shown["callback"] == "http://127.0.0.1/***"
        assert shown["amount"] == "75"

    def test_recipient_comes_from_an_upstream_task(self, finished_run: TaskRunner) -> None:
        assert len(finished_run.inbox_items("airtime", digits("winner"))) == 1

    def test_mapped_instances_buy_their_own(self, finished_run: TaskRunner) -> None:
        for index, amount in enumerate((60, 70)):
            (purchase,) = finished_run.inbox_items("airtime", digits(f"mapped_{amount}"))
            assert finished_run.xcom("mapped", index)["id"] == purchase["id"]
            assert finished_run.rendered("mapped", index)["recipient"].startswith("0803****")


class TestRetries:
    @pytest.mark.parametrize("case", ["busy_at_first", "refused_at_first"])
    def test_purchase_not_made_is_made_by_the_next_try(self, finished_run: TaskRunner, case: str) -> None:
        assert finished_run.outcome(case) == ("success", 2)
        assert len(finished_run.inbox_items("airtime", digits(case))) == 1

    def test_unavailable_service_proves_nothing_about_money(self, finished_run: TaskRunner) -> None:
        assert finished_run.outcome("unavailable") == ("failed", 1)
        assert "unknown" in finished_run.error("unavailable")

    @pytest.mark.parametrize("kind", UNKNOWN)
    def test_unknown_purchase_is_not_repeated(self, finished_run: TaskRunner, kind: str) -> None:
        assert finished_run.outcome(f"unknown_{kind}") == ("failed", 1)
        assert len(finished_run.inbox_items("airtime", digits(f"unknown_{kind}"))) == 1

    @pytest.mark.parametrize("kind", PERMANENT)
    def test_permanent_error_fails_without_a_retry(self, finished_run: TaskRunner, kind: str) -> None:
        assert finished_run.outcome(f"permanent_{kind}") == ("failed", 1)
        assert PERMANENT[kind][2] in finished_run.error(f"permanent_{kind}")
        assert finished_run.inbox_items("airtime", digits(f"permanent_{kind}")) == []

    def test_duplicate_response_fails_and_the_error_says_nothing_was_bought(self, finished_run: TaskRunner) -> None:
        assert finished_run.outcome("bought") == ("success", 1)
        assert finished_run.outcome("duplicate") == ("failed", 1)
        assert "not bought: the service bought the same amount for this recipient" in finished_run.error("duplicate")
        assert [purchase["status"] for purchase in finished_run.inbox_items("airtime", digits("twice"))][1:] == [
            "duplicate"
        ]


class TestDeprecation:
    @pytest.mark.parametrize("case", ["rendered", "busy_at_first"])
    def test_each_try_logs_the_deprecation_once(self, finished_run: TaskRunner, case: str) -> None:
        _, tries = finished_run.outcome(case)
        assert finished_run.log(case).count(DEPRECATED) == tries


class TestAllowedRecipients:
    def test_allowed_recipient_is_topped_up(self, finished_run: TaskRunner) -> None:
        assert finished_run.outcome("allowed") == ("success", 1)

    def test_recipient_not_allowed_is_skipped(self, finished_run: TaskRunner) -> None:
        assert finished_run.outcome("outsider") == ("skipped", 1)
        assert finished_run.inbox_items("airtime", digits("outsider")) == []
