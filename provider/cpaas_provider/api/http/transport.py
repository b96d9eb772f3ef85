"""Sends requests. The only module that uses httpx: none of its types or errors leave this module."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import dataclasses
import errno
import functools
import logging
import os
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from urllib.request import getproxies

import httpx

from cpaas_provider.api.errors import CpaasConfigurationError
from cpaas_provider.api.http.body import BodyReader
from cpaas_provider.api.http.connections import ConnectionPool, ExchangeError, ExchangeTimeoutError, Headers
from cpaas_provider.api.http.loop_thread import ClosedError, LoopThread
from cpaas_provider.api.http.tls import ClientCertificate, alert_failure, find_client_certificate, prepare_context
from cpaas_provider.api.http.wire import HttpResponse, OutgoingRequest, TransportFailure
from cpaas_provider.api.settings import ClientSettings

_WITH_A_BODY = frozenset({"POST", "PUT", "PATCH"})

_is_sending = contextvars.ContextVar("sending", default=False)


@contextlib.contextmanager
def _unlogged() -> Iterator[None]:
    """Keep httpx from logging the URL, whose query may hold a phone number."""
    token = _is_sending.set(True)
    try:
        yield
    finally:
        _is_sending.reset(token)


logging.getLogger("httpx").addFilter(lambda _: not _is_sending.get())


class SyncTransport:
    """Sends requests of blocking threads by an ``AsyncTransport`` on an event loop of its own."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._transport = AsyncTransport(settings)
        self._loop = LoopThread()
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._closed = False

    def send(self, request: OutgoingRequest) -> HttpResponse | TransportFailure:
        """Send a request and return its response, or why none arrived."""
        if self._closed:
            raise RuntimeError("The client is closed.")
        try:
            return self._loop.run(self._transport_of_process().send(request))
        except ClosedError:
            return TransportFailure.CONNECTION_LOST

    def close(self) -> None:
        """Close all connections. A request in flight counts as lost."""
        self._closed = True
        self._loop.close(self._transport.aclose())

    def _transport_of_process(self) -> AsyncTransport:
        """Return the transport of this process. A forked process must not use its parent's connections."""
        with self._lock:
            if self._process != os.getpid():
                self._transport, self._process = AsyncTransport(self._settings), os.getpid()
            return self._transport


class AsyncTransport:
    """Sends requests concurrently."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._connections = _ProxyConnections(settings) if _may_use_proxy(settings) else _DirectConnections(settings)

    async def send(self, request: OutgoingRequest) -> HttpResponse | TransportFailure:
        """Send a request and return its response, or why none arrived."""
        incoming = _Incoming(self._settings)
        try:
            await self._connections.exchange(request, incoming)
        except (httpx.HTTPError, httpx.InvalidURL, ExchangeError, TimeoutError, ssl.SSLError) as error:
            if incoming.body is None:
                return _failure(error)
            incoming.body.body_error = _body_error(error)
        return incoming.as_response()

    async def aclose(self) -> None:
        """Close all connections."""
        await self._connections.aclose()


class _Incoming:
    """A response as it arrives. ``body`` is ``None`` until its head has arrived."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self.body: BodyReader | None = None

    async def read(self, status: int, headers: Mapping[str, str], chunks: AsyncIterator[bytes]) -> None:
        """Read the body, as far as its bounds allow.

        :param headers: the headers, by their names in lower case
        :param chunks: the chunks of the body, still compressed, as they arrive
        """
        self._status, self._headers = status, headers
        self.body = BodyReader(self._settings, headers.get("content-encoding"))
        async for chunk in chunks:
            if not self.body.add(chunk):
                return

    def as_response(self) -> HttpResponse:
        """Return the response with what was read of its body."""
        if self.body is None:
            raise RuntimeError("no response has arrived")
        return self.body.as_response(self._status, self._headers.get("retry-after"), self._headers.get("date"))


# httpx takes as long to parse a URL as for the rest of a request, and most requests have one of a few URLs.
_url = functools.lru_cache(maxsize=32)(httpx.URL)


