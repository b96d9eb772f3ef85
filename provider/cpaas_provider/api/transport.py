"""Puts requests on the wire. The only module that knows httpx; none of its types or errors leave here."""

from __future__ import annotations

import functools
import socket
import ssl
import time
from collections.abc import Iterator
from typing import Any

import httpx

from cpaas_provider.api.errors import CpaasConfigurationError
from cpaas_provider.api.exchange import Answer, Failure, OutgoingRequest
from cpaas_provider.api.settings import ClientSettings

# One asynchronous httpx client slows down steeply with more requests than this in flight (encode/httpx#3215).
_IN_FLIGHT_PER_CLIENT = 8


class SyncTransport:
    """Sends one request at a time per calling thread."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._client = httpx.Client(**_client_options(settings, settings.max_concurrency))

    def send(self, request: OutgoingRequest) -> Answer | Failure:
        """Send a request and return its answer, or why none came."""
        try:
            with self._client.stream(
                request.method, request.url, headers=dict(request.headers), content=request.body
            ) as response:
                body = _Body(self._settings)
                try:
                    for chunk in response.iter_bytes():
                        if not body.takes(chunk):
                            break
                except httpx.HTTPError as error:
                    body.flaw = _failure(error).reason
                return body.answer(response)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return _failure(error)

    def close(self) -> None:
        """Close all connections."""
        self._client.close()


class AsyncTransport:
    """Sends requests concurrently, spread over as many httpx clients as that takes."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        count = -(-settings.max_concurrency // _IN_FLIGHT_PER_CLIENT)
        options = _client_options(settings, _IN_FLIGHT_PER_CLIENT)
        self._clients = [httpx.AsyncClient(**options) for _ in range(count)]
        self._in_flight = [0] * count

    async def send(self, request: OutgoingRequest) -> Answer | Failure:
        """Send a request and return its answer, or why none came."""
        least_busy = min(range(len(self._clients)), key=self._in_flight.__getitem__)
        self._in_flight[least_busy] += 1
        try:
            async with self._clients[least_busy].stream(
                request.method, request.url, headers=dict(request.headers), content=request.body
            ) as response:
                body = _Body(self._settings)
                try:
                    async for chunk in response.aiter_bytes():
                        if not body.takes(chunk):
                            break
                except httpx.HTTPError as error:
                    body.flaw = _failure(error).reason
                return body.answer(response)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return _failure(error)
        finally:
            self._in_flight[least_busy] -= 1

    async def aclose(self) -> None:
        """Close all connections."""
        for client in self._clients:
            await client.aclose()


class _Body:
    """Collects a body within bounds of size and time."""

    def __init__(self, settings: ClientSettings) -> None:
        self._room = settings.max_answer_bytes
        self._until = time.monotonic() + settings.timeout
        self._chunks: list[bytes] = []
        self.flaw: str | None = None

    def takes(self, chunk: bytes) -> bool:
        self._chunks.append(chunk[: self._room])
        self._room -= len(chunk)
        if self._room < 0:
            self.flaw = "it is larger than max_answer_bytes"
        elif time.monotonic() > self._until:
            self.flaw = "it took longer than timeout"
        return self.flaw is None

    def answer(self, response: httpx.Response) -> Answer:
        return Answer(response.status_code, response.headers.get("Retry-After"), b"".join(self._chunks), self.flaw)


def _client_options(settings: ClientSettings, connections: int) -> dict[str, Any]:
    return {
        "verify": _verification(settings.verify) if settings.base_url.startswith("https:") else False,
        "timeout": httpx.Timeout(settings.timeout, connect=settings.connect_timeout),
        "limits": httpx.Limits(
            max_connections=connections,
            max_keepalive_connections=connections,
            keepalive_expiry=settings.keepalive_expiry,
        ),
        "proxy": settings.proxy_url,
        "follow_redirects": False,
    }


@functools.lru_cache(maxsize=8)
def _verification(verify: bool | str) -> ssl.SSLContext | bool:
    """Return a context for clients to share: making one reads the whole CA bundle (tens of milliseconds)."""
    if verify is False:
        return False
    if verify is True:
        return httpx.create_ssl_context()
    try:
        return ssl.create_default_context(cafile=verify)
    except (OSError, ssl.SSLError):
        raise CpaasConfigurationError("verify names a CA bundle that cannot be read.") from None


def _failure(error: httpx.HTTPError | httpx.InvalidURL) -> Failure:
    """Tell whether bytes may have left; whatever is not surely before that, may have."""
    if isinstance(error, httpx.ConnectTimeout):
        return Failure.CONNECT_TIMEOUT
    if isinstance(error, httpx.ConnectError):
        return _connect_failure(error)
    if isinstance(error, httpx.ProxyError):
        return Failure.PROXY
    if isinstance(error, (httpx.PoolTimeout, httpx.UnsupportedProtocol, httpx.InvalidURL)):
        return Failure.CONNECT
    if isinstance(error, httpx.TimeoutException):
        return Failure.ANSWER_TIMEOUT
    return Failure.CUT


_CONNECT_FAILURES: tuple[tuple[type[BaseException], Failure], ...] = (
    (ssl.SSLError, Failure.TLS),
    (socket.gaierror, Failure.DNS),
    (ConnectionRefusedError, Failure.REFUSED),
)


def _connect_failure(error: BaseException) -> Failure:
    for cause in _causes(error):
        for kind, failure in _CONNECT_FAILURES:
            if isinstance(cause, kind):
                return failure
    return Failure.CONNECT


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        if isinstance(error, BaseExceptionGroup):
            yield from error.exceptions
        error = error.__cause__ or error.__context__
