"""Who must not be disturbed: each number is looked up once, and remembered for a while."""

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


class NobodyLookedUpError(SendingError):
    """No recipient is left to send to, because the lookups failed."""


class Memory(Protocol):
    """Remembers look-ups over runs, by hashes of numbers."""

    def get_many(self, hashes: Sequence[bytes], since: datetime) -> dict[bytes, bool]:
        """Return what was found since a moment."""

    def set_many(self, found: Mapping[bytes, bool], at: datetime) -> None:
        """Note what was found."""


class DndFilter:
    """Tells who may be sent to, looking up whom nobody has looked up lately.

    :param look_up: asks the service for one number; returns whether it is not to be disturbed, ``None`` where it does
        not say
    :param hash_of: what the memory knows a number by; the same in all campaigns
    :param memory: ``None`` for none
    :param ttl: for how long a look-up holds
    :param at_once: how many look-ups are under way at a time, at most
    """

    def __init__(
        self,
        plan: RecipientTable,
        look_up: Callable[[str], Awaitable[bool | None]],
        hash_of: Callable[[str], bytes],
        memory: Memory | None,
        *,
        ttl: timedelta,
        on_error: OnLookupError,
        at_once: int = _AT_ONCE,
    ) -> None:
        self._plan = plan
        self._look_up = look_up
        self._hash_of = hash_of
        self._memory = memory
        self._ttl = ttl
        self._on_error = on_error
        self._at_once = at_once
        self._failures = 0
        self._open = False
        self.looked_up = 0

    async def filter(self, people: Sequence[Recipient]) -> list[Recipient]:
        """Return those who may be sent to, in order; the others are noted in the plan.

        :raises CpaasError: when the service cannot be asked at all
        :raises LookupFailedError: when a look-up fails and ``on_error`` says so
        :raises LookupCircuitOpenError: when no more look-ups are made, and nobody may be sent to without one
        """
        hashes = {person.place: self._hash_of(person.address) for person in people}
        known = await self._recall(list(hashes.values()))
        strangers = [person for person in people if hashes[person.place] not in known]
        answers, error = await self._ask_all(strangers)
        found = {hashes[place]: answer for place, answer in answers.items() if answer is not None}
        self.looked_up += len(found)
        await self._remember(found)
        if error is not None:
            raise error
        known |= found
        permitted = self._sorted_out(people, [known.get(hashes[person.place]) for person in people], answers)
        if self._open and self._on_error is OnLookupError.SKIP:
            raise LookupCircuitOpenError(
                f"{MOST_FAILURES_IN_A_ROW} lookups in a row failed. No more were made, and no more recipients were "
                "sent to. A retry of the task continues with the recipients that are left. on_lookup_error='send' "
                "sends to recipients whose lookup fails."
            )
        return permitted

    async def _ask_all(self, people: Iterable[Recipient]) -> tuple[dict[int, bool | None], BaseException | None]:
        """Look people up, some at a time, and return the answers by place beside the error that ended it.

        Those under way are waited for: whatever was found has been paid for, and is to be remembered.
        """
        waiting, answers = deque(people), dict[int, bool | None]()
        errors = list[BaseException]()

        async def ask_one_after_the_other() -> None:
            while waiting and not errors and not self._open:
                person = waiting.popleft()
                try:
                    answers[person.place] = await self._ask(person)
                except Exception as error:  # noqa: BLE001 - it is raised once the others are answered
                    errors.append(error)
                else:
                    self._count(failed=answers[person.place] is None)

        await asyncio.gather(*(ask_one_after_the_other() for _ in range(self._at_once)))
        return answers, errors[0] if errors else None

    def _count(self, *, failed: bool) -> None:
        """Count failures in a row; after too many of them nobody is looked up any more."""
        self._failures = self._failures + 1 if failed else 0
        if self._failures >= MOST_FAILURES_IN_A_ROW and not self._open:
            self._open = True
            log.warning("%d lookups in a row failed. No more recipients are looked up in this try.", self._failures)

    def _sorted_out(
        self, people: Sequence[Recipient], known: Sequence[bool | None], answers: Collection[int]
    ) -> list[Recipient]:
        """Return who may be sent to, and note the others; who was not asked for stays as he is."""
        permitted = list[Recipient]()
        disturbed, failed = list[int](), list[int]()
        for person, dnd in zip(people, known, strict=True):
            if dnd:
                disturbed.append(person.place)
            elif dnd is not None or self._on_error is not OnLookupError.SKIP:
                permitted.append(person)
            elif person.place in answers:
                failed.append(person.place)
        self._plan.exclude(disturbed, RecipientStatus.DND)
        self._plan.exclude(failed, RecipientStatus.LOOKUP_FAILED, "could not be looked up")
        return permitted

    async def _ask(self, person: Recipient) -> bool | None:
        try:
            dnd = await self._look_up(person.address)
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

    async def _recall(self, hashes: Sequence[bytes]) -> dict[bytes, bool]:
        if self._memory is None:
            return {}
        try:
            return await asyncio.to_thread(self._memory.get_many, hashes, datetime.now(UTC) - self._ttl)
        except Exception as error:  # noqa: BLE001 - a memory that fails costs look-ups, and nothing else
            self._forget_memory(error)
            return {}

    async def _remember(self, found: Mapping[bytes, bool]) -> None:
        if self._memory is None or not found:
            return
        try:
            await asyncio.to_thread(self._memory.set_many, found, datetime.now(UTC))
        except Exception as error:  # noqa: BLE001 - a memory that fails costs look-ups, and nothing else
            self._forget_memory(error)

    def _forget_memory(self, error: Exception) -> None:
        self._memory = None
        log.warning("Lookups cannot be cached (%s). Every number is looked up again.", type(error).__name__)
