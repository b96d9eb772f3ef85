"""The engine: sends to the remaining recipients, and resolves unknown outcomes, for single sends and campaigns.

A try may end at any point. The journal then shows the next try what it may send.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from cpaas_provider.api.backoff import backoff
from cpaas_provider.sending.dispatcher import Dispatcher, RequestQueue
from cpaas_provider.sending.journal.log import JournalLog
from cpaas_provider.sending.journal.writer import JournalWriter
from cpaas_provider.sending.resolver import MAX_RESENDS, SendRequests, UnknownResolver
from cpaas_provider.sending.shutdown import StopSignal, in_thread
from cpaas_provider.sending.spec import Client, UnknownPolicy

_FIRST_PAUSE = 2.0
"""The longest pause, in seconds, before the second resend of a try. Later pauses are longer."""


class SendState(Protocol):
    """The status of the recipients of a send, and the requests to make."""

    log: JournalLog
    body: str
    min_write_batch: int
    max_pending: int
    in_line: bool
    """Whether a queue has one request, which is sent in line."""

    @property
    def requests(self) -> SendRequests:
        """The requests of all tries, as the resolver reads and changes them."""

    async def record_head(self, writer: JournalWriter) -> None:
        """Store that the journal of earlier tries is lost, if it is, and what names the send outside of the journal."""

    def has_remaining(self) -> bool:
        """Return whether recipients are left to send to."""

    def open_queue(
        self, client: Client, stop: StopSignal, *, is_resend: bool = False
    ) -> AbstractAsyncContextManager[RequestQueue | None]:
        """Open the queue of requests to the remaining recipients; ``None`` if the guards permit none.

        :param is_resend: to send to recipients of unknown outcome instead, again
        """


class TryPorts(Protocol):
    """What a send needs of Airflow and of delivery tracking."""

    resends: int
    """The number of resends that the try has made, also before it was deferred."""

    @property
    def stop(self) -> StopSignal:
        """The stop signal of the try."""

    @property
    def cli_address(self) -> str:
        """The task instance as an argument of `airflow cpaas journal`."""

    def check_may_send(self) -> None:
        """Raise if no request may leave: in a stale run, or if the receiver uses another database. This may block."""


@dataclass(eq=False, repr=False)
class SendEngine:
    """Sends to each recipient at most once, however earlier tries ended."""

    state: SendState
    client: Client
    ports: TryPorts
    policy: UnknownPolicy
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)

    async def run(self, *, resolve: bool = True) -> None:
        """Send to the remaining recipients, then resolve requests of unknown outcome.

        :param resolve: whether to resolve them
        :raises CpaasError: when a request was rejected or not sent
        :raises ProbeLaterError: when a probe may establish an outcome later
        :raises SendingError: when the send ended for another reason, see its subclasses
        """
        state, stop = self.state, self.ports.stop
        async with JournalWriter(
            state.log, state.body, state.min_write_batch, self.clock, in_line=state.in_line
        ) as writer:
            await state.record_head(writer)
            if state.has_remaining():
                await stop.finish(in_thread(self.ports.check_may_send))
                async with state.open_queue(self.client, stop) as queue:
                    if queue is not None:
                        await self._dispatch(queue, writer)
            if not resolve:
                return
            resolver = UnknownResolver(
                state.requests, self.policy, writer, self.client, stop, self.ports.cli_address, self.clock
            )
            if await resolver.resolve():
                await self._resend(resolver, writer)

    async def _resend(self, resolver: UnknownResolver, writer: JournalWriter) -> None:
        stop = self.ports.stop
        for resend in range(self.ports.resends, MAX_RESENDS):
            # What a probe established must not be lost while this try waits.
            await writer.flush()
            async with self.state.open_queue(self.client, stop, is_resend=True) as queue:
                if queue is None:
                    break
                await stop.finish(in_thread(self.ports.check_may_send))
                if resend:
                    await stop.sleep(backoff(resend, _FIRST_PAUSE))
                await self._dispatch(queue, writer)
            # Before the probe, which may defer the try.
            self.ports.resends += 1
            await resolver.probe()
        resolver.end_resends()

    async def _dispatch(self, queue: RequestQueue, writer: JournalWriter) -> None:
        dispatcher = Dispatcher(queue, writer, self.client, self.ports.stop, self.state.max_pending)
        await (dispatcher.run_in_line() if self.state.in_line else dispatcher.run())
