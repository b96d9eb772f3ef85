"""The inbox page at `/`: one document, one script, one style sheet, all of them in this package."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from cpaas_sandbox.service.http import Answer, Wire

_FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/_page/inbox.js": ("inbox.js", "text/javascript; charset=utf-8"),
    "/_page/inbox.css": ("inbox.css", "text/css; charset=utf-8"),
}
# The page shows text of messages, which may contain markup: only the page's own files may run or be fetched.
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}


@cache
def _read(name: str) -> bytes:
    return files(__name__).joinpath(name).read_bytes()


async def serve_page(wire: Wire) -> bool:
    """Answer a request for one of the page's files; return whether it was one."""
    if wire.raw_path not in _FILES:
        return False
    name, content_type = _FILES[wire.raw_path]
    await wire.answer(Answer(200, _read(name), _HEADERS, content_type))
    return True
