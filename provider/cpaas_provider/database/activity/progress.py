"""How far the campaigns and contact syncs are, as their tasks record it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Connection

from cpaas_provider.database.activity.upsert import upsert
from cpaas_provider.database.schema import task_progress

CAMPAIGN: Final = "campaign"
CONTACT_SYNC: Final = "contact_sync"

RUNNING: Final = "running"
WAITING: Final = "waiting"
FAILED: Final = "failed"
FINISHED: Final = "finished"


@dataclass(frozen=True, slots=True)
class RecordedTask:
    """The task instance that is at work.

    :param reference: what names its work in all tries
    :param kind: ``CAMPAIGN`` or ``CONTACT_SYNC``
    :param settings: what the author set, without anything personal
    """

    reference: str
    kind: str
    operation: str
    conn_id: str
    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    settings: Mapping[str, Any] = field(default_factory=dict)


def record_progress(connection: Connection, task: RecordedTask, state: str, figures: Mapping[str, Any]) -> None:
    """Record how far a task is. A later try continues the record of the earlier one.

    :param state: ``RUNNING``, ``WAITING`` (deferred), ``FAILED`` or ``FINISHED``
    """
    now = datetime.now(UTC)
    row = {
        **asdict(task),
        "settings": json.dumps(task.settings),
        "state": state,
        "started_at": now,
        "updated_at": now,
        "ended_at": now if state in (FAILED, FINISHED) else None,
        "figures": json.dumps(figures),
    }
    upsert(connection, task_progress, row, keep=("started_at",))
