"""How long each stage takes from a report's arrival to the end of the task that waited for it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from tests.benchmarks.waiting.percentiles import three
from tests.system.killing.parts import AirflowInParts

FIRED = "Trigger fired event"
STAGES = {
    "arrival to our event": ("arrived", "fired"),
    "event to scheduled (triggerer)": ("fired", "scheduled"),
    "scheduled to queued (scheduler)": ("scheduled", "queued"),
    "queued to resumed (worker)": ("queued", "resumed"),
    "resumed to done (task)": ("resumed", "done"),
    "event to done (Airflow in all)": ("fired", "done"),
    "arrival to done": ("arrived", "done"),
}

Moments = Mapping[str, float]
"""When a task instance came to which stage, as seconds since 1970."""


def moments(airflow: AirflowInParts, notes: Path, arrived: Mapping[tuple[str, int], float]) -> dict[str, list[Moments]]:
    """Return what is known of each task instance that ended well, by task."""
    found: dict[str, list[Moments]] = {}
    query = (
        "SELECT task_id, map_index, scheduled_dttm, queued_dttm, end_date FROM task_instance WHERE state = 'success'"
    )
    fired = dict(_fired(airflow.home / "logs"))
    for task, index, *stamps in airflow.query(query):
        key = task, index
        if key in arrived and key in fired:
            scheduled, queued, done = (
                datetime.fromisoformat(stamp).replace(tzinfo=UTC).timestamp() for stamp in stamps
            )
            resumed = float((notes / f"{task}-{index}").read_text())
            found.setdefault(task, []).append(
                {
                    "arrived": arrived[key], "fired": fired[key], "scheduled": scheduled, "queued": queued,
                    "resumed": resumed, "done": done,
                }
            )  # fmt: skip
    return found


def _fired(logs: Path) -> Iterator[tuple[tuple[str, int], float]]:
    """Tell when triggers fired, by what the triggerer wrote into their tasks' logs."""
    for log in logs.glob("dag_id=*/run_id=*/task_id=*/map_index=*/*.trigger.*"):
        place = dict(part.split("=", 1) for part in log.parts if "=" in part)
        for line in log.read_text().splitlines():
            if FIRED in line:
                told = datetime.fromisoformat(json.loads(line)["timestamp"])
                yield (place["task_id"], int(place["map_index"])), told.timestamp()


def table(found: Mapping[str, list[Moments]]) -> str:
    """Return a line for each stage, a column for each task; p50 / p95 / most in milliseconds."""
    heads = [f"{task} ({len(ones)})" for task, ones in found.items()]
    lines = [f"| p50 / p95 / most, ms | {' | '.join(heads)} |", f"|---|{'--:|' * len(heads)}"]
    for stage, (begins, ends) in STAGES.items():
        cells = [three([one[ends] - one[begins] for one in ones], 95) for ones in found.values()]
        lines.append(f"| {stage} | {' | '.join(cells)} |")
    return "\n".join(lines)
