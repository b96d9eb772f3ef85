"""Sends requests. The only module that uses httpx: none of its types or errors leave this module."""

from __future__ import annotations

import errno
import functools
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from urllib.request import getproxies

import httpx
import msgspec.structs

from cpaas_provider.api.errors import CpaasConfigurationError
from cpaas_provider.api.http.body import BodyReader
from cpaas_provider.api.http.connections import ConnectionPool, ExchangeError, ExchangeTimeoutError
from cpaas_provider.api.http.loop_thread import ClosedError, LoopThread
from cpaas_provider.api.http.response_head import joined, value_of
from cpaas_provider.api.http.routes import Proxy, ProxyError, Server
from cpaas_provider.api.http.tls import ClientCertificate, alert_failure, find_client_certificate, prepare_context
from cpaas_provider.api.http.wire import HttpResponse, OutgoingRequest, TransportFailure
from cpaas_provider.api.settings import ClientSettings

_PROXY_SCHEMES = frozenset({"http", "https", "socks5", "socks5h"})
_SOCKS_PORT = 1080
_WITH_A_BODY = frozenset({"POST", "PUT", "PATCH"})

_DEFAULT_PORTS = {"http": 80, "https": 443}


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
    """Sends requests concurrently, over connections of our own, directly or through a proxy.

    httpx's connections take several times the CPU, and slow down steeply with more requests in flight
    (encode/httpx#3215). And what one parser refuses, another may accept: both ways have the same.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        service = _server(
            _parse(settings.base_url, "The base URL"),
            lambda: _shared_context(settings.verify, find_client_certificate(settings)),
        )
        proxy = _find_proxy(settings)
        self._pool = ConnectionPool(
            service,
            proxy,
            connect_timeout=settings.connect_timeout,
            timeout=settings.timeout,
            keepalive_expiry=settings.keepalive_expiry,
        )
        self._writer = _RequestWriter(proxy if proxy is not None and proxy.forwards_to(service) else None)

    async def send(self, request: OutgoingRequest) -> HttpResponse | TransportFailure:
        """Send a request and return its response, or why none arrived."""
        data = self._writer.as_bytes(request)
        try:
            connection = await self._pool.acquire()
        except OSError as error:
            return _connect_failure(error)
        body: BodyReader | None = None
        try:
            status, headers = await connection.exchange(data)
            body = BodyReader(self._settings, joined(headers, b"content-encoding"))
            async for chunk in connection.body():
                if not body.add(chunk):
                    break
        except (ExchangeError, OSError) as error:
            if body is None:
                return _failure(error)
            is_late = isinstance(error, ExchangeTimeoutError)
            body.body_error = "the rest did not arrive in time" if is_late else "the connection broke"
        finally:
            self._pool.release(connection)
        return body.as_response(status, value_of(headers, b"retry-after"), value_of(headers, b"date"))

    async def aclose(self) -> None:
        """Close all connections."""
        await self._pool.aclose()


# httpx takes as long to parse a URL as for the rest of a request, and most requests have one of a few URLs.
_url = functools.lru_cache(maxsize=32)(httpx.URL)


class _RequestWriter:
    """Writes requests as bytes for the wire. The messages of a series share their headers, which are written once.

    :param proxy: the proxy that forwards the requests; ``None`` if they go to the service itself
    """

    def __init__(self, proxy: Proxy | None) -> None:
        self._proxy = proxy
        self._written: tuple[str, str, Mapping[str, str] | None] = "", "", None
        self._head = b""

    def as_bytes(self, request: OutgoingRequest) -> bytes:
        """Return a request as bytes."""
        method, url, headers = self._written
        # To compare the headers themselves would take as long as to write them.
        if request.headers is not headers or request.url != url or request.method != method:
            self._head = _head(request, self._proxy)
            self._written = request.method, request.url, request.headers
        body = request.body or b""
        if body or request.method in _WITH_A_BODY:
            return b"%sContent-Length: %d\r\n\r\n%s" % (self._head, len(body), body)
        return self._head + b"\r\n"


def _head(request: OutgoingRequest, proxy: Proxy | None) -> bytes:
    """Return the head of a request without ``Content-Length`` and the empty line."""
    url = _url(request.url)
    target = url.raw_path.decode("ascii")
    headers = {"Host": url.netloc.decode("ascii"), **request.headers}
    headers.pop("Content-Length", None)
    if proxy is not None:
        target = f"{url.scheme}://{headers['Host']}{target}"
        headers |= proxy.authorization
    lines = [f"{name}: {value}" for name, value in headers.items()]
    if any("\r" in line or "\n" in line for line in lines):
        raise ValueError("A header must not contain a line break.")
    return "\r\n".join([f"{request.method} {target} HTTP/1.1", *lines, ""]).encode("ascii")


def _parse(url: str, what: str) -> httpx.URL:
    """Parse a URL and check its host. Otherwise the resolver would fail on it later, with another error."""
    try:
        parsed = httpx.URL(url)
        parsed.host.encode("idna")
    except (httpx.InvalidURL, UnicodeError):
        raise CpaasConfigurationError(f"{what} does not name a valid host.") from None
    return parsed


def _server(url: httpx.URL, new_context: Callable[[], ssl.SSLContext]) -> Server:
    context = new_context() if url.scheme == "https" else None
    return Server(url.raw_host.decode("ascii"), url.port or _DEFAULT_PORTS.get(url.scheme, _SOCKS_PORT), context)


def _find_proxy(settings: ClientSettings) -> Proxy | None:
    """Return the proxy of the settings, else that of the environment."""
    if settings.proxy_url is not None:
        return _proxy(_parse(settings.proxy_url, "proxy"))
    # A request to this machine may be plain http, so it must not go out to a proxy of the environment.
    if settings.is_local:
        return None
    found, service = getproxies(), httpx.URL(settings.base_url)
    address = found.get(service.scheme) or found.get("all")
    if not address or _is_exempt(service, found.get("no", "")):
        return None
    return _proxy(_parse(address if "://" in address else f"http://{address}", "The proxy of the environment"))


def _proxy(url: httpx.URL) -> Proxy:
    if url.scheme not in _PROXY_SCHEMES or not url.host:
        raise CpaasConfigurationError("The proxy, as an option or in the environment, cannot be used.")
    user = (url.username, url.password) if url.username or url.password else None
    return Proxy(_server(url, _proxy_context), url.scheme.startswith("socks"), user)


def _is_exempt(service: httpx.URL, exempt: str) -> bool:
    """Tell whether ``NO_PROXY`` names the service, by the rules of httpx, which are those of curl."""
    port = service.port or _DEFAULT_PORTS[service.scheme]
    for entry in filter(None, map(str.strip, exempt.lower().split(","))):
        scheme, _, place = entry.rpartition("://")
        name, _, number = place.rpartition(":") if place.count(":") == 1 or "]:" in place else (place, "", "")
        name = name.strip("[]").removeprefix("*")
        if scheme not in {"", "all", service.scheme} or number not in {"", str(port)}:
            continue
        if not name or service.host == name or service.host.endswith(name if name[0] == "." else f".{name}"):
            return True
    return False


def _proxy_context() -> ssl.SSLContext:
    """Return the context for proxies that speak TLS. They may have a certificate of the machine's own authorities."""
    context = httpx.create_ssl_context()
    context.load_default_certs()
    return context


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


def _failure(error: Exception) -> TransportFailure:
    """Return the kind of a failure after which bytes of the request may have left."""
    if isinstance(error, ExchangeTimeoutError):
        return TransportFailure.RESPONSE_TIMEOUT
    return _find_alert(error) or TransportFailure.CONNECTION_LOST


def _find_alert(error: BaseException) -> TransportFailure | None:
    return next(filter(None, map(alert_failure, _causes(error))), None)


_CONNECT_FAILURES: tuple[tuple[type[BaseException], TransportFailure], ...] = (
    (ssl.SSLError, TransportFailure.TLS),
    (socket.gaierror, TransportFailure.DNS),
    (ConnectionRefusedError, TransportFailure.REFUSED),
    (ProxyError, TransportFailure.PROXY),
    (TimeoutError, TransportFailure.CONNECT_TIMEOUT),
)


def _connect_failure(error: BaseException) -> TransportFailure:
    """Return the kind of a failure before any byte of the request has left."""
    if (alert := _find_alert(error)) is not None:
        return msgspec.structs.replace(alert, may_have_left=False, unread_by_standard=False)
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
