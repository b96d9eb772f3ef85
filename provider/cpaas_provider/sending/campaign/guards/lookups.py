"""Phone lookups: cached, several at once, and none after too many failed in a row. The service charges for each."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from typing import Generic, Protocol, TypeVar

from cpaas_provider.api.errors import (
    CpaasAuthenticationError,
    CpaasError,
    CpaasInsufficientBalanceError,
    CpaasNotSentError,
)
from cpaas_provider.sending.campaign.guards.circuit_breaker import CircuitOpenError

log = logging.getLogger(__name__)

R = TypeVar("R")

MOST_FAILURES_IN_A_ROW = 10
FAILURES_OF_EVERY_NUMBER = (CpaasAuthenticationError, CpaasInsufficientBalanceError, CpaasNotSentError)
"""Errors that are not about one number alone."""

_STORE_EVERY = 1.0
"""Seconds after which lookups are stored. A try that is killed loses no more of what was paid for."""

Hasher = Callable[[str], bytes]
"""Returns the hash of a number in the cache."""


class LookupCircuitOpenError(CircuitOpenError):
    """Too many lookups in a row failed. A retry continues when the service responds again."""

    permanent = False


class LookupCache(Protocol[R]):
    """Stores what was looked up, by the hashes of the numbers, over runs."""

    def get_many(self, hashes: Sequence[bytes], since: datetime) -> dict[bytes, R]:
        """Return what was looked up since a moment."""

    def set_many(self, found: Mapping[bytes, R], at: datetime) -> None:
        """Store what was looked up at a moment."""


def find_cached(
    numbers: Iterable[str], hashers: Sequence[Hasher], get_many: Callable[[Sequence[bytes]], Mapping[bytes, R]]
) -> dict[str, R]:
    """Return what a cache has of numbers.

    :param hashers: one for each secret, that of new entries first, see ``lookup_hashers``
    """
    # The newest secret comes last, so that its entries win.
    numbers_by_hash = {hash_of(number): number for number in numbers for hash_of in reversed(hashers)}
    found = get_many(list(numbers_by_hash))
    return {number: found[hashed] for hashed, number in numbers_by_hash.items() if hashed in found}


@dataclass(eq=False, repr=False)
class PhoneLookups(Generic[R]):
    """Looks numbers up for one try.

    :param look_up: looks up one number; returns ``None`` if the service does not know it. A ``CpaasError`` is a failure
        of this number, unless it is one of every number. Any other error ends the lookups
    :param hashers: what hashes a number in the cache
    :param cache: ``None`` for no cache
    :param since: the moment from which on a cached lookup is used
    :param at_once: the most lookups in flight
    :param needs_cache: whether a failure of the cache is raised. If not, numbers are looked up again
    """

    look_up: Callable[[str], Awaitable[R | None]]
    hashers: Sequence[Hasher]
    cache: LookupCache[R] | None
    _: KW_ONLY
    since: datetime
    at_once: int
    needs_cache: bool = False

    def __post_init__(self) -> None:
        self.made = 0
        """The number of lookups that returned something."""
        self.asked = 0
        """The number of lookups, also of those that failed. The service may charge for these, too."""
        self._failures = 0
        self._unstored: dict[bytes, R] = {}

    @property
    def is_open(self) -> bool:
        """Whether too many lookups in a row failed. Then no further number is looked up."""
        return self._failures >= MOST_FAILURES_IN_A_ROW

    async def find_cached(self, numbers: Sequence[str]) -> dict[str, R]:
        """Return what the cache has of numbers."""
        cache = self.cache
        if cache is None:
            return {}
        try:
            return await asyncio.to_thread(
                find_cached, numbers, self.hashers, lambda hashes: cache.get_many(hashes, self.since)
            )
        except Exception as error:  # noqa: BLE001 - without the cache all numbers are looked up
            self._drop_cache(error)
            return {}

    async def ask(self, numbers: Iterable[str]) -> dict[str, R | None]:
        """Look numbers up, several at once, until the circuit opens. Call ``store`` afterwards, also after an error.

        After an error the lookups in flight are awaited, because they are paid for.

        :return: what the service returned; ``None`` for a lookup that failed. A number that was not looked up is absent
        :raises CpaasError: when the service accepts no lookup: credentials, balance, or the connection
        """
        waiting, results = deque(numbers), dict[str, R | None]()
        errors = list[Exception]()

        async def ask_in_turn() -> None:
            while waiting and not errors and not self.is_open:
                number = waiting.popleft()
                try:
                    results[number] = await self._ask(number)
                except Exception as error:  # noqa: BLE001 - it is raised once the lookups in flight have ended
                    errors.append(error)

        storing = asyncio.create_task(self._store_at_intervals())
        try:
            await asyncio.gather(*(ask_in_turn() for _ in range(self.at_once)))
        finally:
            storing.cancel()
            await asyncio.wait([storing])
        if errors:
            raise errors[0]
        return results

    async def store(self) -> None:
        """Store what was looked up and is not stored yet."""
        if self.cache is None or not self._unstored:
            return
        unstored = dict(self._unstored)
        try:
            await asyncio.to_thread(self.cache.set_many, unstored, datetime.now(UTC))
        except Exception as error:  # noqa: BLE001 - without the cache all numbers are looked up
            self._drop_cache(error)
        for hashed in unstored:
            del self._unstored[hashed]

    async def _ask(self, number: str) -> R | None:
        """Look one number up, and count failures in a row."""
        self.asked += 1
        try:
            found = await self.look_up(number)
        except FAILURES_OF_EVERY_NUMBER:
            raise
        except CpaasError:
            found = None
        if found is None:
            self._failures += 1
            if self._failures == MOST_FAILURES_IN_A_ROW:
                log.warning("%d lookups in a row failed. No more numbers are looked up in this try.", self._failures)
            return None
        if not self.is_open:
            self._failures = 0
        self.made += 1
        self._unstored[self.hashers[0](number)] = found
        return found

    async def _store_at_intervals(self) -> None:
        while True:
            await asyncio.sleep(_STORE_EVERY)
            # A failure is raised at the end, when the rest is stored.
            with contextlib.suppress(Exception):
                await self.store()

    def _drop_cache(self, error: Exception) -> None:
        if self.needs_cache:
            raise error
        self.cache = None
        log.warning("Lookups cannot be cached (%s). Every number is looked up again.", type(error).__name__)
