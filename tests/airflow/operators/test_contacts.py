"""The operators of the contact table as real task instances: authors name columns, the operators look up their ids."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from airflow.sdk import task

from cpaas_provider.operators.contacts import (
    CreateContactRowOperator,
    DeleteContactRowOperator,
    GetContactRowOperator,
    GetContactTableOperator,
    UpdateContactRowOperator,
    UpsertContactRowOperator,
)
from tests.airflow.harness.task_runner import TaskRunner, address, busy, digits, fault, open_task_runner, phone
from tests.sandbox import Sandbox

NAME, PHONE, EMAIL, BIRTHDAY, PLAN, TAGS, WEBSITE, POINTS = (f"col_7f3a0{n}" for n in range(1, 9))
NOTHING_UNKNOWN = {"unknown_recipients": 0, "unknown_references": []}
# How an answer may fail to come although the row was created.
UNKNOWN = {
    "cut_after": [fault("create_contact_row", "cut_after")],
    "broken_json": [fault("create_contact_row", "broken_json")],
    "missing_row": [fault("create_contact_row", "missing_field", field="row")],
}
# Cells that do not fit: what the error says, and what it must not.
MISFITS: dict[str, tuple[Any, list[str], str]] = {
    "unknown_column": ({"Nmae": "Ada"}, ["Nmae: is no column of the contact table", "Birthday"], "Ada"),
    "bad_number": ({"Points": "many-4711"}, ["Points: must be a number"], "4711"),
    "bad_date": ({"Birthday": "31.01.1990"}, ["Birthday: must be a date"], "1990"),
    "all_at_once": (
        {"Plan": True, "Email": "ada", "Website": "nowhere"},
        ["Plan: ", "Email: ", "Website: "],
        "nowhere",
    ),
    "given_twice": ({"Name": "Ada", "name": "Bola"}, ["name: is given twice"], "Bola"),
    "nothing": ({}, ["no column is given"], "Ada"),
    "text": ("{'Name': 'Ada'}", ["must be a mapping of column names to values"], "Ada"),
}


@pytest.fixture(scope="module")
def finished_run(airflow_db: object, sandbox_process: Sandbox) -> Iterator[TaskRunner]:
    with open_task_runner(sandbox_process) as task_runner:
        rows = ["read", "update", "clear", "clear_empty", "upsert", "delete", "deleted_later", "mapped_0", "mapped_1"]
        rows += ["busy_update", "cut_update", "cut_delete", "from_task", "native"]
        seeds = [{"id": f"row_{row}", "columns": {NAME: "Before", POINTS: 1, EMAIL: "b@example.com"}} for row in rows]
        sandbox_process.control("POST", "seed", {"rows": seeds})

        with task_runner.dag("contacts", params={"row": "row_read", "name": "Ada"}) as dag:
            GetContactTableOperator(task_id="table", cpaas_conn_id="cpaas_{{ 'default' }}")
            GetContactTableOperator(task_id=task_runner.prepare("table_busy", busy("get_contact_table")))
            GetContactTableOperator(task_id="table_wrong_key", cpaas_conn_id="cpaas_wrong_key")
            GetContactRowOperator(task_id="read", row_id="{{ params.row }}")
            GetContactRowOperator(task_id="read_narrowed", row_id="row_read", return_fields=["Points", "Plan"])
            GetContactRowOperator(task_id="read_unknown_field", row_id="row_read", return_fields=["Colour"])
            GetContactRowOperator(task_id="read_gone", row_id="row_nobody_has")
            GetContactRowOperator(
                task_id=task_runner.prepare("read_broken_at_first", fault("get_contact_row", "broken_json", times=5)),
                row_id="row_read",
            )
            CreateContactRowOperator(
                task_id="create",
                columns={
                    "Name": "{{ params.name }}",
                    "phone": phone("create"),
                    " EMAIL ": address("create"),
                    "Birthday": "{{ '1990-05-17' }}",
                    "Plan": "gold",
                    "Tags": ["a", "{{ params.name }}"],
                    WEBSITE: "https://example.com/{{ params.name }}",
                    "Points": "12",
                },
            )
            for name, trouble in UNKNOWN.items():
                CreateContactRowOperator(
                    task_id=task_runner.prepare(f"unknown_{name}", *trouble), columns={"Name": name}
                )
            CreateContactRowOperator(
                task_id=task_runner.prepare("create_busy_at_first", busy("create_contact_row")),
                columns={"Name": "Busy"},
            )
            for name, (cells, _, _) in MISFITS.items():
                CreateContactRowOperator(task_id=f"misfit_{name}", columns=cells)
            CreateContactRowOperator(task_id="broken_template", columns={"Name": "{{ params.no.body }}"})

            @task
            def cells_of_customer() -> dict[str, Any]:
                return {"Name": "From a task", "Points": 7}

            UpdateContactRowOperator(task_id="update", row_id="row_{{ 'update' }}", columns={"Name": "After"})
            UpdateContactRowOperator(task_id="from_task", row_id="row_from_task", columns=cells_of_customer())
            UpdateContactRowOperator(task_id="clear", row_id="row_clear", columns={"Points": None})
            UpdateContactRowOperator(
                task_id="clear_empty", row_id="row_clear_empty", columns={"Points": None}, empty_cell_value="empty"
            )
            UpdateContactRowOperator(task_id="update_gone", row_id="row_nobody_has", columns={"Name": "After"})
            UpdateContactRowOperator(
                task_id=task_runner.prepare("busy_update", busy("update_contact_row")),
                row_id="row_busy_update",
                columns={"Name": "After"},
            )
            UpdateContactRowOperator(
                task_id=task_runner.prepare("cut_update", fault("update_contact_row", "cut_after", times=5)),
                row_id="row_cut_update",
                columns={"Name": "After"},
            )
            UpdateContactRowOperator.partial(task_id="mapped").expand_kwargs(
                [{"row_id": f"row_mapped_{n}", "columns": {"Name": f"Number {n}"}} for n in (0, 1)]
            )

            upsert = {"columns": {"Name": "Upserted"}}
            UpsertContactRowOperator(task_id="upsert", row_id="row_{{ 'upsert' }}", **upsert)
            for name, row_id in {"none": None, "empty": "", "rendered_none": "{{ none }}", "blank": " "}.items():
                UpsertContactRowOperator(task_id=f"upsert_{name}", row_id=row_id, **upsert)
            UpsertContactRowOperator(task_id="upsert_gone", row_id="row_gone", **upsert)
            UpsertContactRowOperator(task_id="upsert_strict", row_id="row_gone", create_if_missing=False, **upsert)
            UpsertContactRowOperator(task_id="upsert_number", row_id=4711, **upsert)
            created = UpsertContactRowOperator(task_id="upsert_twice", **upsert)
            again = "{{ ti.xcom_pull('upsert_twice')['row_id'] }}"
            created >> UpsertContactRowOperator(task_id="upsert_again", row_id=again, **upsert)
            UpsertContactRowOperator(
                task_id=task_runner.prepare("upsert_cut", fault("create_contact_row", "cut_after")), **upsert
            )

            DeleteContactRowOperator(task_id="delete", row_id="row_{{ 'delete' }}")
            DeleteContactRowOperator(task_id="delete_gone", row_id="row_nobody_has")
            DeleteContactRowOperator(task_id="delete_skipping", row_id="row_nobody_has", skip_if_missing=True)
            DeleteContactRowOperator(
                task_id=task_runner.prepare("cut_delete", fault("delete_contact_row", "cut_after", times=1)),
                row_id="row_cut_delete",
            )
        yield task_runner.run_dag(dag)


@pytest.fixture(scope="module")
def rows(finished_run: TaskRunner) -> dict[str, dict[str, Any]]:
    """The rows there are in the end, by id."""
    found = finished_run.sandbox.inbox("contacts", limit=1000)["items"]
    return {row["id"]: row["columns"] for row in found}


def named(rows: dict[str, dict[str, Any]], name: str) -> int:
    return sum(1 for cells in rows.values() if cells[NAME] == name)


class TestGetTable:
    def test_columns_are_the_result(self, finished_run: TaskRunner) -> None:
        table = finished_run.xcom("table")
        assert set(table) == {"id", "columns"}
        assert table["columns"][0] == {"id": NAME, "name": "Name", "type": "TEXT"}
        assert len(table["columns"]) == 8

    def test_busy_service_is_retried(self, finished_run: TaskRunner) -> None:
        assert finished_run.outcome("table_busy") == ("success", 2)

    def test_wrong_key_fails_at_once(self, finished_run: TaskRunner) -> None:
        assert finished_run.outcome("table_wrong_key") == ("failed", 1)


class TestGetRow:
    def test_row_has_its_cells_by_column_name(self, finished_run: TaskRunner) -> None:
        result = finished_run.xcom("read")
        assert result["row_id"] == "row_read"
        assert (result["columns"]["Name"], result["columns"]["Points"]) == ("Before", 1)

    def test_return_fields_narrow_them(self, finished_run: TaskRunner) -> None:
        assert finished_run.xcom("read_narrowed")["columns"] == {"Points": 1, "Plan": None}

    def test_field_that_is_no_column_fails_at_once(self, finished_run: TaskRunner) -> None:
        assert finished_run.outcome("read_unknown_field") == ("failed", 1)
        assert "return_fields names fields that the record does not have: Colour" in finished_run.error(
            "read_unknown_field"
        )

    def test_missing_row_fails_without_a_retry(self, finished_run: TaskRunner) -> None:
        assert finished_run.outcome("read_gone") == ("failed", 1)

    def test_reading_again_is_harmless(self, finished_run: TaskRunner) -> None:
        assert finished_run.outcome("read_broken_at_first") == ("success", 2)


class TestCreate:
    def test_cells_of_all_types_are_written_by_column_name(
        self, finished_run: TaskRunner, rows: dict[str, dict[str, Any]]
    ) -> None:
        assert rows[finished_run.xcom("create")["row_id"]] == {
            NAME: "Ada",
            PHONE: digits("create"),
            EMAIL: address("create"),
            BIRTHDAY: "1990-05-17",
            PLAN: "gold",
            TAGS: ["a", "Ada"],
            WEBSITE: "https://example.com/Ada",
            POINTS: 12,
        }
        assert finished_run.xcom("create")["created"] is True

    def test_rendered_tab_shows_column_names_only(self, finished_run: TaskRunner) -> None:
        shown = finished_run.rendered("create")["columns"]
        assert set(shown) == {"Name", "phone", " EMAIL ", "Birthday", "Plan", "Tags", WEBSITE, "Points"}
        assert set(shown.values()) == {"***"}

    def test_busy_service_is_retried(self, finished_run: TaskRunner, rows: dict[str, dict[str, Any]]) -> None:
        assert finished_run.outcome("create_busy_at_first") == ("success", 2)
        assert named(rows, "Busy") == 1

    @pytest.mark.parametrize("kind", UNKNOWN)
    def test_unknown_creation_is_not_repeated(
        self, finished_run: TaskRunner, rows: dict[str, dict[str, Any]], kind: str
    ) -> None:
        assert finished_run.outcome(f"unknown_{kind}") == ("failed", 1)
        assert named(rows, kind) == 1

    @pytest.mark.parametrize("kind", MISFITS)
    def test_cells_that_do_not_fit_fail_at_once_and_name_all_faults_but_no_value(
        self, finished_run: TaskRunner, kind: str
    ) -> None:
        _, told, untold = MISFITS[kind]
        assert finished_run.outcome(f"misfit_{kind}") == ("failed", 1)
        assert [words for words in told if words not in finished_run.error(f"misfit_{kind}")] == []
        assert untold not in finished_run.error(f"misfit_{kind}")

    def test_broken_template_fails_at_once(self, finished_run: TaskRunner) -> None:
        assert finished_run.outcome("broken_template") == ("failed", 1)
        assert "template of columns cannot be rendered" in finished_run.error("broken_template")


class TestUpdate:
    def test_update_changes_only_given_cells(self, finished_run: TaskRunner, rows: dict[str, dict[str, Any]]) -> None:
        assert finished_run.xcom("update") == {"row_id": "row_update", "created": False}
        changed = rows["row_update"]
        assert (changed[NAME], changed[POINTS], changed[EMAIL]) == ("After", 1, "b@example.com")

    def test_cells_come_from_an_upstream_task(self, finished_run: TaskRunner, rows: dict[str, dict[str, Any]]) -> None:
        assert (rows["row_from_task"][NAME], rows["row_from_task"][POINTS]) == ("From a task", 7)

    @pytest.mark.parametrize("case", ["clear", "clear_empty"])
    def test_none_clears_a_cell(self, finished_run: TaskRunner, rows: dict[str, dict[str, Any]], case: str) -> None:
        assert finished_run.outcome(case) == ("success", 1)
        assert rows[f"row_{case}"][POINTS] is None

    def test_missing_row_fails_without_a_retry(self, finished_run: TaskRunner) -> None:
        assert finished_run.outcome("update_gone") == ("failed", 1)

    @pytest.mark.parametrize("case", ["busy_update", "cut_update"])
    def test_repeated_update_is_safe(
        self, finished_run: TaskRunner, rows: dict[str, dict[str, Any]], case: str
    ) -> None:
        assert finished_run.outcome(case) == ("success", 2)
        assert rows[f"row_{case}"][NAME] == "After"

    def test_mapped_instances_change_their_own(self, finished_run: TaskRunner, rows: dict[str, dict[str, Any]]) -> None:
        assert [rows[f"row_mapped_{n}"][NAME] for n in (0, 1)] == ["Number 0", "Number 1"]
        assert finished_run.rendered("mapped", 1)["columns"] == {"Name": "***"}


class TestUpsert:
    def test_upsert_changes_an_existing_row(self, finished_run: TaskRunner, rows: dict[str, dict[str, Any]]) -> None:
        assert finished_run.xcom("upsert") == {"row_id": "row_upsert", "created": False, **NOTHING_UNKNOWN}
        assert rows["row_upsert"][NAME] == "Upserted"

    @pytest.mark.parametrize("given", ["none", "empty", "rendered_none", "blank", "gone", "number"])
    def test_upsert_without_a_row_creates_one(
        self, finished_run: TaskRunner, rows: dict[str, dict[str, Any]], given: str
    ) -> None:
        result = finished_run.xcom(f"upsert_{given}")
        assert result["created"] is True
        assert rows[result["row_id"]][NAME] == "Upserted"

    def test_upsert_of_a_deleted_row_reports_it_as_gone(self, finished_run: TaskRunner) -> None:
        assert "The list no longer has a row with this id. Creating a new one." in finished_run.log("upsert_gone")

    def test_upsert_of_a_missing_row_fails_without_create_if_missing(self, finished_run: TaskRunner) -> None:
        assert finished_run.outcome("upsert_strict") == ("failed", 1)

    def test_result_is_the_row_id_for_the_next_time(self, finished_run: TaskRunner) -> None:
        first, again = finished_run.xcom("upsert_twice"), finished_run.xcom("upsert_again")
        assert again == {"row_id": first["row_id"], "created": False, **NOTHING_UNKNOWN}

    def test_unknown_creation_is_not_repeated(self, finished_run: TaskRunner) -> None:
        assert finished_run.outcome("upsert_cut") == ("failed", 1)


class TestDelete:
    def test_deleted_row_is_gone(self, finished_run: TaskRunner, rows: dict[str, dict[str, Any]]) -> None:
        assert finished_run.xcom("delete") == {"row_id": "row_delete", "deleted": True}
        assert "row_delete" not in rows

    def test_missing_row_fails_without_a_retry(self, finished_run: TaskRunner) -> None:
        assert finished_run.outcome("delete_gone") == ("failed", 1)

    def test_missing_row_skips_on_request(self, finished_run: TaskRunner) -> None:
        assert finished_run.outcome("delete_skipping") == ("skipped", 1)

    def test_cut_deletion_is_repeated_and_finding_nothing_is_success(
        self, finished_run: TaskRunner, rows: dict[str, dict[str, Any]]
    ) -> None:
        assert finished_run.outcome("cut_delete") == ("success", 1)
        assert "row_cut_delete" not in rows


def test_rows_created_are_as_many_as_the_tasks_say(finished_run: TaskRunner, rows: dict[str, dict[str, Any]]) -> None:
    created = finished_run.sandbox.counters()["contacts"]["created"]
    said = 2 + len(UNKNOWN) + 6 + 1 + 1
    assert created == said
