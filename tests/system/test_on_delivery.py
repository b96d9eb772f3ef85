"""A burst of campaigns that finish starts one run for each, whatever is killed in between.

The same Airflow then has campaigns that are killed, whose pages are read in a browser.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections import Counter
from functools import partial
from pathlib import Path

import psutil
import pytest

from cpaas_provider.database.database import open_database
from cpaas_provider.delivery.tracking.sent_requests import (
    SentRequest,
    TrackedSend,
    record_requests,
    record_send_finished,
    record_send_started,
)
from tests.cpaas_sandbox.page.browser import CHROMIUM, DRIVER
from tests.sandbox import Sandbox, connection_json
from tests.system.incidents import (
    NOT_TODAY,
    PER_REQUEST,
    Incident,
    look_at_kill_and_retry,
    look_at_unknown_requests,
)
from tests.system.killing.parts import API_SERVER, SCHEDULER, AirflowInParts
from tests.system.standalone import wait_for
from tests.system.watched_browser import watching
from tests.unit.delivery.report_builders import ADA, OBI, report, save_reports, token_for

DAGS = Path(__file__).parent / "on_delivery" / "dags"
# More than the publisher tells in one transaction.
BURST = [f"burst-{number}" for number in range(54)]
AFTER_KILLS = [f"later-{number}" for number in range(6)]
INCIDENTS = ("unproven_incident", "proven_incident")
TOLD_WITHIN = 120.0
STARTED_WITHIN = 240.0


@pytest.fixture(scope="module")
def store_file(tmp_path_factory):
    return tmp_path_factory.mktemp("store") / "store.db"


@pytest.fixture(scope="module")
def services(tmp_path_factory):
    """Return a sandbox for each incident, by the name of its DAG and of its connection."""
    with contextlib.ExitStack() as stack:
        yield {
            name: stack.enter_context(Sandbox(tmp_path_factory.mktemp("sandbox") / f"{name}.log")) for name in INCIDENTS
        }


@pytest.fixture(scope="module")
def airflow(tmp_path_factory, store_file, services):
    running = AirflowInParts(tmp_path_factory.mktemp("airflow"), DAGS)
    connections = {
        f"AIRFLOW_CONN_{name.upper()}": connection_json(
            service.connection,
            recipients_per_request=PER_REQUEST,
            max_concurrency=1,
            callback_url=f"{running.url}/cpaas",
            callback_secret=secrets.token_urlsafe(32),
        )
        for name, service in services.items()
    }
    running.settings = {**connections, "AIRFLOW__CPAAS__DATABASE": f"sqlite:///{store_file}"}
    with running:
        for dag_id in ("after_campaign", "after_failure"):
            wait_for(f"Airflow to read {dag_id}", lambda d=dag_id: running.found(f"dags/{d}"), 120.0)
            running.api("PATCH", f"dags/{dag_id}", {"is_paused": False}, update_mask="is_paused")
        yield running
    assert running.remaining() == []


@pytest.fixture
def store(store_file):
    with open_database(f"sqlite:///{store_file}") as opened:
        yield opened


def finish(store, campaigns):
    """Have campaigns to two people end, and then all their reports come in one transaction."""

    def sent(connection):
        for name in campaigns:
            record_send_started(connection, TrackedSend(name, "send_sms", "shop", "dag", "run", "send", -1))
            record_requests(connection, name, "shop", [SentRequest(token_for(campaign=name).reference, 2)])
            record_send_finished(connection, name, 2)

    store.write(sent)
    tokens = [token_for(ADA, OBI, campaign=name) for name in campaigns]
    save_reports(
        store,
        *(report(ADA, "delivered", token=one) for one in tokens),
        *(report(OBI, "failed", token=one) for one in tokens),
    )


def told(airflow):
    """Return how many campaigns Airflow was told of."""
    return airflow.query("SELECT count(*) FROM asset_event WHERE extra LIKE '%\"delivered\"%'")[0][0]


def runs(airflow, dag_id):
    return [key for (key,) in airflow.query("SELECT partition_key FROM dag_run WHERE dag_id = ?", dag_id)]


def kill(airflow, part):
    if part == API_SERVER:
        airflow.kill_api_server()
        return
    for process in airflow.parts[part].processes():
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def nothing_left_to_tell(store):
    with store.connect() as connection:
        return connection.exec_driver_sql("SELECT count(*) FROM cpaas_events WHERE published_at IS NULL").scalar() == 0


def what_tasks_say(airflow, failures, said):
    """Return what the tasks of runs on failures were told, once that is of all failures.

    :param said: what is known already, by run: each is asked for once
    """
    query = "SELECT partition_key, run_id FROM dag_run WHERE dag_id = 'after_failure' AND state = 'success'"
    for key, run_id in airflow.query(query):
        if run_id not in said:
            path = f"dags/after_failure/dagRuns/{run_id}/taskInstances/say/xcomEntries/return_value"
            said[run_id] = airflow.found(path, deserialize="true")["value"]
            assert said[run_id]["key"] == key
    told = [one for values in said.values() for one in values["told"]]
    return list(said.values()) if sum(one["recipients"] for one in told) >= failures else None


@contextlib.contextmanager
def nothing_noted(store):
    """Have the publisher fail to note what Airflow was told, as if it ended before."""
    with store.engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE TRIGGER held BEFORE UPDATE OF published_at ON cpaas_events BEGIN SELECT RAISE(ABORT, 'held'); END"
        )
    yield
    with store.engine.begin() as connection:
        connection.exec_driver_sql("DROP TRIGGER held")


@pytest.mark.timeout(20 * 60)
def test_starts_exactly_one_run_for_each(airflow, store):
    # Killed in the middle: Airflow was told of some of them, on a busy machine of all, and that was noted of none.
    with nothing_noted(store):
        finish(store, BURST)
        wait_for("the first to be told", lambda: told(airflow) or None, TOLD_WITHIN, every=0.02)
        kill(airflow, API_SERVER)
        at_the_kill = told(airflow)
        kill(airflow, SCHEDULER)
        assert not nothing_left_to_tell(store)
    finish(store, AFTER_KILLS)
    airflow.start_part(API_SERVER)
    airflow.start_part(SCHEDULER)

    began = time.monotonic()
    everything = BURST + AFTER_KILLS
    wait_for("all to be told", lambda: told(airflow) >= len(everything) or None, TOLD_WITHIN)
    wait_for("that to be noted", lambda: nothing_left_to_tell(store) or None, TOLD_WITHIN)
    wait_for("all runs", lambda: len(runs(airflow, "after_campaign")) >= len(everything) or None, STARTED_WITHIN)
    took = time.monotonic() - began
    assert Counter(runs(airflow, "after_campaign")) == Counter(everything)

    said = wait_for("all failures", partial(what_tasks_say, airflow, len(everything), {}), STARTED_WITHIN)
    assert Counter(one["key"] for one in said) == Counter(runs(airflow, "after_failure"))
    assert all(len(one["told"]) == 1 for one in said)
    print(f"told {at_the_kill} before the kill; {len(everything)} runs within {took:.0f} s of the new start, ", end="")
    print(f"{len(said)} batches of failures")


@pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver")
def test_pages_are_true_at_each_step_of_incidents(airflow, services, store_file, tmp_path):
    with watching(tmp_path / "profile") as watched:
        watched.log_in(airflow.url, airflow.token)
        unproven, proven = (Incident(airflow, services[name], store_file, watched, name) for name in INCIDENTS)
        # A person resolves a request of the first only when it is a minute old. The second has its course meanwhile.
        unproven.begin(tmp_path, report_delay_seconds=NOT_TODAY)
        proven.begin(tmp_path)
        look_at_kill_and_retry(proven)
        look_at_unknown_requests(unproven)
