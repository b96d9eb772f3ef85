"""The database of the campaigns with a key: one for all workers, or each worker would send to every recipient."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.operators._runtime.errors import PreflightError
from cpaas_provider.sending.journal.model import CAMPAIGN_DATABASE

if TYPE_CHECKING:
    from cpaas_provider.database.database import Database

_DESCRIPTION = (
    "Names the database that stores campaigns with an idempotency_key and contact maps. Do not delete this variable "
    "while that database is in use."
)


def check_database(database: Database) -> None:
    """Check that campaigns with a key were stored in this database so far, and record it where there was none yet.

    Every task records its database first and checks afterwards. So of two workers with a database each, at the same
    moment, at least one sees the other. The names differ from task to task: no task removes the record of another.

    :raises PreflightError: when another database stores such campaigns, or Airflow's variables cannot be used
    """
    try:
        others = _others_than(database)
    except DatabaseError as error:
        raise PreflightError(f"{error} Nothing was sent.", permanent=False) from None
    except Exception as error:  # noqa: BLE001 - Airflow raises several kinds, and none may let a request leave
        raise PreflightError(
            f"Airflow's variables could not be read or written ({type(error).__name__}). One of them names the "
            "database that stores campaigns with an idempotency_key and contact maps. Nothing was sent. The task can "
            "be retried.",
            permanent=False,
        ) from None
    if others:
        commands = "; ".join(f"airflow variables delete {name}" for name in others)
        raise PreflightError(
            "Another database stores the campaigns with an idempotency_key, the contact maps, the frequency caps and "
            f"the shared rate limits, and this worker uses {database.redacted_url}. Requests that were accepted there "
            "would be sent again, and rate limits would not hold. Nothing was sent. Set [cpaas] database to the same "
            "database on all workers, not to a file of each worker. If this database has replaced the other one for "
            f"good, run the following and then clear the task: {commands}",
            permanent=True,
        )


def _others_than(database: Database) -> list[str]:
    """Return the names of the variables that other databases have."""
    from airflow.sdk import Variable

    mine = f"{CAMPAIGN_DATABASE}.{database.database_id}."
    recorded = list(Variable.keys(prefix=f"{CAMPAIGN_DATABASE}."))
    if recorded:
        return [name for name in recorded if not name.startswith(mine)]
    name = f"{mine}{secrets.token_hex(4)}"
    Variable.set(name, database.redacted_url, description=_DESCRIPTION)
    others = [name for name in Variable.keys(prefix=f"{CAMPAIGN_DATABASE}.") if not name.startswith(mine)]
    if others:
        Variable.delete(name)
    return others
