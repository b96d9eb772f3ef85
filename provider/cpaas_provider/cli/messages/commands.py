"""The commands for single messages, passcodes and lookups. Every ``airflow`` command imports this module."""

from __future__ import annotations

from airflow.cli.cli_config import ARG_OUTPUT, ARG_VERBOSE, Arg

from cpaas_provider.cli.arguments import MOST_DAYS, command, number, switch
from cpaas_provider.provider_info import DEFAULT_CONN_ID

CONN_ID = Arg(("--conn-id",), "Connection to use (default: %(default)s)", default=DEFAULT_CONN_ID)
_ANY_CONN_ID = Arg(("--conn-id",), "Only this connection (default: all)")
_REGION = Arg(
    ("--region",),
    "Two-letter region of national phone numbers, such as NG (default: default_region of the connection)",
    metavar="REGION",
)
_HIDDEN = "Give - to read them from standard input, so that process lists and shell history do not show them"
_MORE = "File with more of them, in lines or with commas; - is standard input"
_NO_SUPPRESSION_LIST = switch("--no-suppression-list", "Send to recipients on the stored suppression list, too")
_SENDING = (
    Arg(("--content",), "The text. Process lists and shell history show it", metavar="TEXT"),
    Arg(
        ("--content-file",),
        "File with the text; - is standard input, which is also read without any of these options",
        metavar="FILE",
    ),
    Arg(("--template-id",), "A template that the service stores, in place of a text", metavar="ID"),
    Arg(("--sender-id",), "The sender (default: the connection's)", metavar="SENDER"),
    Arg(("--external-ref",), "A reference of your own (default: the provider's)", metavar="TEXT"),
    Arg(
        ("--idempotency-key",),
        "Send it once, however often the command runs with this key, connection and database. Without a key each run "
        "sends again",
        metavar="KEY",
    ),
    switch("--resend-unknown", "Send again what an earlier run with this key left with an unknown outcome"),
    _NO_SUPPRESSION_LIST,
    switch("--no-callback", "Send without delivery reports"),
    switch("--dry-run", "Check everything, count pages and recipients, and send nothing"),
    CONN_ID,
    ARG_OUTPUT,
    ARG_VERBOSE,
)
_STATUS = (
    "Exit status: 0 if the service accepted it for all recipients, 1 if not, 3 if the outcome is unknown. After 3 do "
    "not simply run the command again."
)


def _recipients(what: str) -> tuple[Arg, ...]:
    return (
        Arg(("recipients",), f"{what}. {_HIDDEN}", nargs="*", metavar="RECIPIENT"),
        Arg(("--recipients-file",), _MORE, metavar="FILE"),
    )


MESSAGE_COMMANDS = (
    command(
        "send-sms",
        "messages.send.cpaas_send_sms",
        (
            *_recipients("Phone numbers"),
            Arg(("--channel",), "Channel (default: %(default)s)", choices=("sms", "whatsapp"), default="sms"),
            Arg(
                ("--encoding",),
                "gsm7 replaces typographic quotes, dashes, spaces and the like, if the whole text is GSM-7 then "
                "(default: the text stays as it is written)",
                choices=("gsm7",),
            ),
            _REGION,
            *_SENDING,
        ),
        "Send an SMS to one or more numbers",
        f"Send one SMS to one or more phone numbers, in one request. {_STATUS}",
    ),
    command(
        "send-email",
        "messages.send.cpaas_send_email",
        (
            *_recipients("Email addresses"),
            Arg(("--subject",), "Subject line", metavar="TEXT"),
            Arg(("--from-name",), "Name of the sender", metavar="NAME"),
            Arg(("--reply-to",), "Address that replies go to", metavar="ADDRESS"),
            *_SENDING,
        ),
        "Send an email to one or more addresses",
        f"Send one email to one or more addresses, in one request. {_STATUS}",
    ),
    command(
        "lookup",
        "messages.lookup.cpaas_lookup",
        (
            Arg(("phones",), f"Phone numbers. {_HIDDEN}", nargs="*", metavar="PHONE"),
            Arg(("--phones-file",), _MORE, metavar="FILE"),
            switch("--no-cache", "Ask the service for every number"),
            number(
                "--max-age",
                30,
                "Use lookups of the cache that are at most this old, in days",
                most=MOST_DAYS,
                metavar="DAYS",
            ),
            *(_REGION, CONN_ID, ARG_OUTPUT, ARG_VERBOSE),
        ),
        "Look phone numbers up: operator, country, ported, do-not-disturb",
        "Look up the operator, country, porting and do-not-disturb flag of phone numbers, each once. The service "
        "charges for each lookup. A number that was looked up lately is answered from the cache of campaigns, which "
        "has the do-not-disturb flag only. Exit status: 0 if every lookup succeeded, 1 if not.",
    ),
    command(
        "balance",
        "messages.balance.cpaas_balance",
        (_ANY_CONN_ID, ARG_OUTPUT, ARG_VERBOSE),
        "Show the last balance that the service reported",
        "Show the last balance of each connection, with its time and the task that recorded it. The service has no "
        "operation that returns a balance: it reports the balance with each send and purchase. Exit status: 0 if a "
        "balance is known, 1 if not.",
    ),
    command(
        "budget",
        "messages.budget.cpaas_budget",
        (CONN_ID, ARG_OUTPUT, ARG_VERBOSE),
        "Show what is spent of the budgets of a connection",
        "Show what all requests of a connection cost in the current day and month, with the limits of daily_budget and "
        "monthly_budget. Requests in flight count as reserved. The state is available, nearly reached (from 80 % on) "
        "or reached. Exit status: 0 if requests that cost money may leave, 1 if a budget is reached, or if there is "
        "none.",
    ),
)
OTP_COMMANDS = (
    command(
        "request",
        "messages.otp.cpaas_otp_request",
        (
            Arg(("recipient",), "Phone number. Give - to read it from standard input"),
            Arg(("--length",), "Digits of the code, 4 to 8", metavar="DIGITS", type=int),
            Arg(("--expires-in",), "Minutes for which the code is valid, 1 to 60", metavar="MINUTES", type=int),
            Arg(("--channel",), "Channel (default: the service's)", choices=("sms", "whatsapp")),
            *(_NO_SUPPRESSION_LIST, _REGION, CONN_ID, ARG_OUTPUT, ARG_VERBOSE),
        ),
        "Request a passcode, which the service delivers",
        "Request a one-time passcode, which the service makes and delivers. Each run requests another one. Exit "
        "status: 0 if the service accepted it, 1 if not, 3 if the outcome is unknown.",
    ),
    command(
        "verify",
        "messages.otp.cpaas_otp_verify",
        (
            Arg(("otp_id",), "Id of the passcode, as `otp request` shows it", metavar="ID"),
            *(CONN_ID, ARG_OUTPUT, ARG_VERBOSE),
        ),
        "Check a code",
        "Check a code that was delivered. The command asks for the code without showing it, or reads the first line of "
        "standard input. It takes no code as an argument, as process lists would show it. Exit status: 0 if the code "
        "was accepted, 1 if not, 3 if the outcome is unknown.",
    ),
)
