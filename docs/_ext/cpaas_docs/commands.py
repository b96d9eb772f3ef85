"""The command line as Markdown, from the parsers that read it."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Iterator

from cpaas_docs.signatures import find


@functools.cache
def airflow_parser() -> argparse.ArgumentParser:
    """Return a parser of ``airflow cpaas ...``, made the way Airflow makes its own."""
    from airflow.cli import cli_parser

    parser = argparse.ArgumentParser(prog="airflow")
    commands = parser.add_subparsers()
    for command in find("cpaas_provider.cli.get_cli_commands")():
        cli_parser._add_command(commands, command)
    return parser


@functools.cache
def sandbox_parser() -> argparse.ArgumentParser:
    """Return the parser of ``cpaas-sandbox``."""
    parser: argparse.ArgumentParser = find("cpaas_sandbox.__main__._parser")()
    return parser


def parser_of(program: str) -> argparse.ArgumentParser:
    """Return the parser of ``airflow`` or ``cpaas-sandbox``."""
    return {"airflow": airflow_parser, "cpaas-sandbox": sandbox_parser}[program]()


def leaves(parser: argparse.ArgumentParser) -> Iterator[tuple[argparse.ArgumentParser, str]]:
    """Yield each command below a parser that can be run, with its one line of help."""
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not groups:
        yield parser, ""
    for group in groups:
        said = {choice.dest: choice.help or "" for choice in group._choices_actions}
        for name, below in group.choices.items():
            for leaf, words in leaves(below):
                yield leaf, words or said.get(name, "")


def commands(program: str, level: int = 3) -> Iterator[str]:
    """Yield an entry for each command."""
    for parser, words in leaves(parser_of(program)):
        yield f"{'#' * level} `{parser.prog}`"
        yield ""
        description = (parser.description or words).split("\n\n")[0]
        yield f"{' '.join(description.split()).rstrip('.')}."
        yield ""
        yield "```text"
        yield _usage(parser)
        yield "```"
        yield ""
        for action in parser._actions:
            if not isinstance(action, argparse._HelpAction):
                yield f"* {_spelled(action)}: {_help(parser, action)}"
        yield ""


def _usage(parser: argparse.ArgumentParser) -> str:
    """Return the usage without what a terminal's colours or width would make of it."""
    formatter = argparse.HelpFormatter(prog=parser.prog, width=88)
    formatter.add_usage(None, parser._actions, parser._mutually_exclusive_groups, prefix="")
    return formatter.format_help().strip()


def _spelled(action: argparse.Action) -> str:
    value = "" if action.nargs == 0 else f" {action.metavar or (action.dest if action.choices is None else '')}"
    if action.choices is not None and not action.metavar:
        value = f" {{{','.join(map(str, action.choices))}}}"
    if not action.option_strings:
        return f"`{(action.metavar or action.dest)}`"
    return ", ".join(
        f"`{option}{value.upper() if not action.metavar and action.choices is None else value}`"
        for option in action.option_strings
    )


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    words = argparse.HelpFormatter(prog=parser.prog)._expand_help(action) if action.help else ""
    return " ".join(words.split()) or "(no description)"
