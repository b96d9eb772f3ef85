"""What a stop leaves of the requests that are stored ahead of those under way."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from cpaas_provider.api.errors import CpaasAuthenticationError
from cpaas_provider.api.rate_limit import RateLimiter
from cpaas_provider.sending.campaign.recipients import RecipientStatus
from cpaas_provider.sending.errors import StoppedError
from cpaas_provider.sending.journal import writer
from cpaas_provider.sending.journal.model import State, replay
from cpaas_provider.sending.shutdown import AnswerNotAwaitedError, StopSignal
from tests.unit.sending.campaign.parts import SECOND_TRY, MemoryStore, journal_log
from tests.unit.sending.campaign.running import accepted, tried

IN_FLIGHT = 8
STORED_AHEAD = 24


def states(store: MemoryStore) -> list[State]:
    records: dict[int, Any] = {}
    for entry in journal_log(store, SECOND_TRY).replay():
        replay(entry, "send_sms", records)
    return sorted(record.state for record in records.values())


class StoppingLimiter(RateLimiter):
    """A limit whose next moment is far away; the stop comes while it is waited for."""

    def __init__(self, stop: StopSignal) -> None:
        super().__init__(0.01)
        self.reserve()
        self._stop = stop

    def delay(self, ahead: int = 0) -> float:
        self._stop.request()
        return super().delay(ahead)


def test_stop_while_the_last_batch_waits_for_the_rate_limit_is_no_success() -> None:
    stop = StopSignal()
    done = tried(lambda _, reference: accepted(reference), 1, stop=stop, rate_limiter=StoppingLimiter(stop))
    assert isinstance(done.error, StoppedError)
    assert done.requests == []
    assert done.of(RecipientStatus.NOT_SENT) == 1


def test_stop_records_stored_requests_that_did_not_leave_as_not_sent() -> None:
    stop, store = StopSignal(), MemoryStore()

    async def answer(reference: str) -> Any:
        stop.request()
        return accepted(reference)

    done = tried(
        lambda _, reference: answer(reference),
        100,
        store=store,
        stop=stop,
        per_request=1,
        window=IN_FLIGHT + STORED_AHEAD,
    )
    assert isinstance(done.error, StoppedError)
    assert len(done.requests) <= IN_FLIGHT
    assert done.of(RecipientStatus.SENT) == len(done.requests)
    found = states(store)
    assert found.count(State.ACCEPTED) == len(done.requests)
    assert set(found) <= {State.ACCEPTED, State.NOT_SENT}


class SlowStore(MemoryStore):
    """A store whose writes after the head and the first entry begin, and end once a request has failed."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0
        self.second_began, self.failed = threading.Event(), threading.Event()

    def set(self, key: str, value: Any) -> None:
        self.writes += bool(value["batches"])
        if self.writes > 1:
            self.second_began.set()
            assert self.failed.wait(20)
        super().set(key, value)


def test_error_while_the_last_intent_is_being_stored_ends_the_campaign() -> None:
    """All senders that wait must be woken: the request of that intent does not leave, and none follows."""
    store, references = SlowStore(), list[str]()

    async def answer(reference: str) -> Any:
        references.append(reference)
        if reference == references[0]:
            # Its result makes room for the last recipient, whose intent is then being stored.
            return accepted(reference)
        await asyncio.to_thread(store.second_began.wait, 20)
        store.failed.set()
        raise CpaasAuthenticationError("The API key is refused.")

    done = tried(lambda _, reference: answer(reference), 10, store=store, per_request=1, window=9)
    assert isinstance(done.error, CpaasAuthenticationError)
    assert (done.of(RecipientStatus.SENT), done.of(RecipientStatus.NOT_SENT)) == (1, 9)


class StoppingStore(MemoryStore):
    """A store that takes the head and nothing else; the stop comes while that is found out."""

    def __init__(self, stop: StopSignal) -> None:
        super().__init__()
        self._stop = stop

    def set(self, key: str, value: Any) -> None:
        if value["batches"]:
            self._stop.request()
            raise ConnectionError
        super().set(key, value)


@pytest.mark.parametrize("recipients", [1, 40])
def test_stop_while_the_last_intents_cannot_be_stored_is_no_success(
    recipients: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their requests do not leave, and the queue has no others: without an error the task would succeed."""
    monkeypatch.setattr(writer, "_FIRST_PAUSE", 0.05)
    stop = StopSignal()
    done = tried(lambda _, reference: accepted(reference), recipients, store=StoppingStore(stop), stop=stop)
    assert isinstance(done.error, StoppedError)
    assert done.requests == []
    assert done.of(RecipientStatus.NOT_SENT) == recipients


def test_end_of_the_grace_period_leaves_only_requests_in_flight_unknown() -> None:
    stop, store = StopSignal(grace=0.0), MemoryStore()

    async def answer() -> Any:
        stop.request()
        await asyncio.get_running_loop().create_future()

    done = tried(lambda *_: answer(), 100, store=store, stop=stop, per_request=1, window=IN_FLIGHT + STORED_AHEAD)
    assert isinstance(done.error, AnswerNotAwaitedError)
    assert 0 < len(done.requests) <= IN_FLIGHT
    assert done.of(RecipientStatus.UNKNOWN) == len(done.requests)
    found = states(store)
    assert found.count(State.UNKNOWN) == len(done.requests)
    assert set(found) <= {State.UNKNOWN, State.NOT_SENT}
