"""Faults, changes of another client, and the control API of the row service."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.row_service import FAULTS, Column, ContactTable, DrawnFaults, RowService, ScriptedFaults
from tests.row_service.faults import OTHER

ROWS = "/lists/contact/rows"
ROW = {"columns": {"col_1": "Ann"}}


@pytest.fixture
def service() -> Iterator[RowService]:
    with RowService([Column("col_1", "Name")], slow_seconds=0.01) as running:
        yield running


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault not in OTHER])
def test_name_of_a_fault_shows_whether_the_request_is_carried_out(
    service: RowService, client: httpx.Client, fault: str
) -> None:
    service.faults = ScriptedFaults([("POST", fault)])

    if fault.startswith("cut"):
        with pytest.raises(httpx.TransportError):
            client.post(ROWS, json=ROW)
    else:
        response = client.post(ROWS, json=ROW)
        expected = 200 if "in_body" in fault or fault == "slow" else int(fault[:3])
        assert response.status_code == expected
        assert fault == "slow" or response.json()["status"] == int(fault[:3])
        assert ("retry-after" in response.headers) == (fault == "429_retry_after")

    carried_out = (fault.endswith("_after") and fault != "429_retry_after") or fault in ("cut_within", "slow")
    assert len(service.table.rows) == (1 if carried_out else 0)
    assert client.post(ROWS, json=ROW).status_code == 200


def test_drawn_faults_are_the_same_for_the_same_seed() -> None:
    requests = [("POST", ROWS, str(number).encode()) for number in range(200)]

    first, second = ([DrawnFaults(seed, share=0.3).draw(*request) for request in requests] for seed in (1, 1))
    other = [DrawnFaults(2, share=0.3).draw(*request) for request in requests]

    assert first == second != other
    assert 30 < sum(fault is not None for fault in first) < 90


def test_drawn_faults_end_for_each_request() -> None:
    faults = DrawnFaults(1, share=1.0, at_most=2)

    drawn = [faults.draw("POST", ROWS, b"x") for _ in range(3)]

    assert [fault is not None for fault in drawn] == [True, True, False]


def test_another_client_changes_rows_and_columns(service: RowService, client: httpx.Client) -> None:
    row_id = client.post(ROWS, json=ROW).json()["row"]["id"]

    with service.locked() as table:
        table.update(row_id, {"col_1": "Bob"}, {"col_1": "Bob"}, by="other")
        table.add_column(Column("col_2", "Points", "NUMBER"))
        table.rename_column("col_1", "First name")
        table.retype_column("col_2", "TEXT")
    columns = client.get("/lists/contact").json()["columns"]

    assert [(column["name"], column["type"]) for column in columns] == [("First name", "TEXT"), ("Points", "TEXT")]
    assert client.get(f"/lists/contact/row/{row_id}").json()["row"]["columns"] == {"col_1": "Bob", "col_2": None}
    assert [(change.method, change.by) for change in service.table.log] == [("POST", "request"), ("PATCH", "other")]
    with service.locked() as table:
        table.remove_column("col_1")
        assert table.by_name() == [{}]


def test_refused_and_broken_values_are_never_stored(service: RowService, client: httpx.Client) -> None:
    service.refused_values, service.broken_values = ["Ann"], ["Bob"]

    statuses = [client.post(ROWS, json={"columns": {"col_1": name}}).status_code for name in ("Ann", "Bob", "Cy")]

    assert statuses == [400, 500, 200]
    assert service.table.by_name() == [{"Name": "Cy"}]


def test_deletion_of_a_kept_row_is_refused(service: RowService, client: httpx.Client) -> None:
    row_id = client.post(ROWS, json=ROW).json()["row"]["id"]
    service.kept_rows.add(row_id)

    assert client.delete(f"{ROWS}/{row_id}").status_code == 400
    assert row_id in service.table.rows
    assert service.arrived == [("POST", None), ("DELETE", row_id)]


def test_replaced_table_is_served_without_rows_and_faults(service: RowService, client: httpx.Client) -> None:
    client.post(ROWS, json=ROW)
    service.faults, service.refused_values = ScriptedFaults(["500_before"]), ["Ann"]

    service.replace_table(ContactTable([Column("col_1", "Name")], table_id="tbl_2"))

    assert client.get("/lists/contact").json()["id"] == "tbl_2"
    assert client.post(ROWS, json=ROW).status_code == 200
    assert len(service.table.rows) == 1


def test_control_api_reads_and_changes_everything(service: RowService, client: httpx.Client) -> None:
    row_id = client.post(ROWS, json=ROW).json()["row"]["id"]

    assert client.put("/_control/switches", json={"patch_omitted": "clear"}).status_code == 204
    assert client.put("/_control/switches", json={"patch_omitted": "x"}).status_code == 400
    assert client.get("/_control/switches").json()["patch_omitted"] == "clear"
    assert client.patch(f"/_control/rows/{row_id}", json={"columns": {"col_1": "Bob"}}).status_code == 204
    assert client.get("/_control/rows").json() == {"rows": {row_id: {"col_1": "Bob"}}}
    assert client.put("/_control/faults", json={"script": ["500_before"]}).status_code == 204
    assert client.get("/lists/contact").status_code == 500
    assert client.put("/_control/faults", json={"seed": 1, "share": 0}).status_code == 204
    assert client.put("/_control/values", json={"refused": ["Ann"]}).status_code == 204
    assert client.post(ROWS, json=ROW).status_code == 400
    assert client.delete(f"/_control/rows/{row_id}").status_code == 204
    changes = client.get("/_control/log").json()["changes"]
    assert [change["method"] for change in changes] == ["POST", "PATCH", "DELETE"]
    columns = {"columns": [{"id": "c", "name": "Other", "type": "DATE"}]}
    assert client.put("/_control/columns", json=columns).status_code == 204
    assert client.get("/lists/contact").json()["columns"] == columns["columns"]
    assert client.get("/_control/health").json()["status"] == "ok"
    assert client.get("/_control/other").status_code == 404


def test_program_answers_and_ends_on_sigterm() -> None:
    root = Path(__file__).parents[3]
    command = [sys.executable, "-m", "tests.row_service", "--port", "0", "--switch", "auth=none"]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout is not None
            url = program.stdout.readline().strip()
            assert httpx.get(f"{url}/lists/contact", trust_env=False).status_code == 200
        finally:
            program.terminate()
        assert program.wait(10) == 0
