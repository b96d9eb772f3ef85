"""Cells of text, numbers, options, URLs and email addresses: what a value must be, and its form on the wire."""

from __future__ import annotations

import json
import math
import re
import string
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from urllib.parse import quote, urlsplit

from cpaas_provider.api.recipients.email_address import normalise_email
from cpaas_provider.api.text import trim_invisible
from cpaas_provider.api.values import MAX_CELL_BYTES, as_text, is_blank, plain
from cpaas_provider.contacts.mapping.dates import ascii_digits

MAX_LEVELS = 20
"""The most levels that a value may be nested."""
LARGEST_EXACT_INTEGER = 2**53 - 1
"""Above it not every integer is a double, and so not safe as a JSON number (RFC 8259, section 6)."""

# Line breaks and tabs belong to text; the other control characters are damage, such as a wrong encoding.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_CONTROL_OR_BREAK = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def checked_text(text: str, *, one_line: bool = False) -> str:
    """Return a text that can be sent as it is.

    :param one_line: refuse line breaks and tabs too
    :raises ValueError: when it holds control characters or half a character, or is too long
    """
    if text.isprintable() and len(text) * 4 <= MAX_CELL_BYTES:
        return text
    found = (_CONTROL_OR_BREAK if one_line else _CONTROL).search(text)
    if found:
        raise ValueError("contains NUL characters" if "\0" in text else "contains control characters")
    if _SURROGATE.search(text):
        raise ValueError("holds half a character (a lone surrogate)")
    if len(text) > MAX_CELL_BYTES or len(text.encode()) > MAX_CELL_BYTES:
        raise ValueError(f"is longer than {MAX_CELL_BYTES} bytes")
    return text


MAX_CHARACTERS = 100
"""How long a number may be as text; one that is sent exactly has no more than 17 digits that count."""
SPACES = " \u00a0\u2009\u202f"
_APOSTROPHES = "'\u2019"
_SHORT = 15

Number = int | float


def number_parser(decimal: str, thousands: str | None) -> Callable[[Any], Number]:
    """Return a reader of numbers.

    Text is a sign, digits in groups of three (or as in India of two before the last three) or in none, and a decimal
    part. Digits of any script count, and U+2212 is a minus. Refused are all other forms, among them ``1e5``, ``1_000``,
    ``0x10``, ``5%``, ``nan`` and ``inf``, and separators that the rule does not name. Booleans are no numbers.

    A number that a JSON number does not keep exactly is refused: an integer beyond 2**53 - 1, or more digits than a
    double holds.

    :param decimal: what stands before the decimal part in text
    :param thousands: what stands between groups of digits in text; a blank is any of the usual narrow ones too
    """
    match = _pattern(decimal, thousands).fullmatch
    example = f"1234{decimal}5" if thousands is None else f"1{thousands}234{decimal}5"
    wrong = f"must be a number such as {example}"

    def read(value: Any) -> Number:
        if type(value) is str:
            if len(value) <= _SHORT and value.isascii() and value.isdigit():
                return int(value)
            found = match(ascii_digits(value)) if len(value) <= MAX_CHARACTERS else None
            if found is None:
                raise ValueError(wrong)
            sign, whole, part, only_part = found.groups()
            digits = re.sub("[^0-9]", "", whole or "") or "0"
            negative = "-" if sign in ("-", "\u2212") else ""
            return _exact(Decimal(f"{negative}{digits}.{part or only_part or '0'}"))
        if isinstance(value, bool):
            raise ValueError(wrong)
        if isinstance(value, int):
            return _exact_integer(int(value))
        if isinstance(value, float):
            return _of_float(float(value))
        if isinstance(value, Decimal):
            return _exact(value)
        raise ValueError(wrong)

    return read


def _exact_integer(value: int) -> int:
    if abs(value) > LARGEST_EXACT_INTEGER:
        raise ValueError("is beyond 2**53 - 1, where a JSON number loses digits; use a TEXT column")
    return value


def _of_float(value: float) -> Number:
    if not math.isfinite(value):
        raise ValueError("must be a finite number")
    return _exact_integer(int(value)) if value.is_integer() else value


def _exact(value: Decimal) -> Number:
    if not value.is_finite():
        raise ValueError("must be a finite number")
    # Before anything is computed: the exponent alone may stand for a gigabyte of digits.
    if value and value.adjusted() > _SHORT:
        return _exact_integer(LARGEST_EXACT_INTEGER + 1)
    number = float(value)
    if Decimal(repr(number)) != value:
        raise ValueError("has more digits than a JSON number holds; round it in the source or use a TEXT column")
    return _of_float(number)


def _pattern(decimal: str, thousands: str | None) -> re.Pattern[str]:
    whole = "[0-9]+"
    if thousands is not None:
        alike = next((group for group in (SPACES, _APOSTROPHES) if thousands in group), thousands)
        between = f"[{re.escape(alike)}]"
        western = f"[0-9]{{1,3}}(?:{between}[0-9]{{3}})+"
        indian = f"[0-9]{{1,2}}(?:{between}[0-9]{{2}})+{between}[0-9]{{3}}"
        whole = f"{whole}|{western}|{indian}"
    point = re.escape(decimal)
    return re.compile(f"([+\u2212-])?(?:({whole})(?:{point}([0-9]+))?|{point}([0-9]+))")


