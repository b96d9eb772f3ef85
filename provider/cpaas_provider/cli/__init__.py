"""``airflow cpaas ...``: the provider on the command line. Every ``airflow`` command imports this module."""

from __future__ import annotations

from airflow.cli.cli_config import (
    ARG_DAG_ID,
    ARG_MAP_INDEX,
    ARG_OUTPUT,
    ARG_TASK_ID,
    ARG_VERBOSE,
    ARG_YES,
    Arg,
    CLICommand,
    GroupCommand,
)

from cpaas_provider.cli.arguments import MOST_DAYS, command, number, switch
from cpaas_provider.cli.contacts.commands import CONTACT_COMMANDS
from cpaas_provider.cli.deliveries.commands import CAMPAIGN_COMMANDS, DELIVERY_COMMANDS
from cpaas_provider.cli.messages.commands import CONN_ID, MESSAGE_COMMANDS, OTP_COMMANDS
from cpaas_provider.cli.sandbox import SANDBOX_ARGS
from cpaas_provider.cli.suppressions.commands import SUPPRESSION_COMMANDS

_RECEIVER = (
    Arg(("--host",), "Address to listen on (default: %(default)s)", default="127.0.0.1"),
    number("--port", 8099, "Port", most=65_535),
    number("--workers", 1, "Number of processes", most=1_000),
    Arg(
        ("--prefix",),
        "Path before the two endpoints. The default is the path on Airflow's API server, so that either can run behind "
        "the same public address (default: %(default)s)",
        default="/cpaas",
    ),
    switch("--describe", "Also serve PREFIX/openapi.json, without a login"),
)
_DAYS = number("--days", 90, "Delete what has not changed for this many days", most=MOST_DAYS)
_LOOKUP_DAYS = number(
    "--lookup-days",
    365,
    "Delete lookups older than this many days. With fewer than the longest lookup_ttl of your campaigns, numbers are "
    "looked up and charged again",
    most=MOST_DAYS,
)
_RECIPIENT = Arg(
    ("recipient",),
    "Email address, international phone number, or national phone number with --region. Give - to read it from "
    "standard input, so that process lists and shell history do not show it",
)
_REGION = Arg(("--region",), "Two-letter region of a national phone number, such as NG", metavar="REGION")

_DATABASE_COMMANDS = (
    command(
        "migrate",
        "db.cpaas_db_migrate",
        (ARG_VERBOSE,),
        "Create the database, or upgrade its tables",
        "Create the database, or upgrade its tables. Every process of the provider does the same on first use. Run "
        "this command to do it earlier, with a database user that may create tables.",
    ),
    command(
        "prune",
        "db.cpaas_db_prune",
        (_DAYS, _LOOKUP_DAYS, ARG_VERBOSE),
        "Delete old delivery reports, recipient statuses, requests and lookups",
        "Delete delivery reports, recipient statuses and requests that have not changed for --days days. Delete "
        "lookups older than --lookup-days days, messages that frequency caps no longer count, and what budgets "
        "counted in days and months before. Campaigns with an "
        "idempotency_key are never deleted. The command can run while reports arrive. You can stop it with Ctrl-C at "
        "any time.",
    ),
    command(
        "erase",
        "db.cpaas_db_erase",
        (_RECIPIENT, _REGION, ARG_YES, ARG_VERBOSE),
        "Erase a recipient from delivery reports and contact maps",
        "Delete a recipient's phone number or email address, and every delivery report that contains it in any form. "
        "Delivery counts stay. Messages in flight count as undelivered from then on. Deleted data is also removed from "
        "a SQLite file. A report that arrives later is stored, but the delivery status stays without a name. The "
        "recipient's entries in contact maps are removed too; the contact list and the source still hold it, so "
        "remove it there first. On the suppression list, the recipient's own opt-out stays as a keyed hash, so that no "
        "DAG sends to the recipient again. Other entries are removed. The command asks for confirmation, unless --yes "
        "is given. Exit status: 0 on success, 1 on failure.",
    ),
)

_STOPPED_CONN_ID = Arg(("--conn-id",), "Connection whose requests are meant", required=True)
_REASON = Arg(
    ("--reason",),
    "Why, at most 200 characters. Task logs and pages show it, so name no recipient in it",
    metavar="TEXT",
)

_INSTANCE = (ARG_DAG_ID, Arg(("run_id",), "The id of the Dag run"), ARG_TASK_ID, ARG_MAP_INDEX)
_STATES = ("unknown", "pending", "accepted", "rejected", "not_sent", "all")
_FILTERS = (
    Arg(("--dag-id",), "Only requests of this Dag"),
    Arg(("--run-id",), "Only requests of this Dag run"),
    Arg(("--task-id",), "Only requests of this task"),
    Arg(
        ("--state",),
        "Only requests in this state (default: unresolved requests, which are unknown, or pending without a running "
        "task instance)",
        choices=_STATES,
        metavar=f"({', '.join(_STATES)})",
    ),
    number("--limit", 100, "Show at most this many requests, newest first"),
)
_EACH = switch("--each", "Show each request (default: each unresolved one, and counts of the others)")
_DECISION = (
    switch("--sent", "The requests were sent. They are not sent again"),
    switch("--not-sent", "The requests were not sent. The task's next try sends them"),
    Arg(
        ("--reference",),
        "Only these requests of the task instance (default: all unresolved requests)",
        nargs="+",
        action="extend",
        metavar="REFERENCE",
    ),
    Arg(
        ("--id",),
        "The service's id of what was sent, with --sent and for one request only",
        dest="result_id",
        metavar="ID",
    ),
)

