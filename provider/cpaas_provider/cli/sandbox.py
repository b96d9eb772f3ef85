"""``airflow cpaas sandbox``: the program ``cpaas-sandbox``. Every ``airflow`` command imports this module.

The sandbox is a program of its own, which nothing imports. So its options are written out here, and a test compares.
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace

from airflow.cli.cli_config import Arg

_VALUES = {
    "--port": ("PORT", "Port to listen on (required); 0 takes a free port and prints it"),
    "--host": ("HOST", "Address to listen on (default: 127.0.0.1)"),
    "--api-key": (
        "KEY",
        "API key that clients must send (required, here or in the variable CPAAS_SANDBOX_API_KEY). Process lists show "
        "it here",
    ),
    "--db": (
        "FILE",
        "SQLite file for the state (default: in memory). It holds numbers, messages and passcodes; its mode is set to "
        "0600",
    ),
    "--balance": ("AMOUNT", "Initial balance"),
    "--webhook-url": ("URL", "URL of the account's webhook"),
    "--webhook-secret": (
        "SECRET",
        "Secret that signs what goes to the webhook (here or in the variable CPAAS_SANDBOX_WEBHOOK_SECRET)",
    ),
    "--signature-header": ("HEADER", "Header that carries the signature"),
}
_REPEATED = {
    "--allow-host": ("NAME", "One more name under which clients reach the sandbox; may be given several times"),
    "--set": ("NAME=VALUE", "A setting; may be given several times. `cpaas-sandbox --help` lists them"),
}
_SWITCHES = {
    "--allow-remote-callbacks": "Send delivery reports to other hosts, too",
    "--access-log": "Log operation and status of every request",
}

SANDBOX_ARGS = (
    *(Arg((option,), metavar=metavar, help=words) for option, (metavar, words) in _VALUES.items()),
    *(Arg((option,), metavar=metavar, action="append", help=words) for option, (metavar, words) in _REPEATED.items()),
    *(Arg((option,), action="store_true", help=words) for option, words in _SWITCHES.items()),
)


def cpaas_sandbox(args: Namespace) -> None:
    """Become the sandbox, so that Ctrl-C and signals reach it and its exit status is the command's."""
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "cpaas_sandbox", *sandbox_options(args)])  # noqa: S606


def sandbox_options(args: Namespace) -> list[str]:
    """Return the options as the sandbox takes them."""
    options: list[str] = []
    for option in _VALUES:
        if (value := getattr(args, _name(option))) is not None:
            options.append(f"{option}={value}")
    for option in _REPEATED:
        options += [f"{option}={value}" for value in getattr(args, _name(option)) or ()]
    return options + [option for option in _SWITCHES if getattr(args, _name(option))]


def _name(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")
