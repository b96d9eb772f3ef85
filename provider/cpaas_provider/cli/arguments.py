"""What the definitions of commands have in common. Every ``airflow`` command imports this module."""

from __future__ import annotations

import os
from argparse import ArgumentTypeError
from typing import Any

from airflow.cli.cli_config import ActionCommand, Arg, lazy_load_command

MOST_ROWS = 1_000_000_000
MOST_DAYS = 36_500
_MOST_DIGITS = 20
"""A number with more digits is too large for every option, and slow to read."""


def number(
    name: str, default: int | None, text: str, *, least: int = 1, most: int = MOST_ROWS, metavar: str | None = None
) -> Arg:
    """Return an option with a whole number within bounds. Its help ends with its default, if it has one."""

    def read(value: str) -> int:
        digits = value.strip()
        whole = int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS else -1
        if not least <= whole <= most:
            raise ArgumentTypeError(f"must be a whole number from {least} to {most:,}")
        return whole

    shown = text if default is None else f"{text} (default: %(default)s)"
    return Arg((name,), shown, type=read, default=default, metavar=metavar)


def switch(name: str, text: str) -> Arg:
    """Return an option without a value."""
    return Arg((name,), text, action="store_true")


def command(
    name: str, function: str, args: tuple[Arg, ...], text: str, description: str | None = None
) -> ActionCommand:
    """Return a command that is imported when it runs, and sees the connections that `airflow connections get` sees.

    :param function: where it is, from ``cpaas_provider.cli`` on
    :param text: one line of help, which is also the description if there is no other
    """
    load = lazy_load_command(f"cpaas_provider.cli.{function}")

    def run(*arguments: Any, **options: Any) -> Any:
        # Without this, Airflow takes the process for a task without a supervisor and leaves its database out.
        os.environ["_AIRFLOW_PROCESS_CONTEXT"] = "server"
        return load(*arguments, **options)

    return ActionCommand(name, text, run, args, description)
