"""Collects the body of a response within bounds of size and time, compressed or not."""

from __future__ import annotations

import time
import zlib

from cpaas_provider.api.http.wire import HttpResponse
from cpaas_provider.api.settings import ClientSettings

_GZIP = 16 + zlib.MAX_WBITS


class BodyReader:
    """Collects a body as it arrives. Every request asks for a plain one, but some servers compress all they send.

    httpx's decoders expand all that arrived at once, one coding after the other: a few kilobytes can fill the memory.

    :param coding: the response's ``Content-Encoding``; a body in any other than gzip or deflate is left as it is
    """

    def __init__(self, settings: ClientSettings, coding: str | None) -> None:
        self._room = settings.max_response_bytes
        self._until = time.monotonic() + settings.timeout
        self._chunks: list[bytes] = []
        self._coding = (coding or "").strip().lower()
        self._decompressor: zlib._Decompress | None = None
        self.body_error: str | None = None

    def add(self, chunk: bytes) -> bool:
        """Take the next part, and return whether more is wanted."""
        try:
            decoded = self._decode(chunk)
        except zlib.error:
            self.body_error = "its compression is damaged"
            return False
        self._chunks.append(decoded[: self._room])
        self._room -= len(decoded)
        if self._room < 0:
            self.body_error = "it is larger than max_response_bytes"
        elif time.monotonic() > self._until:
            self.body_error = "it took longer than timeout"
        return self.body_error is None

    def as_response(self, status: int, retry_after: str | None, date: str | None = None) -> HttpResponse:
        """Return what has been collected as the body of a response."""
        return HttpResponse(status, retry_after, b"".join(self._chunks), self.body_error, date)

    def _decode(self, chunk: bytes) -> bytes:
        if not chunk or self._coding not in {"gzip", "deflate"}:
            return chunk
        if self._decompressor is None:
            # Some servers leave out the header of zlib, which begins with this nibble, from deflate.
            deflate = zlib.MAX_WBITS if chunk[0] & 0x0F == zlib.DEFLATED else -zlib.MAX_WBITS
            self._decompressor = zlib.decompressobj(_GZIP if self._coding == "gzip" else deflate)
        if self._decompressor.eof:
            return b""
        return self._decompressor.decompress(chunk, self._room + 1)
