"""Where the database is: by Airflow's configuration, ``[cpaas] database``, or else a file in Airflow's home."""

from __future__ import annotations

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

_UP_TO_THE_PLACE = re.compile(r"[^:]*://(?:[^:/]*(?::[^@]*)?@)?")
"""What SQLAlchemy takes for user and password, and all before."""

_CONN_ID = re.compile(r"[\w.-]{1,250}")
"""What is surely no URL."""

# What a connection's extras may say to PostgreSQL's own client; the rest is for Airflow's hook.
_FOR_POSTGRES = (
    "application_name", "channel_binding", "connect_timeout", "gssencmode", "keepalives", "keepalives_count",
    "keepalives_idle", "keepalives_interval", "krbsrvname", "options", "sslcert", "sslcrl", "sslkey", "sslmode",
    "sslpassword", "sslrootcert", "target_session_attrs", "tcp_user_timeout",
)  # fmt: skip


def resolve_url(store: str | None = None) -> URL:
    """Return where the database is.

    :param store: a URL of SQLAlchemy or the id of an Airflow connection; ``None`` for what the configuration says
    :raises DatabaseError: when that names no database we can use
    """
    store = (store or configured()).strip()
    if not store:
        return URL.create("sqlite", database=str(default_file()))
    return _usable(_of_text(store) if "://" in store else _of_connection(store))


def redacted(url: URL) -> str:
    """Return the URL without anything that may be secret."""
    shown = URL.create(url.drivername, url.username, host=url.host, port=url.port, database=url.database)
    return shown.render_as_string()


def _of_text(text: str) -> URL:
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        # Their words show the URL, and with it the password.
        url = None
    if url is None or _is_torn(text, url):
        raise DatabaseError(
            "[cpaas] database is not a URL that SQLAlchemy can read. Percent-encode characters such as @ and / in a "
            "user or password (@ is %40, / is %2F). Or name an Airflow connection instead."
        )
    return url


def _is_torn(text: str, url: URL) -> bool:
    """Tell whether an @ in the password has cut it in two, and the rest is taken for a host, and shown as one."""
    return url.get_backend_name() != "sqlite" and "@" in _UP_TO_THE_PLACE.sub("", text, count=1)


def _of_connection(conn_id: str) -> URL:
    from airflow.sdk import BaseHook
    from airflow.sdk.exceptions import AirflowNotFoundException

    try:
        connection: Connection = BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        # It may be a mistyped URL, with its password.
        named = f" {conn_id!r}" if _CONN_ID.fullmatch(conn_id) else ""
        raise DatabaseError(
            f"[cpaas] database names the connection{named}, which does not exist. Create it, or set a URL instead "
            "(postgresql://..., sqlite:////...)."
        ) from None
    if connection.conn_type in _POSTGRES:
        given = {name: connection.extra_dejson.get(name) for name in _FOR_POSTGRES}
        return URL.create(
            "postgresql",
            username=connection.login or None,
            password=connection.password or None,
            host=connection.host or None,
            port=connection.port or None,
            database=connection.schema or None,
            query={name: str(value) for name, value in given.items() if value not in (None, "")},
        )
    if connection.conn_type == "sqlite":
        return URL.create("sqlite", database=connection.host)
    raise DatabaseError(
        f"[cpaas] database names the connection {conn_id!r} of type {connection.conn_type!r}, which cannot be used. "
        "Name one of type postgres or sqlite, or set the SQLAlchemy URL of another database."
    )


def _usable(url: URL) -> URL:
    if url.drivername in _POSTGRES:
        # What the bare name stands for differs between versions of SQLAlchemy.
        only_newer = find_spec("psycopg2") is None and find_spec("psycopg") is not None
        url = url.set(drivername="postgresql+psycopg" if only_newer else "postgresql+psycopg2")
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
    if dialect.name == "sqlite":
        _check_file(url.database or "")
    return url


def _check_file(path: str) -> None:
    if not Path(path).is_absolute():
        raise DatabaseError(
            "[cpaas] database must name its SQLite file by an absolute path (sqlite:////var/lib/cpaas.db). Every "
            "process needs the same file, and a database in memory would not last."
        )
