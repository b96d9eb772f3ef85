"""The databases in which the tasks of this Airflow store campaigns with an idempotency_key, read from its variables."""

from __future__ import annotations

from typing import NamedTuple

from airflow.models.variable import Variable
from airflow.utils.session import create_session
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from cpaas_provider.cli.terminal import warn
from cpaas_provider.database.database import Database
from cpaas_provider.sending.journal.model import CAMPAIGN_DATABASE


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


def refuse_other_database(database: Database) -> None:
    """End a command with an idempotency key if tasks store their campaigns in another database.

    :raises SystemExit: when they do
    """
    try:
        with create_session(scoped=False) as session:
            others = recorded_databases(database, session).others
    except SQLAlchemyError as error:
        warn(
            f"Airflow's database cannot be read ({type(error).__name__}). The command cannot check that tasks use the "
            "same provider database. The key holds in this one."
        )
        return
    if others:
        raise SystemExit(
            f"The tasks of this Airflow store campaigns in another database: {', '.join(others)}. This machine uses "
            f"{database.redacted_url}, so a message with this key could be sent twice. Nothing was sent. Set [cpaas] "
            "database to the same database everywhere."
        )
