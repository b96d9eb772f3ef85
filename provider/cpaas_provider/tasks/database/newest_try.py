"""The number of the newest try with an idempotency key, for tasks: Airflow's variables, and its errors as ours."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.sending.errors import OlderDatabaseError
from cpaas_provider.sending.journal.newest_try import NewestTry
from cpaas_provider.tasks.errors import PreflightError

if TYPE_CHECKING:
    from cpaas_provider.database.database import Database

log = logging.getLogger(__name__)


class TaskVariables:
    """Airflow's variables, as a task reads and writes them."""

    def names(self, prefix: str) -> Iterable[str]:
        """Return the names that begin with a prefix."""
        from airflow.sdk import Variable

        return Variable.keys(prefix=prefix)

    def set(self, name: str, value: str, description: str) -> None:
        """Store a variable."""
        from airflow.sdk import Variable

        Variable.set(name, value, description=description)

    def delete(self, name: str) -> None:
        """Delete a variable, if it is stored."""
        from airflow.sdk import Variable

        Variable.delete(name)


class TaskNewestTry(NewestTry):
    """The number of the try of a task."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, TaskVariables())

    def find_older(self) -> OlderDatabaseError | None:
        """Return the error if the database is older than what Airflow knows of it.

        :raises PreflightError: when that cannot be found out
        """
        try:
            self.check()
        except OlderDatabaseError as error:
            return error
        except DatabaseError as error:
            raise PreflightError(f"{error} Nothing was sent.", permanent=False) from None
        except Exception as error:  # noqa: BLE001 - Airflow raises several kinds, and none may let a request leave
            raise PreflightError(
                f"Airflow's variables could not be read ({type(error).__name__}). One of them has the number of the "
                "newest try with an idempotency_key. Nothing was sent. The task can be retried.",
                permanent=False,
            ) from None
        return None

    def record_end(self) -> None:
        """Record the end of a try. A failure is logged, because it must not hide how the try ended."""
        try:
            super().record_end()
        except Exception as error:  # noqa: BLE001 - Airflow raises several kinds
            log.warning(
                "The end of this try could not be recorded in Airflow's variables (%s). If the database is restored "
                "from a copy that was made during this try, a new run does not notice it.",
                type(error).__name__,
            )
