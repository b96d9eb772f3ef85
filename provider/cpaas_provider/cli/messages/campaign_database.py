"""The databases in which the tasks of this Airflow store campaigns with an idempotency_key, read from its variables."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from airflow.models.variable import Variable
from airflow.utils.session import create_session
from sqlalchemy import delete, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from cpaas_provider.cli.terminal import warn
from cpaas_provider.database.database import Database
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.sending.errors import OlderDatabaseError
from cpaas_provider.sending.journal.model import CAMPAIGN_DATABASE
from cpaas_provider.sending.journal.newest_try import NewestTry


class RecordedDatabases(NamedTuple):
    """The databases that tasks recorded.

    :param this: whether the database of this machine is among them
    :param others: the URLs of the others, without passwords
    """

    this: bool
    others: list[str]


def recorded_databases(database: Database, session: Session) -> RecordedDatabases:
    """Return the databases that tasks recorded.

    :raises SQLAlchemyError: when Airflow's database cannot be read
    """
    mine = f"{CAMPAIGN_DATABASE}.{database.database_id}."
    named = Variable.key.startswith(f"{CAMPAIGN_DATABASE}.", autoescape=True)
    found = {variable.key: str(variable.get_val()) for variable in session.scalars(select(Variable).where(named))}
    others = {value for key, value in found.items() if not key.startswith(mine)}
    return RecordedDatabases(any(key.startswith(mine) for key in found), sorted(others))


@contextlib.contextmanager
def checked_database(database: Database) -> Iterator[None]:
    """Check the database of a command with an idempotency key, and record its try at the begin and at the end.

    :raises SystemExit: when tasks store their campaigns in another database, or this one is older than Airflow knows
    :raises DatabaseError: when the provider's database cannot be used
    """
    newest_try = NewestTry(database, _Variables())
    try:
        with create_session(scoped=False) as session:
            others = recorded_databases(database, session).others
        _refuse(others, database)
        newest_try.check()
        newest_try.record_begin()
    except SQLAlchemyError as error:
        warn(
            f"Airflow's database cannot be used ({type(error).__name__}). The command cannot check that tasks use the "
            "same provider database. The key holds in this one."
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


def _refuse(others: list[str], database: Database) -> None:
    """End the command if tasks store their campaigns in other databases."""
    if others:
        raise SystemExit(
            f"The tasks of this Airflow store campaigns in another database: {', '.join(others)}. This machine uses "
            f"{database.redacted_url}, so a message with this key could be sent twice. Nothing was sent. Set [cpaas] "
            "database to the same database everywhere."
        )
