"""JSON Lines."""

from __future__ import annotations

import codecs
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpaas_provider.sources import JsonLinesSource
from cpaas_provider.sources.base import Row, SourceError
from cpaas_provider.sources.json_lines import MAX_LINE_BYTES
from cpaas_provider.sources.tables import has_content
from tests.unit.sources.reading import bad, columns, good, read, values

Make = Callable[..., JsonLinesSource]


@pytest.fixture
def made(tmp_path: Path) -> Make:
    """Write a file and return its source."""

    def make(content: bytes, name: str = "a.jsonl") -> JsonLinesSource:
        path = tmp_path / name
        path.write_bytes(content)
        return JsonLinesSource(path)

    return make


def test_objects_give_requested_values_under_their_line_numbers(made: Make) -> None:
    source = made(b'{"phone": "1", "n": 5}\n\n  \r\n {"n": [1, {"x": null}]} \r\n{}')
    assert read(source, "n", "phone") == [Row(1, (5, "1")), Row(4, ([1, {"x": None}], None))]
    assert read(source, "n") == read(source, "n")
    assert columns(source) is None


def test_compressed_and_marked_files_are_read(made: Make) -> None:
    content = codecs.BOM_UTF8 + '{"name": "Zoë"}\n'.encode()
    assert values(made(content), "name") == [("Zoë",)]
    assert values(made(gzip.compress(content), "a.jsonl.gz"), "name") == [("Zoë",)]


def test_empty_file_has_no_rows(made: Make) -> None:
    assert read(made(b""), "phone") == read(made(codecs.BOM_UTF8), "phone") == []


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b'{"phone": "1"} {"phone": "2"}',
        b'{"phone": "1"},',
        b'["1"]',
        b'"1"',
        b"1",
        b"null",
        b'{"phone": NaN}',
        b'{"phone": -Infinity}',
        b"{'phone': '1'}",
        b'{"phone": "1\t"}',
        b'{"phone": ' + b"[" * 100_000,
        b'{"phone": ' + b"1" * 5000 + b"}",
    ],
)
def test_line_that_is_no_object_is_invalid(made: Make, line: bytes) -> None:
    found = read(made(b'{"phone": "a"}\n' + line + b'\n{"phone": "b"}\n'), "phone")
    assert good(found) == {1: ("a",), 3: ("b",)}
    assert bad(found) == {2: "is not a JSON object on a line of its own"}


@pytest.mark.parametrize("line", [b'{"name": "Zo\xeb"}', rb'{"name": "\ud83d"}', rb'{"name": "\uDE00x"}'])
def test_line_that_is_not_utf_8_is_invalid(made: Make, line: bytes) -> None:
    found = read(made(line + b'\n{"name": "b"}\n'), "name")
    assert good(found) == {2: ("b",)}
    assert "is not UTF-8" in bad(found)[1]


def test_escapes_are_read(made: Make) -> None:
    assert values(made(rb'{"name": "\ud83d\ude00 Zo\u00eb"}'), "name") == [("\U0001f600 Zoë",)]


def test_utf_16_file_is_an_error_that_names_it(made: Make) -> None:
    with pytest.raises(SourceError, match="UTF-16"):
        read(made('{"phone": "1"}'.encode("utf-16")), "phone")


def test_overlong_line_is_invalid_and_not_held_in_memory(made: Make) -> None:
    import tracemalloc

    source = made(
        b'{"phone": "a"}\n' + b"x" * (20 * MAX_LINE_BYTES) + b'\n{"phone": "b"}\n' + b"y" * (2 * MAX_LINE_BYTES)
    )
    tracemalloc.start()
    found = read(source, "phone")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert good(found) == {1: ("a",), 3: ("b",)}
    assert bad(found).keys() == {2, 4}
    assert peak < 6 * MAX_LINE_BYTES


def test_line_of_the_maximum_length_is_read(made: Make) -> None:
    line = b'{"name": "' + b"x" * (MAX_LINE_BYTES - 12) + b'"}'
    assert len(line) == MAX_LINE_BYTES
    assert good(read(made(line + b"\n" + line), "name")).keys() == {1, 2}
    assert bad(read(made(line + b" "), "name")).keys() == {1}


def test_reasons_of_invalid_rows_show_no_content(made: Make) -> None:
    found = read(made(b'{"secret"\n["secret"]\n{"phone": "secret\xff"}\n{"phone": secret}\n'), "phone")
    assert bad(found).keys() == {1, 2, 3, 4}
    assert "secret" not in str(found)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("jsonl") / "a.jsonl"


TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)


@given(
    table=st.lists(st.dictionaries(st.sampled_from(["a", "b", "ü"]), JSON), max_size=6),
    ascii_only=st.booleans(),
    end=st.sampled_from(["\n", "\r\n"]),
)
def test_written_objects_are_read_unchanged(
    path: Path, table: list[dict[str, Any]], ascii_only: bool, end: str
) -> None:
    path.write_bytes("".join(json.dumps(row, ensure_ascii=ascii_only) + end for row in table).encode())
    rows = [(number, row) for number, row in enumerate(table, 1) if has_content(row.values())]
    expected = [Row(number, (row.get("b"), row.get("ü"))) for number, row in rows]
    assert read(JsonLinesSource(path), "b", "ü") == expected


def test_object_with_a_requested_key_twice_is_invalid(made: Make) -> None:
    source = made(
        b'{"phone": "1", "n": 1, "phone": "2"}\n{"Phone": "1", "Phone": "2"}\n{"phone": "3", "n": 1, "n": 2}\n'
        b'{"phone": "4", "n": {"a": 1, "a": 2}}\n{"phone": "5", "Phone": "6", "Phone": "7"}\n'
    )
    found = read(source, "phone")
    assert good(found) == {3: ("3",), 4: ("4",), 5: ("5",)}
    assert bad(found) == {
        1: "cannot be read: columns 1 and 3 have the same name",
        2: "cannot be read: columns 1 and 2 have the same name but for capitals and blanks",
    }