class _DirectConnections:
    """Sends requests to the service over the connections of ``ConnectionPool``.

    httpx's own connections take several times the CPU, and slow down steeply with more requests in flight
    (encode/httpx#3215). Its requests and headers take a sixth of the CPU of a campaign.
    """

    def __init__(self, settings: ClientSettings) -> None:
        _check_host(settings.base_url, "The base URL")
        url = httpx.URL(settings.base_url)
        secure = url.scheme == "https"
        self._pool = ConnectionPool(
            url.raw_host.decode(),
            url.port or (443 if secure else 80),
            _tls_context(settings) if secure else None,
            connect_timeout=settings.connect_timeout,
            timeout=settings.timeout,
            keepalive_expiry=settings.keepalive_expiry,
        )
        self._writer = _RequestWriter()

    async def exchange(self, request: OutgoingRequest, incoming: _Incoming) -> None:
        data = self._writer.as_bytes(request)
        try:
            connection = await self._pool.acquire()
        except TimeoutError as error:
            raise httpx.ConnectTimeout("") from error
        except OSError as error:
            raise httpx.ConnectError("") from error
        try:
            status, headers = await connection.exchange(data)
            await incoming.read(status, _as_mapping(headers), connection.body())
        finally:
            self._pool.release(connection)

    async def aclose(self) -> None:
        await self._pool.aclose()


class _RequestWriter:
    """Writes requests as bytes for the wire. The messages of a series share their headers, which are written once."""

    def __init__(self) -> None:
        self._written: tuple[str, str, Mapping[str, str]] | None = None
        self._head = b""

    def as_bytes(self, request: OutgoingRequest) -> bytes:
        """Return a request as bytes."""
        if not self._has_head_of(request):
            self._head = _head(request)
            self._written = request.method, request.url, request.headers
        body = request.body or b""
        if body or request.method in _WITH_A_BODY:
            return b"%sContent-Length: %d\r\n\r\n%s" % (self._head, len(body), body)
        return self._head + b"\r\n"

    def _has_head_of(self, request: OutgoingRequest) -> bool:
        if self._written is None:
            return False
        method, url, headers = self._written
        # To compare the headers themselves would take as long as to write them.
        return request.headers is headers and request.url == url and request.method == method


def _head(request: OutgoingRequest) -> bytes:
    """Return the head of a request without ``Content-Length`` and the empty line."""
    url = _url(request.url)
    headers = {"Host": url.netloc.decode("ascii"), **request.headers}
    headers.pop("Content-Length", None)
    lines = [f"{name}: {value}" for name, value in headers.items()]
    if any("\r" in line or "\n" in line for line in lines):
        raise httpx.LocalProtocolError("A header must not contain a line break.")
    return "\r\n".join([f"{request.method} {url.raw_path.decode('ascii')} HTTP/1.1", *lines, ""]).encode("ascii")


def _as_mapping(headers: Headers) -> dict[str, str]:
    """Return headers by their names in lower case. Values of the same name are joined."""
    found: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


class _ProxyConnections:
    """Sends requests by httpx's clients, which apply the proxy. Each client has one request in flight at a time.

    A client with several requests in flight slows down steeply (encode/httpx#3215).
    """

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._timeout = httpx.Timeout(settings.timeout, connect=settings.connect_timeout).as_dict()
        # Only once: the files of the client certificate may change or be away later.
        self._context = _tls_context(settings) if settings.base_url.startswith("https:") else None
        self._clients = {_new_client(settings, self._context)}
        self._idle = list(self._clients)

    async def exchange(self, request: OutgoingRequest, incoming: _Incoming) -> None:
        outgoing = httpx.Request(
            request.method,
            request.url,
            headers=dict(request.headers),
            content=request.body,
            extensions={"timeout": self._timeout},
        )
        client = self._idle.pop() if self._idle else _new_client(self._settings, self._context)
        self._clients.add(client)
        try:
            # httpx limits the wait for each byte only, and a head may arrive byte by byte.
            async with asyncio.timeout(2 * self._settings.connect_timeout + self._settings.timeout):
                with _unlogged():
                    response = await client.send(outgoing, stream=True)
            async with contextlib.aclosing(response):
                headers = {name.lower(): value for name, value in response.headers.items()}
                await incoming.read(response.status_code, headers, self._chunks(response))
        except BaseException:
            # If a request is cancelled while it connects or while its response is closed, httpx's pool counts the
            # connection as busy for good. Every later request of that client would wait for it and time out.
            self._clients.discard(client)
            await client.aclose()
            raise
        self._idle.append(client)

    async def _chunks(self, response: httpx.Response) -> AsyncIterator[bytes]:
        chunks = response.aiter_raw()
        while True:
            # Bytes that are no part of the body, such as trailers, do not extend the wait.
            async with asyncio.timeout(self._settings.timeout):
                chunk = await anext(chunks, None)
            if chunk is None:
                return
            yield chunk

    async def aclose(self) -> None:
        while self._clients:
            await self._clients.pop().aclose()


