"""A server that is not the service: it gives every request the same response, or the next of several."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextlib.contextmanager
def fixed_response_server(status: int, body: bytes = b"", **headers: str) -> Iterator[str]:
    """Respond to every request with a status, a body and headers (``_`` for ``-``); yield the base URL."""
    with response_sequence_server((status, body), **headers) as url:
        yield url


@contextlib.contextmanager
def response_sequence_server(*responses: tuple[int, bytes], **headers: str) -> Iterator[str]:
    """Respond with one status and body after the other, the last one for ever; yield the base URL."""
    remaining = list(responses)

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, body = remaining.pop(0) if len(remaining) > 1 else remaining[0]
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PATCH = do_DELETE = _answer  # noqa: N815 - http.server asks for these names

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join(5)
