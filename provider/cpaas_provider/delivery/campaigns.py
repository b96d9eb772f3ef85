"""What is known of campaigns: states and figures, the same for the pages, their JSON and the command line.

Three records are read: the progress that the task recorded, the requests and the end that delivery tracking recorded,
and delivery reports. They are written at different moments, and a killed task leaves them behind. So no figure is shown
as one of them has it: all of them together decide what each recipient counts as.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from msgspec import Struct, field
from msgspec.structs import asdict
from sqlalchemy import Connection, Row, select

from cpaas_provider.database.activity.progress import FAILED, FINISHED, RUNNING, WAITING
from cpaas_provider.database.bulk import select_among
from cpaas_provider.database.schema.activity import task_progress
from cpaas_provider.database.schema.delivery import sends
from cpaas_provider.delivery.tracking.counts import (
    MAX_REPORT_WAIT,
    DeliveryCounts,
    SendCounts,
    read_counts,
    read_sends,
)

SILENT_AFTER = timedelta(minutes=10)
"""A running task that has recorded no progress for this long was probably killed, if Airflow does not know better."""

_MOST_SKEW = timedelta(seconds=5)
"""How far the clocks of Airflow and of this process may differ, and how long apart their states are read."""

LEFT_OUT = ("not_allowed", "suppressed", "dnd", "frequency_capped", "lookup_failed")
"""The figures of a report about recipients that a guard left out, or whose lookup failed."""

_CHANNELS = {"send_sms": "SMS", "send_email": "Email", "buy_airtime": "Airtime"}

_ALIVE = frozenset({"running", "restarting"})
_CONTINUES = _ALIVE | {"deferred", "scheduled", "queued", "up_for_reschedule", "awaiting_input"}
_TRIES_AGAIN = _CONTINUES | {"up_for_retry"}


class CampaignState(StrEnum):
    """The state of a campaign, in the words of pages, JSON and command line."""

    SENDING = "sending"
    WAITING = "waiting"
    """Its task is deferred, and continues later."""

    INTERRUPTED = "interrupted"
    """Its try is over, and has not recorded its end: it was killed."""

    SILENT = "no sign of life"
    """It has recorded no progress for long, and Airflow's state of the task is not known."""

    FAILED = "failed"
    SENT = "sent"
    """Its task ended, and no delivery report counts for it, or reports are still being counted."""

    WAITING_FOR_REPORTS = "waiting for reports"
    ALL_REPORTED = "all reported"
    REPORTS_MISSING = "reports missing"
    """Recipients have no final status, so long after the end of the task that nothing waits for them any more."""


Place = tuple[str, str, str, int]
"""A task instance: DAG, run, task and map index."""


class TaskState(Struct, frozen=True):
    """Airflow's own state of a task instance.

    :param state: ``None`` if Airflow has not set one, such as after a clear
    :param changed_at: when the row last changed; ``None`` if that is not known
    :param retry_at: when Airflow tries again, if that is known
    """

    state: str | None
    try_number: int
    changed_at: datetime | None = None
    retry_at: datetime | None = None

    @property
    def word(self) -> str:
        """The state in words."""
        return (self.state or "no state").replace("_", " ")


class CampaignCounts(NamedTuple):
    """What is counted of a campaign's requests and reports at one moment.

    :param accepted: the number of recipients that are recorded as accepted
    """

    accepted: int
    deliveries: DeliveryCounts


class CampaignFigures(Struct, frozen=True):
    """What the recipients of a campaign count as. Each recipient is in one part, so the parts never exceed the whole.

    :param recipients: the number of all recipients
    :param accepted: those that the service accepted, by its response or because a delivery report proves it
    :param unknown: those that may have been sent to. No report is about them
    :param is_most: whether the unknown ones are the most there can be: a killed try did not record which it sent to
    :param open: the accepted ones without a final status: in flight, or not reported
    """

    state: CampaignState
    recipients: int
    accepted: int
    rejected: int
    unknown: int
    not_sent: int
    is_most: bool = False
    delivered: int | None = None
    undelivered: int | None = None
    in_flight: int | None = None
    unreported: int | None = None
    will_change: bool = False

    @property
    def open(self) -> int | None:
        """The number of accepted recipients without a final status; ``None`` if no reports are counted."""
        return None if self.in_flight is None or self.unreported is None else self.in_flight + self.unreported

    @property
    def parts(self) -> list[tuple[str, int]]:
        """The kinds of recipients and their numbers, without those that are 0."""
        accepted = {"delivered": self.delivered, "undelivered": self.undelivered, "open": self.open}
        if self.open is None:
            accepted = {"accepted": self.accepted}
        parts = {**accepted, "unknown": self.unknown, "rejected": self.rejected, "not sent": self.not_sent}
        return [(kind, count) for kind, count in parts.items() if count]

    def as_json(self) -> dict[str, Any]:
        """Return the figures by name."""
        return {**asdict(self), "state": str(self.state), "open": self.open}


