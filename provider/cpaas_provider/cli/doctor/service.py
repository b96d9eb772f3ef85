"""Checks of the connection: its settings, its API key, its rate limit, and the clock of the service."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from airflow.sdk import BaseHook

from cpaas_provider.api.amounts import counted
from cpaas_provider.api.client import CpaasClient
from cpaas_provider.api.errors import CpaasError
from cpaas_provider.api.http.wire import HttpResponse, TransportFailure
from cpaas_provider.cli.doctor.report import NO_CONNECTION, Finding, Findings, clock, failed, ok, skipped, warning
from cpaas_provider.cli.ping import how_to_define
from cpaas_provider.database.database import Database
from cpaas_provider.database.default_file import describe_spreading, spreading_executor
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.hooks._account.budget import read_budgets
from cpaas_provider.hooks._account.stops import describe_stop
from cpaas_provider.hooks.connection import CpaasConnection
from cpaas_provider.hooks.cpaas import CpaasHook, describe_failure
from cpaas_provider.provider_info import CONNECTION_FIELDS

_RATE_LIMIT = "rate limit"
_STOP = "stop"
_BUDGET = "budget"


class _WatchingClient(CpaasClient):
    """A client that stores the Date header of the last response."""

    date: str | None = None

    def _on_response(self, left: float, reply: HttpResponse | TransportFailure) -> HttpResponse | TransportFailure:
        if isinstance(reply, HttpResponse):
            self.date = reply.date
        return super()._on_response(left, reply)


@dataclass
class ServiceChecks:
    """The checks of a connection.

    :param connection: its settings; ``None`` until ``check_connection`` has read them
    """

    conn_id: str
    connection: CpaasConnection | None = None

    def check_connection(self) -> Findings:
        """Check that the connection exists and its settings can be used."""
        check = "connection"
        try:
            stored = BaseHook.get_connection(self.conn_id)
        except Exception as error:  # noqa: BLE001 - Airflow and secrets backends raise several kinds
            found = f"Connection {self.conn_id!r} cannot be read ({type(error).__name__})."
            yield failed(check, found, how_to_define(self.conn_id))
            return
        if stored.conn_type != CpaasHook.conn_type:
            yield failed(
                check,
                f"Connection {self.conn_id!r} is of type {stored.conn_type!r}.",
                "Set its type to cpaas. Airflow then shows its form, and the receiver finds it.",
            )
        try:
            self.connection = CpaasHook(self.conn_id).get_connection_settings()
        except CpaasError as error:
            yield failed(check, str(error), "Correct the connection.")
            return
        yield ok(check, f"{self.conn_id!r} leads to {self.connection.base_url}")
        yield from _check_extras(stored.extra, self.connection)

    def check_service(self) -> Findings:
        """Check with a read that costs and changes nothing that the key is accepted, and compare the clocks."""
        check, other = "API key", "clock of the service"
        if self.connection is None:
            yield skipped(check, NO_CONNECTION)
            yield skipped(other, NO_CONNECTION)
            return
        connection = self.connection.without_retries()
        try:
            with _WatchingClient(connection.base_url, connection.api_key, **connection.options) as client:
                try:
                    client.get_contact_table()
                except CpaasError as error:
                    found = describe_failure(error)
                    yield failed(check, found, "Correct the connection, then run `airflow cpaas ping`.")
                else:
                    yield ok(check, "accepted by a read of the contact table")
                yield _service_clock(other, client.date, datetime.now(UTC))
        except CpaasError as error:
            yield failed(check, str(error), "Correct the connection.")
        url = urlsplit(connection.base_url)
        if url.scheme == "http" and url.hostname not in ("localhost", "127.0.0.1", "::1"):
            yield warning(
                "connection",
                "The base URL is plain http, so the API key is readable on its way.",
                "Use https.",
            )


def check_stop(conn_id: str) -> Findings:
    """Check that the requests of a connection are not stopped."""
    stopped = describe_stop(conn_id)
    if stopped is None:
        yield ok(_STOP, "not stopped")
    else:
        yield failed(
            _STOP, stopped, f"Run `airflow cpaas resume --conn-id {conn_id}`, and clear the tasks that failed."
        )


def check_budget(connection: CpaasConnection | None, database: Database | None) -> Findings:
    """Check that the budgets of a connection work, and how much of them is spent."""
    if connection is None:
        yield skipped(_BUDGET, NO_CONNECTION)
        return
    options = connection.budget
    if options is None:
        yield ok(_BUDGET, "no daily_budget and no monthly_budget is set")
        return
    if database is None:
        yield failed(
            _BUDGET,
            "There is no usable database, so what is spent cannot be read, and nothing that costs money is sent.",
            "See the check of the database.",
        )
        return
    if executor := spreading_executor():
        yield failed(
            _BUDGET,
            f"{describe_spreading(executor)} Each machine would spend the whole budget.",
            "Let all workers use one database: set [cpaas] database.",
        )
    try:
        with database.connect() as opened:
            found = read_budgets(opened, connection.conn_id, options, datetime.now(UTC))
    except DatabaseError as error:
        yield failed(_BUDGET, f"What is spent cannot be read. {error}", "See the check of the database.")
        return
    for status in found:
        if status.state == "reached":
            advice = f"Raise {status.period.option}, or wait for the next period. Then clear the tasks that failed."
            yield failed(_BUDGET, f"{status.describe()} No request that costs money leaves.", advice)
        elif status.state == "nearly reached":
            yield warning(_BUDGET, status.describe(), f"Raise {status.period.option}, or send less.")
        else:
            yield ok(_BUDGET, f"{status.describe()} The service names no currency: the amount is in the account's.")
    if missing := sorted({"price_per_passcode", "price_per_lookup"} - options.prices.keys()):
        yield warning(
            _BUDGET,
            f"{' and '.join(missing)} not set. The service names no such price, so these requests are refused while a "
            "budget is set.",
            "Set the price if you use them. A price of 0 lets them pass uncounted.",
        )


def _check_extras(extra: str | None, connection: CpaasConnection) -> Findings:
    check = "connection"
    if unknown := sorted(set(json.loads(extra or "{}")) - set(CONNECTION_FIELDS)):
        yield warning(check, f"Unknown extras are ignored: {', '.join(unknown)}.", "Correct or remove them.")
    if bool(connection.webhook_secret) != bool(connection.signature_header):
        yield warning(
            check,
            "Only one of webhook_secret and signature_header is set, so the webhook endpoint is closed.",
            "Set both, or neither.",
        )
    for fault, advice in connection.weak_secrets():
        yield warning(check, fault, advice)


def check_rate_limit(connection: CpaasConnection | None, database: Database | None) -> Findings:
    """Show the rate limit, and check that tasks can share it where the connection has share_rate_limit."""
    if connection is None:
        yield skipped(_RATE_LIMIT, NO_CONNECTION)
        return
    rate = f"{counted(connection.settings.requests_per_second, 'request')} a second"
    if not connection.share_rate_limit:
        yield ok(_RATE_LIMIT, f"{rate} for each task. share_rate_limit is off")
    elif database is None:
        yield skipped(
            _RATE_LIMIT, "share_rate_limit is on, and there is no usable database yet. Without one, tasks send nothing."
        )
    else:
        yield ok(_RATE_LIMIT, f"{rate} for all tasks together (share_rate_limit)")


def _service_clock(check: str, date: str | None, now: datetime) -> Finding:
    try:
        moment = parsedate_to_datetime(date or "")
    except (TypeError, ValueError):
        return skipped(check, "The service sent no time.")
    return clock(check, moment, now, "Let a time service (NTP) set the clock of this machine.")
