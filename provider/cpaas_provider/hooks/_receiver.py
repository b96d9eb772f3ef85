"""The receiver's access to Airflow: connections by their id, and metrics."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from cpaas_provider.hooks.connection import CpaasConnection, read_connection
from cpaas_provider.hooks.metrics import DELIVERY

log = logging.getLogger(__name__)

_ENVIRONMENT_PREFIX = "AIRFLOW_CONN_"


def get_receiver_connection(conn_id: str) -> CpaasConnection | None:
    """Read a connection, ``None`` if there is none of type ``cpaas``.

    A secrets backend may treat several spellings as one name, as the environment does with capitals. Then only one
    spelling has a webhook secret. Otherwise a signed report could be sent again and counted once for each spelling.

    It blocks. A secrets backend may raise any exception.

    :raises CpaasConfigurationError: when an extra of it cannot be used
    """
    from airflow.sdk import BaseHook
    from airflow.sdk.exceptions import AirflowNotFoundException

    try:
        connection = BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        return None
    if connection.conn_type != "cpaas":
        return None
    settings = read_connection(connection)
    has_webhook = conn_id == connection.conn_id == receiver_conn_id(conn_id)
    return settings if has_webhook else replace(settings, webhook_secret=None)


def receiver_conn_id(conn_id: str) -> str:
    """Return the one id of a connection at both endpoints: in lower case, if it is in the environment.

    With an id for each spelling, a request would have two: that of its callback URL, and that of the webhook.
    """
    in_environment = f"{_ENVIRONMENT_PREFIX}{conn_id.upper()}" in os.environ
    return conn_id.upper().lower() if in_environment else conn_id


def list_connections() -> Iterator[str]:
    """Yield the ids of the connections in the environment and in Airflow's database. It blocks.

    Connections of other secrets backends cannot be listed.
    """
    for name in os.environ:
        if name.startswith(_ENVIRONMENT_PREFIX):
            yield name.removeprefix(_ENVIRONMENT_PREFIX).lower()
    from airflow.models import Connection
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session(scoped=False) as session:
        names = list(session.scalars(select(Connection.conn_id).where(Connection.conn_type == "cpaas")))
    yield from names


def emit_metric(name: str, value: int | float) -> None:
    """Publish a metric under ``cpaas.delivery``: an ``int`` as a counter, a ``float`` as a timer in seconds."""
    from airflow.observability import stats

    if isinstance(value, float):
        stats.timing(f"{DELIVERY}.{name}", timedelta(seconds=value))
    else:
        stats.incr(f"{DELIVERY}.{name}", value)


def metric_emitter() -> Callable[[str, int | float], None] | None:
    """Return ``emit_metric``, or ``None`` if Airflow publishes no metrics, to save the time of each call."""
    factory = _metrics_factory()
    return None if factory is None or factory.__name__ == "NoStatsLogger" else emit_metric


def initialize_metrics() -> None:
    """Set up Airflow's metrics for ``emit_metric``, in a process that Airflow did not start."""
    from airflow.configuration import conf
    from airflow.observability import stats

    if (factory := _metrics_factory()) is not None:
        legacy = conf.getboolean("metrics", "legacy_names_on", fallback=True)
        stats.initialize(factory=factory, export_legacy_names=legacy)


def _metrics_factory() -> Callable[[], Any] | None:
    """Return what makes Airflow's metrics client, ``None`` if the package that it needs is not installed.

    Airflow 3.4 no longer installs such a package. Delivery reports must be received without it.
    """
    from airflow.observability.metrics.stats_utils import get_stats_factory

    try:
        return get_stats_factory()
    except ImportError as error:
        log.warning("The receiver publishes no metrics, because the package %r is not installed.", error.name)
        return None
