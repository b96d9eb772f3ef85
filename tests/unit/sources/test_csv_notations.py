"""CSV as different programs write it: quotes, escapes, delimiters, records of several lines, damage."""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpaas_provider.sources import CsvSource
from cpaas_provider.sources.base import SourceError
from tests.unit.sources.csv_notations import USUAL
from tests.unit.sources.reading import bad, columns, good, read, values

Make = Callable[..., CsvSource]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Write a file and return its source."""

    def write(content: str, name: str = "a.csv", **options: Any) -> CsvSource:
        path = tmp_path / name
        path.write_bytes(content.encode())
        return CsvSource(path, **options)

    return write


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize(("content", "rows"), USUAL)
def test_usual_notations_are_read(make: Make, content: str, rows: list[tuple[Any, ...]], end: str) -> None:
    source = make(content.replace("\n", end))
    assert values(source, *(columns(source) or ())) == rows


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_breaks_of_a_quoted_cell_are_text(make: Make, end: str) -> None:
    assert values(make(f'a,b{end}1,"once{end}upon{end}a time"{end}2,x'), "a", "b") == [
        ("1", f"once{end}upon{end}a time"),
        ("2", "x"),
    ]


def test_index_of_a_data_frame_needs_no_name(make: Make) -> None:
    source = make(",phone,name\n0,+1,Ada\n1,+2,Bo\n")
    assert columns(source) == ("", "phone", "name")
    assert values(source, "phone", "name") == [("+1", "Ada"), ("+2", "Bo")]


def test_text_in_a_column_without_a_name_at_the_end_is_no_fault(make: Make) -> None:
    found = read(make("phone,name,\n+1,Ada,called\n+2,Obi, Bo,\n+3,Cy\n"), "phone", "name")
    assert good(found) == {2: ("+1", "Ada"), 4: ("+3", "Cy")}
    assert bad(found) == {3: "has more cells than the header"}


def test_part_of_a_rejected_record_takes_no_row_after_it(make: Make) -> None:
    content = 'phone,c1,c2\nu0@x.org,"l1\nl2","\nu1@x.org,","O""K, yes"""\nu2@x.org,a,b\n'
    found = read(make(content), "phone", "c1")
    numbers = {row.number for row in found}
    assert {2, 3, 4, 5} <= numbers
    assert not any("u1@x.org" in str(cell) for cells in good(found).values() for cell in cells[1:])
    assert good(found)[5] == ("u2@x.org", "a")


class TestBlanksAfterAQuote:
    @pytest.mark.parametrize("blanks", [" ", "   ", "\t", "\xa0", " \t "])
    def test_blanks_after_a_quote_are_ignored(self, make: Make, blanks: str) -> None:
        content = f'"phone"{blanks},"name"{blanks}\r\n"+1"{blanks},"Ada, ""B"""{blanks}\r\n"+2",Bo\r\n'
        assert values(make(content), "phone", "name") == [("+1", 'Ada, "B"'), ("+2", "Bo")]

    def test_blanks_between_quotes_of_a_text_stay(self, make: Make) -> None:
        assert values(make('a,b\n"x" ,"say ""hi"" , ok"\n'), "b") == [('say "hi" , ok',)]

    def test_blanks_after_a_quote_are_ignored_on_each_line_of_a_record(self, make: Make) -> None:
        content = 'a,b,c\n"x" ,"one\ntwo" ,"three\nfour" \n"y" ,"5" ,6\n'
        assert values(make(content), "a", "b", "c") == [("x", "one\ntwo", "three\nfour"), ("y", "5", "6")]

    def test_anything_else_after_a_quote_is_a_fault(self, make: Make) -> None:
        found = read(make('a,b\n"x" ,"y"z\n"u" ,v\n'), "a", "b")
        assert (list(bad(found)), good(found)) == ([2], {3: ("u", "v")})

    def test_tabs_that_delimit_are_no_blanks(self, make: Make) -> None:
        assert values(make('a\tb\tc\n"x" \t\t"z" \n'), "a", "b", "c") == [("x", None, "z")]

    def test_unicode_line_separators_do_not_change_row_numbers(self, make: Make) -> None:
        found = read(make('a,b\n"x\u2028\x0b\x85" ,1\n2,3\n'), "b")
        assert [row.number for row in found] == [2, 3]


