"""Sends a planned campaign: claimed in windows, concurrently, stopped in good order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple, Protocol

from cpaas_provider.api.amounts import counted
from cpaas_provider.api.errors import CpaasError, CpaasRejectedError
from cpaas_provider.api.rate_limit import RateLimiter
from cpaas_provider.sending.campaign.batcher import WAIT, Batch, Batcher, Wait, billable_units
from cpaas_provider.sending.campaign.content import Content, Send
from cpaas_provider.sending.campaign.guards.budget import Budget
from cpaas_provider.sending.campaign.guards.circuit_breaker import RejectionBreaker
from cpaas_provider.sending.campaign.journal_index import JournalIndex
from cpaas_provider.sending.campaign.progress import Progress
from cpaas_provider.sending.campaign.recipients import Recipient, RecipientStatus, RecipientTable
from cpaas_provider.sending.campaign.rejections import NextStep, OnRejectedBatch, bisect, classify, named_apart
from cpaas_provider.sending.errors import SendingError, StoppedError
from cpaas_provider.sending.journal.log import JournalLog
from cpaas_provider.sending.journal.model import Intent, Result, State
from cpaas_provider.sending.journal.writer import JournalWriter
from cpaas_provider.sending.shutdown import StopSignal

log = logging.getLogger(__name__)

MAX_PENDING_RECIPIENTS = 20_000
"""Recipients of requests that are claimed and not settled, about, however many requests that is: so many may be unknown
after a kill."""

_AHEAD = 0.05
"""Seconds by which a claim may come before its turn: one at a time would wait for the loop more than for the turn."""

_REJECTED_WITHOUT_SUCCESS = 50
_UNKNOWN_IN_A_ROW = 10


class AllRejectedError(SendingError):
    """The service rejected every recipient, so the cause is probably the message."""

    permanent = True


class TooManyFailuresError(SendingError):
    """More recipients failed than ``max_failure_ratio`` allows."""

    permanent = True


class ServiceFailingError(SendingError):
    """Too many requests in a row have an unknown outcome, so no further request was started."""


class _Client(Protocol):
    def stop(self) -> None: ...


class _Pack(NamedTuple):
    people: Batch
    claim: Intent
    units: int
    reserved: Decimal
    at: datetime


class Dispatcher:
    """The requests of one try.

    :param window: how many requests may be claimed and not yet settled
    :param requests_per_second: how fast they may leave; nothing is claimed much sooner
    :param on_rejected_batch: whether a batch that is rejected as a whole may be split and sent again
    :param breaker: ends the campaign where the service keeps saying the same
    :param may_fail: how many recipients may be rejected before the campaign ends; ``None`` lets it go on to its end
    :param doubted: whether these are people of unknown outcome, sent to again
    """

    def __init__(
        self,
        plan: RecipientTable,
        standing: JournalIndex,
        journal: JournalLog,
        writer: JournalWriter,
        message: Content,
        batcher: Batcher,
        budget: Budget,
        progress: Progress,
        send: Send,
        stop: StopSignal,
        client: _Client,
        *,
        window: int,
        requests_per_second: float,
        breaker: RejectionBreaker,
        on_rejected_batch: OnRejectedBatch = OnRejectedBatch.BISECT,
        may_fail: int | None = None,
        doubted: bool = False,
    ) -> None:
        self._plan = plan
        self._standing = standing
        self._journal = journal
        self._writer = writer
        self._message = message
        self._batcher = batcher
        self._budget = budget
        self._progress = progress
        self._send = send
        self._stop = stop
        self._client = client
        self._window = window
        self._rate_limiter = RateLimiter(requests_per_second)
        self._on_rejected_batch = on_rejected_batch
        self._breaker = breaker
        self._may_fail = may_fail
        self._doubted = doubted
        self.rejected_again = set[int]()
        self._accepted = standing.money()[2] > 0
        self._unknown_in_a_row = 0
        self._rejections = 0
        self._under_way = 0
        self._claimed = 0
        self._held_up = False
        self._end: Exception | None = None
        self._ended = asyncio.Event()
        self._taking = asyncio.Lock()
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Send to everybody the packer gives, and return when all of them are dealt with.

        :raises SendingError: when something ended the campaign before that, see there
        :raises CpaasError: when the service ended it
        """
        workers = [asyncio.create_task(self._worker()) for _ in range(self._window)]
        watch = asyncio.create_task(self._watch_stop(workers))
        try:
            for came_of_it in await asyncio.gather(*workers, return_exceptions=True):
                if isinstance(came_of_it, Exception):
                    # Whom it was about to send to would else be passed over in silence.
                    self._finish(came_of_it)
        finally:
            watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watch
        if self._end is not None:
            raise self._end

    async def _watch_stop(self, workers: Iterable[asyncio.Task[None]]) -> None:
        """Once the stop is asked for, let nothing further leave, and give answers a last moment."""
        await self._stop.wait()
        try:
            self._stop.raise_if_stopped()
        except StoppedError as error:
            self._finish(error)
        self._client.stop()
        await asyncio.wait(workers, timeout=self._stop.grace_left)
        for worker in workers:
            worker.cancel()

    async def _worker(self) -> None:
        """Carry one request after the other."""
        while (pack := await self._next()) is not None:
            try:
                await self._send_batch(pack)
            except Exception as error:  # noqa: BLE001 - whatever it is, nothing further may be claimed after it
                self._finish(error)
            finally:
                self._under_way -= 1
                self._claimed -= len(pack.people)
                # Those who found nobody left need to know only when there may be somebody again, or never will be.
                if self._held_up or not self._under_way:
                    self._tell()

    async def _next(self) -> _Pack | None:
        while self._end is None:
            changed = self._changed
            async with self._taking:
                people = await self._ask_batcher()
                if self._end is not None:
                    return None
                self._held_up = people == WAIT
                if isinstance(people, tuple):
                    if not await self._wait_for_rate_limit():
                        return None
                    pack = self._make_batch(people)
                    self._under_way += 1
                    self._claimed += len(people)
                    return pack
                if people is None and not self._under_way:
                    self._tell()
                    return None
            await changed.wait()
        return None

    async def _ask_batcher(self) -> Batch | Wait | None:
        if self._end is not None:
            return None
        if self._claimed >= MAX_PENDING_RECIPIENTS:
            return WAIT
        try:
            return await self._batcher.next(self._under_way)
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing further may be claimed after it
            self._finish(error)
            return None
        finally:
            self._progress.skipped = self._batcher.left_out

    async def _wait_for_rate_limit(self) -> bool:
        """Wait until a request may leave, and tell whether it still may.

        What is claimed long before its turn would only be in doubt should the task be killed meanwhile.
        """
        if (seconds := self._rate_limiter.reserve()) > _AHEAD:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._ended.wait()
        return self._end is None

    def _make_batch(self, people: Batch) -> _Pack:
        units = billable_units(people)
        return _Pack(people, self._claim(people), units, self._budget.reserve(units), datetime.now(UTC))

    def _claim(self, people: Batch) -> Intent:
        number = self._standing.next_number
        self._standing.next_number += 1
        members = [person.member for person in people]
        hasher = self._journal.hasher
        return Intent(
            number,
            hasher.batch_reference(self._message.channel.operation, members, self._journal.resend_epoch),
            b"".join(members),
            b"".join(hasher.words(person.words or "") for person in people) if self._message.columns else b"",
        )

    async def _send_batch(self, pack: _Pack) -> None:
        try:
            await self._writer.claim(pack.claim)
        except SendingError as error:
            self._budget.release(pack.reserved)
            self._finish(error)
            return
        except asyncio.CancelledError:
            # Stored or not: it surely did not leave.
            self._writer.settle(Result(pack.claim.number, State.NOT_SENT, reason="Airflow stopped the task before"))
            raise
        if self._end is not None:
            self._settle(pack, State.NOT_SENT, "the campaign ended before the request left")
            return
        self._progress.requests += 1
        try:
            answer = await self._send(
                [self._message.channel.wire(person.address) for person in pack.people],
                self._personalisation(pack.people),
                pack.claim.reference,
            )
        except CpaasError as error:
            self._failed(pack, error)
        except asyncio.CancelledError:
            self._settle(pack, State.UNKNOWN, "Airflow stopped the task before a response arrived")
            raise
        except Exception as error:
            # A fault of ours, on this side of the request or on that: nobody knows.
            self._settle(pack, State.UNKNOWN, f"the request ended in {type(error).__name__}")
            raise
        else:
            self._succeeded(pack, answer)

    def _personalisation(self, people: Batch) -> list[dict[str, Any]] | None:
        message = self._message
        if not message.columns:
            return None
        substitutions = message.substitutions([person.words or "[]" for person in people])
        wire = message.channel.wire
        return [
            {"to": wire(person.address), "substitutions": theirs}
            for person, theirs in zip(people, substitutions, strict=True)
        ]

    def _succeeded(self, pack: _Pack, answer: Any) -> None:
        estimate = answer.meta.estimate if answer.meta else None
        charge = estimate.charge if estimate else None
        balance = estimate.available_balance if estimate else None
        self._accepted = True
        self._breaker.accepted()
        self._unknown_in_a_row = 0
        refused, taken = named_apart(pack.people, _addresses(answer.rejected_recipients))
        self._progress.sent += len(taken)
        left_out = b"".join(person.member for person in refused)
        end = Result(pack.claim.number, State.ACCEPTED, (answer.id, charge, balance), left_out=left_out)
        self._note(pack._replace(people=taken), end, RecipientStatus.SENT)
        try:
            self._budget.settle(pack.reserved, pack.units, charge, balance)
        except SendingError as error:
            self._finish(error)
        if answer.rejection:
            self._left_out(pack, refused, answer.rejection)

    def _left_out(self, pack: _Pack, refused: Batch, reason: str) -> None:
        """Note whom an accepted request does not go to; everybody else in it was sent to, and is not sent to again."""
        log.warning(
            "Request %s was accepted for %d of %d recipients: %s",
            pack.claim.reference,
            len(pack.people) - len(refused),
            len(pack.people),
            reason,
        )
        if refused:
            self._refuse(refused, reason)
            if refused[0].row == 0 and not self._doubted:
                self._finish(CpaasRejectedError(f"{reason} A test recipient is among the rejected ones."))
            self._check_circuit_breaker()

    def _failed(self, pack: _Pack, error: CpaasError) -> None:
        state, consequence = classify(error, len(pack.people), self._on_rejected_batch)
        self._settle(pack, state, str(error))
        if state is not State.UNKNOWN:
            self._unknown_in_a_row = 0
        if consequence is NextStep.END or (pack.people[0].row == 0 and not self._doubted):
            self._finish(error)
        elif consequence is NextStep.BISECT and isinstance(error, CpaasRejectedError):
            refused, parts = bisect(pack.people, _addresses(error.rejected_recipients))
            log.info(
                "A batch of %s was rejected: %d of them named, the others are sent in %s.",
                counted(len(pack.people), "recipient"),
                len(refused),
                counted(len(parts), "smaller batch", "smaller batches"),
            )
            self._refuse(refused, str(error))
            self._batcher.requeue(parts)
            self._tell()
        if isinstance(error, CpaasRejectedError) and self._breaker.rejected(error):
            self._finish(self._breaker.opened(error))
        self._check_circuit_breaker()

    def _refuse(self, people: Batch, reason: str) -> None:
        """Note that people were rejected by name, as if each had been tried alone."""
        for person in people:
            claim = self._claim((person,))
            end = Result(claim.number, State.REJECTED, reason=reason)
            self._writer.note(claim, end)
            self._standing.record(claim, datetime.now(UTC), end)
        self._fate(people, RecipientStatus.REJECTED, None, reason)
        self._progress.rejected += len(people)
        self._rejections += len(people)

    def _settle(self, pack: _Pack, state: State, reason: str) -> None:
        """Note that a request did not succeed."""
        end = Result(pack.claim.number, state, reason=reason)
        if state is State.UNKNOWN:
            self._budget.doubt(pack.reserved, pack.units)
            self._progress.unknown += len(pack.people)
            self._unknown_in_a_row += 1
            self._note(pack, end, RecipientStatus.UNKNOWN)
            log.warning("Outcome unknown: request %s. Cause: %s", pack.claim.reference, reason)
            return
        self._budget.release(pack.reserved)
        if state is State.REJECTED:
            self._progress.rejected += len(pack.people)
            # A batch that is not bisected may be rejected for one of its recipients.
            self._rejections += 1
            self._note(pack, end, RecipientStatus.REJECTED)
        else:
            self._note(pack, end, None)

    def _note(self, pack: _Pack, end: Result, fate: RecipientStatus | None) -> None:
        self._writer.settle(end)
        self._standing.record(pack.claim, pack.at, end)
        if fate is not None:
            self._fate(pack.people, fate, end.number)

    def _fate(
        self, people: Iterable[Recipient], fate: RecipientStatus, request: int | None, reason: str | None = None
    ) -> None:
        places = [person.place for person in people]
        # That a repetition did not arrive says nothing about what it repeats.
        if not self._doubted or fate is RecipientStatus.SENT:
            self._plan.settle(places, fate, request, reason)
        elif fate is RecipientStatus.REJECTED:
            self.rejected_again.update(places)

    def _check_circuit_breaker(self) -> None:
        """End what cannot come to anything good."""
        progress = self._progress
        if self._unknown_in_a_row >= _UNKNOWN_IN_A_ROW:
            self._finish(
                ServiceFailingError(
                    f"{self._unknown_in_a_row} requests in a row have an unknown outcome. No further request was "
                    "started, because its outcome would be unknown, too. A retry of the task continues when the "
                    "service responds again."
                )
            )
        elif self._rejections >= _REJECTED_WITHOUT_SUCCESS and not self._accepted:
            self._finish(
                AllRejectedError(
                    f"The service rejected {counted(progress.rejected, 'recipient')} and accepted none, so the cause "
                    "is probably the message, not the recipients. No further request was started. Correct the message "
                    "and clear the task. The file at results_path has the reason of each rejection."
                )
            )
        elif self._may_fail is not None and progress.rejected > self._may_fail:
            self._finish(
                TooManyFailuresError(
                    "More recipients were rejected than max_failure_ratio allows. No further request was started."
                )
            )

    def _finish(self, error: Exception) -> None:
        """Let nothing further be claimed; what comes first is the reason."""
        self._end = self._end or error
        self._ended.set()
        self._tell()

    def _tell(self) -> None:
        """Have everybody who waits look again."""
        self._changed.set()
        self._changed = asyncio.Event()


def _addresses(refused: Iterable[str]) -> frozenset[str]:
    return frozenset(one.removeprefix("+").lower() for one in refused)


async def report_progress(
    progress: Progress, money: Callable[[], tuple[float | None, float | None]], interval: float
) -> None:
    """Tell how far it is, until cancelled."""
    while True:
        await asyncio.sleep(interval)
        progress.tell(*money())
