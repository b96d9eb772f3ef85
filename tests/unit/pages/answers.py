"""What must hold for every response under our prefix: it is not stored, its type is not guessed, it names no host."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
from fastapi import FastAPI
from fastapi.routing import APIRoute

VALUES = {"reference": "spring", "name": "pages.js", "reference:path": "spring"}
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
# Two slashes are a comment in scripts, which has a blank after them.
_HOST = re.compile(r"(?:https?:)?//[A-Za-z0-9\[][^\s\"'<>)]*")
_NAMESPACE = "http://www.w3.org/"
_OWN_SOURCES = {"'self'", "'none'", "data:"}


def requests_of(app: FastAPI) -> Iterator[tuple[str, str, set[str]]]:
    """Yield every method for every path of an application, with the methods that the path has."""
    routes = [route for route in app.routes if isinstance(route, APIRoute)]
    allowed: dict[str, set[str]] = {}
    for route in routes:
        path = re.sub(r"\{([^}]+)\}", lambda name: VALUES[name[1]], route.path)
        allowed.setdefault(path, set()).update(route.methods)
    for path, methods in allowed.items():
        for method in METHODS:
            yield method, path, methods


def hosts_in(text: str) -> list[str]:
    """Return what a document, script or style sheet names of other hosts."""
    return [url for url in _HOST.findall(text) if not url.startswith(_NAMESPACE)]


def check_headers(answer: httpx.Response) -> None:
    """Check the headers of a response. Only scripts and style sheets may be stored, and are asked for each time."""
    kind = answer.headers.get("content-type", "").partition(";")[0]
    is_static = answer.is_success and kind in ("text/javascript", "text/css")
    shown = f"{answer.request.method} {answer.request.url} {answer.status_code}"
    assert answer.headers.get_list("cache-control") == ["no-cache" if is_static else "no-store"], shown
    assert answer.headers.get_list("x-content-type-options") == ["nosniff"], shown
    if kind == "text/html":
        policy = [words.split() for words in answer.headers["content-security-policy"].split(";")]
        assert ["default-src", "'none'"] in policy, shown
        assert {source for _, *sources in policy for source in sources} <= _OWN_SOURCES, shown
    if kind != "application/json":
        assert hosts_in(answer.text) == [], shown
