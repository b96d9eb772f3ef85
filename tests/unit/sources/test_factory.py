"""The source that is meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import ObjectStoragePath, task

from cpaas_provider.sources import CsvSource, JsonLinesSource, ListSource, ParquetSource, SqlSource, as_source
from tests.unit.sources.reading import values


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("a.csv", CsvSource),
        ("A.CSV", CsvSource),
        ("a.tsv", CsvSource),
        ("a.txt", CsvSource),
        ("a.2026.csv.gz", CsvSource),
        ("s3://bucket/a.csv.bz2", CsvSource),
        ("https://host/a.csv?X-Sig=a.b/c", CsvSource),
        ("a.jsonl", JsonLinesSource),
        ("a.ndjson.xz", JsonLinesSource),
        ("gs://bucket/a.parquet", ParquetSource),
        ("a.pq", ParquetSource),
        (Path("a.csv"), CsvSource),
        (ObjectStoragePath("file:///a.jsonl"), JsonLinesSource),
    ],
)
def test_path_becomes_the_source_of_its_suffix(path: Any, kind: type) -> None:
    source = as_source(path)
    assert type(source) is kind
    assert source.path == path


@pytest.mark.parametrize("path", ["a.xlsx", "a", "", "a.parquet.gz", ".gz", "0803 123 4567", Path("folder.csv/a")])
def test_unknown_suffix_is_refused_naming_the_classes(path: Any) -> None:
    with pytest.raises(ValueError, match="CsvSource, JsonLinesSource or ParquetSource") as refused:
        as_source(path)
    assert "0803" not in str(refused.value)


@pytest.mark.parametrize("text", ['["+2348030000000"]', "[{'phone': '+2348030000000'}]", "{'a': 1}", "('+1', '+2')"])
def test_list_as_text_is_refused_with_advice(text: str) -> None:
    with pytest.raises(ValueError, match="render_template_as_native_obj=True") as refused:
        as_source(text)
    assert not [word for word in ("234", "phone", "+") if word in str(refused.value)]


@pytest.mark.parametrize("source", [SqlSource("db", "SELECT 1"), ListSource(["+1"]), CsvSource("a.dat")])
def test_source_is_returned_unchanged(source: Any) -> None:
    assert as_source(source) is source


@pytest.mark.parametrize("items", [["+1"], ("+1",), {"+1"}, {"+1": 0}.keys()])
def test_items_are_a_list(items: Any) -> None:
    assert values(as_source(items), "phone") == [("+1",)]


@pytest.mark.parametrize("value", [{"phone": "+1"}, None, 5, b"a.csv", object()])
def test_value_of_another_type_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="No rows can be read from a"):
        as_source(value)


def test_task_output_is_refused_with_advice() -> None:
    @task
    def upstream() -> list[str]:
        return []

    with pytest.raises(ValueError, match="to the operator itself"):
        as_source(upstream())
