"""DeliverySensor as real task instances, in all three modes: its outcomes, results and errors."""

from __future__ import annotations

import asyncio
import datetime as dt
import itertools
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from airflow.jobs.triggerer_job_runner import TriggerRunner
from airflow.sdk import DAG, task, timezone
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    TaskDeferred,
)
from pyarrow import parquet

from cpaas_provider.database.database import Database, open_database
from cpaas_provider.delivery.callbacks.tokens import CallbackToken
from cpaas_provider.delivery.tracking.erasure import erase
from cpaas_provider.delivery.tracking.sent_requests import (
    SentRequest,
    TrackedSend,
    record_recipients,
    record_requests,
    record_send_finished,
    record_send_started,
)
from cpaas_provider.sensors.delivery import DeliverySensor
from cpaas_provider.triggers._polling.criteria import NOTHING_ACCEPTED
from cpaas_provider.triggers.delivery import DeliveryTrigger
from tests.airflow.harness.task_runner import TaskRunner, digits, open_task_runner
from tests.reading import results_in
from tests.sandbox import Sandbox
from tests.unit.delivery.report_builders import report, save_reports
from tests.unit.docs.results import documented_keys
from tests.unit.triggers.test_delivery import queries_with

MODES = ("poke", "reschedule", "deferrable")
PEOPLE = tuple(digits(name) for name in ("delivered", "failed", "sent", "nothing"))
DONE, LOST, UNDER_WAY, SILENT = PEOPLE
ERASED = "2348030000009"
STANDING = "Of 4 recipients 1 are delivered, 1 undelivered, 1 in flight and 1 unreported."
FIGURES = {"expected": 4, "delivered": 1, "undelivered": 1, "in_flight": 1, "unreported": 1, "conflicts": 0}
# What a sensor that does not succeed says.
MESSAGES = {
    "missed": "Too few recipients were delivered: min_delivered=0.9 can no longer be reached. ",
    "timed_out": "The wait for delivery timed out after 0 s. ",
}
ARGUMENTS: dict[str, dict[str, Any]] = {"missed": {"min_delivered": 0.9}, "timed_out": {"timeout": 0}}


def campaign(reference: str, sent: int, **more: Any) -> dict[str, Any]:
    """Return what a campaign operator returns, as far as it is read."""
    return {
        "reference": reference,
        "recipients": sent + 3,
        "sent": sent,
        "unknown_recipients": 0,
        "dry_run": False,
        **more,
    }


def single(*references: str, recipients: int | None = None, **more: Any) -> dict[str, Any]:
    """Return what an operator of one request returns."""
    number = len(references) if recipients is None else recipients
    return {"id": "m1", "recipients": number, "references": list(references), "unknown_references": [], **more}


def token_of(name: str, recipients: int = 1) -> CallbackToken:
    return CallbackToken(name, f"{name}-pack", recipients)


