"""What errors of drivers mean, and their translation: their own messages show the statement with all its values."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sqlalchemy import Engine, event
from sqlalchemy.engine.interfaces import ExceptionContext
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, SQLAlchemyError

from cpaas_provider.database.errors import DatabaseError, RejectedDataError
from cpaas_provider.database.url import redacted

if TYPE_CHECKING:
    from sqlalchemy import URL

    from cpaas_provider.database._engine.timeouts import TimedTransaction

_CONFLICT_CODES = ("40001", "40P01")  # PostgreSQL: could not serialize, deadlock
_DATA_CLASSES = ("22", "23", "54")  # classes of SQLSTATE: value, constraint, program limit

# Errors after which the session is useless, though the connection stands: the server has become read-only, shuts down,
# starts, or has ended this session.
_END_OF_SESSION = ("25006", "25P03", "57P01", "57P02", "57P03", "57P05")


@contextlib.contextmanager
def translate_errors(url: URL, running: TimedTransaction | None, *, writes: bool = False) -> Iterator[None]:
    """Raise our errors instead of the driver's.

    :param running: the transaction, if it has a time limit
    :raises RejectedDataError: when the database rejected the values
    :raises DatabaseError: when it could not be used
    """
    try:
        yield
    except (ValueError, OverflowError) as error:
        if not writes:
            # A caller that reads raises an error of its own.
            raise
        # A driver raises Python's own errors for a value that it cannot send.
        raise _rejected(type(error).__name__) from None
    except SQLAlchemyError as error:
        cause = getattr(error, "orig", None) or error
        state = _sql_state(cause)
        if isinstance(error, (DataError, IntegrityError)) or state.startswith(_DATA_CLASSES):
            raise _rejected(f"{type(error).__name__} {state}".rstrip()) from None
        if running is not None and running.over:
            reason = f"it did not respond within {running.seconds:g} s"
        else:
            first = next(iter(str(cause).strip().splitlines()), "").rstrip(". ")
            shown = first.replace(str(url.password), "***") if url.password else first
            reason = f"{shown} ({type(cause).__name__})"
        raise DatabaseError(
            f"The database {redacted(url)} could not be used: {reason}. Check that it can be reached and has free "
            "space, or set [cpaas] database to another."
        ) from None


def is_conflict(error: DBAPIError) -> bool:
    """Return whether a transaction conflicted with a concurrent write, and may be retried."""
    return isinstance(error, IntegrityError) or _sql_state(error.orig) in _CONFLICT_CODES


def ends_session(error: BaseException | None) -> bool:
    """Return whether an error of the driver makes its session useless."""
    # SQLite keeps a file read-only for a connection that could not write it when it was opened.
    is_read_only = getattr(error, "sqlite_errorname", "").startswith("SQLITE_READONLY")
    return is_read_only or _sql_state(error) in _END_OF_SESSION


def discard_lost_sessions(engine: Engine) -> None:
    """Have an engine discard all its sessions when one fails with an error that makes a session useless."""

    @event.listens_for(engine, "handle_error")
    def look(context: ExceptionContext) -> None:
        if ends_session(context.original_exception):
            context.is_disconnect = True


def _sql_state(cause: BaseException | None) -> str:
    """Return the SQLSTATE of an error of psycopg or psycopg2; empty for other errors."""
    return getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None) or ""


def _rejected(why: str) -> RejectedDataError:
    return RejectedDataError(f"The database rejected the values ({why}). None of them was stored.")
