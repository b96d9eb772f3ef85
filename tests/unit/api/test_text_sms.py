"""Texts in GSM-7: which characters are replaced, which marks go, and that recipients read the same."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpaas_provider.api.text import MessageTemplate
from cpaas_provider.api.text.sms import (
    GSM7_BASIC,
    GSM7_ESCAPED,
    TYPOGRAPHY,
    SmsWriter,
    count_other_characters,
    gsm7_savings,
    is_gsm7,
    measure_sms,
    strip_idle_marks,
    to_gsm7,
)

ALPHABET = sorted(GSM7_BASIC | GSM7_ESCAPED)
# Words of the names that Unicode gives to the characters, with what they are written as.
NAMES = {
    "'": ("SINGLE", "APOSTROPHE", "PRIME", "ACUTE ACCENT"),
    '"': ("DOUBLE",),
    "-": ("HYPHEN", "DASH", "HORIZONTAL BAR", "MINUS SIGN"),
    ".": ("ONE DOT LEADER",),
    "..": ("TWO DOT LEADER",),
    "...": ("HORIZONTAL ELLIPSIS",),
    " ": ("SPACE", "QUAD"),
    "\n": ("SEPARATOR",),
    "*": ("BULLET",),
    "ff": ("LIGATURE FF",),
    "fi": ("LIGATURE FI",),
    "fl": ("LIGATURE FL",),
    "ffi": ("LIGATURE FFI",),
    "ffl": ("LIGATURE FFL",),
    "st": ("LIGATURE ST",),
}
PERSIAN = "می\u200cروم"
HINDI = "क्\u200dष"
MALAYALAM = "ന്\u200d"
FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
THAI = "สวัสดี\u200bครับ"
MARKS = "\u00ad\u180e\u200b\u200c\u200d\u200e\u2060\u2061\u202a\u202c\u2066\u2068\u2069\ufeff"


@pytest.mark.parametrize("character", ALPHABET)
def test_character_of_the_alphabet_stays_as_it_is(character: str) -> None:
    assert (strip_idle_marks(character), to_gsm7(character)) == (character, character)
    assert character not in TYPOGRAPHY
    assert to_gsm7(f"{character}\u2019") == f"{character}'"
    assert count_other_characters(character) == 0


def test_alphabet_is_whole() -> None:
    assert len(ALPHABET) == 127 + 10
    assert to_gsm7("".join(ALPHABET) + "\u2014") == "".join(ALPHABET) + "-"


@pytest.mark.parametrize("character", TYPOGRAPHY, ids=ascii)
def test_replacement_is_of_gsm7_and_of_the_kind_that_unicode_names(character: str) -> None:
    written = TYPOGRAPHY[character]
    assert not is_gsm7(character)
    assert to_gsm7(f"a{character}b") == f"a{written}b"
    control = {"\t": "SPACE", "\x0b": "SEPARATOR", "\x85": "SEPARATOR"}
    name = unicodedata.name(character, control.get(character, ""))
    assert any(word in name for word in NAMES[written]), name


@pytest.mark.parametrize(
    "character",
    ["½", "²", "ç", "á", "ő", "₦", "™", "\u00d7", "·", "`", "ﬅ", "₤", "\u03b1", "\u0430", "😀", "ỌÀ", "‰", "№"],
)
def test_character_with_a_meaning_of_its_own_is_not_replaced(character: str) -> None:
    assert to_gsm7(f"5{character}6") is None
    assert count_other_characters(f"\u2019{character[:1]}") == 1


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("“Hello” \u2013 it\u2019s €5…", '"Hello" - it\'s €5...'),
        ("e\u0301a\u0300 n\u0303", "éà ñ"),
        ("A\u030a \u2126 \u212b", "Å Ω Å"),
        ("Ada\u200b\u2019s\u00a0shop", "Ada's shop"),
        ("a\u2028b\u2029c\x85d", "a\nb\nc\nd"),
        ("“Ọlá”", None),
        ("it\u2019s 😀", None),
        ("\u200fit\u2019s", None),
    ],
)
def test_text_is_written_in_gsm7_only_as_a_whole(text: str, written: str | None) -> None:
    assert to_gsm7(text) == written


@pytest.mark.parametrize("mark", MARKS, ids=ascii)
def test_zero_width_mark_goes_from_a_text_that_is_gsm7_without_it(mark: str) -> None:
    for text in (f"{mark}Hello", f"Hel{mark}lo", f"Hello{mark}", f"{mark}a{mark}" * 80):
        assert strip_idle_marks(text) == text.replace(mark, "")
    assert measure_sms(strip_idle_marks(mark + "a" * 160)).pages == 1


@pytest.mark.parametrize("text", [PERSIAN, HINDI, MALAYALAM, FAMILY, THAI, "Ọ\u2060lá", "“a\u200bb”"])
def test_zero_width_mark_stays_in_a_text_that_is_ucs2_anyway(text: str) -> None:
    assert strip_idle_marks(text) == text
    assert strip_idle_marks(f"\ufeff{text}\ufeff") == text
    assert strip_idle_marks(f"Hello {text}") == f"Hello {text}"


@pytest.mark.parametrize("mark", "\u200f\u061c\u202b\u202e\u2067", ids=ascii)
def test_mark_of_a_writing_direction_to_the_left_stays(mark: str) -> None:
    assert strip_idle_marks(f"{mark}Hello (1)") == f"{mark}Hello (1)"


pieces = st.sampled_from([*ALPHABET, *TYPOGRAPHY, *MARKS, "ọ", "ن", "😀", "\u0301", "{a}", "\u200f", "x" * 60])
letters = st.lists(pieces, max_size=12).map("".join)


@given(letters)
def test_written_text_is_written_the_same_again(text: str) -> None:
    stripped, written = strip_idle_marks(text), to_gsm7(text)
    assert strip_idle_marks(stripped) == stripped
    assert written is None or (is_gsm7(written) and to_gsm7(written) == written)
    assert measure_sms(stripped).pages <= measure_sms(text).pages


class TestWriter:
    def written(self, content: str, names: tuple[str, ...], values: list[str], encoding: str | None = "gsm7") -> str:
        writer = SmsWriter(content, names, encoding=encoding)
        assert writer.content is not None
        sent = writer.values(values)
        assert list(writer.substitutions(dict(zip(names, values, strict=True))).values()) == sent
        return MessageTemplate(writer.content, names).render(dict(zip(names, sent, strict=True)))

    def test_typography_of_text_and_values_is_replaced(self) -> None:
        assert self.written("It\u2019s {name}…", ("name",), ["“Ada”"]) == 'It\'s "Ada"...'

    def test_without_the_option_typography_stays(self) -> None:
        assert self.written("It\u2019s {name}…", ("name",), ["“Ada”"], None) == "It\u2019s “Ada”…"

    def test_values_stay_if_one_of_them_is_not_of_gsm7(self) -> None:
        assert self.written("{a}, {b}", ("a", "b"), ["it\u2019s", "Ọlá"]) == "it\u2019s, Ọlá"

    def test_value_that_the_text_does_not_have_does_not_count(self) -> None:
        assert SmsWriter("Dear {a}", ("a", "b"), encoding="gsm7").values(["it\u2019s", "Ọlá"]) == ["it's", "Ọlá"]

    def test_values_stay_if_the_text_is_not_of_gsm7(self) -> None:
        assert self.written("Ọjọ́ {a}", ("a",), ["it\u2019s"]) == "Ọjọ́ it\u2019s"

    def test_name_of_a_placeholder_is_not_text(self) -> None:
        assert self.written("Dear {prénom ọ}\u2019s", ("prénom ọ",), ["Ada"]) == "Dear Ada's"

    def test_joiner_beside_a_placeholder_stays_for_the_letters_of_its_value(self) -> None:
        assert self.written("{a}\u200c{b}", ("a", "b"), ["می", "روم"]) == PERSIAN
        assert self.written("{a}\u200c{b}", ("a", "b"), ["می", "روم"], None) == PERSIAN

    def test_marks_of_text_and_values_go(self) -> None:
        assert self.written("\ufeffDear\u200b {a}!\ufeff", ("a",), ["A\u200bda"], None) == "Dear Ada!"

    def test_values_of_a_template_of_the_service_are_replaced(self) -> None:
        writer = SmsWriter(None, ("a",), encoding="gsm7")
        assert (writer.content, writer.values(["it\u2019s"])) == (None, ["it's"])

    @pytest.mark.parametrize(
        ("content", "values", "pages"),
        [("It\u2019s {a}" + "x" * 150, ["ab"], 2), ("It\u2019s {a}" + "x" * 150, ["ọ"], 0), ("It's {a}", ["ab"], 0)],
    )
    def test_savings_are_the_pages_less_than_without_the_option(
        self, content: str, values: list[str], pages: int
    ) -> None:
        assert gsm7_savings(content, ("a",))(values) == pages

    def test_other_characters_are_counted_without_placeholders(self) -> None:
        assert SmsWriter("Ọjọ́ {ọ} it\u2019s", ("ọ",), encoding="gsm7").count_other_characters() == 3


@given(letters, letters, letters)
def test_writer_never_makes_a_text_longer(before: str, after: str, value: str) -> None:
    content, values = f"{before}{{n}}{after}", [value.replace("{a}", "")]
    whole = MessageTemplate(content, ("n",)).render({"n": values[0]})
    for encoding in (None, "gsm7"):
        writer = SmsWriter(content, ("n",), encoding=encoding)
        sent = MessageTemplate(writer.content or "", ("n",)).render({"n": writer.values(values)[0]})
        assert measure_sms(sent).pages <= measure_sms(whole).pages
    assert gsm7_savings(content, ("n",))(values) >= 0
