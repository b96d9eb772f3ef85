"""The provider on Airflow's command line: Airflow's own commands show it, and ours read its connections."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.models.connection import Connection
from airflow.utils.session import create_session
from sqlalchemy import delete

from cpaas_provider.api.client import CpaasClient
from tests.airflow.harness.command_line import CommandLine, CommandResult
from tests.sandbox import Sandbox

Ping = Callable[..., CommandResult]


@pytest.fixture
def airflow(
    airflow_db: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[CommandLine]:
    """Run ``airflow ...``; connections that it stores are deleted afterwards."""
    yield CommandLine(monkeypatch, capsys)
    with create_session() as session:
        session.execute(delete(Connection))


@pytest.fixture
def ping(airflow: CommandLine, sandbox: Sandbox) -> Ping:
    """Run ``airflow cpaas ping`` on a connection to the service, changed as given."""

    def call(**changes: Any) -> CommandResult:
        connection = json.dumps({**sandbox.connection, **changes})
        return airflow("cpaas", "ping", "--conn-id", "cpaas_pinged", AIRFLOW_CONN_CPAAS_PINGED=connection)

    return call


class TestPing:
    def test_valid_connection_is_reported_without_a_charge(self, ping: Ping, sandbox: Sandbox) -> None:
        done = ping()
        assert done.status == 0, done.err
        assert f"Connected to {sandbox.url}. The API key is accepted" in done.out
        assert sandbox.counters()["accepted"] == {"get_contact_table": 1}
        assert sandbox.counters()["charged"] == 0

    def test_wrong_key(self, ping: Ping) -> None:
        done = ping(password="sk_of_somebody_else")
        assert done.status == 1
        assert "Wrong API key" in done.err
        assert "sk_of_somebody_else" not in done.out + done.err

    def test_default_connection_where_none_is_named_and_none_is_there(self, airflow: CommandLine) -> None:
        done = airflow("cpaas", "ping")
        assert done.status == 1
        assert "'cpaas_default' cannot be read" in done.err
        assert "airflow connections add" in done.err

    def test_connection_in_the_metadata_database(self, airflow: CommandLine, sandbox: Sandbox) -> None:
        added = airflow("connections", "add", "cpaas_kept", "--conn-json", json.dumps(sandbox.connection))
        assert added.status == 0, added.err
        done = airflow("cpaas", "ping", "--conn-id", "cpaas_kept")
        assert done.status == 0, done.err
        assert f"Connected to {sandbox.url}" in done.out

    def test_environment_goes_before_the_metadata_database(self, airflow: CommandLine, sandbox: Sandbox) -> None:
        elsewhere = json.dumps({**sandbox.connection, "password": "sk_of_somebody_else"})
        added = airflow("connections", "add", "cpaas_both", "--conn-json", elsewhere)
        assert added.status == 0, added.err
        done = airflow(
            "cpaas", "ping", "--conn-id", "cpaas_both", AIRFLOW_CONN_CPAAS_BOTH=json.dumps(sandbox.connection)
        )
        assert done.status == 0, done.err

    def test_connection_that_is_there_and_is_no_json_airflow_takes(self, airflow: CommandLine) -> None:
        done = airflow(
            "cpaas", "ping", "--conn-id", "broken", AIRFLOW_CONN_BROKEN='{"conn_type": "cpaas", "password": "sk_x_1",}'
        )
        assert done.status == 1
        assert "AIRFLOW_CONN_BROKEN is set, but Airflow cannot read it" in done.err
        assert "sk_x_1" not in done.out + done.err


class TestProviders:
    def listed(self, airflow: CommandLine, *command: str) -> Any:
        done = airflow("providers", *command, "--output", "json")
        assert done.status == 0, done.err
        return json.loads(done.out[done.out.index("[") :])

    def test_list_shows_us(self, airflow: CommandLine) -> None:
        (ours,) = [one for one in self.listed(airflow, "list") if one["package_name"] == "airflow-provider-cpaas"]
        assert ours["version"] == "0.1.0"

    def test_get_shows_what_we_offer(self, airflow: CommandLine) -> None:
        done = airflow("providers", "get", "airflow-provider-cpaas", "--full", "--output", "json")
        assert done.status == 0, done.err
        for module in ("operators.sms", "operators.contacts", "sensors.otp", "hooks.cpaas", "triggers.wait"):
            assert f"cpaas_provider.{module}" in done.out

    def test_hook_can_be_imported_for_its_connection_type(self, airflow: CommandLine) -> None:
        (ours,) = [one for one in self.listed(airflow, "hooks") if one["connection_type"] == "cpaas"]
        assert ours["class"] == "cpaas_provider.hooks.cpaas.CpaasHook"
        assert ours["conn_id_attribute_name"] == "cpaas_conn_id"
        assert ours["hook_name"] == "CPaaS"

    def test_form_has_our_fields(self, airflow: CommandLine) -> None:
        from cpaas_provider.provider_info import CONNECTION_FIELDS

        ours = [str(one) for one in self.listed(airflow, "widgets") if "cpaas" in str(one)]
        assert [name for name in CONNECTION_FIELDS if not any(name in one for one in ours)] == []


def test_contact_list_is_adopted_and_verified(airflow: CommandLine, sandbox: Sandbox, tmp_path: Path) -> None:
    with CpaasClient(sandbox.url, sandbox.api_key, allow_http=True) as client:
        rows = [client.create_contact_row({"col_7f3a01": f"Person {number}"}).row.id for number in range(3)]
    (tmp_path / "list.csv").write_text("customer_id,row_id\n" + "".join(f"{id_},{id_}\n" for id_ in rows))
    environment = {
        "AIRFLOW_CONN_CPAAS_DEFAULT": json.dumps(sandbox.connection),
        "AIRFLOW__CPAAS__DATABASE": f"sqlite:///{tmp_path}/cpaas.db",
    }

    def contacts(*arguments: str) -> CommandResult:
        done = airflow("cpaas", "contacts", *arguments, **environment)
        assert done.status == 0, done.err
        return done

    assert "Added 3 entries" in contacts("import-map", str(tmp_path / "list.csv"), "--key", "customer_id").out
    found = contacts("verify", "--all", "--output", "json").lines
    assert {one["result"]: one["rows"] for one in found}["unknown"] == 3
    (line,) = contacts("status", "--output", "json").lines
    assert (line["counts"]["synced"], line["key_columns"]) == (3, ["customer_id"])
