"""The pages on both databases, behind a login that says which DAGs its user may read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import pytest
from fastapi import FastAPI, Header, HTTPException
from fastapi.testclient import TestClient

from cpaas_provider.database.database import Database
from cpaas_provider.delivery.receiver.app import ReceiverApp
from cpaas_provider.hooks._account.options import BudgetOptions
from cpaas_provider.pages.access import Viewer
from cpaas_provider.pages.app import add_pages
from cpaas_provider.pages.base import TaskStates

# As fixtures.
from tests.unit.database.conftest import database as database
from tests.unit.database.conftest import postgres_url as postgres_url
from tests.unit.database.conftest import sqlite_url as sqlite_url
from tests.unit.database.conftest import url as url

ALL = "*"


def viewer(x_dags: Annotated[str, Header()] = "", x_totals: Annotated[str, Header()] = "") -> Viewer:
    """Admit whoever names the DAGs that may be read."""
    if not x_dags:
        raise HTTPException(401)
    allowed = set(x_dags.split())
    return Viewer(lambda dag_ids: {one for one in dag_ids if one in allowed or ALL in allowed}, bool(x_totals))


BUDGETS = {"limited": BudgetOptions({"daily_budget": 500.0, "monthly_budget": 8000.0}, "Africa/Lagos", {})}
"""The budgets of the connections that have some."""


def mounted(database: Database, task_states: TaskStates = lambda places: {}) -> FastAPI:
    """Return an application with the pages under the path that the plugin uses.

    :param task_states: Airflow's states of task instances; none by default, as of an Airflow that has no such tasks
    """
    outer = FastAPI()
    receiver = ReceiverApp(openapi_url=None)
    regions = {"shop": "NG"}.get
    outer.mount("/cpaas", add_pages(receiver, viewer, lambda: database, task_states, regions, BUDGETS.get))
    return outer


@pytest.fixture
def anonymous(database: Database) -> Iterator[TestClient]:
    """Somebody who is not logged in."""
    with TestClient(mounted(database), base_url="http://testserver/cpaas") as client:
        yield client


@pytest.fixture
def reader(database: Database) -> Iterator[TestClient]:
    """Somebody who may read every DAG."""
    headers = {"x-dags": ALL, "x-totals": "yes"}
    with TestClient(mounted(database), base_url="http://testserver/cpaas", headers=headers) as client:
        yield client
