"""DATE cells: an ISO 8601 date, read from dates, ISO text, a format by rule, or Excel's serial numbers by rule."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

_LONGEST = 100
_LENGTH = len("2026-01-31")
_ISO = re.compile(
    r"([0-9]{4})(?:-([0-9]{2})-([0-9]{2})|([0-9]{2})([0-9]{2}))"
    r"(?:[Tt ](?:[01][0-9]|2[0-3]):?[0-5][0-9](?::?[0-5][0-9](?:[.,][0-9]+)?)?"
    r" ?(?:[Zz]|UTC|[+-][0-9]{2}(?::?[0-9]{2}){0,2})?)?"
)
_WRONG_ISO = "must be a date such as 2026-01-31"
# Excel's day 60 is 29 February 1900, which never was; from day 61 on days count from here.
_EXCEL_EPOCH = date(1899, 12, 30)
_EXCEL_LEAP_DAY = 60
_EXCEL_LAST_DAY = 2_958_465
_SERIAL = re.compile(r"([0-9]{1,7})(?:\.[0-9]+)?")
_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_MONTH_OF = {name[:length]: place for place, name in enumerate(_MONTHS, 1) for length in (3, len(name))}
_DIRECTIVES = {
    "%Y": "(?P<year>[0-9]{4})",
    "%m": "(?P<month>1[0-2]|0?[1-9])",
    "%d": "(?P<day>3[01]|[12][0-9]|0?[1-9])",
    "%B": f"(?P<name>{'|'.join(_MONTHS)})",
    "%b": f"(?P<name>{'|'.join(name[:3] for name in _MONTHS)})",
    "%H": "(?:2[0-3]|[01]?[0-9])",
    "%I": "(?:1[0-2]|0?[1-9])",
    "%M": "[0-5]?[0-9]",
    "%S": "[0-5]?[0-9]",
    "%f": "[0-9]{1,9}",
    "%p": "[AaPp][Mm]",
    "%z": "(?:Z|[+-][0-9]{2}:?[0-9]{2})",
    "%%": "%",
}


def ascii_digits(text: str) -> str:
    """Return a text with the decimal digits of any script, such as Arabic or full-width ones, as 0 to 9.

    Blanks around it and marks without width are left out: Windows writes the latter into dates and numbers.
    """
    if text.isascii():
        return text.strip()
    from cpaas_provider.api.text import strip_invisible

    visible = strip_invisible(text.strip())
    return "".join(str(unicodedata.decimal(letter)) if letter.isdecimal() else letter for letter in visible)


def date_pattern(date_format: str) -> re.Pattern[str]:
    """Return the pattern of a date format: the directives of ``strptime``, but for those that guess.

    :raises ValueError: when the format does not name year, month and day once each, or has a directive that guesses:
        ``%y`` the century, ``%x``, ``%c`` and others the language
    """
    written: list[str] = []
    for piece in re.findall(r"%.?|[^%]+", date_format, re.DOTALL):
        if piece == "%y":
            raise ValueError("must not use %y, which guesses the century: have years written in full (%Y)")
        if piece[0] == "%" and piece not in _DIRECTIVES:
            raise ValueError(f"must use none but {' '.join(_DIRECTIVES)}")
        written.append(_DIRECTIVES[piece] if piece[0] == "%" else re.escape(piece))
    try:
        pattern = re.compile("".join(written), re.IGNORECASE)
    except re.error:
        raise ValueError("must name year, month and day once each") from None
    named = set(pattern.groupindex)
    if not {"year", "day"} <= named or len(named & {"month", "name"}) != 1:
        raise ValueError("must name year, month and day once each, such as %d.%m.%Y")
    return pattern


def date_parser(date_format: str | None, excel_serial: bool) -> Callable[[Any], str]:
    """Return a reader of dates.

    Date and datetime objects give their date; a datetime gives the date in its own time zone, whatever that is. Text is
    ISO 8601, with or without a time, or only the form of ``date_format`` where that is given. Month names are English.
    A number is a date only with ``excel_serial``.

    :param date_format: how text is written, such as ``%d.%m.%Y``
    :param excel_serial: read numbers, and text of digits that does not fit the format, as days of Excel's 1900
        calendar; 60, its 29 February 1900, is refused as there was no such day
    """
    pattern = date_pattern(date_format) if date_format else None
    wrong = f"must be a date written as {date_format}" if date_format else _WRONG_ISO
    if excel_serial:
        wrong += ", or a serial number of Excel"

    def read(value: Any) -> str:
        # A datetime is a date too.
        if isinstance(value, date):
            return date(value.year, value.month, value.day).isoformat()
        if type(value) is str and len(value) <= _LONGEST:
            if pattern is None and _is_iso_date(value):
                return value
            text = ascii_digits(value)
            found = pattern.fullmatch(text) if pattern else _ISO.fullmatch(text)
            if found is not None:
                return (_of_format(found) if pattern else _of_iso(found)) or _refuse(wrong)
            serial = _SERIAL.fullmatch(text) if excel_serial else None
            if serial is not None:
                return _of_serial(int(serial[1]))
        elif excel_serial and isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
            # Comparing before converting: a Decimal may stand for a gigabyte of digits.
            return _of_serial(int(value) if 0 <= value < _EXCEL_LAST_DAY + 1 else -1)
        return _refuse(wrong)

    return read


def _is_iso_date(text: str) -> bool:
    """Tell whether a text is a date just as it is sent, which most texts are."""
    if len(text) != _LENGTH or text[4] != "-" or text[7] != "-":
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _refuse(reason: str) -> str:
    raise ValueError(reason)


def _of_iso(found: re.Match[str]) -> str | None:
    year, month, day, short_month, short_day = found.groups()
    return _iso(int(year), int(month or short_month), int(day or short_day))


def _of_format(found: re.Match[str]) -> str | None:
    parts = found.groupdict()
    month = int(parts["month"]) if "month" in parts else _MONTH_OF[parts["name"].lower()]
    return _iso(int(parts["year"]), month, int(parts["day"]))


def _iso(year: int, month: int, day: int) -> str | None:
    try:
        return date(year, month, day).isoformat()
    except ValueError:
        return None


def _of_serial(days: int) -> str:
    if days == _EXCEL_LEAP_DAY:
        raise ValueError("is Excel's 29 February 1900, a day that never was")
    if not 1 <= days <= _EXCEL_LAST_DAY:
        raise ValueError("is no serial number of a day in Excel")
    return (_EXCEL_EPOCH + timedelta(days + (days < _EXCEL_LEAP_DAY))).isoformat()
