"""Finds mentions of a recipient in a text, in any form in which the text writes the number or the address."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any
from urllib.parse import unquote_plus

import idna
import phonenumbers
from msgspec import Struct

from cpaas_provider.api.recipients.email_address import InvalidEmailAddressError, normalise_email
from cpaas_provider.api.recipients.invalid import InvalidMsisdnError
from cpaas_provider.api.recipients.msisdn import NumberReader
from cpaas_provider.api.recipients.notation import (
    SEPARATORS_OF_KNOWN,
    SIGNS,
    spaced,
    spaced_in_bytes,
    with_ascii_digits,
)
from cpaas_provider.api.text import strip_invisible
from cpaas_provider.delivery.reports import normalise_recipient

SHORTEST_NATIONAL = 7
"""The fewest digits of a number that is found without its country code. Fewer digits may be any figure."""

_DATE = re.compile(
    r"(?<!\d)[12]\d{3}[-/.][01]?\d[-/.][0-3]?\d(?!\d)(?:[T ]{1,2}[0-2]?\d[:.h][0-5]\d(?:[:.][0-5]\d(?:[.,]\d+)?)?)?"
)
_ABROAD = re.compile(
    rf"(?:\+|(?<!\d)(?:00|011|0011))[\s{re.escape(SIGNS)}]{{0,2}}([1-9][\d\s,:{re.escape(SIGNS)}]{{0,8}})\Z"
)
"""A country code before a number, and the separators or digits between the two."""
_MOST_ABROAD = 15
"""The characters that it looks at."""

_EXIT_CODES = "00|0011|011|009|010|000|001|810"
_NO_DIGIT = re.compile(r"\D")
_POWER = re.compile(r"\d[eE][+-]?\d")
_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})|\\[nrt]")
_PLAIN_DIGITS = re.compile(r"\d+")
_NO_NUMBERS = frozenset(
    {"id", "message_id", "transaction_id", "external_ref", "client_ref", "timestamp", "updated_datetime",
     "created_datetime"}
)  # fmt: skip
"""Fields in which a value of digits only, without a country code, is no phone number."""

_DEPTH = 3
"""How deeply JSON may be nested as text in JSON."""

_MAX_FIGURE_DIGITS = 30


class UnknownRecipientError(ValueError):
    """The value cannot be read as one phone number or one email address."""


class RecipientMatcher(Struct, frozen=True):
    """Finds mentions of one recipient.

    :param key: the number or the address, see ``reports.normalise_recipient``
    :param keys: the values that rows may have as the recipient, see ``reports.normalise_recipient``
    :param read_as: how the given text was understood, without showing it
    :param hint: what every form contains: the digits of the national number, or the address
    :param in_full: finds an address, or a number with its country code
    :param in_short: finds a national number, if it is long enough to be distinguished from other figures
    :param code: the country code of a number
    """

    key: str
    keys: frozenset[str]
    read_as: str
    hint: str
    in_full: re.Pattern[str]
    in_short: re.Pattern[str] | None = None
    code: str = ""

    @property
    def may_be_left_in(self) -> bytes:
        """A regular expression for bytes that may name the recipient."""
        return re.escape(self.hint).encode() if "@" in self.hint else spaced_in_bytes(self.hint)

    def in_text(self, text: str | None, field: str = "") -> bool:
        """Return whether a text names the recipient.

        :param field: the name of the field whose value the text is
        """
        if not text or not self._may_be_in(text):
            return False
        return any(self._is_in(reading, field) for reading in _readings(text))

    def in_body(self, body: str, of_field: str | None = None) -> bool:
        """Return whether JSON names the recipient, in any value or name of a field, however it is escaped.

        Its sender may have written anything. The caller decides what an error means, whatever its class.

        :param of_field: the name of the field that every value is read as; ``None`` for its own
        """
        if not self._may_be_in(body):
            return False
        return any(self.in_text(text, field if of_field is None else of_field) for field, text in _texts(body))

    def _may_be_in(self, text: str) -> bool:
        """Return quickly whether a text needs the full check. Most texts are about other recipients."""
        if "\\" in text or "%" in text or "&" in text or not text.isascii():
            return True
        if "@" in self.hint:
            return self.hint.partition("@")[0] in text.lower()
        return self.hint in _NO_DIGIT.sub("", text) or bool(_POWER.search(text))

    def _is_in(self, text: str, field: str) -> bool:
        # After a plus, a number is no date, even if it looks like one.
        if any(text.endswith("+", 0, match.start()) for match in self.in_full.finditer(text)):
            return True
        text = _DATE.sub(" ", text)
        if self.in_full.search(text):
            return True
        if self.in_short is None or (field in _NO_NUMBERS and _PLAIN_DIGITS.fullmatch(text.strip())):
            return False
        return any(self._is_own_country(text, match.start()) for match in self.in_short.finditer(text))

    def _is_own_country(self, text: str, start: int) -> bool:
        """Return whether the national number at ``start`` is not the end of another country's number."""
        # As many characters as it can match: the whole text, searched for every number in it, takes quadratic time.
        before = _ABROAD.search(text, max(0, start - _MOST_ABROAD), start)
        return before is None or before[1].startswith(self.code)


def find(recipient: str, region: str | None = None) -> RecipientMatcher:
    """Return the matcher of a recipient.

    :param recipient: an email address, a phone number in international form, or a national number of the region
    :param region: the two-letter region of national numbers
    :raises UnknownRecipientError: when ``recipient`` is ambiguous or invalid; the message does not show it
    """
    return _address(recipient) if "@" in recipient else _number(recipient, region)


