"""What the commands share: how they end, and the connection and the database they work with."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import traceback
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from airflow.utils.cli import suppress_logs_and_warning
from airflow.utils.providers_configuration_loader import providers_configuration_loaded

from cpaas_provider.api.errors import CpaasError
from cpaas_provider.cli.ping import how_to_define
from cpaas_provider.contacts.errors import ContactsError
from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.hooks.connection import CpaasConnection
from cpaas_provider.hooks.cpaas import CpaasHook
from cpaas_provider.sending.errors import SendingError
from cpaas_provider.sources.base import SourceError

FAILED = 1
UNKNOWN = 3
"""The exit status of a command that cannot tell whether the service acted. A script must not simply run it again."""

STOPPED = 130
"""The exit status of a program that was stopped with Ctrl-C."""

_IN_WORDS = (ContactsError, CpaasError, DatabaseError, SendingError, SourceError)
"""Errors whose words are for users, and show no key, code, text, number or address."""


def guarded(work: Callable[[Namespace], None]) -> Callable[[Namespace], None]:
    """Return a command that ends with one line and an exit status, whatever happens, and without a traceback."""

    @functools.wraps(work)
    def run(args: Namespace) -> None:
        try:
            _open_closed_streams()
            suppress_logs_and_warning(providers_configuration_loaded(work))(args)
            sys.stdout.flush()
        except KeyboardInterrupt:
            sys.stderr.write("Stopped by Ctrl-C.\n")
            raise SystemExit(STOPPED) from None
        except BrokenPipeError:
            # The reader has seen enough.
            _drop_output()
            raise SystemExit(FAILED) from None
        except _IN_WORDS as error:
            raise SystemExit(str(error)) from None
        except Exception as error:  # noqa: BLE001 - its words may show what was typed
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{type(error).__name__} at {place.name}:{place.lineno}"
            raise SystemExit(f"The command failed because of an unexpected error: {where}.") from None

    return run


def _open_closed_streams() -> None:
    """Have nothing to read, and write to nowhere, where a shell has closed a stream: Python has ``None`` for it."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - as long as the program


def _drop_output() -> None:
    """Write to nowhere from now on. Python would complain once more when it closes the stream."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def after_sending(words: str) -> Iterator[None]:
    """Print what was done, and do not fail where it cannot be printed: a script would do it again.

    :param words: what was done
    """
    try:
        yield
        sys.stdout.flush()
    except (OSError, UnicodeError) as error:
        _drop_output()
        reason = getattr(error, "strerror", None) or type(error).__name__
        with contextlib.suppress(OSError):
            warn(f"{words} The result could not be printed ({reason}).")


def warn(text: str) -> None:
    """Print a text beside the output."""
    sys.stderr.write(f"{text}\n")


@contextlib.contextmanager
def opened_database() -> Iterator[Database]:
    """Give the provider's database, and end the command with an error message.

    :raises SystemExit: with the words of the error
    """
    try:
        with open_database() as database:
            yield database
    except _IN_WORDS as error:
        raise SystemExit(str(error)) from None


@contextlib.contextmanager
def until_stopped(words: str) -> Iterator[None]:
    """End the command in good order on Ctrl-C.

    :param words: what was and was not done
    """
    try:
        yield
    except KeyboardInterrupt:
        sys.stderr.write(f"{words}\n")
        raise SystemExit(STOPPED) from None


def connection_of(conn_id: str) -> CpaasConnection:
    """Return the settings of a connection.

    :raises CpaasConfigurationError: when they cannot be used
    :raises SystemExit: when the connection cannot be read
    """
    try:
        return CpaasHook(conn_id).get_connection_settings()
    except CpaasError:
        raise
    except Exception as error:  # noqa: BLE001 - Airflow raises several kinds for a connection that is not there
        raise SystemExit(f"Connection {conn_id!r} cannot be read: {error}. {how_to_define(conn_id)}") from None


def read_line(prompt: str) -> str:
    """Return a secret that is typed without being shown, or that is the first line of standard input."""
    stdin: Any = sys.stdin
    if stdin.isatty():
        from getpass import getpass

        try:
            return getpass(prompt).strip()
        except EOFError:
            return ""
    return str(stdin.readline()).strip()
