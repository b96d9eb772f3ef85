"""``airflow cpaas ...``: the provider on the command line. Every ``airflow`` command imports this module."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

from airflow.cli.cli_config import (
    ARG_DAG_ID,
    ARG_MAP_INDEX,
    ARG_OUTPUT,
    ARG_TASK_ID,
    ARG_VERBOSE,
    ARG_YES,
    ActionCommand,
    Arg,
    CLICommand,
    GroupCommand,
    lazy_load_command,
)

from cpaas_provider.cli.contacts.commands import contact_commands
from cpaas_provider.cli.deliveries.commands import campaign_commands, delivery_commands
from cpaas_provider.cli.messages.commands import (
    MOST_DAYS,
    MOST_PORT,
    MOST_ROWS,
    message_commands,
    otp_commands,
    whole_number,
)
from cpaas_provider.cli.sandbox import SANDBOX_ARGS
from cpaas_provider.cli.suppressions.commands import suppression_commands
from cpaas_provider.provider_info import DEFAULT_CONN_ID

_CONN_ID = Arg(("conn_id",), nargs="?", default=DEFAULT_CONN_ID, help="Connection to use (default: %(default)s)")
_RUN_ID = Arg(("run_id",), help="The id of the Dag run")
_REFERENCE = Arg(
    ("--reference",),
    nargs="+",
    action="extend",
    metavar="REFERENCE",
    help="Only these requests of the task instance (default: all unresolved requests)",
)
_ID = Arg(
    ("--id",),
    dest="result_id",
    metavar="ID",
    help="The service's id of what was sent, with --sent and for one request only",
)
_STATES = ("unknown", "pending", "accepted", "rejected", "not_sent", "all")
_EACH = Arg(
    ("--each",),
    action="store_true",
    help="Show each request (default: each unresolved one, and counts of the others)",
)
_FILTERS = (
    Arg(("--dag-id",), help="Only requests of this Dag"),
    Arg(("--run-id",), help="Only requests of this Dag run"),
    Arg(("--task-id",), help="Only requests of this task"),
    Arg(
        ("--state",),
        choices=_STATES,
        metavar=f"({', '.join(_STATES)})",
        help="Only requests in this state (default: unresolved requests, which are unknown, or pending without a "
        "running task instance)",
    ),
    Arg(
        ("--limit",),
        type=whole_number(MOST_ROWS),
        default=100,
        help="Show at most this many requests, newest first (default: %(default)s)",
    ),
)
_RECEIVER = (
    Arg(("--host",), default="127.0.0.1", help="Address to listen on (default: %(default)s)"),
    Arg(("--port",), type=whole_number(MOST_PORT), default=8099, help="Port (default: %(default)s)"),
    Arg(
        ("--workers",),
        type=whole_number(1_000),
        default=1,
        help="Number of processes (default: %(default)s)",
    ),
    Arg(
        ("--prefix",),
        default="/cpaas",
        help="Path before the two endpoints. The default is the path on Airflow's API server, so that either can run "
        "behind the same public address (default: %(default)s)",
    ),
    Arg(("--describe",), action="store_true", help="Also serve PREFIX/docs and PREFIX/openapi.json, without a login"),
)
_DAYS = Arg(
    ("--days",),
    type=whole_number(MOST_DAYS),
    default=90,
    help="Delete what has not changed for this many days (default: %(default)s)",
)
_LOOKUP_DAYS = Arg(
    ("--lookup-days",),
    type=whole_number(MOST_DAYS),
    default=365,
    help="Delete lookups older than this many days. With fewer than the longest lookup_ttl of your campaigns, numbers "
    "are looked up and charged again (default: %(default)s)",
)
_RECIPIENT = Arg(
    ("recipient",),
    help="Email address, international phone number, or national phone number with --region. Give - to read it from "
    "standard input, so that process lists and shell history do not show it",
)
_REGION = Arg(("--region",), metavar="REGION", help="Two-letter region of a national phone number, such as NG")
_INSTANCE = (ARG_DAG_ID, _RUN_ID, ARG_TASK_ID, ARG_MAP_INDEX)
_DECISION = (
    Arg(("--sent",), action="store_true", help="The requests were sent. They are not sent again"),
    Arg(("--not-sent",), action="store_true", help="The requests were not sent. The task's next try sends them"),
)


def _command(path: str) -> Callable[..., Any]:
    """Return a command that is imported when it runs, and sees the connections that `airflow connections get` sees.

    Without this, Airflow takes the process for a task without a supervisor and leaves its database out.
    """
    load = lazy_load_command(path)

    @functools.wraps(load)
    def command(*arguments: Any, **options: Any) -> Any:
        os.environ["_AIRFLOW_PROCESS_CONTEXT"] = "server"
        return load(*arguments, **options)

    return command


def get_cli_commands() -> list[CLICommand]:
    """Return the commands Airflow adds to its own."""
    return [
        GroupCommand(
            name="cpaas",
            help="Messaging service: send, look up, show deliveries, check the setup, receive delivery reports",
            subcommands=(
                ActionCommand(
                    name="ping",
                    help="Check a connection without cost or change",
                    description=(
                        "Check that host, path and API key of a connection are right. The command reads the contact "
                        "table, which costs and changes nothing. Exit status: 0 if they are right, 1 if not."
                    ),
                    func=_command("cpaas_provider.cli.ping.ping"),
                    args=(_CONN_ID,),
                ),
                ActionCommand(
                    name="doctor",
                    help="Check everything the provider needs, and what to do",
                    description=(
                        "Check versions, configuration, connection, API key, clocks, database, receiver, callback URL "
                        "and triggerer, and show what to do. The command creates, changes and costs nothing. Exit "
                        "status: 0 if nothing failed, 1 if something did."
                    ),
                    func=_command("cpaas_provider.cli.doctor.command.cpaas_doctor"),
                    args=(_CONN_ID, ARG_OUTPUT, ARG_VERBOSE),
                ),
                *message_commands(_command),
                GroupCommand(
                    name="otp", help="Request and verify one-time passcodes", subcommands=otp_commands(_command)
                ),
                GroupCommand(
                    name="campaigns",
                    help="Campaigns with delivery reports, and their counts",
                    subcommands=campaign_commands(_command),
                ),
                GroupCommand(
                    name="deliveries",
                    help="Delivery status of recipients, masked",
                    subcommands=delivery_commands(_command),
                ),
                ActionCommand(
                    name="sandbox",
                    help="Start the sandbox: the service as a local program",
                    description=(
                        "Start the sandbox, with the options of cpaas-sandbox, until Ctrl-C. It sends nothing to the "
                        "outside. All messages are on the inbox page."
                    ),
                    func=lazy_load_command("cpaas_provider.cli.sandbox.cpaas_sandbox"),
                    args=SANDBOX_ARGS,
                ),
                ActionCommand(
                    name="receiver",
                    help="Receive delivery reports in separate processes",
                    description=(
                        "Receive delivery reports as Airflow's API server does under /cpaas, but in separate "
                        "processes, for more reports than the API server can take. The receiver stores them in the "
                        "database that AIRFLOW__CPAAS__DATABASE names. On SIGTERM or Ctrl-C it stores the reports it "
                        "has accepted, then exits."
                    ),
                    func=_command("cpaas_provider.cli.receiver.command.cpaas_receiver"),
                    args=_RECEIVER,
                ),
                GroupCommand(
                    name="db",
                    help="Manage the provider's own database (AIRFLOW__CPAAS__DATABASE)",
                    subcommands=_database_commands(),
                ),
                GroupCommand(
                    name="contacts",
                    help="Key maps of contact lists: which row belongs to which key of a source",
                    subcommands=contact_commands(_command),
                ),
                GroupCommand(
                    name="suppressions",
                    help="Recipients that are not sent to: opt-outs, hard bounces, invalid numbers",
                    subcommands=suppression_commands(_command),
                ),
                GroupCommand(
                    name="journal", help="Inspect and resolve the requests of tasks", subcommands=_journal_commands()
                ),
            ),
        )
    ]


def _database_commands() -> tuple[ActionCommand, ...]:
    return (
        ActionCommand(
            name="migrate",
            help="Create the database, or upgrade its tables",
            description=(
                "Create the database, or upgrade its tables. Every process of the provider does the same on first "
                "use. Run this command to do it earlier, with a database user that may create tables."
            ),
            func=_command("cpaas_provider.cli.db.cpaas_db_migrate"),
            args=(ARG_VERBOSE,),
        ),
        ActionCommand(
            name="prune",
            help="Delete old delivery reports, recipient statuses, requests and lookups",
            description=(
                "Delete delivery reports, recipient statuses and requests that have not changed for --days days. "
                "Delete lookups older than --lookup-days days, and messages that frequency caps no longer count. "
                "Campaigns with an idempotency_key are never deleted. "
                "The command can run while reports arrive. You can stop it with Ctrl-C at any time."
            ),
            func=_command("cpaas_provider.cli.db.cpaas_db_prune"),
            args=(_DAYS, _LOOKUP_DAYS, ARG_VERBOSE),
        ),
        ActionCommand(
            name="erase",
            help="Erase a recipient from delivery reports and contact maps",
            description=(
                "Delete a recipient's phone number or email address, and every delivery report that contains it in "
                "any form. Delivery counts stay. Messages in flight count as undelivered from then on. Deleted data is "
                "also removed from a SQLite file. A report that arrives later is stored again. The recipient's entries "
                "in contact maps are removed too; the contact list and the source still hold it, so remove it there "
                "first. On the suppression list, the recipient's own opt-out stays as a keyed hash, so that no DAG "
                "sends to the recipient again. Other entries are removed. Exit status: 0 on success, 1 on failure."
            ),
            func=_command("cpaas_provider.cli.db.cpaas_db_erase"),
            args=(_RECIPIENT, _REGION, ARG_VERBOSE),
        ),
    )


def _journal_commands() -> tuple[ActionCommand, ...]:
    return (
        ActionCommand(
            name="list",
            help="List requests, by default the unresolved ones",
            func=_command("cpaas_provider.cli.journal.commands.cpaas_journal_list"),
            args=(*_FILTERS, _EACH, ARG_OUTPUT, ARG_VERBOSE),
        ),
        ActionCommand(
            name="show",
            help="Show the journal of one task instance",
            func=_command("cpaas_provider.cli.journal.commands.cpaas_journal_show"),
            args=(*_INSTANCE, _EACH, ARG_OUTPUT, ARG_VERBOSE),
        ),
        ActionCommand(
            name="resolve",
            help="Resolve requests of unknown outcome as sent or not sent",
            description=(
                "Resolve requests of unknown outcome as sent (--sent) or not sent (--not-sent), as the service's own "
                "records show. Requests resolved as sent are not sent again. The task's next try sends the others. "
                "The command is refused while the task instance can still run, and for requests started less than 60 "
                "seconds ago. Exit status: 0 on success, 1 on failure."
            ),
            func=_command("cpaas_provider.cli.journal.commands.cpaas_journal_resolve"),
            args=(*_INSTANCE, *_DECISION, _REFERENCE, _ID, ARG_YES, ARG_VERBOSE),
        ),
        ActionCommand(
            name="forget",
            help="Let a task start again whose campaign journal was lost with its database",
            description=(
                "Delete the record that a task instance sent a campaign with an idempotency_key. Use it when the task "
                "refuses to send because the database lacks the campaign, and the database that had it is lost for "
                "good. After a clear, the task sends again to every recipient that the provider's database "
                "(AIRFLOW__CPAAS__DATABASE) does not have. Exit status: 0 on success, 1 on failure."
            ),
            func=lazy_load_command("cpaas_provider.cli.journal.forget.cpaas_journal_forget"),
            args=(*_INSTANCE, ARG_YES, ARG_VERBOSE),
        ),
    )
