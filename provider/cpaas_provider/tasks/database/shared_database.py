"""The database that all workers share: with one each, every worker would send to every recipient."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.sending.journal.model import CAMPAIGN_DATABASE
from cpaas_provider.tasks.errors import PreflightError

if TYPE_CHECKING:
    from cpaas_provider.database.database import Database

_PREFIX = f"{CAMPAIGN_DATABASE}."
_CONTENTS = "the campaigns with an idempotency_key, the contact maps, the suppression list and the frequency caps"
_DESCRIPTION = f"Names the database that stores {_CONTENTS}. Do not delete this variable while that database is in use."


def check_database(database: Database) -> None:
    """Check that no other database was used so far, and record this one where there was none yet.

    Every task records its database first and checks afterwards. So of two workers with a database each, at the same
    moment, at least one sees the other. The names differ from task to task: no task removes the record of another.

    :raises PreflightError: when another database is recorded, or Airflow's variables cannot be used
    """
    from airflow.sdk import Variable

    recorded = recorded_databases()
    with _preflight_errors():
        if not recorded:
            name = f"{_PREFIX}{database.database_id}.{secrets.token_hex(4)}"
            Variable.set(name, database.redacted_url, description=_DESCRIPTION)
            recorded = list(Variable.keys(prefix=_PREFIX))
            if _others(recorded, database):
                Variable.delete(name)
    check_recorded(recorded, database)


def recorded_databases() -> list[str]:
    """Return the names of the variables in which databases are recorded.

    :raises PreflightError: when Airflow's variables cannot be used
    """
    from airflow.sdk import Variable

    with _preflight_errors():
        return list(Variable.keys(prefix=_PREFIX))


def check_recorded(recorded: Sequence[str], database: Database | None) -> None:
    """Check that no other database is recorded. A database in which nothing is stored yet need not be.

    :param recorded: what ``recorded_databases`` returned
    :param database: ``None`` if this worker has none
    :raises PreflightError: when another database is recorded
    """
    with _preflight_errors():
        others = _others(recorded, database)
    if not others:
        return
    commands = "; ".join(f"airflow variables delete {name}" for name in others)
    used = "has none" if database is None else f"uses {database.redacted_url}"
    raise PreflightError(
        f"Another database stores {_CONTENTS}, and this worker {used}. Requests that were accepted there would be "
        "sent again, recipients on the list would get the message, and rate limits would not hold. Nothing was "
        "sent. Set [cpaas] database to the same database on all workers, not to a file of each worker. If the "
        "database of this worker has replaced the other one for good, run the following and then clear the task: "
        f"{commands}",
        permanent=True,
    )


def _others(recorded: Sequence[str], database: Database | None) -> list[str]:
    """Return the names of the variables that other databases have."""
    if database is None or not recorded:
        return list(recorded)
    mine = f"{_PREFIX}{database.database_id}."
    return [name for name in recorded if not name.startswith(mine)]


@contextlib.contextmanager
def _preflight_errors() -> Iterator[None]:
    """Raise our errors instead of those of the database and of Airflow's variables."""
    try:
        yield
    except DatabaseError as error:
        raise PreflightError(f"{error} Nothing was sent.", permanent=False) from None
    except Exception as error:  # noqa: BLE001 - Airflow raises several kinds, and none may let a request leave
        raise PreflightError(
            f"Airflow's variables could not be read or written ({type(error).__name__}). One of them names the "
            f"database that stores {_CONTENTS}. Nothing was sent. The task can be retried.",
            permanent=False,
        ) from None
