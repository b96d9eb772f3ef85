"""The address of the database: ``[cpaas] database`` in Airflow's configuration, or else a file in Airflow's home."""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from cpaas_provider.database.default_file import configured, default_file
from cpaas_provider.database.errors import DatabaseError

if TYPE_CHECKING:
    from airflow.sdk import Connection

_POSTGRES = ("postgres", "postgresql")

_UP_TO_HOST = re.compile(r"[^:]*://(?:[^:/]*(?::[^@]*)?@)?")
"""The scheme, user and password of a URL, as SQLAlchemy reads them."""

_CONN_ID = re.compile(r"[\w.-]{1,250}")
"""A connection id, and certainly no URL."""

# The extras of a connection that are passed to PostgreSQL's client library. All others are for Airflow's hook.
_POSTGRES_EXTRAS = (
    "application_name", "channel_binding", "connect_timeout", "gssencmode", "keepalives", "keepalives_count",
    "keepalives_idle", "keepalives_interval", "krbsrvname", "options", "sslcert", "sslcrl", "sslkey", "sslmode",
    "sslpassword", "sslrootcert", "target_session_attrs", "tcp_user_timeout",
)  # fmt: skip


def resolve_url(store: str | None = None) -> URL:
    """Return the URL of the database.

    :param store: a URL of SQLAlchemy or the id of an Airflow connection; ``None`` for the configured one
    :raises DatabaseError: when it names no database that can be used
    """
    store = (store or configured()).strip()
    if not store:
        return _of_file(URL.create("sqlite", database=str(default_file())))
    return _of_file(_usable(_parse(store) if "://" in store else _read_connection(store)))


def _of_file(url: URL) -> URL:
    """Return the URL of the file itself if the URL names a symbolic link to it.

    SQLite names its write-ahead log after the file. So must the lock be, or two processes migrate at once.
    """
    path = url.database or ""
    if url.get_backend_name() != "sqlite" or not os.path.islink(path):  # noqa: PTH114 - it raises no PermissionError
        return url
    try:
        return url.set(database=str(Path(path).resolve(strict=True)))
    except (OSError, RuntimeError) as error:
        # Before Python 3.13, a loop is a RuntimeError.
        reason = error.strerror if isinstance(error, OSError) else "the links form a loop"
        raise DatabaseError(
            f"The database was not opened, because {path} is a symbolic link that leads to no file ({reason}). Create "
            "the file that it should name, or remove the link. Nothing was stored."
        ) from None


def redacted(url: URL) -> str:
    """Return the URL without password and options, which may be secret."""
    shown = URL.create(url.drivername, url.username, host=url.host, port=url.port, database=url.database)
    return shown.render_as_string()


def _parse(text: str) -> URL:
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        # The error's message would show the URL, and with it the password.
        url = None
    if url is None or _is_split_in_password(text, url):
        raise DatabaseError(
            "[cpaas] database is not a URL that SQLAlchemy can read. Percent-encode characters such as @ and / in a "
            "user or password (@ is %40, / is %2F). Or name an Airflow connection instead."
        )
    return url


def _is_split_in_password(text: str, url: URL) -> bool:
    """Return whether the password contains an @, so that its rest is read as the host, and would be shown."""
    return url.get_backend_name() != "sqlite" and "@" in _UP_TO_HOST.sub("", text, count=1)


def _read_connection(conn_id: str) -> URL:
    from airflow.sdk import BaseHook
    from airflow.sdk.exceptions import AirflowNotFoundException

    try:
        connection: Connection = BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        # Shown only if it cannot be a mistyped URL with a password.
        named = f" {conn_id!r}" if _CONN_ID.fullmatch(conn_id) else ""
        raise DatabaseError(
            f"[cpaas] database names the connection{named}, which does not exist. Create it, or set a URL instead "
            "(postgresql://..., sqlite:////...)."
        ) from None
    if connection.conn_type in _POSTGRES:
        extras = {name: connection.extra_dejson.get(name) for name in _POSTGRES_EXTRAS}
        return URL.create(
            "postgresql",
            username=connection.login or None,
            password=connection.password or None,
            host=connection.host or None,
            port=connection.port or None,
            database=connection.schema or None,
            query={name: str(value) for name, value in extras.items() if value not in (None, "")},
        )
    if connection.conn_type == "sqlite":
        return URL.create("sqlite", database=connection.host)
    raise DatabaseError(
        f"[cpaas] database names the connection {conn_id!r} of type {connection.conn_type!r}, which cannot be used. "
        "Name one of type postgres or sqlite, or set the SQLAlchemy URL of another database."
    )


def _usable(url: URL) -> URL:
    if url.drivername in _POSTGRES:
        # The driver is named, because the default driver differs between versions of SQLAlchemy.
        has_only_psycopg3 = find_spec("psycopg2") is None and find_spec("psycopg") is not None
        url = url.set(drivername="postgresql+psycopg" if has_only_psycopg3 else "postgresql+psycopg2")
    try:
        dialect = url.get_dialect()
    except ArgumentError:
        raise DatabaseError(
            f"[cpaas] database uses {url.drivername!r}, which SQLAlchemy on this machine does not support. Install its "
            "dialect here, or set another database."
        ) from None
    if dialect.is_async:
        raise DatabaseError(
            f"[cpaas] database names the asynchronous driver {url.drivername!r}. Name a synchronous driver instead."
        )
    if dialect.name == "sqlite" and not Path(url.database or "").is_absolute():
        raise DatabaseError(
            "[cpaas] database must name its SQLite file by an absolute path (sqlite:////var/lib/cpaas.db). Every "
            "process needs the same file, and a database in memory would not last."
        )
    return url
