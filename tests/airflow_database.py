"""Airflow's metadata database in a file of SQLite: migrated once a session, and copied for each Airflow."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.airflow_home import settings_for, without_airflow

MIGRATED_WITHIN = 600.0


def make_airflow_database(home: Path) -> None:
    """Make the database of an Airflow in its home, where ``settings_for`` says it is."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    (home / "airflow.db").write_bytes(_migrated())


@functools.cache
def _migrated() -> bytes:
    """Return a database that ``airflow db migrate`` made: that takes an interpreter and seconds each time."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [str(Path(sys.executable).with_name("airflow")), "db", "migrate"],
            env={**without_airflow(os.environ), **settings_for(Path(folder))},
            capture_output=True,
            text=True,
            timeout=MIGRATED_WITHIN,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"airflow db migrate failed:\n{done.stderr[-4000:]}")
        return (Path(folder) / "airflow.db").read_bytes()
