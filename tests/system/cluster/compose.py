"""The compose file of the repository, as far as it means something without a container engine."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml

COMPOSE = Path(__file__).parents[3] / "deploy" / "compose.yaml"
SERVICES = frozenset(
    {
        "build",
        "command",
        "configs",
        "depends_on",
        "entrypoint",
        "environment",
        "healthcheck",
        "image",
        "ports",
        "restart",
        "stop_grace_period",
        "volumes",
    }
)
"""The attributes of a service that the file uses, all of the compose specification."""


@cache
def compose() -> Any:
    """Return the file, its anchors and merges resolved."""
    return yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))


def common_settings() -> dict[str, str]:
    """Return the settings of Airflow in it that name no server and no secret."""
    settings: dict[str, str] = compose()["x-airflow"]["environment"]
    return {
        name: value
        for name, value in settings.items()
        if name.startswith("AIRFLOW__") and "$" not in value and "://" not in value
    }
