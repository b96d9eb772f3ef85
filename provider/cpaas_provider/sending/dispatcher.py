"""The dispatcher: sends the requests of one try, several at once, each after its intent and before its result."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from cpaas_provider.api.core import RunnableCall
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
"""About the most recipients of all pending requests. After a kill the outcome of so many may be unknown."""

_MAX_INTENT_AGE = 0.05
"""How many seconds before its request may leave an intent may be stored."""


class PendingRequest(Protocol):
    """A request from its intent to its result."""

    @property
    def intent(self) -> Intent:
        """The intent of the request."""

    @property
    def call(self) -> RunnableCall[Any]:
        """The call of the client."""


class Ended(NamedTuple):
    """How a request ended, for the journal and for the rest of the send.

    :param result: the result to record
    :param rejected: further records, of recipients that the service rejected by name: intents that were not sent, with
        their results
    :param error: the error that ends the send; ``None`` to continue
    """

    result: Result
    rejected: Sequence[tuple[Intent, Result]] = ()
    error: Exception | None = None


class RequestQueue(Protocol):
    """The queue from which a dispatcher takes requests, and to which it reports how they ended."""

    operation: str

    async def next(self, pending: int) -> Sequence[Any] | Wait | None:
        """Return the recipients of the next request, ``None`` for none, ``WAIT`` if a pending one must end before.

        :param pending: the number of pending requests
        :raises SendingError: when a guard ends the send
        :raises CpaasError: when a lookup fails
        """

    def begin(self, batch: Any) -> Any:
        """Return the request to these recipients, with its intent."""

    def on_request_sent(self, request: Any) -> None:
        """Record that the intent is stored and the request leaves."""

    def withdraw(self, request: Any) -> None:
        """Record that the intent could not be stored, so that the request did not leave."""

    def read(self, request: Any, response: Any) -> RequestResult:
        """Return the result that a response states.

        :raises CpaasError: when it states that nothing was accepted
        """

    def accept(self, request: Any, result: RequestResult) -> Ended:
        """Record that the service accepted the request."""

    def fail(self, request: Any, error: CpaasError) -> Ended:
        """Record that the request failed."""

    def end(self, request: Any, state: State, reason: str) -> Ended:
        """Record that the request did not leave, or that its outcome is unknown."""


@dataclass(eq=False, repr=False)
class Dispatcher:
    """Sends the requests of one try, or of one resend within it.

    ``run_in_line`` sends the one request of a single send. For the requests of a campaign, ``run`` has several asyncio
    tasks.

    One asyncio task takes requests from the queue and hands their intents to the journal writer. Other asyncio tasks,
    the senders, send the requests whose intents are stored. There are as many senders as the client allows requests in
    flight, so no sender waits inside the client. A write wakes only as many senders as it stored requests.

    :param client: sends the requests, within its rate limit
    :param max_pending: the most requests that may be in the journal without a result
    """

    queue: RequestQueue
    writer: JournalWriter
    client: Client
    stop: StopSignal
    max_pending: int

    def __post_init__(self) -> None:
        self._pending = 0
        self._pending_recipients = 0
        self._storing: dict[int, PendingRequest] = {}
        self._stored: deque[PendingRequest] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._queue_may_have_more = True
        self._has_taken_all = False
        self._has_unsent = False
        self._is_taking = False
        self._error: BaseException | None = None
        self._abandoned: list[RequestRecord] = []
        self._ended = asyncio.Event()
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Send until the queue is empty.

        :raises AnswerNotAwaitedError: when a request was in flight at the end of the grace period
        :raises SendingError: when the send ended for another reason
        :raises CpaasError: when a failed request ended the send
        """
        senders = min(self.max_pending, self.client.settings.max_concurrency)
        tasks = [
            asyncio.create_task(self._take_requests()),
            *(asyncio.create_task(self._sender()) for _ in range(senders)),
        ]
        watch = asyncio.create_task(self._watch_stop(tasks))
        try:
            for outcome in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(outcome, BaseException) and not isinstance(outcome, asyncio.CancelledError):
                    # Without this the task would succeed although requests were taken and not sent.
                    self._finish(outcome)
        finally:
            watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watch
            self._record_unsent()
        await self._raise_if_ended()

    async def run_in_line(self) -> None:
        """Send the one request of a queue: store its intent, send it, and store its result.

        :raises AnswerNotAwaitedError: when the request was in flight at the end of the grace period
        :raises SendingError: when the send ended for another reason
        :raises CpaasError: when the request failed, and its outcome is known
        """
        batch = await self.queue.next(0)
        if batch is None:
            return
        limiter = self.client.rate_limiter
        while (seconds := await self.stop.finish(limiter.prepare())) > _MAX_INTENT_AGE:
            await self.stop.sleep(seconds)
        request = self.queue.begin(batch)
        self._stored.append(request)
        try:
            await self.writer.store(request.intent)
            await self.stop.finish(self._send_stored(), self.client)
            await self.writer.flush()
        except StoppedError as error:
            self._finish(error)
        except SendingError as error:
            self._stored.clear()
            self.queue.withdraw(request)
            # The stop is the reason that is raised, as the request is not made again.
            self._finish_stopped()
            self._finish(error)
            self._has_unsent = True
        finally:
            self._record_unsent()
        await self._raise_if_ended()

    async def _send_stored(self) -> None:
        await self._send(self._stored.popleft())

    async def _raise_if_ended(self) -> None:
        """Raise the error that ended the send, unless that is a stop after which nothing was left to send."""
        if self._abandoned and isinstance(self._error, StoppedError):
            recipients = sum(len(record.members) for record in self._abandoned)
            raise AnswerNotAwaitedError(
                f"{self.stop.reason} A response had not arrived. {describe_unknown(self._abandoned, recipients)}"
            )
        if self._error is not None and not await self._is_done():
            raise self._error

    async def _is_done(self) -> bool:
        """Return whether the stop came when nothing was left to send."""
        # Requests that were taken and not sent are no longer in the queue.
        if self._has_unsent or self._is_taking or not isinstance(self._error, StoppedError):
            return False
        try:
            return await self.queue.next(0) is None
        except Exception:  # noqa: BLE001 - the stop has ended the send already
            return False

    async def _watch_stop(self, tasks: Iterable[asyncio.Task[None]]) -> None:
        """Wait for the stop. Then let no request leave, and cancel the tasks at the end of the grace period."""
        await self.stop.wait()
        self._finish_stopped()
        self.client.stop()
        await asyncio.wait(tasks, timeout=self.stop.grace_left)
        for task in tasks:
            task.cancel()

    # The asyncio task that takes requests from the queue.

    async def _take_requests(self) -> None:
        """Take requests and hand their intents to the writer, until the queue is empty."""
        try:
            while not await self._fill():
                await self._changed.wait()
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - after any error no intent may follow
            self._finish(error)
        except BaseException as error:
            # Airflow raises its task timeout, a BaseException, at any point of the code.
            self._finish(error)
            raise
        finally:
            self._has_taken_all = True
            self._end_senders()

    async def _fill(self) -> bool:
        """Take requests until the limit of pending ones is reached. Return whether the queue has no more."""
        while self._error is None:
            self._changed.clear()
            self._queue_may_have_more = True
            if self._pending >= self.max_pending or self._pending_recipients >= MAX_PENDING_RECIPIENTS:
                return False
            self._is_taking = True
            batch = await self.queue.next(self._pending)
            self._is_taking = batch is not None and batch != WAIT
            if batch is None:
                # A pending request that fails may return recipients to the queue.
                self._queue_may_have_more = False
                return not self._pending
            if batch == WAIT:
                return False
            if self._error is not None or not await self._wait_for_rate_limit():
                return True
            request = self.queue.begin(batch)
            self._pending += 1
            self._pending_recipients += len(request.intent)
            self._storing[request.intent.number] = request
            self.writer.begin(request.intent, self._on_stored)
            self._is_taking = False
        return True

    async def _wait_for_rate_limit(self) -> bool:
        """Wait until the rate limit lets a request leave. Return whether the send has not ended meanwhile.

        An intent stored long before that would be unknown after a kill, although its request never left.
        """
        limiter = self.client.rate_limiter
        while self._error is None:
            seconds = await limiter.prepare(ahead=len(self._storing) + len(self._stored))
            if seconds <= _MAX_INTENT_AGE:
                break
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._ended.wait()
        return self._error is None

    def _on_stored(self, intent: Intent, error: SendingError | None) -> None:
        """Let a request leave, because its intent is stored, or withdraw it after an error; called by the writer."""
        request = self._storing.pop(intent.number, None)
        if request is None:
            return
        if error is None:
            self._stored.append(request)
            self._wake_sender()
        else:
            self.queue.withdraw(request)
            # Also after a stop, which is then the reason that is raised: the queue does not return this request again.
            self._has_unsent = True
            self._finish(error)
            self._forget(request)
        # If this was the last intent, idle senders have nothing to wait for.
        self._end_senders()

    # The asyncio tasks that send.

    async def _sender(self) -> None:
        """Send stored requests, one after the other."""
        while (request := await self._next()) is not None:
            try:
                await self._send(request)
            except asyncio.CancelledError:
                raise
            except Exception as error:  # noqa: BLE001 - after any error no intent may follow
                self._finish(error)
            except BaseException as error:
                self._finish(error)
                raise
            finally:
                self._forget(request)

    async def _next(self) -> PendingRequest | None:
        """Wait for a request whose intent is stored, and return it; ``None`` if none will follow."""
        while not self._stored:
            if self._has_taken_all and not self._storing:
                return None
            idle = asyncio.get_running_loop().create_future()
            self._idle.append(idle)
            await idle
        return self._stored.popleft()

    async def _send(self, request: PendingRequest) -> None:
        """Send a request whose intent is stored, and hand its result to the writer."""
        queue = self.queue
        if self._has_ended():
            self._record(queue.end(request, State.NOT_SENT, "the try ended before the request left"))
            return
        queue.on_request_sent(request)
        try:
            result = queue.read(request, await self.client.run(request.call))
        except CpaasError as error:
            self._record(queue.fail(request, error))
            # The queue may have parts of a bisected batch.
            self._changed.set()
        except asyncio.CancelledError:
            ended = queue.end(request, State.UNKNOWN, f"{self.stop.reason.rstrip('.')} before a response arrived")
            self._abandoned.append(RequestRecord(request.intent, queue.operation, outcome=ended.result))
            self._record(ended)
            raise
        except Exception as error:
            # A defect of the provider: it may have happened before or after the request left.
            self._record(queue.end(request, State.UNKNOWN, f"the request ended in {type(error).__name__}"))
            raise
        else:
            self._record(queue.accept(request, result))

    def _has_ended(self) -> bool:
        """Return whether no request may leave any more. The stop may have come while an intent was stored."""
        if self._error is None and self.stop.requested:
            self._finish_stopped()
        return self._error is not None

    def _record_unsent(self) -> None:
        """Record as not sent the requests that no sender took before the end of the grace period."""
        for request in [*self._stored, *self._storing.values()]:
            # An intent that is not stored yet is not needed any more.
            self.writer.withdraw(request.intent)
            reason = f"{self.stop.reason.rstrip('.')} before the request left"
            self._record(self.queue.end(request, State.NOT_SENT, reason))
        self._stored.clear()
        self._storing.clear()

    def _record(self, ended: Ended) -> None:
        """Hand the result of a request to the writer."""
        self.writer.end(ended.result)
        if ended.result.state is State.NOT_SENT:
            self._has_unsent = True
            # After the stop the client makes no request, so an error of it is not the reason.
            self._finish_stopped()
        for intent, result in ended.rejected:
            self.writer.add(intent, result)
        if ended.error is not None:
            self._finish(ended.error)

    def _forget(self, request: PendingRequest) -> None:
        """Stop counting a request as pending, which makes room for another one."""
        self._pending -= 1
        self._pending_recipients -= len(request.intent)
        if self._queue_may_have_more or not self._pending:
            self._changed.set()

    def _finish(self, error: BaseException) -> None:
        """End the send: no intent follows. The first error is the reason."""
        self._error = self._error or error
        self._ended.set()
        self._changed.set()

    def _finish_stopped(self) -> None:
        try:
            self.stop.raise_if_stopped()
        except StoppedError as error:
            self._finish(error)

    def _wake_sender(self) -> None:
        """Wake one idle sender, if there is one."""
        while self._idle:
            idle = self._idle.popleft()
            if not idle.done():
                idle.set_result(None)
                return

    def _end_senders(self) -> None:
        """Let the idle senders end, if no request will follow."""
        if self._has_taken_all and not self._storing:
            while self._idle:
                self._wake_sender()
