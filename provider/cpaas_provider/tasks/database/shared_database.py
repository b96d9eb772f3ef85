"""The database that all workers share: with one each, every worker would send to every recipient."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from cpaas_provider.database.default_file import may_exist
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.sending.journal.model import CAMPAIGN_DATABASE
from cpaas_provider.tasks.errors import PreflightError

if TYPE_CHECKING:
    from cpaas_provider.tasks.runtime import TaskRuntime

_CONTENTS = "the campaigns with an idempotency_key, the contact maps, the suppression list and the frequency caps"
_DESCRIPTION = f"Names the database that stores {_CONTENTS}. Do not delete this variable while that database is in use."


def check_database(runtime: TaskRuntime) -> None:
    """Check that no other database was used so far, and record this one where there was none yet.

    Every task records its database first and checks afterwards. So of two workers with a database each, at the same
    moment, at least one sees the other. The names differ from task to task: no task removes the record of another.

    :raises PreflightError: when another database is recorded, or Airflow's variables cannot be used
    :raises DatabaseError: when the database cannot be opened
    """
    _ = runtime.database
    _refuse_others(runtime, record=True)


def check_no_other_database(runtime: TaskRuntime) -> None:
    """Check that no other database was used so far. A database in which nothing is stored yet is not recorded.

    :raises PreflightError: when another database is recorded, or Airflow's variables cannot be used
    """
    _refuse_others(runtime, record=False)


def _refuse_others(runtime: TaskRuntime, *, record: bool) -> None:
    try:
        others = _others_than(runtime, record=record)
    except DatabaseError as error:
        raise PreflightError(f"{error} Nothing was sent.", permanent=False) from None
    except Exception as error:  # noqa: BLE001 - Airflow raises several kinds, and none may let a request leave
        raise PreflightError(
            f"Airflow's variables could not be read or written ({type(error).__name__}). One of them names the "
            f"database that stores {_CONTENTS}. Nothing was sent. The task can be retried.",
            permanent=False,
        ) from None
    if others:
        commands = "; ".join(f"airflow variables delete {name}" for name in others)
        used = f"uses {runtime.database.redacted_url}" if may_exist() else "has none"
        raise PreflightError(
            f"Another database stores {_CONTENTS}, and this worker {used}. Requests that were accepted there would be "
            "sent again, recipients on the list would get the message, and rate limits would not hold. Nothing was "
            "sent. Set [cpaas] database to the same database on all workers, not to a file of each worker. If the "
            "database of this worker has replaced the other one for good, run the following and then clear the task: "
            f"{commands}",
            permanent=True,
        )


def _others_than(runtime: TaskRuntime, *, record: bool) -> list[str]:
    """Return the names of the variables that other databases have."""
    from airflow.sdk import Variable

    prefix = f"{CAMPAIGN_DATABASE}."
    recorded = list(Variable.keys(prefix=prefix))
    if not record and (not recorded or not may_exist()):
        return recorded
    database = runtime.database
    mine = f"{prefix}{database.database_id}."
    if recorded:
        return [name for name in recorded if not name.startswith(mine)]
    name = f"{mine}{secrets.token_hex(4)}"
    Variable.set(name, database.redacted_url, description=_DESCRIPTION)
    others = [name for name in Variable.keys(prefix=prefix) if not name.startswith(mine)]
    if others:
        Variable.delete(name)
    return others
