"""Where the database is without configuration, and whether it may exist. This module does not load SQLAlchemy."""

from __future__ import annotations

import os
from pathlib import Path


def configured() -> str:
    """Return the value of ``[cpaas] database``, empty if it is not set."""
    from airflow.sdk.configuration import conf

    return (conf.get("cpaas", "database", fallback=None) or "").strip()


def default_file() -> Path:
    """Return the SQLite file that is used if ``[cpaas] database`` is not set."""
    home = os.path.expandvars(os.environ.get("AIRFLOW_HOME") or "~/airflow")
    return Path(home).expanduser().absolute() / "cpaas" / "cpaas.db"


def may_exist() -> bool:
    """Return whether a database may exist. If none does, nothing was ever stored."""
    # A symbolic link to a file that is missing now shows that there was one.
    return bool(configured()) or os.path.lexists(default_file())
