"""The commands and options of ``airflow cpaas suppressions``. Every ``airflow`` command imports this module."""

from __future__ import annotations

from airflow.cli.cli_config import ARG_OUTPUT, ARG_VERBOSE, Arg

from cpaas_provider.cli.arguments import command, number, switch

_REASONS = ("opt_out", "complaint", "hard_bounce", "invalid_number")
_CHANNELS = ("all", "sms", "whatsapp", "email")

_RECIPIENTS = Arg(
    ("recipients",),
    "Phone numbers and email addresses. Give - to read them from standard input, one a line, so that process lists and "
    "shell history do not show them",
    nargs="+",
    metavar="RECIPIENT",
)
_REGION = Arg(("--region",), "Two-letter region of national phone numbers, such as NG", metavar="REGION")
_NUMBER_CHECK = Arg(
    ("--number-check",),
    "'possible' also takes numbers of the right length that the numbering plans do not have yet (default: %(default)s)",
    choices=("valid", "possible"),
    default="valid",
)
_READING = (_REGION, _NUMBER_CHECK)
_REASON = Arg(
    ("--reason",), "Why they are not to be sent to (default: %(default)s)", choices=_REASONS, default="opt_out"
)
_CHANNEL = Arg(
    ("--channel",), "Channel that the entries hold for (default: %(default)s)", choices=_CHANNELS, default="all"
)
_CONN_ID = Arg(("--conn-id",), "Connection that the entries hold for (default: all connections)")
_SOURCE = Arg(
    ("--source",),
    "Where the entries come from, at most 100 characters. Name no recipient in it (default: the command)",
    metavar="TEXT",
)
_ONLY = (
    Arg(("--reason",), "Only entries of this reason (default: all)", choices=_REASONS),
    Arg(("--channel",), "Only entries of this channel (default: all)", choices=_CHANNELS),
    Arg(("--conn-id",), "Only entries of this connection; '' for those of all connections (default: every entry)"),
)
_RECIPIENT = Arg(
    ("--recipient",),
    "Only entries of this phone number or email address. Give - to read it from standard input",
    metavar="RECIPIENT",
)
_LIMIT = number("--limit", 100, "Show at most this many entries")
_FILE = Arg(
    ("file",),
    "CSV, JSON Lines or Parquet file with a column of recipients, or an export of this list",
    metavar="FILE",
)
_COLUMN = Arg(("--column",), "Column of the recipients (default: %(default)s)", default="recipient", metavar="COLUMN")
_SKIP_INVALID = switch("--skip-invalid", "Import the other rows where some cannot be read (default: import none)")
_NEW_FILE = Arg(("file",), "CSV file to write; it must not exist", metavar="FILE")

SUPPRESSION_COMMANDS = (
    command(
        "list",
        "suppressions.actions.cpaas_suppressions_list",
        (_RECIPIENT, *_READING, *_ONLY, _LIMIT, ARG_OUTPUT, ARG_VERBOSE),
        "List entries of the suppression list",
        "List entries: the beginning of the recipient's hash, channel, connection, reason, source and date. The list "
        "holds no number and no address, only keyed hashes. --recipient shows the entries of one.",
    ),
    command(
        "add",
        "suppressions.actions.cpaas_suppressions_add",
        (_RECIPIENTS, _REASON, _CHANNEL, _CONN_ID, _SOURCE, *_READING, ARG_VERBOSE),
        "Add recipients to the suppression list",
        "Add recipients, so that no campaign and no single send reaches them. A passcode is refused for invalid_number "
        "only. Exit status: 0 on success, 1 on failure.",
    ),
    command(
        "remove",
        "suppressions.actions.cpaas_suppressions_remove",
        (_RECIPIENTS, *_ONLY, *_READING, ARG_VERBOSE),
        "Remove recipients from the suppression list",
        "Remove recipients, so that they are sent to again. A later delivery report of a permanent failure adds them "
        "again. Exit status: 0 on success, 1 on failure or if there was no such entry.",
    ),
    command(
        "import",
        "suppressions.actions.cpaas_suppressions_import",
        (_FILE, _COLUMN, _REASON, _CHANNEL, _CONN_ID, _SOURCE, *_READING, _SKIP_INVALID, ARG_VERBOSE),
        "Add the recipients of a file to the suppression list",
        "Add the recipients of a file, or the entries of an export. An export can be imported into the database that "
        "it comes from, or into a copy of it: hashes of another database match no recipient. Exit status: 0 on "
        "success, 1 on failure.",
    ),
    command(
        "export",
        "suppressions.actions.cpaas_suppressions_export",
        (_NEW_FILE, *_ONLY, ARG_VERBOSE),
        "Write the suppression list to a CSV file",
        "Write every entry to a CSV file, with the keyed hash in the place of the recipient. Exit status: 0 on "
        "success, 1 on failure.",
    ),
)
