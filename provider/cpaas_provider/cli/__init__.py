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
    positive_int,
)

from cpaas_provider.cli.contact_commands import contact_commands
from cpaas_provider.provider_info import DEFAULT_CONN_ID

_CONN_ID = Arg(("conn_id",), nargs="?", default=DEFAULT_CONN_ID, help="connection to use (default: %(default)s)")
_RUN_ID = Arg(("run_id",), help="The id of the Dag run")
_REFERENCE = Arg(
    ("--reference",),
    nargs="+",
    action="extend",
    metavar="REFERENCE",
    help="Only these requests of the task instance (default: all that are in doubt)",
)
_ID = Arg(
    ("--id",),
    dest="result_id",
    metavar="ID",
    help="With --sent, the service's id of what was sent; for one request only",
)
_STATES = ("unknown", "pending", "accepted", "rejected", "not_sent", "all")
_EACH = Arg(
    ("--each",),
    action="store_true",
    help="Of campaigns, show each request (default: each that is in doubt, and of the others how many there are)",
)
_FILTERS = (
    Arg(("--dag-id",), help="Only of this Dag"),
    Arg(("--run-id",), help="Only of this Dag run"),
    Arg(("--task-id",), help="Only of this task"),
    Arg(
        ("--state",),
        choices=_STATES,
        metavar=f"({', '.join(_STATES)})",
        help="Only requests of this state (default: those in doubt, which are the unknown, and the pending of task "
        "instances that are not running)",
    ),
    Arg(
        ("--limit",),
        type=positive_int(allow_zero=False),
        default=100,
        help="Show so many requests at most, newest first (default: %(default)s)",
    ),
)
_RECEIVER = (
    Arg(("--host",), default="127.0.0.1", help="Address to listen on (default: %(default)s)"),
    Arg(("--port",), type=positive_int(allow_zero=False), default=8099, help="Port (default: %(default)s)"),
    Arg(("--workers",), type=positive_int(allow_zero=False), default=1, help="Processes (default: %(default)s)"),
    Arg(
        ("--prefix",),
        default="/cpaas",
        help="Path before the two doors; the default is where Airflow's API server has them, so that either can stand "
        "behind the same public address (default: %(default)s)",
    ),
    Arg(("--describe",), action="store_true", help="Also answer PREFIX/docs and PREFIX/openapi.json, to anybody"),
)
_DAYS = Arg(
    ("--days",),
    type=positive_int(allow_zero=False),
    default=90,
    help="Delete what last changed longer ago than so many days (default: %(default)s)",
)
_LOOKUP_DAYS = Arg(
    ("--lookup-days",),
    type=positive_int(allow_zero=False),
    default=365,
    help="Delete look-ups older than so many days; not fewer than the longest lookup_ttl of your campaigns, or numbers "
    "are looked up and paid for again (default: %(default)s)",
)
_RECIPIENT = Arg(
    ("recipient",),
    help="An email address, a phone number in its international form, or a national one with --region; - reads it from "
    "standard input, so that it stands in no list of processes and in no history of a shell",
)
_REGION = Arg(("--region",), metavar="REGION", help="Two-letter region of a national number, such as NG")
_INSTANCE = (ARG_DAG_ID, _RUN_ID, ARG_TASK_ID, ARG_MAP_INDEX)
_DECISION = (
    Arg(("--sent",), action="store_true", help="They were carried out; they are not made again"),
    Arg(("--not-sent",), action="store_true", help="They were not carried out; the task's next try makes them"),
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
            help="Messaging service: check a connection, decide what became of requests, receive delivery reports",
            subcommands=(
                ActionCommand(
                    name="ping",
                    help="Check a connection without cost or change",
                    description=(
                        "Ask the service for the contact table, which costs and changes nothing, and say whether host, "
                        "path and API key of the connection are right. Exit status 0 if they are, 1 if not."
                    ),
                    func=_command("cpaas_provider.cli.ping.ping"),
                    args=(_CONN_ID,),
                ),
                ActionCommand(
                    name="receiver",
                    help="Receive delivery reports in processes of their own",
                    description=(
                        "Receive delivery reports as Airflow's API server does under /cpaas, but without the server, "
                        "for more of them than it takes. It keeps them where AIRFLOW__CPAAS__DATABASE says. On SIGTERM "
                        "and Ctrl-C it stores what it has taken and ends."
                    ),
                    func=_command("cpaas_provider.cli.receiver.cpaas_receiver"),
                    args=_RECEIVER,
                ),
                GroupCommand(
                    name="db",
                    help="The provider's own database: AIRFLOW__CPAAS__DATABASE says where",
                    subcommands=_database_commands(),
                ),
                GroupCommand(
                    name="contacts",
                    help="Key maps of contact lists: which row belongs to which key of a source",
                    subcommands=contact_commands(_command),
                ),
                GroupCommand(
                    name="journal", help="What tasks noted of their requests", subcommands=_journal_commands()
                ),
            ),
        )
    ]


