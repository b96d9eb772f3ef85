"""What a send must know of the database at once. Nothing here loads SQLAlchemy, which takes longer than the send.

It is where the database is without configuration, whether it may exist, whether its suppression list has entries, and
whether a connection is stopped.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from cpaas_provider.database import REVISIONS

LOCK_TIMEOUT = 30
"""How long to wait for another process's transaction, in seconds."""

_STOP_TIMEOUT = 5
"""The same for a read that requests wait for."""

ALL_CONNECTIONS = ""
ALL_CHANNELS = "all"
"""The connection and the channel of an entry of the suppression list that applies to all of them."""

_SQLITE = "sqlite:///"
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
    if configured():
        return True
    try:
        # A symbolic link to a file that is missing now shows that there was one.
        os.lstat(default_file())
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        # This user may not look into the folder.
        return True
    return True


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


def describe_spreading(executor: str, owned: str = "file") -> str:
    """Return in a sentence that the workers of an executor do not share a database.

    :param owned: what each of them has instead
    """
    return (
        f"[cpaas] database is not set, and the tasks of {executor} run on several machines, each with a {owned} of its "
        "own."
    )


class Stop(NamedTuple):
    """Who stopped the requests of a connection, when and why.

    :param reason: without personal data; empty if none was given
    """

    stopped_at: datetime
    stopped_by: str
    reason: str

    def describe(self, conn_id: str) -> str:
        """Return it as a sentence."""
        why = f": {self.reason.rstrip('.')}." if self.reason else "."
        return f"{self.stopped_by} stopped connection {conn_id!r} at {self.stopped_at:%Y-%m-%d %H:%M:%S} UTC{why}"


def suppresses_any(conn_id: str, channel: str, reasons: Collection[str] | None) -> bool | None:
    """Return whether any entry of the suppression list applies to a connection and channel, by one query.

    :param reasons: which entries count; ``None`` for all
    :return: ``None`` where SQLAlchemy must find out, see ``_read``
    :raises DatabaseError: when another process has locked the file for too long
    """
    applies = "conn_id IN (?, ?) AND channel IN (?, ?)"
    if reasons:
        applies += f" AND reason IN ({', '.join('?' * len(reasons))})"
    query = f"SELECT version_num, EXISTS (SELECT 1 FROM cpaas_suppressions WHERE {applies}) FROM cpaas_alembic_version"  # noqa: S608 - no value
    row = _read(query, (conn_id.lower(), ALL_CONNECTIONS, channel, ALL_CHANNELS, *(reasons or ())), LOCK_TIMEOUT)
    return None if row is None else bool(row[0])


def read_stops(conn_id: str) -> list[Stop] | None:
    """Return the stop of a connection, by one query; an empty list if its requests may leave.

    :return: ``None`` where SQLAlchemy must find out, see ``_read``
    :raises DatabaseError: when another process has locked the file for too long
    """
    query = (
        "SELECT version_num, stopped_at, stopped_by, reason FROM cpaas_alembic_version "
        "LEFT JOIN cpaas_stops ON conn_id = ?"
    )
    row = _read(query, (conn_id.lower(),), _STOP_TIMEOUT)
    if row is None or row[0] is None:
        return None if row is None else []
    return [Stop(datetime.fromisoformat(row[0]).replace(tzinfo=UTC), row[1], row[2])]


def is_missing() -> bool:
    """Return whether the database is a SQLite file that does not exist, so that nothing was ever stored."""
    path = _plain_path()
    return path is not None and not os.path.lexists(path)


def _plain_path() -> Path | None:
    """Return the path of the SQLite file; ``None`` for another database, or a URL that SQLAlchemy must read."""
    url = configured()
    # Some versions of SQLAlchemy decode a path with percent signs.
    if (url and not url.startswith(f"{_SQLITE}/")) or "?" in url or "%" in url:
        return None
    return Path(url.removeprefix(_SQLITE)) if url else default_file()


def _read(query: str, values: Sequence[Any], timeout: float) -> Sequence[Any] | None:
    """Return the row of a query without its first column, which is the version of the tables.

    :return: ``None`` where SQLAlchemy must find out: the database is no SQLite file in its newest version, or fails
    :raises DatabaseError: when another process has locked the file for too long
    """
    path = _plain_path()
    # Path.is_file raises PermissionError.
    if path is None or not os.path.isfile(path) or os.path.islink(path):  # noqa: PTH113, PTH114
        return None
    import sqlite3

    from cpaas_provider.database._engine.sqlite_file import open_lock

    with open_lock(path, timeout), contextlib.suppress(sqlite3.Error):
        connection = sqlite3.connect(f"{path.as_uri()}?mode=rw", timeout, uri=True)
        with contextlib.closing(connection):
            rows = {version: columns for version, *columns in connection.execute(query, values).fetchall()}
        return rows.get(REVISIONS[-1])
    return None
