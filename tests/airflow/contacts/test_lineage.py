"""What OpenLineage's provider extracts from contact syncs that ran as real task instances, written to a file."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from airflow.utils.state import TaskInstanceState

from cpaas_provider.operators.base_campaign import partitions
from cpaas_provider.operators.contact_sync import SyncContactsOperator
from tests.airflow.contacts.test_sync import people, sync
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
