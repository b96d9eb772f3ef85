"""Texts of messages: placeholders, and their encoding, length and pages as SMS (contract.md, "Pages").

The length is a local estimate before a send. After the send, ``meta.estimate`` of the service's response applies.
"""

from __future__ import annotations

import bisect
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from cpaas_provider._common.values import INVISIBLE_MARKS
from cpaas_provider._common.values import strip_invisible as strip_invisible

Encoding = Literal["GSM-7", "UCS-2"]

_GSM7_BASIC = frozenset(
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?"
    "¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà"
)
_GSM7_ESCAPED = frozenset("^{}\\[~]|€\f")
_GSM7_ALL = _GSM7_BASIC | _GSM7_ESCAPED
_NOT_BASIC = re.compile(f"[^{re.escape(''.join(_GSM7_BASIC))}]")
_PAGE: dict[Encoding, tuple[int, int]] = {"GSM-7": (160, 153), "UCS-2": (70, 67)}

_BLANKS = " \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
_MARKS_AND_BLANKS = _BLANKS + "".join(map(chr, INVISIBLE_MARKS))

_LINK = re.compile(r"https?://\S+")
_JOINER = "\u200d"
# Characters that belong to the character before them. Others, such as variation selectors, have the category M.
_MODIFIERS = frozenset(map(chr, [*range(0x1F3FB, 0x1F400), *range(0xE0020, 0xE0080), *range(0x1160, 0x1200)]))
_FLAG_LETTERS = frozenset(map(chr, range(0x1F1E6, 0x1F200)))

ELLIPSIS = "..."
"""Three full stops, which GSM-7 has. The single character would make a text UCS-2."""

_LONGEST_CUT_WORD = 20
"""How many characters more than necessary may be cut, so that a text ends with a whole word."""


@dataclass(frozen=True, slots=True)
class SmsLength:
    """The length of a text as SMS.

    :param encoding: ``GSM-7`` or ``UCS-2``
    :param units: septets (GSM-7) or 16-bit code units (UCS-2)
    :param pages: the pages (SMS segments) it is charged for
    """

    encoding: Encoding
    units: int
    pages: int


def measure_sms(text: str) -> SmsLength:
    """Return the encoding, length and number of pages of a text after substitution.

    A character that needs two units is never split over two pages, so a page may end one unit early.
    """
    encoding: Encoding = "GSM-7"
    units = len(text)
    wide: frozenset[str] = frozenset()
    if _NOT_BASIC.search(text) is None:
        pass
    elif _GSM7_ALL.issuperset(text):
        units += sum(map(text.count, _GSM7_ESCAPED))
        wide = _GSM7_ESCAPED
    else:
        encoding = "UCS-2"
        units = len(text.encode("utf-16-le", "surrogatepass")) // 2
        if units > len(text):
            wide = frozenset(character for character in text if ord(character) > 0xFFFF)
    single, part = _PAGE[encoding]
    if not wide or units <= single:
        return _length(encoding, units)
    return SmsLength(encoding, units, _pages_without_splits(text, wide, part))


