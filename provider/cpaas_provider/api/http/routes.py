"""Opens connections to the service: directly, or through a tunnel of an HTTP or SOCKS proxy."""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import re
import socket
import ssl
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from cpaas_provider._common.records import PrivateRecord

P = TypeVar("P", bound=asyncio.Protocol)

_HAPPY_EYEBALLS_DELAY = 0.25
_MAX_REPLY_BYTES = 64 * 1024
"""The longest reply of a proxy to the request for a tunnel."""
_TUNNEL_OPENED = re.compile(rb"HTTP/1\.[01] 2[0-9]{2}[ \r]")
_SOCKS_VERSION, _SOCKS_CONNECT, _SOCKS_DOMAIN = 5, 1, 3
_SOCKS_ADDRESS_LENGTHS = {1: 4, 4: 16}
_SOCKS_NO_PASSWORD, _SOCKS_PASSWORD = 0, 2


class ProxyError(OSError):
    """The proxy did not open a tunnel, so no byte of the request left."""


class Server(NamedTuple):
    """What a connection leads to.

    :param context: verifies the server's certificate; ``None`` for a connection without TLS
    """

    host: str
    port: int
    context: ssl.SSLContext | None = None

    @property
    def netloc(self) -> str:
        """Host and port as in a URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Proxy(PrivateRecord, frozen=True):
    """A proxy on the way to the service.

    :param user: user name and password; ``None`` for a proxy that asks for none
    """

    server: Server
    is_socks: bool = False
    user: tuple[str, str] | None = None

    def forwards_to(self, service: Server) -> bool:
        """Tell whether it gets the requests themselves, which is so for plain http over an HTTP proxy."""
        return service.context is None and not self.is_socks

    @property
    def authorization(self) -> dict[str, str]:
        """The header by which an HTTP proxy knows its user."""
        if self.user is None:
            return {}
        return {"Proxy-Authorization": "Basic " + base64.b64encode(":".join(self.user).encode()).decode()}


async def connect(new_connection: Callable[[], P], service: Server, proxy: Proxy | None) -> P:
    """Open a connection to the service.

    :raises OSError: when that fails; no byte of a request has left
    """
    if proxy is None:
        return await _open(new_connection, service)
    if proxy.forwards_to(service):
        return await _open(new_connection, proxy.server)
    handshake = await _open(_TunnelHandshake, proxy.server)
    try:
        await (_ask_socks if proxy.is_socks else _ask_http)(handshake, service, proxy)
        connection, transport = new_connection(), handshake.transport
        if service.context is None:
            transport.set_protocol(connection)
        else:
            transport = await asyncio.get_running_loop().start_tls(
                transport, connection, service.context, server_hostname=service.host
            )
        connection.connection_made(transport)
    except BaseException as error:
        handshake.transport.abort()
        if isinstance(error, OSError) or not isinstance(error, Exception):
            raise
        # When TLS inside of TLS fails, some versions of asyncio raise a TypeError of their own.
        raise ConnectionAbortedError("no connection through the proxy") from error
    return connection


async def _open(new_connection: Callable[[], P], server: Server) -> P:
    loop = asyncio.get_running_loop()
    addresses = await loop.getaddrinfo(server.host, server.port, type=socket.SOCK_STREAM)
    several = len(addresses) != 1
    options: dict[str, Any] = {"ssl": server.context, "server_hostname": server.host if server.context else None}
    if several and isinstance(loop, asyncio.BaseEventLoop):
        # asyncio then also tries the next address; other loops, such as uvloop, try one address after the other.
        # Only with several addresses, because a cancelled attempt leaves its socket to the garbage collector.
        options["happy_eyeballs_delay"] = _HAPPY_EYEBALLS_DELAY
    host = server.host if several else str(addresses[0][4][0])
    _, connection = await loop.create_connection(new_connection, host, server.port, **options)
    return connection


class _TunnelHandshake(asyncio.Protocol):
    """The first bytes on a connection to a proxy, by which it opens a tunnel."""

    def __init__(self) -> None:
        self._received = b""
        self._is_over = False
        self._error: Exception | None = None
        self._changed = asyncio.Event()

    async def ask(self, request: bytes, length: Callable[[bytes], int]) -> bytes:
        """Send bytes and return the reply.

        :param length: returns the length of the reply that bytes begin with, 0 if more bytes are needed to tell
        :raises ProxyError: when the connection ends before the reply, or the reply is too long
        """
        self.transport.write(request)
        while not (end := length(self._received)) or len(self._received) < end:
            if self._is_over or len(self._received) > _MAX_REPLY_BYTES:
                raise ProxyError("the proxy gave no readable reply") from self._error
            self._changed.clear()
            await self._changed.wait()
        reply, self._received = self._received[:end], self._received[end:]
        return reply

    def check_that_tunnel_is_open(self) -> None:
        """Refuse a tunnel that has ended, or out of which bytes came before any went in.

        :raises ProxyError: if it is so
        """
        if self._is_over or self._received:
            raise ProxyError("the tunnel of the proxy cannot be used") from self._error

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._changed.set()

    def eof_received(self) -> None:
        self.connection_lost(None)

    def connection_lost(self, error: Exception | None) -> None:
        self._is_over, self._error = True, self._error or error
        self._changed.set()


async def _ask_http(handshake: _TunnelHandshake, service: Server, proxy: Proxy) -> None:
    headers = {"Host": service.netloc, **proxy.authorization}
    lines = [f"CONNECT {service.netloc} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    reply = await handshake.ask("\r\n".join(lines).encode("ascii"), _head_length)
    if not _TUNNEL_OPENED.match(reply):
        raise ProxyError("the proxy refused the tunnel")
    handshake.check_that_tunnel_is_open()


def _head_length(received: bytes) -> int:
    end = received.find(b"\r\n\r\n")
    return 0 if end < 0 else end + len(b"\r\n\r\n")


async def _ask_socks(handshake: _TunnelHandshake, service: Server, proxy: Proxy) -> None:
    """Ask for a tunnel by SOCKS 5 (RFC 1928, RFC 1929). The proxy resolves the service's name."""
    method = _SOCKS_NO_PASSWORD if proxy.user is None else _SOCKS_PASSWORD
    reply = await handshake.ask(bytes([_SOCKS_VERSION, 1, method]), lambda _: 2)
    if reply != bytes([_SOCKS_VERSION, method]):
        raise ProxyError("the proxy asks for another kind of login")
    if proxy.user is not None:
        login = b"".join(_with_length(text.encode()) for text in proxy.user)
        reply = await handshake.ask(b"\x01" + login, lambda _: 2)
        if reply[1] != 0:
            raise ProxyError("the proxy refused the login")
    target = _socks_address(service.host) + service.port.to_bytes(2, "big")
    reply = await handshake.ask(bytes([_SOCKS_VERSION, _SOCKS_CONNECT, 0]) + target, _socks_reply_length)
    if reply[:2] != bytes([_SOCKS_VERSION, 0]):
        raise ProxyError("the proxy refused the tunnel")
    handshake.check_that_tunnel_is_open()


def _socks_address(host: str) -> bytes:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return bytes([_SOCKS_DOMAIN]) + _with_length(host.encode("ascii"))
    return bytes([1 if address.version == 4 else 4]) + address.packed


def _with_length(text: bytes) -> bytes:
    if len(text) > 255:
        raise ProxyError("a name, user or password is too long for a SOCKS proxy")
    return bytes([len(text)]) + text


def _socks_reply_length(received: bytes) -> int:
    """Return the length of a reply: 4 bytes, the address that the proxy uses, and 2 bytes for its port."""
    if len(received) < 5:
        # A refusal may end after its second byte.
        return 2 if len(received) >= 2 and received[1] != 0 else 0
    kind = received[3]
    if received[1] != 0 or (kind != _SOCKS_DOMAIN and kind not in _SOCKS_ADDRESS_LENGTHS):
        return 2
    return 4 + (1 + received[4] if kind == _SOCKS_DOMAIN else _SOCKS_ADDRESS_LENGTHS[kind]) + 2
