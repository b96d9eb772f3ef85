"""The results file: whole, or not there at all."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import ObjectStoragePath
from airflow.sdk.io import attach
from fsspec.implementations.memory import MemoryFileSystem

from cpaas_provider.sources.results_file import (
    CAMPAIGN_COLUMNS,
    Columns,
    ResultsFileError,
    as_results_path,
    check_writable,
    write_outcomes,
)

LINES = [
    {
        **dict.fromkeys(CAMPAIGN_COLUMNS),
        "row": number,
        "recipient": f"+23480{number}",
        "outcome": "sent",
        "pages": 1,
        "reason": "Adé" if number % 2 else None,
    }
    for number in range(25_000)
]


def read(path: Path) -> list[Any]:
    if path.suffix == ".parquet":
        parquet = pytest.importorskip("pyarrow.parquet")
        return list(parquet.read_table(path).to_pylist())
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("name", ["out.jsonl", "out.ndjson", "out.parquet"])
def test_every_line_with_every_field(tmp_path: Path, name: str) -> None:
    write_outcomes(ObjectStoragePath(str(tmp_path / "new" / "folder" / name)), iter(LINES))
    assert read(tmp_path / "new" / "folder" / name) == LINES


@pytest.mark.parametrize("name", ["out.jsonl", "out.parquet"])
def test_numbers_written_to_the_file_are_read_as_the_same_numbers(tmp_path: Path, name: str) -> None:
    numbers = ["6592345678", "+6592345678", "08031200000", "ada@example.com", None]
    written = [{**dict.fromkeys(CAMPAIGN_COLUMNS), "recipient": number} for number in numbers]
    write_outcomes(ObjectStoragePath(str(tmp_path / name)), iter(written))
    recipients = [line["recipient"] for line in read(tmp_path / name)]
    assert recipients == ["+6592345678", "+6592345678", "08031200000", "ada@example.com", None]


def test_lines_are_written_as_json_writes_them(tmp_path: Path) -> None:
    columns: Columns = {"row": "number", 'the "name"': "text", "known": "flag", "100%": "text"}
    lines = [
        dict(zip(columns, values, strict=True))
        for values in (
            (1, 'Adé "A"\n\\ \x1f\u2028 😀 %s', True, ""),
            (-(2**40), None, False, "%"),
            (None, "x", None, None),
        )
    ]
    write_outcomes(ObjectStoragePath(str(tmp_path / "out.jsonl")), lines, columns)
    expected = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    assert (tmp_path / "out.jsonl").read_text(encoding="utf-8") == expected


def test_parquet_columns_have_types_even_without_values(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    write_outcomes(ObjectStoragePath(str(tmp_path / "out.parquet")), [dict.fromkeys(CAMPAIGN_COLUMNS)])
    types = {field.name: str(field.type) for field in parquet.read_schema(tmp_path / "out.parquet")}
    assert types == {**dict.fromkeys(CAMPAIGN_COLUMNS, "string"), "row": "int64", "pages": "int64"}


@pytest.mark.parametrize("name", ["out.jsonl", "out.parquet"])
def test_results_of_no_recipients_are_an_empty_file(tmp_path: Path, name: str) -> None:
    write_outcomes(ObjectStoragePath(str(tmp_path / name)), [])
    assert read(tmp_path / name) == []


@pytest.mark.parametrize("name", ["out.jsonl", "out.parquet"])
def test_failed_write_leaves_the_previous_file(tmp_path: Path, name: str) -> None:
    path = ObjectStoragePath(str(tmp_path / name))
    write_outcomes(path, LINES[:3])

    def broken() -> Iterator[Mapping[str, Any]]:
        yield from LINES[:15_000]
        raise OSError("the plan's disk is gone")

    with pytest.raises(ResultsFileError, match=r"could not be written \(OSError.*\). Check results_path"):
        write_outcomes(path, broken())
    assert read(tmp_path / name) == LINES[:3]


@pytest.mark.parametrize(
    "use", [check_writable, lambda path: write_outcomes(path, iter(LINES))], ids=["check", "write"]
)
def test_folder_of_that_name_is_found_before_anything_is_sent(tmp_path: Path, use: Callable[[Any], None]) -> None:
    (tmp_path / "out.jsonl").mkdir()
    with pytest.raises(ResultsFileError, match=r"\(IsADirectoryError: Is a directory\)\. Check results_path\."):
        use(as_results_path(str(tmp_path / "out.jsonl")))
    assert [file.name for file in tmp_path.iterdir()] == ["out.jsonl"]


def test_later_try_replaces_the_file(tmp_path: Path) -> None:
    path = ObjectStoragePath(str(tmp_path / "out.jsonl"))
    write_outcomes(path, LINES[:3])
    write_outcomes(path, LINES[:2])
    assert read(tmp_path / "out.jsonl") == LINES[:2]
    assert [one.name for one in tmp_path.iterdir()] == ["out.jsonl"]


@pytest.mark.parametrize("name", ["out.jsonl", "out.parquet"])
def test_try_that_begins_during_a_write_does_not_disturb_it(tmp_path: Path, name: str) -> None:
    path = ObjectStoragePath(str(tmp_path / name))

    def lines() -> Iterator[Mapping[str, Any]]:
        yield from LINES[:15_000]
        check_writable(path)
        write_outcomes(path, LINES[:2])
        assert read(tmp_path / name) == LINES[:2]
        yield from LINES[15_000:]

    write_outcomes(path, lines())
    assert read(tmp_path / name) == LINES
    assert [one.name for one in tmp_path.iterdir()] == [name]


def test_part_file_of_a_killed_try_is_deleted_once_it_is_old(tmp_path: Path) -> None:
    path = ObjectStoragePath(str(tmp_path / "out.jsonl"))
    left = {name: tmp_path / name for name in (".out.jsonl.0a.part", ".out.jsonl.0b.part", ".other.jsonl.0c.part")}
    for file in left.values():
        file.write_text("{")
        os.utime(file, (time.time() - 400,) * 2)
    os.utime(left[".out.jsonl.0b.part"])
    check_writable(path)
    assert {one.name for one in tmp_path.iterdir()} == {".out.jsonl.0b.part", ".other.jsonl.0c.part"}
    os.utime(left[".out.jsonl.0b.part"], (time.time() - 400,) * 2)
    write_outcomes(path, LINES[:2])
    assert {one.name for one in tmp_path.iterdir()} == {"out.jsonl", ".other.jsonl.0c.part"}


def test_results_are_written_to_an_object_store() -> None:
    attach("memory", fs=MemoryFileSystem())
    path = ObjectStoragePath("memory://bucket/outcomes/out.jsonl")
    write_outcomes(path, LINES[:2])
    with path.open("rb") as file:
        assert len(file.read().splitlines()) == 2


def test_error_of_an_unwritable_path_names_the_path_and_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultsFileError) as caught:
        write_outcomes(ObjectStoragePath(str(tmp_path / "file" / "out.jsonl")), LINES)
    assert f"The results file {tmp_path}/file/out.jsonl could not be written (FileExistsError" in str(caught.value)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def no_umask() -> Iterator[None]:
    earlier = os.umask(0)
    yield
    os.umask(earlier)


@pytest.mark.usefixtures("no_umask")
class TestModes:
    @pytest.mark.parametrize("name", ["out.jsonl", "out.parquet"])
    @pytest.mark.parametrize("has_unnamed_files", [True, False])
    def test_results_file_is_readable_by_owner_only(
        self, tmp_path: Path, name: str, has_unnamed_files: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if not has_unnamed_files:
            monkeypatch.delattr(os, "O_TMPFILE", raising=False)
        folder = tmp_path / "new" / "folder"
        while_written: list[int] = []

        def lines() -> Iterator[Mapping[str, Any]]:
            while_written.extend(mode(file) for file in folder.iterdir())
            yield from LINES

        write_outcomes(as_results_path(str(folder / name)), lines())
        assert while_written == ([] if has_unnamed_files else [0o600])
        assert mode(folder / name) == 0o600
        assert [mode(one) for one in (folder, folder.parent)] == [0o700, 0o700]

    def test_trial_before_anything_is_sent_creates_private_folders(self, tmp_path: Path) -> None:
        check_writable(as_results_path(str(tmp_path / "new" / "folder" / "out.jsonl")))
        assert [mode(one) for one in (tmp_path / "new", tmp_path / "new" / "folder")] == [0o700, 0o700]
        assert list((tmp_path / "new" / "folder").iterdir()) == []

    def test_file_that_others_may_read_is_replaced_by_a_private_one(self, tmp_path: Path) -> None:
        tmp_path.chmod(0o755)
        (tmp_path / "out.jsonl").touch(0o644)
        write_outcomes(as_results_path(str(tmp_path / "out.jsonl")), LINES[:2])
        assert (mode(tmp_path / "out.jsonl"), mode(tmp_path)) == (0o600, 0o755)

    @pytest.mark.parametrize("configured", ["640", "0640", "0o640"])
    @pytest.mark.parametrize("umask", [0, 0o077])
    def test_configured_mode_applies_under_any_umask(
        self, tmp_path: Path, configured: str, umask: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AIRFLOW__CPAAS__RESULTS_FILE_MODE", configured)
        os.umask(umask)
        write_outcomes(as_results_path(str(tmp_path / "new" / "out.jsonl")), LINES[:2])
        assert (mode(tmp_path / "new" / "out.jsonl"), mode(tmp_path / "new")) == (0o640, 0o750)


@pytest.mark.parametrize("configured", ["rw-r-----", "64", "440", "646", "660x", "0x180", "1640", "\u0666\u0660\u0660"])
def test_invalid_mode_is_refused_for_local_files(
    tmp_path: Path, configured: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__CPAAS__RESULTS_FILE_MODE", configured)
    with pytest.raises(ValueError, match=r"\[cpaas\] results_file_mode is .* three octal digits such as 600 or 640"):
        as_results_path(str(tmp_path / "out.jsonl"))
    as_results_path("memory://bucket/out.jsonl")


@pytest.mark.parametrize("has_unnamed_files", [True, False])
def test_symbolic_link_in_the_way_is_not_followed(
    tmp_path: Path, has_unnamed_files: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_unnamed_files:
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    monkeypatch.setattr("cpaas_provider.sources.results_file.secrets.token_hex", lambda size: "guessed")
    (tmp_path / ".out.jsonl.guessed.part").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ResultsFileError, match="File exists"):
        write_outcomes(as_results_path(str(tmp_path / "out.jsonl")), LINES[:2])
    assert not (tmp_path / "elsewhere").exists()
