"""Whether a text names a recipient, in whatever form it writes the number or the address."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from urllib.parse import unquote_plus

import phonenumbers

from cpaas_provider.api.recipients.email_address import InvalidEmailAddressError, normalise_email
from cpaas_provider.api.recipients.msisdn import InvalidMsisdnError, normalise_msisdn
from cpaas_provider.api.text import strip_invisible
from cpaas_provider.delivery.reports import normalise_recipient

SHORTEST_NATIONAL = 7
"""Digits of the shortest number that is found without its country code; a shorter one may be any figure."""

_BETWEEN = r"[\s().\-/_\u00b7\u2010-\u2015\u2212]{0,3}"
"""What stands between the digits of one number."""

_DATE = re.compile(
    r"(?<!\d)[12]\d{3}[-/.][01]?\d[-/.][0-3]?\d(?!\d)(?:[T ]{1,2}[0-2]?\d[:.h][0-5]\d(?:[:.][0-5]\d(?:[.,]\d+)?)?)?"
)
_ABROAD = re.compile(r"(?:\+|(?<!\d)00)[\s(]{0,2}([1-9][\d\s().\-/]{0,6})\Z")
"""A country code, and what may stand between it and the rest of a number."""

_NO_DIGIT = re.compile(r"\D")
_POWER = re.compile(r"\d[eE][+-]?\d")
_PLAIN_DIGITS = re.compile(r"\d+")
_NO_NUMBERS = frozenset(
    {"id", "message_id", "transaction_id", "external_ref", "client_ref", "timestamp", "updated_datetime",
     "created_datetime"}
)  # fmt: skip
"""Fields whose value is a figure of its own where it is nothing but digits without a country code."""

_DEPTH = 3
"""How deep JSON may lie in texts of JSON."""

_LONGEST_FIGURE = 30


class UnknownRecipientError(ValueError):
    """The value cannot be read as one phone number or one email address."""


@dataclass(frozen=True)
class Wanted:
    """One recipient, and how to find who it is in a text.

    :param keys: how the recipient may be filed, see ``reports.normalise_recipient``
    :param read_as: what the text given was read as, in words that do not show it
    :param hint: what every form of it holds: a number's digits at home, or the address
    :param in_full: finds an address, or a number with its country code
    :param in_short: finds a number as it is written at home, where that is long enough to be told from other figures
    :param code: a number's country code
    """

    keys: frozenset[str]
    read_as: str
    hint: str
    in_full: re.Pattern[str]
    in_short: re.Pattern[str] | None = None
    code: str = ""

    @property
    def may_be_left_in(self) -> bytes:
        """A regular expression that bytes match in which the recipient may still be named."""
        text = re.escape(self.hint) if "@" in self.hint else r"[ ().\-/_]{0,3}".join(self.hint)
        return text.encode()

    def in_text(self, text: str | None, field: str = "") -> bool:
        """Tell whether a text names the recipient.

        :param field: the name of the field it is the value of
        """
        if not text or not self._may_be_in(text):
            return False
        return any(self._is_in(one, field) for one in _readings(text))

    def in_body(self, body: str) -> bool:
        """Tell whether JSON names the recipient, in any field or name of a field, however it is escaped."""
        if not self._may_be_in(body):
            return False
        return any(self.in_text(text, field) for field, text in _texts(body))

    def _may_be_in(self, text: str) -> bool:
        """Tell quickly whether it is worth a closer look; most texts are about other recipients."""
        if "\\" in text or "%" in text or not text.isascii():
            return True
        if "@" in self.hint:
            return self.hint.partition("@")[0] in text.lower()
        return self.hint in _NO_DIGIT.sub("", text) or bool(_POWER.search(text))

    def _is_in(self, text: str, field: str) -> bool:
        text = _DATE.sub(" ", text)
        if self.in_full.search(text):
            return True
        if self.in_short is None or (field in _NO_NUMBERS and _PLAIN_DIGITS.fullmatch(text.strip())):
            return False
        return any(self._is_at_home(text, found.start()) for found in self.in_short.finditer(text))

    def _is_at_home(self, text: str, start: int) -> bool:
        """Tell whether what begins there is more than the end of a number of another country."""
        before = _ABROAD.search(text, 0, start)
        return before is None or before[1].startswith(self.code)


def find(recipient: str, region: str | None = None) -> Wanted:
    """Return who is meant.

    :param recipient: an email address, a phone number in its international form, or a national one of the region
    :param region: two-letter region of national numbers
    :raises UnknownRecipientError: when it cannot be told, in words that do not show what was given
    """
    return _address(recipient) if "@" in recipient else _number(recipient, region)


def _address(text: str) -> Wanted:
    try:
        address = normalise_email(text).lower()
    except InvalidEmailAddressError as error:
        raise UnknownRecipientError(f"The email address {error}. Nothing was deleted.") from None
    local, _, domain = address.rpartition("@")
    names = {domain, domain.encode("idna").decode() if not domain.isascii() else domain}
    given = normalise_recipient(text)
    keys = {f"{local}@{name}" for name in names} | ({given} if given else set())
    either = "|".join(re.escape(name) for name in sorted(names))
    # An apostrophe belongs to an address only where a letter is before it.
    pattern = rf"(?<![\w.+~-])(?<!\w'){re.escape(local)}@(?:{either})(?![\w-])(?!\.\w)"
    return Wanted(frozenset(keys), "an email address", f"{local}@{domain}", re.compile(pattern, re.IGNORECASE))


def _number(text: str, region: str | None) -> Wanted:
    try:
        digits = normalise_msisdn(text, region)
    except InvalidMsisdnError as error:
        why = str(error).partition("; a national number")[0]
        raise UnknownRecipientError(
            f"The phone number {why.replace('default_region', '--region')}. Nothing was deleted. Add its country "
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
    spaced = _BETWEEN.join(national)
    extra = rf"(?:\(?{re.escape(trunk)}\)?{_BETWEEN})?" if trunk else ""
    full = rf"(?<!\d)(?:(?:00|011|0011){_BETWEEN})?{_BETWEEN.join(code)}{_BETWEEN}{extra}{spaced}(?!\d)"
    short = re.compile(rf"(?<!\d){extra}{spaced}(?!\d)") if len(national) >= SHORTEST_NATIONAL else None
    keys = {digits, f"{code}{trunk}{national}"}
    keys |= {national, f"{trunk}{national}"} if short else set()
    return Wanted(frozenset(keys), f"a phone number of {home}", national, re.compile(full), short, code)


def _trunk(number: phonenumbers.PhoneNumber, national: str, home: str | None) -> str:
    """Return what people at home put before a number: 0 in most countries, nothing in some."""
    written = _NO_DIGIT.sub("", phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.NATIONAL))
    if written.endswith(national) and written != national:
        return written.removesuffix(national)
    return phonenumbers.ndd_prefix_for_region(home or "", True) or ""


def _readings(text: str) -> Iterator[str]:
    """Yield a text as it is read: with digits of any script as ASCII, and once more without what URLs escape."""
    if not text.isascii():
        text = strip_invisible(unicodedata.normalize("NFKC", text))
        text = "".join(str(unicodedata.digit(one)) if one.isdecimal() else one for one in text)
    yield text
    if "%" in text:
        yield unquote_plus(text)


def _texts(body: str, depth: int = _DEPTH, field: str = "") -> Iterator[tuple[str, str]]:
    """Yield every text and figure in JSON, with the name of its field; names of fields are texts, too."""
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
            pending += [(name, one) for one in value]
        elif isinstance(value, str):
            yield name, value
            if depth and value.lstrip().startswith(("{", "[", '"')):
                yield from _texts(value, depth - 1, name)


class _Pairs:
    """An object of JSON with all it holds, as one name may stand in it twice."""

    def __init__(self, pairs: Iterable[tuple[str, Any]]) -> None:
        self.pairs = list(pairs)


def _figure(text: str) -> str:
    """Return a whole number without point and power, as spreadsheets write them."""
    figure = Decimal(text)
    if figure.is_finite() and figure.adjusted() < _LONGEST_FIGURE and figure == figure.to_integral_value():
        return str(int(figure))
    return text
