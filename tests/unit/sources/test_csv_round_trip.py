"""Any table that is written as CSV comes back, under the numbers of its lines."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpaas_provider.sources import CsvSource
from cpaas_provider.sources.base import Row, SourceError
from cpaas_provider.sources.tables import has_content
from tests.unit.sources.reading import read

CELLS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20) | st.sampled_from(
    ["+2348030000000", '="0803"', '"', '""', "a\r\nb", "a\rb\n", ",", ";", "\t", " ' ", "\xa0", "=", '="', "\ufeff"]
)
NAMES = ("first", "second", "third")
TABLES = st.lists(st.tuples(CELLS, CELLS, CELLS), max_size=8)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("csv") / "a.csv"


def as_read(cell: str) -> str | None:
    cell = cell.strip()
    if len(cell) > 2 and cell.startswith('="') and cell.endswith('"'):
        cell = cell[2:-1].strip()
    return cell or None


@given(
    table=TABLES,
    delimiter=st.sampled_from(",;\t|"),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
)
def test_written_table_is_read_unchanged(
    path: Path, table: list[tuple[str, ...]], delimiter: str, quoting: int, encoding: str
) -> None:
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=delimiter, quoting=quoting)  # type: ignore[arg-type]  # one of csv's numbers
    writer.writerow(NAMES)
    expected = []
    for cells in table:
        number = len(re.findall(r"\r\n|\r|\n", out.getvalue())) + 1
        if has_content(row := tuple(as_read(cell) for cell in cells)):
            expected.append(Row(number, row))
        writer.writerow(cells)
    path.write_bytes(out.getvalue().encode(encoding))
    source = CsvSource(path, max_line_breaks=None)
    assert read(source, *NAMES) == expected
    assert read(source, "third", "none") == [Row(row.number, (row.values[2], None)) for row in expected]


@given(
    head=st.sampled_from([b"phone,name\n", b"", b"\xef\xbb\xbf", b"\xff\xfe", b"sep="]),
    content=st.binary(max_size=300) | st.text("a1,;' \"\n\r=\0\ufeffé", max_size=100).map(str.encode),
    quote=st.sampled_from(['"', "'", None]),
)
def test_any_content_is_read_or_raises_a_source_error(
    path: Path, head: bytes, content: bytes, quote: str | None
) -> None:
    path.write_bytes(head + content)
    try:
        numbers = [row.number for row in read(CsvSource(path, quote=quote), "phone", "name")]
    except SourceError:
        return
    assert numbers == sorted(set(numbers))
