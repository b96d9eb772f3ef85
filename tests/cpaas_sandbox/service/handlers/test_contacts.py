"""The contact table: eight column types, rows, and what a cell may hold."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cpaas_sandbox.conftest import Harness

COLUMN_TYPES = ["TEXT", "NUMBER", "DATE", "PHONE NUMBER", "EMAIL", "URL", "SELECT", "MULTI SELECT"]


def ids(sandbox: Harness) -> dict[str, str]:
    """Column ids by type; the seeded table has one of each."""
    return {column["type"]: column["id"] for column in sandbox.ok("GET", "/lists/contact")["columns"]}


def created(sandbox: Harness, **cells: Any) -> dict[str, Any]:
    return dict(sandbox.ok("POST", "/lists/contact/rows", {"columns": cells})["row"])


def test_seeded_table_has_every_column_type(sandbox: Harness) -> None:
    table = sandbox.ok("GET", "/lists/contact")
    assert set(table) == {"id", "columns", "created_datetime"}
    assert sorted(column["type"] for column in table["columns"]) == sorted(COLUMN_TYPES)
    assert all(set(column) == {"id", "name", "type"} for column in table["columns"])


VALID = [
    ("TEXT", "Ada"),
    ("TEXT", "12"),
    ("NUMBER", 3),
    ("NUMBER", -2.5),
    ("NUMBER", 0),
    ("DATE", "2024-02-29"),
    ("PHONE NUMBER", "2348030000001"),
    ("EMAIL", "ada.lovelace+x@mail.example.com"),
    ("URL", "https://example.com/a?b=c#d"),
    ("URL", "http://localhost:8080"),
    ("SELECT", "gold"),
    ("MULTI SELECT", ["vip", "lagos"]),
    ("MULTI SELECT", []),
]
WRONG = [
    ("TEXT", 5, "string_type"),
    ("NUMBER", "3", "number_type"),
    ("NUMBER", True, "number_type"),
    ("NUMBER", [1], "number_type"),
    ("DATE", "2023-02-29", "format"),
    ("DATE", "20240229", "format"),
    ("DATE", "29.02.2024", "format"),
    ("DATE", "2024-02-29T00:00:00", "format"),
    ("DATE", 20240229, "string_type"),
    ("PHONE NUMBER", "+2348030000001", "string_pattern_mismatch"),
    ("PHONE NUMBER", "0803 000 0001", "string_pattern_mismatch"),
    ("PHONE NUMBER", 2348030000001, "string_type"),
    ("EMAIL", "ada@", "string_pattern_mismatch"),
    ("EMAIL", "ada example@x.com", "string_pattern_mismatch"),
    ("URL", "example.com", "string_pattern_mismatch"),
    ("URL", "javascript:alert(1)", "string_pattern_mismatch"),
    ("SELECT", ["gold"], "string_type"),
    ("MULTI SELECT", "vip", "list_type"),
    ("MULTI SELECT", [1], "string_type"),
]


@pytest.mark.parametrize(("type_", "value"), VALID)
def test_cells_that_are_valid(sandbox: Harness, type_: str, value: Any) -> None:
    column = ids(sandbox)[type_]
    row = created(sandbox, **{column: value})
    assert row["columns"][column] == value
    assert sandbox.ok("GET", f"/lists/contact/row/{row['id']}")["row"] == row


@pytest.mark.parametrize(("type_", "value", "code"), WRONG)
def test_cells_that_are_not(sandbox: Harness, type_: str, value: Any, code: str) -> None:
    column = ids(sandbox)[type_]
    found = sandbox.refused(400, "POST", "/lists/contact/rows", {"columns": {column: value}})
    assert list(found.values()) == [code]
    assert next(iter(found)).startswith(f"columns.{column}")
    row_id = created(sandbox)["id"]
    assert sandbox.refused(400, "PATCH", f"/lists/contact/rows/{row_id}", {"columns": {column: value}}) == found
    assert sandbox.counters()["contacts"]["created"] == 1


@pytest.mark.parametrize("type_", COLUMN_TYPES)
@pytest.mark.parametrize("nothing", [None, ""])
def test_null_or_an_empty_string_clears(sandbox: Harness, type_: str, nothing: Any) -> None:
    column = ids(sandbox)[type_]
    value = next(value for kind, value in VALID if kind == type_)
    row = created(sandbox, **{column: value})
    changed = sandbox.ok("PATCH", f"/lists/contact/rows/{row['id']}", {"columns": {column: nothing}})["row"]
    assert changed["columns"][column] is None


def test_digits_in_a_string_where_it_is_set(sandbox: Harness) -> None:
    sandbox.settings(number_cells="number_or_string")
    column = ids(sandbox)["NUMBER"]
    assert created(sandbox, **{column: "42"})["columns"][column] == 42
    assert created(sandbox, **{column: "-4.5"})["columns"][column] == -4.5
    sandbox.refused(400, "POST", "/lists/contact/rows", {"columns": {column: "4e2"}})


def test_update_keeps_omitted_cells(sandbox: Harness) -> None:
    columns = ids(sandbox)
    row = created(sandbox, **{columns["TEXT"]: "Ada", columns["NUMBER"]: 1})
    assert "updated_datetime" not in row
    answer = sandbox.ok("PATCH", f"/lists/contact/rows/{row['id']}", {"columns": {columns["NUMBER"]: 2}})
    assert set(answer) == {"row", "table"}
    assert (answer["row"]["columns"][columns["TEXT"]], answer["row"]["columns"][columns["NUMBER"]]) == ("Ada", 2)
    assert answer["row"]["updated_datetime"] >= row["created_datetime"]
    assert answer["row"]["created_datetime"] == row["created_datetime"]


def test_unknown_columns_are_named(sandbox: Harness) -> None:
    body = {"columns": {"Name": "Ada", "other": 1}}
    found = sandbox.refused(400, "POST", "/lists/contact/rows", body)
    assert found == {"columns.Name": "extra_forbidden", "columns.other": "extra_forbidden"}
    assert sandbox.refused(400, "POST", "/lists/contact/rows", {}) == {"columns": "missing"}
    assert sandbox.refused(400, "POST", "/lists/contact/rows", {"columns": []}) == {"columns": "object_type"}


def test_row_is_served_under_both_paths(sandbox: Harness) -> None:
    row = created(sandbox)
    singular = sandbox.ok("GET", f"/lists/contact/row/{row['id']}")
    assert sandbox.ok("GET", f"/lists/contact/rows/{row['id']}") == singular
    assert set(singular) == {"row", "table"}


def test_deleted_row_is_not_found(sandbox: Harness) -> None:
    row = created(sandbox)
    path = f"/lists/contact/rows/{row['id']}"
    assert sandbox.ok("DELETE", path) == {"status": 200, "type": "success", "message": "The contact row was deleted"}
    for method, body in (("GET", None), ("DELETE", None), ("PATCH", {"columns": {}})):
        assert sandbox.refused(404, method, path, body) == {"row_id": "not_found"}
    assert sandbox.counters()["contacts"] == {"rows": 0, "created": 1, "updated": 0, "deleted": 1}


@pytest.mark.parametrize(("setting", "status"), [("record", 200), ("empty", 204)])
def test_response_to_a_row_deletion_is_configurable(sandbox: Harness, setting: str, status: int) -> None:
    sandbox.settings(delete_body=setting)
    row = created(sandbox)
    answer = sandbox.call("DELETE", f"/lists/contact/rows/{row['id']}")
    assert answer.status_code == status
    assert (answer.json() if answer.content else None) == (row if setting == "record" else None)


def test_other_table_can_be_seeded(sandbox: Harness) -> None:
    created(sandbox)
    columns = [
        {"id": "a", "name": "Plan", "type": "SELECT", "options": ["free", "pro"]},
        {"id": "b", "name": "Tags", "type": "MULTI SELECT", "options": ["x", "y"]},
    ]
    rows = [{"id": "row-1", "columns": {"a": "free", "b": ["x"]}}, {"columns": {}}]
    sandbox.control("POST", "seed", {"columns": columns, "rows": rows})
    table = sandbox.ok("GET", "/lists/contact")
    assert table["columns"] == [{name: one[name] for name in ("id", "name", "type")} for one in columns]
    assert "updated_datetime" in table
    assert sandbox.ok("GET", "/lists/contact/row/row-1")["row"]["columns"] == {"a": "free", "b": ["x"]}
    assert sandbox.counters()["contacts"]["rows"] == 2
    assert sandbox.refused(400, "POST", "/lists/contact/rows", {"columns": {"a": "gold"}}) == {"columns.a": "enum"}
    assert sandbox.refused(400, "POST", "/lists/contact/rows", {"columns": {"b": ["z"]}}) == {"columns.b.0": "enum"}
    document = sandbox.call("GET", "/openapi.json").json()
    schemas = document["components"]["schemas"]
    assert schemas["CreateContactRowRequest"]["properties"]["columns"] == {"$ref": "#/components/schemas/Columns"}
    assert set(schemas["Columns"]["properties"]) == {"a", "b"}


@pytest.mark.parametrize(
    "seeding",
    [
        {"columns": []},
        {"columns": [{"id": "a", "name": "A", "type": "COLOUR"}]},
        {"columns": [{"id": "a", "name": "A", "type": "TEXT"}, {"id": "a", "name": "B", "type": "TEXT"}]},
        {"columns": [{"id": "a", "name": "A", "type": "NUMBER"}], "rows": [{"columns": {"a": "x"}}]},
        {"rows": [{"id": "r", "columns": {}}, {"id": "r", "columns": {}}]},
        {"rows": [{"columns": {"nope": 1}}]},
        {"outcomes": {"airtime": {"2348030000001": "lost"}}},
        {"lookups": [{"phone": "+234"}]},
        {"lookups": [{"phone": "2348030000001", "dnd": "no"}]},
        {"templates": [{"id": "t", "channel": "fax", "content": "x"}]},
        {"tempaltes": []},
    ],
)
def test_invalid_seed_changes_nothing(sandbox: Harness, seeding: dict[str, Any]) -> None:
    before = sandbox.ok("GET", "/lists/contact")
    answer = sandbox.call("POST", "/_control/seed", seeding)
    assert answer.status_code == 400
    assert answer.json()["message"]
    assert sandbox.ok("GET", "/lists/contact") == before
    assert sandbox.counters()["contacts"]["rows"] == 0
