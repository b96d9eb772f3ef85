"""CSV as people and spreadsheets write it."""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import io
import lzma
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpaas_provider.sources import CsvSource
from cpaas_provider.sources.base import InvalidRow, Row, SourceError
from cpaas_provider.sources.csv_file import records as csv_records
from cpaas_provider.sources.csv_file.dialect import Dialect
from tests.unit.sources.reading import bad, columns, good, read, values

Make = Callable[..., CsvSource]


@pytest.fixture
def made(tmp_path: Path) -> Make:
    """Write a file and return its source."""

    def make(content: str | bytes, name: str = "a.csv", **options: Any) -> CsvSource:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return CsvSource(path, **options)

    return make


def test_rows_have_the_wanted_columns_in_their_order(made: Make) -> None:
    source = made("phone,name,city\n1,Ada,Lagos\n2,Bo,Accra\n")
    assert columns(source) == ("phone", "name", "city")
    assert read(source, "city", "phone") == [Row(2, ("Lagos", "1")), Row(3, ("Accra", "2"))]


def test_missing_column_gives_none(made: Make) -> None:
    source = made("phone,name\n1,Ada\n2\n3,Cy,,\n")
    assert values(source, "zone", "phone", "name") == [(None, "1", "Ada"), (None, "2", None), (None, "3", "Cy")]
    assert values(source) == [(), (), ()]


def test_source_can_be_read_twice(made: Make) -> None:
    source = made("phone\n1\n2\n")
    assert read(source, "phone") == read(source, "phone") == [Row(2, ("1",)), Row(3, ("2",))]


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)])
def test_compressed_files_are_unpacked(made: Make, suffix: str, pack: Callable[[bytes], bytes]) -> None:
    assert values(made(pack(b"phone\n1\n"), "a.csv" + suffix), "phone") == [("1",)]


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)])
def test_truncated_or_invalid_compressed_file_is_an_error(
    made: Make, suffix: str, pack: Callable[[bytes], bytes]
) -> None:
    whole = pack(b"phone\n" + b"".join(b"%d\n" % number for number in range(1000)))
    with pytest.raises(SourceError, match=r"It is incomplete"):
        read(made(whole[:-20], "a.csv" + suffix), "phone")
    with pytest.raises(SourceError, match=r"CSV file .*cannot be read"):
        read(made("phone\n1\n", "b.csv" + suffix), "phone")


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_path_may_be_text_with_or_without_a_scheme(made: Make, scheme: str) -> None:
    path = made("phone\n1\n").path
    assert values(CsvSource(f"{scheme}{path}"), "phone") == [("1",)]


def test_relative_path_is_resolved_from_the_working_directory(made: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(made("phone\n1\n").path.parent)
    assert values(CsvSource("a.csv"), "phone") == [("1",)]


def test_file_of_an_object_store_is_read(made: Make) -> None:
    from airflow.sdk import ObjectStoragePath
    from airflow.sdk.io import attach
    from fsspec.implementations.memory import MemoryFileSystem

    storage = attach("memory", fs=MemoryFileSystem()).fs
    storage.pipe("memory://bucket/a.csv", b"phone\n1\n")
    path = ObjectStoragePath("memory://bucket/a.csv")
    assert values(CsvSource("memory://bucket/a.csv"), "phone") == [("1",)]
    assert values(CsvSource(path), "phone") == [("1",)]


def test_path_with_a_connection_is_read(made: Make) -> None:
    path = made("phone\n1\n").path
    assert values(CsvSource(f"file://{path}", conn_id="lake"), "phone") == [("1",)]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/nowhere/a.csv", "The file does not exist"),
        ("/", "It is a folder"),
        ("nosuch://bucket/a.csv", "Check the path"),
        ("s3://key:secret@bucket/a.csv", r"CSV file s3://bucket/a.csv cannot be read"),
    ],
)
def test_error_of_an_unopenable_path_advises_without_showing_secrets(path: str, words: str) -> None:
    with pytest.raises(SourceError, match=words) as told:
        read(CsvSource(path), "phone")
    assert "secret" not in str(told.value)
    assert told.value.__cause__ is None


def test_error_of_the_reading_code_is_not_changed(made: Make) -> None:
    with pytest.raises(EOFError, match="not ours"), made("phone\n1\n", "a.csv").open():
        raise EOFError("not ours")


