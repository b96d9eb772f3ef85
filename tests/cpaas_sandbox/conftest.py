"""A real server on a free port for all tests of the sandbox; every test finds it freshly reset."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from cpaas_sandbox.core.context import Options
from cpaas_sandbox.server import bind, make_server, url_of
from tests.cpaas_sandbox.receiver import Receiver
from tests.waiting import until

KEY = "sk_test_unit"
ADA, BAYO = "2348030000001", "2348030000002"


class Harness:
    """A running sandbox and a customer's client."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.address = ("127.0.0.1", httpx.URL(url).port or 0)
        auth = {"Authorization": f"Bearer {KEY}"}
        self.http = httpx.Client(base_url=url, headers=auth, timeout=20, trust_env=False)

    def call(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None, **more: Any
    ) -> httpx.Response:
        # The sandbox refuses a POST without this header, also one without a body.
        content_type = {"Content-Type": "application/json"} if method == "POST" else {}
        return self.http.request(method, path, json=body, headers=content_type | (headers or {}), **more)

    def ok(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        answer = self.call(method, path, body, **more)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def refused(self, status: int, method: str, path: str, body: Any = None, **more: Any) -> dict[str, str]:
        """Expect the documented error body and return its errors as field to type."""
        answer = self.call(method, path, body, **more)
        assert answer.status_code == status, answer.text
        shown = answer.json()
        assert set(shown) == {"status", "message", "errors"}
        assert shown["status"] == status
        assert isinstance(shown["message"], str)
        assert all(set(one) == {"field", "message", "type"} for one in shown["errors"])
        return {one["field"]: one["type"] for one in shown["errors"]}

    def control(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        answer = self.call(method, f"/_control/{path}", body, **more)
        assert answer.is_success, answer.text
        return answer.json()

    def counters(self) -> dict[str, Any]:
        return dict(self.control("GET", "counters"))

    def inbox(self, box: str, **query: Any) -> list[dict[str, Any]]:
        return list(self.control("GET", f"inbox/{box}", params=query)["items"])

    def fault(self, operation: str, kind: str, **more: Any) -> dict[str, Any]:
        return dict(self.control("POST", "faults", {"operation": operation, "kind": kind, **more}))

    def settings(self, **changes: Any) -> None:
        self.control("PUT", "settings", changes)

    def reported(self) -> dict[str, int]:
        """Wait until no report is due any more and return the counts."""

        def done() -> dict[str, int] | None:
            counts = dict(self.counters()["reports"])
            return None if counts.pop("due") else counts

        return dict(until(done))

    def advance(self, seconds: float) -> None:
        self.control("POST", "clock/advance", {"seconds": seconds})

    def sms(self, **more: Any) -> httpx.Response:
        return self.call("POST", "/sms/send", {"recipients": ADA, "sender_id": "Acme", "content": "Hello"} | more)


@contextmanager
def running(options: Options, **uvicorn: str) -> Iterator[str]:
    """Serve in a thread; yield the base URL."""
    listener = bind("127.0.0.1", 0)
    server = make_server(options)
    vars(server.config).update(uvicorn)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        until(lambda: server.started)
        yield url_of(listener)
    finally:
        server.should_exit = True
        thread.join(15)
        assert not thread.is_alive()


@pytest.fixture(scope="session")
def _server() -> Iterator[Harness]:
    with running(Options(KEY)) as url:
        yield Harness(url)


@pytest.fixture
def sandbox(_server: Harness) -> Harness:
    """The shared sandbox, as new."""
    _server.control("POST", "reset")
    return _server


@pytest.fixture
def frozen(sandbox: Harness) -> Harness:
    """The shared sandbox, whose clock stands still."""
    sandbox.control("PUT", "clock", {"frozen": True})
    return sandbox


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    one = Receiver()
    yield one
    one.close()


class Raw:
    """A customer without an HTTP library, to see what really comes over the socket."""

    def __init__(self, sandbox: Harness, timeout: float = 10) -> None:
        self.socket = socket.create_connection(sandbox.address, timeout=timeout)

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> None:
        fields = {"Host": "localhost", "Authorization": f"Bearer {KEY}", "Content-Length": str(len(body))}
        fields |= {"Content-Type": "application/json"} | {name.replace("_", "-"): one for name, one in headers.items()}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self.socket.sendall(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)

    def rest(self) -> bytes:
        """Return all bytes until the end of stream; a reset raises ConnectionResetError."""
        chunks = []
        while chunk := self.socket.recv(65536):
            chunks.append(chunk)
        return b"".join(chunks)