def _database_commands() -> tuple[ActionCommand, ...]:
    return (
        ActionCommand(
            name="migrate",
            help="Create the database, or bring its tables up to date",
            description=(
                "Create the database, or bring its tables up to date. Whoever uses it does the same, so this is "
                "for those who want it done beforehand, by a user who may create tables."
            ),
            func=_command("cpaas_provider.cli.db.cpaas_db_migrate"),
            args=(ARG_VERBOSE,),
        ),
        ActionCommand(
            name="prune",
            help="Delete old delivery reports, deliveries, requests and look-ups",
            description=(
                "Delete delivery reports, what they came to, and requests that last changed longer ago than --days; "
                "look-ups older than --lookup-days. Campaigns that happen once (idempotency_key) stay. May run while "
                "reports come in, and be ended with Ctrl-C at any time."
            ),
            func=_command("cpaas_provider.cli.db.cpaas_db_prune"),
            args=(_DAYS, _LOOKUP_DAYS, ARG_VERBOSE),
        ),
        ActionCommand(
            name="erase",
            help="Delete whom delivery reports are about",
            description=(
                "Delete a recipient's number or address, and the reports that hold it in whatever form. What became of "
                "the messages stays counted, and of those in flight nothing more is waited for. A file of SQLite is "
                "cleaned of what was deleted. A report that comes afterwards is stored again. Exit status 0 when it is "
                "done, 1 if not."
            ),
            func=_command("cpaas_provider.cli.db.cpaas_db_erase"),
            args=(_RECIPIENT, _REGION, ARG_VERBOSE),
        ),
    )


def _journal_commands() -> tuple[ActionCommand, ...]:
    return (
        ActionCommand(
            name="list",
            help="List requests, by default those nobody knows the outcome of",
            func=_command("cpaas_provider.cli.journal.cpaas_journal_list"),
            args=(*_FILTERS, _EACH, ARG_OUTPUT, ARG_VERBOSE),
        ),
        ActionCommand(
            name="show",
            help="Show the journal of one task instance",
            func=_command("cpaas_provider.cli.journal.cpaas_journal_show"),
            args=(*_INSTANCE, _EACH, ARG_OUTPUT, ARG_VERBOSE),
        ),
        ActionCommand(
            name="resolve",
            help="Decide that requests in doubt were carried out, or that they were not",
            description=(
                "Decide that requests in doubt were carried out (--sent), or that they were not (--not-sent), as the "
                "service's own records show. What was sent is not sent again; what was not sent, the task's next try "
                "sends. Refused while the task instance is on its way, and of requests started less than 60 seconds "
                "ago. Exit status 0 when it is decided, 1 if not."
            ),
            func=_command("cpaas_provider.cli.journal.cpaas_journal_resolve"),
            args=(*_INSTANCE, *_DECISION, _REFERENCE, _ID, ARG_YES, ARG_VERBOSE),
        ),
        ActionCommand(
            name="forget",
            help="Let a task begin anew whose campaign's journal is gone with its database",
            description=(
                "Forget that a task instance has sent a campaign with an idempotency_key. For one that refuses to send "
                "because the database has nothing of it, when the database that had it is gone for good. Once cleared, "
                "the task sends again to everybody that [cpaas] database does not have. Exit status 0 when it is "
                "forgotten, 1 if not."
            ),
            func=lazy_load_command("cpaas_provider.cli.forget.cpaas_journal_forget"),
            args=(*_INSTANCE, ARG_YES, ARG_VERBOSE),
        ),
    )
