"""Reads the body of a response, compressed or not, within bounds of size and time."""

from __future__ import annotations

import time
import zlib

from cpaas_provider.api.http.wire import HttpResponse
from cpaas_provider.api.settings import ClientSettings

_GZIP = 16 + zlib.MAX_WBITS
_GZIP_NAMES = frozenset({"gzip", "x-gzip"})
"""RFC 9110, section 8.4.1.3."""


class BodyReader:
    """Collects a body as it arrives. Requests ask for an uncompressed body, but some servers compress every response.

    It does not use the decoders of httpx: they expand a chunk without a limit, so a few kilobytes can fill the memory.

    :param coding: the response's ``Content-Encoding``; only gzip and deflate are decoded
    """

    def __init__(self, settings: ClientSettings, coding: str) -> None:
        self._remaining_bytes = settings.max_response_bytes
        self._deadline = time.monotonic() + settings.timeout
        self._chunks: list[bytes] = []
        self._is_gzip = coding.lower() in _GZIP_NAMES
        self._is_compressed = self._is_gzip or coding.lower() == "deflate"
        self._decompressor: zlib._Decompress | None = None
        self.body_error: str | None = None

    def add(self, chunk: bytes) -> bool:
        """Add the next chunk, and return whether to read on."""
        try:
            decoded = self._decode(chunk)
        except zlib.error:
            self._chunks.clear()
            self.body_error = "its compression is damaged"
            return False
        self._chunks.append(decoded[: self._remaining_bytes])
        self._remaining_bytes -= len(decoded)
        if self._remaining_bytes < 0:
            self.body_error = "it is larger than max_response_bytes"
        elif time.monotonic() > self._deadline:
            self.body_error = "it took longer than timeout"
        return self.body_error is None

    def as_response(self, status: int, retry_after: str | None, date: str | None = None) -> HttpResponse:
        """Return the response with the body collected so far."""
        if self.body_error is None and self._decompressor is not None and not self._decompressor.eof:
            self.body_error = "its compression is incomplete"
        return HttpResponse(status, retry_after, b"".join(self._chunks), self.body_error, date)

    def _decode(self, chunk: bytes) -> bytes:
        if not self._is_compressed:
            return chunk
        decoded = b""
        while chunk and len(decoded) <= self._remaining_bytes:
            if self._decompressor is None or (self._is_gzip and self._decompressor.eof):
                # A file of gzip may have several members.
                self._decompressor = self._new_decompressor(chunk)
            elif self._decompressor.eof:
                raise zlib.error("bytes after the end")
            decoded += self._decompressor.decompress(chunk, self._remaining_bytes + 1 - len(decoded))
            chunk = self._decompressor.unused_data
        return decoded

    def _new_decompressor(self, chunk: bytes) -> zlib._Decompress:
        if self._is_gzip:
            return zlib.decompressobj(_GZIP)
        # Some servers send deflate without the zlib header, which begins with this nibble.
        return zlib.decompressobj(zlib.MAX_WBITS if chunk[0] & 0x0F == zlib.DEFLATED else -zlib.MAX_WBITS)
