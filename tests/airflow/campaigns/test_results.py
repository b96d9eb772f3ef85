"""Results for downstream tasks: a small XCom, and a file with the outcome of every row."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from cpaas_provider.operators import SmsCampaignOperator
from cpaas_provider.operators.base_campaign import partitions
from cpaas_provider.sources import results_file
from tests.airflow.harness.campaigns import (
    TEXT,
    around_requests,
    clear_faults,
    counts,
    digits,
    limit_batches,
    outcomes,
    read_results,
    reject_recipients,
    requests,
    rows,
    sms,
)
from tests.airflow.harness.kinds import FailsAfterSend
from tests.airflow.harness.task_runner import ATTEMPTS, TaskRunner, fault
from tests.airflow.harness.tries import Run, new_dag
from tests.unit.docs.results import documented_keys

FILES = pytest.mark.parametrize("name", ["o.jsonl", "o.ndjson", "o.parquet"])


def mixed() -> list[dict[str, Any]]:
    return [*rows(4), *rows(1), {"phone": "x", "name": "Ada"}, {"phone": "08031200010"}]


@FILES
def test_results_file_has_every_row_with_its_outcome(task_runner: TaskRunner, tmp_path: Path, name: str) -> None:
    reject_recipients(task_runner, [digits(4)[3]])
    failed = sms(task_runner, mixed(), results_path=f"file://{tmp_path}/{{{{ dag.dag_id }}}}/{name}").run_try()
    (file,) = tmp_path.glob(f"*/{name}")
    found = {line["row"]: line for line in read_results(file)}
    assert [found[row]["outcome"] for row in range(1, 8)] == [
        "sent", "sent", "sent", "rejected", "duplicate", "invalid_row", "invalid_row"
    ]  # fmt: skip
    assert [found[row]["recipient"] for row in (1, 4, 7)] == [digits(1)[0], digits(4)[3], "2348031200010"]
    assert (found[1]["pages"], found[1]["reference"][:6]) == (1, "cpaas-")
    assert found[1]["message_id"] in {one["message_id"] for one in task_runner.sandbox.inbox("sms")["items"]}
    assert found[7]["reason"] == "has no value for the placeholder name"
    assert "x" not in (found[6]["reason"] or "").split()
    assert counts(failed.report) == {"sent": 3, "rejected": 1, "invalid_rows": 2, "duplicates": 1}


@FILES
def test_results_file_is_complete_after_a_task_that_failed_midway(
    task_runner: TaskRunner, tmp_path: Path, name: str
) -> None:
    limit_batches(task_runner)
    task_runner.sandbox.control(*fault("send_sms", "unauthorized", after=2))
    run = sms(task_runner, rows(5), results_path=str(tmp_path / name))
    assert run.run_try().state == "failed"
    assert Counter(outcomes(tmp_path / name).values()) == {"sent": 2, "not_sent": 3}
    clear_faults(task_runner)
    run.clear().run_try()
    assert Counter(outcomes(tmp_path / name).values()) == {"sent": 5}


def test_path_of_another_format_is_refused_before_any_request(task_runner: TaskRunner, tmp_path: Path) -> None:
    failed = sms(task_runner, rows(2), results_path=f"{tmp_path}/o{{{{ '.csv' }}}}").run_try()
    assert (failed.state, task_runner.sandbox.counters()["sms"]["requests"]) == ("failed", 0)
    assert ".jsonl, .ndjson, .parquet" in failed.error


@FILES
def test_unwritable_path_fails_before_any_request(task_runner: TaskRunner, tmp_path: Path, name: str) -> None:
    (tmp_path / "taken").write_text("")
    path = tmp_path / "taken" / name
    run = sms(task_runner, rows(3), results_path=str(path))
    first = run.run_try()
    assert (first.state, first.report, task_runner.sandbox.counters()["sms"]["requests"]) == ("up_for_retry", None, 0)
    assert f"The results file {path} cannot be written (FileExistsError: File exists)" in first.error
    assert "Nothing was sent in this try" in first.error
    (tmp_path / "taken").unlink()
    assert (run.run_try().state, set(outcomes(path).values())) == ("success", {"sent"})


@contextmanager
def full_disk() -> Iterator[None]:
    """Let what is written to a new file fail, as on a full disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(results_file, "create_whole_file", lambda *_: os.fdopen(os.open("/dev/full", os.O_WRONLY), "wb"))
        yield


def test_full_disk_fails_before_any_request(task_runner: TaskRunner, tmp_path: Path) -> None:
    with full_disk():
        failed = sms(task_runner, rows(3), results_path=str(tmp_path / "o.jsonl")).run_try()
    assert (failed.state, task_runner.sandbox.counters()["sms"]["requests"]) == ("up_for_retry", 0)
    assert "No space left on device" in failed.error


