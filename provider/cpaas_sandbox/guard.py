"""Stands before every route and refuses what only a page of another site makes a developer's browser send.

A page may send a plain POST to the loopback address. By DNS rebinding it may also read, under a name of its own: then
the Host header has that name. No answer has a CORS header, so a browser sends nothing that needs a preflight. Of an
image or a script it sends no Origin, but Sec-Fetch-Site, which no page can change.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import ip_address

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from cpaas_sandbox.core.errors import FieldError, ServiceError
from cpaas_sandbox.core.validation import is_loopback

HOST = r"(?:[0-9A-Za-z._-]+|\[[0-9A-Fa-f]*:[0-9A-Fa-f:.]*\])"
"""A name or address as in a URL: an IPv6 address has brackets."""

HEADERS = [
    ("Cache-Control", "no-store"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
]
"""Headers of every response: no page of another site may frame it, or load it as something else."""

_AUTHORITY = re.compile(rf"({HOST})(?::[0-9]{{1,5}})?")


def _normalized(host: str) -> str:
    """Return a name or address in the one spelling that is compared."""
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        return host.lower()
    return str(getattr(address, "ipv4_mapped", None) or address)


def _refusal(status: int, header: str, message: str) -> ServiceError:
    return ServiceError(status, message, [FieldError(header, message, header.lower().replace("-", "_"))])


_HOST = _refusal(
    421,
    "Host",
    "The Host header must be one header that names this machine: localhost, a loopback address, or the address the "
    "sandbox listens on. Start the sandbox with --allow-host NAME to allow another name",
)
_ORIGIN = _refusal(403, "Origin", "A page that uses the sandbox must come from the sandbox itself")
_SITE = _refusal(
    403, "Sec-Fetch-Site", "A page of another site must not load anything of the sandbox. It may link to the inbox page"
)
_CONTENT_TYPE = _refusal(
    415, "Content-Type", "Content-Type must be application/json, also for a POST request without a body"
)


class Guard:
    """ASGI middleware that serves only requests for this machine that no other site's page can have caused."""

    def __init__(self, app: ASGIApp, allowed_hosts: Iterable[str]) -> None:
        self._app = app
        self._allowed_hosts = {_normalized(host) for host in allowed_hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope, or refuse it before its body is read."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
        elif scope["type"] == "http" and (error := self._error(scope)):
            await JSONResponse(error.body(), error.status)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _error(self, scope: Scope) -> ServiceError | None:
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))
        hosts, origins, content_types = (headers.get(name, []) for name in ("host", "origin", "content-type"))
        if len(hosts) != 1 or not self._is_own(hosts[0], scope):
            return _HOST
        if origins not in ([], [f"http://{hosts[0]}"], [f"https://{hosts[0]}"]):
            return _ORIGIN
        is_from_own_page = headers.get("sec-fetch-site", ["none"]) in (["none"], ["same-origin"])
        # A page of another site may link to the inbox page.
        link_to_page = ("GET", "/", ["navigate"])
        if not is_from_own_page and (scope["method"], scope["path"], headers.get("sec-fetch-mode")) != link_to_page:
            return _SITE
        # A browser sends a POST of some content types without a preflight. It sends no other method so.
        has_body = headers.get("content-length", ["0"]) != ["0"] or "transfer-encoding" in headers
        media_types = [content_type.partition(";")[0].strip(" \t").lower() for content_type in content_types]
        if (scope["method"] == "POST" or has_body) and media_types != ["application/json"]:
            return _CONTENT_TYPE
        return None

    def _is_own(self, authority: str, scope: Scope) -> bool:
        """Return whether a Host header names this machine; an address cannot be rebound, so it needs no option."""
        match = _AUTHORITY.fullmatch(authority)
        if match is None:
            return False
        own_address = scope["server"][0] if scope.get("server") else ""
        own_hosts = self._allowed_hosts | {_normalized(own_address)}
        return is_loopback(f"http://{authority}") or _normalized(match[1]) in own_hosts
