"""The client for blocking code, whose requests run on an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Iterator

import pytest

from cpaas_provider.api.http.transport import SyncTransport
from cpaas_provider.api.http.wire import HttpResponse, TransportFailure
from tests.unit.api.loopback import Loopback, Seen, answering
from tests.unit.api.test_transport import at, request
from tests.waiting import until


def threads() -> int:
    return sum(one.name == "cpaas-client" for one in threading.enumerate())


@pytest.fixture
def server() -> Iterator[Loopback]:
    with Loopback(answering(200, b"{}")) as server:
        yield server


def test_thread_starts_with_the_first_request_and_ends_with_the_client(server: Loopback) -> None:
    before = threads()
    transport = SyncTransport(at(server.url))
    assert threads() == before
    assert transport.send(request(at(server.url))) == HttpResponse(200, None, b"{}")
    assert threads() == before + 1
    transport.close()
    transport.close()
    until(lambda: threads() == before)


def test_client_that_is_not_closed_takes_its_thread_along(server: Loopback) -> None:
    before = threads()
    transport = SyncTransport(at(server.url))
    transport.send(request(at(server.url)))
    del transport
    gc.collect()
    until(lambda: threads() == before)


def test_closed_client_makes_no_request(server: Loopback) -> None:
    transport = SyncTransport(at(server.url))
    transport.close()
    with pytest.raises(RuntimeError, match="closed"):
        transport.send(request(at(server.url)))
    assert server.seen == []


def test_request_in_flight_counts_as_lost_when_the_client_is_closed() -> None:
    arrived = threading.Event()

    def stall(connection: object, _: Seen) -> None:
        arrived.set()
        server.over.wait(20)

    with Loopback(stall) as server:
        transport, found = SyncTransport(at(server.url)), []
        sender = threading.Thread(target=lambda: found.append(transport.send(request(at(server.url)))))
        sender.start()
        assert arrived.wait(20)
        transport.close()
        sender.join(20)
    assert found == [TransportFailure.CONNECTION_LOST]


def test_client_works_on_a_running_event_loop(server: Loopback) -> None:
    async def blocking_call() -> object:
        transport = SyncTransport(at(server.url))
        try:
            return transport.send(request(at(server.url)))
        finally:
            transport.close()

    assert asyncio.run(blocking_call()) == HttpResponse(200, None, b"{}")


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_client_made_before_a_fork_works_in_both_processes(server: Loopback) -> None:
    transport = SyncTransport(at(server.url))
    assert transport.send(request(at(server.url))) == HttpResponse(200, None, b"{}")
    child = os.fork()
    if not child:
        failed = 1
        try:
            failed = int(transport.send(request(at(server.url))) != HttpResponse(200, None, b"{}"))
            transport.close()
        finally:
            os._exit(failed)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert transport.send(request(at(server.url))) == HttpResponse(200, None, b"{}")
    transport.close()
    assert len(server.seen) == 3
