"""Sources as arguments of an operator: checked, rendered, copied, shown, serialized."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, BaseOperator, ObjectStoragePath, task
from airflow.serialization.serialized_objects import DagSerialization

from cpaas_provider.sources import CsvSource, JsonLinesSource, ListSource, ParquetSource, SqlSource


class Takes(BaseOperator):
    template_fields = ("rows",)

    def __init__(self, *, rows: Any, share: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rows = rows
        self.share = share


@pytest.mark.parametrize("kind", [CsvSource, JsonLinesSource, ParquetSource])
def test_path_and_connection_are_rendered(kind: Callable[..., Any]) -> None:
    task = Takes(task_id="t", rows=kind("s3://bucket/{{ day }}.csv", conn_id="{{ where }}"))
    task.render_template_fields({"day": "monday", "where": "lake"})
    assert task.rows == kind("s3://bucket/monday.csv", conn_id="lake")


def test_object_storage_path_is_rendered() -> None:
    task = Takes(task_id="t", rows=CsvSource(ObjectStoragePath("file:///tmp/{{ day }}.csv")))
    task.render_template_fields({"day": "monday"})
    assert str(task.rows.path) == "file:///tmp/monday.csv"


def test_query_and_parameters_are_rendered() -> None:
    task = Takes(
        task_id="t",
        rows=SqlSource("{{ db }}", "SELECT {{ column }}", {"day": "{{ day }}", "n": 5, "all": ["{{ day }}"]}),
    )
    task.render_template_fields({"db": "crm", "column": "phone", "day": "monday"})
    assert task.rows == SqlSource("crm", "SELECT phone", {"day": "monday", "n": 5, "all": ["monday"]})


def test_items_of_a_list_are_data_and_are_not_rendered() -> None:
    task = Takes(task_id="t", rows=ListSource([{"name": "{{ conn.secret }}"}]))
    task.render_template_fields({})
    assert task.rows.items == [{"name": "{{ conn.secret }}"}]


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        (CsvSource("s3://key:secret@bucket/a.csv"), "CSV file s3://bucket/a.csv"),
        (CsvSource("https://host/a.csv?X-Signature=secret#secret"), "CSV file https://host/a.csv"),
        (JsonLinesSource(Path("/data/a.jsonl")), "JSON Lines file /data/a.jsonl"),
        (ParquetSource(ObjectStoragePath("file:///data/a.parquet")), "Parquet file file:///data/a.parquet"),
        (CsvSource("ftp://[secret/a.csv"), "CSV file at a URL that cannot be read"),
        (SqlSource("crm", "SELECT 'secret'", ["secret"]), "SQL query on connection crm"),
        (ListSource(["secret"]), "list of 1 items"),
    ],
)
def test_str_and_repr_show_kind_and_location_only(source: Any, shown: str) -> None:
    assert str(source) == shown
    assert repr(source) == f"<{shown}>"


def test_sources_are_equal_by_their_arguments() -> None:
    assert CsvSource("a.csv", encoding="cp1252") == CsvSource("a.csv", encoding="cp1252")
    assert CsvSource("a.csv", encoding="cp1252") != CsvSource("a.csv")
    assert CsvSource("a") != JsonLinesSource("a")
    assert SqlSource("a", "SELECT 1") != SqlSource("a", "SELECT 2")
    assert SqlSource("a", "SELECT 1", [1]) != SqlSource("a", "SELECT 1")
    assert ListSource(["+1"]) == ListSource(["+1"])
    assert copy.deepcopy(SqlSource("a", "SELECT 1", [1])) == SqlSource("a", "SELECT 1", [1])


@pytest.mark.parametrize(
    "source",
    [
        CsvSource("s3://key:secret@bucket/a.csv"),
        JsonLinesSource("a.jsonl"),
        ParquetSource(Path("a.parquet")),
        SqlSource("crm", "SELECT 'secret'", ["secret"]),
        ListSource(["+secret"]),
    ],
)
def test_dag_with_a_source_is_serialized_identically_and_without_secrets(source: Any) -> None:
    def written(rows: Any) -> str:
        with DAG("d", schedule=None) as dag:
            Takes(task_id="t", rows=rows)
            Takes.partial(task_id="m", rows=rows).expand(share=[1, 2])
        DagSerialization.from_dict(DagSerialization.to_dict(dag))
        return json.dumps(DagSerialization.to_dict(dag), default=str)

    once = written(source)
    assert str(source) in once
    assert "secret" not in once
    assert once == written(copy.deepcopy(source))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: CsvSource(5), "path must be text; it is of type int"),
        (lambda: CsvSource(""), "path must be text; it is empty"),
        (lambda: CsvSource(None), "path must be text"),
        (lambda: CsvSource("a", conn_id=5), "conn_id must be text"),
        (lambda: CsvSource("a", encoding="latin9000"), "must name a text encoding"),
        (lambda: CsvSource("a", encoding="base64"), "must name a text encoding"),
        (lambda: CsvSource("a", encoding=5), "encoding must be text"),
        (lambda: CsvSource("a", delimiter=";;"), "delimiter must be a single character"),
        (lambda: CsvSource("a", delimiter="\n"), "delimiter must be a single character"),
        (lambda: CsvSource("a", quote="ab"), "quote must be a single character"),
        (lambda: CsvSource("a", delimiter="'", quote="'"), "must not be the same"),
        (lambda: SqlSource("", "SELECT 1"), "conn_id must be text"),
        (lambda: SqlSource("a", ["SELECT 1"]), "sql must be text; it is of type list"),
        (lambda: SqlSource("a", "SELECT 1", "x"), "parameters must be a list or a mapping"),
        (lambda: SqlSource("a", "SELECT 1", 5), "parameters must be a list or a mapping"),
    ],
)
def test_invalid_argument_is_refused_at_construction(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize(
    "make",
    [
        CsvSource,
        lambda output: CsvSource("a", conn_id=output),
        lambda output: SqlSource("a", output),
        lambda output: SqlSource("a", "SELECT 1", output),
    ],
)
def test_task_output_is_refused_with_advice(make: Callable[[Any], Any]) -> None:
    @task
    def upstream() -> str:
        return ""

    with pytest.raises(ValueError, match="use a template such as"):
        make(upstream())
