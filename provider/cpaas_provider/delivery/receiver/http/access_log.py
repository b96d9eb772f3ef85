"""Keeps callback tokens out of a server's access log, also in URLs that no route matches."""

from __future__ import annotations

import re

from starlette.types import ASGIApp, Receive, Scope, Send

HIDDEN = "..."

# The end of a token, up to where its part of the URL ends: number of recipients, time, and enough of the signature that
# the rest could be guessed. It begins with a dot and has no part that can match in two ways: the time it takes is in
# proportion to the length of the text, which a caller without a login chooses.
_TOKEN_END = re.compile(r"\.[0-9]{1,6}\.[0-9]{10}\.[A-Za-z0-9_-]{36}[^/&]*")
# The same with percent-encoded characters, several times over. %25 encodes the percent sign itself.
_DOT = r"(?:\.|%(?:25)*2[eE])"
_DIGIT = r"(?:[0-9]|%(?:25)*3[0-9])"
_CHARACTER = r"(?:[A-Za-z0-9_-]|%(?:25)*(?!25)[2-7][0-9A-Fa-f])"
_ENCODED_TOKEN_END = re.compile(rf"{_DOT}{_DIGIT}{{1,6}}{_DOT}{_DIGIT}{{10}}{_DOT}{_CHARACTER}{{36}}[^/&]*")
_BETWEEN_NAMES = re.compile(_DOT)
_SEPARATORS = "/&=?"


def hide_tokens(text: str) -> str:
    """Return a path or a query with ``...`` in place of each part that contains a callback token."""
    shown, position, searched = "", 0, 0
    for match in (_ENCODED_TOKEN_END if "%" in text else _TOKEN_END).finditer(text):
        # A match goes on to the end of its part, so the next part begins behind it.
        start = max(searched, *(text.rfind(separator, searched, match.start()) + 1 for separator in _SEPARATORS))
        searched = match.end()
        # Two names come first. Names of files with a number, a time and a checksum have one.
        if _BETWEEN_NAMES.search(text, start, match.start()):
            shown += text[position:start] + HIDDEN
            position = searched
    return shown + text[position:]


class TokenHidingMiddleware:
    """Middleware that removes tokens from a request's scope before the server logs it.

    :param app: the application that answers
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and hide its token afterwards."""
        if scope["type"] == "websocket":
            # The server logs these at once, whatever the application does.
            _hide(scope)
        try:
            await self._app(scope, receive, send)
        finally:
            if scope["type"] == "http":
                _hide(scope)


def _hide(scope: Scope) -> None:
    if (path := hide_tokens(scope["path"])) != scope["path"]:
        scope["path"] = path
        scope["raw_path"] = path.encode()
    query = scope.get("query_string", b"").decode("latin-1")
    if (shown := hide_tokens(query)) != query:
        scope["query_string"] = shown.encode("latin-1")
