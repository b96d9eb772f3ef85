"""What the tests of the client share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from cpaas_provider.api import endpoints
from cpaas_provider.api.endpoints import Endpoint
from cpaas_provider.api.http import connections
from cpaas_provider.api.http.transport import AsyncTransport, SyncTransport
from cpaas_provider.api.http.wire import HttpResponse, OutgoingRequest, TransportFailure
from cpaas_provider.api.settings import ClientSettings

KEY = "sk_live_4eC39HqLyjWDarjtT1zdp7dc"
ENDPOINTS: tuple[Endpoint[Any], ...] = tuple(one for one in vars(endpoints).values() if isinstance(one, Endpoint))
"""The 14 operations of the service."""

Send = Callable[[OutgoingRequest, ClientSettings], HttpResponse | TransportFailure]


@pytest.fixture
def settings() -> ClientSettings:
    return ClientSettings("https://cpaas.example.com/v1", KEY, default_region="NG")


@pytest.fixture(params=["sync", "async"])
def send(request: pytest.FixtureRequest) -> Send:
    """Send one request by one transport and close it; every test that takes this runs for both."""

    def synchronously(outgoing: OutgoingRequest, settings: ClientSettings) -> HttpResponse | TransportFailure:
        transport = SyncTransport(settings)
        try:
            return transport.send(outgoing)
        finally:
            transport.close()

    def asynchronously(outgoing: OutgoingRequest, settings: ClientSettings) -> HttpResponse | TransportFailure:
        async def once() -> HttpResponse | TransportFailure:
            transport = AsyncTransport(settings)
            try:
                return await transport.send(outgoing)
            finally:
                await transport.aclose()

        return asyncio.run(once())

    return synchronously if request.param == "sync" else asynchronously


@pytest.fixture
def no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a new connection be used again at once."""
    monkeypatch.setattr(connections, "REST", 0.0)
