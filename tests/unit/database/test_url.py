"""Where the database is, by what the configuration says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.database.url import redacted, resolve_url


def test_default_is_a_file_in_airflow_home(airflow_home: Path) -> None:
    assert resolve_url().render_as_string() == f"sqlite:///{airflow_home}/cpaas/cpaas.db"


def test_airflow_home_with_tilde_or_variable_is_expanded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AIRFLOW_HOME", "~/flow")
    assert resolve_url().database == f"{tmp_path}/flow/cpaas/cpaas.db"
    monkeypatch.setenv("AIRFLOW_HOME", "$HOME/flow")
    assert resolve_url().database == f"{tmp_path}/flow/cpaas/cpaas.db"


def test_configured_url_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{tmp_path}/elsewhere.db")
    assert resolve_url().database == f"{tmp_path}/elsewhere.db"


def test_url_may_come_from_a_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE_CMD", f"echo sqlite:///{tmp_path}/secret.db")
    assert resolve_url().database == f"{tmp_path}/secret.db"


@pytest.mark.parametrize("name", ["postgres", "postgresql"])
def test_postgres_without_a_driver_gets_an_installed_one(name: str) -> None:
    pytest.importorskip("psycopg2", reason="psycopg2 is not installed")
    assert resolve_url(f"{name}://ada@host/test").drivername == "postgresql+psycopg2"


def test_named_driver_is_unchanged() -> None:
    assert resolve_url("postgresql+psycopg://ada@host/test").drivername == "postgresql+psycopg"


def test_airflow_connection_gives_the_url(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"sslmode": "require", "connect_timeout": 3, "cursor": "dictcursor", "options": ""}
    said = {
        "conn_type": "postgres",
        "host": "db.example.com",
        "port": 6432,
        "login": "ada",
        "password": "p@ss/word",
        "schema": "cpaas",
        "extra": json.dumps(extra),
    }
    monkeypatch.setenv("AIRFLOW_CONN_CPAAS_STORE", json.dumps(said))
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", "cpaas_store")
    url = resolve_url()
    assert (url.get_backend_name(), url.username, url.password) == ("postgresql", "ada", "p@ss/word")
    assert (url.host, url.port, url.database) == ("db.example.com", 6432, "cpaas")
    assert url.query == {"sslmode": "require", "connect_timeout": "3"}
    assert redacted(url).endswith("://ada@db.example.com:6432/cpaas")


def test_airflow_connection_may_name_a_sqlite_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CPAAS_STORE", json.dumps({"conn_type": "sqlite", "host": f"{tmp_path}/a.db"}))
    assert resolve_url("cpaas_store").database == f"{tmp_path}/a.db"


def test_connection_of_another_type_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CPAAS_STORE", json.dumps({"conn_type": "http", "host": "example.com"}))
    with pytest.raises(DatabaseError, match="'cpaas_store' of type 'http'"):
        resolve_url("cpaas_store")


def test_missing_connection_is_named() -> None:
    with pytest.raises(DatabaseError, match="'nobody_s_store', which does not exist"):
        resolve_url("nobody_s_store")


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "sqlite:///store.db", "sqlite:///file:a?uri=true"])
def test_sqlite_url_without_an_absolute_path_is_refused(url: str) -> None:
    with pytest.raises(DatabaseError, match="absolute path"):
        resolve_url(url)


@pytest.mark.parametrize("url", ["sqlite+aiosqlite:////tmp/store.db", "postgresql+asyncpg://ada:hunter2@host/test"])
def test_asynchronous_driver_is_refused(url: str) -> None:
    with pytest.raises(DatabaseError, match="asynchronous driver"):
        resolve_url(url)


@pytest.mark.parametrize(
    "url",
    ["postgresql://ada:hunter2/@host:port/test", "://ada:hunter2@host", "ada://:hunter2@host",
     "postgresql://ada:p@hunter2@host/test", "postgresql://ada:p@hunter2@host:5432/test",
     "postgresql://ada:@hunter@host",
     "postgresql://ada:p@ss/hunter2@host/test", "postgresql://ada:p@ss?hunter2@host/test",
     "postgresql://ada:p@ss?a=hunter2@host/test", "mysql://ada:p@hunter@2@host/test",
     "postgresql:ada:hunter2@host/test",
     "postgresql:/ada:hunter2@host/test", "ada:hunter2@host", "hunter2@host"],
)  # fmt: skip
def test_unreadable_url_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(DatabaseError) as refused:
        resolve_url(url)
    assert "hunter" not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__ or refused.value.__context__ is None


@pytest.mark.parametrize(
    ("url", "password"),
    [("postgresql://ada:hun%40ter@host/test", "hun@ter"), ("postgresql://ada:hun/ter?#:@host/test", "hun/ter?#:"),
     ("postgresql://ada@corp:hunter@host/test", "hunter"), ("sqlite:////srv/ada@corp/store.db", None)],
)  # fmt: skip
def test_password_of_a_readable_url_is_read(url: str, password: str | None) -> None:
    assert resolve_url(url).password == password
