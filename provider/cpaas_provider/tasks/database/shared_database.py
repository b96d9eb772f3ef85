"""The database that all workers share: with one each, every worker would send to every recipient."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.sending.journal.model import CAMPAIGN_DATABASE
from cpaas_provider.tasks.airflow.locks import ONE_AT_A_TIME
from cpaas_provider.tasks.errors import PreflightError

if TYPE_CHECKING:
    from cpaas_provider.database.database import Database

_PREFIX = f"{CAMPAIGN_DATABASE}."
_CONTENTS = "the campaigns with an idempotency_key, the contact maps, the suppression list and the frequency caps"
_DESCRIPTION = f"Names the database that stores {_CONTENTS}. Do not delete this variable while that database is in use."


def check_database(database: Database | None, recorded: Sequence[str] = ()) -> None:
    """Check that no other database was used so far, and record this one where there was none yet.

    Every task records its database first and checks afterwards. So of two workers with a database each, at the same
    moment, at least one sees the other. The names differ from task to task: no task removes the record of another.

    :param database: ``None`` if this worker has none
    :param recorded: what ``recorded_databases`` returned, if it was called before
    :raises PreflightError: when another database is recorded, or Airflow's variables cannot be used
    """
    from airflow.sdk import Variable

    recorded = recorded or recorded_databases()
    others = recorded
    try:
        if database is not None:
            mine = name = f"{_PREFIX}{database.database_id}."
            with ONE_AT_A_TIME:
                if not recorded:
                    name += secrets.token_hex(4)
                    Variable.set(name, database.redacted_url, description=_DESCRIPTION)
                    recorded = list(Variable.keys(prefix=_PREFIX))
                others = [record for record in recorded if not record.startswith(mine)]
                if others and name != mine:
                    Variable.delete(name)
    except DatabaseError as error:
        raise PreflightError(f"{error} Nothing was sent.", permanent=False) from None
    except Exception as error:  # noqa: BLE001 - Airflow raises several kinds, and none may let a request leave
        raise _unusable_variables(error) from None
    if others:
        commands = "; ".join(f"airflow variables delete {record}" for record in others)
        used = "has none" if database is None else f"uses {database.redacted_url}"
        raise PreflightError(
            f"Another database stores {_CONTENTS}, and this worker {used}. Requests that were accepted there would be "
            "sent again, recipients on the list would get the message, and rate limits would not hold. Nothing was "
            "sent. Set [cpaas] database to the same database on all workers, not to a file of each worker. If the "
            "database of this worker has replaced the other one for good, run the following and then clear the task: "
            f"{commands}",
            permanent=True,
        )


def recorded_databases() -> list[str]:
    """Return the names of the variables in which databases are recorded.

    :raises PreflightError: when Airflow's variables cannot be used
    """
    from airflow.sdk import Variable

    try:
        with ONE_AT_A_TIME:
            return list(Variable.keys(prefix=_PREFIX))
    except Exception as error:  # noqa: BLE001 - as above
        raise _unusable_variables(error) from None


def _unusable_variables(error: Exception) -> PreflightError:
    return PreflightError(
        f"Airflow's variables could not be read or written ({type(error).__name__}). One of them names the "
        f"database that stores {_CONTENTS}. Nothing was sent. The task can be retried.",
        permanent=False,
    )
