"""A wait ends alike in all three modes: each case as real task instances, poked, rescheduled and deferred."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import BaseSensorOperator

from cpaas_provider.api import CpaasClient
from cpaas_provider.database.database import Database, open_database
from cpaas_provider.delivery.tracking.erasure import erase
from cpaas_provider.delivery.tracking.sent_requests import SentRequest
from cpaas_provider.sensors.delivery import DeliverySensor
from cpaas_provider.sensors.otp import OtpStatusSensor
from cpaas_provider.triggers import delivery
from cpaas_provider.triggers._polling import backoff, client
from tests.airflow.harness.fixed_response import response_sequence_server
from tests.airflow.harness.task_runner import ATTEMPTS, TaskRunner, digits, fault
from tests.airflow.harness.tries import Run, Try, new_dag
from tests.unit.delivery.report_builders import (
    ADA,
    OBI,
    report,
    save_recipients,
    save_reports,
    save_requests,
    start_send,
    token_for,
)

MODES = ("poke", "reschedule", "deferrable")
MOMENT = 1.5
"""Seconds until a case changes: after the first read, and before the second."""
MOST_PROCESSES = 60


def run_first_try(run: Run, mode: str) -> Try:
    """Run the first try to its end, whatever number of processes it takes."""
    seen = run.run_try()
    for _ in range(MOST_PROCESSES):
        if seen.state == "deferred":
            run.fire_trigger()
        elif seen.state != "up_for_reschedule":
            return seen
        seen = run.run_try()
    raise AssertionError(f"the wait does not end in mode {mode}")


def sensor_run(task_runner: TaskRunner, kind: type[BaseSensorOperator], mode: str, arguments: dict[str, Any]) -> Run:
    how = {"deferrable": True} if mode == "deferrable" else {"mode": mode, "deferrable": False}
    with new_dag() as dag:
        kind(task_id="wait", **{"poke_interval": 1, "timeout": 30, **how, **arguments})
    return Run(task_runner, dag)


def expected_state(state: str, *, soft: bool) -> str:
    """Return the state with ``soft_fail``: what fails for good is skipped, and nothing else."""
    return "skipped" if soft and state == "failed" else state


# -- deliveries -------------------------------------------------------------------------------------------------------


def result(sent: int = 2, **more: Any) -> dict[str, Any]:
    """Return what a campaign operator returns, as far as it is read."""
    return {"reference": "spring", "sent": sent, "recipients": sent, "unknown_recipients": 0, "dry_run": False, **more}


def reported(*statuses: str) -> Callable[[Database], None]:
    """Have the reports of the two recipients stored."""

    def change(database: Database) -> None:
        recipients = zip((ADA, OBI), statuses, strict=False)
        save_reports(database, *(report(name, status, token=token_for(ADA, OBI)) for name, status in recipients))

    return change


def break_db(database: Database) -> None:
    """Have reads of the database fail."""
    with database.engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE cpaas_deliveries RENAME TO away")
        connection.exec_driver_sql("ALTER TABLE cpaas_requests RENAME TO requests_away")


def restore_db(database: Database) -> None:
    with database.engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE away RENAME TO cpaas_deliveries")
        connection.exec_driver_sql("ALTER TABLE requests_away RENAME TO cpaas_requests")


def recorded(database: Database) -> None:
    start_send(database)
    save_requests(database, SentRequest("pack", 2))


def erased(database: Database) -> None:
    save_recipients(database, ADA, OBI)
    save_reports(database, report(ADA, "delivered", token=token_for(ADA, OBI)))
    erase(database, OBI)


@dataclass(frozen=True)
class Case:
    """What a wait finds, and how it ends.

    :param before: what happened before the wait
    :param meanwhile: what happens a moment after it began
    :param state: the state after the first try
    :param message: what the log says of the end
    """

    state: str
    message: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    before: tuple[Callable[[Any], None], ...] = ()
    meanwhile: Callable[[Any], None] | None = None


@contextlib.contextmanager
def changing(case: Case, changed: Any) -> Iterator[None]:
    """Have what a case says happen to the database or the service a moment after the wait began."""
    if case.meanwhile is None:
        yield
        return
    timer = threading.Timer(MOMENT, case.meanwhile, (changed,))
    timer.start()
    try:
        yield
    finally:
        timer.join()


FINAL = reported("delivered", "failed")
DELIVERIES = {
    "delivered": Case("success", before=(reported("delivered", "delivered"),)),
    "undelivered": Case("success", before=(reported("failed", "failed"),)),
    "undelivered and a share": Case(
        "failed", "Too few recipients", {"min_delivered": 0.6}, (reported("failed", "failed"),)
    ),
    "smallest share and nothing delivered": Case(
        "failed", "timed out", {"min_delivered": 1e-12, "timeout": 0}, (reported("failed"),)
    ),
    "delivered meanwhile": Case("success", before=(reported("sent", "sent"),), meanwhile=FINAL),
    "a part": Case("failed", "1 are delivered, 0 undelivered, 0 in flight and 1 unreported",
                    {"timeout": 0}, (reported("delivered"),)),
    "unknown recipients": Case(
        "failed", "Of 3 recipients 2 are delivered",
        {"timeout": 0, "wait_for_unknown": True, "send_result": result(unknown_recipients=1)},
        (reported("delivered", "delivered"),),
    ),
    "no report at all": Case("failed", "0 are delivered", {"timeout": 0}),
    "database away for a moment": Case("success", before=(FINAL, break_db), meanwhile=restore_db),
    "database away for ever": Case("failed", "The database could not be read", {"timeout": 0}, (FINAL, break_db)),
    "reference": Case("success", "", {"send_result": "spring"}, (recorded, FINAL)),
    "reference and the database away for a moment": Case(
        "success", "", {"send_result": "spring"}, (recorded, FINAL, break_db), restore_db
    ),
    "reference and the database away for ever": Case(
        "failed", "The database could not be read", {"send_result": "spring", "timeout": 0}, (recorded, FINAL, break_db)
    ),
    "mistyped reference": Case("failed", "no record of 1 of 1 references", {"send_result": "sprong"}, (recorded,)),
    "mistyped reference and the database away for a moment": Case(
        "failed", "no record of 1 of 1 references", {"send_result": "sprong"}, (recorded, break_db), restore_db
    ),
    "reference without a value": Case("failed", "send_result is the word 'None'", {"send_result": "{{ none }}"}),
    "erased recipient": Case("success", before=(erased,)),
    "results file that cannot be written": Case(
        "up_for_retry", "could not be written", {"results_path": "/proc/nowhere/results.jsonl"}, (FINAL,)
    ),
    "results file that cannot be written after the wait": Case(
        "up_for_retry", "could not be written", {"results_path": "/proc/nowhere/results.jsonl"},
        (reported("sent", "sent"),), FINAL,
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "LAST_READ_SECONDS", 0.3)
    monkeypatch.setattr(backoff, "MIN_FAILURE_SECONDS", 0)
    monkeypatch.setattr(client, "REJECTED_RELOAD_SECONDS", 0)


@pytest.fixture
def store(airflow_db: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{tmp_path}/store.db")
    with open_database() as opened:
        yield opened


def delivery_run(task_runner: TaskRunner, store: Database, mode: str, case: Case, **more: Any) -> Run:
    for change in case.before:
        change(store)
    return sensor_run(task_runner, DeliverySensor, mode, {"send_result": result(), **case.arguments, **more})


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("soft", [False, True], ids=["fails", "skips"])
@pytest.mark.parametrize("name", DELIVERIES)
def test_wait_for_delivery_ends_alike_in_each_mode(
    task_runner: TaskRunner, store: Database, mode: str, soft: bool, name: str
) -> None:
    case = DELIVERIES[name]
    run = delivery_run(task_runner, store, mode, case, soft_fail=soft)
    with changing(case, store):
        end = run_first_try(run, mode)
    assert (end.state, end.number) == (expected_state(case.state, soft=soft), 1)
    assert case.message in end.log


class TestResultsFileOfEarlierWait:
    """A later task, such as the next channel of a fallback, reads the file after the wait has ended."""

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize(("soft", "state"), [(False, "failed"), (True, "up_for_retry")])
    def test_results_file_is_removed_after_a_clear_with_the_database_away(
        self, task_runner: TaskRunner, store: Database, tmp_path: Path, mode: str, soft: bool, state: str
    ) -> None:
        path = tmp_path / "results.jsonl"
        case = Case("success", arguments={"results_path": str(path), "timeout": 0}, before=(FINAL,))
        run = delivery_run(task_runner, store, mode, case, soft_fail=soft)
        assert run_first_try(run, mode).state == "success"
        assert path.exists()
        break_db(store)
        assert run_first_try(run.clear(), mode).state == state
        assert not path.exists()

    @pytest.mark.parametrize("mode", MODES)
    def test_results_file_is_replaced_after_a_clear(
        self, task_runner: TaskRunner, store: Database, tmp_path: Path, mode: str
    ) -> None:
        path = tmp_path / "results.jsonl"
        case = Case("success", arguments={"results_path": str(path)}, before=(FINAL,))
        run = delivery_run(task_runner, store, mode, case)
        run_first_try(run, mode)
        path.write_text("of an earlier wait\n")
        assert run_first_try(run.clear(), mode).state == "success"
        assert "earlier" not in path.read_text()


# -- passcodes --------------------------------------------------------------------------------------------------------


def revoked(task_runner: TaskRunner) -> None:
    with passcode_client(task_runner) as service:
        service.revoke_otp(_passcode(task_runner))


def verified(task_runner: TaskRunner) -> None:
    code = task_runner.sandbox.inbox("otp", recipient=digits("waiting"))["items"][0]["code"]
    with passcode_client(task_runner) as service:
        service.verify_otp(_passcode(task_runner), code)


def failing(kind: str, **params: Any) -> Callable[[TaskRunner], None]:
    """Have reads of passcodes fail, for ever or so many ``times``."""
    return lambda task_runner: task_runner.sandbox.control(*fault("get_otp", kind, **params))


def passcode_client(task_runner: TaskRunner) -> CpaasClient:
    return CpaasClient(task_runner.sandbox.url, task_runner.sandbox.api_key)


def _passcode(task_runner: TaskRunner) -> str:
    return str(task_runner.sandbox.inbox("otp", recipient=digits("waiting"))["items"][0]["id"])


PASSCODES = {
    "verified": Case("success", before=(verified,)),
    "verified meanwhile": Case("success", meanwhile=verified),
    "revoked": Case("failed", "OTP revoked", before=(revoked,)),
    "pending": Case("failed", "timed out", {"timeout": 0}),
    "missing": Case("failed", "get_otp", {"otp_id": "no_such_passcode"}),
    "id without a value": Case("failed", "is the word 'None'", {"otp_id": "{{ none }}"}),
    "key rejected for a moment": Case("success", before=(verified, failing("unauthorized", times=1))),
    "key rejected for ever": Case("up_for_retry", "API key", before=(verified, failing("unauthorized"))),
    "error of the service for a moment": Case(
        "success", before=(verified, failing("error_500", times=ATTEMPTS))
    ),
    "error of the service for ever": Case("failed", "timed out", {"timeout": 0}, (failing("error_500"),)),
    "connection that never worked": Case(
        "up_for_retry", "timeout must be a number", {"cpaas_conn_id": "cpaas_invalid"}
    ),
    "connection that is missing": Case("up_for_retry", "isn't defined", {"cpaas_conn_id": "cpaas_missing"}),
}  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("soft", [False, True], ids=["fails", "skips"])
@pytest.mark.parametrize("name", PASSCODES)
def test_wait_for_a_passcode_ends_alike_in_each_mode(task_runner: TaskRunner, mode: str, soft: bool, name: str) -> None:
    case = PASSCODES[name]
    task_runner.connect("cpaas_invalid", timeout="soon")
    with passcode_client(task_runner) as service:
        otp_id = service.request_otp(f"+{digits('waiting')}").id
    run = sensor_run(task_runner, OtpStatusSensor, mode, {"otp_id": otp_id, "soft_fail": soft, **case.arguments})
    for change in case.before:
        change(task_runner)
    with changing(case, task_runner):
        end = run_first_try(run, mode)
    assert (end.state, end.number) == (expected_state(case.state, soft=soft), 1)
    assert case.message in end.log


def passcode(status: str) -> tuple[int, bytes]:
    record = {"id": "passcode", "recipient": ADA, "status": 1, "created_datetime": "2026-05-01T12:00:00Z"}
    return 200, json.dumps({**record, "status_desc": status}).encode()


STRAY = {
    "redirect to a login page": (301, b""),
    "payment required": (402, b"{}"),
    "method not allowed": (405, b"<html>"),
    "proxy wants a login": (407, b""),
    "conflict": (409, b"{}"),
    "blocked": (451, b""),
    "error of the server under a 200": (200, b'{"message": "Internal error", "errors": []}'),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", STRAY)
def test_single_response_that_is_not_about_the_passcode_ends_no_wait(
    task_runner: TaskRunner, mode: str, name: str
) -> None:
    pending = passcode("SENT")
    with response_sequence_server(
        pending, STRAY[name], pending, passcode("VERIFIED"), Content_Type="application/json"
    ) as url:
        task_runner.connect("cpaas_default", host=url)
        run = sensor_run(task_runner, OtpStatusSensor, mode, {"otp_id": "passcode"})
        assert run_first_try(run, mode).state == "success"


@pytest.mark.parametrize("mode", MODES)
def test_repeated_unrelated_responses_end_the_try_and_a_retry_waits_again(task_runner: TaskRunner, mode: str) -> None:
    with response_sequence_server(passcode("SENT"), STRAY["proxy wants a login"]) as url:
        task_runner.connect("cpaas_default", host=url)
        run = sensor_run(task_runner, OtpStatusSensor, mode, {"otp_id": "passcode", "soft_fail": True})
        assert run_first_try(run, mode).state == "up_for_retry"
