"""The commands for single messages, passcodes and lookups. Every ``airflow`` command imports this module."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable
from typing import Any

from airflow.cli.cli_config import ARG_OUTPUT, ARG_VERBOSE, ActionCommand, Arg

from cpaas_provider.provider_info import DEFAULT_CONN_ID

MOST_ROWS = 1_000_000_000
MOST_DAYS = 36_500
MOST_PORT = 65_535


def whole_number(most: int, least: int = 1) -> Callable[[str], int]:
    """Return a function that reads a whole number within bounds, as argparse calls it; for the other commands, too."""

    def read(text: str) -> int:
        digits = text.strip()
        # Beyond so many digits it is too large, and slow to read.
        value = int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 20 else -1
        if not least <= value <= most:
            raise ArgumentTypeError(f"must be a whole number from {least} to {most:,}")
        return value

    return read


_CONN_ID = Arg(("--conn-id",), default=DEFAULT_CONN_ID, help="Connection to use (default: %(default)s)")
_ANY_CONN_ID = Arg(("--conn-id",), help="Only this connection (default: all)")
_REGION = Arg(
    ("--region",),
    metavar="REGION",
    help="Two-letter region of national phone numbers, such as NG (default: default_region of the connection)",
)
_HIDDEN = "Give - to read them from standard input, so that process lists and shell history do not show them"
_FILE = {"metavar": "FILE", "help": "File with more of them, in lines or with commas; - is standard input"}
_NO_SUPPRESSION_LIST = Arg(
    ("--no-suppression-list",), action="store_true", help="Send to recipients on the stored suppression list, too"
)
_SENDING = (
    Arg(("--content",), metavar="TEXT", help="The text. Process lists and shell history show it"),
    Arg(
        ("--content-file",),
        metavar="FILE",
        help="File with the text; - is standard input, which is also read without any of these options",
    ),
    Arg(("--template-id",), metavar="ID", help="A template that the service stores, in place of a text"),
    Arg(("--sender-id",), metavar="SENDER", help="The sender (default: the connection's)"),
    Arg(("--external-ref",), metavar="TEXT", help="A reference of your own (default: the provider's)"),
    Arg(
        ("--idempotency-key",),
        metavar="KEY",
        help="Send it once, however often the command runs with this key, connection and database. Without a key each "
        "run sends again",
    ),
    Arg(
        ("--resend-unknown",),
        action="store_true",
        help="Send again what an earlier run with this key left with an unknown outcome",
    ),
    _NO_SUPPRESSION_LIST,
    Arg(("--no-callback",), action="store_true", help="Send without delivery reports"),
    Arg(("--dry-run",), action="store_true", help="Check everything, count pages and recipients, and send nothing"),
    _CONN_ID,
    ARG_OUTPUT,
    ARG_VERBOSE,
)
_STATUS = (
    "Exit status: 0 if the service accepted it for all recipients, 1 if not, 3 if the outcome is unknown. After 3 do "
    "not simply run the command again."
)


def _recipients(what: str) -> tuple[Arg, ...]:
    return (
        Arg(("recipients",), nargs="*", metavar="RECIPIENT", help=f"{what}. {_HIDDEN}"),
        Arg(("--recipients-file",), **_FILE),
    )


def message_commands(command: Callable[[str], Callable[..., Any]]) -> tuple[ActionCommand, ...]:
    """Return the commands that send, look up, and show the balance.

    :param command: returns a command that is imported when it runs, from the path of its function
    """
    return (
        ActionCommand(
            name="send-sms",
            help="Send an SMS to one or more numbers",
            description=f"Send one SMS to one or more phone numbers, in one request. {_STATUS}",
            func=command("cpaas_provider.cli.messages.send.cpaas_send_sms"),
            args=(
                *_recipients("Phone numbers"),
                Arg(("--channel",), choices=("sms", "whatsapp"), default="sms", help="Channel (default: %(default)s)"),
                _REGION,
                *_SENDING,
            ),
        ),
        ActionCommand(
            name="send-email",
            help="Send an email to one or more addresses",
            description=f"Send one email to one or more addresses, in one request. {_STATUS}",
            func=command("cpaas_provider.cli.messages.send.cpaas_send_email"),
            args=(
                *_recipients("Email addresses"),
                Arg(("--subject",), metavar="TEXT", help="Subject line"),
                Arg(("--from-name",), metavar="NAME", help="Name of the sender"),
                Arg(("--reply-to",), metavar="ADDRESS", help="Address that replies go to"),
                *_SENDING,
            ),
        ),
        ActionCommand(
            name="lookup",
            help="Look phone numbers up: operator, country, ported, do-not-disturb",
            description=(
                "Look up the operator, country, porting and do-not-disturb flag of phone numbers, each once. The "
                "service charges for each lookup. A number that was looked up lately is answered from the cache of "
                "campaigns, which has the do-not-disturb flag only. Exit status: 0 if every lookup succeeded, 1 if not."
            ),
            func=command("cpaas_provider.cli.messages.lookup.cpaas_lookup"),
            args=(
                Arg(("phones",), nargs="*", metavar="PHONE", help=f"Phone numbers. {_HIDDEN}"),
                Arg(("--phones-file",), **_FILE),
                Arg(("--no-cache",), action="store_true", help="Ask the service for every number"),
                Arg(
                    ("--max-age",),
                    metavar="DAYS",
                    type=whole_number(MOST_DAYS),
                    default=30,
                    help="Use lookups of the cache that are at most this old, in days (default: %(default)s)",
                ),
                _REGION,
                _CONN_ID,
                ARG_OUTPUT,
                ARG_VERBOSE,
            ),
        ),
        ActionCommand(
            name="balance",
            help="Show the last balance that the service reported",
            description=(
                "Show the last balance of each connection, with its time and the task that recorded it. The service "
                "has no operation that returns a balance: it reports the balance with each send and purchase. Exit "
                "status: 0 if a balance is known, 1 if not."
            ),
            func=command("cpaas_provider.cli.messages.balance.cpaas_balance"),
            args=(_ANY_CONN_ID, ARG_OUTPUT, ARG_VERBOSE),
        ),
    )


def otp_commands(command: Callable[[str], Callable[..., Any]]) -> tuple[ActionCommand, ...]:
    """Return the commands on passcodes.

    :param command: as for the others
    """
    return (
        ActionCommand(
            name="request",
            help="Request a passcode, which the service delivers",
            description=(
                "Request a one-time passcode, which the service makes and delivers. Each run requests another one. "
                "Exit status: 0 if the service accepted it, 1 if not, 3 if the outcome is unknown."
            ),
            func=command("cpaas_provider.cli.messages.otp.cpaas_otp_request"),
            args=(
                Arg(("recipient",), help="Phone number. Give - to read it from standard input"),
                Arg(("--length",), metavar="DIGITS", type=int, help="Digits of the code, 4 to 8"),
                Arg(
                    ("--expires-in",), metavar="MINUTES", type=int, help="Minutes for which the code is valid, 1 to 60"
                ),
                Arg(("--channel",), choices=("sms", "whatsapp"), help="Channel (default: the service's)"),
                _NO_SUPPRESSION_LIST,
                _REGION,
                _CONN_ID,
                ARG_OUTPUT,
                ARG_VERBOSE,
            ),
        ),
        ActionCommand(
            name="verify",
            help="Check a code",
            description=(
                "Check a code that was delivered. The command asks for the code without showing it, or reads the first "
                "line of standard input. It takes no code as an argument, as process lists would show it. Exit status: "
                "0 if the code was accepted, 1 if not, 3 if the outcome is unknown."
            ),
            func=command("cpaas_provider.cli.messages.otp.cpaas_otp_verify"),
            args=(
                Arg(("otp_id",), metavar="ID", help="Id of the passcode, as `otp request` shows it"),
                _CONN_ID,
                ARG_OUTPUT,
                ARG_VERBOSE,
            ),
        ),
    )
