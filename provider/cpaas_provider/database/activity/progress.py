"""The progress of campaigns and contact syncs, as their tasks record it."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import asdict
from sqlalchemy import Connection, and_, or_, select, update

from cpaas_provider.database.activity.upsert import insert_into
from cpaas_provider.database.schema.activity import task_progress

CAMPAIGN: Final = "campaign"
CONTACT_SYNC: Final = "contact_sync"

RUNNING: Final = "running"
WAITING: Final = "waiting"
FAILED: Final = "failed"
FINISHED: Final = "finished"

_RESOLVED = "resolved_requests"
"""The figure with the requests that a person resolved since the task last recorded its progress."""


class RecordedTask(Struct, frozen=True):
    """A task instance that sends a campaign or syncs contacts.

    :param reference: identifies the campaign or sync; the same in all tries
    :param try_number: which try it is, as Airflow counts
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
    try_number: int = 1
    settings: Mapping[str, Any] = field(default_factory=dict)


def record_progress(connection: Connection, task: RecordedTask, state: str, figures: Mapping[str, Any]) -> None:
    """Record the progress of a task. A later try continues the record of the earlier one.

    A try that Airflow has replaced may still run: what it records after a later try is ignored. Another run that
    continues a campaign with an ``idempotency_key`` counts its tries anew.

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
    connection.execute(_upsert(connection.dialect.name), [row])


def record_resolved(
    connection: Connection,
    reference: str | None,
    place: tuple[str, str, str, int],
    sent: Mapping[str, int],
    not_sent: Mapping[str, int],
) -> list[str]:
    """Record that a person established the outcome of requests, which no try of the task has recorded yet.

    A request counts once, also if its resolution is recorded again.

    :param reference: the campaign; ``None`` for the one that the task instance sends
    :param sent: the number of recipients of unknown outcome that were sent to, by the reference of their request
    :param not_sent: the number of those that were not
    :return: the campaigns whose figures were changed, now or before
    """
    columns = task_progress.c
    is_place = zip((columns.dag_id, columns.run_id, columns.task_id, columns.map_index), place, strict=True)
    is_row = [columns.reference == reference] if reference else [column == value for column, value in is_place]
    query = select(columns.reference, columns.figures).where(columns.kind == CAMPAIGN, *is_row).with_for_update()
    rows = connection.execute(query).all()
    for name, stored in rows:
        figures = json.loads(stored)
        resolved = set(figures.get(_RESOLVED, ()))
        more_sent, more_not_sent = (
            sum(number for request, number in requests.items() if request not in resolved)
            for requests in (sent, not_sent)
        )
        figures[_RESOLVED] = sorted(resolved.union(sent, not_sent))
        figures["unknown_recipients"] = max(0, figures.get("unknown_recipients", 0) - more_sent - more_not_sent)
        figures["sent"] = figures.get("sent", 0) + more_sent
        # Of a try that was killed, the recipients of unknown outcome still count as not sent to.
        rest = figures.get("recipients", 0) - sum(
            figures.get(key, 0) for key in ("sent", "unknown_recipients", "rejected")
        )
        figures["not_sent"] = max(0, min(rest, figures.get("not_sent", 0) + more_not_sent))
        is_name = columns.reference == name
        connection.execute(update(task_progress).where(is_name).values(figures=json.dumps(figures)))
    return [row.reference for row in rows]


@functools.cache
def _upsert(dialect: str) -> Any:
    stored, insert = task_progress.c, insert_into(dialect, task_progress)
    is_same_task = and_(
        *(insert.excluded[name] == stored[name] for name in ("dag_id", "run_id", "task_id", "map_index"))
    )
    return insert.on_conflict_do_update(
        index_elements=[stored.reference],
        set_={name: insert.excluded[name] for name in stored.keys() if name not in ("reference", "started_at")},  # noqa: SIM118 - of columns
        where=or_(~is_same_task, insert.excluded.try_number >= stored.try_number),
    )
