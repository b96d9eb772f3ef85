"""Plays scripts on both databases."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from cpaas_provider.database.database import Database, open_database
from cpaas_provider.delivery.tracking import events
from tests.unit.delivery.tracking.model.delivery_script import Script, Step
from tests.unit.delivery.tracking.model.delivery_views import DeliveryViews
from tests.unit.delivery.tracking.model.delivery_world import DeliveryWorld
from tests.unit.pages.conftest import ALL, mounted

Play = Callable[..., None]


@pytest.fixture
def play(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Play]:
    """Plays a script on a database that is empty before."""
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", url)
    monkeypatch.setattr(events, "MIN_BATCH_INTERVAL", timedelta(0))
    logging.disable(logging.CRITICAL)
    with contextlib.ExitStack() as stack:
        stack.callback(logging.disable, logging.NOTSET)
        database: Database = stack.enter_context(open_database())
        headers = {"x-dags": ALL, "x-totals": "yes"}
        pages = stack.enter_context(TestClient(mounted(database), base_url="http://testserver", headers=headers))

        def run(*steps: Step, tracked: tuple[str, ...] = ()) -> None:
            with DeliveryWorld(database, tracked=tracked) as world:
                Script(world, DeliveryViews(world, tmp_path, pages)).run(list(steps))

        yield run
