"""The campaigns that the pages show: lists with keyset pagination, and single campaigns."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from datetime import UTC, date, datetime, time
from typing import Any

from msgspec import Struct
from sqlalchemy import Connection, Select, select, tuple_

from cpaas_provider.database.schema.activity import task_progress
from cpaas_provider.database.schema.base import has_conn_id
from cpaas_provider.delivery.campaigns import (
    LEFT_OUT,
    CampaignFigures,
    CampaignRecord,
    CampaignState,
    TaskState,
)
from cpaas_provider.pages.summaries import Summary

PAGE_ROWS = 25

_SEPARATOR = "~"


class BadQuestionError(ValueError):
    """A parameter cannot be used."""


class Filter(Struct, frozen=True):
    """The filter of a list.

    :param first: the first day
    :param last: the last day
    :param before: the key of the last row of the previous page
    """

    conn_id: str | None = None
    dag_id: str | None = None
    first: date | None = None
    last: date | None = None
    before: tuple[datetime, str] | None = None

    @property
    def named(self) -> dict[str, str]:
        """The filter as parameters of a link, without ``before``."""
        values = {"conn_id": self.conn_id, "dag_id": self.dag_id, "first": self.first, "last": self.last}
        return {name: str(value) for name, value in values.items() if value}


def read_key(text: str) -> tuple[datetime, str]:
    """Parse the key of a row in a link.

    :raises BadQuestionError: when the text is no key
    """
    moment, _, reference = text.partition(_SEPARATOR)
    with contextlib.suppress(ValueError):
        if reference:
            return datetime.fromisoformat(moment).replace(tzinfo=UTC), reference
    raise BadQuestionError("The place in the list is not valid.")


def write_key(moment: datetime, reference: str) -> str:
    """Return the key of a row for a link."""
    return f"{moment.astimezone(UTC).replace(tzinfo=None).isoformat()}{_SEPARATOR}{reference}"


def page_of(
    query: Select[Any], moment: Any, reference: Any, before: tuple[datetime, str] | None, rows: int = PAGE_ROWS
) -> Select[Any]:
    """Return a query for the rows of one page, newest first, and one more if there is a further page.

    :param moment: the column with the time of a row
    :param reference: the column that tells rows of the same time apart
    :param before: the key of the last row of the previous page
    :param rows: the most rows of a page
    """
    if before is not None:
        query = query.where(tuple_(moment, reference) < tuple_(*before))
    return query.order_by(moment.desc(), reference.desc()).limit(rows + 1)


class CampaignRow(Struct, frozen=True):
    """One campaign or contact sync.

    :param figures: state and figures, as pages, JSON and command line show them
    :param task: Airflow's state of its task; ``None`` if that is not known
    :param summary: the delivery summary; ``None`` while it is being counted, or if no reports can arrive
    """

    record: CampaignRecord
    figures: CampaignFigures
    task: TaskState | None = None
    summary: Summary | None = None

    @property
    def state_kind(self) -> str:
        """The kind of the state, which names its colour."""
        return self.figures.state.name.lower().replace("_", "-")

    @property
    def left_out(self) -> dict[str, int]:
        """The number of recipients that a guard left out, or whose lookup failed, by the reason."""
        numbers = {name: int(self.record.report.get(name) or 0) for name in LEFT_OUT}
        return {name: number for name, number in numbers.items() if number}

    @property
    def rate(self) -> float | None:
        """Recipients a second."""
        rate = self.record.report.get("recipients_per_second")
        return None if rate is None else float(rate)

    @property
    def time_left(self) -> float | None:
        """The estimated seconds until all requests are sent."""
        is_sending, left = self.figures.state is CampaignState.SENDING, self.figures.not_sent
        return left / self.rate if is_sending and self.rate and left else None


def connections_by_dag(connection: Connection, kind: str) -> dict[str, set[str]]:
    """Return the ids of the DAGs with campaigns, each with the ids of the connections that the campaigns used."""
    columns = task_progress.c
    found: dict[str, set[str]] = {}
    for dag_id, conn_id in connection.execute(
        select(columns.dag_id, columns.conn_id).where(columns.kind == kind).distinct()
    ):
        found.setdefault(dag_id, set()).add(conn_id)
    return found


def list_names(
    connection: Connection, dag_ids: Iterable[str], wanted: Filter, kind: str, most: int = PAGE_ROWS
) -> list[tuple[datetime, str]]:
    """Return the keys of the newest rows of some DAGs: those of one page, and one more if there is a further page."""
    columns = task_progress.c
    allowed = [dag_id for dag_id in sorted(dag_ids) if wanted.dag_id in (None, dag_id)]
    query = select(columns.started_at, columns.reference).where(columns.kind == kind, columns.dag_id.in_(allowed))
    if wanted.conn_id is not None:
        query = query.where(has_conn_id(columns.conn_id, wanted.conn_id))
    if wanted.first is not None:
        query = query.where(columns.started_at >= datetime.combine(wanted.first, time.min, UTC))
    if wanted.last is not None:
        # Not "before the next midnight": the last possible date has none.
        query = query.where(columns.started_at <= datetime.combine(wanted.last, time.max, UTC))
    rows = connection.execute(page_of(query, columns.started_at, columns.reference, wanted.before, most))
    return [(row.started_at, row.reference) for row in rows]
