"""Texts as SMS: how they are written in GSM-7, and their encoding, length and pages (contract.md 10).

One character outside of GSM-7 makes a text UCS-2, of which a page (SMS segment) has 70 characters instead of 160.
The length is a local estimate before a send. After the send, ``meta.estimate`` of the service's response applies.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from cpaas_provider.api.amounts import counted
from cpaas_provider.api.text import MessageTemplate, named_in, shorten_to_fit

Encoding = Literal["GSM-7", "UCS-2"]
GSM7 = "gsm7"
"""The value of ``encoding`` that has typography replaced."""

_PAGE: dict[Encoding, tuple[int, int]] = {"GSM-7": (160, 153), "UCS-2": (70, 67)}

GSM7_BASIC = frozenset(
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?"
    "¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà"
)
"""The characters that take one septet."""

GSM7_ESCAPED = frozenset("^{}\\[~]|€\f")
"""The characters that take two septets."""

_NOT_BASIC = re.compile(f"[^{re.escape(''.join(sorted(GSM7_BASIC)))}]")
_NOT_GSM7 = re.compile(f"[^{re.escape(''.join(sorted(GSM7_BASIC | GSM7_ESCAPED)))}]")

_JOINERS = ("\u200c", "\u200d")
"""Zero-width characters that change the letters beside them in some scripts, and join emoji."""

_BYTE_ORDER_MARK = "\ufeff"

# Characters that show nothing between letters of GSM-7. Marks that turn the writing direction to the left are not among
# them: they change the order of punctuation and digits.
_IDLE_MARKS: dict[int, str | None] = dict.fromkeys(
    [
        0x00AD,  # SOFT HYPHEN
        0x180E,  # MONGOLIAN VOWEL SEPARATOR
        *range(0x200B, 0x200F),  # ZERO WIDTH SPACE, NON-JOINER and JOINER, LEFT-TO-RIGHT MARK
        0x202A,  # LEFT-TO-RIGHT EMBEDDING
        0x202C,  # POP DIRECTIONAL FORMATTING
        0x202D,  # LEFT-TO-RIGHT OVERRIDE
        *range(0x2060, 0x2065),  # WORD JOINER, invisible operators of formulas
        0x2066,  # LEFT-TO-RIGHT ISOLATE
        0x2068,  # FIRST STRONG ISOLATE
        0x2069,  # POP DIRECTIONAL ISOLATE
        0xFEFF,  # ZERO WIDTH NO-BREAK SPACE, the byte order mark
    ]
)

TYPOGRAPHY: dict[str, str] = {
    # Single quotation marks, apostrophes and primes.
    **dict.fromkeys("\u2018\u2019\u201a\u201b\u2039\u203a\u02bc\u00b4\u2032\u2035", "'"),
    # Double quotation marks and primes.
    **dict.fromkeys("\u201c\u201d\u201e\u201f\u00ab\u00bb\u2033\u2036", '"'),
    # Hyphens, dashes and the minus sign.
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2043\u2212", "-"),
    # Leaders.
    "\u2024": ".",
    "\u2025": "..",
    "\u2026": "...",
    # Spaces.
    **dict.fromkeys("\t\u00a0\u202f\u205f\u3000", " "),
    **dict.fromkeys(map(chr, range(0x2000, 0x200B)), " "),
    # Ends of lines and paragraphs.
    **dict.fromkeys("\x0b\x85\u2028\u2029", "\n"),
    # Bullets.
    **dict.fromkeys("\u2022\u2023\u25e6", "*"),
    # Ligatures.
    "\ufb00": "ff",
    "\ufb01": "fi",
    "\ufb02": "fl",
    "\ufb03": "ffi",
    "\ufb04": "ffl",
    "\ufb06": "st",
}
"""Characters of typography with what they are written as in GSM-7. Letters, fractions, powers, currencies and the
middle dot, which is part of Catalan words, are not among them: their replacement could say something else."""

_REPLACEMENTS = {**_IDLE_MARKS, **{ord(character): written for character, written in TYPOGRAPHY.items()}}


def is_gsm7(text: str) -> bool:
    """Return whether all characters of a text are in GSM-7."""
    return _NOT_GSM7.search(text) is None


def count_other_characters(text: str) -> int:
    """Return how many characters of a text have no form in GSM-7."""
    return len(_NOT_GSM7.findall(_replaced(text)))


def strip_byte_order_marks(text: str) -> str:
    """Return a text without byte order marks, which files and copied texts have and which mean nothing in a text."""
    return text.replace(_BYTE_ORDER_MARK, "")


def strip_idle_marks(text: str) -> str:
    """Return a text as recipients see it, without marks that mean nothing in it.

    Byte order marks go from every text. Other zero-width marks go if the text is GSM-7 without them: between letters of
    other scripts, and between emoji, they have a meaning.
    """
    if is_gsm7(text):
        return text
    stripped = text.translate(_IDLE_MARKS)
    return stripped if is_gsm7(stripped) else strip_byte_order_marks(text)


def to_gsm7(text: str) -> str | None:
    """Return a text in GSM-7 with its typography replaced; ``None`` if it has other characters, too."""
    if is_gsm7(text):
        return text
    replaced = _replaced(text)
    return replaced if is_gsm7(replaced) else None


def _replaced(text: str) -> str:
    # A letter and its accent may be two characters, and GSM-7 has some of them as one.
    return unicodedata.normalize("NFC", text).translate(_REPLACEMENTS)


class SmsLength(Struct, frozen=True):
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
    elif is_gsm7(text):
        units += sum(map(text.count, GSM7_ESCAPED))
        wide = GSM7_ESCAPED
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
    return shorten_to_fit(text, ending, lambda whole: measure_sms(whole).pages <= max_pages)


class SmsEstimator:
    """Measures the filled texts of one template. The results are those of ``measure_sms``, but faster.

    :param template: the text
    """

    def __init__(self, template: MessageTemplate) -> None:
        self._template = template
        self._slots = tuple(template.names.index(name) for name in template.slots)
        self._has_each_name_once = sorted(self._slots) == list(range(len(template.names)))
        fixed = template.render(dict.fromkeys(template.names, ""))
        self._fixed_units = len(fixed)
        # If no character takes two units, only the number of characters matters.
        self._encoding: Encoding | None = None
        if _NOT_BASIC.search(fixed) is None:
            self._encoding = "GSM-7"
        elif not is_gsm7(fixed) and max(fixed) <= "\uffff":
            self._encoding = "UCS-2"
        self._lengths: dict[int, SmsLength] = {}

    def measure(self, values: Sequence[str]) -> SmsLength:
        """Return the length of the text with these values, one for each of the template's names."""
        joined = "".join(values)
        if self._encoding is None or _NOT_BASIC.search(joined) is not None:
            return measure_sms(self._template.render(dict(zip(self._template.names, values, strict=True))))
        if self._has_each_name_once:
            units = self._fixed_units + len(joined)
        else:
            units = self._fixed_units + sum(len(values[slot]) for slot in self._slots)
        length = self._lengths.get(units)
        if length is None:
            length = self._lengths[units] = _length(self._encoding, units)
        return length