def _address(text: str) -> RecipientMatcher:
    try:
        address = normalise_email(text).lower()
    except InvalidEmailAddressError as error:
        raise UnknownRecipientError(f"The email address {error}. Nothing was deleted.") from None
    local, _, domain = address.rpartition("@")
    domains = {domain, _unicode_domain(domain)}
    normalised = normalise_recipient(text)
    keys = {f"{local}@{name}" for name in domains} | ({normalised} if normalised else set())
    any_domain = "|".join(re.escape(name) for name in sorted(domains))
    # An apostrophe or a dot before the local part belongs to the address only after a letter.
    pattern = rf"(?<![\w+~-])(?<!\w[.']){re.escape(local)}@(?:{any_domain})(?![\w-])(?!\.\w)"
    return RecipientMatcher(
        normalised or address,
        frozenset(keys),
        "an email address",
        f"{local}@{domain}",
        re.compile(pattern, re.IGNORECASE),
    )


def _unicode_domain(domain: str) -> str:
    try:
        return idna.decode(domain)
    except idna.IDNAError:
        return domain


def _number(text: str, region: str | None) -> RecipientMatcher:
    try:
        digits = NumberReader(region, "possible").read(text)
    except InvalidMsisdnError as error:
        reason = str(error).partition("; a national number")[0]
        raise UnknownRecipientError(
            f"The phone number {reason.replace('default_region', '--region')}. Nothing was deleted. Add its country "
            "code (+234...), or name the region of national numbers (--region NG)."
        ) from None
    number = phonenumbers.parse(f"+{digits}")
    plain = strip_invisible(text).strip()
    if region is None and not plain.startswith(("+", "00")) and not phonenumbers.is_valid_number(number):
        raise UnknownRecipientError(
            "These digits can be a national number or begin with a country code. Nothing was deleted. Put a + before "
            "the country code, or name the region of national numbers (--region NG)."
        )
    code, national = str(number.country_code), phonenumbers.national_significant_number(number)
    home = phonenumbers.region_code_for_number(number) or phonenumbers.region_code_for_country_code(int(code))
    trunk = _trunk(number, national, home)
    number_pattern = spaced(national)
    extra = rf"(?:\(?{spaced(trunk)}\)?{SEPARATORS_OF_KNOWN})?" if trunk else ""
    before = rf"(?<!\d)(?:(?:{_EXIT_CODES}){SEPARATORS_OF_KNOWN})?"
    full = rf"{before}{spaced(code)}{SEPARATORS_OF_KNOWN}{extra}{number_pattern}(?!\d)"
    short = re.compile(rf"(?<!\d){extra}{number_pattern}(?!\d)") if len(national) >= SHORTEST_NATIONAL else None
    keys = {digits, f"{code}{trunk}{national}"}
    keys |= {national, f"{trunk}{national}"} if short else set()
    return RecipientMatcher(
        digits, frozenset(keys), f"a phone number of {home}", national, re.compile(full), short, code
    )


def _trunk(number: phonenumbers.PhoneNumber, national: str, home: str | None) -> str:
    """Return the trunk prefix of national numbers: 0 in most countries, empty in some."""
    written = _NO_DIGIT.sub("", phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.NATIONAL))
    if written.endswith(national) and written != national:
        return written.removesuffix(national)
    return phonenumbers.ndd_prefix_for_region(home or "", True) or ""


def _readings(text: str) -> Iterator[str]:
    """Yield a text with the digits of all scripts as ASCII, and again with escapes of URLs, JSON and HTML decoded."""
    yield with_ascii_digits(text)
    for _ in range(_DEPTH):
        decoded = html.unescape(_unescaped(unquote_plus(text) if "%" in text else text))
        if decoded == text:
            return
        text = decoded
        yield with_ascii_digits(text)


def _unescaped(text: str) -> str:
    """Return a text with the escapes of JSON strings decoded, as a text inside a text has them."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)) if match[1] else " ", text) if "\\" in text else text


def _texts(body: str, depth: int = _DEPTH, field: str = "") -> Iterator[tuple[str, str]]:
    """Yield field name and value of every text and figure in JSON. Names of fields are yielded as texts, too."""
    try:
        value = json.loads(body, object_pairs_hook=_Pairs, parse_int=str, parse_float=_figure)
    except (ValueError, RecursionError):
        yield field, body
        return
    pending = [(field, value)]
    while pending:
        name, value = pending.pop()
        if isinstance(value, _Pairs):
            yield from (("", key) for key, _ in value.pairs)
            pending += value.pairs
        elif isinstance(value, list):
            pending += [(name, item) for item in value]
        elif isinstance(value, str):
            if depth and value.lstrip().startswith(("{", "[", '"')):
                yield from _texts(value, depth - 1, name)
            else:
                yield name, value


class _Pairs:
    """A JSON object with all its fields, also if a name occurs twice."""

    def __init__(self, pairs: Iterable[tuple[str, Any]]) -> None:
        self.pairs = list(pairs)


def _figure(text: str) -> str:
    """Return an integer that is written with a decimal point or exponent, as spreadsheets do, as its digits."""
    try:
        figure = Decimal(text)
    except ArithmeticError:
        # Its exponent is larger than those of decimals, so it is no phone number.
        return text
    if figure.is_finite() and figure.adjusted() < _MAX_FIGURE_DIGITS and figure == figure.to_integral_value():
        return str(int(figure))
    return text