class TestEscape:
    MYSQL = 'phone,name\n"+1","Ada \\"A\\" B"\n"+2","a\\\\b"\n"+3",\\N\n\\N,"x"\n"+4","N"\n\\N,\\N\n'

    def test_quotes_and_nulls_of_mysql_are_read(self, make: Make) -> None:
        assert values(make(self.MYSQL, escape="\\"), "phone", "name") == [
            ("+1", 'Ada "A" B'),
            ("+2", "a\\b"),
            ("+3", None),
            (None, "x"),
            ("+4", "N"),
        ]

    def test_delimiters_and_line_breaks_of_mysql_are_text(self, make: Make) -> None:
        content = "phone\tname\n+1\tAda\\\tB\n+2\tone\\\ntwo\n+3\t\\\\N\n"
        assert values(make(content, "a.tsv", escape="\\"), "phone", "name") == [
            ("+1", "Ada\tB"),
            ("+2", "one\ntwo"),
            ("+3", "\\N"),
        ]

    def test_blanks_after_a_quote_are_ignored(self, make: Make) -> None:
        assert values(make('a,b\n"x\\"y" ,"z\\" , z"\n', escape="\\"), "a", "b") == [('x"y', 'z" , z')]

    def test_without_it_a_backslash_is_text(self, make: Make) -> None:
        assert values(make("a,b\nC:\\x,\\N\n"), "a", "b") == [("C:\\x", "\\N")]

    @pytest.mark.parametrize("escape", ["", "ab", "\n", '"'])
    def test_invalid_escape_is_refused(self, make: Make, escape: str) -> None:
        with pytest.raises(ValueError, match="escape"):
            make("a\n", escape=escape)

    @given(table=st.lists(st.tuples(*[st.text('ab"\\,\n;N ', max_size=8)] * 2), max_size=5))
    def test_table_written_with_escapes_is_read_unchanged(
        self, tmp_path_factory: pytest.TempPathFactory, table: list[tuple[str, str]]
    ) -> None:
        path = tmp_path_factory.mktemp("escaped") / "a.csv"
        out = io.StringIO(newline="")
        writer = csv.writer(out, quoting=csv.QUOTE_ALL, doublequote=False, escapechar="\\")
        writer.writerows([("a", "b"), *table])
        path.write_bytes(out.getvalue().encode())
        source = CsvSource(path, escape="\\", max_line_breaks=None)
        expected = [tuple(cell.strip() or None for cell in row) for row in table if "".join(row).strip()]
        assert values(source, "a", "b") == expected


class TestDelimiter:
    @pytest.mark.parametrize(
        ("content", "names"),
        [
            ("phone;name, first, last, all\n+1;Ada\n+2;Bo\n", ("phone", "name, first, last, all")),
            ("phone;amount, NGN\n+1;5,00\n+2;7,50\n", ("phone", "amount, NGN")),
            ("phone;amount, NGN;name\n+1;5,00;Ada\n", ("phone", "amount, NGN", "name")),
            ("phone;first, last;notes\n+1;Ada, Obi\n+2;Bo, Obi\n", ("phone", "first, last", "notes")),
            ("phone|a,b,c,d\n+1|x\n", ("phone", "a,b,c,d")),
            ("phone\ta;b;c\n+1\tx\n", ("phone", "a;b;c")),
            ("phone,name;a;b\n+1,Ada\n", ("phone", "name;a;b")),
            ('phone,note\n+1,"a;b;c"\n+2,"d;e;f"\n', ("phone", "note")),
            ("phone, name, city\n+1, Ada, Lagos\n", ("phone", "name", "city")),
            ("phone,name\n", ("phone", "name")),
            ("phone;name", ("phone", "name")),
            ("phone\n+1\n", ("phone",)),
            ("phone;name;;\n+1;Ada;;\n+2;Bo;;\n", ("phone", "name")),
            ('phone;note\n+1;"one\ntwo, three\nfour, five"\n' * 1 + "+2;x\n" * 60, ("phone", "note")),
        ],
    )
    def test_delimiter_makes_rows_fit_the_header(self, make: Make, content: str, names: tuple[str]) -> None:
        assert columns(make(content)) == names

    def test_rows_after_the_sample_are_read(self, make: Make) -> None:
        content = "phone;name\n" + "".join(f"{number};x\n" for number in range(500))
        assert [row.number for row in read(make(content), "phone")] == list(range(2, 502))

    @given(
        names=st.lists(st.text("abc ,;", min_size=1, max_size=6), min_size=2, max_size=4),
        rows=st.lists(st.lists(st.text("abc ,;|\n", max_size=6), min_size=4, max_size=4), min_size=2, max_size=6),
        delimiter=st.sampled_from(",;\t|"),
    )
    def test_delimiter_of_quoted_cells_is_found(
        self,
        tmp_path_factory: pytest.TempPathFactory,
        names: list[str],
        rows: list[list[str]],
        delimiter: str,
    ) -> None:
        path = tmp_path_factory.mktemp("delimiter") / "a.csv"
        with path.open("w", newline="") as file:
            writer = csv.writer(file, delimiter=delimiter, quoting=csv.QUOTE_ALL)
            writer.writerows([[f"n{name}" for name in names], *(["x", *row][: len(names)] for row in rows)])
        assert columns(CsvSource(path)) == tuple(f"n{name}".strip() for name in names)


