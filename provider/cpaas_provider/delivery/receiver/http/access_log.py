"""Callback tokens kept out of what a server logs of its requests, also where a URL just misses the receiver."""

from __future__ import annotations

import re
from typing import Any

from cpaas_provider.delivery.receiver.http.request import Receive, Scope
from cpaas_provider.delivery.receiver.http.responses import Send

HIDDEN = "..."

_DOT = r"(?:\.|%(?:25)*2[eE])"
# Names, numbers and a proof with dots between them, the proof long enough to be one; and whatever hangs on to it.
_TOKEN = re.compile(rf"[A-Za-z0-9_~-]+(?:{_DOT}[A-Za-z0-9_~-]+)+{_DOT}[A-Za-z0-9_~-]{{16,}}[^/&]*")


def hide_tokens(text: str) -> str:
    """Return a path or a query with dots in the place of all that looks like a callback token."""
    return _TOKEN.sub(HIDDEN, text)


class TokenHidingMiddleware:
    """Middleware: what logs a request after it was answered sees no token.

    :param app: what answers
    """

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
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
