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
    """Mounts our pages on the API server."""

    name = "cpaas"

    @functools.cached_property
    def fastapi_apps(self) -> list[dict[str, Any]]:  # type: ignore[override]  # Airflow's is a plain list
        """The applications to mount; built when the API server asks."""
        return [{"app": _pages(), "url_prefix": URL_PREFIX, "name": "CPaaS"}]


def _pages() -> Any:
    """Build the application. Nothing on it answers without an Airflow login, its own documentation included."""
    from airflow.api_fastapi.core_api.security import get_user
    from fastapi import Depends, FastAPI

    from cpaas_provider import __version__

    app = FastAPI(title="CPaaS", openapi_url=None, docs_url=None, redoc_url=None, dependencies=[Depends(get_user)])

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok", "version": __version__}

    return app
