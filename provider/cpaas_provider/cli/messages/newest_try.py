"""The number of the newest try with an idempotency key, for a command."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from airflow.models.variable import Variable
from airflow.utils.session import create_session
from sqlalchemy import delete, select
from sqlalchemy.exc import SQLAlchemyError

from cpaas_provider.cli.terminal import warn
from cpaas_provider.database.database import Database
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.sending.errors import OlderDatabaseError
from cpaas_provider.sending.journal.newest_try import NewestTry


@contextlib.contextmanager
def recorded_try(database: Database) -> Iterator[None]:
    """Check that the database is no older copy, and record a command with an idempotency key at its begin and end.

    :raises SystemExit: when the database is older than what Airflow knows of it
    :raises DatabaseError: when the database cannot be used
    """
    newest_try = NewestTry(database, _Variables())
    try:
        newest_try.check()
        newest_try.record_begin()
    except SQLAlchemyError as error:
        warn(
            f"Airflow's database cannot be used ({type(error).__name__}). The command cannot check that the provider's "
            "database is no older copy."
        )
    except OlderDatabaseError as error:
        raise SystemExit(str(error)) from None
    try:
        yield
    finally:
        try:
            newest_try.record_end()
        except (SQLAlchemyError, DatabaseError) as error:
            warn(f"The end of this command could not be recorded in Airflow's variables ({type(error).__name__}).")


class _Variables:
    """Airflow's variables, as a command reads and writes them."""

    def names(self, prefix: str) -> Sequence[str]:
        with create_session(scoped=False) as session:
            return session.scalars(select(Variable.key).where(Variable.key.startswith(prefix, autoescape=True))).all()

    def set(self, name: str, value: str, description: str) -> None:
        with create_session(scoped=False) as session:
            session.add(Variable(name, value, description))

    def delete(self, name: str) -> None:
        with create_session(scoped=False) as session:
            session.execute(delete(Variable).where(Variable.key == name))
