"""The pages in Airflow's own API server: its login and its permissions decide what is shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from cpaas_provider.database.database import open_database
from tests.unit.pages.recorded import campaign

PATHS = ("campaigns", "campaigns/of-mine", "over-time", "contact-syncs", "passcodes", "airtime", "reports", "search")


@pytest.fixture(scope="module")
def server(airflow_db: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """Airflow's API server with everything it mounts, in this process, and a database without other campaigns."""
    from airflow.api_fastapi.app import create_app, purge_cached_app

    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{tmp_path_factory.mktemp('pages') / 'pages.db'}")
        # The campaigns of these tests are older than what is retained.
        environment.setenv("AIRFLOW__CPAAS__RETENTION_DAYS", "0")
        environment.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")
        with TestClient(create_app(apps="core")) as client:
            yield client
    purge_cached_app()


@pytest.fixture(scope="module")
def recorded(server: TestClient) -> None:
    """Two DAGs that Airflow knows, one that it does not, and a campaign of each."""
    from airflow.models.dag import DagModel
    from airflow.models.dagbundle import DagBundleModel
    from airflow.utils.session import create_session

    with create_session() as session:
        session.merge(DagBundleModel(name="of-pages"))
        session.flush()
        for dag_id in ("mine", "theirs"):
            session.merge(DagModel(dag_id=dag_id, bundle_name="of-pages", fileloc="/dags/x.py"))
    with open_database() as database:
        for dag_id in ("mine", "theirs", "deleted"):
            campaign(database, f"of-{dag_id}", dag_id=dag_id)


def headers(role: str | None) -> dict[str, str]:
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    token = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username="somebody", role=role))
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have Airflow let no user read the DAG ``theirs``."""
    from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

    allows = SimpleAuthManager.is_authorized_dag

    def is_authorized_dag(self: Any, *, details: Any = None, **asked: Any) -> bool:
        return (details is None or details.id != "theirs") and allows(self, details=details, **asked)

    monkeypatch.setattr(SimpleAuthManager, "is_authorized_dag", is_authorized_dag)


@pytest.mark.usefixtures("recorded")
class TestPermissions:
    @pytest.mark.parametrize("path", PATHS)
    def test_pages_and_search_need_a_login(self, server: TestClient, path: str) -> None:
        assert server.get(f"/cpaas/{path}").status_code == 401
        assert server.post("/cpaas/search", data={"q": "of-mine"}).status_code == 401

    @pytest.mark.parametrize("path", PATHS)
    def test_user_who_may_read_dags_sees_all_pages(self, server: TestClient, path: str) -> None:
        answer = server.get(f"/cpaas/{path}", headers=headers("viewer"))
        assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (200, "text/html")

    @pytest.mark.parametrize("path", PATHS)
    def test_connection_that_cannot_be_used_hides_no_page(
        self, server: TestClient, monkeypatch: pytest.MonkeyPatch, path: str
    ) -> None:
        connection = {"conn_type": "cpaas", "host": "https://api.example.com", "extra": {"daily_budget": "much"}}
        monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps(connection))
        assert server.get(f"/cpaas/{path}", headers=headers("viewer")).status_code == 200
        found = server.post("/cpaas/search", data={"q": "08031234567"}, headers=headers("viewer"))
        assert "Nothing found" in found.text

    def test_campaigns_of_the_dags_that_may_be_read_are_shown(self, server: TestClient) -> None:
        page = server.get("/cpaas/campaigns", headers=headers("viewer")).text
        assert "/cpaas/campaigns/of-mine" in page
        assert "/cpaas/campaigns/of-theirs" in page

    @pytest.mark.usefixtures("limited")
    def test_campaigns_of_other_dags_are_not_shown(self, server: TestClient) -> None:
        page = server.get("/cpaas/campaigns", headers=headers("viewer")).text
        assert "/cpaas/campaigns/of-mine" in page
        assert "theirs" not in page
        assert server.get("/cpaas/campaigns/of-theirs", headers=headers("viewer")).status_code == 404
        found = server.post("/cpaas/search", data={"q": "of-theirs"}, headers=headers("viewer")).text
        assert "Nothing found" in found

    def test_campaigns_of_a_deleted_dag_are_not_shown(self, server: TestClient) -> None:
        assert "of-deleted" not in server.get("/cpaas/campaigns", headers=headers("admin")).text
        assert server.get("/cpaas/campaigns/of-deleted", headers=headers("admin")).status_code == 404

    def test_navigation_links_to_the_pages(self, server: TestClient) -> None:
        plugins = server.get("/api/v2/plugins", headers=headers("admin")).json()["plugins"]
        (view,) = next(one["external_views"] for one in plugins if one["name"] == "cpaas")
        assert (view["destination"], view["url_route"]) == ("nav", "cpaas")
        assert view["href"].endswith("/cpaas/campaigns")
