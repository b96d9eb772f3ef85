"""The row service against sections 2.5, 4.9 to 4.13, 5 and 7 of contract.md, over real HTTP."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from itertools import product
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.row_service import READINGS, Column, RowService, Switches
from tests.row_service.table import COLUMN_TYPES

COLUMNS = [Column(f"col_{index}", name.title(), name) for index, name in enumerate(COLUMN_TYPES)]
CELLS = {
    "col_0": "Ann",
    "col_1": 7.5,
    "col_2": "2026-01-31",
    "col_3": "2348000000001",
    "col_4": "ann@example.com",
    "col_5": "https://example.com/a",
    "col_6": "gold",
    "col_7": ["a", "b"],
}


@pytest.fixture
def service() -> Iterator[RowService]:
    with RowService([Column(column.id, column.name, column.type) for column in COLUMNS]) as running:
        yield running


def _create(client: httpx.Client, **cells: Any) -> str:
    response = client.post("/lists/contact/rows", json={"columns": cells})
    assert response.status_code == 200, response.text
    return str(response.json()["row"]["id"])


def test_table_has_id_and_columns_of_the_eight_types(client: httpx.Client) -> None:
    table = client.get("/lists/contact").json()

    assert isinstance(table["id"], str)
    assert [column["type"] for column in table["columns"]] == list(COLUMN_TYPES)
    assert all(set(column) == {"id", "name", "type"} for column in table["columns"])
    assert re.search(r"\.\d+\+00:00$", table["created_datetime"])
    assert datetime.fromisoformat(table["created_datetime"])


def test_created_row_is_read_with_table_by_the_singular_path(client: httpx.Client) -> None:
    row_id = _create(client, **CELLS)

    response = client.get(f"/lists/contact/row/{row_id}")

    assert response.json()["row"]["columns"] == CELLS
    assert response.json()["table"]["id"] == "tbl_1"
    assert client.get(f"/lists/contact/rows/{row_id}").status_code == 405


@pytest.mark.parametrize(("omitted", "kept"), [("keep", "Ann"), ("clear", None)])
def test_patch_keeps_or_clears_omitted_columns(
    service: RowService, client: httpx.Client, omitted: str, kept: str | None
) -> None:
    row_id = _create(client, **CELLS)
    service.switch(patch_omitted=omitted)

    row = client.patch(f"/lists/contact/rows/{row_id}", json={"columns": {"col_1": 8}}).json()["row"]

    assert (row["columns"]["col_0"], row["columns"]["col_1"]) == (kept, 8)
    assert service.table.log[-1].method == "PATCH"
    assert service.table.log[-1].columns == {"col_1": 8}


def test_patch_answers_only_sent_columns_when_switched(service: RowService, client: httpx.Client) -> None:
    row_id = _create(client, **CELLS)
    service.switch(patch_answer="sent", answer_table="without")

    body = client.patch(f"/lists/contact/rows/{row_id}", json={"columns": {"col_1": 8}}).json()

    assert set(body) == {"row"}
    assert body["row"]["columns"] == {"col_1": 8}


@pytest.mark.parametrize("reading", READINGS["delete_answer"])
def test_delete_removes_the_row_with_any_response(service: RowService, client: httpx.Client, reading: str) -> None:
    row_id = _create(client, **CELLS)
    service.switch(delete_answer=reading)

    response = client.delete(f"/lists/contact/rows/{row_id}")

    assert response.status_code == (204 if reading == "204" else 200)
    assert bool(response.content) == (reading not in ("204", "empty"))
    assert service.table.rows == {}
    assert client.get(f"/lists/contact/row/{row_id}").status_code == 404


def _request_gone(client: httpx.Client, method: str) -> httpx.Response:
    if method == "GET":
        return client.get("/lists/contact/row/none")
    return client.request(method, "/lists/contact/rows/none", json={"columns": {"col_0": "x"}})


@pytest.mark.parametrize(("method", "reading"), list(product(("GET", "PATCH", "DELETE"), READINGS["patch_gone"])))
def test_gone_row_is_answered_in_each_form(
    service: RowService, client: httpx.Client, method: str, reading: str
) -> None:
    service.switch(**{f"{method.lower()}_gone": reading})

    response = _request_gone(client, method)

    status, kind = reading.split("_")
    assert response.status_code == int(status)
    if kind == "empty" and status != "200":
        assert not response.content
        return
    body = response.json()
    assert body["status"] == int(status)
    assert body["message"] == "Row not found"
    assert ("errors" in body) == (kind != "bare")
    types = [item.get("type") for item in body.get("errors", ())]
    assert types == {"items": ["not_found"], "missing": ["missing"], "untyped": [None]}.get(kind, [])


def test_gone_row_is_null_or_deleted_with_success_when_switched(service: RowService, client: httpx.Client) -> None:
    service.switch(get_gone="200_null", delete_gone="success")

    assert _request_gone(client, "GET").json()["row"] is None
    assert _request_gone(client, "DELETE").status_code == 200
    assert service.table.log == []


@pytest.mark.parametrize(
    ("column", "value", "strict", "lenient"),
    [
        ("col_0", 1, False, True),
        ("col_1", "7", False, True),
        ("col_1", "seven", False, False),
        ("col_1", True, False, False),
        ("col_2", "2026-01-31T00:00:00", False, True),
        ("col_2", "31.01.2026", False, False),
        ("col_3", "+234 800 000 0001", False, True),
        ("col_3", "abc", False, False),
        ("col_4", "ann", False, False),
        ("col_5", "example", False, False),
        ("col_6", ["a"], False, False),
        ("col_7", "a", False, True),
        ("col_7", [1], False, False),
    ],
)
def test_cells_are_validated_by_column_type(
    service: RowService, client: httpx.Client, column: str, value: Any, strict: bool, lenient: bool
) -> None:
    for validation, accepted in (("strict", strict), ("lenient", lenient), ("none", True)):
        service.switch(validation=validation)
        response = client.post("/lists/contact/rows", json={"columns": {column: value}})
        assert (response.status_code == 200) == accepted, (validation, response.text)


@pytest.mark.parametrize(("reading", "field"), [("id", "col_1"), ("name", "Number"), ("path", "columns.col_1")])
@pytest.mark.parametrize("status", [400, 200])
def test_refused_cell_is_named_in_the_documented_error_body(
    service: RowService, client: httpx.Client, reading: str, field: str, status: int
) -> None:
    service.switch(error_field=reading, invalid_status=status)

    response = client.post("/lists/contact/rows", json={"columns": {"col_1": "seven"}})

    assert response.status_code == status
    assert response.json() == {
        "status": status,
        "message": "Invalid row",
        "errors": [{"field": field, "message": "must be a number", "type": "invalid"}],
    }
    assert service.table.rows == {}


@pytest.mark.parametrize(("reading", "errors"), [("empty", []), ("bare", None)])
def test_refused_cell_is_not_named_when_switched(
    service: RowService, client: httpx.Client, reading: str, errors: list[Any] | None
) -> None:
    service.switch(invalid_errors=reading)

    response = client.post("/lists/contact/rows", json={"columns": {"col_1": "seven"}})

    assert response.json().get("errors") == errors


def test_refused_cell_is_answered_without_a_body_when_switched(service: RowService, client: httpx.Client) -> None:
    service.switch(invalid_errors="no_body")

    response = client.post("/lists/contact/rows", json={"columns": {"col_1": "seven"}})

    assert response.status_code == 400
    assert not response.content


def test_missing_required_column_has_error_of_type_missing(service: RowService, client: httpx.Client) -> None:
    service.table.columns["col_0"].required = True

    refused = client.post("/lists/contact/rows", json={"columns": {"col_1": 1}})
    service.switch(required_column="allowed")
    accepted = client.post("/lists/contact/rows", json={"columns": {"col_1": 1}})

    assert (refused.status_code, accepted.status_code) == (400, 200)
    assert refused.json()["errors"] == [{"field": "col_0", "message": "Field required", "type": "missing"}]


@pytest.mark.parametrize(("reading", "stored"), [("null", None), ("text", ""), ("refused", "Ann")])
@pytest.mark.parametrize("empty", [None, ""])
def test_empty_cell_is_stored_or_refused(
    service: RowService, client: httpx.Client, reading: str, stored: str | None, empty: str | None
) -> None:
    row_id = _create(client, **CELLS)
    service.switch(empty_cell=reading)

    response = client.patch(f"/lists/contact/rows/{row_id}", json={"columns": {"col_0": empty}})

    assert (response.status_code == 400) == (reading == "refused")
    assert service.table.rows[row_id].columns["col_0"] == stored


def test_unknown_column_is_refused_or_ignored(service: RowService, client: httpx.Client) -> None:
    columns = {"columns": {"col_0": "Ann", "col_99": "x"}}
    assert client.post("/lists/contact/rows", json=columns).status_code == 400
    service.switch(unknown_column="ignored")

    row = client.post("/lists/contact/rows", json=columns).json()["row"]

    assert "col_99" not in row["columns"]


@pytest.mark.parametrize(
    ("readings", "column", "returned"),
    [
        ({"number_form": "text"}, "col_1", "7.5"),
        ({"date_form": "with_time"}, "col_2", "2026-01-31T00:00:00.000000+00:00"),
        ({"phone_form": "plus"}, "col_3", "+2348000000001"),
        ({"multi_form": "reversed"}, "col_7", ["b", "a"]),
        ({"multi_form": "comma"}, "col_7", "a,b"),
    ],
)
def test_cells_are_returned_in_another_form(
    service: RowService, client: httpx.Client, readings: dict[str, str], column: str, returned: Any
) -> None:
    row_id = _create(client, **CELLS)
    service.switch(**readings)

    assert client.get(f"/lists/contact/row/{row_id}").json()["row"]["columns"][column] == returned
    assert service.table.rows[row_id].columns == CELLS


@pytest.mark.parametrize(("reading", "cells"), [("null", {"col_0": None}), ("text", {"col_0": ""}), ("omitted", {})])
def test_empty_cells_are_returned_in_each_form(
    service: RowService, client: httpx.Client, reading: str, cells: dict[str, Any]
) -> None:
    service.switch(empty_form=reading)
    row_id = _create(client, **(CELLS | {"col_0": None}))

    columns = client.get(f"/lists/contact/row/{row_id}").json()["row"]["columns"]

    assert columns == {key: value for key, value in CELLS.items() if key != "col_0"} | cells


@pytest.mark.parametrize("form", READINGS["row_ids"])
def test_row_ids_of_each_form_lead_to_their_row(service: RowService, client: httpx.Client, form: str) -> None:
    service.switch(row_ids=form)
    row_id = _create(client, **CELLS)

    assert client.get(f"/lists/contact/row/{quote(row_id, safe='')}").json()["row"]["id"] == row_id
    assert row_id in service.table.rows


@pytest.mark.parametrize(
    ("reading", "header", "accepted"),
    [
        ("bearer", "Bearer row-service-key", True),
        ("bearer", "row-service-key", False),
        ("raw", "row-service-key", True),
        ("raw", "Bearer row-service-key", False),
        ("none", "", True),
        ("bearer", "", False),
    ],
)
@pytest.mark.parametrize(("status", "body"), [(401, "with"), (403, "without")])
def test_credentials_are_checked_as_switched(
    service: RowService, reading: str, header: str, accepted: bool, status: int, body: str
) -> None:
    service.switch(auth=reading, auth_status=status, auth_body=body)
    headers = {"Authorization": header} if header else {}

    response = httpx.get(f"{service.url}/lists/contact", headers=headers, trust_env=False)

    assert response.status_code == (200 if accepted else status)
    assert accepted or bool(response.content) == (body == "with")


@pytest.mark.parametrize(("reading", "status"), [("number", 201), ("word", "success")])
def test_resources_are_wrapped_in_data_when_switched(
    service: RowService, client: httpx.Client, reading: str, status: int | str
) -> None:
    service.switch(envelope=reading, post_status=201)

    response = client.post("/lists/contact/rows", json={"columns": CELLS})

    assert response.status_code == 201
    body = response.json()
    assert set(body) == {"status", "type", "message", "data"}
    assert body["status"] == status
    assert body["data"]["row"]["columns"] == CELLS


@pytest.mark.parametrize(
    ("reading", "present"), [("all", (True, True)), ("created", (True, False)), ("none", (False, False))]
)
def test_timestamps_and_extra_fields_are_switched(
    service: RowService, client: httpx.Client, reading: str, present: tuple[bool, bool]
) -> None:
    service.switch(timestamps=reading, extra_fields="with")
    row = client.post("/lists/contact/rows", json={"columns": CELLS}).json()["row"]

    assert ("created_datetime" in row, "updated_datetime" in row) == present
    assert row["status"] == "active"


def test_table_read_answers_the_listed_400_when_switched(service: RowService, client: httpx.Client) -> None:
    service.switch(table_read="refused")

    assert client.get("/lists/contact").status_code == 400


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"columns": 1}'])
def test_body_without_columns_is_refused(client: httpx.Client, body: bytes) -> None:
    response = client.post("/lists/contact/rows", content=body)

    assert response.status_code == 400
    assert response.json()["errors"][0]["type"] == "missing"


def test_unknown_reading_is_refused() -> None:
    with pytest.raises(ValueError, match="patch_omitted"):
        Switches(patch_omitted="forget")  # type: ignore[arg-type]
