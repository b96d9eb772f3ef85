"""The log of a sensor that waits says where the wait stands, not too often, and without a number or code."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cpaas_provider.database.database import Database
from cpaas_provider.sensors.delivery import DeliverySensor
from cpaas_provider.sensors.otp import OtpStatusSensor
from tests.airflow.delivery.test_modes import (
    MODES,
    Case,
    delivery_run,
    passcode_client,
    reported,
    sensor_run,
)
from tests.airflow.delivery.test_modes import store as store
from tests.airflow.harness.task_runner import TaskRunner, digits
from tests.airflow.harness.tries import new_dag
from tests.unit.delivery.report_builders import ADA, OBI

FIGURES = "The wait continues. Of 2 recipients 1 are delivered, 0 undelivered, 0 in flight and 1 unreported."
ENDS_AT = re.compile(r"The wait ends at (\S+ \S+) UTC, ([^.]*)\.")
SHORT = "mode='reschedule' starts a process for each read, and poke_interval is 1 second."


def test_figures_are_logged_once_and_not_by_each_poke(task_runner: TaskRunner, store: Database) -> None:
    case = Case("failed", arguments={"timeout": 2.5}, before=(reported("delivered"),))
    end = delivery_run(task_runner, store, "poke", case).run_try()
    assert (end.state, end.log.count(FIGURES)) == ("failed", 1)


@pytest.mark.parametrize("mode", MODES)
def test_first_process_logs_figures_and_start(task_runner: TaskRunner, store: Database, mode: str) -> None:
    case = Case("failed", before=(reported("delivered"),))
    first = delivery_run(task_runner, store, mode, case, timeout=2.5).run_try()
    assert FIGURES in first.log
    assert first.log.count("DeliverySensor waits for a final status of every recipient") == 1
    assert (SHORT in first.log) == (mode == "reschedule")
    assert ADA not in first.log
    assert OBI not in first.log


def test_rescheduled_process_does_not_repeat_the_start(task_runner: TaskRunner, store: Database) -> None:
    run = delivery_run(task_runner, store, "reschedule", Case("", before=(reported("delivered"),)))
    assert run.run_try().state == "up_for_reschedule"
    second = run.run_try()
    assert second.state == "up_for_reschedule"
    assert "DeliverySensor waits for" not in second.log
    assert SHORT not in second.log


@pytest.mark.parametrize(
    ("arguments", "interval"),
    [
        ({"mode": "reschedule"}, 60),
        ({"mode": "reschedule", "poke_interval": 5}, 5),
        ({"mode": "reschedule", "deferrable": True}, 1),
        ({}, 10),
    ],
)
def test_default_interval_is_that_of_the_mode(arguments: dict[str, Any], interval: float) -> None:
    with new_dag():
        sensor = DeliverySensor(task_id="wait", send_result="spring", **{"deferrable": False, **arguments})
    assert sensor.poke_interval == interval


class OnePoke(OtpStatusSensor):
    """A sensor that waits on a worker and ends after its first read."""

    task_type = "OtpStatusSensor"

    def poke(self, context: Any) -> bool:
        """Read once, and succeed."""
        return super().poke(context) is False


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("arguments", "seconds", "cause"),
    [
        ({"expires_in": 5, "timeout": 3660}, 300, "when the passcode expires"),
        ({"expires_in": 5, "timeout": 120}, 120, "when its timeout is over"),
        ({"timeout": 120}, 120, "when its timeout is over"),
    ],
    ids=["expires first", "times out first", "no expiry"],
)
def test_wait_for_a_passcode_logs_its_real_deadline(
    task_runner: TaskRunner, mode: str, arguments: dict[str, Any], seconds: int, cause: str
) -> None:
    recipient = digits("waiting")
    with passcode_client(task_runner) as service:
        otp_id = service.request_otp(f"+{recipient}", expires_in=arguments.get("expires_in")).id
    code = task_runner.sandbox.inbox("otp", recipient=recipient)["items"][0]["code"]
    run = sensor_run(task_runner, OnePoke if mode == "poke" else OtpStatusSensor, mode, {"otp_id": otp_id, **arguments})
    before = datetime.now(UTC)
    log = run.run_try().log
    assert f"is read every 1 second, for at most {seconds} seconds." in log
    ((ends_at, why),) = ENDS_AT.findall(log)
    ends = datetime.fromisoformat(ends_at).replace(tzinfo=UTC)
    assert why == cause
    assert timedelta() <= before + timedelta(seconds=seconds) - ends + timedelta(seconds=15) <= timedelta(seconds=30)
    assert f"Passcode {otp_id} is pending (status SENT)." in log
    assert recipient not in log
    assert code not in log