class TestStrayQuotes:
    def test_short_row_does_not_swallow_others(self, make: Make) -> None:
        content = 'phone,name,city\n+2348031200001,"Ada\n+2348031200002,Bo\n+2348031200003,Cy"\n+2348031200004,Di\n'
        found = read(make(content), "phone", "name")
        assert good(found) == {5: ("+2348031200004", "Di")}
        assert list(bad(found)) == [2, 3, 4]

    def test_record_with_all_cells_does_not_swallow_short_rows(self, make: Make) -> None:
        content = 'phone,name,city\n+2348031200001,"Ada\n+2348031200002,Bo\n+2348031200003",Accra\n'
        found = read(make(content), "phone", "name", "city")
        assert {row.number for row in found} == {2, 3, 4}
        assert 2 in bad(found)
        assert not any("\n" in str(cell) for cells in good(found).values() for cell in cells)

    def test_single_column_does_not_swallow_rows(self, make: Make) -> None:
        found = read(make('phone\n+2348031200001\n"+2348031200002\n+2348031200003\n+2348031200004"\n'), "phone")
        assert good(found)[2] == ("+2348031200001",)
        assert good(found)[4] == ("+2348031200003",)
        assert 3 in bad(found)

    @pytest.mark.parametrize(
        "number",
        [
            "(0803) 000 0001",
            "+(234) 803 000 0001",
            "tel:+2348030000001",
            "p:+2348030000001",
            "\u202a+2348030000001\u202c",
            "0803 \u2013 000 0001",
        ],
    )
    def test_row_is_not_swallowed_in_any_notation_of_its_number(self, make: Make, number: str) -> None:
        found = read(make(f'name,phone\n",08030000000\n",{number}\nAda,08030000002\n'), "name", "phone")
        assert (list(bad(found)), good(found)) == ([2, 3, 4], {})

    def test_rows_without_numbers_are_not_swallowed_by_a_short_record(self, make: Make) -> None:
        found = read(make('id,name,city\n17,"Ada\n18,Bo,Lagos\n19,Cy"\n20,Di,Kano\n'), "id")
        assert list(bad(found)) == [2, 4]
        assert good(found) == {3: ("18",), 5: ("20",)}

    def test_address_of_several_lines_with_a_number_in_it_is_text(self, make: Make) -> None:
        note = "12 Main Street,\nIkeja\n0803 123 4567\nask for Ada, please"
        assert values(make(f'id,note,city\n17,"{note}",Lagos\n'), "note") == [(note,)]

    def test_record_of_many_lines_is_accepted_without_max_line_breaks(self, make: Make) -> None:
        content = 'phone,name,city\n+2348031200001,"Ada\n+2348031200002,Bo"\n'
        assert values(make(content, max_line_breaks=None), "name") == [("Ada\n+2348031200002,Bo",)]

    @given(
        rows=st.lists(st.integers(1, 3), min_size=2, max_size=9),
        quotes=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 40)), max_size=3),
    )
    def test_every_line_is_a_row_or_named_and_no_text_has_the_number_of_another_row(
        self, tmp_path_factory: pytest.TempPathFactory, rows: list[int], quotes: list[tuple[int, int]]
    ) -> None:
        lines = [
            ",".join([f"+23480312000{place:02d}", f"Person {place}", "Lagos"][:cells])
            for place, cells in enumerate(rows)
        ]
        for place, at in quotes:
            line = lines[place % len(lines)]
            lines[place % len(lines)] = line[: at % (len(line) + 1)] + '"' + line[at % (len(line) + 1) :]
        path = tmp_path_factory.mktemp("stray") / "a.csv"
        path.write_text("phone,name,city\n" + "\n".join(lines) + "\n")
        found = read(CsvSource(path), "phone", "name", "city")
        assert [row.number for row in found] == list(range(2, len(rows) + 2))
        for phone, *texts in good(found).values():
            assert "\n" not in f"{phone}{texts}"

    @pytest.mark.parametrize(
        "line",
        ['+2348031200001","y\n', '"a\n', '",\n', '"a","\n', '+2348031200001,"\n', '" ,\n', '"x" ,"\n', '","\n'],
    )
    def test_time_grows_with_the_lines_alone(self, make: Make, line: str) -> None:
        def seconds(count: int) -> float:
            source = make("phone,name\n" + line * count)
            began = time.process_time()
            with source.open() as table:
                try:
                    for _ in table.rows(["phone"]):
                        pass
                except SourceError:
                    pass
            return time.process_time() - began

        short = max(min(seconds(2_000) for _ in range(3)), 0.002)
        assert seconds(20_000) < 60 * short


class TestMissingValues:
    def test_listed_missing_values_are_read_as_none(self, make: Make) -> None:
        source = make("phone,name\n+1,nan\n+2,-\n+3, - \n+4,None\nnan,-\n", missing_values=["nan", "-"])
        assert values(source, "phone", "name") == [("+1", None), ("+2", None), ("+3", None), ("+4", "None")]

    def test_missing_values_are_case_sensitive(self, make: Make) -> None:
        assert values(make("a,b\n1,NaN\n", missing_values=["nan"]), "b") == [("NaN",)]

    @pytest.mark.parametrize("value", ["nan", {"nan": 1}, 5, [None]])
    def test_missing_values_that_are_no_list_of_texts_are_refused(self, make: Make, value: Any) -> None:
        with pytest.raises(ValueError, match="missing_values"):
            make("a\n", missing_values=value)


def test_json_in_a_cell_comes_back(make: Make) -> None:
    data = {"a": [1, "x,y"], "b": 'z"'}
    written = json.dumps(data, indent=1).replace('"', '""')
    assert json.loads(values(make(f'id,data\n1,"{written}"\n'), "data")[0][0]) == data
