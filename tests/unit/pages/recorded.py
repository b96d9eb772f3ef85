"""Campaigns as their tasks record them, written short."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import update

from cpaas_provider.database.activity.progress import CAMPAIGN, FINISHED, RecordedTask, record_progress
from cpaas_provider.database.database import Database
from cpaas_provider.database.schema.activity import task_progress

REPORT = {
    "recipients": 10,
    "sent": 8,
    "rejected": 1,
    "unknown_recipients": 0,
    "not_sent": 1,
    "invalid_rows": 3,
    "requests": 2,
    "charge": 12.5,
    "balance": 87.5,
    "recipients_per_second": 4.0,
    "delivery_reports": "callback",
    "results_path": "/data/results.jsonl",
}
BEGAN = datetime(2026, 5, 1, 12, tzinfo=UTC)


def campaign(
    database: Database,
    reference: str,
    *,
    dag_id: str = "spring_dag",
    conn_id: str = "shop",
    state: str = FINISHED,
    minutes: float = 0,
    silent: timedelta = timedelta(),
    map_index: int = -1,
    settings: dict[str, Any] | None = None,
    **figures: Any,
) -> None:
    """Have a campaign recorded.

    :param minutes: when it began, after all others
    :param silent: since when it has recorded nothing
    """
    task = RecordedTask(
        reference, CAMPAIGN, "send_sms", conn_id, dag_id, "run 1", "send", map_index, 1, settings or {"max_charge": 100}
    )
    database.write(lambda connection: record_progress(connection, task, state, {**REPORT, **figures}))
    moved = {
        "started_at": BEGAN + timedelta(minutes=minutes),
        "updated_at": datetime.now(UTC) - silent,
    }
    mine = task_progress.c.reference == reference
    database.write(lambda connection: connection.execute(update(task_progress).where(mine).values(moved)))
