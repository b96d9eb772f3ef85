"""``airflow cpaas sandbox`` has the options of ``cpaas-sandbox`` and passes them on."""

from __future__ import annotations

import argparse
import os
import sys

import pytest

from cpaas_provider.cli.sandbox import SANDBOX_ARGS, cpaas_sandbox, sandbox_options
from cpaas_sandbox.__main__ import _parser

GIVEN = [
    *("--port", "0", "--host", "127.0.0.2", "--api-key", "-dashed", "--db", "a b.db", "--balance", "12.5"),
    *("--set", "price_sms=4", "--set", "otp_status_mode=sent", "--access-log", "--allow-remote-callbacks"),
    *("--webhook-url", "http://127.0.0.1:9/", "--webhook-secret", "s", "--signature-header", "X-Sign"),
    *("--allow-host", "sandbox", "--allow-host", "[fd00::1]"),
]


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for one in SANDBOX_ARGS:
        one.add_to_parser(parser)
    return parser.parse_args(arguments)


def test_options_are_those_of_the_program() -> None:
    theirs = {option for action in _parser()._actions for option in action.option_strings} - {"-h", "--help"}
    assert {flag for one in SANDBOX_ARGS for flag in one.flags} == theirs


def test_values_are_passed_on() -> None:
    given = [one for one in GIVEN if one not in ("--api-key", "-dashed")]
    assert sorted(sandbox_options(parsed(*given, "--api-key=-dashed"))) == sorted(
        [
            *("--port=0", "--host=127.0.0.2", "--api-key=-dashed", "--db=a b.db", "--balance=12.5"),
            *("--set=price_sms=4", "--set=otp_status_mode=sent", "--access-log", "--allow-remote-callbacks"),
            *("--allow-host=sandbox", "--allow-host=[fd00::1]"),
            *("--webhook-url=http://127.0.0.1:9/", "--webhook-secret=s", "--signature-header=X-Sign"),
        ]
    )


def test_no_option_is_passed_on_without_arguments() -> None:
    assert sandbox_options(parsed()) == []


def test_command_becomes_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    became: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda path, argv: became.append([path, *argv]))
    cpaas_sandbox(parsed("--port", "0"))
    assert became == [[sys.executable, sys.executable, "-m", "cpaas_sandbox", "--port=0"]]
