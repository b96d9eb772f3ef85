"""Keeps callback tokens out of a server's access log, also in URLs that no route matches."""

from __future__ import annotations

import re

from starlette.types import ASGIApp, Receive, Scope, Send

HIDDEN = "..."

_DOT = r"(?:\.|%(?:25)*2[eE])"
# Names and numbers and a signature, separated by dots, with anything that follows directly.
_TOKEN = re.compile(rf"[A-Za-z0-9_~-]+(?:{_DOT}[A-Za-z0-9_~-]+)+{_DOT}[A-Za-z0-9_~-]{{16,}}[^/&]*")


def hide_tokens(text: str) -> str:
    """Return a path or a query with ``...`` in place of all that looks like a callback token."""
    return _TOKEN.sub(HIDDEN, text)


class TokenHidingMiddleware:
    """Middleware that removes tokens from a request's scope before the server logs it.

    :param app: the application that answers
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and hide its token afterwards."""
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
