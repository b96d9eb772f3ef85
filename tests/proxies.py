"""A proxy that opens tunnels (CONNECT, SOCKS 5) and forwards plain http, as real ones do: without a look at answers."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit


class ProxyServer:
    """A proxy on the loopback address.

    :param tls: speaks TLS to its clients, if given
    :param user: the user name and the password that a SOCKS client must show
    """

    def __init__(self, tls: ssl.SSLContext | None = None, user: tuple[bytes, bytes] | None = None) -> None:
        self._tls, self._user = tls, user
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self.asked: list[bytes] = []
        """The first line of each request for a tunnel or a resource, or the address that a SOCKS client named."""
        self.addresses: dict[str, tuple[str, int]] = {}
        """Where host names lead to that only this proxy knows."""
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                client.settimeout(10)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError, ValueError, IndexError):
            if self._tls is not None:
                client = self._tls.wrap_socket(client, server_side=True)
            with client:
                first = _read(client, 1)
                if first == b"\x05":
                    self._serve_socks(client)
                else:
                    self._serve_http(client, first)

    def _serve_http(self, client: socket.socket, received: bytes) -> None:
        while b"\r\n\r\n" not in received:
            received += client.recv(65536) or _end()
        line, _, rest = received.partition(b"\r\n")
        self.asked.append(line)
        method, target, version = line.split(b" ")
        if method == b"CONNECT":
            host, _, port = target.decode().rpartition(":")
            self._carry(client, host.strip("[]"), int(port), b"", b"HTTP/1.1 200 Connected\r\n\r\n")
        else:
            url = urlsplit(target.decode())
            path = target.decode().partition(url.netloc)[2]
            outgoing = b"%b %b %b\r\n%b" % (method, path.encode(), version, rest)
            self._carry(client, url.hostname or "", url.port or 80, outgoing, b"")

    def _serve_socks(self, client: socket.socket) -> None:
        methods = _read(client, _read(client, 1)[0])
        method = b"\x00" if self._user is None else b"\x02"
        client.sendall(b"\x05" + (method if method in methods else b"\xff"))
        if self._user is not None:
            _read(client, 1)
            shown = tuple(_read(client, _read(client, 1)[0]) for _ in range(2))
            client.sendall(b"\x01" + (b"\x00" if shown == self._user else b"\x01"))
            if shown != self._user:
                return
        kind = _read(client, 4)[3]
        address = _read(client, _read(client, 1)[0] if kind == 3 else 4 if kind == 1 else 16)
        self.asked.append(address)
        host = address.decode() if kind == 3 else socket.inet_ntop(socket.AF_INET if kind == 1 else 10, address)
        port = int.from_bytes(_read(client, 2), "big")
        self._carry(client, host, port, b"", b"\x05\x00\x00\x01" + bytes(6))

    def _carry(self, client: socket.socket, host: str, port: int, to_server: bytes, to_client: bytes) -> None:
        with socket.create_connection(self.addresses.get(host, (host, port)), timeout=10) as server:
            client.sendall(to_client)
            server.sendall(to_server)
            upstream = threading.Thread(target=_copy, args=(client, server), daemon=True)
            upstream.start()
            _copy(server, client)
            upstream.join()


def _end() -> bytes:
    raise EOFError


def _read(client: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        data += client.recv(count - len(data)) or _end()
    return data


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    # The end of TLS to a client cannot be told by halves.
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_RDWR if isinstance(target, ssl.SSLSocket) else socket.SHUT_WR)


@contextlib.contextmanager
def proxy_server(tls: ssl.SSLContext | None = None, user: tuple[bytes, bytes] | None = None) -> Iterator[ProxyServer]:
    """Run a proxy."""
    server = ProxyServer(tls, user)
    try:
        yield server
    finally:
        server.close()
