"""Texts of messages: placeholders, invisible characters, lines of a header, and texts that are cut."""

from __future__ import annotations

import bisect
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping

from cpaas_provider._common.values import INVISIBLE_MARKS
from cpaas_provider._common.values import strip_invisible as strip_invisible

_BLANKS = " \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
_MARKS_AND_BLANKS = _BLANKS + "".join(map(chr, INVISIBLE_MARKS))

_LINK = re.compile(r"https?://\S+")
_JOINER = "\u200d"
# Characters that belong to the character before them. Others, such as variation selectors, have the category M.
_MODIFIERS = frozenset(map(chr, [*range(0x1F3FB, 0x1F400), *range(0xE0020, 0xE0080), *range(0x1160, 0x1200)]))
_FLAG_LETTERS = frozenset(map(chr, range(0x1F1E6, 0x1F200)))

# Control characters, and the two separators of Unicode that end a line.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")

# Control and format characters, half characters, separators of lines, and those of no or private meaning: among the
# latter are emoji that are newer than Python's table.
_INVISIBLE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Me"})
# Letters and marks without a shape: the grapheme joiner, fillers of Hangul, variation selectors.
_INVISIBLE_LETTERS = frozenset(
    map(chr, [0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0, *range(0x180B, 0x1810)])
) | frozenset(map(chr, [*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)]))

# Emoji that Unicode counts as signs of punctuation and mathematics.
_EMOJI_SIGNS = frozenset(
    map(chr, [0x203C, 0x2049, 0x2194, *range(0x25FB, 0x25FF), 0x2934, 0x2935, *range(0x2B05, 0x2B08), 0x3030, 0x303D])
)

ELLIPSIS = "..."
"""Three full stops, which GSM-7 has. The single character would make a text UCS-2."""

_LONGEST_CUT_WORD = 20
"""How many characters more than necessary may be cut, so that a text ends with a whole word."""


def shorten(text: str, max_length: int, ending: str = "") -> str:
    """Return a text and an ending within a number of characters, cut as by ``shorten_to_fit``."""
    return shorten_to_fit(text, ending, lambda whole: len(whole) <= max_length)


def shorten_to_fit(text: str, ending: str, fits: Callable[[str], bool]) -> str:
    """Return a text and an ending, of which the text is cut until both fit.

    It is never cut within a link, an emoji or another character that readers see as one.

    :param fits: returns whether a text and its ending fit
    """
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
    """Return a text with its placeholders filled, as the service presumably does (contract.md 10).

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


def named_in(text: str, names: Iterable[str], placeholder_format: str = "{name}") -> frozenset[str]:
    """Return those of the names whose placeholder is in a text."""
    return frozenset(name for name in names if placeholder_format.replace("name", name) in text)


def has_control_character(text: str) -> bool:
    """Return whether a text has a line break or another control character, which no line of a header may have."""
    return _CONTROL.search(text) is not None


def may_be_placeholder_in(text: str, name: str) -> bool:
    """Return whether a text may have the placeholder of a name, in whichever marks the service expects."""
    return re.search(rf"[^\w\s]\s?{re.escape(name)}(?!\w)", text) is not None


def has_invisible_or_emoji(text: str) -> bool:
    """Return whether a text has control characters, characters that show nothing by themselves, or emoji."""
    return (not text.isascii() and any(map(_is_invisible_or_emoji, text))) or has_control_character(text)


def _is_invisible_or_emoji(character: str) -> bool:
    if unicodedata.category(character) in _INVISIBLE_CATEGORIES or character in _INVISIBLE_LETTERS:
        return True
    # Signs of Latin alphabets, such as the degree sign, are before U+2000.
    if character > "\u2000" and unicodedata.category(character) == "So":
        return True
    return character in _MODIFIERS or character in _EMOJI_SIGNS


def one_line(text: str) -> str:
    """Return a text with one blank in place of line breaks, other control characters and repeated blanks."""
    return " ".join(_CONTROL.sub(" ", text).split())


def blank_unprintable(text: str) -> str:
    """Return a text with a blank in place of each character that cannot be printed, such as a control character."""
    return text if text.isprintable() else "".join(letter if letter.isprintable() else " " for letter in text)


def trim_invisible(text: str) -> str:
    """Return a text without blanks and invisible marks around it. Marks within it may be part of a letter."""
    return text.strip() if text.isascii() else text.strip(_MARKS_AND_BLANKS)
