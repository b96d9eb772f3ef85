"""The do-not-disturb filter: each number is looked up once, and cached for a while."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
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
_AT_ONCE = 8


class OnLookupError(StrEnum):
    """What an author wants done about a number that cannot be looked up."""

    SKIP = "skip"
    SEND = "send"
    FAIL = "fail"


class LookupFailedError(SendingError):
    """The lookup of a number failed, and ``on_lookup_error`` is ``fail``."""

    permanent = True


class LookupCircuitOpenError(CircuitOpenError):
    """Too many lookups in a row failed. A retry continues when the service responds again."""

    permanent = False


class NoLookupSucceededError(SendingError):
    """No recipient is left to send to, because the lookups failed."""


class LookupCache(Protocol):
    """Keeps lookups over runs, by hashes of numbers."""

    def get_many(self, hashes: Sequence[bytes], since: datetime) -> dict[bytes, bool]:
        """Return what lookups since a moment found."""

    def set_many(self, found: Mapping[bytes, bool], at: datetime) -> None:
        """Store what lookups found."""


class DndFilter:
    """Leaves out do-not-disturb numbers, and looks up those the cache does not have.

    :param look_up: asks the service for one number; returns its do-not-disturb flag, ``None`` where the service
        does not return one
    :param hashes_of: by which the cache knows a number, the same in all campaigns: the first is that of new entries
    :param cache: ``None`` for none
    :param ttl: for how long a look-up holds
    :param at_once: how many look-ups are under way at a time, at most
    """

    batch_size = 100
    """Recipients that are taken from the plan together, at least."""

    def __init__(
        self,
        plan: RecipientTable,
        look_up: Callable[[str], Awaitable[bool | None]],
        hashes_of: Callable[[str], Sequence[bytes]],
        cache: LookupCache | None,
        *,
        ttl: timedelta,
        on_error: OnLookupError,
        at_once: int = _AT_ONCE,
    ) -> None:
        self._plan = plan
        self._look_up = look_up
        self._hashes_of = hashes_of
        self._cache = cache
        self._ttl = ttl
        self._on_error = on_error
        self._at_once = at_once
        self._failures = 0
        self._open = False
        self.looked_up = 0

    async def filter(self, recipients: Sequence[Recipient]) -> list[Recipient]:
        """Return recipients that may be sent to, in order; the others are marked in the table.

        :raises CpaasError: when the service cannot be asked at all
        :raises LookupFailedError: when a look-up fails and ``on_error`` says so
        :raises LookupCircuitOpenError: when no more lookups are made, and no recipient may be sent to without one
        """
        hashes, newest = dict[int, bytes](), dict[bytes, bytes]()
        for recipient in recipients:
            names = self._hashes_of(recipient.address)
            hashes[recipient.place] = names[0]
            # Where there are several, the newest counts: it comes last.
            newest.update(dict.fromkeys(reversed(names), names[0]))
        stored = await self._read_cache(list(newest))
        known = {newest[name]: stored[name] for name in newest if name in stored}
        uncached = [recipient for recipient in recipients if hashes[recipient.place] not in known]
        answers, error = await self._ask_all(uncached)
        found = {hashes[place]: answer for place, answer in answers.items() if answer is not None}
        self.looked_up += len(found)
        await self._write_cache(found)
        if error is not None:
            raise error
        known |= found
        permitted = self._sorted_out(
            recipients, [known.get(hashes[recipient.place]) for recipient in recipients], answers
        )
        if self._open and self._on_error is OnLookupError.SKIP:
            raise LookupCircuitOpenError(
                f"{MOST_FAILURES_IN_A_ROW} lookups in a row failed. No more were made, and no more recipients were "
                "sent to. A retry of the task continues with the recipients that are left. on_lookup_error='send' "
                "sends to recipients whose lookup fails."
            )
        return permitted

    async def _ask_all(self, recipients: Iterable[Recipient]) -> tuple[dict[int, bool | None], BaseException | None]:
        """Look recipients up, some at a time, and return the answers by place beside the error that ended it.

        Those under way are waited for: whatever was found has been paid for, and is to be cached.
        """
        waiting, answers = deque(recipients), dict[int, bool | None]()
        errors = list[BaseException]()

        async def ask_one_after_the_other() -> None:
            while waiting and not errors and not self._open:
                recipient = waiting.popleft()
                try:
                    answers[recipient.place] = await self._ask(recipient)
                except Exception as error:  # noqa: BLE001 - it is raised once the others are answered
                    errors.append(error)
                else:
                    self._count(failed=answers[recipient.place] is None)

        await asyncio.gather(*(ask_one_after_the_other() for _ in range(self._at_once)))
        return answers, errors[0] if errors else None

    def _count(self, *, failed: bool) -> None:
        """Count failures in a row; after too many of them no number is looked up any more."""
        self._failures = self._failures + 1 if failed else 0
        if self._failures >= MOST_FAILURES_IN_A_ROW and not self._open:
            self._open = True
            log.warning("%d lookups in a row failed. No more recipients are looked up in this try.", self._failures)

    def _sorted_out(
        self, recipients: Sequence[Recipient], known: Sequence[bool | None], answers: Collection[int]
    ) -> list[Recipient]:
        """Return recipients that may be sent to, and mark the others; those not looked up stay as they are."""
        permitted = list[Recipient]()
        dnd_places, failed = list[int](), list[int]()
        for recipient, dnd in zip(recipients, known, strict=True):
            if dnd:
                dnd_places.append(recipient.place)
            elif dnd is not None or self._on_error is not OnLookupError.SKIP:
                permitted.append(recipient)
            elif recipient.place in answers:
                failed.append(recipient.place)
        self._plan.exclude(dnd_places, RecipientStatus.DND)
        self._plan.exclude(failed, RecipientStatus.LOOKUP_FAILED, "could not be looked up")
        return permitted

    async def _ask(self, recipient: Recipient) -> bool | None:
        try:
            dnd = await self._look_up(recipient.address)
        except (CpaasAuthenticationError, CpaasInsufficientBalanceError, CpaasNotSentError):
            raise
        except CpaasError as error:
            if self._on_error is OnLookupError.FAIL:
                raise LookupFailedError(
                    f"{error} on_lookup_error='skip' leaves such numbers out, 'send' sends to them."
                ) from None
            return None
        if dnd is None and self._on_error is OnLookupError.FAIL:
            raise LookupFailedError(
                "The service does not return the do-not-disturb flag of a number. on_lookup_error='skip' leaves such "
                "numbers out, 'send' sends to them."
            )
        return dnd

    async def _read_cache(self, hashes: Sequence[bytes]) -> dict[bytes, bool]:
        if self._cache is None:
            return {}
        try:
            return await asyncio.to_thread(self._cache.get_many, hashes, datetime.now(UTC) - self._ttl)
        except Exception as error:  # noqa: BLE001 - a cache that fails costs look-ups, and nothing else
            self._drop_cache(error)
            return {}

    async def _write_cache(self, found: Mapping[bytes, bool]) -> None:
        if self._cache is None or not found:
            return
        try:
            await asyncio.to_thread(self._cache.set_many, found, datetime.now(UTC))
        except Exception as error:  # noqa: BLE001 - a cache that fails costs look-ups, and nothing else
            self._drop_cache(error)

    def _drop_cache(self, error: Exception) -> None:
        self._cache = None
        log.warning("Lookups cannot be cached (%s). Every number is looked up again.", type(error).__name__)
