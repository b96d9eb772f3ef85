"""``airflow cpaas balance``: the last balance that the service reported. No operation of it returns the balance."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from airflow.models.renderedtifields import RenderedTaskInstanceFields
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from sqlalchemy import Row, String, and_, cast, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from cpaas_provider.cli.running import FAILED, guarded
from cpaas_provider.cli.terminal import aside, print_lines, say, to_iso_time, warn
from cpaas_provider.database.activity.progress import CAMPAIGN
from cpaas_provider.database.database import open_database
from cpaas_provider.database.default_file import may_exist
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.database.schema.activity import task_progress
from cpaas_provider.database.schema.base import has_conn_id

NOT_ASKED = (
    "The service has no operation that returns a balance. It reports the balance with each send and purchase. This is "
    "the last one that a task of this Airflow recorded."
)
_KEYS = ("return_value", "report")
_FIELD = "balance"
_MOST = 2_000
"""How many results are searched, newest first."""


@guarded
def cpaas_balance(args: Namespace) -> None:
    """Show the last balance of each connection, or of one."""
    try:
        with create_session(scoped=False) as session:
            lines = _read_task_balances(session, args.conn_id)
    except SQLAlchemyError as error:
        raise SystemExit(
            f"Airflow's database cannot be read ({type(error).__name__}). Run `airflow db check`."
        ) from None
    lines = _newest([*lines, *_read_campaign_balances(args.conn_id)])
    if not lines:
        which = f" with connection {args.conn_id!r}" if args.conn_id else ""
        print_lines([], args.output)
        warn(
            "No balance is known. The service has no operation that returns a balance. It reports it with each send "
            f"and purchase, and no result of a task{which} has one."
        )
        raise SystemExit(FAILED)
    print_lines(lines, args.output)
    say(NOT_ASKED, aside(args))


def _newest(lines: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the newest line of each connection, the last one of those with the same time.

    Airflow reads one connection from the environment, in whatever case a DAG writes its id.
    """
    by_time = sorted(lines, key=lambda line: str(line["reported_at"]))
    newest = {line["conn_id"].lower(): line for line in by_time}
    return [newest[conn_id] for conn_id in sorted(newest)]


def _read_campaign_balances(conn_id: str | None) -> list[dict[str, Any]]:
    """Return the balances that campaigns recorded in the provider's database, running ones included."""
    if not may_exist():
        return []
    columns = task_progress.c
    query = select(task_progress).where(columns.kind == CAMPAIGN)
    if conn_id is not None:
        query = query.where(has_conn_id(columns.conn_id, conn_id))
    try:
        with open_database() as database, database.connect() as connection:
            rows = connection.execute(query.order_by(columns.started_at.desc()).limit(_MOST)).all()
    except DatabaseError as error:
        warn(f"{error} Balances that campaigns recorded there are left out.")
        return []
    return [
        _line(row.conn_id, balance, row.updated_at, row)
        for row in rows
        if (balance := _balance(row.figures)) is not None
    ]


def _read_task_balances(session: Session, conn_id: str | None) -> list[dict[str, Any]]:
    """Return the balances in the newest results of tasks, oldest first."""
    xcom, fields = XComModel, RenderedTaskInstanceFields
    # Airflow 3.4 stores both by task instance, Airflow 3.3 by the ids of one.
    ids = ("task_instance_id",) if hasattr(fields, "task_instance_id") else ("dag_id", "task_id", "run_id", "map_index")
    same = [getattr(xcom, name) == getattr(fields, name) for name in ids]
    query = (
        select(
            xcom.dag_id, xcom.run_id, xcom.task_id, xcom.map_index, xcom.value, xcom.timestamp, fields.rendered_fields
        )
        .join(fields, and_(*same))
        .where(xcom.key.in_(_KEYS), cast(xcom.value, String).contains(_FIELD))
        .order_by(xcom.timestamp.desc())
        .limit(_MOST)
    )
    return [
        _line(found, balance, row.timestamp.astimezone(UTC), row)
        for row in reversed(session.execute(query).all())
        if (found := _conn_id(row.rendered_fields)) is not None
        and (conn_id is None or conn_id.lower() == found.lower())
        and (balance := _balance(row.value)) is not None
    ]


def _line(conn_id: str, balance: float, moment: datetime, task: Row[Any]) -> dict[str, Any]:
    return {
        "conn_id": conn_id,
        "balance": balance,
        "reported_at": to_iso_time(moment),
        **{name: task._mapping[name] for name in ("dag_id", "run_id", "task_id", "map_index")},
    }


def _conn_id(fields: Any) -> str | None:
    """Return the connection in the rendered arguments of a task; ``None`` for a task of another provider."""
    found = fields.get("cpaas_conn_id") if isinstance(fields, Mapping) else None
    return found if isinstance(found, str) else None


def _balance(value: Any) -> float | None:
    """Return the balance in a result."""
    try:
        result = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return None
    found = result.get(_FIELD) if isinstance(result, Mapping) else None
    return found if isinstance(found, (int, float)) and not isinstance(found, bool) else None
