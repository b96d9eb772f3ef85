"""Which database the campaigns with a key lie in: one for all workers, or recipients are sent to by each of them."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from cpaas_provider.sending.entries import CAMPAIGN_DATABASE
from cpaas_provider.store.errors import StoreError

if TYPE_CHECKING:
    from cpaas_provider.store.database import Database

_DESCRIPTION = "The database in which campaigns with an idempotency_key lie. Do not delete it while that is in use."


def refuse_other_database(database: Database) -> None:
    """See that campaigns with a key have lain in this database so far, and note so where there was none yet.

    First all note theirs, then they look: of two workers with a database each, at the same moment, at least one sees
    the other. The names differ from task to task, so that nobody takes back what another has noted.

    :raises AirflowFailException: when they lie in another one
    :raises AirflowException: when that cannot be found out
    """
    try:
        others = _others_than(database)
    except StoreError as error:
        raise AirflowException(f"{error} Nothing was sent.") from None
    except Exception as error:  # noqa: BLE001 - Airflow raises several kinds, and none may let a request leave
        raise AirflowException(
            "Airflow's variables, which say in which database campaigns with an idempotency_key lie, could not be used "
            f"({type(error).__name__}). Nothing was sent."
        ) from None
    if others:
        commands = "; ".join(f"airflow variables delete {name}" for name in others)
        raise AirflowFailException(
            f"This worker has {database.url_for_people} for campaigns with an idempotency_key, and they lie in another "
            "database: what was sent from there is not known here, and would be sent again. Nothing was sent. Give all "
            "workers the same database: [cpaas] database, not a file that each of them has of its own. Where the other "
            f"one was given up for this one for good, clear the task after: {commands}"
        )


def _others_than(database: Database) -> list[str]:
    """Return the names that were noted for other databases."""
    from airflow.sdk import Variable

    mine = f"{CAMPAIGN_DATABASE}.{database.database_id}."
    noted = list(Variable.keys(prefix=f"{CAMPAIGN_DATABASE}."))
    if noted:
        return [name for name in noted if not name.startswith(mine)]
    name = f"{mine}{secrets.token_hex(4)}"
    Variable.set(name, database.url_for_people, description=_DESCRIPTION)
    others = [name for name in Variable.keys(prefix=f"{CAMPAIGN_DATABASE}.") if not name.startswith(mine)]
    if others:
        Variable.delete(name)
    return others
