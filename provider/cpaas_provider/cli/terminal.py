"""What the commands print, and what they ask."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Collection, Sequence
from typing import Any, TextIO

from airflow.cli.simple_table import AirflowConsole, SimpleTable
from airflow.utils.helpers import ask_yesno

READABLE = ("table", "plain")
"""The values of ``--output`` that a person reads."""

_WIDEST = 10_000


def print_lines(lines: Sequence[dict[str, Any]], output: str, copied: Collection[str] = ()) -> None:
    """Print lines of the same columns.

    :param output: ``table``, ``json``, ``yaml`` or ``plain``
    :param copied: columns whose values are copied from a table, so that they are not broken into several lines
    """
    # A reason may hold brackets and colons, which are no markup and no emoji.
    console = AirflowConsole(markup=False, emoji=False)
    if output not in READABLE:
        # Airflow's own way would make text of every number.
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
    """Print one record: for a reader a line for each of its fields, for a program a list with one object."""
    if output not in READABLE:
        print_lines([record], output)
        return
    shown = {name: ", ".join(map(str, fact)) if isinstance(fact, list) else fact for name, fact in record.items()}
    print_lines([{"field": name, "value": fact} for name, fact in shown.items()], output, ("value",))


def _shown(fact: Any) -> Any:
    """Return a fact as a reader sees it: nothing in it may move the cursor or clear the screen."""
    if isinstance(fact, str) and not fact.isprintable():
        return "".join(one if one.isprintable() else " " for one in fact)
    return "" if fact is None else fact


def _print_table(console: AirflowConsole, lines: Sequence[dict[str, Any]], copied: Collection[str]) -> None:
    """Print a table in which a value to be copied is on one line, however narrow the terminal is."""
    table = SimpleTable(show_header=True)
    for name in lines[0]:
        table.add_column(name, no_wrap=name in copied)
    for line in lines:
        table.add_row(*map(str, line.values()))
    # Measured within a narrow terminal, nothing is wider than that.
    anywhere = console.options.update(max_width=_WIDEST)
    console.width = max(console.width, console.measure(table, options=anywhere).minimum)
    console.print(table)


def aside(args: Namespace) -> TextIO:
    """Return the stream for words that must not be mixed with output for a program."""
    return sys.stdout if args.output == "table" else sys.stderr


def say(text: str, to: TextIO) -> None:
    """Print a text."""
    print(text, file=to)


def confirm(question: str) -> None:
    """Ask a question, and end the command unless the response is yes.

    :raises SystemExit: when it is not, or when the command has no terminal to ask at
    """
    try:
        agreed = ask_yesno(f"{question} [y/N]", default=False)
    except (EOFError, RuntimeError):
        raise SystemExit(
            "The command could not ask for confirmation, so nothing was changed. Give --yes to skip the question."
        ) from None
    if not agreed:
        raise SystemExit("Nothing was changed.")
