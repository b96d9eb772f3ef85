"""The DND filter: looks up each number once, and caches the result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from enum import StrEnum

from cpaas_provider.api.errors import CpaasError
from cpaas_provider.sending.campaign.guards.lookups import (
    FAILURES_OF_EVERY_NUMBER,
    MOST_FAILURES_IN_A_ROW,
    Hasher,
    LookupCache,
    LookupCircuitOpenError,
    PhoneLookups,
)
from cpaas_provider.sending.campaign.recipients import Recipient, RecipientStatus, RecipientTable
from cpaas_provider.sending.errors import SendingError


class OnLookupError(StrEnum):
    """What to do about a number whose lookup fails."""

    SKIP = "skip"
    SEND = "send"
    FAIL = "fail"


class LookupFailedError(SendingError):
    """The lookup of a number failed, and ``on_lookup_error`` is ``fail``."""

    permanent = True


class LookupsFailedError(SendingError):
    """Recipients were not sent to, because their lookups failed. A retry looks them up again."""


@dataclass(eq=False, repr=False)
class DndFilter:
    """Excludes do-not-disturb numbers, and looks up numbers that the cache does not have.

    :param look_up: looks up one number; returns its do-not-disturb flag, ``None`` if the service returns none
    :param hashers: what hashes a number in the cache, the same in all campaigns; new entries use the first
    :param cache: ``None`` for no cache
    :param since: the moment from which on a cached lookup is used
    :param on_error: what to do about a number whose lookup fails
    :param at_once: the most lookups in flight
    """

    batch_size = 100
    """The least number of recipients that are filtered at once."""

    plan: RecipientTable
    look_up: Callable[[str], Awaitable[bool | None]]
    hashers: Sequence[Hasher]
    cache: LookupCache[bool] | None
    _: KW_ONLY
    since: datetime
    on_error: OnLookupError
    at_once: int

    def __post_init__(self) -> None:
        self._lookups = PhoneLookups(self._find_flag, self.hashers, self.cache, since=self.since, at_once=self.at_once)

    async def filter(self, recipients: Sequence[Recipient]) -> list[Recipient]:
        """Return the recipients that may be sent to, in order. The others are marked in the table.

        :raises CpaasError: when the service accepts no lookup: credentials, balance, or the connection
        :raises LookupFailedError: when a lookup fails, and ``on_error`` is ``fail``
        :raises LookupCircuitOpenError: when too many lookups in a row failed, and ``on_error`` is ``skip``
        """
        numbers = [recipient.address for recipient in recipients]
        cached = await self._lookups.find_cached(numbers)
        try:
            asked = await self._lookups.ask(number for number in numbers if number not in cached)
        finally:
            await self._lookups.store()
        permitted = self._exclude(recipients, cached | asked, asked)
        if self._lookups.is_open and self.on_error is OnLookupError.SKIP:
            raise LookupCircuitOpenError(
                f"{MOST_FAILURES_IN_A_ROW} lookups in a row failed. No more were made, and no more recipients were "
                "sent to. A retry of the task continues with the recipients that are left. on_lookup_error='send' "
                "sends to recipients whose lookup fails."
            )
        return permitted

    def _exclude(
        self, recipients: Sequence[Recipient], flags: Mapping[str, bool | None], asked: Collection[str]
    ) -> list[Recipient]:
        """Return the recipients that may be sent to, and mark the others. Those not looked up yet keep their status.

        :param flags: the do-not-disturb flags by number; ``None`` or absent if not known
        :param asked: the numbers that were looked up just now
        """
        permitted = list[Recipient]()
        dnd_positions, failed = list[int](), list[int]()
        for recipient in recipients:
            dnd = flags.get(recipient.address)
            if dnd:
                dnd_positions.append(recipient.position)
            elif dnd is not None or self.on_error is not OnLookupError.SKIP:
                permitted.append(recipient)
            elif recipient.address in asked:
                failed.append(recipient.position)
        self.plan.exclude(dnd_positions, RecipientStatus.DND)
        self.plan.exclude(failed, RecipientStatus.LOOKUP_FAILED, "could not be looked up")
        return permitted

    async def _find_flag(self, number: str) -> bool | None:
        """Return the do-not-disturb flag of a number; ``None`` if the service does not return it."""
        try:
            dnd = await self.look_up(number)
        except FAILURES_OF_EVERY_NUMBER:
            raise
        except CpaasError as error:
            if self.on_error is OnLookupError.FAIL:
                raise LookupFailedError(
                    f"{error} on_lookup_error='skip' leaves such numbers out, 'send' sends to them."
                ) from None
            raise
        if dnd is None and self.on_error is OnLookupError.FAIL:
            raise LookupFailedError(
                "The service does not return the do-not-disturb flag of a number. on_lookup_error='skip' leaves such "
                "numbers out, 'send' sends to them."
            )
        return dnd
