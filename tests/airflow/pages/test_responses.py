"""Every response under our prefix in Airflow's own API server: not cached, and without anything of another host."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from cpaas_provider.delivery.receiver.app import ReceiverApp
from tests.airflow.pages.test_permissions import headers
from tests.airflow.pages.test_permissions import recorded as recorded
from tests.airflow.pages.test_permissions import server as server
from tests.unit.pages.answers import check_headers, requests_of


def mounted(server: Any) -> ReceiverApp:
    (app,) = [route.app for route in server.app.routes if isinstance(getattr(route, "app", None), ReceiverApp)]
    return app


@pytest.mark.usefixtures("recorded")
def test_all_routes_have_the_headers_for_any_caller(server: TestClient) -> None:
    people = [{}, {"Authorization": "Bearer made.up.token"}, headers("viewer"), headers(None)]
    seen: set[tuple[str, int]] = set()
    for method, path, methods in requests_of(mounted(server)):
        for who in people:
            answer = server.request(method, f"/cpaas{path}", headers=who, follow_redirects=False)
            check_headers(answer)
            seen.add((path, answer.status_code))
            assert (answer.status_code == 405) == (method not in methods), (method, path)
    for path in ("/docs", "/redoc", "/docs/oauth2-redirect", "/unheard-of", "/callback", "/webhook"):
        answer = server.get(f"/cpaas{path}", headers=headers("admin"))
        check_headers(answer)
        assert answer.status_code == 404
    answer = server.get("/cpaas/campaigns?first=x", headers=headers("viewer"))
    check_headers(answer)
    assert answer.status_code == 422
    assert {status for _, status in seen} == {200, 307, 401, 403, 404, 405}
    assert {path for path, status in seen if status == 200} >= {"/health", "/openapi.json", "/campaigns", "/search"}
    assert {path for path, status in seen if status == 401} == {path for path, _ in seen}


@pytest.mark.parametrize("enabled", ["True", "False"])
def test_description_needs_a_login_whatever_airflow_shows_of_its_own(
    server: TestClient, monkeypatch: pytest.MonkeyPatch, enabled: str
) -> None:
    monkeypatch.setenv("AIRFLOW__API__ENABLE_SWAGGER_UI", enabled)
    assert server.get("/cpaas/openapi.json").status_code == 401
    described = server.get("/cpaas/openapi.json", headers=headers("viewer"))
    assert "/webhook/{conn_id}" in described.json()["paths"]
    assert server.get("/cpaas/docs", headers=headers("admin")).status_code == 404
