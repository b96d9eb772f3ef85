"""What may refuse the requests of a connection's clients: a stop, and a budget.

All clients of a process and connection read a stop together, at most once in ``INTERVAL``.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from cpaas_provider.api.errors import CpaasConnectionStoppedError, CpaasNotSentError
from cpaas_provider.api.rate_limit import RequestGuard
from cpaas_provider.database.default_file import Stop, configured, default_file
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.hooks._account import stops

if TYPE_CHECKING:
    from cpaas_provider.api.endpoints import Endpoint
    from cpaas_provider.api.http.wire import OutgoingRequest
    from cpaas_provider.database.activity.budgets import Reserved
    from cpaas_provider.database.database import Database
    from cpaas_provider.hooks._account.budget import ConnectionBudget
    from cpaas_provider.hooks._account.options import BudgetOptions
    from cpaas_provider.hooks._client_database import ClientDatabase

log = logging.getLogger(__name__)

INTERVAL = 1.0
"""Seconds for which a process uses what it has read."""

MAX_AGE = 10.0
"""Seconds for which it does so while the database cannot be read. After that no request leaves."""

_NEVER = float("-inf")


@dataclass
class _Known:
    """What the process knows of one connection.

    :param stop: ``None`` if its requests may leave
    :param read_at: when the database was read
    :param tried_at: when that was last tried
    """

    stop: Stop | None = None
    read_at: float = _NEVER
    tried_at: float = _NEVER
    failure: str = ""
    reading: threading.Lock = field(default_factory=threading.Lock)


_known: dict[tuple[str, str], _Known] = {}
# A thread of the parent may have held a lock while the process forked.
os.register_at_fork(after_in_child=_known.clear)


class AccountGuard(RequestGuard):
    """Refuses the requests of a connection that is stopped, or whose budget is reached.

    :param budget: the budget of the connection; ``None`` if it has none
    :param must_read: whether requests are also refused while the database cannot be read
    """

    def __init__(self, conn_id: str, budget: BudgetOptions | None = None, *, must_read: bool = True) -> None:
        self._conn_id = conn_id
        self._budget_options = budget
        self._must_read = must_read
        self._current_until = _NEVER
        self._database: ClientDatabase | None = None

    def admit(self) -> None:
        """Return if the connection is not stopped. This may read the database.

        :raises CpaasConnectionStoppedError: when it is stopped
        :raises CpaasNotSentError: when that could not be read for too long
        """
        known = self._known
        now = time.monotonic()
        # While another thread reads, requests go on by what was read before, unless that is too old. A stop is read
        # again, because the connection may be resumed.
        must_wait = known.stop is not None or now - known.read_at > MAX_AGE
        if now - known.tried_at >= INTERVAL and known.reading.acquire(blocking=must_wait):
            try:
                if known.tried_at < now:
                    known.stop = stops.find_stop(self._conn_id, self._open_database)
                    known.read_at = known.tried_at = time.monotonic()
            except DatabaseError as error:
                known.failure, known.tried_at = str(error).rstrip("."), time.monotonic()
                log.warning("Stops of connection %r cannot be read now. %s", self._conn_id, error)
            finally:
                known.reading.release()
        self._current_until = known.tried_at + INTERVAL
        if known.stop is not None:
            raise CpaasConnectionStoppedError(
                f"{known.stop.describe(self._conn_id)} Nothing more was sent. Requests in flight are recorded. To "
                f"continue, run `airflow cpaas resume --conn-id {self._conn_id}`. Then clear the task, or run the "
                "command again. It sends what is left."
            )
        if self._must_read and time.monotonic() - known.read_at > MAX_AGE:
            raise CpaasNotSentError(
                f"No request leaves, because stops cannot be read from the database: {known.failure}. Connection "
                f"{self._conn_id!r} may be stopped there. Nothing more was sent, also with use_suppression_list=False. "
                "Make the database readable, see `airflow cpaas doctor`, or correct [cpaas] database. Then retry the "
                "task. Without a database of the provider nothing is asked."
            )

    async def admit_async(self) -> None:
        """Do what ``admit`` does, for code on an event loop."""
        if time.monotonic() < self._current_until:
            self.admit()
        else:
            await asyncio.to_thread(self.admit)

    def counts(self, endpoint: Endpoint[Any]) -> bool:
        """Return whether a budget counts the requests to an endpoint."""
        return self._budget_options is not None and self._budget.counts(endpoint.operation)

    def needs_price(self, endpoint: Endpoint[Any]) -> bool:
        """Return whether no price of a recipient is known, see ``ConnectionBudget.needs_price``."""
        return self._budget.needs_price(endpoint.operation)

    def reserve(self, endpoint: Endpoint[Any], request: OutgoingRequest) -> Reserved | None:
        """Reserve money for a request, see ``ConnectionBudget.reserve``."""
        return self._budget.reserve(endpoint, request)

    def record_result(self, reserved: Reserved, result: Any = None, error: BaseException | None = None) -> None:
        """Replace a reservation by what the request cost, see ``ConnectionBudget.record_result``."""
        self._budget.record_result(reserved, result, error)

    @cached_property
    def _budget(self) -> ConnectionBudget:
        from cpaas_provider.hooks._account.budget import ConnectionBudget

        if self._budget_options is None:
            raise RuntimeError("the connection has no budget")
        return ConnectionBudget(self._conn_id, self._budget_options, self._open_database)

    def close(self) -> None:
        """Close the database, if it was opened."""
        if self._database is not None:
            self._database.close()

    @cached_property
    def _known(self) -> _Known:
        return _known.setdefault((configured() or str(default_file()), self._conn_id.lower()), _Known())

    def _open_database(self) -> AbstractContextManager[Database]:
        from cpaas_provider.hooks._client_database import ClientDatabase

        self._database = self._database or ClientDatabase()
        return self._database.open()
