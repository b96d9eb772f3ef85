"""Output and input of the commands."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Any, TextIO

from airflow.cli.simple_table import AirflowConsole, SimpleTable
from airflow.utils.helpers import ask_yesno

from cpaas_provider.api.text import blank_unprintable

READABLE = ("table", "plain")
"""The values of ``--output`` for readers. The other values are for programs."""

_WIDEST = 10_000


class _Console(AirflowConsole):
    """A console that leaves a closed pipe to the command. Rich would end it with status 1, also after a send."""

    def on_broken_pipe(self) -> None:
        """Raise the ``BrokenPipeError`` that Rich is handling."""
        raise  # noqa: PLE0704 - Rich calls this while it handles the error


def print_lines(lines: Sequence[dict[str, Any]], output: str, copied: Collection[str] = ()) -> None:
    """Print lines of the same columns.

    :param output: ``table``, ``json``, ``yaml`` or ``plain``
    :param copied: columns whose values are copied from a table, so each value stays on one line
    """
    # A value may contain brackets and colons. They are not markup and not emoji.
    console = _Console(markup=False, emoji=False)
    if output not in READABLE:
        # Airflow's print_as would turn every number into text.
        write: Callable[[Any], None] = console.print_as_json if output == "json" else console.print_as_yaml
        write(list(lines))
        return
    if not lines:
        return
    lines = [{name: _shown(fact) for name, fact in line.items()} for line in lines]
    if output == "table":
        _print_table(console, lines, copied)
    else:
        console.print_as(lines, output)


def print_record(record: dict[str, Any], output: str) -> None:
    """Print one record: for readers a line for each field, for programs a list with one object."""
    if output not in READABLE:
        print_lines([record], output)
        return
    shown = {name: ", ".join(map(str, fact)) if isinstance(fact, list) else fact for name, fact in record.items()}
    print_lines([{"field": name, "value": fact} for name, fact in shown.items()], output, ("value",))


def _shown(fact: Any) -> Any:
    """Return a value without control characters, which could move the cursor or clear the screen."""
    if isinstance(fact, str):
        return blank_unprintable(fact)
    return "" if fact is None else fact


def _print_table(console: AirflowConsole, lines: Sequence[dict[str, Any]], copied: Collection[str]) -> None:
    """Print a table that is wider than a narrow terminal if the copied values need it."""
    table = SimpleTable(show_header=True)
    for name in lines[0]:
        table.add_column(name, no_wrap=name in copied)
    for line in lines:
        table.add_row(*map(str, line.values()))
    # Measured within the width of the terminal, no table is wider than the terminal.
    anywhere = console.options.update(max_width=_WIDEST)
    console.width = max(console.width, console.measure(table, options=anywhere).minimum)
    console.print(table)


def to_iso_time(moment: datetime | None) -> str | None:
    """Return a time as results show it, in whole seconds; ``None`` for none."""
    return None if moment is None else moment.isoformat(timespec="seconds")


def aside(args: Namespace) -> TextIO:
    """Return the stream for texts beside the result: the standard error, unless the result is a table."""
    return sys.stdout if args.output == "table" else sys.stderr


def say(text: str, to: TextIO | None = None) -> None:
    """Print a text, by default to the standard output."""
    print(text, file=to)


def warn(text: str) -> None:
    """Print a text to the standard error.

    If it cannot be printed, the command goes on, and its exit status shows what happened. A signal handler warns, too.
    """
    try:
        say(text, sys.stderr)
    except OSError:
        drop_output(sys.stderr)


def drop_output(stream: TextIO) -> None:
    """Redirect a stream to the null device. Otherwise Python fails again when it closes the stream."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def typed(argument: str) -> str:
    """Return an argument, or the next line of standard input in place of ``-``."""
    return sys.stdin.readline().strip() if argument == "-" else argument


def read_secret(prompt: str) -> str:
    """Return a secret that is typed without being shown, or that is the first line of standard input."""
    if not sys.stdin.isatty():
        return typed("-")
    from getpass import getpass

    try:
        return getpass(prompt).strip()
    except EOFError:
        return ""


def confirm(question: str, args: Namespace) -> None:
    """Ask a question, and end the command unless the response is yes or --yes is given.

    :raises SystemExit: when it is not, or when the command has no terminal to ask at
    """
    if args.yes:
        return
    try:
        agreed = ask_yesno(f"{question} [y/N]", default=False)
    except (EOFError, RuntimeError):
        raise SystemExit(
            "The command could not ask for confirmation, so nothing was changed. Give --yes to skip the question."
        ) from None
    if not agreed:
        raise SystemExit("Nothing was changed.")
