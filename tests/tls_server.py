"""A TLS server whose application counts the bytes it reads, and which can send any alert at any moment."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from http.client import HTTPResponse
from pathlib import Path
from typing import Self

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from tests.unit.api.loopback import http

Script = Callable[["Conversation"], None]
_ALERT = b"\x15"
_FATAL = 2
_RANDOM = slice(11, 43)
"""Where a hello message has its random bytes."""


class Conversation:
    """One connection to the server. Its records are kept apart from the socket, so that an alert can be put in."""

    def __init__(self, connection: socket.socket, context: ssl.SSLContext, keylog: Path) -> None:
        self._socket, self._keylog = connection, keylog
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._hellos: list[bytes] = []
        self._sent_records = 0
        self.bytes_read = 0

    def shake_hands(self) -> None:
        """Do the handshake. If it fails, OpenSSL's alert goes out."""
        try:
            while True:
                try:
                    self.tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    self._flush()
                    self._receive()
        finally:
            self._flush(is_counted=True)

    def read_request(self) -> bytes:
        """Read a request to the end of its body, and return it."""
        request = b""
        while b"\r\n\r\n" not in request:
            request += self._read()
        head, _, body = request.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
        while len(body) < length:
            body += self._read()
        return head + b"\r\n\r\n" + body

    def send(self, data: bytes) -> None:
        """Send bytes of a response."""
        self.tls.write(data)
        self._flush(is_counted=True)

    def send_alert(self, number: int) -> None:
        """Send a fatal alert, encrypted as the server itself would."""
        if self.tls.version() == "TLSv1.3":
            self._socket.sendall(self._alert_of_tls13(number))
        else:
            self._socket.sendall(self._alert_of_tls12(number))

    def send_close_notify(self) -> None:
        """End the connection in good order."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.unwrap()
        self._flush()

    def break_record(self) -> None:
        """Read a record that is not encrypted as it should be, so that OpenSSL sends an alert of its own."""
        self._incoming.write(b"\x17\x03\x03\x00\x40" + b"\0" * 64)
        with contextlib.suppress(ssl.SSLError):
            self.tls.read(1)
        self._flush()

    def wait_for_bytes(self) -> None:
        """Wait until something of the request has arrived, and leave it unread."""
        if not self._incoming.pending:
            self._socket.recv(1, socket.MSG_PEEK)

    def wait_for_end(self) -> None:
        """Read what the client still sends, so that nothing unread resets the connection."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
            while self._socket.recv(65536):
                pass

    def abort(self) -> None:
        """End the connection from another thread."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _read(self) -> bytes:
        while True:
            try:
                data = self.tls.read(65536)
            except ssl.SSLWantReadError:
                self._receive()
                continue
            if not data:
                raise EOFError
            self.bytes_read += len(data)
            return data

    def _receive(self) -> None:
        data = self._socket.recv(65536)
        if not data:
            raise EOFError
        self._hellos = self._hellos or [data]
        self._incoming.write(data)

    def _flush(self, *, is_counted: bool = False) -> None:
        data = self._outgoing.read()
        if data and len(self._hellos) == 1:
            self._hellos.append(data)
        self._socket.sendall(data)
        while is_counted and data:
            # The keys change with a record of this type.
            self._sent_records = 0 if data[0] == 0x14 else self._sent_records + 1
            data = data[5 + int.from_bytes(data[3:5], "big") :]

    def _secret(self, label: str) -> bytes:
        start = f"{label} {self._hellos[0][_RANDOM].hex()} "
        lines = self._keylog.read_text().splitlines()
        return next(bytes.fromhex(line.removeprefix(start)) for line in lines if line.startswith(start))

    def _alert_of_tls13(self, number: int) -> bytes:
        secret = self._secret("SERVER_TRAFFIC_SECRET_0")
        algorithm: hashes.HashAlgorithm = hashes.SHA384() if len(secret) == 48 else hashes.SHA256()

        def expand(label: bytes, length: int) -> bytes:
            info = struct.pack("!HB", length, len(label) + 6) + b"tls13 " + label + b"\0"
            return HKDFExpand(algorithm, length, info).derive(secret)

        key_length = 16 if self.tls.cipher()[0] == "TLS_AES_128_GCM_SHA256" else 32  # type: ignore[index]  # connected
        nonce = int.from_bytes(expand(b"iv", 12), "big") ^ self._sent_records
        head = b"\x17\x03\x03" + struct.pack("!H", 2 + 1 + 16)
        plain = bytes([_FATAL, number]) + _ALERT
        return head + AESGCM(expand(b"key", key_length)).encrypt(nonce.to_bytes(12, "big"), plain, head)

    def _alert_of_tls12(self, number: int) -> bytes:
        secret = self._secret("CLIENT_RANDOM")
        client_hello, server_hello = self._hellos
        seed = b"key expansion" + server_hello[_RANDOM] + client_hello[_RANDOM]
        block, state = b"", seed
        while len(block) < 40:
            state = hmac.digest(secret, state, hashlib.sha256)
            block += hmac.digest(secret, state + seed, hashlib.sha256)
        key, salt = block[16:32], block[36:40]
        sequence = struct.pack("!Q", self._sent_records)
        plain = bytes([_FATAL, number])
        associated = sequence + _ALERT + b"\x03\x03" + struct.pack("!H", len(plain))
        encrypted = sequence + AESGCM(key).encrypt(salt + sequence, plain, associated)
        return _ALERT + b"\x03\x03" + struct.pack("!H", len(encrypted)) + encrypted


def answer(conversation: Conversation) -> None:
    """Answer every request."""
    with contextlib.suppress(EOFError):
        while True:
            conversation.read_request()
            conversation.send(http(201, {"id": "sms-1"}))


def relay_to(url: str) -> Script:
    """Return a script that relays requests to a server of plain http."""
    host, _, port = url.removeprefix("http://").partition(":")

    def script(conversation: Conversation) -> None:
        while True:
            request = conversation.read_request()
            with socket.create_connection((host, int(port)), timeout=10) as server:
                server.sendall(request)
                response = HTTPResponse(server)
                response.begin()
                conversation.send(http(response.status, response.read()))

    return script


class TlsServer:
    """A server on the loopback address. ``bytes_read`` is what its application read over all connections."""

    def __init__(self, context: ssl.SSLContext, folder: Path, script: Script = answer) -> None:
        self._context, self._script = context, script
        self._keylog = folder / "keys"
        context.keylog_filename = str(self._keylog)
        self._conversations: list[Conversation] = []
        self.peers: list[str | None] = []
        """The names in the client certificates of the connections that were accepted, ``None`` for none."""
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._threads: list[threading.Thread] = []
        self.url = f"https://127.0.0.1:{self._listener.getsockname()[1]}"

    @property
    def connections(self) -> int:
        return len(self._conversations)

    @property
    def bytes_read(self) -> int:
        return sum(conversation.bytes_read for conversation in self._conversations)

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        for conversation in self._conversations:
            conversation.abort()
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                connection.settimeout(10)
                thread = threading.Thread(target=self._converse, args=(connection,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _converse(self, connection: socket.socket) -> None:
        conversation = Conversation(connection, self._context, self._keylog)
        self._conversations.append(conversation)
        with connection:
            with contextlib.suppress(OSError, EOFError):
                conversation.shake_hands()
                subject = dict(pair[0] for pair in (conversation.tls.getpeercert() or {}).get("subject", ()))
                self.peers.append(subject.get("commonName"))
                self._script(conversation)
            conversation.wait_for_end()
