"""``airflow cpaas campaigns list | show`` and ``deliveries show``, and their queries on the provider's database."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct
from sqlalchemy import ColumnElement, Connection, Row, Select, Table, and_, exists, func, or_, select

from cpaas_provider.api.recipients.reader import mask_recipient
from cpaas_provider.api.redact import redact
from cpaas_provider.cli.running import guarded
from cpaas_provider.cli.terminal import READABLE, aside, print_lines, print_record, say, to_iso_time, warn
from cpaas_provider.database.activity.progress import CAMPAIGN
from cpaas_provider.database.bulk import select_among
from cpaas_provider.database.schema.activity import task_progress
from cpaas_provider.database.schema.base import has_conn_id
from cpaas_provider.database.schema.delivery import RequestState, deliveries, requests, sends
from cpaas_provider.delivery.campaigns import (
    LEFT_OUT,
    CampaignCounts,
    CampaignRecord,
    TaskState,
    read_campaign_counts,
    read_campaigns,
)
from cpaas_provider.delivery.reports import DeliveryStatus
from cpaas_provider.delivery.tracking.counts import (
    IS_COUNTED,
    DeliveryCounts,
    is_in_state,
    open_report_database,
    read_counts,
)
from cpaas_provider.delivery.tracking.request_recipients import UNNAMED_PREFIX, UNTRACKED_PREFIX
from cpaas_provider.tasks.airflow.task_states import read_task_states

_COPIED = frozenset({"reference", "campaign"})
# The columns of a table. Other formats have all columns.
_IN_TABLE = (
    *("reference", "started_at", "dag_id", "task_id", "state", "task_state"),
    *("accepted", "delivered", "undelivered", "open", "unknown", "not_sent"),
)
_OF_DELIVERY = ("recipient", "outcome", "status", "reason", "reported_at", "reference")
_NONE_FOUND = "No campaign found. The provider's database has each campaign from the moment that its task begins."
_REASONS = 20
_GROUPS = 10_000


@guarded
def cpaas_campaigns_list(args: Namespace) -> None:
    """List campaigns, newest first."""
    filters = _Filters.of(args)
    with open_report_database() as database, database.connect(one_moment=True) as connection:
        found = _find_names(connection, filters, args.limit + 1, singles=args.single_messages)
        lines = _describe(connection, list(read_campaigns(connection, found[: args.limit]).values()))
    table = [{name: line[name] for name in _IN_TABLE} for line in lines] if args.output == "table" else lines
    print_lines(table, args.output, _COPIED)
    beside = aside(args)
    if not lines:
        say(_NONE_FOUND, beside)
    if len(found) > len(lines):
        say(f"Only the newest {args.limit} are shown. Raise --limit, or narrow with the filters.", beside)


@guarded
def cpaas_campaigns_show(args: Namespace) -> None:
    """Show one campaign."""
    with open_report_database() as database, database.connect(one_moment=True) as connection:
        send = _find_send(connection, args.reference)
        if send is None:
            raise SystemExit(
                "The provider's database has no campaign and no request with this reference. `airflow cpaas campaigns "
                "list --single-messages` lists them."
            )
        record = _details(connection, send)
        reasons = _reasons(connection, send.reference)
    if args.output not in READABLE:
        print_record({**record, "reasons": reasons}, args.output)
        return
    print_record(record, args.output)
    print_lines(reasons, args.output)
    say(f"For each recipient: airflow cpaas deliveries show {send.reference}", aside(args))


@guarded
def cpaas_deliveries_show(args: Namespace) -> None:
    """Show the delivery status of recipients."""
    filters = _Filters.of(args)
    outcome = None if args.outcome is None else DeliveryStatus[args.outcome.upper()]
    with open_report_database() as database, database.connect() as connection:
        lines = _read_deliveries(connection, filters, args.reference, outcome, args.limit + 1)
    shown = lines[: args.limit]
    table = [{name: line[name] for name in _OF_DELIVERY} for line in shown] if args.output == "table" else shown
    print_lines(table, args.output, _COPIED)
    if len(lines) > len(shown):
        warn(f"Only the newest {args.limit} are shown. Raise --limit, or narrow with the filters.")
    if not shown:
        say(
            "No delivery report found. A recipient is here once the receiver has stored a report, or the task has "
            "track_recipients.",
            aside(args),
        )


class _Filters(Struct, frozen=True):
    """The conditions on sends that the options of a command give.

    :param since: from this time on
    :param until: before this time
    """

    conn_id: str | None
    dag_id: str | None
    run_id: str | None
    since: datetime | None
    until: datetime | None

    @classmethod
    def of(cls, args: Namespace) -> _Filters:
        """Return the conditions from the options.

        :raises SystemExit: when a time cannot be read
        """
        since, until = _moment("--since", args.since), _moment("--until", args.until)
        return cls(args.conn_id, args.dag_id, args.run_id, since, until)

    def conditions(self, table: Table) -> list[ColumnElement[bool]]:
        """Return the conditions for a query on a table of sends."""
        return [*self.connection(table), *self.runs(table), *self.times(table.c.started_at)]

    def connection(self, table: Table) -> list[ColumnElement[bool]]:
        """Return the condition on the connection."""
        return [] if self.conn_id is None else [has_conn_id(table.c.conn_id, self.conn_id)]

    def runs(self, table: Table) -> list[ColumnElement[bool]]:
        """Return the conditions on DAG and run."""
        values = {"dag_id": self.dag_id, "run_id": self.run_id}
        return [table.c[name] == value for name, value in values.items() if value is not None]

    def times(self, column: Any) -> list[ColumnElement[bool]]:
        """Return the conditions on a column with a time."""
        since = [] if self.since is None else [column >= self.since]
        return since if self.until is None else [*since, column < self.until]


def _moment(option: str, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise SystemExit(f"{option} is not a date or time in ISO 8601, such as 2026-05-01.") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


_IS_SINGLE = exists().where(
    requests.c.conn_id == sends.c.conn_id,
    requests.c.reference == sends.c.campaign,
    requests.c.campaign == sends.c.campaign,
)
"""Whether a send is one request that belongs to no campaign."""


def _find_names(connection: Connection, filters: _Filters, limit: int, *, singles: bool) -> list[str]:
    """Return the names of sends, newest first.

    :param singles: with requests that belong to no campaign
    """
    campaigns = select(task_progress.c.reference, task_progress.c.started_at).where(
        task_progress.c.kind == CAMPAIGN, *filters.conditions(task_progress)
    )
    newest = task_progress.c.started_at.desc(), task_progress.c.reference
    # Single requests, and campaigns of older versions of the provider, have no row in task_progress.
    others = select(sends.c.campaign, sends.c.started_at).where(
        *filters.conditions(sends), ~exists().where(task_progress.c.reference == sends.c.campaign)
    )
    if not singles:
        others = others.where(~_IS_SINGLE)
    others = others.order_by(sends.c.started_at.desc(), sends.c.campaign)
    found = [row for query in (campaigns.order_by(*newest), others) for row in connection.execute(query.limit(limit))]
    return [name for name, started_at in sorted(found, key=lambda row: (-row[1].timestamp(), row[0]))[:limit]]


def _find_send(connection: Connection, reference: str) -> CampaignRecord | None:
    """Return the send that a reference names. It is the reference of the campaign or of one of its requests."""
    campaign = select(requests.c.campaign).where(requests.c.reference == reference)
    names = [reference, *connection.execute(campaign).scalars()]
    is_campaign = select(task_progress.c.reference).where(task_progress.c.kind == CAMPAIGN)
    progress = {row.reference for row in select_among(connection, is_campaign, task_progress.c.reference, names)}
    found = read_campaigns(connection, names).values()
    return next((record for record in found if record.reference in progress or not record.has_progress), None)


def _describe(connection: Connection, found: Sequence[CampaignRecord]) -> list[dict[str, Any]]:
    """Return a line for each send, with its state and figures."""
    counts = read_campaign_counts(connection, found)
    states = read_task_states([record.place for record in found])
    return [_described(record, counts.get(record.reference), states.get(record.place)) for record in found]


def _described(record: CampaignRecord, counts: CampaignCounts | None, task: TaskState | None) -> dict[str, Any]:
    figures, report = record.figures(counts, task), record.report
    names = ("operation", "conn_id", "dag_id", "run_id", "task_id", "map_index")
    return {
        "reference": record.reference,
        **{name: getattr(record, name) for name in names},
        "started_at": to_iso_time(record.started_at),
        "task_state": None if task is None else task.state,
        "invalid_rows": report.get("invalid_rows"),
        **{name: report.get(name) for name in LEFT_OUT},
        **figures.as_json(),
        "charge": report.get("charge"),
        "balance": report.get("balance"),
    }


def _details(connection: Connection, record: CampaignRecord) -> dict[str, Any]:
    """Return everything about one send, except its reasons."""
    is_made = and_(requests.c.campaign == record.reference, is_in_state(RequestState.ACCEPTED))
    made = select(func.count()).select_from(requests).where(is_made)
    [line] = _describe(connection, [record])
    counts = read_counts(connection, [record.reference]).get(record.reference, DeliveryCounts())
    number = record.report.get("requests")
    return {
        **line,
        "requests": number if isinstance(number, int) else connection.execute(made).scalar_one(),
        "ended_at": to_iso_time(record.ended_at),
        "last_report_at": to_iso_time(counts.updated_at),
        "results_path": record.report.get("results_path"),
        "error": record.report.get("error"),
    }


def _reasons(connection: Connection, campaign: str) -> list[dict[str, Any]]:
    """Return how often each status and reason was reported, the most frequent first."""
    columns = deliveries.c.delivery_status, deliveries.c.status, deliveries.c.reason
    number = func.count()
    query = select(*columns, number.label("recipients")).where(deliveries.c.campaign == campaign, IS_COUNTED)
    found: Counter[tuple[str, str, str | None]] = Counter()
    for row in connection.execute(query.group_by(*columns).order_by(number.desc()).limit(_GROUPS)):
        # A reason may name the recipient. Without redaction, each recipient would have its own reason.
        reason = redact(row.reason, ()) if row.reason else None
        found[DeliveryStatus(row.delivery_status).word, row.status, reason] += row.recipients
    return [
        {"outcome": outcome, "status": status, "reason": reason, "recipients": recipients}
        for (outcome, status, reason), recipients in found.most_common(_REASONS)
    ]


def _read_deliveries(
    connection: Connection, filters: _Filters, reference: str | None, outcome: DeliveryStatus | None, limit: int
) -> list[dict[str, Any]]:
    """Return the delivery status of recipients, newest change first."""
    query: Select[Any] = select(deliveries).where(
        *filters.times(deliveries.c.updated_at), *filters.connection(deliveries)
    )
    if reference is not None:
        # Deliveries are found by their campaign, which is indexed. Reference and message id are not.
        of_request = or_(requests.c.reference == reference, requests.c.message_id == reference)
        names = connection.execute(select(requests.c.campaign).where(of_request)).scalars().all()
        query = query.where(
            deliveries.c.campaign.in_({reference, f"{UNTRACKED_PREFIX}{reference}", *names}),
            # A single send is a campaign of its own reference, which reports of another connection can name, too.
            or_(deliveries.c.campaign != reference, IS_COUNTED),
            or_(
                *(
                    column == reference
                    for column in (deliveries.c.campaign, deliveries.c.reference, deliveries.c.message_id)
                )
            ),
        )
    if of_sends := filters.runs(sends):
        query = query.where(deliveries.c.campaign.in_(select(sends.c.campaign).where(*of_sends)))
    if outcome is not None:
        query = query.where(deliveries.c.delivery_status == int(outcome))
    ordered = query.order_by(deliveries.c.updated_at.desc(), deliveries.c.campaign, deliveries.c.recipient)
    return [_delivery(row) for row in connection.execute(ordered.limit(limit))]


def _delivery(row: Row[Any]) -> dict[str, Any]:
    # Such a row has a name of our own in place of a recipient that no report names, or that was erased.
    named = "" if row.recipient.startswith(UNNAMED_PREFIX) else row.recipient
    return {
        "recipient": mask_recipient(named) if named else None,
        "outcome": DeliveryStatus(row.delivery_status).word,
        "status": row.status or None,
        "reason": redact(row.reason, (f"+{named}", named)) if row.reason else None,
        "conflict": bool(row.delivered and row.failed),
        "reported_at": to_iso_time(row.reported_at) if row.status else None,
        "conn_id": row.conn_id,
        "campaign": row.campaign,
        "reference": row.reference or None,
        "message_id": row.message_id,
    }
