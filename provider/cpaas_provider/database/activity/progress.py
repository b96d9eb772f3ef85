"""The progress of campaigns and contact syncs, as their tasks record it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Connection

from cpaas_provider.database.activity.upsert import upsert
from cpaas_provider.database.schema.activity import task_progress

CAMPAIGN: Final = "campaign"
CONTACT_SYNC: Final = "contact_sync"

RUNNING: Final = "running"
WAITING: Final = "waiting"
FAILED: Final = "failed"
FINISHED: Final = "finished"


@dataclass(frozen=True, slots=True)
class RecordedTask:
    """A task instance that sends a campaign or syncs contacts.

    :param reference: identifies the campaign or sync; the same in all tries
    :param kind: ``CAMPAIGN`` or ``CONTACT_SYNC``
    :param settings: the operator's arguments to show on the page, without personal data
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
    """Record the progress of a task. A later try continues the record of the earlier one.

    :param state: ``RUNNING``, ``WAITING`` (deferred), ``FAILED`` or ``FINISHED``
    :param figures: counts and money by name
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
