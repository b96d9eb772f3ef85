"""Values that fit each column type, and the cells they become."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from enum import StrEnum
from typing import Any
from uuid import UUID

import pendulum

UTC_EVENING = dt.datetime(2026, 1, 31, 23, 59, tzinfo=dt.UTC)


class Plan(StrEnum):
    GOLD = "gold"


GOOD: dict[str, list[tuple[Any, Any]]] = {
    "TEXT": [
        ("Ada", "Ada"),
        ("  spaced  ", "  spaced  "),
        ("one\ntwo\tthree", "one\ntwo\tthree"),
        ("Zoë 👩‍👩‍👧 Ж", "Zoë 👩‍👩‍👧 Ж"),
        ("1e5", "1e5"),
        ("x" * 65_536, "x" * 65_536),
        (5, "5"),
        (10**30, "1" + "0" * 30),
        (2.5, "2.5"),
        (5.0, "5"),
        (1e16, "10000000000000000"),
        (1e-7, "0.0000001"),
        (Decimal("5.00"), "5.00"),
        (Decimal("1E+5"), "100000"),
        (True, "True"),
        ("null", "null"),
        (Plan.GOLD, "gold"),
        (dt.date(2026, 1, 31), "2026-01-31"),
        (UTC_EVENING, "2026-01-31T23:59:00+00:00"),
        (dt.time(8, 30), "08:30:00"),
        (UUID(int=7), "00000000-0000-0000-0000-000000000007"),
    ],
    "NUMBER": [
        (5, 5),
        (0, 0),
        (-3, -3),
        (2.5, 2.5),
        (3.0, 3),
        (-0.0, 0),
        ("12", 12),
        ("007", 7),
        (" 1.5 ", 1.5),
        (".5", 0.5),
        ("+5", 5),
        ("-2.50", -2.5),
        ("\u22125", -5),
        ("\u200f-5\u200e", -5),
        ("-0", 0),
        ("٤٢", 42),
        ("\uff11\uff12.\uff15", 12.5),
        ("9007199254740991", 2**53 - 1),
        ("123456789012345.6", 123456789012345.6),
        ("0." + "0" * 20 + "1", 1e-21),
        (Decimal("0.1"), 0.1),
        (Decimal("12.50000000000000000000"), 12.5),
        (Decimal("1E+3"), 1000),
    ],
    "DATE": [
        ("2026-01-31", "2026-01-31"),
        (" 2026-01-31 ", "2026-01-31"),
        ("2026-01-31T23:59:59+01:00", "2026-01-31"),
        ("2026-01-31 23:59:59.123456+05:30", "2026-01-31"),
        ("2026-01-31 00:00:00 UTC", "2026-01-31"),
        ("2026-01-31 23:59:59.123456 UTC", "2026-01-31"),
        ("2026-01-31T23:59Z", "2026-01-31"),
        ("20260131", "2026-01-31"),
        ("\u200e2026\u200e-01-31", "2026-01-31"),
        ("2024-02-29", "2024-02-29"),
        ("0001-01-01", "0001-01-01"),
        ("1899-12-31", "1899-12-31"),
        ("\u0662\u0660\u0662\u0666-\u0660\u0661-\u0663\u0661", "2026-01-31"),
        (dt.date(2026, 1, 31), "2026-01-31"),
        (UTC_EVENING, "2026-01-31"),
        (pendulum.datetime(2026, 1, 31, 23, 59, tz="Pacific/Kiritimati"), "2026-01-31"),
        (pendulum.date(2026, 1, 31), "2026-01-31"),
    ],
    "PHONE NUMBER": [
        ("0803 123 4567", "2348031234567"),
        ("+234 803 123 4567", "2348031234567"),
        ("\u200e+234 803 123 4567", "2348031234567"),
        ("+٢٣٤ ٨٠٣ ١٢٣ ٤٥٦٧", "2348031234567"),
        (2348031234567, "2348031234567"),
        (2348031234567.0, "2348031234567"),
        (Decimal("2348031234567"), "2348031234567"),
    ],
    "EMAIL": [
        (" Ada@Example.COM ", "Ada@example.com"),
        ("ada@stra\u00dfe.de", "ada@xn--strae-oqa.de"),
        ("ada@\u200bexample.com", "ada@example.com"),
    ],
    "URL": [
        ("https://example.com/a?b=c#d", "https://example.com/a?b=c#d"),
        (" http://localhost:8025 ", "http://localhost:8025"),
        ("HTTPS://Example.com", "https://Example.com"),
        ("https://example.com?a={b}|%20", "https://example.com?a={b}|%20"),
        ("http://[::1]:8025/a", "http://[::1]:8025/a"),
        ("https://straße.de/käse?q=ü", "https://xn--strae-oqa.de/k%C3%A4se?q=%C3%BC"),
        ("https://😀.ws/😀", "https://xn--e28h.ws/%F0%9F%98%80"),
        ("https://example。com", "https://example.com"),
        ("\u200bhttps://example.com\ufeff", "https://example.com"),
        ("https://example.com/\u0645\u06cc\u200c\u062e", "https://example.com/%D9%85%DB%8C%E2%80%8C%D8%AE"),
    ],
    "SELECT": [
        ("gold", "gold"),
        (" gold ", "gold"),
        ("\ufeffgold\u200b ", "gold"),
        (5, "5"),
        (5.0, "5"),
        (Plan.GOLD, "gold"),
    ],
    "MULTI SELECT": [
        (["a", "b"], ["a", "b"]),
        (("b", "a"), ["b", "a"]),
        ({"b", "a"}, ["a", "b"]),
        ("a, b", ["a", "b"]),
        ("a", ["a"]),
        ("b,a,b,,a,", ["b", "a"]),
        (["b", None, "a", "b", " "], ["b", "a"]),
        ([2, "1"], ["2", "1"]),
        (["a,b"], ["a,b"]),
        ('["b", "a,c"]', ["b", "a,c"]),
        ("[a], b", ["[a]", "b"]),
    ],
}
