"""``airflow cpaas doctor``."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator

from cpaas_provider.api.amounts import counted
from cpaas_provider.cli.doctor.database import DatabaseChecks
from cpaas_provider.cli.doctor.installation import check_airflow, check_configuration, check_versions
from cpaas_provider.cli.doctor.receiver import check_callback_url, check_receiver
from cpaas_provider.cli.doctor.report import Finding, Status
from cpaas_provider.cli.doctor.service import ServiceChecks, check_budget, check_rate_limit, check_stop
from cpaas_provider.cli.running import guarded
from cpaas_provider.cli.terminal import aside, print_lines, say


@guarded
def cpaas_doctor(args: Namespace) -> None:
    """Check everything the provider needs."""
    found = list(_findings(args.conn_id))
    print_lines(
        [
            {
                "check": finding.check,
                "status": finding.status.value,
                "found": finding.found,
                "what_to_do": finding.advice or None,
            }
            for finding in found
        ],
        args.output,
    )
    failures = sum(finding.status is Status.FAILED for finding in found)
    warnings = sum(finding.status is Status.WARNING for finding in found)
    sys.stdout.flush()
    say(f"{counted(failures, 'check')} failed, {counted(warnings, 'warning')}.", aside(args))
    if failures:
        raise SystemExit(1)


def _findings(conn_id: str) -> Iterator[Finding]:
    yield from check_versions()
    yield from check_configuration()
    yield from check_airflow()
    service, database = ServiceChecks(conn_id), DatabaseChecks()
    try:
        yield from service.check_connection()
        yield from service.check_service()
        yield from database.check()
        yield from database.check_shared()
        yield from database.check_recipient_secret()
        yield from database.check_clock()
        yield from check_stop(conn_id)
        yield from check_budget(service.connection, database.database)
        yield from check_rate_limit(service.connection, database.database)
        yield from check_callback_url(service.connection)
        yield from check_receiver(service.connection, conn_id, database.database)
    finally:
        database.close()
