"""The plugin in Airflow's API server: found by its entry point, cheap to import, and closed without a login."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import Any

import pytest
import structlog
from fastapi.testclient import TestClient

from cpaas_provider import __version__
from cpaas_provider.database.database import open_database
from cpaas_provider.delivery.callbacks.signatures import sign
from cpaas_provider.delivery.callbacks.tokens import CallbackToken, callback_url

CONN_ID = "cpaas_of_reports"
CONNECTION = {
    "conn_type": "cpaas",
    "host": "https://api.example.com",
    "password": "sk_test_of_reports",
    "extra": {"webhook_secret": "of-webhooks", "signature_header": "X-Signature", "callback_secret": "new, old"},
}
TOKEN = CallbackToken("cpaas-mounted", "cpaas-mounted-1", 10)
REPORT = {"id": "m-1", "recipient": "+2348030000001", "status": "delivered"}


@pytest.fixture(scope="module")
def server(airflow_db: object) -> Iterator[TestClient]:
    """Airflow's API server with everything it mounts, in this process."""
    from airflow.api_fastapi.app import create_app, purge_cached_app

    # As its own main module has it.
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")
        with TestClient(create_app(apps="core")) as client:
            yield client
    purge_cached_app()


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(f"AIRFLOW_CONN_{CONN_ID.upper()}", json.dumps(CONNECTION))
    return CONN_ID


def callback(token: CallbackToken = TOKEN, secret: str = "new", conn_id: str = CONN_ID) -> str:
    return callback_url("/cpaas", conn_id, secret, token)


def stored() -> list[Any]:
    """Return the raw reports in the store that Airflow's configuration names."""
    from sqlalchemy import select

    from cpaas_provider.database.schema.delivery import reports

    with open_database() as database, database.connect() as reading:
        return list(reading.execute(select(reports).where(reports.c.conn_id == CONN_ID)))


@pytest.fixture(scope="module")
def token(server: TestClient) -> str:
    """What a person has who logged in."""
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    return str(get_auth_manager().generate_jwt(SimpleAuthManagerUser(username="viewer", role="viewer")))