class SmsWriter:
    """Writes the texts of one SMS as they are sent: without idle marks and, where the author wants it, in GSM-7.

    The typography of the text is replaced if that alone makes GSM-7 of it, apart from its placeholders. The same goes
    for the values of each recipient, if the text is GSM-7. So a text that stays UCS-2 keeps its typography.

    :param content: the text; ``None`` for a template that the service stores
    :param names: the names that placeholders may have
    :param placeholder_format: how the placeholder called ``name`` is written
    :param encoding: ``gsm7`` to replace typography; ``None`` to leave it
    """

    def __init__(
        self,
        content: str | None,
        names: Iterable[str] = (),
        placeholder_format: str = "{name}",
        encoding: str | None = None,
    ) -> None:
        self.names = tuple(names)
        self.encoding = encoding
        marks = [placeholder_format.replace("name", name) for name in self.names]
        # A template may have any of the placeholders.
        self._used_names = {*self.names} if content is None else named_in(content, self.names, placeholder_format)
        self._used = tuple(place for place, name in enumerate(self.names) if name in self._used_names)
        pieces = re.split(f"({'|'.join(map(re.escape, marks))})", content or "") if marks else [content or ""]
        self._pieces = self._written_pieces(pieces)
        self.content = None if content is None else "".join(self._pieces)
        """The text as it is sent."""

        self._replaces_values = encoding == GSM7 and all(map(is_gsm7, self._pieces[::2]))

    def _written_pieces(self, pieces: list[str]) -> list[str]:
        """Return the pieces of the text as they are sent. Every second one is a placeholder."""
        texts = pieces[::2]
        if any(text.startswith(_JOINERS) for text in texts[1:]) or any(text.endswith(_JOINERS) for text in texts[:-1]):
            # It may change letters of a value, so it cannot be judged without the values.
            written = [strip_byte_order_marks(text) for text in texts]
        else:
            replaced = [to_gsm7(text) if self.encoding == GSM7 else strip_idle_marks(text) for text in texts]
            whole = [text for text in replaced if text is not None and is_gsm7(text)]
            written = whole if len(whole) == len(texts) else [strip_byte_order_marks(text) for text in texts]
        return [written[place // 2] if place % 2 == 0 else piece for place, piece in enumerate(pieces)]

    def values(self, values: list[str]) -> list[str]:
        """Return the values of one recipient, one for each of the names, as they are sent."""
        return self._written_values(values, self._used)

    def substitutions(self, values: Mapping[str, str]) -> dict[str, str]:
        """Return the values of one recipient by their names, of which it may have only some."""
        used = [place for place, name in enumerate(values) if name in self._used_names]
        return dict(zip(values, self._written_values([*values.values()], used), strict=True))

    def _written_values(self, values: list[str], used: Iterable[int]) -> list[str]:
        if _NOT_BASIC.search("".join(values)) is None:
            return values
        written = [strip_idle_marks(value) for value in values]
        if self._replaces_values:
            replaced = {place: to_gsm7(written[place]) for place in used}
            if None not in replaced.values():
                return [replaced.get(place) or value for place, value in enumerate(written)]
        return written

    def count_other_characters(self) -> int:
        """Return how many characters of the text, apart from its placeholders, have no form in GSM-7."""
        return sum(map(count_other_characters, self._pieces[::2]))


def gsm7_savings(
    content: str, names: Iterable[str] = (), placeholder_format: str = "{name}"
) -> Callable[[list[str]], int]:
    """Return a function from the values of one recipient to the pages that ``encoding="gsm7"`` saves.

    :param content: the text as its author wrote it
    """
    plain, replaced = (SmsWriter(content, names, placeholder_format, encoding) for encoding in (None, GSM7))
    measure_plain, measure_replaced = (
        SmsEstimator(MessageTemplate(writer.content or "", writer.names, placeholder_format)).measure
        for writer in (plain, replaced)
    )
    return lambda values: measure_plain(plain.values(values)).pages - measure_replaced(replaced.values(values)).pages


def describe_savings(encoding: str | None, saved_pages: int, charge: str | None = None) -> str:
    """Return a sentence about the pages that ``encoding="gsm7"`` saves, or would save.

    :param charge: what these pages cost; ``None`` if that is not known
    """
    saves = "saves" if encoding == GSM7 else "would save"
    return f"encoding='gsm7' {saves} {counted(saved_pages, 'page')}{f' (charge {charge})' if charge else ''}."