class CampaignRecord(Struct, frozen=True):
    """A campaign, or a single message that was sent with a callback.

    :param recorded_state: of ``activity.progress``
    :param report: the campaign's report as its task last recorded it; empty for a single message
    :param sent: the numbers of recipients accepted and unknown
    :param has_ended: whether delivery tracking has the number of recipients of all tries. Not while a later try works
    :param is_tracked: whether delivery reports count for it
    :param read_at: when reading began
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
    sent: SendCounts
    has_ended: bool
    is_tracked: bool
    read_at: datetime
    try_number: int | None = None
    report: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def place(self) -> Place:
        """Its task instance."""
        return self.dag_id, self.run_id, self.task_id, self.map_index

    @property
    def channel(self) -> str:
        """The kind of messages."""
        return _CHANNELS.get(self.operation, self.operation)

    @property
    def has_progress(self) -> bool:
        """Whether its task recorded its progress."""
        return self.try_number is not None

    @property
    def size(self) -> int:
        """The approximate number of its recipients."""
        return max(self.sent.accepted or 0, self._reported("recipients"))

    def _reported(self, name: str) -> int:
        number = self.report.get(name)
        return number if isinstance(number, int) else 0

    def _is_over(self, task: TaskState | None) -> bool:
        """Return whether the try that recorded the progress is over, although it has recorded no end."""
        if task is None or self.try_number is None or task.try_number < self.try_number:
            # A later try may have begun since Airflow's state was read.
            return False
        if task.try_number > self.try_number:
            return True
        if task.changed_at is not None and task.changed_at >= self.read_at - _MOST_SKEW:
            # It may have recorded its end meanwhile.
            return False
        return task.state not in (_ALIVE if self.recorded_state == RUNNING else _CONTINUES)

    def figures(
        self, counts: CampaignCounts | None, task: TaskState | None = None, *, is_current: bool = True
    ) -> CampaignFigures:
        """Return state and figures.

        :param counts: ``None`` while they are being counted
        :param task: Airflow's state of the task; ``None`` if it is not known
        :param is_current: whether nothing changed since the counts were made
        """
        is_over = self.recorded_state in (RUNNING, WAITING) and self._is_over(task)
        is_alive = task is not None and task.state in _ALIVE and not is_over
        is_silent = self.recorded_state == RUNNING and not is_alive and self.read_at - self.updated_at > SILENT_AFTER
        deliveries = DeliveryCounts() if counts is None else counts.deliveries
        accepted = self.sent.accepted or 0
        if counts is not None:
            # Recipients of requests that are not recorded yet count as accepted if a report is about them.
            accepted = max(accepted, counts.deliveries.expected(counts.accepted))
        unknown = self.sent.unknown or 0
        if not self.has_ended:
            unknown = deliveries.unknown_without_report(unknown)
        rejected = self._reported("rejected")
        if self.recorded_state == RUNNING and self.has_progress:
            # In the progress, unknown recipients that are sent to again stay unknown until the try ends.
            unknown = min(unknown, max(0, self._reported("recipients") - accepted - rejected))
        rest = max(0, self._reported("recipients") - accepted - rejected - unknown)
        not_sent = min(self._reported("not_sent"), rest)
        # A request leaves before the progress is recorded, so what a killed try has sent may be any of the rest.
        is_most = self.recorded_state == RUNNING and (is_over or is_silent) and rest > 0
        if is_most:
            unknown, not_sent = unknown + rest, 0
        recipients = max(self._reported("recipients"), accepted + rejected + unknown + not_sent)
        of_reports: dict[str, int] = {}
        if counts is not None:
            of_reports = {name: getattr(deliveries, name) for name in ("delivered", "undelivered", "in_flight")}
            of_reports["unreported"] = accepted - deliveries.known
        remaining = accepted - deliveries.final + unknown
        waits = self.read_at - (self.ended_at or self.updated_at) < MAX_REPORT_WAIT
        state = self._state(is_over=is_over, is_silent=is_silent)
        if state is CampaignState.SENT and counts is not None:
            state = CampaignState.WAITING_FOR_REPORTS
            if is_current and not remaining:
                state = CampaignState.ALL_REPORTED
            elif is_current and not waits:
                state = CampaignState.REPORTS_MISSING
        return CampaignFigures(
            state,
            recipients,
            accepted,
            rejected,
            unknown,
            not_sent,
            is_most=is_most,
            **of_reports,
            will_change=(
                state in (CampaignState.SENDING, CampaignState.WAITING)
                or (state is not CampaignState.SENT and task is not None and task.state in _TRIES_AGAIN)
                or (
                    self.is_tracked
                    and (counts is None or not is_current or (waits and remaining > 0 and not is_silent))
                )
            ),
        )

    def _state(self, *, is_over: bool, is_silent: bool) -> CampaignState:
        if is_over:
            return CampaignState.INTERRUPTED
        if is_silent:
            return CampaignState.SILENT
        return {
            RUNNING: CampaignState.SENDING,
            WAITING: CampaignState.WAITING,
            FAILED: CampaignState.FAILED,
            FINISHED: CampaignState.SENT,
        }[self.recorded_state]


def read_campaigns(connection: Connection, references: Iterable[str]) -> dict[str, CampaignRecord]:
    """Return campaigns and single messages by reference, in the order of the references.

    Delivery tracking knows those with delivery reports, the pages those whose tasks recorded progress.
    """
    read_at = datetime.now(UTC)
    names = list(dict.fromkeys(references))
    progress = {
        row.reference: row for row in select_among(connection, select(task_progress), task_progress.c.reference, names)
    }
    tracked = {row.campaign: row for row in select_among(connection, select(sends), sends.c.campaign, names)}
    known = read_sends(connection, names)
    return {
        name: _record(name, progress.get(name), tracked.get(name), known.get(name, SendCounts()), read_at)
        for name in names
        if name in progress or name in tracked
    }


def _record(
    reference: str, progress: Row[Any] | None, send: Row[Any] | None, sent: SendCounts, read_at: datetime
) -> CampaignRecord:
    row: Any = send if progress is None else progress
    report = {} if progress is None else json.loads(progress.figures)
    names = ("operation", "dag_id", "run_id", "task_id", "map_index", "started_at", "ended_at")
    if progress is None:
        own: dict[str, Any] = {
            "recorded_state": RUNNING if row.ended_at is None else FINISHED,
            "updated_at": row.ended_at or row.started_at,
        }
    else:
        own = {
            "recorded_state": row.state,
            "updated_at": row.updated_at,
            "try_number": row.try_number,
            "report": report,
            "settings": json.loads(row.settings),
        }
    return CampaignRecord(
        reference,
        **{name: getattr(row, name) for name in names},
        # Reports are stored under the id that delivery tracking has. A DAG may write it in other upper and lower case.
        conn_id=row.conn_id if send is None else send.conn_id,
        **own,
        sent=sent,
        has_ended=send is not None and send.expected is not None and send.unknown is not None,
        is_tracked=send is not None or report.get("delivery_reports") is not None,
        read_at=read_at,
    )


def read_campaign_counts(connection: Connection, records: Iterable[CampaignRecord]) -> dict[str, CampaignCounts]:
    """Count the requests and reports of campaigns, in a bounded number of queries. Those without reports are left out.

    The time it takes grows with the number of their recipients.
    """
    wanted = {record.reference: record for record in records if record.is_tracked}
    deliveries = read_counts(connection, wanted)
    return {
        name: CampaignCounts(record.sent.accepted or 0, deliveries.get(name, DeliveryCounts()))
        for name, record in wanted.items()
    }