@pytest.mark.parametrize(
    "content",
    [
        codecs.BOM_UTF8 + "phone,name\n1,Zoë\n".encode(),
        codecs.BOM_UTF16_LE + "phone,name\n1,Zoë\n".encode("utf-16-le"),
        codecs.BOM_UTF16_BE + "phone,name\r\n1,Zoë\r\n".encode("utf-16-be"),
        "phone,name\n1,Zoë\n".encode(),
    ],
)
def test_byte_order_mark_sets_the_encoding(made: Make, content: bytes) -> None:
    assert read(made(content), "phone", "name") == [Row(2, ("1", "Zoë"))]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16"])
def test_byte_order_mark_is_no_part_of_the_first_column_name(made: Make, encoding: str) -> None:
    content = "\ufeff" + '"phone"\n1\n'
    source = made(content.removeprefix("\ufeff" * (encoding == "utf-16")).encode(encoding), encoding=encoding)
    assert (columns(source), values(source, "phone")) == (("phone",), [("1",)])


def test_configured_encoding_is_used(made: Make) -> None:
    content = "phone,name\n1,Zoë €\n".encode("cp1252")
    assert values(made(content, encoding="cp1252"), "name") == [("Zoë €",)]


def test_rows_of_another_encoding_are_set_aside_and_the_others_read(made: Make) -> None:
    found = read(made(b"phone,name\n1,Ada\n2,Zo\xeb\n3,\xff\xfe\n4,Zo\xc3\xab\n5,\xc3\n"), "phone", "name")
    assert good(found) == {2: ("1", "Ada"), 5: ("4", "Zoë")}
    assert bad(found).keys() == {3, 4, 6}
    assert "encoding='cp1252'" in bad(found)[3]


def test_row_with_an_undecodable_unread_column_is_invalid(made: Make) -> None:
    assert bad(read(made(b"phone,name\n1,Zo\xeb\n"), "phone")).keys() == {2}


def test_utf_16_that_breaks_off_is_set_aside(made: Make) -> None:
    content = codecs.BOM_UTF16_LE + "phone\n1\n2".encode("utf-16-le")[:-1]
    found = read(made(content), "phone")
    assert (good(found), bad(found).keys()) == ({2: ("1",)}, {3})


def test_wrong_encoding_is_an_error_that_names_it(made: Make) -> None:
    with pytest.raises(SourceError, match=r"cannot be read as utf-16 .* Set its encoding"):
        read(made("phone\n1\n", encoding="utf-16"), "phone")


def test_header_in_another_encoding_is_an_error_that_suggests_one(made: Make) -> None:
    with pytest.raises(SourceError, match="encoding='cp1252'"):
        read(made(b"t\xe9l\n1\n"), "tel")
    with pytest.raises(SourceError, match="UTF-16"):
        read(made("phone\n1\n".encode("utf-16-le")), "phone")


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_delimiter_is_detected(made: Make, delimiter: str) -> None:
    content = f'phone{delimiter}"last, first; all"{delimiter}city\n1{delimiter}Ada{delimiter}a,b;c\n'
    content = content.replace("a,b;c", f'"a{delimiter}b"')
    assert values(made(content), "phone", "city") == [("1", f"a{delimiter}b")]


def test_sep_line_of_excel_sets_the_delimiter(made: Make) -> None:
    for line in ("sep=;\r\n", "\ufeffSEP=;\r\n", '"sep=;"\n', "sep=;;;\n"):
        source = made(f"{line}phone;a,b,c,d\n1;2\n")
        assert (columns(source), read(source, "phone")) == (("phone", "a,b,c,d"), [Row(3, ("1",))])
    assert columns(made("sep=\t\nphone,x\ty\n")) == ("phone,x", "y")


def test_configured_delimiter_is_used(made: Make) -> None:
    assert columns(made("a,b:c,d\n", delimiter=":")) == ("a,b", "c,d")
    assert columns(made("sep=;\na;b:c;d\n", delimiter=":")) == ("a;b", "c;d")


