"""Sends the requests of one try, several at a time: each is in the journal before it leaves, and its result after."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from cpaas_provider.api.core import Call
from cpaas_provider.api.errors import CpaasError
from cpaas_provider.sending.errors import SendingError, StoppedError
from cpaas_provider.sending.journal.model import Intent, RequestRecord, Result, State
from cpaas_provider.sending.journal.writer import JournalWriter
from cpaas_provider.sending.resolver import describe_unknown
from cpaas_provider.sending.shutdown import AnswerNotAwaitedError, StopSignal
from cpaas_provider.sending.spec import Client, RequestResult

log = logging.getLogger(__name__)

Wait = Literal["wait"]
WAIT: Wait = "wait"

MAX_PENDING_RECIPIENTS = 20_000
"""About how many recipients pending requests have together, however many requests that is: so many may be unknown after
a kill."""

_AHEAD = 0.05
"""Seconds by which an intent may be stored before its request may leave."""


class PendingRequest(Protocol):
    """A request from its intent to its result."""

    @property
    def intent(self) -> Intent:
        """What the journal has of it before it leaves."""

    @property
    def call(self) -> Call[Any]:
        """The request itself."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of a request, for the journal and for the rest of the send.

    :param result: what the journal has of it
    :param rejected: requests that were not made, each with its result: recipients whom the service rejects by name
    :param error: what ends the send; ``None`` where it goes on
    """

    result: Result
    rejected: Sequence[tuple[Intent, Result]] = ()
    error: Exception | None = None


class RequestQueue(Protocol):
    """What a dispatcher takes requests from, and gives their results to."""

    operation: str

    async def next(self, in_flight: int) -> Sequence[Any] | Wait | None:
        """Return the recipients of the next request, and ``None`` when there is none.

        :param in_flight: how many requests are; where the next has to wait for them, return ``WAIT``
        :raises SendingError: when a guard ends the send
        :raises CpaasError: when a look-up fails
        """

    def begin(self, batch: Any) -> Any:
        """Return the request to these recipients, numbered for the journal."""

    def left(self, request: Any) -> None:
        """Take note that the intent is stored and the request leaves."""

    def withdraw(self, request: Any) -> None:
        """Take note that the intent could not be stored, so that the request did not leave."""

    def read(self, request: Any, response: Any) -> RequestResult:
        """Return what a response says.

        :raises CpaasError: when it says that nothing was accepted
        """

    def accept(self, request: Any, result: RequestResult) -> Ended:
        """Take note that the service accepted the request."""

    def fail(self, request: Any, error: CpaasError) -> Ended:
        """Take note that the request did not succeed."""

    def end(self, request: Any, state: State, reason: str) -> Ended:
        """Take note that the request did not leave, or that nobody can tell what became of it."""


class Dispatcher:
    """The requests of one try, or of one resend within it.

    :param client: makes the requests, at no more than its rate limit
    :param max_pending: how many requests may be in the journal without a result
    """

    def __init__(
        self, queue: RequestQueue, writer: JournalWriter, client: Client, stop: StopSignal, *, max_pending: int = 1
    ) -> None:
        self._queue = queue
        self._writer = writer
        self._client = client
        self._stop = stop
        self._max_pending = max_pending
        self._in_flight = 0
        self._recipients = 0
        self._storing = 0
        self._is_waiting = False
        self._has_unsent = False
        self._is_taking = False
        self._error: BaseException | None = None
        self._abandoned: list[RequestRecord] = []
        self._ended = asyncio.Event()
        self._taking = asyncio.Lock()
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Send until the queue is empty.

        :raises AnswerNotAwaitedError: when a request was in flight at the end of the grace period
        :raises SendingError: when something else ended the send before that
        :raises CpaasError: when the service ended it
        """
        workers = [asyncio.create_task(self._worker()) for _ in range(self._max_pending)]
        watch = asyncio.create_task(self._watch_stop(workers))
        try:
            for outcome in await asyncio.gather(*workers, return_exceptions=True):
                if isinstance(outcome, BaseException) and not isinstance(outcome, asyncio.CancelledError):
                    # The recipients it was about to send to would else be passed over in silence.
                    self._finish(outcome)
        finally:
            watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watch
        if self._abandoned and isinstance(self._error, StoppedError):
            recipients = sum(len(record.members) for record in self._abandoned)
            raise AnswerNotAwaitedError(
                f"{self._stop.reason} A response had not arrived. {describe_unknown(self._abandoned, recipients)}"
            )
        if self._error is not None and not await self._is_done():
            raise self._error

    async def _is_done(self) -> bool:
        """Return whether the stop came when nothing was left to send."""
        # What had been taken from the queue when the stop came is in it no more.
        if self._has_unsent or self._is_taking or not isinstance(self._error, StoppedError):
            return False
        try:
            return await self._queue.next(0) is None
        except Exception:  # noqa: BLE001 - what is raised here keeps the try from sending; the stop did before
            return False

    async def _watch_stop(self, workers: Iterable[asyncio.Task[None]]) -> None:
        """Once the stop is asked for, let nothing further leave, and give responses the grace period."""
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
        """Send one request after the other."""
        while (request := await self._next()) is not None:
            try:
                await self._send(request)
            except asyncio.CancelledError:
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, no intent may follow it
                self._finish(error)
            except BaseException as error:
                # A timeout of Airflow is raised wherever the code happens to be.
                self._finish(error)
                raise
            finally:
                self._in_flight -= 1
                self._recipients -= len(request.intent)
                # A worker that found the queue empty needs to look again only if there may be more, or never will be.
                if self._is_waiting or not self._in_flight:
                    self._wake()

    async def _next(self) -> PendingRequest | None:
        """Return the next request, ``None`` when there is none."""
        while self._error is None:
            changed = self._changed
            async with self._taking:
                batch = await self._take()
                if self._error is not None:
                    return None
                self._is_waiting = batch == WAIT
                if batch is not None and batch != WAIT:
                    if not await self._wait_for_rate_limit():
                        return None
                    request: PendingRequest = self._queue.begin(batch)
                    self._is_taking = False
                    self._in_flight += 1
                    self._recipients += len(request.intent)
                    self._storing += 1
                    return request
                if batch is None and not self._in_flight:
                    self._wake()
                    return None
            await changed.wait()
        return None

    async def _take(self) -> Sequence[Any] | Wait | None:
        if self._error is not None:
            return None
        if self._recipients >= MAX_PENDING_RECIPIENTS:
            return WAIT
        self._is_taking = True
        try:
            batch = await self._queue.next(self._in_flight)
        except Exception as error:  # noqa: BLE001 - whatever it is, no intent may follow it
            self._finish(error)
            return None
        self._is_taking = batch is not None and batch != WAIT
        return batch

    async def _wait_for_rate_limit(self) -> bool:
        """Wait until a request may leave, and return whether it still may.

        An intent that is stored long before that would only be unknown should the task be killed meanwhile.
        """
        limiter = self._client.rate_limiter
        while (seconds := limiter.delay(ahead=self._storing)) > _AHEAD and self._error is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._ended.wait()
        return self._error is None

    async def _send(self, request: PendingRequest) -> None:
        """Store the intent, send the request, and have its result stored."""
        queue = self._queue
        try:
            await self._writer.begin(request.intent)
        except SendingError as error:
            queue.withdraw(request)
            self._finish(error)
            return
        except asyncio.CancelledError:
            # Stored or not: it surely did not leave.
            self._record(queue.end(request, State.NOT_SENT, "Airflow stopped the task before the request left"))
            raise
        finally:
            self._storing -= 1
        if self._has_ended():
            self._record(queue.end(request, State.NOT_SENT, "the try ended before the request left"))
            return
        queue.left(request)
        try:
            result = queue.read(request, await self._client.run(request.call))
        except CpaasError as error:
            self._record(queue.fail(request, error))
            # The queue may have parts of the batch to send.
            self._wake()
        except asyncio.CancelledError:
            ended = queue.end(request, State.UNKNOWN, f"{self._stop.reason.rstrip('.')} before a response arrived")
            self._abandoned.append(RequestRecord(request.intent, queue.operation, outcome=ended.result))
            self._record(ended)
            raise
        except Exception as error:
            # A fault of ours, before the request left or after: nobody can tell.
            self._record(queue.end(request, State.UNKNOWN, f"the request ended in {type(error).__name__}"))
            raise
        else:
            self._record(queue.accept(request, result))

    def _has_ended(self) -> bool:
        """Return whether no request may leave any more; the stop may have come while an intent was being stored."""
        if self._error is None:
            try:
                self._stop.raise_if_stopped()
            except StoppedError as error:
                self._finish(error)
        return self._error is not None

    def _record(self, ended: Ended) -> None:
        """Have the result of a request stored."""
        self._writer.end(ended.result)
        self._has_unsent |= ended.result.state is State.NOT_SENT
        for intent, result in ended.rejected:
            self._writer.add(intent, result)
        if ended.error is not None:
            self._finish(ended.error)

    def _finish(self, error: BaseException) -> None:
        """Let no intent follow; what comes first is the reason."""
        self._error = self._error or error
        self._ended.set()
        self._wake()

    def _wake(self) -> None:
        """Have every worker that waits look again."""
        self._changed.set()
        self._changed = asyncio.Event()
