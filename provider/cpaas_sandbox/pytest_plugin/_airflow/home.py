"""An Airflow of the tests' own: a home in a temporary folder, with a metadata database in SQLite.

Airflow reads its home when it is first imported, which the tests' modules may have done. So its database is configured
anew, for as long as a test runs.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

_DATABASE = "airflow.db"
_BUNDLES = [
    {"name": "dags-folder", "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle", "kwargs": {}},
]


class AirflowHomes:
    """Makes Airflow homes, each with an empty metadata database.

    :param folder: an empty folder for all of them
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self._empty = self._make("empty")
        with _airflow_in(self._empty):
            from airflow.utils.db import initdb

            initdb()

    @contextlib.contextmanager
    def open(self) -> Iterator[Path]:
        """Have Airflow use a new home until the block ends. Yield its folder."""
        self._count += 1
        home = self._make(f"home-{self._count}")
        shutil.copy(self._empty / _DATABASE, home / _DATABASE)
        with _airflow_in(home):
            yield home
        shutil.rmtree(home, ignore_errors=True)

    def _make(self, name: str) -> Path:
        home = self._folder / name
        (home / "dags").mkdir(parents=True)
        return home


def _variables(home: Path) -> Mapping[str, str]:
    """Return the environment variables of a home. What they leave open is as the user configured it."""
    return {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CPAAS__DATABASE": "",
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(_BUNDLES),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home / _DATABASE}",
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(home / "logs"),
        "AIRFLOW__SECRETS__BACKEND": "",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
    }


@contextlib.contextmanager
def _airflow_in(home: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC", raising=False)
        for name, value in _variables(home).items():
            patch.setenv(name, value)
        _configure()
        try:
            yield
        finally:
            patch.undo()
            _configure()


def _configure() -> None:
    """Have Airflow take its database from the environment as it is now."""
    from airflow import settings

    # Airflow leaves these functions without annotations.
    configurable: Any = settings
    configurable.dispose_orm(do_log=False)
    configurable.configure_vars()
    configurable.configure_orm()
