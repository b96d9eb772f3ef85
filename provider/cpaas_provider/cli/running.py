"""What the commands share: how they end, and the connection that they work with."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import traceback
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path

from airflow.utils.cli import suppress_logs_and_warning
from airflow.utils.providers_configuration_loader import providers_configuration_loaded

from cpaas_provider.api.errors import CpaasError
from cpaas_provider.cli.ping import how_to_define
from cpaas_provider.cli.terminal import drop_output, warn
from cpaas_provider.contacts.errors import ContactsError
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.hooks.connection import CpaasConnection
from cpaas_provider.hooks.cpaas import CpaasHook
from cpaas_provider.sending.errors import SendingError
from cpaas_provider.sending.journal.resolution import CannotResolveError
from cpaas_provider.sources.base import SourceError

FAILED = 1
UNKNOWN = 3
"""The exit status of a command that cannot tell whether the service acted. A script must not simply run it again."""

STOPPED = 130
"""The exit status of a program that was stopped with Ctrl-C."""

_IN_WORDS = (CannotResolveError, ContactsError, CpaasError, DatabaseError, SendingError, SourceError)
"""Errors with messages for users. The messages show no API key, passcode, content, number or address."""


def guarded(work: Callable[[Namespace], None]) -> Callable[[Namespace], None]:
    """Return a command that ends every failure with one line and an exit status, and without a traceback."""

    @functools.wraps(work)
    def run(args: Namespace) -> None:
        try:
            _open_closed_streams()
            suppress_logs_and_warning(providers_configuration_loaded(work))(args)
            sys.stdout.flush()
        except KeyboardInterrupt:
            warn("Stopped by Ctrl-C.")
            raise SystemExit(STOPPED) from None
        except BrokenPipeError:
            # The program that reads the output has ended, such as `head`.
            drop_output(sys.stdout)
            raise SystemExit(FAILED) from None
        except Exception as error:  # noqa: BLE001 - every failure ends in one line
            raise SystemExit(describe(error, "The command")) from None

    return run


def describe(error: Exception, failed: str) -> str:
    """Return one line on a failure.

    :param failed: what failed, for an unexpected error. Its own message may show what was typed, so it is left out
    """
    if isinstance(error, _IN_WORDS):
        return str(error)
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{failed} failed because of an unexpected error: {type(error).__name__} at {frame.name}:{frame.lineno}."


def _open_closed_streams() -> None:
    """Open the null device for each standard stream that the shell has closed. Python sets it to ``None``."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - as long as the program


@contextlib.contextmanager
def after_sending(words: str) -> Iterator[None]:
    """Print a result in this context. If it cannot be printed, warn and do not fail: a script would send again.

    :param words: what the service has accepted
    """
    try:
        yield
        sys.stdout.flush()
    except (OSError, UnicodeError) as error:
        drop_output(sys.stdout)
        reason = getattr(error, "strerror", None) or type(error).__name__
        warn(f"{words} The result could not be printed ({reason}).")


@contextlib.contextmanager
def until_stopped(words: str) -> Iterator[None]:
    """End the command with a message on Ctrl-C.

    :param words: what was and was not done
    """
    try:
        yield
    except KeyboardInterrupt:
        warn(words)
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