def test_mode_that_cannot_be_used_fails_before_anything_is_sent(
    task_runner: TaskRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__CPAAS__RESULTS_FILE_MODE", "rw")
    failed = sms(task_runner, rows(3), results_path=str(tmp_path / "o.jsonl")).run_try()
    assert (failed.state, task_runner.sandbox.counters()["sms"]["requests"]) == ("failed", 0)
    assert "[cpaas] results_file_mode is 'rw'" in failed.error
    assert "Nothing was sent." in failed.error


def test_check_of_the_path_leaves_no_file_and_keeps_an_earlier_one(task_runner: TaskRunner, tmp_path: Path) -> None:
    (tmp_path / "o.jsonl").write_text("of an earlier run")
    failed = sms(task_runner, rows(3), results_path=str(tmp_path / "o.jsonl"), max_recipients=1).run_try()
    assert (failed.state, task_runner.sandbox.counters()["sms"]["requests"]) == ("failed", 0)
    assert [one.name for one in tmp_path.iterdir()] == ["o.jsonl"]


def test_disk_that_fills_up_fails_with_the_counts_and_a_retry_only_writes(
    task_runner: TaskRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = sms(task_runner, rows(3), results_path=str(tmp_path / "o.jsonl"))
    with ExitStack() as disk:

        async def fills_up(request: Callable[[], Awaitable[Any]]) -> Any:
            disk.enter_context(full_disk())
            return await request()

        around_requests(monkeypatch, fills_up)
        first = run.run_try()
    assert (first.state, counts(first.report)) == ("up_for_retry", {"sent": 3})
    assert f"The results file {tmp_path}/o.jsonl could not be written (OSError: No space left on device)" in first.error
    assert "All tries together: 3 recipients: 3 sent" in first.error
    assert "The next try writes the file. It sends to no accepted recipient again." in first.error
    second = run.run_try()
    assert (second.state, task_runner.sandbox.counters()["sms"]["requests"]) == ("success", 1)
    assert set(outcomes(tmp_path / "o.jsonl").values()) == {"sent"}


def test_xcom_is_small_and_the_same_when_a_later_try_only_reports(task_runner: TaskRunner) -> None:
    limit_batches(task_runner, 2)
    failing = FailsAfterSend(1)
    run = sms(task_runner, rows(20), post_execute=failing)
    *_, second = run.run_to_end()
    assert failing.results == [second.result] * 2
    assert requests(task_runner) == 10
    assert len(json.dumps(second.result)) < 1000
    assert set(second.result) == documented_keys(SmsCampaignOperator)
    assert (second.result["requests"], second.result["charge"], second.result["sent"]) == (10, 80.0, 20)
    assert second.result["balance"] == task_runner.sandbox.counters()["balance"]


def test_progress_is_logged_at_intervals_and_as_metrics(
    task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    gauges: list[tuple[str, float, dict[str, str]]] = []

    def gauge(name: str, value: float, *_: Any, tags: dict[str, str], **__: Any) -> None:
        gauges.append((name, value, tags))

    monkeypatch.setattr("airflow.sdk.observability.stats.gauge", gauge)
    limit_batches(task_runner)
    task_runner.sandbox.control(*fault("send_sms", "latency", ms=30))
    run = sms(task_runner, rows(10), progress_interval=0.05)
    done = run.run_try()
    told = [line for line in done.log.splitlines() if "recipients done" in line]
    assert len(told) >= 3
    assert "10 of 10 recipients done (100 %): 10 sent" in told[-1]
    last = {name: value for name, value, _ in gauges}
    assert (last["cpaas.campaign.sent"], last["cpaas.campaign.left"], last["cpaas.campaign.charge"]) == (10, 0, 40.0)
    assert gauges[0][2] == {"dag_id": run.dag.dag_id, "task_id": "campaign"}


def test_metrics_of_a_mapped_campaign_carry_the_map_index(
    task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    indexes: set[str] = set()
    monkeypatch.setattr(
        "airflow.sdk.observability.stats.gauge", lambda *_, tags, **__: indexes.add(tags.get("map_index"))
    )
    with new_dag() as dag:
        SmsCampaignOperator.partial(task_id="campaign", source=rows(6), content=TEXT).expand(partition=partitions(2))
    run = Run(task_runner, dag)
    for map_index in range(2):
        assert run.run_try(map_index=map_index).state == "success"
    assert indexes == {"0", "1"}


def test_report_of_a_failed_try_counts_recipients_not_sent_to(task_runner: TaskRunner) -> None:
    task_runner.sandbox.control(*fault("send_sms", "rate_limit", times=ATTEMPTS, retry_after=0))
    first = sms(task_runner, rows(4)).run_try()
    assert (first.state, first.report["not_sent"], first.report["requests"]) == ("up_for_retry", 4, 0)
