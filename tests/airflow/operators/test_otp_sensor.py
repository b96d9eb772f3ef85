"""OtpStatusSensor as real task instances, in all three modes: its outcomes and errors."""

from __future__ import annotations

import asyncio
import datetime as dt
import itertools
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from airflow.jobs.triggerer_job_runner import TriggerRunner
from airflow.sdk import DAG, timezone
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    TaskDeferred,
)

from cpaas_provider.api import CpaasClient
from cpaas_provider.api.errors import CpaasNotVerifiedError
from cpaas_provider.sensors.otp import OtpStatusSensor
from cpaas_provider.triggers._polling import backoff
from cpaas_provider.triggers.otp import OtpStatusTrigger
from tests.airflow.harness.task_runner import ATTEMPTS, TaskRunner, digits, fault, open_task_runner, setting
from tests.sandbox import Sandbox, connection_json
from tests.unit.docs.results import documented_keys

MODES = ("poke", "reschedule", "deferrable")
# What a sensor that does not succeed says.
MESSAGES = {
    "expired": "OTP expired: the code was not entered in time (status EXPIRED).",
    "expired_by_clock": "OTP expired: its 1 minutes are over, and its status is still SENT.",
    "revoked": "OTP revoked: the passcode was revoked before",
    "failed": "OTP failed: the service ended the passcode",
    "timed_out": "OTP wait timed out after 0 s: the passcode is still pending.",
}
SETTINGS = {"expired_by_clock": [setting(otp_status_mode="sent")]}
ARGUMENTS = {"expired_by_clock": {"expires_in": "{{ 1 }}"}, "timed_out": {"timeout": 0}}


def passcodes(sandbox: Sandbox) -> dict[str, str]:
    """Have one passcode for each end it can come to; return their ids."""
    long_ago = (timezone.utcnow() - dt.timedelta(minutes=5)).isoformat()
    sandbox.control("PUT", "clock", {"now": long_ago})
    ids = {}
    with CpaasClient(sandbox.url, sandbox.api_key, default_region="NG") as client:
        for name in ("verified", "timed_out", "revoked", "failed"):
            ids[name] = client.request_otp(f"+{digits(name)}", expires_in=60).id
        for name in ("expired", "expired_by_clock"):
            ids[name] = client.request_otp(f"+{digits(name)}", expires_in=1).id
        sandbox.control("PUT", "clock", {"real": True})
        client.verify_otp(ids["verified"], sandbox.inbox("otp", recipient=digits("verified"))["items"][0]["code"])
        client.revoke_otp(ids["revoked"])
        for _ in range(5):
            with pytest.raises(CpaasNotVerifiedError):
                client.verify_otp(ids["failed"], "not the code")
    return ids


@pytest.fixture(scope="module")
def finished_run(airflow_db: object, sandbox_process: Sandbox) -> Iterator[TaskRunner]:
    with open_task_runner(sandbox_process) as task_runner, pytest.MonkeyPatch.context() as patch:
        patch.setattr(backoff, "MIN_FAILURE_SECONDS", 0)
        ids = passcodes(sandbox_process)
        # One read of each mode fails in passing, so that whoever can wait on the triggerer does.
        passing = fault("get_otp", "error_500", times=ATTEMPTS)

        def wait(name: str, mode: str, soft: bool, *trouble: tuple, told: bool = False) -> None:
            how = {"deferrable": True} if mode == "deferrable" else {"mode": mode, "deferrable": False}
            case = [*SETTINGS.get(name, []), *trouble]
            OtpStatusSensor(
                task_id=task_runner.prepare(f"{name}_{mode}{'_soft' if soft else ''}{'_told' if told else ''}", *case),
                fail_if_not_verified=not told,
                **{"otp_id": f"{ids.get(name, 'no_such_passcode')}", "soft_fail": soft}
                | ({"poke_interval": 1} | how | ARGUMENTS.get(name, {})),
            )

        with task_runner.dag("otp_sensor", params={"id": ids["verified"]}) as dag:
            for mode in MODES:
                trouble = [passing] if mode == "deferrable" else []
                wait("verified", mode, False, *trouble)
                for name, soft in itertools.product(MESSAGES, (False, True)):
                    wait(name, mode, soft, *trouble)
                wait("nobody", mode, False)
                wait("nobody", mode, True)
                for name in MESSAGES:
                    wait(name, mode, False, *trouble, told=True)
                wait("verified", mode, False, told=True)
                wait("nobody", mode, False, told=True)
            for mode in ("poke", "reschedule"):
                OtpStatusSensor(
                    task_id=task_runner.prepare(f"passing_{mode}", passing),
                    otp_id=ids["verified"], mode=mode, deferrable=False, poke_interval=1,
                )  # fmt: skip
            OtpStatusSensor(task_id="rendered", otp_id="{{ params.id }}", cpaas_conn_id="cpaas_{{ 'default' }}")
            OtpStatusSensor.partial(task_id="mapped").expand(otp_id=[ids["verified"], ids["revoked"]])
            OtpStatusSensor(task_id="own_words", otp_id=ids["revoked"], success_statuses=["Revoked"])
            OtpStatusSensor(task_id="own_failure", otp_id=ids["timed_out"], failure_statuses=["SENT"])
            OtpStatusSensor(task_id="wrong_key", otp_id=ids["verified"], cpaas_conn_id="cpaas_wrong_key",
                            poke_interval=1, retries=1)  # fmt: skip
            OtpStatusSensor(task_id="bad_life", otp_id=ids["verified"], expires_in="{{ 'a while' }}")
        yield task_runner.run_dag(dag)


