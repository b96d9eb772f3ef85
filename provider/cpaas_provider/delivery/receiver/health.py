"""Whether a report could be stored now, as a monitor asks for it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.delivery.receiver.http.responses import RESPONSE_TIMEOUT
from cpaas_provider.delivery.receiver.log_throttle import ThrottledLogger
from cpaas_provider.delivery.receiver.single_flight import SingleFlight

FRESH_SECONDS = 2.0
"""How long a finding is repeated, so that whoever asks often writes seldom."""

throttled_log = ThrottledLogger(logging.getLogger(__name__))


class Health:
    """Looks by a transaction that writes and changes nothing: what it meets is what a report would meet.

    :param check: writes it, which may block; raises ``DatabaseError`` where it cannot
    """

    def __init__(self, check: Callable[[], None]) -> None:
        self._check = SingleFlight(check)
        self._found = False
        self._until = float("-inf")

    async def database_available(self) -> bool:
        """Tell whether the database takes reports, in time."""
        if time.monotonic() >= self._until:
            self._found = await self._look()
            self._until = time.monotonic() + FRESH_SECONDS
        return self._found

    async def _look(self) -> bool:
        try:
            await self._check.result(RESPONSE_TIMEOUT)
        except (TimeoutError, DatabaseError) as error:
            throttled_log.warning(
                "health", f"The receiver's database is not available. {error or 'It did not respond in time.'}"
            )
            return False
        return True
