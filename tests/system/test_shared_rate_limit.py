"""Two mapped campaigns at a time under one rate limit, on a real Airflow, by the sandbox's record of their requests."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox import Sandbox, connection_json
from tests.system.standalone import Standalone
from tests.unit.database.conftest import postgres_url as postgres_url
from tests.unit.database.conftest import sqlite_url as sqlite_url
from tests.unit.database.conftest import url as url
from tests.unit.database.test_rate_limit_processes import arrivals

pytestmark = pytest.mark.skipif(
    not os.environ.get("TORTURE"), reason="make torture: the slow tests do the same with processes"
)

DAGS = Path(__file__).parent / "rate_limited" / "dags"
RATE = 10
RECIPIENTS = 150
"""Of each campaign. Two at a time without a shared limit would take 15 seconds, and with it they take 30."""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Sandbox]:
    with Sandbox(tmp_path / "sandbox.log") as running:
        yield running


@pytest.fixture
def airflow(tmp_path: Path, service: Sandbox, url: str) -> Iterator[Standalone]:
    limits = {"recipients_per_request": 1, "requests_per_second": RATE, "share_rate_limit": True}
    connection = connection_json(service.connection, **limits)
    settings = {"AIRFLOW_CONN_CPAAS_DEFAULT": connection, "AIRFLOW__CPAAS__DATABASE": url}
    with Standalone(tmp_path / "airflow", DAGS, settings) as running:
        yield running


def test_two_mapped_campaigns_at_a_time_keep_to_one_limit(
    airflow: Standalone, service: Sandbox, tmp_path: Path
) -> None:
    runs = {}
    numbers: list[str] = []
    for place, dag_id in enumerate(("morning", "evening")):
        theirs = [f"23480{31_000_000 + place * RECIPIENTS + number:08d}" for number in range(RECIPIENTS)]
        file = tmp_path / f"{dag_id}.csv"
        file.write_text("phone\n" + "".join(f"+{number}\n" for number in theirs))
        runs[dag_id] = airflow.trigger(dag_id, {"source": str(file)})
        numbers += theirs
    for dag_id, run_id in runs.items():
        assert airflow.ended(dag_id, run_id, 300) == "success"
    found: Counter[str] = Counter()
    for offset in range(0, len(numbers), 200):
        found.update(one["recipient"] for one in service.inbox("sms", limit=200, offset=offset)["items"])
    assert found == Counter(numbers)
    # The moments are evenly spaced, and the first request may have been late.
    moments = arrivals(service)
    assert moments[-1] - moments[0] >= (len(moments) - 1) / RATE - 3
