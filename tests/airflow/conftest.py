"""What tests inside Airflow share: its database, and the connection to the sandbox."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sandbox import Sandbox, connection_json


@pytest.fixture(scope="session")
def airflow_db(airflow_home: Path) -> Path:
    """Airflow's metadata database, migrated once a session."""
    from airflow.utils.db import initdb

    initdb()
    return airflow_home / "airflow.db"


@pytest.fixture
def cpaas_default(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Sandbox:
    """The connection ``cpaas_default``, leading to the sandbox; returns the sandbox."""
    monkeypatch.setenv("AIRFLOW_CONN_CPAAS_DEFAULT", connection_json(sandbox.connection))
    return sandbox