class TestOutcomes:
    @pytest.mark.parametrize("mode", MODES)
    def test_verified_succeeds_with_the_record(self, finished_run: TaskRunner, mode: str) -> None:
        assert finished_run.outcome(f"verified_{mode}") == ("success", 1)
        (passcode,) = finished_run.inbox_items("otp", digits("verified"))
        assert finished_run.xcom(f"verified_{mode}") == {
            "outcome": "verified",
            "id": passcode["id"],
            "status": 2,
            "status_desc": "VERIFIED",
        }

    @pytest.mark.parametrize(
        ("mode", "where"),
        [
            ("poke", "a worker"),
            ("reschedule", "a worker, which is free between two reads"),
            ("deferrable", "the triggerer"),
        ],
    )
    def test_log_begins_with_what_is_waited_for_and_how_long(
        self, finished_run: TaskRunner, mode: str, where: str
    ) -> None:
        otp_id = finished_run.xcom(f"verified_{mode}")["id"]
        assert (
            f"OtpStatusSensor waits for passcode {otp_id} to be verified, on {where}: its record on connection "
            "'cpaas_default' is read every 1 second, for at most 3,660 seconds."
        ) in finished_run.log(f"verified_{mode}")

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("name", MESSAGES)
    def test_passcode_not_verified_fails_without_a_retry_and_names_the_cause(
        self, finished_run: TaskRunner, name: str, mode: str
    ) -> None:
        assert finished_run.outcome(f"{name}_{mode}") == ("failed", 1)
        assert finished_run.error(f"{name}_{mode}").startswith(MESSAGES[name])

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("name", MESSAGES)
    def test_soft_fail_skips_with_the_same_message(self, finished_run: TaskRunner, name: str, mode: str) -> None:
        assert finished_run.outcome(f"{name}_{mode}_soft") == ("skipped", 1)
        assert MESSAGES[name] in finished_run.log(f"{name}_{mode}_soft")

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("name", MESSAGES)
    def test_sensor_succeeds_with_the_status_on_request(self, finished_run: TaskRunner, name: str, mode: str) -> None:
        assert finished_run.outcome(f"{name}_{mode}_told") == ("success", 1)
        result = finished_run.xcom(f"{name}_{mode}_told")
        assert set(result) == documented_keys(OtpStatusSensor) == {"outcome", "id", "status", "status_desc"}
        assert result["outcome"] == ("expired" if name == "expired_by_clock" else name)
        assert MESSAGES[name] in finished_run.log(f"{name}_{mode}_told")

    @pytest.mark.parametrize("mode", MODES)
    def test_sensor_that_returns_the_status_succeeds_if_verified_or_missing(
        self, finished_run: TaskRunner, mode: str
    ) -> None:
        assert finished_run.xcom(f"verified_{mode}_told") == finished_run.xcom(f"verified_{mode}")
        assert finished_run.outcome(f"nobody_{mode}_told") == ("success", 1)
        assert finished_run.xcom(f"nobody_{mode}_told") == {
            "outcome": "not_found", "id": "no_such_passcode", "status": None, "status_desc": None,
        }  # fmt: skip

    @pytest.mark.parametrize("mode", MODES)
    def test_missing_passcode_ends_the_wait(self, finished_run: TaskRunner, mode: str) -> None:
        assert finished_run.outcome(f"nobody_{mode}") == ("failed", 1)
        assert finished_run.outcome(f"nobody_{mode}_soft") == ("skipped", 1)

    @pytest.mark.parametrize("mode", ["poke", "reschedule"])
    def test_temporary_failure_does_not_end_the_wait(self, finished_run: TaskRunner, mode: str) -> None:
        assert finished_run.outcome(f"passing_{mode}") == ("success", 1)
        assert "The wait continues." in finished_run.log(f"passing_{mode}")

    def test_temporary_failure_does_not_end_the_wait_of_a_trigger(self, finished_run: TaskRunner) -> None:
        assert "The wait continues." in finished_run.log("verified_deferrable")
        assert "[DAG TEST] running trigger in line" in finished_run.log("verified_deferrable")

    def test_wrong_key_ends_it_so_that_a_retry_waits_again(self, finished_run: TaskRunner) -> None:
        assert finished_run.outcome("wrong_key") == ("failed", 2)
        assert "API key" in finished_run.error("wrong_key")

    def test_failed_reads_are_logged_once_a_minute(self, finished_run: TaskRunner) -> None:
        # Each of the two tries waits through two failed reads, and the third ends it.
        assert finished_run.log("wrong_key").count("The wait continues.") == 2


