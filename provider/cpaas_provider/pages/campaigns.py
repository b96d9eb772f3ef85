"""The campaigns that the pages show: lists with keyset pagination, and single campaigns."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from sqlalchemy import Connection, Row, Select, select, tuple_

from cpaas_provider.database.activity.progress import FAILED, FINISHED, RUNNING, WAITING
from cpaas_provider.database.schema.activity import task_progress
from cpaas_provider.database.schema.delivery import sends
from cpaas_provider.delivery.tracking.counts import DeliveryCounts, SendCounts, read_sends
from cpaas_provider.delivery.tracking.sent_requests import count_recorded_recipients
from cpaas_provider.pages.summaries import Summary

PAGE_ROWS = 25

SILENT_AFTER = timedelta(minutes=10)
"""A running task that has recorded no progress for this long was probably killed."""

_CHANNELS = {"send_sms": "SMS", "send_email": "Email", "buy_airtime": "Airtime"}
_SEPARATOR = "~"

_STATES = {RUNNING: "sending", WAITING: "waiting", FAILED: "failed", FINISHED: "sent"}


class BadQuestionError(ValueError):
    """A parameter cannot be used."""


@dataclass(frozen=True)
class Filter:
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


def page_of(query: Select[Any], moment: Any, reference: Any, before: tuple[datetime, str] | None) -> Select[Any]:
    """Return a query for the rows of one page, newest first, and one more if there is a further page.

    :param moment: the column with the time of a row
    :param reference: the column that tells rows of the same time apart
    :param before: the key of the last row of the previous page
    """
    if before is not None:
        query = query.where(tuple_(moment, reference) < tuple_(*before))
    return query.order_by(moment.desc(), reference.desc()).limit(PAGE_ROWS + 1)


@dataclass(frozen=True)
class CampaignRow:
    """One campaign.

    :param figures: the campaign's report as its task last recorded it
    :param accepted: the number of recipients the service accepted
    :param unknown: the number of recipients of unknown outcome that no report is about
    :param summary: the delivery summary; ``None`` while it is being counted, or if no reports can arrive
    """

    reference: str
    operation: str
    conn_id: str
    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    recorded_state: str
    started_at: datetime
    updated_at: datetime
    ended_at: datetime | None
    figures: Mapping[str, Any]
    settings: Mapping[str, Any]
    accepted: int
    unknown: int
    summary: Summary | None = None

    @property
    def channel(self) -> str:
        """The kind of messages."""
        return _CHANNELS.get(self.operation, self.operation)

    @property
    def is_tracked(self) -> bool:
        """Whether delivery reports count for the campaign."""
        return self.figures.get("delivery_reports") is not None

    @property
    def state(self) -> str:
        """The state to show, in one word."""
        if self.recorded_state == RUNNING and datetime.now(UTC) - self.updated_at > SILENT_AFTER:
            return "silent"
        if self.recorded_state == FINISHED and self.is_tracked and (self.open or (self.counts and self.unknown)):
            return "reporting"
        if self.recorded_state == FINISHED and self.is_tracked and self.summary is not None:
            return "complete"
        return _STATES.get(self.recorded_state, self.recorded_state)

    @property
    def will_change(self) -> bool:
        """Whether the figures may change soon."""
        return self.state in ("sending", "waiting", "reporting") or (self.is_tracked and self.summary is None)

    @property
    def counts(self) -> DeliveryCounts | None:
        """The delivery counts, ``None`` while they are being counted."""
        return self.summary.counts if self.is_tracked and self.summary is not None else None

    @property
    def open(self) -> int | None:
        """The number of accepted recipients without a final status."""
        counts = self.counts
        return None if counts is None else counts.expected(self.accepted) - counts.final

    @property
    def recipients(self) -> int:
        """The number of all recipients."""
        return int(self.figures.get("recipients", 0))

    @property
    def left_out(self) -> int:
        """The number of recipients that a guard left out, or whose lookup failed."""
        names = ("not_allowed", "suppressed", "dnd", "frequency_capped", "lookup_failed")
        return sum(int(self.figures.get(name) or 0) for name in names)

    @property
    def rate(self) -> float | None:
        """Recipients a second."""
        rate = self.figures.get("recipients_per_second")
        return None if rate is None else float(rate)

    @property
    def time_left(self) -> float | None:
        """The estimated seconds until all requests are sent."""
        left = int(self.figures.get("not_sent", 0))
        return left / self.rate if self.state == "sending" and self.rate and left else None

    @property
    def parts(self) -> list[tuple[str, int]]:
        """The kinds and numbers of the parts of the bar."""
        counts = self.counts or DeliveryCounts()
        accepted = self.accepted
        open_ = accepted - counts.final if self.open is None else self.open
        numbers = {
            "delivered": counts.delivered,
            "undelivered": counts.undelivered,
            "open" if self.is_tracked else "accepted": max(0, open_),
            "unknown": self.unknown,
            "rejected": int(self.figures.get("rejected", 0)),
            "left": int(self.figures.get("not_sent", 0)),
        }
        return [(kind, count) for kind, count in numbers.items() if count]


def connections_by_dag(connection: Connection, kind: str) -> dict[str, set[str]]:
    """Return the ids of the DAGs with campaigns, each with the ids of the connections that the campaigns used."""
    columns = task_progress.c
    found: dict[str, set[str]] = {}
    for dag_id, conn_id in connection.execute(
        select(columns.dag_id, columns.conn_id).where(columns.kind == kind).distinct()
    ):
        found.setdefault(dag_id, set()).add(conn_id)
    return found


def list_rows(connection: Connection, dag_ids: Iterable[str], wanted: Filter, kind: str) -> list[CampaignRow]:
    """Return the newest rows of some DAGs: those of one page, and one more if there is a further page."""
    columns = task_progress.c
    allowed = [dag_id for dag_id in sorted(dag_ids) if wanted.dag_id in (None, dag_id)]
    query = select(task_progress).where(columns.kind == kind, columns.dag_id.in_(allowed))
    if wanted.conn_id is not None:
        query = query.where(columns.conn_id == wanted.conn_id)
    if wanted.first is not None:
        query = query.where(columns.started_at >= datetime.combine(wanted.first, time.min, UTC))
    if wanted.last is not None:
        # Not "before the next midnight": the last possible date has none.
        query = query.where(columns.started_at <= datetime.combine(wanted.last, time.max, UTC))
    rows = connection.execute(page_of(query, columns.started_at, columns.reference, wanted.before)).all()
    known = read_sends(connection, (row.reference for row in rows))
    return [_row(row, known[row.reference]) for row in rows]


def find_campaign(connection: Connection, reference: str) -> CampaignRow | None:
    """Return a campaign, or a single message that was sent with a callback; ``None`` if there is neither."""
    progress = connection.execute(select(task_progress).where(task_progress.c.reference == reference)).first()
    known = read_sends(connection, [reference]).get(reference, SendCounts())
    if progress is not None:
        return _row(progress, known)
    send = connection.execute(select(sends).where(sends.c.campaign == reference)).first()
    return None if send is None else _of_send(connection, send, known)


def _row(row: Row[Any], known: SendCounts) -> CampaignRow:
    values = dict(row._mapping)
    del values["kind"]
    values["recorded_state"] = values.pop("state")
    values["figures"] = json.loads(values["figures"])
    values["settings"] = json.loads(values["settings"])
    return CampaignRow(**values, accepted=known.accepted or 0, unknown=known.unknown or 0)


def _of_send(connection: Connection, send: Row[Any], known: SendCounts) -> CampaignRow:
    """Return the row of a send of which only the records for delivery tracking exist."""
    accepted = known.accepted
    if accepted is None:
        accepted = count_recorded_recipients(connection, send.campaign)
    unknown = known.unknown or 0
    same = ("operation", "conn_id", "dag_id", "run_id", "task_id", "map_index", "started_at", "ended_at")
    return CampaignRow(
        **{name: send._mapping[name] for name in same},
        reference=send.campaign,
        recorded_state=RUNNING if send.ended_at is None else FINISHED,
        updated_at=send.ended_at or send.started_at,
        figures={
            "recipients": accepted + unknown,
            "sent": accepted,
            "unknown_recipients": unknown,
            "delivery_reports": "callback",
        },
        settings={},
        accepted=accepted,
        unknown=unknown,
    )
