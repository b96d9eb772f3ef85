"""Puts requests on the wire. The only module that knows httpx; none of its types or errors leave here."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import logging
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import httpx

from cpaas_provider.api.errors import CpaasConfigurationError
from cpaas_provider.api.settings import ClientSettings
from cpaas_provider.api.wire import Answer, Failure, OutgoingRequest

# One asynchronous httpx client slows down steeply with more requests in flight (encode/httpx#3215); even of few
# connections it looks at each that is idle before it takes one, which costs most where requests come in bursts.
_IN_FLIGHT_PER_CLIENT = 1


C = TypeVar("C", httpx.Client, httpx.AsyncClient)

_sending = contextvars.ContextVar("sending", default=False)


@contextlib.contextmanager
def _unlogged() -> Iterator[None]:
    """Keep httpx from logging the URL, whose query may hold a phone number."""
    token = _sending.set(True)
    try:
        yield
    finally:
        _sending.reset(token)


logging.getLogger("httpx").addFilter(lambda _: not _sending.get())


class SyncTransport:
    """Sends one request at a time per calling thread."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._client = _made(httpx.Client, settings, settings.max_concurrency)

    def send(self, request: OutgoingRequest) -> Answer | Failure:
        """Send a request and return its answer, or why none came."""
        try:
            with (
                _unlogged(),
                self._client.stream(
                    request.method, request.url, headers=dict(request.headers), content=request.body
                ) as response,
            ):
                body = _Body(self._settings)
                try:
                    for chunk in response.iter_bytes():
                        if not body.takes(chunk):
                            break
                except httpx.HTTPError as error:
                    body.flaw = _flaw(error)
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
        self._clients = [self._made() for _ in range(count)]
        self._in_flight = [0] * count

    async def send(self, request: OutgoingRequest) -> Answer | Failure:
        """Send a request and return its answer, or why none came."""
        least_busy = min(range(len(self._clients)), key=self._in_flight.__getitem__)
        self._in_flight[least_busy] += 1
        try:
            with _unlogged():
                async with self._clients[least_busy].stream(
                    request.method, request.url, headers=dict(request.headers), content=request.body
                ) as response:
                    body = _Body(self._settings)
                    try:
                        async for chunk in response.aiter_bytes():
                            if not body.takes(chunk):
                                break
                    except httpx.HTTPError as error:
                        body.flaw = _flaw(error)
                    return body.answer(response)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return _failure(error)
        except BaseException:
            await self._replace(least_busy)
            raise
        finally:
            self._in_flight[least_busy] -= 1

    async def aclose(self) -> None:
        """Close all connections."""
        for client in self._clients:
            await client.aclose()

    def _made(self) -> httpx.AsyncClient:
        return _made(httpx.AsyncClient, self._settings, _IN_FLIGHT_PER_CLIENT)

    async def _replace(self, index: int) -> None:
        """Use another httpx client in place of one whose request was cancelled.

        The pool beneath it loses a connection when a request is cancelled before it connects or while its answer is
        closed: it counts as busy for good, and every later request waits for it until its time is over.
        """
        cancelled, self._clients[index] = self._clients[index], self._made()
        await cancelled.aclose()


class _Body:
    """Collects a body within bounds of size and time."""

    def __init__(self, settings: ClientSettings) -> None:
        self._room = settings.max_response_bytes
        self._until = time.monotonic() + settings.timeout
        self._chunks: list[bytes] = []
        self.flaw: str | None = None

    def takes(self, chunk: bytes) -> bool:
        self._chunks.append(chunk[: self._room])
        self._room -= len(chunk)
        if self._room < 0:
            self.flaw = "it is larger than max_response_bytes"
        elif time.monotonic() > self._until:
            self.flaw = "it took longer than timeout"
        return self.flaw is None

    def answer(self, response: httpx.Response) -> Answer:
        return Answer(response.status_code, response.headers.get("Retry-After"), b"".join(self._chunks), self.flaw)


def _made(kind: Callable[..., C], settings: ClientSettings, connections: int) -> C:
    _check_host(settings.base_url, "The base URL")
    if settings.proxy is not None:
        _check_host(settings.proxy, "proxy")
    try:
        return kind(**_client_options(settings, connections))
    except ImportError:
        raise CpaasConfigurationError("A SOCKS proxy needs one more package: pip install 'httpx[socks]'.") from None
    except (httpx.InvalidURL, ValueError):
        raise CpaasConfigurationError("The proxy, as an option or in the environment, cannot be used.") from None


def _check_host(url: str, what: str) -> None:
    """Refuse now what the resolver would stumble over later, with errors that are none of the network's."""
    try:
        httpx.URL(url).host.encode("idna")
    except (httpx.InvalidURL, UnicodeError):
        raise CpaasConfigurationError(f"{what} does not name a valid host.") from None


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
        # A proxy of the environment would carry away what plain http may only show to this machine.
        "trust_env": not settings.is_local,
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


def _flaw(error: httpx.HTTPError) -> str:
    if isinstance(error, httpx.TimeoutException):
        return "the rest did not arrive in time"
    if isinstance(error, httpx.DecodingError):
        return "its compression is damaged"
    return "the connection broke"


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