_JOURNAL_COMMANDS = (
    command(
        "list",
        "journal.commands.cpaas_journal_list",
        (*_FILTERS, _EACH, ARG_OUTPUT, ARG_VERBOSE),
        "List requests, by default the unresolved ones",
    ),
    command(
        "show",
        "journal.commands.cpaas_journal_show",
        (*_INSTANCE, _EACH, ARG_OUTPUT, ARG_VERBOSE),
        "Show the journal of one task instance",
    ),
    command(
        "resolve",
        "journal.commands.cpaas_journal_resolve",
        (*_INSTANCE, *_DECISION, ARG_YES, ARG_VERBOSE),
        "Resolve requests of unknown outcome as sent or not sent",
        "Resolve requests of unknown outcome as sent (--sent) or not sent (--not-sent), as the service's own records "
        "show. Requests resolved as sent are not sent again. The task's next try sends the others. The command is "
        "refused while the task instance can still run, and for requests started less than 60 seconds ago. Exit "
        "status: 0 on success, 1 on failure.",
    ),
    command(
        "forget",
        "journal.commands.cpaas_journal_forget",
        (*_INSTANCE, ARG_YES, ARG_VERBOSE),
        "Let a task start again whose campaign journal was lost with its database",
        "Delete the record that a task instance sent a campaign with an idempotency_key. Use it when the task refuses "
        "to send because the database lacks the campaign, and the database that had it is lost for good. After a "
        "clear, the task sends again to every recipient that the provider's database (AIRFLOW__CPAAS__DATABASE) does "
        "not have. Exit status: 0 on success, 1 on failure.",
    ),
)

_COMMANDS = (
    command(
        "ping",
        "ping.ping",
        (CONN_ID,),
        "Check a connection without cost or change",
        "Check that host, path and API key of a connection are right. The command reads the contact table, which costs "
        "and changes nothing. Exit status: 0 if they are right, 1 if not.",
    ),
    command(
        "doctor",
        "doctor.command.cpaas_doctor",
        (CONN_ID, ARG_OUTPUT, ARG_VERBOSE),
        "Check everything the provider needs, and what to do",
        "Check versions, configuration, connection, API key, clocks, database, stop, budgets, receiver, callback URL "
        "and triggerer, and show what to do. The command creates, changes and costs nothing. Exit status: 0 if nothing "
        "failed, 1 if something did.",
    ),
    command(
        "stop",
        "messages.stops.cpaas_stop",
        (_STOPPED_CONN_ID, _REASON, ARG_VERBOSE),
        "Stop all requests of a connection that change something or cost money",
        "Within seconds no request that changes something or costs money leaves from any task, command, hook, notifier "
        "or idempotent client of the connection. Requests in flight are recorded. Their tasks fail without a retry, "
        "and their errors name the user, the reason and what was not sent. Reads go on, such as delivery reports. The "
        "stop is a row in the provider's database, and the command names that database. Exit status: 0 if the "
        "connection is stopped, 1 if not.",
    ),
    command(
        "resume",
        "messages.stops.cpaas_resume",
        (_STOPPED_CONN_ID, ARG_VERBOSE),
        "Let the requests of a stopped connection leave again",
        "Remove the stop of a connection. Tasks that failed because of it send nothing by themselves. After a clear "
        "they send what is left. Exit status: 0 on success, 1 on failure or if the connection is not stopped.",
    ),
    *MESSAGE_COMMANDS,
    GroupCommand("otp", "Request and verify one-time passcodes", OTP_COMMANDS),
    GroupCommand("campaigns", "Campaigns with delivery reports, and their counts", CAMPAIGN_COMMANDS),
    GroupCommand("deliveries", "Delivery status of recipients, masked", DELIVERY_COMMANDS),
    command(
        "sandbox",
        "sandbox.cpaas_sandbox",
        SANDBOX_ARGS,
        "Start the sandbox: the service as a local program",
        "Start the sandbox, with the options of cpaas-sandbox, until Ctrl-C. It sends nothing to the outside. All "
        "messages are on the inbox page.",
    ),
    command(
        "receiver",
        "receiver.command.cpaas_receiver",
        _RECEIVER,
        "Receive delivery reports in separate processes",
        "Receive delivery reports as Airflow's API server does under /cpaas, but in separate processes, for more "
        "reports than the API server can take. The receiver stores them in the database that AIRFLOW__CPAAS__DATABASE "
        "names. On SIGTERM or Ctrl-C it stores the reports it has accepted, then exits.",
    ),
    GroupCommand("db", "Manage the provider's own database (AIRFLOW__CPAAS__DATABASE)", _DATABASE_COMMANDS),
    GroupCommand("contacts", "Key maps of contact lists: which row belongs to which key of a source", CONTACT_COMMANDS),
    GroupCommand(
        "suppressions",
        "Recipients that are not sent to: opt-outs, hard bounces, invalid numbers",
        SUPPRESSION_COMMANDS,
    ),
    GroupCommand("journal", "Inspect and resolve the requests of tasks", _JOURNAL_COMMANDS),
)


def get_cli_commands() -> list[CLICommand]:
    """Return the commands Airflow adds to its own."""
    return [
        GroupCommand(
            "cpaas",
            "Messaging service: send, look up, show deliveries, check the setup, receive delivery reports",
            _COMMANDS,
        )
    ]
