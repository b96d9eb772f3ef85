"""What is left for tasks downstream: a small XCom, and a file that says of every row what became of it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.campaigns import accept_all, counts, digits, lines, outcomes, refuse, rows, small_packs, sms
from tests.airflow.deeds import FailsAfterwards
from tests.airflow.stage import ATTEMPTS, Stage, fault

FILES = pytest.mark.parametrize("name", ["o.jsonl", "o.ndjson", "o.parquet"])


def mixed() -> list[dict[str, Any]]:
    return [*rows(4), *rows(1), {"phone": "x", "name": "Ada"}, {"phone": "08031200010"}]


@FILES
def test_every_row_is_named_with_what_became_of_it(stage: Stage, tmp_path: Path, name: str) -> None:
    refuse(stage, [digits(4)[3]])
    failed = sms(stage, mixed(), results_path=f"file://{tmp_path}/{{{{ dag.dag_id }}}}/{name}").once()
    (file,) = tmp_path.glob(f"*/{name}")
    found = {line["row"]: line for line in lines(file)}
    assert [found[row]["outcome"] for row in range(1, 8)] == [
        "sent", "sent", "sent", "rejected", "duplicate", "bad_row", "bad_row"
    ]  # fmt: skip
    assert [found[row]["recipient"] for row in (1, 4, 7)] == [digits(1)[0], digits(4)[3], "2348031200010"]
    assert (found[1]["pages"], found[1]["reference"][:6]) == (1, "cpaas-")
    assert found[1]["message_id"] in {one["message_id"] for one in stage.sandbox.inbox("sms")["items"]}
    assert found[7]["reason"] == "has no value for the placeholder name"
    assert "x" not in (found[6]["reason"] or "").split()
    assert counts(failed.report) == {"sent": 3, "rejected": 1, "bad_rows": 2, "duplicates": 1}


@FILES
def test_it_is_whole_also_when_the_task_failed_in_the_middle(stage: Stage, tmp_path: Path, name: str) -> None:
    small_packs(stage)
    stage.sandbox.control(*fault("send_sms", "unauthorized", after=2))
    run = sms(stage, rows(5), results_path=str(tmp_path / name))
    assert run.once().state == "failed"
    assert Counter(outcomes(tmp_path / name).values()) == {"sent": 2, "not_reached": 3}
    accept_all(stage)
    run.clear().once()
    assert Counter(outcomes(tmp_path / name).values()) == {"sent": 5}


def test_a_path_of_another_kind_is_refused_before_anything_is_sent(stage: Stage, tmp_path: Path) -> None:
    failed = sms(stage, rows(2), results_path=str(tmp_path / "o.csv")).once()
    assert (failed.state, stage.sandbox.counters()["sms"]["requests"]) == ("failed", 0)
    assert ".jsonl, .ndjson, .parquet" in failed.error


def test_a_file_that_cannot_be_written_is_tried_again_and_nothing_is_sent_twice(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    run = sms(stage, rows(3), results_path=str(tmp_path / "taken" / "o.jsonl"))
    first = run.once()
    assert (first.state, counts(first.report)) == ("up_for_retry", {"sent": 3})
    (tmp_path / "taken").unlink()
    second = run.once()
    assert (second.state, stage.sandbox.counters()["sms"]["requests"]) == ("success", 1)
    assert set(outcomes(tmp_path / "taken" / "o.jsonl").values()) == {"sent"}


def test_the_xcom_is_small_and_the_same_when_a_later_try_only_reports(stage: Stage) -> None:
    small_packs(stage, 2)
    run = sms(stage, rows(20), post_execute=FailsAfterwards(1))
    *_, second = run.to_the_end()
    assert len(json.dumps(second.result)) < 1000
    assert (second.result["requests"], second.result["charge"], second.result["sent"]) == (10, 80.0, 20)
    assert second.result["balance"] == stage.sandbox.counters()["balance"]


def test_at_most_a_hundred_references_are_named(stage: Stage) -> None:
    stage.connect("cpaas_default", recipients_per_request=1, max_concurrency=16)
    stage.sandbox.control(*fault("send_sms", "error_500_after", rate=0.6, seed=3))
    *_, last = sms(stage, rows(260), if_unknown="skip").to_the_end()
    report = last.result or last.report
    assert report["unknown"] > 100
    assert len(report["unknown_references"]) == 100


def test_progress_is_told_at_a_steady_pace_and_as_metrics(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    gauges: list[tuple[str, float, dict[str, str]]] = []

    def gauge(name: str, value: float, *_: Any, tags: dict[str, str], **__: Any) -> None:
        gauges.append((name, value, tags))

    monkeypatch.setattr("airflow.sdk.observability.stats.gauge", gauge)
    small_packs(stage)
    stage.sandbox.control(*fault("send_sms", "latency", ms=30))
    run = sms(stage, rows(10), progress_interval=0.05)
    done = run.once()
    told = [line for line in done.log.splitlines() if "recipients done" in line]
    assert len(told) >= 3
    assert "10 of 10 recipients done (100 %): 10 sent" in told[-1]
    last = {name: value for name, value, _ in gauges}
    assert (last["cpaas.campaign.sent"], last["cpaas.campaign.left"], last["cpaas.campaign.charge"]) == (10, 0, 40.0)
    assert gauges[0][2] == {"dag_id": run.dag.dag_id, "task_id": "campaign"}


def test_what_a_failing_try_could_not_do_stands_in_its_report(stage: Stage) -> None:
    stage.sandbox.control(*fault("send_sms", "rate_limit", times=ATTEMPTS, retry_after=0))
    first = sms(stage, rows(4)).once()
    assert (first.state, first.report["not_reached"], first.report["requests"]) == ("up_for_retry", 4, 0)