def _length(encoding: Encoding, units: int) -> SmsLength:
    """Return the length of a text in which each character takes one unit, or which is one page."""
    single, part = _PAGE[encoding]
    return SmsLength(encoding, units, 1 if units <= single else -(-units // part))


def _pages_without_splits(text: str, wide: frozenset[str], part: int) -> int:
    pages, used = 1, 0
    for character in text:
        width = 2 if character in wide else 1
        if used + width > part:
            pages, used = pages + 1, 0
        used += width
    return pages


def shorten_sms(text: str, max_pages: int, ending: str = "") -> str:
    """Return a text and an ending within a number of pages. If both do not fit, the text is cut.

    It is never cut within a link, an emoji or another character that readers see as one.
    """
    return _shortened(text, ending, lambda whole: measure_sms(whole).pages <= max_pages)


def shorten(text: str, max_length: int, ending: str = "") -> str:
    """Return a text and an ending within a number of characters, cut as by ``shorten_sms``."""
    return _shortened(text, ending, lambda whole: len(whole) <= max_length)


def _shortened(text: str, ending: str, fits: Callable[[str], bool]) -> str:
    text = text.rstrip()
    if fits(text + ending):
        return text + ending
    units = list(_visible_units(text))

    def cut(count: int) -> str:
        return "".join(units[:count]).rstrip() + ELLIPSIS + ending

    most = bisect.bisect_left(range(1, len(units) + 1), True, key=lambda count: not fits(cut(count)))
    if not most:
        return ending.lstrip()
    for count in range(most, max(most - _LONGEST_CUT_WORD, 0), -1):
        if units[count].isspace() or units[count - 1].isspace():
            return cut(count)
    return cut(most)


def _visible_units(text: str) -> Iterator[str]:
    """Yield the parts of a text that must not be cut: links, and characters as readers see them."""
    end = 0
    for link in _LINK.finditer(text):
        yield from _graphemes(text[end : link.start()])
        yield link[0]
        end = link.end()
    yield from _graphemes(text[end:])


def _graphemes(text: str) -> Iterator[str]:
    """Yield characters together with their marks and modifiers, joined emojis, and the two letters of a flag."""
    unit = ""
    for character in text:
        joins = character == _JOINER or character in _MODIFIERS or unicodedata.category(character).startswith("M")
        is_flag = character in _FLAG_LETTERS and len(unit) == 1 and unit in _FLAG_LETTERS
        if unit and not (joins or is_flag or unit.endswith(_JOINER)):
            yield unit
            unit = ""
        unit += character
    if unit:
        yield unit


def substitute(content: str, substitutions: Mapping[str, object], placeholder_format: str = "{name}") -> str:
    """Return a text with its placeholders filled, as the service presumably does (contract.md, placeholders).

    :param placeholder_format: how the placeholder called ``name`` is written, e.g. ``{name}`` or ``%name%``
    """
    values = {placeholder_format.replace("name", name): str(value) for name, value in substitutions.items()}
    if not values:
        return content
    # In one pass, so that a value that looks like a placeholder is not filled itself.
    return re.sub("|".join(map(re.escape, values)), lambda match: values[match[0]], content)


class MessageTemplate:
    """A text with placeholders, parsed once and filled for many recipients.

    :param content: the text
    :param names: the names that placeholders may have
    :param placeholder_format: how the placeholder called ``name`` is written
    """

    def __init__(self, content: str, names: Iterable[str], placeholder_format: str = "{name}") -> None:
        self.names = tuple(names)
        self._content = content
        self._format = placeholder_format
        name_of = {placeholder_format.replace("name", name): name for name in self.names}
        matches = list(re.finditer("|".join(map(re.escape, name_of)), content)) if name_of else []
        self.slots = tuple(name_of[match[0]] for match in matches)
        """The name of each placeholder in the content, in order, repeated names included."""

        self._percent_format = _percent_format(content, matches)

    def render(self, values: Mapping[str, str]) -> str:
        """Return the text with its placeholders filled, as by ``substitute``. One without a value is not filled."""
        try:
            return self._percent_format % tuple([values[name] for name in self.slots])
        except KeyError:
            present = {name: values[name] for name in self.names if name in values}
            return substitute(self._content, present, self._format)


class SmsEstimator:
    """Measures the filled texts of one template. The results are those of ``measure_sms``, but faster.

    :param template: the text
    """

    def __init__(self, template: MessageTemplate) -> None:
        self._template = template
        self._slots = tuple(template.names.index(name) for name in template.slots)
        fixed = template.render(dict.fromkeys(template.names, ""))
        self._fixed_units = len(fixed)
        # If no character takes two units, only the number of characters matters.
        self._encoding: Encoding | None = None
        if _NOT_BASIC.search(fixed) is None:
            self._encoding = "GSM-7"
        elif not _GSM7_ALL.issuperset(fixed) and max(fixed) <= "\uffff":
            self._encoding = "UCS-2"
        self._lengths: dict[int, SmsLength] = {}

    def measure(self, values: Sequence[str]) -> SmsLength:
        """Return the length of the text with these values, one for each of the template's names."""
        if self._encoding is None or _NOT_BASIC.search("".join(values)) is not None:
            return measure_sms(self._template.render(dict(zip(self._template.names, values, strict=True))))
        units = self._fixed_units
        for slot in self._slots:
            units += len(values[slot])
        length = self._lengths.get(units)
        if length is None:
            length = self._lengths[units] = _length(self._encoding, units)
        return length


def _percent_format(content: str, matches: Iterable[re.Match[str]]) -> str:
    """Return a text for the ``%`` operator, with ``%s`` in place of each match."""
    pieces, end = [], 0
    for match in matches:
        pieces.append(content[end : match.start()].replace("%", "%%"))
        end = match.end()
    return "%s".join([*pieces, content[end:].replace("%", "%%")])


def placeholders_in(content: str, placeholder_format: str = "{name}") -> tuple[str, ...]:
    """Return the names of the placeholders in a text, each once, in order of first occurrence.

    A name consists of letters, digits and underscores of any script. If the format has characters on both sides of the
    name, such as braces, a name may also contain blanks, dots and hyphens, like the columns of spreadsheets. Otherwise
    it does not begin with a digit: ``$100`` is a price.
    """
    before, *rest = map(re.escape, placeholder_format.split("name"))
    if not rest:
        return ()
    name = r"(\w(?:[\w .-]*\w)?)" if before and rest[-1] else r"([^\W\d]\w*)"
    pattern = before + name + r"(?:\1)".join(rest)
    return tuple(dict.fromkeys(re.findall(pattern, content)))


def blank_unprintable(text: str) -> str:
    """Return a text with a blank in place of each character that cannot be printed, such as a control character."""
    return text if text.isprintable() else "".join(letter if letter.isprintable() else " " for letter in text)


def trim_invisible(text: str) -> str:
    """Return a text without blanks and invisible marks around it. Marks within it may be part of a letter."""
    return text.strip() if text.isascii() else text.strip(_MARKS_AND_BLANKS)
