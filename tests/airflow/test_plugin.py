"""What we add to Airflow's API server: found by its entry point, light elsewhere, and closed without a login."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points

import pytest
from fastapi.testclient import TestClient

from cpaas_provider import __version__


@pytest.fixture(scope="module")
def server(airflow_db: object) -> Iterator[TestClient]:
    """Airflow's API server with everything it mounts, in this process."""
    from airflow.api_fastapi.app import create_app, purge_cached_app

    with TestClient(create_app(apps="core")) as client:
        yield client
    purge_cached_app()


@pytest.fixture(scope="module")
def token(server: TestClient) -> str:
    """What a person has who logged in."""
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    return str(get_auth_manager().generate_jwt(SimpleAuthManagerUser(username="viewer", role="viewer")))


class TestDiscovery:
    def test_the_entry_point_leads_to_the_plugin(self) -> None:
        (found,) = [point for point in entry_points(group="airflow.plugins") if point.name == "cpaas"]
        assert found.load().name == "cpaas"

    def test_airflow_finds_it(self) -> None:
        from airflow import plugins_manager

        plugins, errors = plugins_manager._get_plugins()
        assert [plugin.name for plugin in plugins if plugin.name == "cpaas"] == ["cpaas"]
        assert [error for error in errors if "cpaas" in error] == []

    def test_a_task_process_that_imports_it_pays_for_no_web_application(self) -> None:
        code = (
            "import sys, airflow.sdk.plugins_manager; before = set(sys.modules)\n"
            "from cpaas_provider.plugin import CpaasPlugin; CpaasPlugin()\n"
            "print(*(set(sys.modules) - before))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
        assert {"fastapi", "starlette", "httpx"}.isdisjoint(done.stdout.split())
        assert "cpaas_provider.plugin" in done.stdout.split()


class TestPages:
    def test_health_is_closed_to_anybody_who_is_not_logged_in(self, server: TestClient) -> None:
        assert server.get("/cpaas/health").status_code == 401

    def test_a_made_up_token_does_not_open_it(self, server: TestClient) -> None:
        answer = server.get("/cpaas/health", headers={"Authorization": "Bearer made.up.token"})
        assert answer.status_code in (401, 403)

    def test_health_tells_a_logged_in_user_the_version(self, server: TestClient, token: str) -> None:
        answer = server.get("/cpaas/health", headers={"Authorization": f"Bearer {token}"})
        assert (answer.status_code, answer.json()) == (200, {"status": "ok", "version": __version__})

    @pytest.mark.parametrize("path", ["/cpaas/docs", "/cpaas/redoc", "/cpaas/openapi.json"])
    def test_it_publishes_no_description_of_itself(self, server: TestClient, path: str) -> None:
        answer = server.get(path)
        assert "swagger" not in answer.text.lower()
        assert '"openapi":' not in answer.text
        assert not answer.is_success

    def test_it_stands_beside_airflow_s_own_pages(self, server: TestClient) -> None:
        assert server.get("/api/v2/version").is_success