def test_delimiter_may_be_a_blank(made: Make) -> None:
    assert values(made('phone name\n1 "Ada Obi"\n2  \n', delimiter=" "), "phone", "name") == [
        ("1", "Ada Obi"),
        ("2", None),
    ]
    assert columns(made("sep='\na,b\n", quote="'")) == ("a", "b")


def test_tsv_suffix_prefers_the_tab_as_delimiter(made: Make) -> None:
    assert columns(made("a,b\tc\n", "a.tsv")) == ("a,b", "c")
    assert columns(made("a,b\tc\n", "a.csv")) == ("a", "b\tc")
    assert values(made("phone\n1,5\n", "b.tsv"), "phone") == [("1,5",)]


def test_names_of_the_header_are_stripped(made: Make) -> None:
    source = made("\ufeff phone\xa0, \xa0name ,,\n1,Ada\n")
    assert columns(source) == ("phone", "name")
    assert values(source, "phone", "name") == [("1", "Ada")]


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("phone,name,phone", "Columns 1 and 3 .* have the same name"),
        ("phone, phone\xa0", "Columns 1 and 2 .* have the same name"),
        (",,", "has no header"),
        ('"phone\nname', "header .* cannot be read"),
    ],
)
def test_invalid_header_is_described_by_positions_only(made: Make, header: str, words: str) -> None:
    with pytest.raises(SourceError, match=words) as told:
        read(made(f"{header}\n1,2,3\n"), "phone")
    assert "phone" not in str(told.value)


@pytest.mark.parametrize(
    "content", [b"", b"\n\r\n  \n", codecs.BOM_UTF8, codecs.BOM_UTF16_LE, b"sep=;\n", b"\xef\xbb\xbf\n"]
)
def test_empty_file_is_an_error(made: Make, content: bytes) -> None:
    with pytest.raises(SourceError, match="is empty"):
        read(made(content), "phone")


def test_header_alone_gives_no_rows(made: Make) -> None:
    assert read(made("phone"), "phone") == []


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_rows_are_numbered_by_the_lines_an_editor_shows(made: Make, end: str) -> None:
    lines = ["", "phone,name", "1,Ada", "", "  ", '2,"Bo', "", 'and Co"', "3,Cy"]
    found = read(made(end.join(lines)), "phone", "name")
    assert found == [Row(3, ("1", "Ada")), Row(6, ("2", f"Bo{end}{end}and Co")), Row(9, ("3", "Cy"))]


def test_cells_are_stripped_and_empty_ones_are_none(made: Make) -> None:
    source = made('a,b,c\n \xa01\xa0 , "x",\n"",\xa0,"\t2 "\n')
    assert values(source, "a", "b", "c") == [("1", "x", None), (None, None, "2")]


@pytest.mark.parametrize("line", [",", ",,,", " , ", '"",""', '" ", \xa0', ",\u200b", "", "  ", '="",'])
def test_record_without_content_is_no_row_and_numbers_stay(made: Make, line: str) -> None:
    assert read(made(f"a,b\n1,x\n{line}\n2,\n{line}\n"), "a", "b") == [Row(2, ("1", "x")), Row(4, ("2", None))]


def test_row_with_content_in_a_column_that_is_not_requested_is_a_row(made: Make) -> None:
    assert values(made("a,b,c\n,,x\n,,\n"), "a") == [(None,)]
    assert values(made("a,b\n1,\n,\n")) == [()]


def test_formula_notation_of_spreadsheets_is_removed(made: Make) -> None:
    content = 'phone,name\n="0803123",=5\n"=""0803124""",=""\n\'0803125,="\n'
    assert values(made(content), "phone", "name") == [("0803123", "=5"), ("0803124", None), ("'0803125", '="')]


def test_row_with_more_cells_than_the_header_is_invalid_unless_they_are_empty(made: Make) -> None:
    found = read(made("phone,name\n1,Ada,x\n2,Bo,, \n3,Cy\n"), "phone", "name")
    assert bad(found) == {2: "has more cells than the header"}
    assert good(found) == {3: ("2", "Bo"), 4: ("3", "Cy")}


@pytest.mark.parametrize("line", ["2", "2,Bo", '2,"Bo"', "2,B"])
def test_last_line_that_may_be_cut_off_is_invalid(made: Make, line: str) -> None:
    found = read(made(f"key,name,plan\n1,Ada\n{line}"), "key", "name", "plan")
    assert good(found) == {2: ("1", "Ada", None)}
    assert bad(found) == {3: "ends without a line end and has fewer cells than the header: the file may be cut off"}


