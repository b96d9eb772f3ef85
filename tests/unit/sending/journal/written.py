"""A journal with what single sends write into it, step by step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from cpaas_provider.api.core import Call
from cpaas_provider.api.endpoints import SEND_SMS
from cpaas_provider.sending.errors import SendingError
from cpaas_provider.sending.journal.journal import Journal
from cpaas_provider.sending.journal.model import Intent, RequestRecord, Result, State
from cpaas_provider.sending.journal.writer import JournalWriter
from cpaas_provider.sending.single import SingleSendQueue, SingleSendState
from cpaas_provider.sending.spec import SendSpec, channel_of
from tests.unit.sending.ports import NoDelivery


async def begin(writer: JournalWriter, intent: Intent) -> None:
    """Have an intent stored, and return when it is; raise what keeps it from being stored."""
    stored = asyncio.get_running_loop().create_future()

    def on_stored(_: Intent, error: SendingError | None) -> None:
        if error is not None:
            stored.set_exception(error)
        else:
            stored.set_result(None)

    writer.begin(intent, on_stored)
    await stored


class OneSpec(SendSpec, frozen=True):
    """A send whose call nobody makes."""

    def build_call(self, recipients: Sequence[str], reference: str, callback_url: str | None) -> Call[Any]:
        return Call(SEND_SMS, {"recipients": list(recipients), "external_ref": reference})


class WrittenJournal:
    """A journal as a try opens it, written as the engine writes it."""

    def __init__(self, *args: Any, clock: Callable[[], datetime], **options: Any) -> None:
        self.journal = Journal(*args, **options)
        self._clock = clock

    @property
    def lost(self) -> str | None:
        return self.journal.log.lost

    @property
    def records(self) -> Iterable[RequestRecord]:
        return self.journal.records

    def begin(
        self,
        operation: str,
        recipients: Sequence[str],
        body: Mapping[str, Any],
        personal: Mapping[str, Any] | None = None,
        probe_snapshot: Any = None,
    ) -> RequestRecord:
        state = self.state(operation, recipients, body, personal)
        queue = SingleSendQueue(state, state.spec, tuple(recipients), probe_snapshot)
        request = queue.begin(tuple(recipients))

        async def write() -> None:
            async with JournalWriter(state.log, state.body, clock=self._clock) as writer:
                await begin(writer, request.intent)

        asyncio.run(write())
        queue.on_request_sent(request)
        return next(one for one in self.records if one.number == request.intent.number)

    def end(
        self, entry: RequestRecord, state: State, *, result: dict[str, Any] | None = None, reason: str | None = None
    ) -> None:
        ended = Result(entry.number, state, reason=reason, extra=result)
        self.journal.end(ended)

        async def write() -> None:
            async with JournalWriter(self.journal.log, entry.body, clock=self._clock) as writer:
                writer.end(ended)

        asyncio.run(write())

    def record_head(self, operation: str, recipients: Sequence[str]) -> None:
        state = self.state(operation, recipients, {})

        async def write() -> None:
            async with JournalWriter(state.log, state.body, clock=self._clock) as writer:
                await state.record_head(writer)

        asyncio.run(write())

    def latest(self, operation: str, recipients: Sequence[str]) -> dict[str, RequestRecord | None]:
        return self.state(operation, recipients, {}).latest()

    def reference(self, operation: str, recipients: Sequence[str]) -> str:
        member_of = self.journal.log.hasher.member_hasher(operation, channel_of(operation, {}))
        return self.journal.log.reference(map(member_of, recipients), operation)

    def state(
        self,
        operation: str,
        recipients: Sequence[str],
        body: Mapping[str, Any],
        personal: Mapping[str, Any] | None = None,
    ) -> SingleSendState:
        spec = OneSpec(operation, tuple(recipients), body, personal=personal)
        return SingleSendState(spec, self.journal, NoDelivery(), clock=self._clock)
