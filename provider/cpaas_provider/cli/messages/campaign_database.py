"""The databases that the tasks of this Airflow use, as Airflow's variables name them."""

from __future__ import annotations

import contextlib
import secrets
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


def recorded_databases(database: Database | None, session: Session) -> RecordedDatabases:
    """Return the databases that tasks recorded.

    :param database: the database of this machine, ``None`` if it has none
    :raises SQLAlchemyError: when Airflow's database cannot be read
    """
    mine = None if database is None else f"{CAMPAIGN_DATABASE}.{database.database_id}."
    named = Variable.key.startswith(f"{CAMPAIGN_DATABASE}.", autoescape=True)
    found = {variable.key: str(variable.get_val()) for variable in session.scalars(select(Variable).where(named))}
    others = {value for key, value in found.items() if mine is None or not key.startswith(mine)}
    return RecordedDatabases(mine is not None and any(key.startswith(mine) for key in found), sorted(others))


def describe_other_database(database: Database | None) -> str | None:
    """Return that the tasks of this Airflow use another database; ``None`` if none is recorded.

    :param database: the database of this machine, ``None`` if it has none
    """
    try:
        with create_session(scoped=False) as session:
            others = recorded_databases(database, session).others
    except SQLAlchemyError as error:
        warn(
            f"Airflow's database cannot be read ({type(error).__name__}). The command cannot check that tasks use the "
            "same provider database. It uses the database of this machine."
        )
        return None
    if not others:
        return None
    used = "has none" if database is None else f"uses {database.redacted_url}"
    return (
        f"The tasks of this Airflow store campaigns and the suppression list in another database: "
        f"{', '.join(others)}. This machine {used}."
    )


def refuse_other_database(database: Database | None, advice: str) -> None:
    """End a command if the tasks of this Airflow use another database.

    :param database: the database of this machine, ``None`` if it has none
    :param advice: what the command did not do, and how to do it all the same
    :raises SystemExit: when they do
    """
    if other := describe_other_database(database):
        raise SystemExit(f"{other} {advice} Set [cpaas] database to the same database everywhere.")


def record_database(database: Database) -> None:
    """Record the database of this machine for the tasks of this Airflow, as it stores a suppression list."""
    name = f"{CAMPAIGN_DATABASE}.{database.database_id}.{secrets.token_hex(4)}"
    with contextlib.suppress(SQLAlchemyError), create_session(scoped=False) as session:
        if not recorded_databases(database, session).this:
            Variable.set(name, database.redacted_url, session=session)
