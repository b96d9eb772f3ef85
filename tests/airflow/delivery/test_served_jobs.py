"""What Airflow's API server runs beside the web application that the plugin gives it."""

from __future__ import annotations

import threading

from fastapi.testclient import TestClient

from cpaas_provider.database.database import open_database
from cpaas_provider.plugin import CpaasPlugin
from tests.unit.delivery.test_pruner import count, fill
from tests.waiting import until

JOBS = {"cpaas-pruner", "cpaas-notifications", "cpaas-publisher"}


def running_threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


def test_application_of_the_plugin_prunes_sends_and_publishes_while_it_is_served(own_database: None) -> None:
    [mounted] = CpaasPlugin().fastapi_apps
    with open_database() as database:
        fill(database, 1, 250)
        with TestClient(mounted["app"]):
            assert running_threads() >= JOBS
            until(lambda: count(database) == 1)
    assert running_threads().isdisjoint(JOBS)
