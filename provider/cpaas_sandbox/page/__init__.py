"""The inbox page at `/`: one document, one script, one style sheet, all of them in this package."""

from __future__ import annotations

from importlib.resources import files

from cpaas_sandbox.service.http import Answer

# The page shows text of messages, which may contain markup: only the page's own files may run or be fetched.
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}

_FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/_page/inbox.js": ("inbox.js", "text/javascript; charset=utf-8"),
    "/_page/inbox.css": ("inbox.css", "text/css; charset=utf-8"),
}
PAGES = {
    path: Answer(200, files(__name__).joinpath(name).read_bytes(), _HEADERS, content_type)
    for path, (name, content_type) in _FILES.items()
}
"""The response for each path of the page."""
