"""Error messages name their cause: the cell, the placeholder, the row, the connection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cpaas_provider.hooks.cpaas import CpaasHook
from cpaas_provider.operators import SendEmailOperator, SendSmsOperator
from tests.airflow.harness.campaigns import TEXT, limit_batches, read_results, reject_recipients, requests, rows, sms
from tests.airflow.harness.task_runner import TaskRunner
from tests.airflow.harness.tries import run_operator
from tests.sandbox import Sandbox, connection_json


def reasons(task_runner: TaskRunner, tmp_path: Path, source: Any, **given: Any) -> dict[int, str]:
    """Return why each row of a campaign is not as it should be."""
    path = tmp_path / "o.jsonl"
    sms(task_runner, source, results_path=str(path), max_failure_ratio=1, **given).run_try()
    return {line["row"]: line["reason"] for line in read_results(path) if line["reason"]}


@pytest.mark.parametrize("cell", [None, "", "  "])
def test_empty_cell_is_named_as_empty(task_runner: TaskRunner, tmp_path: Path, cell: Any) -> None:
    assert reasons(task_runner, tmp_path, [*rows(1), {"phone": cell, "name": "Ada"}]) == {2: "phone is empty"}


def test_value_that_rendered_to_none_is_named(task_runner: TaskRunner) -> None:
    failed = run_operator(
        SendSmsOperator, task_runner, recipients=["08031234567", "{{ ti.xcom_pull('nobody') }}"], content="Hello"
    )
    assert "recipient 2 is the word 'None': the template or task it came from had no value" in failed.error
    given = {"recipients": ["{{ none }}"], "content": "Hello"}
    assert "recipient 1 is the word 'None'" in run_operator(SendEmailOperator, task_runner, **given).error


def test_placeholder_that_is_misspelt_is_named(task_runner: TaskRunner) -> None:
    given = {"content": "Hello {naem}", "substitution_defaults": {"name": "customer"}}
    failed = sms(task_runner, rows(1), **given).run_try()
    assert "substitution_defaults names name, and the text has no such placeholder. It has naem" in failed.error


@pytest.mark.parametrize("default", ["", " ", None, "\u200b"])
def test_default_without_a_text_sends_nothing(task_runner: TaskRunner, default: Any) -> None:
    given = {"content": "Hello {name}", "substitution_defaults": {"name": default}}
    failed = sms(task_runner, rows(2), **given).run_try()
    assert (failed.state, requests(task_runner)) == ("failed", 0)
    assert "substitution_defaults has no text for name. Nothing was sent." in failed.error


def test_duplicate_names_its_first_row(task_runner: TaskRunner, tmp_path: Path) -> None:
    given = [*rows(3), *rows(1, 2), *rows(1), *rows(1)]
    assert reasons(task_runner, tmp_path, given) == {
        4: "the same recipient as row 3", 5: "the same recipient as row 1", 6: "the same recipient as row 1"
    }  # fmt: skip


def test_duplicate_of_a_test_recipient_is_named_as_such(task_runner: TaskRunner, tmp_path: Path) -> None:
    found = reasons(task_runner, tmp_path, rows(2), test_recipients=rows(1))
    assert found == {1: "the same recipient as a test recipient"}


@pytest.mark.parametrize(
    ("extras", "words"),
    [
        ({"timeout": -3}, "timeout must be a number above 0 and at most .*; it is -3"),
        ({"requests_per_second": 0}, "requests_per_second must be a number above 0 and at most .*; it is 0"),
        ({"timeout": "soon"}, "the extra timeout must be a number; it is 'soon'"),
        ({"max_concurrency": 0.5}, "the extra max_concurrency must be a whole number of at least 1; it is 0.5"),
        ({"default_region": "XX"}, "default_region must be a two-letter ISO 3166 region such as NG; it is 'XX'"),
        ({"callback_secret": 5}, "the extra callback_secret must be a list or comma-separated text"),
        ({"allowed_recipients": [{"a": "08031234567"}]}, "the extra allowed_recipients must be a list"),
        ({"callback_url": "here?key=sk_1"}, "the extra callback_url must be a URL"),
    ],
)
def test_bad_value_of_a_connection_names_connection_and_value_but_no_secret(
    task_runner: TaskRunner, extras: dict[str, Any], words: str
) -> None:
    task_runner.connect("cpaas_bad", **extras)
    failed = run_operator(
        SendSmsOperator, task_runner, recipients=["08031234567"], content="Hello", cpaas_conn_id="cpaas_bad"
    )
    assert failed.state == "failed"
    with pytest.raises(AssertionError, match=rf"Connection 'cpaas_bad': {words}"):
        raise AssertionError(failed.error)
    assert "sk_1" not in failed.error
    assert "08031234567" not in failed.error


def test_https_to_an_http_server_explains_the_default_scheme(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    host = sandbox.url.removeprefix("http://")
    monkeypatch.setenv("AIRFLOW_CONN_CPAAS_BARE", connection_json({**sandbox.connection, "host": host}))
    works, message = CpaasHook("cpaas_bare").test_connection()
    assert not works
    assert "a host without a scheme means https" in message


def test_counts_of_one_are_singular(task_runner: TaskRunner) -> None:
    failed = sms(task_runner, [*rows(2), {"phone": "x"}]).run_try()
    assert "0 recipients rejected and 1 invalid row, of 3" in failed.error
    limit_batches(task_runner, 2)
    reject_recipients(task_runner, ["2348031200000"])
    log = sms(task_runner, rows(2), content=TEXT).run_try().log
    assert "in 1 parts" not in log
    assert "1 recipients" not in log