def reported(store: Database) -> None:
    """Have reports of everything the cases wait for."""
    save_reports(
        store,
        report(DONE, "delivered", token=token_of("open", 4)),
        report(LOST, "failed", token=token_of("open", 4), description="Unknown subscriber"),
        report(UNDER_WAY, "sent", token=token_of("open", 4)),
        report(DONE, "delivered", token=token_of("final", 2)),
        report(LOST, "failed", token=token_of("final", 2)),
        report(LOST, "delivered", token=token_of("final", 2)),
        *(report(DONE, "delivered", token=token_of(f"one-{number}")) for number in range(3)),
    )

    def note(connection: Any) -> None:
        for name in ("noted", "ended"):
            record_send_started(connection, TrackedSend(name, "send_sms", "shop", "dag", "run", "task", -1))
            record_requests(connection, name, "shop", [SentRequest(token_of(name).reference, 1)])
        record_send_finished(connection, "ended", 1)

    store.write(note)
    save_reports(store, *(report(DONE, "delivered", token=token_of(name)) for name in ("noted", "ended")))
    store.write(lambda connection: record_recipients(connection, "erased", "shop", {"erased-pack": [DONE, ERASED]}))
    save_reports(store, report(DONE, "delivered", token=token_of("erased", 2)))
    erase(store, ERASED)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where outcome files go."""
    return tmp_path_factory.mktemp("outcomes")


@pytest.fixture(scope="module")
def store(airflow_db: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{tmp_path_factory.mktemp('store')}/store.db")
        with open_database() as opened:
            yield opened


@pytest.fixture(scope="module")
def finished_run(store: Database, sandbox_process: Sandbox, outcomes: Path) -> Iterator[TaskRunner]:
    reported(store)
    with open_task_runner(sandbox_process) as task_runner:

        def wait(name: str, send_result: Any, **given: Any) -> DeliverySensor:
            return DeliverySensor(
                task_id=task_runner.prepare(name),
                **{"poke_interval": 1, "send_result": send_result, "timeout": 60} | given,
            )

        with task_runner.dag("delivery_sensor", params={"name": "final"}) as dag:
            for mode in MODES:
                how = {"deferrable": True} if mode == "deferrable" else {"mode": mode, "deferrable": False}
                wait(f"final_{mode}", campaign("final", 2), **how)
                for name, soft in itertools.product(MESSAGES, (False, True)):
                    path = str(outcomes / f"{name}_{mode}.jsonl")
                    wait(
                        f"{name}_{mode}{'_soft' if soft else ''}", campaign("open", 4),
                        results_path=None if soft else path, soft_fail=soft, **how | ARGUMENTS[name],
                    )  # fmt: skip
                wait(f"enough_{mode}", campaign("open", 4), min_delivered=0.25, **how)
                wait(f"nothing_{mode}", single(), **how)
                wait(f"nothing_{mode}_soft", single(), soft_fail=True, **how)

            @task
            def send(number: int) -> dict[str, Any]:
                return single(f"one-{number}")

            wait("mapped_set", send.expand(number=[0, 1, 2]), deferrable=True)
            DeliverySensor.partial(task_id="mapped", poke_interval=1, timeout=0).expand(
                send_result=[single("one-0"), campaign("open", 4)]
            )
            wait("references", "noted")
            wait("several_references", ["noted", "ended"])
            wait("unheard_of", "nobody-knows")
            wait("rendered", "{{ 'noted' }}", results_path=str(outcomes / "{{ params.name }}.parquet"))
            wait("text_of_a_result", "{{ ti.xcom_pull(task_ids='final_poke') or {'a': 1} }}")
            wait("jsonl", campaign("final", 2), results_path=str(outcomes / "new" / "final.jsonl"))
            wait("bad_path", campaign("final", 2), results_path="{{ 'outcomes.csv' }}")
            wait("no_place", campaign("final", 2), results_path="/proc/nowhere/final.jsonl", retries=0)
            wait("strange", single("unsent"), timeout=0)
            wait("erased", campaign("erased", 2), timeout=0)
            for mode in MODES:
                how = {"deferrable": True} if mode == "deferrable" else {"mode": mode, "deferrable": False}
                wait(f"without_reports_{mode}", campaign("unheard", 4, delivery_reports=None), **how)
                wait(
                    f"unknown_without_reports_{mode}",
                    campaign("unheard", 0, unknown_recipients=2, delivery_reports=None),
                    wait_for_unknown=True, **how,
                )  # fmt: skip
                for name, waits, options in (
                    ("reported", True, {}), ("silent", True, {"timeout": 0}), ("silent", False, {}),
                ):  # fmt: skip
                    unknown = ["one-1", "silent"] if name == "silent" else ["one-1"]
                    result = single("one-0", unknown_recipients=len(unknown), unknown_references=unknown)
                    task_id = f"unknown_{name}_{waits}_{mode}"
                    wait(task_id, result, wait_for_unknown=waits, **how | options)
            wait("purchase", {"id": "p1", "status": "pending", "references": ["one-1"], "unknown_references": []})
        yield task_runner.run_dag(dag)


class TestOutcomes:
    @pytest.mark.parametrize("mode", MODES)
    def test_sensor_succeeds_with_counts_once_all_statuses_are_final(self, finished_run: TaskRunner, mode: str) -> None:
        assert finished_run.outcome(f"final_{mode}") == ("success", 1)
        assert finished_run.xcom(f"final_{mode}") == {
            "expected": 2, "delivered": 2, "undelivered": 0, "in_flight": 0, "unreported": 0, "conflicts": 1,
            "results_path": None,
        }  # fmt: skip
        assert set(finished_run.xcom(f"final_{mode}")) == documented_keys(DeliverySensor)

    @pytest.mark.parametrize("mode", MODES)
    def test_sensor_succeeds_once_the_required_share_is_delivered(self, finished_run: TaskRunner, mode: str) -> None:
        assert finished_run.outcome(f"enough_{mode}") == ("success", 1)
        assert finished_run.xcom(f"enough_{mode}") == {**FIGURES, "results_path": None}

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("name", MESSAGES)
    def test_failed_wait_ends_at_once_with_counts(self, finished_run: TaskRunner, name: str, mode: str) -> None:
        assert finished_run.outcome(f"{name}_{mode}") == ("failed", 1)
        assert finished_run.error(f"{name}_{mode}") == MESSAGES[name] + STANDING

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("name", MESSAGES)
    def test_soft_fail_skips_with_the_same_message(self, finished_run: TaskRunner, name: str, mode: str) -> None:
        assert finished_run.outcome(f"{name}_{mode}_soft") == ("skipped", 1)
        assert MESSAGES[name] + STANDING in finished_run.log(f"{name}_{mode}_soft")
        assert f"{MESSAGES[name]}{STANDING}" == finished_run.result.xcom(f"{name}_{mode}_soft", key="skip_reason")

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("name", MESSAGES)
    def test_failed_sensor_pushes_its_counts(
        self, finished_run: TaskRunner, outcomes: Path, name: str, mode: str
    ) -> None:
        path = str(outcomes / f"{name}_{mode}.jsonl")
        assert finished_run.result.xcom(f"{name}_{mode}", key="report") == {**FIGURES, "results_path": path}

    @pytest.mark.parametrize("mode", MODES)
    def test_send_result_without_recipients_fails_or_skips(self, finished_run: TaskRunner, mode: str) -> None:
        assert finished_run.outcome(f"nothing_{mode}") == ("failed", 1)
        assert finished_run.error(f"nothing_{mode}") == NOTHING_ACCEPTED
        assert finished_run.outcome(f"nothing_{mode}_soft") == ("skipped", 1)

    def test_deferrable_sensor_waits_in_a_trigger(self, finished_run: TaskRunner) -> None:
        assert "[DAG TEST] running trigger in line" in finished_run.log("timed_out_deferrable")

    def test_logs_and_xcoms_hold_no_number(self, finished_run: TaskRunner) -> None:
        for text in (*finished_run.all_logs, *finished_run.result.all_xcoms()):
            assert not [number for number in PEOPLE if number in text]


class TestAwaitedRecipients:
    def test_mapped_set_is_waited_for_together(self, finished_run: TaskRunner) -> None:
        assert finished_run.xcom("mapped_set")["delivered"] == 3

    def test_mapped_instances_wait_for_their_own(self, finished_run: TaskRunner) -> None:
        assert [finished_run.outcome("mapped", index)[0] for index in (0, 1)] == ["success", "failed"]

    def test_recipients_of_references_come_from_the_database(self, finished_run: TaskRunner) -> None:
        assert finished_run.xcom("references")["expected"] == 1
        assert finished_run.xcom("several_references")["expected"] == 2

    def test_purchase_is_waited_for_by_its_reference(self, finished_run: TaskRunner) -> None:
        assert finished_run.xcom("purchase")["delivered"] == 1

    def test_recipient_erased_in_flight_is_no_longer_waited_for(self, finished_run: TaskRunner) -> None:
        assert finished_run.outcome("erased") == ("success", 1)
        figures = {"expected": 2, "delivered": 1, "undelivered": 1, "in_flight": 0, "unreported": 0}
        assert figures.items() <= finished_run.xcom("erased").items()

    def test_unknown_references_are_an_error(self, finished_run: TaskRunner) -> None:
        assert finished_run.outcome("unheard_of") == ("failed", 1)
        assert "The database has no record of 1 of 1 references" in finished_run.error("unheard_of")
        assert "[cpaas] database" in finished_run.error("unheard_of")

    @pytest.mark.parametrize("mode", MODES)
    def test_send_without_reports_fails_at_once_without_naming_the_database(
        self, finished_run: TaskRunner, mode: str
    ) -> None:
        assert finished_run.outcome(f"without_reports_{mode}") == ("failed", 1)
        assert "its connection had no callback_url" in finished_run.error(f"without_reports_{mode}")
        assert "[cpaas] database" not in finished_run.log(f"without_reports_{mode}")

    @pytest.mark.parametrize("mode", MODES)
    def test_unknown_recipients_to_wait_for_without_reports_fail_at_once(
        self, finished_run: TaskRunner, mode: str
    ) -> None:
        assert finished_run.outcome(f"unknown_without_reports_{mode}") == ("failed", 1)
        assert "its connection had no callback_url" in finished_run.error(f"unknown_without_reports_{mode}")

    @pytest.mark.parametrize("mode", MODES)
    def test_unknown_recipients_to_wait_for_are_expected_and_end_the_wait_once_reported(
        self, finished_run: TaskRunner, mode: str
    ) -> None:
        assert finished_run.outcome(f"unknown_reported_True_{mode}") == ("success", 1)
        figures = finished_run.xcom(f"unknown_reported_True_{mode}")
        assert (figures["expected"], figures["delivered"]) == (2, 2)

    @pytest.mark.parametrize("mode", MODES)
    def test_unknown_recipient_without_a_report_is_waited_for_until_the_timeout(
        self, finished_run: TaskRunner, mode: str
    ) -> None:
        assert finished_run.outcome(f"unknown_silent_True_{mode}") == ("failed", 1)
        assert finished_run.error(f"unknown_silent_True_{mode}") == (
            MESSAGES["timed_out"] + "Of 3 recipients 2 are delivered, 0 undelivered, 0 in flight and 1 unreported."
        )

    @pytest.mark.parametrize("mode", MODES)
    def test_unreported_unknown_recipient_is_not_waited_for_without_wait_for_unknown(
        self, finished_run: TaskRunner, mode: str
    ) -> None:
        assert finished_run.outcome(f"unknown_silent_False_{mode}") == ("success", 1)
        assert finished_run.xcom(f"unknown_silent_False_{mode}")["expected"] == 2

    def test_result_rendered_as_text_is_an_error_with_the_remedy(self, finished_run: TaskRunner) -> None:
        assert finished_run.outcome("text_of_a_result") == ("failed", 1)
        assert "render_template_as_native_obj" in finished_run.error("text_of_a_result")

    def test_campaign_unknown_to_the_database_is_warned_of_once(self, finished_run: TaskRunner) -> None:
        assert finished_run.log("strange").count("do not share one database") == 1
        assert "do not share one database" not in finished_run.log("timed_out_poke")

    @pytest.mark.parametrize(
        ("task", "awaited"),
        [
            ("enough_poke", "delivery to a share of 0.25 of the recipients"),
            ("timed_out_deferrable", "a final status of every recipient"),
        ],
    )
    def test_log_begins_with_what_is_waited_for_and_how_long(
        self, finished_run: TaskRunner, task: str, awaited: str
    ) -> None:
        where = "the triggerer" if task.endswith("deferrable") else "a worker"
        assert f"DeliverySensor waits for {awaited}, on {where}: the database of delivery rep" in finished_run.log(task)


class TestResultsFile:
    def test_json_lines_have_the_status_and_reason_of_each_recipient(
        self, finished_run: TaskRunner, outcomes: Path
    ) -> None:
        lines = results_in(outcomes / "missed_poke.jsonl")
        assert {line["recipient"]: (line["outcome"], line["status"], line["reason"]) for line in lines} == {
            DONE: ("delivered", "delivered", None),
            LOST: ("undelivered", "failed", "Unknown subscriber"),
            UNDER_WAY: ("in_flight", "sent", None),
        }

    def test_conflicts_are_flagged(self, finished_run: TaskRunner, outcomes: Path) -> None:
        lines = results_in(outcomes / "new" / "final.jsonl")
        assert {line["recipient"]: line["conflict"] for line in lines} == {DONE: False, LOST: True}
        assert finished_run.xcom("jsonl")["conflicts"] == 1

    def test_parquet_has_the_same_rows_as_json_lines(self, finished_run: TaskRunner, outcomes: Path) -> None:
        (row,) = parquet.read_table(outcomes / "final.parquet").to_pylist()
        assert (row["campaign"], row["recipient"], row["outcome"]) == ("noted", f"+{DONE}", "delivered")
        assert row["conflict"] is False
        assert finished_run.xcom("rendered")["results_path"] == str(outcomes / "final.parquet")

    def test_unknown_format_is_refused_before_the_wait(self, finished_run: TaskRunner) -> None:
        assert finished_run.outcome("bad_path") == ("failed", 1)
        assert "must end in" in finished_run.error("bad_path")

    def test_results_file_that_cannot_be_written_fails_the_task(self, finished_run: TaskRunner) -> None:
        assert finished_run.outcome("no_place") == ("failed", 1)
        assert "could not be written" in finished_run.error("no_place")

    def test_no_partial_results_file_remains(self, finished_run: TaskRunner, outcomes: Path) -> None:
        assert list(outcomes.rglob("*.part")) == []


class TestArguments:
    @pytest.mark.parametrize("given", [0, 1.01, -1, True, "0.5", float("nan")])
    def test_share_outside_0_to_1_is_refused(self, given: Any) -> None:
        with pytest.raises(ValueError, match="min_delivered must be a number above 0 and up to 1"):
            DeliverySensor(task_id="bad", send_result="x", min_delivered=given)

    def test_poll_interval_is_short_where_one_query_serves_all(self) -> None:
        assert DeliverySensor(task_id="there", send_result="x", deferrable=True).poke_interval == 1
        assert DeliverySensor(task_id="here", send_result="x", deferrable=False).poke_interval == 10

    def test_airflow_s_default_decides_whether_it_defers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE", "True")
        assert DeliverySensor(task_id="there", send_result="x").deferrable is True
        assert DeliverySensor(task_id="here", send_result="x", deferrable=False).deferrable is False


class Instance:
    """A task instance that keeps what is pushed."""

    def __init__(self) -> None:
        self.pushed: dict[str, Any] = {}

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value


class TestDeferral:
    @pytest.fixture
    def sensor(self, store: Database) -> Iterator[DeliverySensor]:
        save_reports(store, report(DONE, "sent", token=token_of("deferred", 2)))
        with DAG("deferring", schedule=None):
            yield DeliverySensor(task_id="wait", send_result=campaign("deferred", 2), deferrable=True, timeout=600)

    @pytest.fixture
    def context(self) -> Any:
        return {"ti": Instance()}

    def test_trigger_gets_plain_json_with_an_absolute_deadline(self, sensor: DeliverySensor, context: Any) -> None:
        begun = timezone.utcnow()
        with pytest.raises(TaskDeferred) as deferred:
            sensor.execute(context)
        _, kwargs = deferred.value.trigger.serialize()
        assert json.loads(json.dumps(kwargs)) == kwargs
        assert kwargs["campaigns"] == ["deferred"]
        assert kwargs["expected"] == 2
        assert 600 <= (dt.datetime.fromisoformat(kwargs["deadline"]) - begun).total_seconds() < 660
        assert deferred.value.timeout > dt.timedelta(seconds=600)

    def test_trigger_of_thousands_of_sends_gets_only_references(self, sensor: DeliverySensor, context: Any) -> None:
        names = [f"cpaas-{number:024d}" for number in range(5000)]
        sensor.send_result = [single(name) for name in names]
        with pytest.raises(TaskDeferred) as deferred:
            sensor.execute(context)
        _, kwargs = deferred.value.trigger.serialize()
        assert (kwargs["campaigns"], kwargs["expected"]) == (names, 5000)
        assert len(json.dumps(kwargs)) < 5000 * 35

    @pytest.mark.parametrize(
        "event",
        [None, {}, "done", ["outcome"], {"outcome": "done"}, {"outcome": "lost", **FIGURES},
         {"outcome": "done", **FIGURES, "unreported": "1"}, {"outcome": "done", **FIGURES, "delivered": -1}],
    )  # fmt: skip
    def test_event_without_figures_is_an_error(self, sensor: DeliverySensor, context: Any, event: Any) -> None:
        with pytest.raises(AirflowException, match="returned no delivery figures"):
            sensor.resume_execution("execute_complete", {"event": event}, context)

    def test_error_of_the_trigger_fails_the_task_for_good(self, sensor: DeliverySensor, context: Any) -> None:
        event = {"outcome": "error", "message": "what happened"}
        with pytest.raises(AirflowFailException, match="what happened"):
            sensor.resume_execution("execute_complete", {"event": event}, context)

    @pytest.mark.parametrize(("soft", "kind"), [(False, AirflowSensorTimeout), (True, AirflowSkipException)])
    def test_wait_without_a_triggerer_times_out(
        self, sensor: DeliverySensor, context: Any, soft: bool, kind: type[Exception]
    ) -> None:
        sensor.soft_fail = soft
        with pytest.raises(kind, match=r"timed out after 600 s\. Of 2 recipients 0 are delivered"):
            sensor.resume_execution("__fail__", {"error": "Trigger timeout"}, context)
        assert context["ti"].pushed["report"]["in_flight"] == 1

    def test_delivery_completed_before_a_trigger_timeout_succeeds(
        self, sensor: DeliverySensor, context: Any, store: Database
    ) -> None:
        sensor.send_result = campaign("late", 1)
        save_reports(store, report(DONE, "delivered", token=token_of("late")))
        assert sensor.resume_execution("__fail__", {"error": "Trigger timeout"}, context)["delivered"] == 1


class TestFailures:
    @pytest.fixture
    def sensor(self, airflow_db: object, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> DeliverySensor:
        """One whose store cannot be read."""
        (tmp_path / "file").touch()
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{tmp_path}/file/store.db")
        return DeliverySensor(task_id="wait", send_result=single("one"), timeout=600, deferrable=True)

    def test_unreadable_database_does_not_end_the_wait(
        self, sensor: DeliverySensor, caplog: pytest.LogCaptureFixture
    ) -> None:
        assert sensor.poke({}) is False
        with pytest.raises(TaskDeferred):
            sensor.execute({})

    def test_references_are_waited_for_until_the_database_is_readable(self, sensor: DeliverySensor) -> None:
        sensor.send_result = "one"
        assert sensor.poke({}) is False
        with pytest.raises(TaskDeferred) as deferred:
            sensor.execute({})
        assert deferred.value.trigger.without_count == ["one"]

    def test_timeout_reports_the_figures_of_the_trigger(self, sensor: DeliverySensor) -> None:
        event, instance = {"outcome": "timed_out", **FIGURES}, Instance()
        with pytest.raises(AirflowSensorTimeout, match=STANDING):
            sensor.resume_execution("execute_complete", {"event": event}, {"ti": instance})
        assert instance.pushed["report"] == {**FIGURES, "conflicts": None, "results_path": None}

    def test_timeout_reports_an_unreadable_database(self, sensor: DeliverySensor) -> None:
        with pytest.raises(AirflowSensorTimeout, match="The database could not be read"):
            sensor.resume_execution("__fail__", {"error": "Trigger timeout"}, {})


class TestParseSendResult:
    """``parse_send_result`` beyond what the cases show."""

    def read(self, given: Any) -> tuple[tuple[str, ...], int]:
        from cpaas_provider.sensors._send_result import parse_send_result

        found = parse_send_result(given)
        return found.campaigns, found.criteria.expected

    def test_requests_of_unknown_outcome_are_waited_for_but_not_expected(self) -> None:
        assert self.read(single("a", recipients=3, unknown=2, unknown_references=["b"])) == (("a", "b"), 3)

    def test_partitions_that_were_skipped_or_sent_nothing_are_ignored(self) -> None:
        assert self.read([campaign("a", 5), campaign("b", 0), single(), None]) == (("a", "b"), 5)

    def test_partitions_that_sent_nothing_need_no_reports(self) -> None:
        given = [campaign("a", 5, delivery_reports="webhook"), campaign("b", 0, delivery_reports=None)]
        assert self.read(given) == (("a", "b"), 5)

    @pytest.mark.parametrize(
        "given",
        [
            campaign("a", 0, unknown_recipients=2, delivery_reports=None),
            single(unknown_recipients=1, unknown_references=["b"], delivery_reports=None),
        ],
        ids=["campaign", "single"],
    )
    def test_unknown_recipients_to_wait_for_need_reports(self, given: Any) -> None:
        from cpaas_provider.sensors._send_result import parse_send_result

        with pytest.raises(ValueError, match="had no callback_url"):
            parse_send_result(given, wait_for_unknown=True)

    def test_same_result_twice_counts_once(self) -> None:
        assert self.read([campaign("a", 5), campaign("a", 5)]) == (("a",), 5)

    @pytest.mark.parametrize(
        ("given", "words"),
        [
            (None, "returned nothing"),
            ([], "no accepted recipient"),
            (7, "must be what a send operator returned"),
            ([7], "holds something of type int"),
            (campaign("a", 0), "no accepted recipient"),
            (campaign("a", 0, dry_run=True), "dry run"),
            ({"id": "7", "status": 1, "outcome": "pending"}, "callback_url"),
            ({"id": "p1", "unknown_references": []}, "callback_url"),
            ({"reference": "a b", "sent": 1}, "this provider did not make"),
            ("two words", "render_template_as_native_obj"),
            (campaign("a", 5, delivery_reports=None), "had no callback_url"),
            (single("a", delivery_reports=None), "had no callback_url"),
            ([campaign("a", 5, delivery_reports="callback"), campaign("b", 5, delivery_reports=None)], "callback_url"),
            *(
                ({**campaign("a", 5), "sent": number}, "sent is no whole number")
                for number in ("5", 5.0, float("nan"), True, -1)
            ),
            ({**single("a"), "recipients": "3"}, "recipients is no whole number"),
        ],
    )
    def test_send_result_that_names_no_send_is_refused(self, given: Any, words: str) -> None:
        with pytest.raises(ValueError, match=words):
            self.read(given)


class TestQueries:
    def test_poll_makes_one_query_for_hundreds_of_requests(self, store: Database) -> None:
        names = [f"many-{number}" for number in range(400)]
        save_reports(store, *(report(UNDER_WAY, "sent", token=token_of(name)) for name in names))
        sensor = DeliverySensor(task_id="wait", send_result=[single(name) for name in names])
        with queries_with("cpaas_") as queries:
            assert sensor.poke({"ti": Instance()}) is False
        assert len([query for query in queries if "cpaas_alembic_version" not in query]) == 1


class TestTriggerer:
    """The triggers of many sensors as Airflow's own triggerer runs them: as tasks of one loop."""

    @pytest.fixture
    def store(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
        """A store that is named by a connection."""
        path = tmp_path / "store.db"
        monkeypatch.setenv("AIRFLOW_CONN_REPORTS", json.dumps({"conn_type": "sqlite", "host": str(path)}))
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", "reports")
        with open_database() as opened:
            yield opened

    @staticmethod
    def begun(runner: TriggerRunner, number: int) -> asyncio.Task[None]:
        deadline = (timezone.utcnow() + dt.timedelta(minutes=5)).isoformat()
        trigger = DeliveryTrigger([f"one-{number}"], 1, None, deadline, poke_interval=1)
        trigger.trigger_id = number
        task = asyncio.create_task(runner.run_trigger(number, trigger))
        runner.triggers[number] = {"task": task, "is_watcher": False, "name": f"trigger {number}", "events": 0}
        return task

    async def test_trigger_ends_with_one_event_and_warns_in_its_own_log(self, store: Database) -> None:
        runner, told = TriggerRunner(), list[Any]()

        class Bound(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                told.append(structlog.contextvars.get_contextvars().get("trigger_id"))

        bound = Bound()
        logging.getLogger("cpaas_provider.triggers").addHandler(bound)
        try:
            tasks = [self.begun(runner, number) for number in range(30)]
            async with asyncio.timeout(30):
                while len(told) < 30:  # noqa: ASYNC110 - nothing tells
                    await asyncio.sleep(0.05)
                runner.to_cancel.extend(range(10))
                await runner.cancel_triggers()
                save_reports(
                    store, *(report(DONE, "delivered", token=token_of(f"one-{number}")) for number in range(30))
                )
                ended = await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            logging.getLogger("cpaas_provider.triggers").removeHandler(bound)
        assert [type(one) for one in ended[:10]] == [asyncio.CancelledError] * 10
        assert ended[10:] == [None] * 20
        assert sorted(entry.trigger_id for entry in runner.events) == list(range(10, 30))
        assert {entry.event.payload["outcome"] for entry in runner.events} == {"done"}
        # That the store knows nothing of it concerns each task that waits.
        assert sorted(told) == list(range(30))
