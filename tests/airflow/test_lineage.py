"""What OpenLineage's provider extracts from real tasks, written to a file."""

from __future__ import annotations

import json
import sqlite3
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from airflow.utils.state import TaskInstanceState

from cpaas_provider.operators.base_campaign import partitions
from cpaas_provider.operators.contact_sync import SyncContactsOperator
from cpaas_provider.operators.lookup import BulkPhoneLookupOperator
from cpaas_provider.sources import SqlSource
from cpaas_provider.task_groups import UndeliveredSource
from tests.airflow.contacts.test_sync import people, sync
from tests.airflow.harness.campaigns import digits, rows, sms
from tests.airflow.harness.task_runner import TaskRunner
from tests.airflow.harness.tries import Run, new_dag


class EventFile:
    """Has OpenLineage's provider extract the lineage of a task that has run, and emits it to a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, context: Any, result: Any) -> None:
        from airflow.providers.openlineage.extractors.manager import ExtractorManager
        from openlineage.client import OpenLineageClient
        from openlineage.client.event_v2 import Job, RunEvent, RunState
        from openlineage.client.event_v2 import Run as LineageRun
        from openlineage.client.transport.file import FileConfig, FileTransport

        task_instance = context["ti"]
        found = ExtractorManager().extract_metadata(
            dagrun=context["dag_run"],
            task=task_instance.task,
            task_instance_state=TaskInstanceState.SUCCESS,
            task_instance=task_instance,
        )
        event = RunEvent(
            eventTime=datetime.now(UTC).isoformat(),
            eventType=RunState.COMPLETE,
            run=LineageRun(str(uuid.uuid4())),
            job=Job("tests", task_instance.task_id),
            inputs=found.inputs,
            outputs=found.outputs,
        )
        OpenLineageClient(transport=FileTransport(FileConfig(str(self.path), append=True))).emit(event)

    def events(self) -> list[dict[str, Any]]:
        """Return what was written."""
        return [json.loads(line) for line in self.path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def emitted(tmp_path: Path) -> EventFile:
    return EventFile(tmp_path / "lineage.jsonl")


def test_source_list_columns_and_counts_are_extracted_without_a_value(
    task_runner: TaskRunner, emitted: EventFile, tmp_path: Path
) -> None:
    source = tmp_path / "people.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in people(3)), encoding="utf-8")
    columns = {"Name": {"template": "{name} {plan}"}, "Phone": "phone", "Plan": {"constant": "gold"}}
    ended = sync(task_runner, str(source), "lineage", columns=columns, post_execute=emitted).run_try()
    assert ended.state == "success", ended.error
    [event] = emitted.events()
    [read], [written] = event["inputs"], event["outputs"]
    assert (read["namespace"], read["name"]) == ("file", str(source))
    assert written["namespace"].startswith("https://")
    assert written["name"] == "lists/contact"
    fields = written["facets"]["columnLineage"]["fields"]
    filled = {name: [one["field"] for one in field["inputFields"]] for name, field in fields.items()}
    assert filled == {"Name": ["name", "plan"], "Phone": ["phone"], "Plan": []}
    assert written["outputFacets"]["outputStatistics"]["rowCount"] == 3
    text = emitted.path.read_text(encoding="utf-8")
    assert "2348031" not in text
    assert "Person" not in text


def test_lineage_of_each_partition_has_its_own_counts(task_runner: TaskRunner, emitted: EventFile) -> None:
    with new_dag() as dag:
        SyncContactsOperator.partial(
            task_id="sync",
            source=people(20),
            map_name="mapped lineage",
            new_map=True,
            key="id",
            columns={"Name": "name"},
            post_execute=emitted,
        ).expand(partition=partitions(2))
    run = Run(task_runner, dag)
    results = [run.run_try(map_index=part) for part in range(2)]
    assert [ended.state for ended in results] == ["success"] * 2, results
    counts = [event["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] for event in emitted.events()]
    assert counts == [ended.result["created"] for ended in results]
    assert sum(counts) == 20


def statistics(written: dict[str, Any]) -> tuple[str, str, int]:
    """Return where a results file is, and its number of lines."""
    return written["namespace"], written["name"], written["outputFacets"]["outputStatistics"]["rowCount"]


def write_rows(path: Path, count: int) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows(count)), encoding="utf-8")
    return path


def test_source_and_results_file_of_a_campaign_are_extracted_without_a_value(
    task_runner: TaskRunner, emitted: EventFile, tmp_path: Path
) -> None:
    source, results = write_rows(tmp_path / "customers.jsonl", 3), tmp_path / "results.jsonl"
    ended = sms(task_runner, str(source), results_path=str(results), post_execute=emitted).run_try()
    assert ended.state == "success", ended.error
    [event] = emitted.events()
    assert [(read["namespace"], read["name"]) for read in event["inputs"]] == [("file", str(source))]
    [written] = event["outputs"]
    assert statistics(written) == ("file", str(results), 3)
    assert len(results.read_text().splitlines()) == 3
    names = [field["name"] for field in written["facets"]["schema"]["fields"]]
    assert names == list(json.loads(results.read_text().splitlines()[0]))
    text = emitted.path.read_text(encoding="utf-8")
    assert not [number for number in digits(3) if number in text]


def test_query_of_a_campaign_is_its_connection_and_a_suppression_file_is_read_too(
    task_runner: TaskRunner, emitted: EventFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "AIRFLOW_CONN_WAREHOUSE", json.dumps({"conn_type": "sqlite", "host": f"{tmp_path}/warehouse.db"})
    )
    with sqlite3.connect(tmp_path / "warehouse.db") as warehouse:
        warehouse.execute("CREATE TABLE customers (phone TEXT)")
        warehouse.executemany("INSERT INTO customers VALUES (?)", [(f"+{number}",) for number in digits(2)])
    left_out = tmp_path / "left_out.jsonl"
    left_out.write_text(json.dumps({"phone": f"+{digits(1)[0]}"}) + "\n")
    query = SqlSource("warehouse", "SELECT phone FROM customers")
    run = sms(
        task_runner,
        query,
        content="Hello",
        recipient_column="phone",
        suppression_list=str(left_out),
        post_execute=emitted,
    )
    ended = run.run_try()
    assert ended.state == "success", ended.error
    [event] = emitted.events()
    read = {(dataset["namespace"], dataset["name"]) for dataset in event["inputs"]}
    assert read == {("airflow", "connection/warehouse"), ("file", str(left_out))}
    assert event["outputs"] == []


def test_list_in_the_dag_is_no_data_set(task_runner: TaskRunner, emitted: EventFile) -> None:
    assert sms(task_runner, rows(1), post_execute=emitted).run_try().state == "success"
    [event] = emitted.events()
    assert (event["inputs"], event["outputs"]) == ([], [])


def test_results_file_of_a_sensor_is_read_by_the_campaign_of_the_undelivered(
    task_runner: TaskRunner, emitted: EventFile, tmp_path: Path
) -> None:
    source, delivered = write_rows(tmp_path / "customers.jsonl", 2), tmp_path / "delivered.jsonl"
    delivered.write_text("")
    undelivered = UndeliveredSource(str(source), str(delivered), column="phone")
    ended = sms(task_runner, undelivered, post_execute=emitted).run_try()
    assert ended.state == "success", ended.error
    [event] = emitted.events()
    assert {dataset["name"] for dataset in event["inputs"]} == {str(source), str(delivered)}


def test_source_and_results_file_of_a_bulk_lookup_are_extracted(
    task_runner: TaskRunner, emitted: EventFile, tmp_path: Path
) -> None:
    source, results = write_rows(tmp_path / "customers.jsonl", 2), tmp_path / "lookups.jsonl"
    with new_dag() as dag:
        BulkPhoneLookupOperator(
            task_id="look_up", source=str(source), results_path=str(results), max_failure_ratio=1, post_execute=emitted
        )
    ended = Run(task_runner, dag).run_try()
    assert ended.state == "success", ended.error
    [event] = emitted.events()
    assert [read["name"] for read in event["inputs"]] == [str(source)]
    assert statistics(event["outputs"][0]) == ("file", str(results), 2)
