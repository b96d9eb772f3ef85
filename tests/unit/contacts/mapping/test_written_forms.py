"""Text as rules say it is written: numbers, dates and lists of options as people and spreadsheets write them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpaas_provider.api.recipients.msisdn import NumberReader
from cpaas_provider.contacts.mapping.cells import cell_parser
from cpaas_provider.contacts.mapping.rules import ColumnRule

GERMAN = {"decimal": ",", "thousands": "."}
FRENCH = {"decimal": ",", "thousands": " "}
ENGLISH = {"thousands": ","}
SWISS = {"thousands": "'"}
ARABIC = {"decimal": "\u066b", "thousands": "\u066c"}


def number(value: Any, **fields: Any) -> Any:
    return cell_parser("NUMBER", ColumnRule(**fields))(value)


def day(value: Any, **fields: Any) -> Any:
    return cell_parser("DATE", ColumnRule(**fields))(value)


class TestNumbers:
    @pytest.mark.parametrize(
        ("value", "rule", "cell"),
        [
            ("1.234,50", GERMAN, 1234.5),
            ("-1.234.567", GERMAN, -1_234_567),
            ("1234,5", GERMAN, 1234.5),
            ("0,10", GERMAN, 0.1),
            (",5", GERMAN, 0.5),
            ("1 234,50", FRENCH, 1234.5),
            ("1\u00a0234\u00a0567", FRENCH, 1_234_567),
            ("1\u202f234,50", FRENCH, 1234.5),
            ("\u22121\u2009234", FRENCH, -1234),
            ("1,234.50", ENGLISH, 1234.5),
            ("12,34,567", ENGLISH, 1_234_567),
            ("1,00,000", ENGLISH, 100_000),
            ("1'234.50", SWISS, 1234.5),
            ("1\u2019234", SWISS, 1234),
            ("\u0661\u066c\u0662\u0663\u0664\u066b\u0665", ARABIC, 1234.5),
            ("1_000", {"thousands": "_"}, 1000),
            # What the source holds as a number needs no rule.
            (1234.5, GERMAN, 1234.5),
            (Decimal("1234.50"), GERMAN, 1234.5),
        ],
    )
    def test_number_is_read_in_the_notation_of_its_rule(self, value: Any, rule: dict[str, str], cell: Any) -> None:
        read = number(value, **rule)
        assert (read, type(read)) == (cell, type(cell))

    @pytest.mark.parametrize(
        ("value", "rule"),
        [
            # A point where the comma is decimal would be read a thousandfold.
            *(("1.5", GERMAN), ("1.50", GERMAN), ("12.34", GERMAN), ("1234.5", GERMAN), ("1.2345", GERMAN)),
            *(("1,5", ENGLISH), ("1,50", ENGLISH), ("1234,567", ENGLISH), (",123", ENGLISH), ("1,,234", ENGLISH)),
            *(("1,234,", ENGLISH), ("1,234,56", ENGLISH), ("123,45,678", ENGLISH), ("1.234,5", ENGLISH)),
            *(
                ("1 234", GERMAN),
                ("1  234", FRENCH),
                ("1\n234", FRENCH),
                ("1,2,3", FRENCH),
                ("1_0", {"thousands": "_"}),
            ),
            *(("1.5", {"decimal": ","}), ("1e5", GERMAN), ("- 5", FRENCH), ("0x1.000", GERMAN), ("1.000 EUR", GERMAN)),
        ],
    )
    def test_number_in_another_notation_is_refused(self, value: str, rule: dict[str, str]) -> None:
        with pytest.raises(ValueError, match="must be a number such as"):
            number(value, **rule)

    @given(st.integers(-(2**53) + 1, 2**53 - 1), st.sampled_from([GERMAN, FRENCH, ENGLISH, SWISS]))
    def test_groups_of_digits_come_back_as_they_were(self, value: int, rule: dict[str, str]) -> None:
        assert number(f"{value:,}".replace(",", rule["thousands"]), **rule) == value

    @given(st.floats(allow_nan=False, allow_infinity=False, min_value=-(2.0**53) + 1, max_value=2.0**53 - 1))
    def test_floats_written_out_come_back_as_they_were(self, value: float) -> None:
        text = format(Decimal(repr(value)), "f")
        if len(text) <= 100:
            assert number(text) == number(value) == value
            assert number(text.replace(".", ","), decimal=",") == value

    @given(st.decimals(allow_nan=False, allow_infinity=False))
    def test_no_digit_is_ever_lost(self, value: Decimal) -> None:
        try:
            cell = number(value)
        except ValueError:
            return
        assert Decimal(repr(cell)) == value


class TestDates:
    @pytest.mark.parametrize(
        ("value", "date_format", "cell"),
        [
            ("31.01.2026", "%d.%m.%Y", "2026-01-31"),
            ("1.2.2026", "%d.%m.%Y", "2026-02-01"),
            ("01/02/2026", "%d/%m/%Y", "2026-02-01"),
            ("01/02/2026", "%m/%d/%Y", "2026-01-02"),
            ("2026-31-01", "%Y-%d-%m", "2026-01-31"),
            ("20260131", "%Y%m%d", "2026-01-31"),
            ("31 Jan 2026", "%d %b %Y", "2026-01-31"),
            ("31-MAY-1899", "%d-%b-%Y", "1899-05-31"),
            ("January 31, 2026", "%B %d, %Y", "2026-01-31"),
            ("31.01.2026 23:59:59", "%d.%m.%Y %H:%M:%S", "2026-01-31"),
            ("1/31/2026 11:59 PM", "%m/%d/%Y %I:%M %p", "2026-01-31"),
            ("31.01.2026 23:59 +01:00", "%d.%m.%Y %H:%M %z", "2026-01-31"),
            ("100% 31.01.2026", "100%% %d.%m.%Y", "2026-01-31"),
            ("29.02.2024", "%d.%m.%Y", "2024-02-29"),
            ("\u0663\u0661.\u0660\u0661.\u0662\u0660\u0662\u0666", "%d.%m.%Y", "2026-01-31"),
            (dt.date(2026, 1, 31), "%d.%m.%Y", "2026-01-31"),
        ],
    )
    def test_date_format_is_applied(self, value: Any, date_format: str, cell: str) -> None:
        assert day(value, date_format=date_format) == cell

    @pytest.mark.parametrize(
        ("value", "date_format"),
        [
            *(("01/31/2026", "%d/%m/%Y"), ("31.01.26", "%d.%m.%Y"), ("2026-01-31", "%d.%m.%Y")),
            *(("29.02.2026", "%d.%m.%Y"), ("00.01.2026", "%d.%m.%Y"), ("31.01.2026 12:00", "%d.%m.%Y")),
            *(("31 Januar 2026", "%d %B %Y"), ("31x01x2026", "%d.%m.%Y"), ("", "%d.%m.%Y x"), (45_000, "%d.%m.%Y")),
        ],
    )
    def test_date_in_another_format_is_refused(self, value: Any, date_format: str) -> None:
        if value == "":
            assert day(value, date_format=date_format) is None
            return
        with pytest.raises(ValueError, match="must be a date written as %"):
            day(value, date_format=date_format)

    @given(st.dates(), st.sampled_from(["%d.%m.%Y", "%m/%d/%Y", "%Y%m%d", "%d %B %Y", "%b %d, %Y"]))
    def test_date_written_in_a_format_is_read_by_it(self, value: dt.date, date_format: str) -> None:
        # Not every platform's strftime pads years before 1000.
        written = value.strftime(date_format.replace("%Y", "@")).replace("@", f"{value.year:04}")
        assert day(written, date_format=date_format) == value.isoformat()

    @pytest.mark.parametrize(
        ("value", "cell"),
        [
            (1, "1900-01-01"),
            (59, "1900-02-28"),
            (61, "1900-03-01"),
            (45_000, "2023-03-15"),
            ("45000", "2023-03-15"),
            (45_000.75, "2023-03-15"),
            ("45000.75", "2023-03-15"),
            (Decimal("45000"), "2023-03-15"),
            (2_958_465, "9999-12-31"),
            (2_958_465.99, "9999-12-31"),
            ("2023-03-15", "2023-03-15"),
            ("20230315", "2023-03-15"),
        ],
    )
    def test_serial_numbers_of_excel_by_rule(self, value: Any, cell: str) -> None:
        assert day(value, excel_serial=True) == cell

    @pytest.mark.parametrize(
        ("value", "reason"),
        [
            (60, "a day that never was"),
            ("60", "a day that never was"),
            (60.5, "a day that never was"),
            *((value, "no serial number of a day") for value in (0, -1, 0.5, "0", 2_958_466, float("inf"))),
            *((value, "no serial number of a day") for value in (Decimal("1E+999999999"), 10**5_000, "9999999")),
            *((value, "must be a date such as .* or a serial number") for value in (True, "1e4", "-5", "12345678")),
        ],
        ids=range(16),
    )
    def test_what_is_no_day_of_excel_is_refused(self, value: Any, reason: str) -> None:
        with pytest.raises(ValueError, match=reason):
            day(value, excel_serial=True)

    def test_date_format_comes_before_the_serial_number(self) -> None:
        assert day("01012026", date_format="%d%m%Y", excel_serial=True) == "2026-01-01"
        assert day("45000", date_format="%d%m%Y", excel_serial=True) == "2023-03-15"
        with pytest.raises(ValueError, match="must be a date written as %d%m%Y, or a serial number"):
            day("soon", date_format="%d%m%Y", excel_serial=True)

    @given(st.dates(min_value=dt.date(1900, 3, 1)))
    def test_days_since_excels_beginning_are_its_numbers(self, value: dt.date) -> None:
        assert day((value - dt.date(1899, 12, 30)).days, excel_serial=True) == value.isoformat()


class TestOptions:
    @pytest.mark.parametrize(
        ("value", "separator", "cell"),
        [
            ("a;b", ";", ["a", "b"]),
            ("a,b; c", ";", ["a,b", "c"]),
            ("a || b||a", "||", ["a", "b"]),
            ("a\nb", "\n", ["a", "b"]),
            ("a b", " ", ["a", "b"]),
            (["a;b"], ";", ["a;b"]),
            ('["a;b"]', ";", ["a;b"]),
        ],
    )
    def test_separator_splits_options_of_text(self, value: Any, separator: str, cell: list[str]) -> None:
        assert cell_parser("MULTI SELECT", ColumnRule(separator=separator))(value) == cell


@pytest.mark.parametrize(
    ("region", "default", "cell"),
    [("DE", "NG", "49301234567"), ("de", None, "49301234567"), (None, "DE", "49301234567")],
)
def test_region_of_a_rule_overrides_the_default(region: str | None, default: str | None, cell: str) -> None:
    assert cell_parser("PHONE NUMBER", ColumnRule(region=region), NumberReader(default))("030 1234567") == cell
