"""What this provider adds to Airflow's API server, under ``/cpaas``.

Airflow imports this module in every process that loads plugins, task processes included, so it builds the web
application only where somebody asks for it: in the API server.
"""

from __future__ import annotations

import functools
from typing import Any

from airflow.sdk.plugins_manager import AirflowPlugin

URL_PREFIX = "/cpaas"


class CpaasPlugin(AirflowPlugin):
    """Mounts the receiver of delivery reports on the API server, which starts DAGs on them from then on."""

    name = "cpaas"

    @functools.cached_property
    def fastapi_apps(self) -> list[dict[str, Any]]:  # type: ignore[override]  # Airflow's is a plain list
        """The applications to mount; built when the API server asks."""
        return [{"app": _receiver(), "url_prefix": URL_PREFIX, "name": "CPaaS"}]

    @functools.cached_property
    def fastapi_root_middlewares(self) -> list[dict[str, Any]]:  # type: ignore[override]  # as above
        """What keeps callback tokens out of the access log, also of requests that miss our applications."""
        from cpaas_provider.delivery.hidden_tokens import HidesTokens

        return [{"middleware": HidesTokens, "name": "CPaaS: callback tokens out of the access log"}]


def _receiver() -> Any:
    """Build the application. But for the two doors, nothing on it answers without an Airflow login."""
    from airflow.api_fastapi.core_api.security import get_user

    from cpaas_provider.assets.teller import telling
    from cpaas_provider.delivery.assembly import assemble
    from cpaas_provider.hooks.receiving import connection_of_reports, expected_connections, observer

    return telling(assemble(connection_of_reports, guard=get_user, observe=observer(), expected=expected_connections))