@pytest.mark.parametrize("end", ["\n2,Bo,\n", "\r\n2,Bo\r\n", "\n2,Bo,", "\n2,Bo\n,", "\n2,Bo\n \u200b", "\r2,Bo\r"])
def test_last_line_with_all_cells_a_line_end_or_no_content_is_not_cut_off(made: Make, end: str) -> None:
    source = made(f"key,name,plan\n1,Ada,gold{end}")
    assert values(source, "key", "name", "plan") == [("1", "Ada", "gold"), ("2", "Bo", None)]


def test_nul_characters_are_set_aside(made: Make) -> None:
    found = read(made(b"phone,name\n1,A\0da\n2,Bo\n"), "phone", "name")
    assert (bad(found), good(found)) == ({2: "contains NUL characters"}, {3: ("2", "Bo")})


def test_unmatched_quotes_make_each_line_they_span_invalid(made: Make) -> None:
    found = read(made('phone,name\n1,Ada\n2,"Bo\n3,Cy\n4,"Di, Inc"\n5,"E" x\n6,Flo\n'), "phone", "name")
    assert good(found) == {2: ("1", "Ada"), 7: ("6", "Flo")}
    assert {number: reason.partition(" do not match")[0] for number, reason in bad(found).items()} == {
        3: "the quotes of the record that begins on line 3",
        4: "the quotes of the record that begins on line 3",
        5: "the quotes of the record that begins on line 3",
        6: "the quotes of the record that begins on line 6",
    }


def test_unclosed_quote_makes_the_rest_of_a_small_file_invalid(made: Make) -> None:
    found = read(made('phone,name\n1,Ada\n2,"Bo\n3,Cy\n4,Di\n'), "phone", "name")
    assert good(found) == {2: ("1", "Ada")}
    assert bad(found).keys() == {3, 4, 5}


def test_unclosed_quote_does_not_swallow_a_large_file(made: Make) -> None:
    rows = "".join(f"{number},Ada\n" for number in range(50_000))
    found = read(made(f'phone,name\n1,Ada\n2,"Bo\n{rows}'), "phone")
    assert len(good(found)) == 50_001
    assert list(bad(found)) == [3]
    with pytest.raises(SourceError, match="line 3 ") as told:
        read(made(f'phone,name\n1,Ada\n2,"Bo\n{rows}', max_line_breaks=None), "phone")
    assert "quote=None" in str(told.value)


class TestLineBreaksInCells:
    PEOPLE = "".join(f"+23480312000{number:02d},Person {number}\n" for number in range(3, 30))

    def test_allowed_number_of_line_breaks_is_read_as_text(self, made: Make) -> None:
        note = "\n".join("line" for _ in range(11))
        assert values(made(f'phone,name\n1,"{note}"\n2,Bo\n'), "name") == [(note,), ("Bo",)]

    def test_more_line_breaks_make_the_row_invalid_and_reading_continues(self, made: Make) -> None:
        note = "\n".join("line" for _ in range(12))
        found = read(made(f'phone,name\n1,"{note}"\n2,Bo\n'), "phone", "name")
        assert good(found)[14] == ("2", "Bo")
        assert "more than 10 line breaks" in bad(found)[2]
        # No line of it is taken for somebody's row.
        assert set(bad(found)) == set(range(2, 14))

    @pytest.mark.parametrize("swallowed", [1, 2, 5, 9, 10, 11, 20])
    def test_stray_quote_with_a_later_partner_hides_no_row(self, made: Make, swallowed: int) -> None:
        lines = self.PEOPLE.splitlines()
        lines[0] = lines[0].replace(",", ',"')
        lines[swallowed] += '"'
        found = read(made("phone,name\n" + "\n".join(lines) + "\n"), "phone")
        assert [row.number for row in found] == list(range(2, len(lines) + 2))
        assert 2 in bad(found)
        assert len(good(found)) >= len(lines) - 2
        assert "quote" in bad(found)[2]

    def test_stray_quote_before_the_number_hides_no_row(self, made: Make) -> None:
        found = read(made('name,phone\n"Ada,+2348031200001\nBo,+2348031200002\nCy",+2348031200003\n'), "phone")
        assert good(found) == {3: ("+2348031200002",), 4: ("+2348031200003",)}
        assert set(bad(found)) == {2}

    def test_addresses_of_several_lines_are_text(self, made: Make) -> None:
        where = "12 Main Street,\nIkeja, Lagos\nCall before, please"
        assert values(made(f'phone,address\n+2348031200001,"{where}"\n'), "address") == [(where,)]

    def test_several_cells_have_their_own_line_breaks(self, made: Make) -> None:
        note = "\n".join("line" for _ in range(8))
        assert values(made(f'phone,a,b\n1,"{note}","{note}"\n'), "a", "b") == [(note, note)]

    def test_bound_can_be_set(self, made: Make) -> None:
        content = 'phone,name\n1,"a\nb\nc"\n'
        assert values(made(content, max_line_breaks=2), "name") == [("a\nb\nc",)]
        assert 2 in bad(read(made(content, max_line_breaks=1), "name"))
        assert 2 in bad(read(made(content, max_line_breaks=0), "name"))
        assert values(made(content, max_line_breaks=None), "name") == [("a\nb\nc",)]

    @pytest.mark.parametrize("value", [-1, 1.5, "3", True])
    def test_invalid_max_line_breaks_is_refused(self, made: Make, value: Any) -> None:
        with pytest.raises(ValueError, match="max_line_breaks"):
            made("phone\n", max_line_breaks=value)


