"""Translates errors of drivers: their own messages show the statement with all its values."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, SQLAlchemyError

from cpaas_provider.database.errors import DatabaseError, RejectedDataError
from cpaas_provider.database.url import redacted

if TYPE_CHECKING:
    from sqlalchemy import URL

    from cpaas_provider.database._engine.timeouts import TimedTransaction

_CONFLICT_CODES = ("40001", "40P01")  # PostgreSQL: could not serialize, deadlock
_DATA_CLASSES = ("22", "23", "54")  # classes of SQLSTATE: value, constraint, program limit


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
        if _is_of_data(error):
            raise _rejected(f"{type(error).__name__} {_sql_state(error)}".rstrip()) from None
        reason = _reason(error, url)
        if running is not None and running.over:
            reason = f"it did not respond within {running.seconds:g} s"
        raise DatabaseError(
            f"The database {redacted(url)} could not be used: {reason}. Check that it can be reached and has free "
            "space, or set [cpaas] database to another."
        ) from None


def is_conflict(error: DBAPIError) -> bool:
    """Return whether a transaction conflicted with a concurrent write, and may be retried."""
    return isinstance(error, IntegrityError) or _sql_state(error) in _CONFLICT_CODES


def _is_of_data(error: SQLAlchemyError) -> bool:
    return isinstance(error, (DataError, IntegrityError)) or _sql_state(error).startswith(_DATA_CLASSES)


def _sql_state(error: SQLAlchemyError) -> str:
    cause = getattr(error, "orig", None)
    return getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None) or ""


def _rejected(why: str) -> RejectedDataError:
    return RejectedDataError(f"The database rejected the values ({why}). None of them was stored.")


def _reason(error: SQLAlchemyError, url: URL) -> str:
    cause = getattr(error, "orig", None) or error
    first = next(iter(str(cause).strip().splitlines()), "").rstrip(". ")
    return f"{first.replace(str(url.password), '***') if url.password else first} ({type(cause).__name__})"
