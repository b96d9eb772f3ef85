"""A receiver of delivery reports over real HTTP that answers as it is told."""

from __future__ import annotations

import json
import threading
from collections import Counter
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Received:
    """One POST as it came."""

    path: str
    headers: dict[str, str]
    raw: bytes
    connection: int

    @property
    def body(self) -> dict[str, Any]:
        return dict(json.loads(self.raw))


class Receiver:
    """Keeps all that comes; answers with what stands in ``answers``, then with ``answer``."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.answers: list[int] = []
        self.answer = 200
        self.silent = False
        self.gate = threading.Event()
        self.gate.set()
        self.at_once = self.most_at_once = 0
        self._lock = threading.Lock()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                status = receiver._keep(Received(self.path, headers, raw, self.client_address[1]))
                receiver.gate.wait(20)
                with receiver._lock:
                    receiver.at_once -= 1
                if receiver.silent:
                    self.close_connection = True
                    return
                self.send_response(status)
                self.send_header("Location", "/elsewhere")
                if status != 204:
                    self.send_header("Content-Length", "2")
                self.end_headers()
                if status != 204:
                    self.wfile.write(b"{}")

            def log_message(self, format: str, *args: object) -> None:
                return

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

        self._server = Server(("127.0.0.1", 0), Handler)
        self.base = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.url = f"{self.base}/reports/7?x=1"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def _keep(self, received: Received) -> int:
        with self._lock:
            self.received.append(received)
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            return self.answers.pop(0) if self.answers else self.answer

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [one.body for one in self.received]

    def count_by(self, field: str = "status") -> Counter[Any]:
        """Count the received reports by a field of the body."""
        return Counter(one[field] for one in self.bodies)

    def close(self) -> None:
        self.gate.set()
        self._server.shutdown()
        self._server.server_close()
