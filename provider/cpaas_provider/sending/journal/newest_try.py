"""The number of the newest try with an idempotency key, in our database and in Airflow's variables.

The variables outlive a run, as the key does. If the database has a smaller number, it was restored from an older copy:
it lacks what was sent since, and a new run would send it again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from sqlalchemy import Connection, insert, select, update

from cpaas_provider.database.database import Database
from cpaas_provider.database.schema.base import identities
from cpaas_provider.sending.errors import OlderDatabaseError
from cpaas_provider.sending.journal.model import CAMPAIGN_TRIES

_DESCRIPTION = (
    "Has the number of the newest try with an idempotency_key, so that an older copy of the provider's database is "
    "noticed. Do not delete this variable while that database is in use."
)
_NAME = "newest_try"
_ROW = identities.c.name == _NAME


class Variables(Protocol):
    """Airflow's variables, for a task or for a command."""

    def names(self, prefix: str) -> Iterable[str]:
        """Return the names that begin with a prefix."""

    def set(self, name: str, value: str, description: str) -> None:
        """Store a variable."""

    def delete(self, name: str) -> None:
        """Delete a variable, if it is stored."""


@dataclass(eq=False)
class NewestTry:
    """Checks and records the number of a try.

    A try is recorded before its first request and at its end, so that a copy made between both is older, too.
    """

    database: Database
    variables: Variables
    _is_recorded: bool = field(default=False, init=False)

    def check(self) -> None:
        """Check that the database has at least the number that Airflow has.

        :raises OlderDatabaseError: when it has a smaller one
        :raises DatabaseError: when the database cannot be read
        :raises Exception: when the variables cannot be read
        """
        numbers = {name: _number_of(name) for name in self.variables.names(self._prefix)}
        with self.database.connect() as connection:
            stored = int(connection.execute(select(identities.c.value).where(_ROW)).scalar_one_or_none() or 0)
        if newer := [name for name, number in numbers.items() if number > stored]:
            raise OlderDatabaseError(self.database.redacted_url, stored, max(numbers.values()), newer)

    def record_begin(self) -> None:
        """Record a try, unless this was done.

        :raises Exception: when it could not be recorded. Then no request may leave
        """
        if not self._is_recorded:
            self._record()
            self._is_recorded = True

    def record_end(self) -> None:
        """Record the end of a try, if its begin was recorded.

        :raises Exception: when it could not be recorded. Then a copy made during this try is not noticed by a new run
        """
        if self._is_recorded:
            self._record()

    def _record(self) -> None:
        number = self.database.write(_count)
        # The number is in the name: of two tasks that record theirs at once, none overwrites the other's.
        self.variables.set(f"{self._prefix}{number}", self.database.redacted_url, _DESCRIPTION)
        for name in list(self.variables.names(self._prefix)):
            if _number_of(name) < number:
                # Another task may delete it at the same time. One that stays does no harm.
                with contextlib.suppress(Exception):
                    self.variables.delete(name)

    @property
    def _prefix(self) -> str:
        return f"{CAMPAIGN_TRIES}.{self.database.database_id}."


def _count(connection: Connection) -> int:
    """Return the number of the next try, and store it."""
    stored = connection.execute(select(identities.c.value).where(_ROW).with_for_update()).scalar_one_or_none()
    number = int(stored or 0) + 1
    if stored is None:
        connection.execute(insert(identities).values(name=_NAME, value=str(number)))
    else:
        connection.execute(update(identities).where(_ROW).values(value=str(number)))
    return number


def _number_of(name: str) -> int:
    number = name.rpartition(".")[2]
    return int(number) if number.isdecimal() else 0
