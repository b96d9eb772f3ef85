"""Where the database is without configuration, and whether it may exist. This module does not load SQLAlchemy."""

from __future__ import annotations

import os
from pathlib import Path

_LOCAL = "LocalExecutor"
_PODS = {"AIRFLOW_IS_K8S_EXECUTOR_POD": "KubernetesExecutor"}


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


def spreading_executor() -> str:
    """Return the executor, if each of its workers has a file of its own; empty if all tasks share one database."""
    from airflow.sdk.configuration import conf

    if configured():
        return ""
    # The pods of an executor may be configured with another one, as they start no tasks.
    for variable, executor in _PODS.items():
        if os.environ.get(variable):
            return executor
    executors = (conf.get("core", "executor", fallback=None) or _LOCAL).replace(";", ",").split(",")
    names = [text.split(":")[-1].split(".")[-1].strip() for text in executors]
    return next((name for name in names if name and name != _LOCAL), "")
