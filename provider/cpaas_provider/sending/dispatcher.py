"""Sends the requests of one try, several at a time: each is in the journal before it leaves, and its result after."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, Protocol

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


class Ended(NamedTuple):
    """What became of a request, for the journal and for the rest of the send.

    :param result: what the journal has of it
    :param rejected: requests that were not made, each with its result: recipients that the service rejects by name
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
        """Take note that the request did not leave, or that its outcome is unknown."""


class Dispatcher:
    """The requests of one try, or of one resend within it.

    One task takes requests from the queue and has their intents stored. Senders take what is stored: as many as the
    client has in flight at once, so that none waits for another one in the client. A stored request costs them no
    switch of tasks, and one write wakes only as many as it has requests for.

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
        self._pending = 0
        self._recipients = 0
        self._storing: dict[int, PendingRequest] = {}
        self._stored: deque[PendingRequest] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._looks_again = True
        self._all_taken = False
        self._has_unsent = False
        self._is_taking = False
        self._error: BaseException | None = None
        self._abandoned: list[RequestRecord] = []
        self._ended = asyncio.Event()
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Send until the queue is empty.

        :raises AnswerNotAwaitedError: when a request was in flight at the end of the grace period
        :raises SendingError: when something else ended the send before that
        :raises CpaasError: when the service ended it
        """
        senders = min(self._max_pending, self._client.settings.max_concurrency)
        tasks = [
            asyncio.create_task(self._take_requests()),
            *(asyncio.create_task(self._sender()) for _ in range(senders)),
        ]
        watch = asyncio.create_task(self._watch_stop(tasks))
        try:
            for outcome in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(outcome, BaseException) and not isinstance(outcome, asyncio.CancelledError):
                    # The recipients it was about to send to would else be passed over in silence.
                    self._finish(outcome)
        finally:
            watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watch
            self._give_up_unsent()
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

    async def _watch_stop(self, tasks: Iterable[asyncio.Task[None]]) -> None:
        """Once the stop is asked for, let nothing further leave, and give responses the grace period."""
        await self._stop.wait()
        self._finish_stopped()
        self._client.stop()
        await asyncio.wait(tasks, timeout=self._stop.grace_left)
        for task in tasks:
            task.cancel()

    # The task that takes requests from the queue.

    async def _take_requests(self) -> None:
        """Have the intents of requests stored until the queue is empty."""
        try:
            while not await self._fill():
                await self._changed.wait()
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, no intent may follow it
            self._finish(error)
        except BaseException as error:
            # A timeout of Airflow is raised wherever the code happens to be.
            self._finish(error)
            raise
        finally:
            self._all_taken = True
            self._end_senders()

    async def _fill(self) -> bool:
        """Have intents stored until as many requests are pending as may be. Return whether none will follow."""
        while self._error is None:
            self._changed.clear()
            self._looks_again = True
            if self._pending >= self._max_pending or self._recipients >= MAX_PENDING_RECIPIENTS:
                return False
            self._is_taking = True
            batch = await self._queue.next(self._pending)
            self._is_taking = batch is not None and batch != WAIT
            if batch is None:
                # What is pending may leave more to send, when it fails.
                self._looks_again = False
                return not self._pending
            if batch == WAIT:
                return False
            if self._error is not None or not await self._wait_for_rate_limit():
                return True
            self._begin(self._queue.begin(batch))
            self._is_taking = False
        return True

    async def _wait_for_rate_limit(self) -> bool:
        """Wait until a request may leave, and return whether it still may.

        An intent that is stored long before that would only be unknown should the task be killed meanwhile.
        """
        limiter = self._client.rate_limiter
        while self._error is None:
            seconds = await limiter.prepare(ahead=len(self._storing) + len(self._stored))
            if seconds <= _AHEAD:
                break
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._ended.wait()
        return self._error is None

    def _begin(self, request: PendingRequest) -> None:
        """Have the intent of a request stored."""
        self._pending += 1
        self._recipients += len(request.intent)
        self._storing[request.intent.number] = request
        self._writer.begin(request.intent, self._on_stored)

    def _on_stored(self, intent: Intent, error: SendingError | None) -> None:
        """Let a request leave whose intent is stored; the writer calls this."""
        request = self._storing.pop(intent.number, None)
        if request is None:
            return
        if error is None:
            self._stored.append(request)
            self._wake_sender()
        else:
            self._queue.withdraw(request)
            self._finish(error)
            self._forget(request)
        # After an error no request follows the last one that was being stored.
        self._end_senders()

    # The tasks that send.

    async def _sender(self) -> None:
        """Send one request after the other."""
        while (request := await self._next()) is not None:
            try:
                await self._send(request)
            except asyncio.CancelledError:
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, no intent may follow it
                self._finish(error)
            except BaseException as error:
                self._finish(error)
                raise
            finally:
                self._forget(request)

    async def _next(self) -> PendingRequest | None:
        """Return the next request whose intent is stored, ``None`` when there will be none."""
        while not self._stored:
            if self._all_taken and not self._storing:
                return None
            idle = asyncio.get_running_loop().create_future()
            self._idle.append(idle)
            await idle
        return self._stored.popleft()

    async def _send(self, request: PendingRequest) -> None:
        """Send a request whose intent is stored, and have its result stored."""
        queue = self._queue
        if self._has_ended():
            self._record(queue.end(request, State.NOT_SENT, "the try ended before the request left"))
            return
        queue.left(request)
        try:
            result = queue.read(request, await self._client.run(request.call))
        except CpaasError as error:
            self._record(queue.fail(request, error))
            # The queue may have parts of the batch to send.
            self._changed.set()
        except asyncio.CancelledError:
            ended = queue.end(request, State.UNKNOWN, f"{self._stop.reason.rstrip('.')} before a response arrived")
            self._abandoned.append(RequestRecord(request.intent, queue.operation, outcome=ended.result))
            self._record(ended)
            raise
        except Exception as error:
            # A fault of ours, before the request left or after: that is unknown.
            self._record(queue.end(request, State.UNKNOWN, f"the request ended in {type(error).__name__}"))
            raise
        else:
            self._record(queue.accept(request, result))

    def _has_ended(self) -> bool:
        """Return whether no request may leave any more; the stop may have come while an intent was being stored."""
        if self._error is None and self._stop.requested:
            self._finish_stopped()
        return self._error is not None

    def _give_up_unsent(self) -> None:
        """Record of requests that no sender took before the end of the grace period that they did not leave."""
        for request in [*self._stored, *self._storing.values()]:
            # Where its intent is not stored yet, it need not be.
            self._writer.withdraw(request.intent)
            reason = f"{self._stop.reason.rstrip('.')} before the request left"
            self._record(self._queue.end(request, State.NOT_SENT, reason))
        self._stored.clear()
        self._storing.clear()

    def _record(self, ended: Ended) -> None:
        """Have the result of a request stored."""
        self._writer.end(ended.result)
        self._has_unsent |= ended.result.state is State.NOT_SENT
        for intent, result in ended.rejected:
            self._writer.add(intent, result)
        if ended.error is not None:
            self._finish(ended.error)

    def _forget(self, request: PendingRequest) -> None:
        """Make room for a further request."""
        self._pending -= 1
        self._recipients -= len(request.intent)
        if self._looks_again or not self._pending:
            self._changed.set()

    def _finish(self, error: BaseException) -> None:
        """Let no intent follow; what comes first is the reason."""
        self._error = self._error or error
        self._ended.set()
        self._changed.set()

    def _finish_stopped(self) -> None:
        try:
            self._stop.raise_if_stopped()
        except StoppedError as error:
            self._finish(error)

    def _wake_sender(self) -> None:
        """Have a sender that waits, if one does, look again."""
        while self._idle:
            idle = self._idle.popleft()
            if not idle.done():
                idle.set_result(None)
                return

    def _end_senders(self) -> None:
        """Have the senders that wait end, if no request will follow."""
        if self._all_taken and not self._storing:
            while self._idle:
                self._wake_sender()