def _may_use_proxy(settings: ClientSettings) -> bool:
    """Tell whether a proxy may apply to a request. httpx then decides by URL."""
    if settings.proxy is not None:
        return True
    # A request to this machine may be plain http, so it must not go out to a proxy of the environment.
    return not settings.is_local and not {"http", "https", "all"}.isdisjoint(getproxies())


def _new_client(settings: ClientSettings, context: ssl.SSLContext | None) -> httpx.AsyncClient:
    _check_host(settings.base_url, "The base URL")
    if settings.proxy is not None:
        _check_host(settings.proxy, "proxy")
    try:
        return httpx.AsyncClient(
            verify=False if context is None else context,
            limits=httpx.Limits(
                max_connections=1, max_keepalive_connections=1, keepalive_expiry=settings.keepalive_expiry
            ),
            proxy=settings.proxy_url,
            follow_redirects=False,
            # As in _may_use_proxy.
            trust_env=not settings.is_local,
        )
    except ImportError:
        raise CpaasConfigurationError("A SOCKS proxy needs one more package: pip install 'httpx[socks]'.") from None
    except (httpx.InvalidURL, ValueError):
        raise CpaasConfigurationError("The proxy, as an option or in the environment, cannot be used.") from None


def _check_host(url: str, what: str) -> None:
    """Check a host name. Otherwise the resolver would fail on it later with an error that is not an ``OSError``."""
    try:
        httpx.URL(url).host.encode("idna")
    except (httpx.InvalidURL, UnicodeError):
        raise CpaasConfigurationError(f"{what} does not name a valid host.") from None


def _tls_context(settings: ClientSettings) -> ssl.SSLContext:
    return _shared_context(settings.verify, find_client_certificate(settings))


@functools.lru_cache(maxsize=8)
def _shared_context(verify: bool | str, certificate: ClientCertificate | None) -> ssl.SSLContext:
    """Return a context that clients share, because making one reads the whole CA bundle (tens of milliseconds)."""
    try:
        context = (
            httpx.create_ssl_context(verify=verify)
            if isinstance(verify, bool)
            else ssl.create_default_context(cafile=verify)
        )
    except (OSError, ssl.SSLError):
        raise CpaasConfigurationError("verify names a CA bundle that cannot be read.") from None
    context.set_alpn_protocols(["http/1.1"])
    prepare_context(context, certificate)
    return context


_TIMEOUTS = (httpx.TimeoutException, ExchangeTimeoutError, TimeoutError)


def _failure(error: Exception) -> TransportFailure:
    """Return the kind of failure. Unless the error proves that no byte of the request left, bytes may have left."""
    if isinstance(error, httpx.ConnectTimeout):
        return TransportFailure.CONNECT_TIMEOUT
    if isinstance(error, httpx.ConnectError):
        return _connect_failure(error)
    if isinstance(error, httpx.ProxyError):
        return TransportFailure.PROXY
    if isinstance(error, (httpx.PoolTimeout, httpx.UnsupportedProtocol, httpx.InvalidURL)):
        return TransportFailure.CONNECT
    if isinstance(error, _TIMEOUTS):
        return TransportFailure.RESPONSE_TIMEOUT
    return _find_alert(error) or TransportFailure.CONNECTION_LOST


def _find_alert(error: BaseException) -> TransportFailure | None:
    return next(filter(None, map(alert_failure, _causes(error))), None)


def _body_error(error: Exception) -> str:
    return "the rest did not arrive in time" if isinstance(error, _TIMEOUTS) else "the connection broke"


_CONNECT_FAILURES: tuple[tuple[type[BaseException], TransportFailure], ...] = (
    (ssl.SSLError, TransportFailure.TLS),
    (socket.gaierror, TransportFailure.DNS),
    (ConnectionRefusedError, TransportFailure.REFUSED),
)


def _connect_failure(error: BaseException) -> TransportFailure:
    if (alert := _find_alert(error)) is not None:
        return dataclasses.replace(alert, may_have_left=False, unread_by_standard=False)
    for cause in _causes(error):
        for kind, failure in _CONNECT_FAILURES:
            if isinstance(cause, kind):
                return failure
        # asyncio puts the errors of several addresses into the text of one error.
        if f"[Errno {errno.ECONNREFUSED}]" in str(cause):
            return TransportFailure.REFUSED
    return TransportFailure.CONNECT


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        if isinstance(error, BaseExceptionGroup):
            yield from error.exceptions
        error = error.__cause__ or error.__context__
