"""Who must not be disturbed: each number is looked up once, and remembered for a while."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Protocol

from cpaas_provider.api.errors import (
    CpaasAuthenticationError,
    CpaasError,
    CpaasInsufficientBalanceError,
    CpaasNotSentError,
)
from cpaas_provider.sending.campaign.plan import Fate, Person, Plan
from cpaas_provider.sending.errors import SendingError

log = logging.getLogger(__name__)


class OnLookupError(StrEnum):
    """What an author wants done about a number that cannot be looked up."""

    SKIP = "skip"
    SEND = "send"
    FAIL = "fail"


class LookupFailedError(SendingError):
    """A number could not be looked up, and the author wants the campaign to end then."""

    for_good = True


class Memory(Protocol):
    """Remembers look-ups over runs, by hashes of numbers."""

    def recall(self, hashes: Sequence[bytes], since: datetime) -> dict[bytes, bool]:
        """Return what was found since a moment."""

    def remember(self, found: Mapping[bytes, bool], at: datetime) -> None:
        """Note what was found."""


class DoNotDisturb:
    """Tells who may be sent to, looking up whom nobody has looked up lately.

    :param look_up: asks the service for one number; returns whether it is not to be disturbed, ``None`` where it does
        not say
    :param hash_of: what the memory knows a number by; the same in all campaigns
    :param memory: ``None`` for none
    :param ttl: for how long a look-up holds
    """

    def __init__(
        self,
        plan: Plan,
        look_up: Callable[[str], Awaitable[bool | None]],
        hash_of: Callable[[str], bytes],
        memory: Memory | None,
        *,
        ttl: timedelta,
        on_error: OnLookupError,
    ) -> None:
        self._plan = plan
        self._look_up = look_up
        self._hash_of = hash_of
        self._memory = memory
        self._ttl = ttl
        self._on_error = on_error
        self.looked_up = 0

    async def permitted(self, people: Sequence[Person]) -> list[Person]:
        """Return those who may be sent to, in order; the others are noted in the plan.

        :raises CpaasError: when the service cannot be asked at all
        :raises LookupFailedError: when a look-up fails and ``on_error`` says so
        """
        hashes = {person.place: self._hash_of(person.address) for person in people}
        known = await self._recall(list(hashes.values()))
        strangers = [person for person in people if hashes[person.place] not in known]
        # All of them are waited for: whatever was found has been paid for, and is to be remembered.
        answers = await asyncio.gather(*(self._ask(person) for person in strangers), return_exceptions=True)
        found = {
            hashes[person.place]: answer
            for person, answer in zip(strangers, answers, strict=True)
            if isinstance(answer, bool)
        }
        self.looked_up += len(found)
        await self._remember(found)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        known |= found
        return self._sorted_out(people, hashes, known)

    def _sorted_out(
        self, people: Sequence[Person], hashes: Mapping[int, bytes], known: Mapping[bytes, bool]
    ) -> list[Person]:
        permitted = list[Person]()
        disturbed, failed = list[int](), list[int]()
        for person in people:
            dnd = known.get(hashes[person.place])
            if dnd:
                disturbed.append(person.place)
            elif dnd is None and self._on_error is OnLookupError.SKIP:
                failed.append(person.place)
            else:
                permitted.append(person)
        self._plan.leave_alone(disturbed, Fate.DO_NOT_DISTURB)
        self._plan.leave_alone(failed, Fate.LOOKUP_FAILED, "could not be looked up")
        return permitted

    async def _ask(self, person: Person) -> bool | None:
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
                "The service does not say of a number whether it may be disturbed. on_lookup_error='skip' leaves such "
                "numbers out, 'send' sends to them."
            )
        return dnd

    async def _recall(self, hashes: Sequence[bytes]) -> dict[bytes, bool]:
        if self._memory is None:
            return {}
        try:
            return await asyncio.to_thread(self._memory.recall, hashes, datetime.now(UTC) - self._ttl)
        except Exception as error:  # noqa: BLE001 - a memory that fails costs look-ups, and nothing else
            self._forget_memory(error)
            return {}

    async def _remember(self, found: Mapping[bytes, bool]) -> None:
        if self._memory is None or not found:
            return
        try:
            await asyncio.to_thread(self._memory.remember, found, datetime.now(UTC))
        except Exception as error:  # noqa: BLE001 - a memory that fails costs look-ups, and nothing else
            self._forget_memory(error)

    def _forget_memory(self, error: Exception) -> None:
        self._memory = None
        log.warning("Look-ups cannot be remembered (%s); each number is asked for anew.", type(error).__name__)
