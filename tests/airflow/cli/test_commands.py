"""The provider on Airflow's command line, as a shell sees it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.models.connection import Connection
from airflow.utils.session import create_session
from sqlalchemy import delete

from cpaas_provider.api.client import CpaasClient
from tests.sandbox import Sandbox

Airflow = Callable[..., "subprocess.CompletedProcess[str]"]
COMMAND = Path(sys.executable).with_name("airflow")


@pytest.fixture
def airflow(airflow_db: Path) -> Iterator[Airflow]:
    """Run ``airflow ...`` as a program of its own, with more in its environment where that is given."""

    def call(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command, env = [str(COMMAND), *arguments], {**os.environ, **environment}
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    yield call
    # Their passwords are written with the key of a program that has ended; nobody in this process can read them.
    with create_session() as session:
        session.execute(delete(Connection))


@pytest.fixture
def ping(airflow: Airflow, sandbox: Sandbox) -> Airflow:
    """Run ``airflow cpaas ping`` on a connection to the service, changed as given."""

    def call(**changes: Any) -> subprocess.CompletedProcess[str]:
        connection = json.dumps({**sandbox.connection, **changes})
        return airflow("cpaas", "ping", "--conn-id", "cpaas_pinged", AIRFLOW_CONN_CPAAS_PINGED=connection)

    return call


class TestPing:
    def test_valid_connection_is_reported_without_a_charge(self, ping: Airflow, sandbox: Sandbox) -> None:
        done = ping()
        assert done.returncode == 0, done.stderr
        assert f"Connected to {sandbox.url}. The API key is accepted" in done.stdout
        assert sandbox.counters()["accepted"] == {"get_contact_table": 1}
        assert sandbox.counters()["charged"] == 0

    def test_wrong_key(self, ping: Airflow) -> None:
        done = ping(password="sk_of_somebody_else")
        assert done.returncode == 1
        assert "Wrong API key" in done.stderr
        assert "sk_of_somebody_else" not in done.stdout + done.stderr

    def test_default_connection_where_none_is_named_and_none_is_there(self, airflow: Airflow) -> None:
        done = airflow("cpaas", "ping")
        assert done.returncode == 1
        assert "'cpaas_default' cannot be read" in done.stderr
        assert "airflow connections add" in done.stderr
        assert "Traceback" not in done.stderr

    def test_connection_in_the_metadata_database(self, airflow: Airflow, sandbox: Sandbox) -> None:
        added = airflow("connections", "add", "cpaas_kept", "--conn-json", json.dumps(sandbox.connection))
        assert added.returncode == 0, added.stderr
        done = airflow("cpaas", "ping", "--conn-id", "cpaas_kept")
        assert done.returncode == 0, done.stderr
        assert f"Connected to {sandbox.url}" in done.stdout

    def test_environment_goes_before_the_metadata_database(self, airflow: Airflow, sandbox: Sandbox) -> None:
        elsewhere = json.dumps({**sandbox.connection, "password": "sk_of_somebody_else"})
        added = airflow("connections", "add", "cpaas_both", "--conn-json", elsewhere)
        assert added.returncode == 0, added.stderr
        done = airflow(
            "cpaas", "ping", "--conn-id", "cpaas_both", AIRFLOW_CONN_CPAAS_BOTH=json.dumps(sandbox.connection)
        )
        assert done.returncode == 0, done.stderr

    def test_connection_that_is_there_and_is_no_json_airflow_takes(self, airflow: Airflow) -> None:
        done = airflow(
            "cpaas", "ping", "--conn-id", "broken", AIRFLOW_CONN_BROKEN='{"conn_type": "cpaas", "password": "sk_x_1",}'
        )
        assert done.returncode == 1
        assert "AIRFLOW_CONN_BROKEN is set, but Airflow cannot read it" in done.stderr
        assert "sk_x_1" not in done.stdout + done.stderr


class TestProviders:
    def listed(self, airflow: Airflow, *command: str) -> Any:
        done = airflow("providers", *command, "--output", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout[done.stdout.index("[") :])

    def test_list_shows_us(self, airflow: Airflow) -> None:
        (ours,) = [one for one in self.listed(airflow, "list") if one["package_name"] == "airflow-provider-cpaas"]
        assert ours["version"] == "0.1.0"

    def test_get_shows_what_we_offer(self, airflow: Airflow) -> None:
        done = airflow("providers", "get", "airflow-provider-cpaas", "--full", "--output", "json")
        assert done.returncode == 0, done.stderr
        for module in ("operators.sms", "operators.contacts", "sensors.otp", "hooks.cpaas", "triggers.wait"):
            assert f"cpaas_provider.{module}" in done.stdout

    def test_hook_can_be_imported_for_its_connection_type(self, airflow: Airflow) -> None:
        (ours,) = [one for one in self.listed(airflow, "hooks") if one["connection_type"] == "cpaas"]
        assert ours["class"] == "cpaas_provider.hooks.cpaas.CpaasHook"
        assert ours["conn_id_attribute_name"] == "cpaas_conn_id"
        assert ours["hook_name"] == "CPaaS"

    def test_form_has_our_fields(self, airflow: Airflow) -> None:
        from cpaas_provider.provider_info import CONNECTION_FIELDS

        ours = [str(one) for one in self.listed(airflow, "widgets") if "cpaas" in str(one)]
        assert [name for name in CONNECTION_FIELDS if not any(name in one for one in ours)] == []


def test_contact_list_is_adopted_and_verified(airflow: Airflow, sandbox: Sandbox, tmp_path: Path) -> None:
    with CpaasClient(sandbox.url, sandbox.api_key, allow_http=True) as client:
        rows = [client.create_contact_row({"col_7f3a01": f"Person {number}"}).row.id for number in range(3)]
    (tmp_path / "list.csv").write_text("customer_id,row_id\n" + "".join(f"{id_},{id_}\n" for id_ in rows))
    environment = {
        "AIRFLOW_CONN_CPAAS_DEFAULT": json.dumps(sandbox.connection),
        "AIRFLOW__CPAAS__DATABASE": f"sqlite:///{tmp_path}/cpaas.db",
    }

    def contacts(*arguments: str) -> subprocess.CompletedProcess[str]:
        done = airflow("cpaas", "contacts", *arguments, **environment)
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
        return done

    assert "Added 3 entries" in contacts("import-map", str(tmp_path / "list.csv"), "--key", "customer_id").stdout
    found = json.loads(contacts("verify", "--all", "--output", "json").stdout)
    assert {one["result"]: one["rows"] for one in found}["unknown"] == 3
    (line,) = json.loads(contacts("status", "--output", "json").stdout)
    assert (line["counts"]["synced"], line["values"]) == (3, {"key_columns": ["customer_id"]})
