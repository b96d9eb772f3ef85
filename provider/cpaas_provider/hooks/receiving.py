"""What a receiver of delivery reports needs of Airflow: connections by their id, and somewhere to count."""

from __future__ import annotations

from datetime import timedelta

from cpaas_provider.hooks.connection import CpaasConnection, read_connection

METRICS = "cpaas.delivery"


def connection_of_reports(conn_id: str) -> CpaasConnection | None:
    """Read a connection as it is now; ``None`` where there is none of type ``cpaas``.

    It blocks. A secrets backend may raise anything.

    :raises CpaasConfigurationError: when an extra of it cannot be used
    """
    from airflow.sdk import BaseHook
    from airflow.sdk.exceptions import AirflowNotFoundException

    try:
        connection = BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        return None
    return read_connection(connection) if connection.conn_type == "cpaas" else None


def observe(name: str, value: int | float) -> None:
    """Publish a measurement among Airflow's metrics, under ``cpaas.delivery``: an ``int`` counts, a ``float`` lasts."""
    from airflow.observability import stats

    if isinstance(value, float):
        stats.timing(f"{METRICS}.{name}", timedelta(seconds=value))
    else:
        stats.incr(f"{METRICS}.{name}", value)


def publish_metrics() -> None:
    """Have ``observe`` publish where Airflow's configuration says, in a process that is none of Airflow's own."""
    from airflow.configuration import conf
    from airflow.observability import stats
    from airflow.observability.metrics.stats_utils import get_stats_factory

    legacy = conf.getboolean("metrics", "legacy_names_on", fallback=True)
    stats.initialize(factory=get_stats_factory(), export_legacy_names=legacy)
