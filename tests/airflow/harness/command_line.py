"""Airflow's command line within the process of the test, with an answer on standard input where one is needed."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import dataclass
from typing import Any

import pytest


@dataclass(frozen=True)
class CommandResult:
    """What a command printed, and its exit status."""

    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Return what it printed as JSON."""
        return list(json.loads(self.out))


class CommandLine:
    """Runs ``airflow ...``.

    :param before: the words that every command begins with
    """

    def __init__(self, patch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str], *before: str) -> None:
        self._patch = patch
        self._capture = capture
        self._before = before

    def __call__(self, *arguments: str, answer: str = "", **environment: str) -> CommandResult:
        """Run a command.

        :param answer: what the person types
        :param environment: variables that are set for this command
        """
        from airflow.cli import cli_parser

        full = [*self._before, *arguments]
        self._patch.setattr(sys, "argv", ["airflow", *full])
        self._patch.setattr(sys, "stdin", io.StringIO(answer))
        self._capture.readouterr()
        status, last = 0, ""
        with pytest.MonkeyPatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            try:
                args = cli_parser.get_parser().parse_args(full)
                args.func(args)
            except SystemExit as ended:
                status, last = (ended.code, "") if isinstance(ended.code, int) else (1, str(ended.code))
        said = self._capture.readouterr()
        return CommandResult(status, said.out, said.err + last)