_WRONG_OPTION = "must be one option, as text"
_WRONG_LIST = "must be a list of options"


def parse_option(value: Any) -> str:
    """Return one option, without blanks and invisible marks around it.

    Numbers are taken, as a file of text would have them; booleans are not, because files write them in many ways.
    """
    if isinstance(value, bool):
        raise ValueError(_WRONG_OPTION)
    try:
        text = trim_invisible(as_text(value))
    except ValueError:
        raise ValueError(_WRONG_OPTION) from None
    if not text:
        raise ValueError(_WRONG_OPTION)
    return checked_text(text, one_line=True)


def options_parser(separator: str) -> Callable[[Any], list[str]]:
    """Return a reader of lists of options, in the order they have, each once, without blank ones.

    Takes a list, or text with the separator between options. Text that is a JSON list is read as one, because some
    databases give JSON columns as text. A set has no order and is sorted.

    :param separator: what stands between options in text
    """

    def read(value: Any) -> list[str]:
        if type(value) is str:
            found = _json_list(value)
            value = value.split(separator) if found is None else found
        elif isinstance(value, (set, frozenset)):
            return sorted(_options(value))
        elif not isinstance(value, (list, tuple)):
            raise ValueError(_WRONG_LIST)
        return _options(value)

    return read


def _options(values: Any) -> list[str]:
    options = list(dict.fromkeys(parse_option(value) for value in map(plain, values) if not is_blank(value)))
    if (
        sum(map(len, options)) > MAX_CELL_BYTES // 4
        and sum(len(option.encode()) for option in options) > MAX_CELL_BYTES
    ):
        raise ValueError(f"is longer than {MAX_CELL_BYTES} bytes")
    return options


def _json_list(text: str) -> list[Any] | None:
    if not text.lstrip().startswith("["):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, list) else None


_WRONG_URL = "must be a URL such as https://example.com/page"
_PRINTABLE = string.ascii_letters + string.digits + string.punctuation
_LABEL = "[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\.?|\[[0-9A-Fa-f:.]+\]")
_LONGEST_HOST = 253
_LONGEST_PLAIN = 2_000
# Most URLs match this, and are sent unchanged.
_PLAIN = re.compile(rf"https?://(?=[^/?#]{{1,{_LONGEST_HOST}}}(?:[/?#]|$)){_LABEL}(?:\.{_LABEL})*(?:[/?#][!-~]*)?")


def parse_url(value: Any) -> str:
    """Return an absolute http or https URL in the ASCII form of RFC 3986, without blanks around it.

    A host in another script becomes punycode: by IDNA 2008, and by the older IDNA 2003 where that knows no such
    character, as with emoji. Elsewhere characters beyond ASCII are percent-encoded as UTF-8. All else stays as it is
    written, but for capitals in ``HTTPS://``. A user name or password is refused: it would be stored in a contact list.
    """
    if type(value) is str and len(value) <= _LONGEST_PLAIN and _PLAIN.fullmatch(value):
        return value
    text = trim_invisible(value) if type(value) is str else ""
    if any(character.isspace() for character in text):
        raise ValueError(_WRONG_URL)
    checked_text(text, one_line=True)
    try:
        parts = urlsplit(text)
        scheme, netloc, port = parts.scheme, parts.netloc, parts.port
    except ValueError:
        raise ValueError(_WRONG_URL) from None
    if "@" in netloc:
        raise ValueError("must be a URL without user name and password")
    if scheme not in ("http", "https") or port == 0 or not text[len(scheme) :].startswith("://"):
        raise ValueError(_WRONG_URL)
    rest = text[len(scheme) + len("://") + len(netloc) :]
    written = netloc.partition("]")[0] + "]" if netloc.startswith("[") else netloc.partition(":")[0]
    host = _ascii_host(written)
    if len(host) > _LONGEST_HOST or not _HOST.fullmatch(host):
        raise ValueError(_WRONG_URL)
    return checked_text(f"{scheme}://{host}{'' if port is None else f':{port}'}{quote(rest, safe=_PRINTABLE)}")


def parse_email(value: Any) -> str:
    """Return an email address with its domain in ASCII and lower case; the part before it stays in its own script."""
    return checked_text(normalise_email(value), one_line=True)


def _ascii_host(host: str) -> str:
    # The caller refuses a longer host, and the time to convert it grows with the square of its length.
    if host.isascii() or len(host) > _LONGEST_HOST:
        return host
    # Comes with email-validator and httpx.
    import idna

    try:
        return idna.encode(host, uts46=True).decode()
    except idna.IDNAError:
        pass
    try:
        return host.encode("idna").decode()
    except UnicodeError:
        raise ValueError(_WRONG_URL) from None
