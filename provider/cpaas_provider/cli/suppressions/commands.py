"""The commands and options of ``airflow cpaas suppressions``. Every ``airflow`` command imports this module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow.cli.cli_config import ARG_OUTPUT, ARG_VERBOSE, ActionCommand, Arg

from cpaas_provider.cli.messages.commands import MOST_ROWS, whole_number

_REASONS = ("opt_out", "complaint", "hard_bounce", "invalid_number")
_CHANNELS = ("all", "sms", "whatsapp", "email")

_RECIPIENTS = Arg(
    ("recipients",),
    nargs="+",
    metavar="RECIPIENT",
    help="Phone numbers and email addresses. Give - to read them from standard input, one a line, so that process "
    "lists and shell history do not show them",
)
_REGION = Arg(("--region",), metavar="REGION", help="Two-letter region of national phone numbers, such as NG")
_REASON = Arg(
    ("--reason",), choices=_REASONS, default="opt_out", help="Why they are not to be sent to (default: %(default)s)"
)
_CHANNEL = Arg(
    ("--channel",), choices=_CHANNELS, default="all", help="Channel that the entries hold for (default: %(default)s)"
)
_CONN_ID = Arg(("--conn-id",), help="Connection that the entries hold for (default: all connections)")
_SOURCE = Arg(
    ("--source",),
    metavar="TEXT",
    help="Where the entries come from, at most 100 characters. Name no recipient in it (default: the command)",
)
_ONLY_REASON = Arg(("--reason",), choices=_REASONS, help="Only entries of this reason (default: all)")
_ONLY_CHANNEL = Arg(("--channel",), choices=_CHANNELS, help="Only entries of this channel (default: all)")
_ONLY_CONN_ID = Arg(
    ("--conn-id",), help="Only entries of this connection; '' for those of all connections (default: every entry)"
)
_RECIPIENT = Arg(
    ("--recipient",),
    metavar="RECIPIENT",
    help="Only entries of this phone number or email address. Give - to read it from standard input",
)
_LIMIT = Arg(
    ("--limit",),
    type=whole_number(MOST_ROWS),
    default=100,
    help="Show at most this many entries (default: %(default)s)",
)
_FILE = Arg(
    ("file",),
    metavar="FILE",
    help="CSV, JSON Lines or Parquet file with a column of recipients, or an export of this list",
)
_COLUMN = Arg(
    ("--column",), default="recipient", metavar="COLUMN", help="Column of the recipients (default: %(default)s)"
)
_SKIP_INVALID = Arg(
    ("--skip-invalid",),
    action="store_true",
    help="Import the other rows where some cannot be read (default: import none)",
)
_NEW_FILE = Arg(("file",), metavar="FILE", help="CSV file to write; it must not exist")


def suppression_commands(command: Callable[[str], Callable[..., Any]]) -> tuple[ActionCommand, ...]:
    """Return the commands.

    :param command: returns what a command does, by its path
    """
    actions = "cpaas_provider.cli.suppressions.actions"
    return (
        ActionCommand(
            name="list",
            help="List entries of the suppression list",
            description=(
                "List entries: the beginning of the recipient's hash, channel, connection, reason, source and date. "
                "The list holds no number and no address, only keyed hashes. --recipient shows the entries of one."
            ),
            func=command(f"{actions}.cpaas_suppressions_list"),
            args=(_RECIPIENT, _REGION, _ONLY_REASON, _ONLY_CHANNEL, _ONLY_CONN_ID, _LIMIT, ARG_OUTPUT, ARG_VERBOSE),
        ),
        ActionCommand(
            name="add",
            help="Add recipients to the suppression list",
            description=(
                "Add recipients, so that no campaign and no single send reaches them. A passcode is refused for "
                "invalid_number only. Exit status: 0 on success, 1 on failure."
            ),
            func=command(f"{actions}.cpaas_suppressions_add"),
            args=(_RECIPIENTS, _REASON, _CHANNEL, _CONN_ID, _SOURCE, _REGION, ARG_VERBOSE),
        ),
        ActionCommand(
            name="remove",
            help="Remove recipients from the suppression list",
            description=(
                "Remove recipients, so that they are sent to again. A later delivery report of a permanent failure "
                "adds them again. Exit status: 0 on success, 1 on failure or if there was no such entry."
            ),
            func=command(f"{actions}.cpaas_suppressions_remove"),
            args=(_RECIPIENTS, _ONLY_REASON, _ONLY_CHANNEL, _ONLY_CONN_ID, _REGION, ARG_VERBOSE),
        ),
        ActionCommand(
            name="import",
            help="Add the recipients of a file to the suppression list",
            description=(
                "Add the recipients of a file, or the entries of an export. An export can be imported into the "
                "database that it comes from, or into a copy of it: hashes of another database match no recipient. "
                "Exit status: 0 on success, 1 on failure."
            ),
            func=command(f"{actions}.cpaas_suppressions_import"),
            args=(_FILE, _COLUMN, _REASON, _CHANNEL, _CONN_ID, _SOURCE, _REGION, _SKIP_INVALID, ARG_VERBOSE),
        ),
        ActionCommand(
            name="export",
            help="Write the suppression list to a CSV file",
            description=(
                "Write every entry to a CSV file, with the keyed hash in the place of the recipient. Exit status: 0 "
                "on success, 1 on failure."
            ),
            func=command(f"{actions}.cpaas_suppressions_export"),
            args=(_NEW_FILE, _ONLY_REASON, _ONLY_CHANNEL, _ONLY_CONN_ID, ARG_VERBOSE),
        ),
    )
