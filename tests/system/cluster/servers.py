"""Databases of the cluster's own in PostgreSQL, and a numbered one in Redis; all of it is gone afterwards."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, NamedTuple

import sqlalchemy

POSTGRES = "postgresql+psycopg2://postgres@127.0.0.1:5432/test"
REDIS = "redis://127.0.0.1:6379"
CLAIM = "cpaas-tests-claim"
# 0 is what programs take that nobody told a number.
NUMBERS = range(15, 0, -1)
CONNECT_TIMEOUT = 3


class MissingServerError(RuntimeError):
    """A server or package that the cluster needs is not here; the message says which."""


class Databases(NamedTuple):
    """URLs of databases in PostgreSQL.

    :param airflow: Airflow's metadata
    :param provider: what ``[cpaas] database`` names
    :param shop: where the recipients and the contacts are
    """

    airflow: str
    provider: str
    shop: str


@dataclass(frozen=True)
class Servers:
    """Where everything is.

    :param redis: URL of the numbered database; empty where nothing needs one
    """

    databases: Databases
    redis: str = ""


@contextmanager
def own_servers(postgres: str = POSTGRES, redis: str | None = REDIS) -> Iterator[Servers]:
    """Give databases that are empty and nobody else's, and remove them afterwards.

    :param postgres: URL of a database whose user may create others
    :param redis: URL of the server; ``None`` for none
    :raises MissingServerError: when a server or a package is missing
    """
    with ExitStack() as stack:
        databases = stack.enter_context(_own_databases(postgres))
        yield Servers(databases, stack.enter_context(_own_number(redis)) if redis else "")


@contextmanager
def _own_databases(url: str) -> Iterator[Databases]:
    if find_spec("psycopg2") is None:
        raise MissingServerError("psycopg2 is not installed")
    address = sqlalchemy.make_url(url)
    engine = sqlalchemy.create_engine(
        address, isolation_level="AUTOCOMMIT", connect_args={"connect_timeout": CONNECT_TIMEOUT}
    )
    prefix = f"cpaas_cluster_{secrets.token_hex(4)}"
    names = [f"{prefix}_{what}" for what in Databases._fields]

    def run(statement: str) -> None:
        with engine.connect() as connection:
            connection.execute(sqlalchemy.text(statement))

    with ExitStack() as made:
        made.callback(engine.dispose)
        for name in names:
            try:
                run(f"CREATE DATABASE {name}")
            except sqlalchemy.exc.OperationalError as error:
                raise MissingServerError(f"no PostgreSQL at {address.host}:{address.port} lets us in") from error
            except sqlalchemy.exc.ProgrammingError as error:
                raise MissingServerError(f"the user {address.username} may not create databases") from error
            made.callback(run, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        yield Databases(*(address.set(database=name).render_as_string(hide_password=False) for name in names))


@contextmanager
def _own_number(url: str) -> Iterator[str]:
    """Claim a numbered database that is empty; flush that one, and no other, at the end."""
    if find_spec("airflow.providers.celery") is None:
        raise MissingServerError("apache-airflow-providers-celery is not installed")
    from redis import Redis
    from redis.exceptions import ConnectionError as NoConnectionError

    for number in NUMBERS:
        client: Any = Redis.from_url(url, db=number, socket_connect_timeout=CONNECT_TIMEOUT)
        with closing(client):
            try:
                # Of two that find it empty, one gets the claim.
                claimed = not client.dbsize() and client.set(CLAIM, socket.gethostname(), nx=True)
            except NoConnectionError as error:
                raise MissingServerError(f"no Redis answers at {url}") from error
            if claimed:
                try:
                    yield f"{url.rstrip('/')}/{number}"
                finally:
                    client.flushdb()
                return
    raise MissingServerError(f"no numbered database of Redis at {url} is empty")