def test_rows_before_an_endless_record_are_read(made: Make) -> None:
    with made(f'phone,name\n1,Ada\n2,"{"x" * 200_000}').open() as table:
        rows = table.rows(["phone"])
        assert next(rows) == Row(2, ("1",))
        with pytest.raises(SourceError, match="line 3 "):
            next(rows)


@pytest.mark.parametrize("limit", [50, 10**9])
def test_csv_field_size_limit_of_the_process_has_no_effect(made: Make, limit: int) -> None:
    before = csv.field_size_limit(limit)
    try:
        assert values(made("phone\n1\n"), "phone") == [("1",)]
        with pytest.raises(SourceError, match="line 2 "):
            read(made(f'phone\n"{"x" * 200_000}'), "phone")
    finally:
        csv.field_size_limit(before)


def test_quote_character_may_be_disabled_or_changed(made: Make) -> None:
    assert values(made('phone,name\n1,"Bo\n2,5" pipe\n', quote=None), "name") == [('"Bo',), ('5" pipe',)]
    assert values(made("phone,name\n1,'a,b'\n", quote="'"), "name") == [("a,b",)]


def test_reasons_of_invalid_rows_show_no_cell(made: Make) -> None:
    content = (
        b'phone,name\nsecret,"secret" secret\nsecret,secret,secret\nsecret,\0\nsecret,\xff\nsecret,"secret\nsecret\n'
    )
    found = read(made(content), "phone")
    assert {type(row) for row in found} == {InvalidRow}
    assert "secret" not in str(found)


_PIECES = [
    "a,b\n",
    '"a","b"\n',
    'a,"b\nc"\n',
    'a,"b\n',
    '"a"x,b\n',
    "0803 123 4567,x\n",
    "\n",
    "  \n",
    '"',
    ",",
    "\0",
    "\r",
]


@given(st.lists(st.sampled_from(_PIECES), max_size=40), st.sampled_from([0, 10, 40]), st.booleans())
def test_reading_many_lines_at_once_gives_the_records_of_reading_line_by_line(
    pieces: list[str], block: int, cut_off: bool
) -> None:
    lines = io.StringIO("".join(pieces), newline="").readlines()

    def stored() -> Iterator[str]:
        yield from lines
        if cut_off:
            raise SourceError("cut off")

    def records() -> list[object]:
        found: list[object] = []
        try:
            found.extend(csv_records.read_records(stored(), 1, Dialect(","), "the file", max_line_breaks=2))
        except SourceError as error:
            found.append(str(error))
        return found

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(csv_records, "_BLOCK_LENGTH", block)
        at_once = records()
        patched.setattr(csv_records, "_one_a_line", lambda *_: None)
        assert at_once == records()
