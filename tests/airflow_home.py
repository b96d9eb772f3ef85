"""An Airflow of the tests' own. Knows only environment variables, because it must act before Airflow is imported."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path


def without_airflow(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which nothing of the user's Airflow is left."""
    return {name: value for name, value in environment.items() if not name.startswith(("AIRFLOW_", "_AIRFLOW_"))}


def settings_for(home: Path) -> dict[str, str]:
    """Return the variables that give Airflow a home of its own: SQLite, no examples, nothing sent anywhere."""
    return {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home / 'airflow.db'}",
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(home / "logs"),
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        **({"AIRFLOW__CPAAS__JOURNAL": "database"} if os.environ.get("TEST_JOURNAL") else {}),
    }


def move_in() -> Path:
    """Give this process a fresh Airflow home in a temporary folder, and return it."""
    home = Path(tempfile.mkdtemp(prefix="cpaas-airflow-"))
    (home / "dags").mkdir()
    kept = without_airflow(os.environ)
    for name in set(os.environ) - set(kept):
        del os.environ[name]
    os.environ.update(settings_for(home))
    return home