class TestDiscovery:
    def test_entry_point_leads_to_the_plugin(self) -> None:
        (found,) = [point for point in entry_points(group="airflow.plugins") if point.name == "cpaas"]
        assert found.load().name == "cpaas"

    def test_airflow_finds_it(self) -> None:
        from airflow import plugins_manager

        plugins, errors = plugins_manager._get_plugins()
        assert [plugin.name for plugin in plugins if plugin.name == "cpaas"] == ["cpaas"]
        assert [error for error in errors if "cpaas" in error] == []

    def test_import_in_a_task_process_loads_no_web_application(self) -> None:
        code = (
            "import sys, airflow.sdk.plugins_manager; before = set(sys.modules)\n"
            "from cpaas_provider.plugin import CpaasPlugin; CpaasPlugin()\n"
            "print(*(set(sys.modules) - before))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
        assert {"fastapi", "starlette", "httpx"}.isdisjoint(done.stdout.split())
        assert "cpaas_provider.plugin" in done.stdout.split()


class TestPages:
    def test_health_needs_a_login(self, server: TestClient) -> None:
        assert server.get("/cpaas/health").status_code == 401

    def test_forged_login_token_is_refused(self, server: TestClient) -> None:
        answer = server.get("/cpaas/health", headers={"Authorization": "Bearer made.up.token"})
        assert answer.status_code in (401, 403)

    def test_health_shows_a_logged_in_user_the_version(self, server: TestClient, token: str) -> None:
        answer = server.get("/cpaas/health", headers={"Authorization": f"Bearer {token}"})
        assert (answer.status_code, answer.json()) == (200, {"status": "ok", "version": __version__})

    @pytest.mark.parametrize("path", ["/cpaas/docs", "/cpaas/redoc", "/cpaas/openapi.json", "/cpaas/", "/cpaas/health"])
    def test_pages_show_nothing_without_a_login(self, server: TestClient, path: str) -> None:
        answer = server.get(path)
        assert answer.status_code in (401, 404)
        assert "swagger" not in answer.text.lower()
        assert '"openapi":' not in answer.text

    def test_logged_in_user_reads_the_description_of_the_endpoints(self, server: TestClient, token: str) -> None:
        headers = {"Authorization": f"Bearer {token}"}
        document = server.get("/cpaas/openapi.json", headers=headers).json()
        assert "/webhook/{conn_id}" in document["paths"]

    def test_application_is_mounted_beside_airflow_s_own_pages(self, server: TestClient) -> None:
        assert server.get("/api/v2/version").is_success


class MetricRecorder:
    """What Airflow publishes metrics to."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Any]] = []

    def incr(self, name: str, count: int = 1, **_: Any) -> None:
        self.heard.append((name, count))

    def timing(self, name: str, lasted: Any, **_: Any) -> None:
        self.heard.append((name, lasted.total_seconds() > 0))


@pytest.mark.usefixtures("connection")
class TestEndpoints:
    def test_report_is_stored_without_a_login(self, server: TestClient) -> None:
        answer = server.post(callback(), json=REPORT)
        assert (answer.status_code, answer.json()) == (200, {"status": "stored"})
        assert json.loads(stored()[-1].body) == REPORT

    def test_report_to_the_account_webhook_is_stored_without_a_login(self, server: TestClient) -> None:
        raw = json.dumps({**REPORT, "id": "m-2"}).encode()
        headers = {"content-type": "application/json", "x-signature": sign(raw, "of-webhooks")}
        assert server.post(f"/cpaas/webhook/{CONN_ID}", content=raw, headers=headers).status_code == 200
        assert raw.decode() in {row.body for row in stored()}
        headers["x-signature"] = sign(raw, "of-others")
        assert server.post(f"/cpaas/webhook/{CONN_ID}", content=raw, headers=headers).status_code == 401

    @pytest.mark.parametrize("secret", ["old", CONNECTION["password"]])
    def test_earlier_secrets_and_the_key_verify_too(self, server: TestClient, secret: str) -> None:
        assert server.post(callback(secret=secret), json=REPORT).status_code == 200

    def test_handshake_returns_the_identity_of_the_configured_database(self, server: TestClient) -> None:
        with open_database() as database:
            assert server.post(callback(CallbackToken("handshake", "handshake", 1))).json() == {
                "database": database.identity
            }

    def test_rotation_needs_no_restart(self, server: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
        name = "AIRFLOW_CONN_CPAAS_ROTATED"
        monkeypatch.setenv(name, json.dumps({**CONNECTION, "extra": {}}))
        assert server.post(callback(secret="sk_test_of_reports", conn_id="cpaas_rotated"), json=REPORT).is_success
        monkeypatch.setenv(name, json.dumps({**CONNECTION, "password": "sk_test_next", "extra": {}}))
        assert server.post(callback(secret="sk_test_next", conn_id="cpaas_rotated"), json=REPORT).is_success

    def test_connection_of_another_type_has_no_endpoint(
        self, server: TestClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", json.dumps({**CONNECTION, "conn_type": "postgres"}))
        assert server.post(callback(conn_id="warehouse"), json=REPORT).status_code == 404

    def test_missing_connection_has_no_endpoint(self, server: TestClient) -> None:
        assert server.post(callback(conn_id="nobody"), json=REPORT).status_code == 404

    def test_report_for_an_unreadable_connection_is_not_lost(
        self, server: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        broken = {**CONNECTION, "extra": {"requests_per_second": "hunter22"}}
        monkeypatch.setenv("AIRFLOW_CONN_CPAAS_BROKEN", json.dumps(broken))
        assert server.post(callback(conn_id="cpaas_broken"), json=REPORT).status_code == 503
        assert "hunter22" not in caplog.text

    def test_airflow_s_access_log_shows_no_callback_token(self, server: TestClient) -> None:
        with structlog.testing.capture_logs() as lines:
            server.post(callback(), json=REPORT)
            server.post(callback(secret="wrong"), json=REPORT)
            server.get(callback())
        logged = [line for line in lines if line["event"] == "request finished"]
        assert [line["path"] for line in logged] == [f"/cpaas/callback/{CONN_ID}/..."] * 3
        assert TOKEN.reference not in str(lines)

    @pytest.mark.usefixtures("airflow_db", "connection")
    def test_reports_are_counted_in_airflow_s_metrics(self) -> None:
        from airflow._shared.observability.metrics import stats as module
        from airflow.observability import stats

        from cpaas_provider.plugin import CpaasPlugin

        ear = MetricRecorder()
        with pytest.MonkeyPatch.context() as listening:
            # Without metrics the receiver measures nothing.
            listening.setenv("AIRFLOW__METRICS__STATSD_ON", "True")
            [mounted] = CpaasPlugin().fastapi_apps
            listening.setattr(module, "_backend", ear)
            url = callback().removeprefix("/cpaas")
            with TestClient(mounted["app"]) as server:
                body = {**REPORT, "id": "m-counted", "created_datetime": "2026-01-31T12:00:00Z"}
                server.post(url, json=body)
                server.post(url, json=body)
                server.get(url)
        assert stats.incr is module.incr
        assert sorted(ear.heard) == [
            ("cpaas.delivery.lag", True),
            ("cpaas.delivery.lag", True),
            ("cpaas.delivery.received", 1),
            ("cpaas.delivery.received", 1),
            ("cpaas.delivery.refused.405", 1),
            ("cpaas.delivery.repeated", 1),
        ]

    def test_content_of_a_report_is_not_logged(self, server: TestClient, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.DEBUG):
            server.post(callback(), json={**REPORT, "note": "between us"})
        # The sender is in this process, too, and logs the URL that it calls.
        logged = "\n".join(record.getMessage() for record in caplog.records if not record.name.startswith("httpx"))
        for secret in ("between us", "2348030000001", TOKEN.reference, "of-webhooks"):
            assert secret not in logged
