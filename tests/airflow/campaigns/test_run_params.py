"""Limits and switches of a campaign that the params of one run change, without a change of the DAG."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import Param, task

from cpaas_provider.operators.email import EmailCampaignOperator
from cpaas_provider.operators.lookup import BulkPhoneLookupOperator
from cpaas_provider.operators.sms import SmsCampaignOperator
from tests.airflow.harness.campaigns import (
    PRICE,
    all_requests,
    count_messages,
    counts,
    digits,
    limit_batches,
    rows,
    sms,
)
from tests.airflow.harness.running import run
from tests.airflow.harness.task_runner import TaskRunner
from tests.airflow.harness.tries import Run, Try, new_dag

PARAMS: dict[str, Any] = {
    "allow_backfill": False,
    "dry_run": False,
    "lookup_ttl": 3600,
    "max_charge": 1000.5,
    "max_failure_ratio": 0.0,
    "max_identical_rejections": 20,
    "max_lateness": 86_400,
    "max_recipients": 100,
    "min_balance": 0,
    "preview_count": 0,
    "price_per_page": PRICE,
    "skip_dnd": False,
    "test_only": False,
    "timezone": "Africa/Lagos",
    "use_suppression_list": True,
}
LIMITS = ("max_charge", "max_identical_rejections", "max_lateness", "max_recipients", "min_balance")
TEMPLATES: dict[str, Any] = {
    **{name: f"{{{{ params.{name} }}}}" for name in PARAMS},
    "send_window": "{{ params.send_window }}",
    "frequency_cap": ("{{ params.most_messages }}", timedelta(days=7)),
}
OTHERS = {"send_window": ["00:00", "23:59:59"], "most_messages": 3}


def run_of(task_runner: TaskRunner, source: Any, *, native: bool = False, **params: Any) -> Try:
    """Run one campaign whose limits and switches are those params of its run."""
    given = {name: Param(value) for name, value in {**PARAMS, **OTHERS, **params}.items()}
    with new_dag(params=given, render_template_as_native_obj=native) as dag:
        SmsCampaignOperator(
            task_id="campaign", source=source, content="Hello", test_recipients=["+2348031200001"], **TEMPLATES
        )
    return Run(task_runner, dag).run_try()


@pytest.mark.usefixtures("own_database")
@pytest.mark.parametrize("native", [False, True])
def test_params_of_one_run_set_limits_and_switches(task_runner: TaskRunner, native: bool) -> None:
    limit_batches(task_runner)
    dry = run_of(task_runner, rows(4), native=native, dry_run=True, preview_count=2)
    assert (dry.state, dry.result["dry_run"], all_requests(task_runner)) == ("success", True, 0), dry.error
    tested = run_of(task_runner, rows(4), native=native, test_only="true")
    assert (tested.state, tested.result["sent"]) == ("success", 1), tested.error
    many = run_of(task_runner, rows(4, 10), native=native, max_recipients=3)
    assert "has 5 recipients, more than max_recipients (3)" in many.error
    kept = " is a template, and a clear of this run uses the same params. Use on_limit='ask'"
    assert f"max_recipients{kept}" in many.error
    dear = run_of(task_runner, rows(4, 10), native=native, max_charge=2 * PRICE)
    assert counts(dear.report) == {"sent": 2, "not_sent": 3}
    assert f"max_charge{kept}" in dear.error
    assert "clear the task" not in f"{many.error}{dear.error}"
    done = run_of(task_runner, rows(4, 20), native=native)
    assert (done.state, counts(done.result)) == ("success", {"sent": 5}), done.error
    capped = run_of(task_runner, rows(4, 20), native=native, most_messages=1)
    assert (capped.state, capped.report["sent"], capped.report["frequency_capped"]) == ("skipped", 0, 5)
    poor = run_of(task_runner, rows(4, 10), native=native, min_balance=10**9, most_messages=9)
    assert f"Top up the account and clear the task to send the rest. min_balance{kept}" in poor.error


@pytest.mark.usefixtures("own_database")
@pytest.mark.parametrize("native", [False, True])
def test_unlimited_lifts_each_limit_and_always_lifts_the_send_window(task_runner: TaskRunner, native: bool) -> None:
    lifted = {**dict.fromkeys(LIMITS, "unlimited"), "send_window": "always"}
    done = run_of(task_runner, rows(120, 100), native=native, **lifted)
    assert (done.state, done.result["sent"]) == ("success", 121), done.error
    for words in ("max_recipients unlimited", "max_charge unlimited", "min_balance unlimited", "send_window always"):
        assert words in done.log


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("empty", [None, " "])
@pytest.mark.parametrize("name", ["max_recipients", "max_charge", "dry_run", "send_window"])
def test_param_without_a_value_is_refused_and_lifts_no_limit(
    task_runner: TaskRunner, name: str, empty: Any, native: bool
) -> None:
    before = all_requests(task_runner)
    failed = run_of(task_runner, rows(1), native=native, **{name: empty})
    assert failed.state == "failed"
    assert name in failed.error
    assert "Nothing was sent" in failed.error
    assert all_requests(task_runner) == before


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize(
    ("params", "words"),
    [
        (
            {"max_recipients": "500.5"},
            "max_recipients must be a whole number of at least 1, or 'unlimited'; it is 500.5",
        ),
        ({"max_recipients": 0}, "max_recipients must be a whole number of at least 1, or 'unlimited'; it is 0"),
        ({"max_charge": -1}, "max_charge must be an amount of at least 0, or 'unlimited'; it is -1"),
        ({"max_charge": True}, "max_charge must be an amount of at least 0, or 'unlimited'; it is True"),
        ({"max_failure_ratio": 5}, "max_failure_ratio must be a number from 0 to 1; it is 5"),
        ({"send_window": ["09:00", "9 pm"]}, 'send_window must be two times of day such as ("09:00", "20:00").'),
        ({"send_window": "night"}, 'send_window must be two times of day such as ("09:00", "20:00"), or \'always\'.'),
        ({"timezone": "Lagos"}, "timezone must be a time zone such as Africa/Lagos."),
        ({"most_messages": 0}, "frequency_cap[0] must be a whole number of at least 1"),
        ({"max_lateness": "2 days"}, "max_lateness must be a timedelta or a number of seconds, or 'unlimited'"),
        # Of two, the error is about the first one of the signature.
        ({"max_charge": -1, "preview_count": -1}, "preview_count must be a whole number of at least 0; it is -1"),
        ({"max_failure_ratio": 5, "most_messages": 0}, "frequency_cap[0] must be a whole number"),
    ],
)
def test_param_that_cannot_be_used_is_refused_before_the_first_request(
    task_runner: TaskRunner, params: dict[str, Any], words: str, native: bool
) -> None:
    before = all_requests(task_runner)
    failed = run_of(task_runner, rows(1), native=native, **params)
    assert (failed.state, failed.number) == ("failed", 1)
    assert words in failed.error
    assert all_requests(task_runner) == before


def test_error_does_not_show_the_value_of_a_wrong_template(task_runner: TaskRunner) -> None:
    failed = run_of(task_runner, rows(1), max_recipients="sk_live_4242")
    assert "it is a text of 12 characters. Nothing was sent." in failed.error
    assert "4242" not in failed.error


def test_test_only_of_a_param_needs_test_recipients(task_runner: TaskRunner) -> None:
    with new_dag(params={"test_only": True}) as dag:
        SmsCampaignOperator(task_id="campaign", source=rows(1), content="Hello", test_only="{{ params.test_only }}")
    assert "test_only needs test_recipients. Nothing was sent." in Run(task_runner, dag).run_try().error


def test_text_that_is_no_template_is_refused_in_the_dag_file(task_runner: TaskRunner) -> None:
    for name, value in {
        "max_recipients": "10",
        "dry_run": "no",
        "send_window": "9-20",
        "max_failure_ratio": "0.5",
    }.items():
        with pytest.raises(ValueError, match=name):
            sms(task_runner, rows(1), **{name: value})
    with pytest.raises(ValueError, match="two times of day"):
        sms(task_runner, rows(1), send_window=("09:00", "9 pm"), timezone="Africa/Lagos")


def test_limits_of_mapped_campaigns_are_rendered_for_each(task_runner: TaskRunner) -> None:
    with new_dag(params={"max_recipients": 2, "dry_run": False}) as dag:

        @task
        def campaigns() -> list[dict[str, Any]]:
            return [{"source": rows(2)}, {"source": rows(3, 10), "max_failure_ratio": 0.5}]

        SmsCampaignOperator.partial(
            task_id="campaign",
            content="Hello",
            max_recipients="{{ params.max_recipients }}",
            dry_run="{{ params.dry_run }}",
        ).expand_kwargs(campaigns())
        EmailCampaignOperator.partial(
            task_id="emails", source=["ada@example.org"], content="Hello", sender_id="shop@example.org"
        ).expand(max_recipients=[1, "{{ params.max_recipients }}"], dry_run=[True])
    finished = run(dag)
    assert [finished.state("campaign", index) for index in (0, 1)] == ["success", "failed"]
    assert [finished.state("emails", index) for index in (0, 1)] == ["success", "success"]
    assert count_messages(task_runner) == Counter(digits(2))


@pytest.mark.usefixtures("own_database")
@pytest.mark.parametrize("native", [False, True])
def test_params_of_one_run_set_the_limits_of_a_bulk_lookup(
    task_runner: TaskRunner, tmp_path: Path, native: bool
) -> None:
    def look_up(**params: Any) -> Try:
        given = {"max_lookups": 5, "max_failure_ratio": 0.0, "lookup_ttl": 86_400, **params}
        with new_dag(params={k: Param(v) for k, v in given.items()}, render_template_as_native_obj=native) as dag:
            BulkPhoneLookupOperator(
                task_id="look_up",
                source=[{"phone": "+2348031234567"}, {"phone": "+2348031234568"}, {"phone": "none at all"}],
                results_path=str(tmp_path / "results.jsonl"),
                **{name: f"{{{{ params.{name} }}}}" for name in given},
            )
        return Run(task_runner, dag).run_try()

    assert "max_lookups" in look_up(max_lookups=0).error
    assert "max_lookups must be a whole number" in look_up(max_lookups="many").error
    assert "max_lookups" in look_up(max_lookups=None).error
    assert "max_failure_ratio (0) allows" in look_up(max_lookups="unlimited").error
    done = look_up(max_failure_ratio=0.5)
    assert (done.state, done.result["rows"], done.result["invalid_rows"]) == ("success", 3, 1), done.error
