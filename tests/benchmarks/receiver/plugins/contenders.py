"""Has Airflow's API server mount the contenders beside the receiver."""

from __future__ import annotations

from typing import Any

from airflow.plugins_manager import AirflowPlugin


class Contenders(AirflowPlugin):
    name = "contenders"

    @property
    def fastapi_apps(self) -> list[dict[str, Any]]:  # type: ignore[override]
        from tests.benchmarks.receiver.contenders import bare, singly

        apps = {"bare": bare, "singly": singly}
        return [{"app": make(), "url_prefix": f"/{name}", "name": name} for name, make in apps.items()]