class TestArguments:
    def test_fields_are_rendered(self, finished_run: TaskRunner) -> None:
        assert finished_run.outcome("rendered") == ("success", 1)

    def test_mapped_instances_wait_for_their_own(self, finished_run: TaskRunner) -> None:
        assert [finished_run.outcome("mapped", index)[0] for index in (0, 1)] == ["success", "failed"]

    def test_status_words_can_be_configured(self, finished_run: TaskRunner) -> None:
        assert finished_run.xcom("own_words")["outcome"] == "verified"
        assert finished_run.error("own_failure").startswith("OTP failed: ")
        assert "(status SENT)" in finished_run.error("own_failure")

    def test_expiry_that_is_no_number_fails_without_a_retry(self, finished_run: TaskRunner) -> None:
        assert finished_run.outcome("bad_life") == ("failed", 1)
        assert "expires_in must be a whole number from 1 to 60; it is 'a while'" in finished_run.error("bad_life")

    @pytest.mark.parametrize("name", ["success_statuses", "failure_statuses"])
    @pytest.mark.parametrize("value", ["VERIFIED", b"VERIFIED", {"VERIFIED": 1}, 7, [7], ["VERIFIED", " "], [None]])
    def test_statuses_are_lists_of_texts(self, name: str, value: Any) -> None:
        with pytest.raises(ValueError, match=f"{name} must be a list of texts"):
            OtpStatusSensor(task_id="bad", otp_id="x", **{name: value})

    def test_statuses_that_contradict_are_refused(self) -> None:
        with pytest.raises(ValueError, match="success_statuses is empty"):
            OtpStatusSensor(task_id="bad", otp_id="x", success_statuses=[])
        with pytest.raises(ValueError, match="both have SENT"):
            OtpStatusSensor(task_id="bad", otp_id="x", success_statuses=["sent"], failure_statuses=["SENT "])

    @pytest.mark.parametrize("given", [15, 15.0, "15", "15.0", " 15 "])
    def test_minutes_are_read_alike_in_the_dag_file_and_at_run_time(self, given: Any) -> None:
        assert OtpStatusSensor(task_id="wait", otp_id="x", expires_in=given)._criteria().expires_in == 15

    def test_airflow_s_default_decides_whether_it_defers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE", "True")
        assert OtpStatusSensor(task_id="there", otp_id="x").deferrable is True
        assert OtpStatusSensor(task_id="here", otp_id="x", deferrable=False).deferrable is False


