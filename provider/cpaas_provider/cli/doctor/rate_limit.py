"""Whether tasks share the rate limit of a connection, and can."""

from __future__ import annotations

from cpaas_provider.cli.doctor.report import Findings, ok, skipped
from cpaas_provider.database.database import Database
from cpaas_provider.hooks.connection import CpaasConnection

_CHECK = "rate limit"


def check_rate_limit(connection: CpaasConnection | None, database: Database | None) -> Findings:
    """Show the rate limit, and check that tasks can share it where the connection has share_rate_limit."""
    if connection is None:
        yield skipped(_CHECK, "There is no usable connection.")
        return
    rate = f"{connection.settings.requests_per_second:g} requests a second"
    if not connection.share_rate_limit:
        yield ok(_CHECK, f"{rate} for each task. share_rate_limit is off")
    elif database is None:
        yield skipped(
            _CHECK, "share_rate_limit is on, and there is no usable database yet. Without one, tasks send nothing."
        )
    else:
        yield ok(_CHECK, f"{rate} for all tasks together (share_rate_limit)")
