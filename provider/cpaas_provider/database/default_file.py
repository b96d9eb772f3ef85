"""Where the database is without configuration, and whether there can be anything in it. Loads no SQLAlchemy."""

from __future__ import annotations

import os
from pathlib import Path


def configured() -> str:
    """Return what ``[cpaas] database`` says, empty where it says nothing."""
    from airflow.sdk.configuration import conf

    return (conf.get("cpaas", "database", fallback=None) or "").strip()


def default_file() -> Path:
    """Return the SQLite file that is used where nothing is configured."""
    home = os.path.expandvars(os.environ.get("AIRFLOW_HOME") or "~/airflow")
    return Path(home).expanduser().absolute() / "cpaas" / "cpaas.db"


def may_exist() -> bool:
    """Return whether a database may exist. Where none does, nothing was ever stored in it."""
    return bool(configured()) or default_file().exists()
