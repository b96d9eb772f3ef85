"""``airflow cpaas campaigns list | show`` and ``deliveries show``."""

from __future__ import annotations

import contextlib
from argparse import Namespace
from collections.abc import Iterator

from sqlalchemy import Connection

from cpaas_provider.cli.deliveries import queries
from cpaas_provider.cli.running import guarded
from cpaas_provider.cli.terminal import READABLE, aside, print_lines, print_record, say, warn
from cpaas_provider.database.database import open_database
from cpaas_provider.delivery.reports import DeliveryStatus

_COPIED = frozenset({"reference", "campaign"})
# The columns of a table. Other formats have all columns.
_IN_TABLE = (
    *("reference", "started_at", "dag_id", "task_id", "state"),
    *("accepted", "delivered", "undelivered", "in_flight", "unreported", "unknown"),
)
_OF_DELIVERY = ("recipient", "outcome", "status", "reason", "reported_at", "reference")
_NONE_FOUND = "No campaign found. The provider's database has each campaign from the moment that its task begins."


@contextlib.contextmanager
def _connected() -> Iterator[Connection]:
    """Yield a connection to the provider's database, which must be able to store delivery reports."""
    with open_database() as database:
        database.require_report_support()
        with database.connect() as connection:
            yield connection


@guarded
def cpaas_campaigns_list(args: Namespace) -> None:
    """List campaigns, newest first."""
    filters = queries.Filters.of(args)
    with _connected() as connection:
        found = queries.read_sends(connection, filters, args.limit + 1, singles=args.single_messages)
        lines = queries.describe(connection, found[: args.limit])
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
    with _connected() as connection:
        send = queries.find_send(connection, args.reference)
        if send is None:
            raise SystemExit(
                "The provider's database has no campaign and no request with this reference. `airflow cpaas campaigns "
                "list --single-messages` lists them."
            )
        record = queries.details(connection, send)
        reasons = queries.reasons(connection, send.reference)
    if args.output not in READABLE:
        print_record({**record, "reasons": reasons}, args.output)
        return
    print_record(record, args.output)
    print_lines(reasons, args.output)
    say(f"For each recipient: airflow cpaas deliveries show {send.reference}", aside(args))


@guarded
def cpaas_deliveries_show(args: Namespace) -> None:
    """Show the delivery status of recipients."""
    filters = queries.Filters.of(args)
    outcome = None if args.outcome is None else DeliveryStatus[args.outcome.upper()]
    with _connected() as connection:
        lines = queries.read_deliveries(connection, filters, args.reference, outcome, args.limit + 1)
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
