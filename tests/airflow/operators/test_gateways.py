"""Operators and sensors as real task instances, behind a gateway or a base URL that is not the service's.

Such a response says nothing about a passcode, a row or a number. Only the documented error does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from airflow.sdk import BaseOperator

from cpaas_provider.operators import contacts, lookup, otp
from cpaas_provider.sensors.otp import OtpStatusSensor
from cpaas_provider.triggers._polling import backoff
from tests.airflow.harness.fixed_response import fixed_response_server, response_sequence_server
from tests.airflow.harness.task_runner import TaskRunner
from tests.airflow.harness.tries import Run, new_dag
from tests.row_service.server import RowService
from tests.row_service.switches import Switches
from tests.row_service.table import Column

PAGE = b"<html><h1>404 Not Found</h1></html>"
TABLE = {"id": "t", "columns": [{"id": "c", "name": "Name", "type": "TEXT"}]}
ROW = {"row": {"id": "row-1", "columns": {"c": "Ada"}}, "table": TABLE}
RECORD = {
    "id": "otp-1",
    "recipient": "2348031234567",
    "status": 2,
    "status_desc": "VERIFIED",
    "created_datetime": "2026-01-31T10:00:00Z",
}
CELLS = {"columns": {"Name": "Ada"}}
OPERATORS: dict[str, tuple[Callable[..., BaseOperator], dict[str, Any]]] = {
    "get_otp": (otp.GetOtpOperator, {"otp_id": "otp-1"}),
    "find_otps": (otp.FindOtpsOperator, {"recipient": "+2348031234567"}),
    "revoke_otp": (otp.RevokeOtpOperator, {"otp_id": "otp-1", "skip_if_missing": True}),
    "get_table": (contacts.GetContactTableOperator, {}),
    "get_row": (contacts.GetContactRowOperator, {"row_id": "row-1"}),
    "update_row": (contacts.UpdateContactRowOperator, {"row_id": "row-1", **CELLS}),
    "upsert_row": (contacts.UpsertContactRowOperator, {"row_id": "row-1", **CELLS}),
    "delete_row": (contacts.DeleteContactRowOperator, {"row_id": "row-1", "skip_if_missing": True}),
    "lookup": (lookup.PhoneLookupOperator, {"phone": "+2348031234567"}),
}
WAITS = {
    "poke": {"mode": "poke", "deferrable": False},
    "reschedule": {"mode": "reschedule", "deferrable": False},
    "deferrable": {"deferrable": True},
}


def run_of(task_runner: TaskRunner, url: str, operator: Callable[..., BaseOperator], **arguments: Any) -> Run:
    task_runner.connect("cpaas_default", host=url, password="sk_test")
    with new_dag() as dag:
        operator(task_id="task", **arguments)
    return Run(task_runner, dag)


def to_json(body: Any) -> bytes:
    return json.dumps(body).encode()


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("status", [404, 400, 410, 422])
def test_page_of_a_gateway_leaves_the_task_to_its_retries(task_runner: TaskRunner, name: str, status: int) -> None:
    operator, arguments = OPERATORS[name]
    with fixed_response_server(status, PAGE) as url:
        ended = run_of(task_runner, url, operator, **arguments).run_try()
    assert ended.state == "up_for_retry", ended.error
    assert "Check the base URL" in ended.error


@pytest.mark.parametrize("status", [404, 405, 422])
def test_page_of_a_gateway_does_not_make_a_code_a_wrong_one(task_runner: TaskRunner, status: int) -> None:
    arguments = {"otp_id": "otp-1", "token": "4711", "fail_if_not_verified": False}
    with fixed_response_server(status, PAGE) as url:
        ended = run_of(task_runner, url, otp.VerifyOtpOperator, **arguments).run_try()
    assert ended.state == "failed"
    assert ended.result is None


@pytest.fixture
def row_service() -> Iterator[RowService]:
    """A service that rejects a request for a row that does not exist without a word."""
    switches = Switches(patch_gone="404_empty", get_gone="404_empty", delete_gone="404_empty")
    with RowService([Column("c", "Name", "TEXT")], switches) as running:
        yield running


def run_of_rows(
    task_runner: TaskRunner, service: RowService, operator: Callable[..., BaseOperator], **arguments: Any
) -> Run:
    run = run_of(task_runner, service.url, operator, row_id="row-1", **arguments)
    task_runner.connect("cpaas_default", host=service.url, password=service.api_key)
    return run


def test_row_that_cannot_be_read_while_the_table_can_is_created(
    task_runner: TaskRunner, row_service: RowService
) -> None:
    ended = run_of_rows(task_runner, row_service, contacts.UpsertContactRowOperator, **CELLS).run_try()
    assert ended.state == "success", ended.error
    assert ended.result["created"] is True


def test_row_that_cannot_be_read_while_the_table_can_is_skipped(
    task_runner: TaskRunner, row_service: RowService
) -> None:
    ended = run_of_rows(task_runner, row_service, contacts.DeleteContactRowOperator, skip_if_missing=True).run_try()
    assert ended.state == "skipped", ended.error


def test_row_of_a_service_that_came_back_between_two_reads_is_not_created_again(task_runner: TaskRunner) -> None:
    table = (200, to_json(TABLE))
    responses = [table, (404, PAGE), (404, PAGE), table, (200, to_json(ROW))]
    with response_sequence_server(*responses) as url:
        ended = run_of(task_runner, url, contacts.UpsertContactRowOperator, row_id="row-1", **CELLS).run_try()
    assert ended.state == "up_for_retry", ended.error


NAMELESS = {"status": 404, "message": "Not found", "errors": []}
_TABLE, _NAMELESS = (200, to_json(TABLE)), (404, to_json(NAMELESS))


@pytest.mark.parametrize(
    ("responses", "state"),
    [
        pytest.param([_NAMELESS, _NAMELESS, _TABLE], "skipped", id="neither revoked nor read"),
        pytest.param([(200, to_json(NAMELESS)), _NAMELESS, _TABLE], "skipped", id="under a 200"),
        pytest.param([_NAMELESS], "up_for_retry", id="no table: a wrong base URL"),
        pytest.param([_NAMELESS, (200, to_json(RECORD)), _TABLE], "up_for_retry", id="it can be read"),
        pytest.param([_NAMELESS, (404, PAGE), _TABLE], "up_for_retry", id="a page where it is read"),
        pytest.param([(404, PAGE), _NAMELESS, _TABLE], "up_for_retry", id="a page where it is revoked"),
        pytest.param([(404, b'{"message": "no Route matched"}'), _NAMELESS, _TABLE], "up_for_retry", id="no error"),
        pytest.param([_NAMELESS, (401, b"{}"), _TABLE], "up_for_retry", id="the key is rejected"),
    ],
)
def test_nameless_404_of_the_service_skips_only_a_passcode_that_cannot_be_read(
    task_runner: TaskRunner, responses: list[tuple[int, bytes]], state: str
) -> None:
    with response_sequence_server(*responses) as url:
        ended = run_of(task_runner, url, otp.RevokeOtpOperator, otp_id="otp-1", skip_if_missing=True).run_try()
    assert ended.state == state, ended.error


@pytest.mark.parametrize("mode", WAITS)
@pytest.mark.parametrize("status", [404, 400, 410, 422])
def test_page_of_a_gateway_does_not_end_a_wait(task_runner: TaskRunner, mode: str, status: int) -> None:
    responses = [*[(status, PAGE)] * 3, (200, to_json(RECORD))]
    with response_sequence_server(*responses) as url:
        run = run_of(task_runner, url, OtpStatusSensor, otp_id="otp-1", poke_interval=1, **WAITS[mode])
        while (ended := run.run_try()).state in ("up_for_reschedule", "deferred"):
            if ended.trigger:
                run.fire_trigger()
    assert ended.state == "success", ended.error
    assert ended.result["outcome"] == "verified"


@pytest.mark.parametrize("mode", WAITS)
def test_page_of_a_gateway_for_minutes_ends_the_try_so_that_a_retry_waits_again(
    task_runner: TaskRunner, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "MIN_FAILURE_SECONDS", 0)
    with fixed_response_server(404, PAGE) as url:
        run = run_of(task_runner, url, OtpStatusSensor, otp_id="otp-1", poke_interval=1, soft_fail=True, **WAITS[mode])
        while (ended := run.run_try()).state in ("up_for_reschedule", "deferred"):
            if ended.trigger:
                run.fire_trigger()
    assert ended.state == "up_for_retry", ended.error
    assert "Check the base URL" in ended.error


@pytest.mark.parametrize("mode", WAITS)
def test_documented_error_that_names_the_passcode_ends_the_wait_at_once(task_runner: TaskRunner, mode: str) -> None:
    body = {"status": 404, "message": "Not found", "errors": [{"field": "id", "message": "No passcode has this id"}]}
    with response_sequence_server((500, b""), (404, to_json(body))) as url:
        run = run_of(task_runner, url, OtpStatusSensor, otp_id="otp-1", poke_interval=1, **WAITS[mode])
        while (ended := run.run_try()).state in ("up_for_reschedule", "deferred"):
            if ended.trigger:
                run.fire_trigger()
    assert ended.state == "failed", ended.error
