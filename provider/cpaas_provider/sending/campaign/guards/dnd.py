"""The DND filter: looks up each number once, and caches the result."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Protocol

from cpaas_provider.api.errors import (
    CpaasAuthenticationError,
    CpaasError,
    CpaasInsufficientBalanceError,
    CpaasNotSentError,
)
from cpaas_provider.sending.campaign.guards.circuit_breaker import CircuitOpenError
from cpaas_provider.sending.campaign.recipients import Recipient, RecipientStatus, RecipientTable
from cpaas_provider.sending.errors import SendingError

log = logging.getLogger(__name__)

MOST_FAILURES_IN_A_ROW = 10
_LOOKUPS_AT_ONCE = 8


class OnLookupError(StrEnum):
    """What to do about a number whose lookup fails."""

    SKIP = "skip"
    SEND = "send"
    FAIL = "fail"


class LookupFailedError(SendingError):
    """The lookup of a number failed, and ``on_lookup_error`` is ``fail``."""

    permanent = True


class LookupCircuitOpenError(CircuitOpenError):
    """Too many lookups in a row failed. A retry continues when the service responds again."""

    permanent = False


class LookupsFailedError(SendingError):
    """Recipients were not sent to, because their lookups failed. A retry looks them up again."""


class LookupCache(Protocol):
    """Stores the do-not-disturb flags of numbers over runs, by the hashes of the numbers."""

    def get_many(self, hashes: Sequence[bytes], since: datetime) -> dict[bytes, bool]:
        """Return the flags of the numbers that were looked up since a moment."""

    def set_many(self, found: Mapping[bytes, bool], at: datetime) -> None:
        """Store the flags of numbers that were looked up at a moment."""


@dataclass(eq=False, repr=False)
class DndFilter:
    """Excludes do-not-disturb numbers, and looks up numbers that the cache does not have.

    :param look_up: looks up one number; returns its do-not-disturb flag, ``None`` if the service returns none
    :param hashes_of: returns the hashes of a number in the cache, the same in all campaigns; new entries use the first
    :param cache: ``None`` for no cache
    :param ttl: how long a cached lookup is used
    :param on_error: what to do about a number whose lookup fails
    :param at_once: the most lookups in flight
    """

    batch_size = 100
    """The least number of recipients that are filtered at once."""

    plan: RecipientTable
    look_up: Callable[[str], Awaitable[bool | None]]
    hashes_of: Callable[[str], Sequence[bytes]]
    cache: LookupCache | None
    _: KW_ONLY
    ttl: timedelta
    on_error: OnLookupError
    at_once: int = _LOOKUPS_AT_ONCE

    def __post_init__(self) -> None:
        self._failures = 0
        self._open = False

    async def filter(self, recipients: Sequence[Recipient]) -> list[Recipient]:
        """Return the recipients that may be sent to, in order. The others are marked in the table.

        :raises CpaasError: when the service accepts no lookup: credentials, balance, or the connection
        :raises LookupFailedError: when a lookup fails, and ``on_error`` is ``fail``
        :raises LookupCircuitOpenError: when too many lookups in a row failed, and ``on_error`` is ``skip``
        """
        hashes, newest = dict[int, bytes](), dict[bytes, bytes]()
        for recipient in recipients:
            names = self.hashes_of(recipient.address)
            hashes[recipient.place] = names[0]
            # If there are several entries, the newest is used: it comes last.
            newest.update(dict.fromkeys(reversed(names), names[0]))
        stored = await self._read_cache(list(newest))
        known = {newest[name]: stored[name] for name in newest if name in stored}
        uncached = [recipient for recipient in recipients if hashes[recipient.place] not in known]
        flags_by_place, error = await self._look_up_all(uncached)
        flags = {hashes[place]: flag for place, flag in flags_by_place.items() if flag is not None}
        await self._write_cache(flags)
        if error is not None:
            raise error
        known |= flags
        permitted = self._exclude(
            recipients, [known.get(hashes[recipient.place]) for recipient in recipients], flags_by_place
        )
        if self._open and self.on_error is OnLookupError.SKIP:
            raise LookupCircuitOpenError(
                f"{MOST_FAILURES_IN_A_ROW} lookups in a row failed. No more were made, and no more recipients were "
                "sent to. A retry of the task continues with the recipients that are left. on_lookup_error='send' "
                "sends to recipients whose lookup fails."
            )
        return permitted

    async def _look_up_all(
        self, recipients: Iterable[Recipient]
    ) -> tuple[dict[int, bool | None], BaseException | None]:
        """Look up recipients, several at once. Return the flags by place, and the error that ended the lookups.

        After an error the lookups in flight are awaited: they are paid for, so their results are cached.
        """
        waiting, flags = deque(recipients), dict[int, bool | None]()
        errors = list[BaseException]()

        async def look_up_in_turn() -> None:
            while waiting and not errors and not self._open:
                recipient = waiting.popleft()
                try:
                    flags[recipient.place] = await self._flag(recipient)
                except Exception as error:  # noqa: BLE001 - it is raised once the lookups in flight have ended
                    errors.append(error)
                else:
                    self._count(failed=flags[recipient.place] is None)

        await asyncio.gather(*(look_up_in_turn() for _ in range(self.at_once)))
        return flags, errors[0] if errors else None

    def _count(self, *, failed: bool) -> None:
        """Count failures in a row, and open the circuit after too many: then no further number is looked up."""
        self._failures = self._failures + 1 if failed else 0
        if self._failures >= MOST_FAILURES_IN_A_ROW and not self._open:
            self._open = True
            log.warning("%d lookups in a row failed. No more recipients are looked up in this try.", self._failures)

    def _exclude(
        self, recipients: Sequence[Recipient], flags: Sequence[bool | None], looked_up: Collection[int]
    ) -> list[Recipient]:
        """Return the recipients that may be sent to, and mark the others. Those not looked up yet keep their status.

        :param flags: the do-not-disturb flag of each recipient; ``None`` if not known
        :param looked_up: the places of the recipients that were looked up just now
        """
        permitted = list[Recipient]()
        dnd_places, failed = list[int](), list[int]()
        for recipient, dnd in zip(recipients, flags, strict=True):
            if dnd:
                dnd_places.append(recipient.place)
            elif dnd is not None or self.on_error is not OnLookupError.SKIP:
                permitted.append(recipient)
            elif recipient.place in looked_up:
                failed.append(recipient.place)
        self.plan.exclude(dnd_places, RecipientStatus.DND)
        self.plan.exclude(failed, RecipientStatus.LOOKUP_FAILED, "could not be looked up")
        return permitted

    async def _flag(self, recipient: Recipient) -> bool | None:
        """Return the do-not-disturb flag of a recipient; ``None`` if the lookup failed."""
        try:
            dnd = await self.look_up(recipient.address)
        except (CpaasAuthenticationError, CpaasInsufficientBalanceError, CpaasNotSentError):
            raise
        except CpaasError as error:
            if self.on_error is OnLookupError.FAIL:
                raise LookupFailedError(
                    f"{error} on_lookup_error='skip' leaves such numbers out, 'send' sends to them."
                ) from None
            return None
        if dnd is None and self.on_error is OnLookupError.FAIL:
            raise LookupFailedError(
                "The service does not return the do-not-disturb flag of a number. on_lookup_error='skip' leaves such "
                "numbers out, 'send' sends to them."
            )
        return dnd

    async def _read_cache(self, hashes: Sequence[bytes]) -> dict[bytes, bool]:
        if self.cache is None:
            return {}
        try:
            return await asyncio.to_thread(self.cache.get_many, hashes, datetime.now(UTC) - self.ttl)
        except Exception as error:  # noqa: BLE001 - without the cache all numbers are looked up
            self._drop_cache(error)
            return {}

    async def _write_cache(self, flags: Mapping[bytes, bool]) -> None:
        if self.cache is None or not flags:
            return
        try:
            await asyncio.to_thread(self.cache.set_many, flags, datetime.now(UTC))
        except Exception as error:  # noqa: BLE001 - without the cache all numbers are looked up
            self._drop_cache(error)

    def _drop_cache(self, error: Exception) -> None:
        self.cache = None
        log.warning("Lookups cannot be cached (%s). Every number is looked up again.", type(error).__name__)
