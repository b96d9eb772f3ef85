"""Files that are written while they are read."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cpaas_provider.sources import CsvSource, JsonLinesSource, ParquetSource
from cpaas_provider.sources.base import SourceError
from tests.unit.sources.reading import values

CHANGED = "changed while it was read"


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"003,Cy\n")


def rewrite(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    os.utime(path, ns=(1, 1))


def cut(path: Path) -> None:
    os.truncate(path, 3)


def raise_after(path: Path) -> None:
    append(path)
    raise EOFError("own")


def read_while(source: Any, change: Callable[[], None]) -> None:
    with source.open() as table:
        for _ in table.rows(["phone"]):
            pass
        change()


@pytest.mark.parametrize("change", [append, rewrite, cut])
def test_file_that_is_written_while_it_is_read_is_noticed(tmp_path: Path, change: Callable[[Path], None]) -> None:
    path = tmp_path / "a.csv"
    path.write_text("phone,name\n1,Ada\n2,B")
    with pytest.raises(SourceError, match=CHANGED) as raised:
        read_while(CsvSource(path), lambda: change(path))
    assert "Ada" not in str(raised.value)


def test_every_kind_of_file_is_watched(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    (tmp_path / "a.jsonl").write_text('{"phone": 1}\n')
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"phone\n1\n"))
    parquet.write_table(arrow.table({"phone": [1]}), tmp_path / "a.parquet")
    for source in (
        JsonLinesSource(tmp_path / "a.jsonl"),
        CsvSource(tmp_path / "a.csv.gz"),
        ParquetSource(tmp_path / "a.parquet"),
    ):
        with pytest.raises(SourceError, match=CHANGED):
            read_while(source, lambda path=source.path: append(path))


def test_file_without_a_line_break_at_its_end_is_whole(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("phone,name\n1,Ada\n2,B")
    assert values(CsvSource(tmp_path / "a.csv"), "name") == [("Ada",), ("B",)]


def test_file_that_another_one_replaces_is_whole(tmp_path: Path) -> None:
    path, new = tmp_path / "a.csv", tmp_path / "b.csv"
    path.write_text("phone\n1\n")
    new.write_text("phone\n1\n2\n")
    read_while(CsvSource(path), lambda: new.rename(path) and None)


def test_error_of_the_reader_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("phone\n1\n")
    with pytest.raises(EOFError, match="own"), CsvSource(path).open():
        raise_after(path)


def test_object_that_is_written_while_it_is_read_is_noticed() -> None:
    from airflow.sdk.io import attach
    from fsspec.implementations.memory import MemoryFileSystem

    storage = attach("memory", fs=MemoryFileSystem()).fs
    storage.pipe("memory://changing/a.csv", b"phone\n1\n")
    source = CsvSource("memory://changing/a.csv")
    assert values(source, "phone") == [("1",)]
    with pytest.raises(SourceError, match=CHANGED):
        read_while(source, lambda: storage.pipe("memory://changing/a.csv", b"phone\n1\n2\n"))
