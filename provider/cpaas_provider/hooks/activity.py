"""Records work of tasks for the pages in Airflow's UI, if these tasks do not use the provider's database otherwise."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import Connection

log = logging.getLogger(__name__)


def record(work: Callable[[Connection], None]) -> None:
    """Write to the provider's database. A failure is logged and does not fail the task: it affects only the pages."""
    from cpaas_provider.database.database import open_database
    from cpaas_provider.database.errors import DatabaseError

    try:
        with open_database() as database:
            database.require_report_support()
            database.write(work)
    except DatabaseError as error:
        log.info("This is not shown on the pages in Airflow's UI: %s", error)


def record_passcode_outcome(conn_id: str, otp_id: str, outcome: str) -> None:
    """Record the outcome of a passcode."""
    from cpaas_provider.database.activity import single_requests

    record(lambda connection: single_requests.record_passcode_outcome(connection, conn_id, otp_id, outcome))
