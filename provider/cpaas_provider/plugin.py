"""The web application that this provider adds to Airflow's API server, under ``/cpaas``.

Airflow imports this module in every process that loads plugins, task processes included. The web application is
therefore built on first access, which happens in the API server only.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Any

from airflow.sdk.plugins_manager import AirflowPlugin

if TYPE_CHECKING:
    from cpaas_provider.hooks.connection import CpaasConnection

log = logging.getLogger(__name__)

URL_PREFIX = "/cpaas"


class CpaasPlugin(AirflowPlugin):
    """Mounts the receiver and the pages on the API server, which then publishes events and sends notifications."""

    name = "cpaas"

    @functools.cached_property
    def listeners(self) -> list[Any]:  # type: ignore[override]  # Airflow's is a plain list
        """The listener that task processes call before a task's code."""
        from cpaas_provider.tasks.airflow import task_listener

        # Task processes ask for the listeners before they read the arguments of their task.
        task_listener.allow_results()
        return [task_listener]

    @functools.cached_property
    def fastapi_apps(self) -> list[dict[str, Any]]:  # type: ignore[override]  # Airflow's is a plain list
        """The applications to mount; built on first access."""
        return [{"app": _application(), "url_prefix": URL_PREFIX, "name": "CPaaS"}]

    @functools.cached_property
    def external_views(self) -> list[dict[str, Any]]:  # type: ignore[override]  # as above
        """The entry of the pages in Airflow's navigation, which shows them in a frame."""
        from urllib.parse import urlsplit

        from airflow.sdk.configuration import conf

        base = urlsplit(conf.get("api", "base_url", fallback="") or "/").path.rstrip("/")
        return [
            {
                "name": "CPaaS",
                "href": f"{base}{URL_PREFIX}/campaigns",
                "destination": "nav",
                "url_route": "cpaas",
                "category": "browse",
            }
        ]

    @functools.cached_property
    def fastapi_root_middlewares(self) -> list[dict[str, Any]]:  # type: ignore[override]  # as above
        """The middleware that removes callback tokens from the access log, also for requests to other applications."""
        from cpaas_provider.delivery.receiver.http.access_log import TokenHidingMiddleware

        return [{"middleware": TokenHidingMiddleware, "name": "CPaaS: no callback tokens in the access log"}]


def _application() -> Any:
    """Build the application. All of it but the two endpoints needs an Airflow login."""
    from airflow.api_fastapi.core_api.security import get_user

    from cpaas_provider.assets.publisher import EventPublisher
    from cpaas_provider.delivery.background_job import run_while_serving
    from cpaas_provider.delivery.pruner import Pruner
    from cpaas_provider.delivery.receiver.app import callback_lifetime, create_app
    from cpaas_provider.hooks._account.options import BudgetOptions
    from cpaas_provider.hooks._receiver import get_receiver_connection, list_connections, metric_emitter
    from cpaas_provider.notifications._runtime.background import send_while_serving
    from cpaas_provider.pages.access import airflow_viewer
    from cpaas_provider.pages.app import add_pages

    receiver = create_app(
        get_receiver_connection, guard=get_user, emit_metric=metric_emitter(), expected=list_connections
    )
    serving = send_while_serving(receiver, get_receiver_connection)
    pruned = run_while_serving(serving, lambda: Pruner(callback_lifetime()))

    def find_connection(conn_id: str) -> CpaasConnection | None:
        """Return a connection; ``None`` also if it cannot be read, because a page shows much besides."""
        try:
            return get_receiver_connection(conn_id)
        except Exception as error:  # noqa: BLE001 - a secrets backend may raise anything
            log.debug("Connection %r cannot be read for a page: %s.", conn_id, type(error).__name__)
            return None

    def default_region(conn_id: str) -> str | None:
        connection = find_connection(conn_id)
        return None if connection is None else connection.default_region

    def budget_options(conn_id: str) -> BudgetOptions | None:
        connection = find_connection(conn_id)
        return None if connection is None else connection.budget

    pages = add_pages(pruned, airflow_viewer(), default_region=default_region, budget_options=budget_options)
    return run_while_serving(pages, EventPublisher)