class TestDeferral:
    @pytest.fixture
    def sensor(self, airflow_db: object, sandbox_process: Sandbox) -> Iterator[OtpStatusSensor]:
        with open_task_runner(sandbox_process):
            with CpaasClient(sandbox_process.url, sandbox_process.api_key) as client:
                otp_id = client.request_otp(f"+{digits('waiting')}").id
            with DAG("deferring", schedule=None):
                yield OtpStatusSensor(task_id="wait", otp_id=otp_id, deferrable=True, timeout=600, expires_in=15)

    def test_trigger_gets_plain_json_with_an_absolute_deadline(self, sensor: OtpStatusSensor) -> None:
        begun = timezone.utcnow()
        with pytest.raises(TaskDeferred) as deferred:
            sensor.execute({})
        _, kwargs = deferred.value.trigger.serialize()
        assert json.loads(json.dumps(kwargs)) == kwargs
        deadline = dt.datetime.fromisoformat(kwargs["deadline"])
        assert 600 <= (deadline - begun).total_seconds() < 610
        assert kwargs["expires_in"] == 15
        assert digits("waiting") not in json.dumps(kwargs)

    def test_triggerer_s_own_limit_comes_after_the_deadline(self, sensor: OtpStatusSensor) -> None:
        with pytest.raises(TaskDeferred) as deferred:
            sensor.execute({})
        assert deferred.value.timeout > dt.timedelta(seconds=600)

    @pytest.mark.parametrize("event", [None, {}, {"status": 2}, "verified", ["outcome"]])
    def test_event_without_figures_is_an_error(self, sensor: OtpStatusSensor, event: object) -> None:
        with pytest.raises(AirflowException, match="returned no outcome of the passcode"):
            sensor.resume_execution("execute_complete", {"event": event}, {})

    def test_unknown_trigger_outcome_is_an_error(self, sensor: OtpStatusSensor) -> None:
        event = {"outcome": "lost", "id": "x", "status": 9, "status_desc": "LOST"}
        with pytest.raises(AirflowException, match="does not know"):
            sensor.resume_execution("execute_complete", {"event": event}, {})

    def test_error_of_the_trigger_fails_the_task_for_good(self, sensor: OtpStatusSensor) -> None:
        event = {"outcome": "error", "id": "x", "message": "get_otp: what happened"}
        with pytest.raises(AirflowFailException, match="get_otp: what happened"):
            sensor.resume_execution("execute_complete", {"event": event}, {})

    @pytest.mark.parametrize(("soft", "kind"), [(False, AirflowSensorTimeout), (True, AirflowSkipException)])
    def test_wait_without_a_triggerer_times_out(
        self, sensor: OtpStatusSensor, soft: bool, kind: type[Exception]
    ) -> None:
        sensor.soft_fail = soft
        with pytest.raises(kind, match="OTP wait timed out after 600 s"):
            sensor.resume_execution("__fail__", {"error": "Trigger timeout"}, {})


class TestTriggerer:
    """The triggers of many sensors as Airflow's own triggerer runs them: as tasks of one loop."""

    @pytest.fixture
    def otp_ids(self, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        # So slow that a round of them takes seconds, and is told.
        monkeypatch.setenv("AIRFLOW_CONN_CPAAS_DEFAULT", connection_json(sandbox.connection, requests_per_second=20))
        with CpaasClient(sandbox.url, sandbox.api_key, requests_per_second=1000) as client:
            return [client.request_otp(f"+{digits(f'many {number}')}").id for number in range(30)]

    @staticmethod
    def begun(runner: TriggerRunner, number: int, otp_id: str) -> asyncio.Task[None]:
        deadline = (timezone.utcnow() + dt.timedelta(minutes=5)).isoformat()
        trigger = OtpStatusTrigger("cpaas_default", otp_id, deadline, poke_interval=1)
        trigger.trigger_id = number
        task = asyncio.create_task(runner.run_trigger(number, trigger))
        runner.triggers[number] = {"task": task, "is_watcher": False, "name": f"trigger {number}", "events": 0}
        return task

    async def test_trigger_ends_with_one_event_and_a_cancelled_one_with_none(
        self,
        otp_ids: list[str],
        sandbox: Sandbox,
        caplog: pytest.LogCaptureFixture,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        runner, bound = TriggerRunner(), []

        class Bound(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                bound.append(structlog.contextvars.get_contextvars().get("trigger_id"))

        told = Bound()
        logging.getLogger("cpaas_provider.triggers").addHandler(told)
        try:
            tasks = [self.begun(runner, number, otp_id) for number, otp_id in enumerate(otp_ids)]
            async with asyncio.timeout(30):
                while sandbox.counters()["requests"].get("get_otp", 0) < 5:  # noqa: ASYNC110 - another process
                    await asyncio.sleep(0.05)
                runner.to_cancel.extend(range(10))
                await runner.cancel_triggers()
                with CpaasClient(sandbox.url, sandbox.api_key, requests_per_second=1000) as client:
                    for otp_id in otp_ids:
                        client.revoke_otp(otp_id)
                ended = await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            logging.getLogger("cpaas_provider.triggers").removeHandler(told)
        assert [type(one) for one in ended[:10]] == [asyncio.CancelledError] * 10
        assert capsys.readouterr().out.count("Trigger cancelled by user action") == 10
        assert ended[10:] == [None] * 20
        assert sorted(entry.trigger_id for entry in runner.events) == list(range(10, 30))
        assert {entry.event.payload["outcome"] for entry in runner.events} == {"revoked"}
        # How long a round takes concerns the triggerer, and no single task's log.
        assert bound == [None]
        assert "30 sensors wait for passcodes on connection 'cpaas_default'" in caplog.text
