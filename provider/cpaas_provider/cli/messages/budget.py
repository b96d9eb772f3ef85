"""``airflow cpaas budget``: what the budgets of a connection have spent."""

from __future__ import annotations

from argparse import Namespace
from datetime import UTC, datetime

from cpaas_provider.cli.messages.campaign_database import refuse_other_database
from cpaas_provider.cli.running import FAILED, connection_of, guarded
from cpaas_provider.cli.terminal import aside, print_lines, say, warn
from cpaas_provider.database.database import open_database
from cpaas_provider.hooks._account.budget import BudgetStatus, read_budgets

_COUNTED = (
    "Spent are the costs of all requests of the connection that use this database, and what is reserved for requests "
    "in flight."
)


@guarded
def cpaas_budget(args: Namespace) -> None:
    """Show what is spent of each budget of a connection."""
    options = connection_of(args.conn_id).budget
    if options is None:
        print_lines([], args.output)
        warn(
            f"Connection {args.conn_id!r} has no budget, so nothing is counted. Set daily_budget or monthly_budget on "
            "the connection."
        )
        raise SystemExit(FAILED)
    with open_database() as database:
        refuse_other_database(database, "Nothing was read.")
        with database.connect() as connection:
            found = read_budgets(connection, args.conn_id, options, datetime.now(UTC))
        url = database.redacted_url
    print_lines(list(map(_line, found)), args.output)
    say(f"{_COUNTED} Database: {url}.", aside(args))
    if any(status.state == "reached" for status in found):
        warn("No request that costs money leaves. Raise the budget, or wait for its next day or month.")
        raise SystemExit(FAILED)


def _line(status: BudgetStatus) -> dict[str, object]:
    return {
        "conn_id": status.conn_id,
        "budget": status.period.option,
        "period": status.period.name,
        "time_zone": status.zone,
        "limit": float(status.period.limit),
        "spent": float(status.spent),
        "remaining": float(status.remaining),
        "percent": status.percent,
        "state": status.state,
    }
