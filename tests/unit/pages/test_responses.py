"""Every response of the pages is kept out of caches, and no page, script, style sheet or picture names another host."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pytest
from fastapi import FastAPI, Header, HTTPException
from fastapi.testclient import TestClient

from cpaas_provider.database.database import Database
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.delivery.receiver.app import ReceiverApp
from cpaas_provider.pages.access import Viewer
from cpaas_provider.pages.app import add_pages
from tests.unit.pages.answers import check_headers, hosts_in, requests_of
from tests.unit.pages.recorded import campaign

ROOT = Path(__file__).parents[3]
SOURCES = [
    path
    for folder in ("provider", "docs/_static")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in (".html", ".css", ".js", ".svg")
]
ODD = (
    ("GET", "/campaigns?first=x", 422),
    ("GET", "/deliveries?campaign=", 422),
    ("POST", "/search", 422),
    ("GET", "/campaigns/unheard-of", 404),
    ("GET", "/static/unheard-of.js", 404),
    ("GET", "/unheard-of", 404),
)


def viewer(x_status: Annotated[int, Header()] = 200) -> Viewer:
    """Admit whoever does not ask to be rejected."""
    if x_status != 200:
        raise HTTPException(x_status)
    return Viewer(set, True)


def served(app: FastAPI) -> TestClient:
    return TestClient(app, raise_server_exceptions=False, follow_redirects=False)


def test_every_route_has_the_headers_with_every_status(database: Database) -> None:
    campaign(database, "spring")
    app = add_pages(ReceiverApp(openapi_url=None), viewer, lambda: database)
    seen: set[int] = set()
    with served(app) as client:
        for method, path, methods in requests_of(app):
            for status in (200, 401, 403):
                answer = client.request(method, path, headers={"x-status": str(status)})
                check_headers(answer)
                seen.add(answer.status_code)
                assert (answer.status_code == 405) == (method not in methods), (method, path)
                if method in methods and status != 200:
                    assert answer.status_code == status
            for status in (200, 401):
                headers = {"x-status": str(status), "accept": "application/json"}
                check_headers(client.request(method, path, headers=headers))
        for method, path, status in ODD:
            for accept in ("text/html", "application/json"):
                answer = client.request(method, path, headers={"accept": accept}, content=b"not UTF-8: \xff")
                check_headers(answer)
                assert answer.status_code == status, path
                seen.add(status)
    assert seen == {200, 307, 401, 403, 404, 405, 422}


@pytest.mark.parametrize(("error", "status"), [(DatabaseError("It is away."), 503), (KeyError("unforeseen"), 500)])
def test_response_to_a_failing_database_has_the_headers(error: Exception, status: int) -> None:
    def closed() -> Database:
        raise error

    app = add_pages(ReceiverApp(openapi_url=None), viewer, closed)
    with served(app) as client:
        for path in ("/campaigns", "/campaigns/spring", "/reports", "/deliveries?campaign=spring"):
            for accept in ("text/html", "application/json"):
                answer = client.get(path, headers={"accept": accept})
                check_headers(answer)
                assert answer.status_code == status, path


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_source_of_a_page_names_no_other_host(path: Path) -> None:
    assert hosts_in(path.read_text()) == []


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://cdn.example.com/a.js">',
        "<link href='//cdn.example.com/a.css'>",
        "@import url(//fonts.example.com/a);",
        'fetch("http://[::1]/")',
    ],
)
def test_reference_to_another_host_is_found(text: str) -> None:
    assert len(hosts_in(text)) == 1
