from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpaas_provider.api.text import SmsLength, measure_sms, substitute

# 3GPP TS 23.038: the default alphabet in its own order, and the extension table.
BASIC = (
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞ\x1bÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?"
    "¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà"
).replace("\x1b", "")
EXTENSION = "\f^{}\\[~]|€"


def reference(text: str) -> SmsLength:
    """The rule told in the plainest way: fill pages character by character."""
    gsm = all(character in BASIC or character in EXTENSION for character in text)
    if gsm:
        widths = [2 if character in EXTENSION else 1 for character in text]
    else:
        widths = [2 if ord(character) > 0xFFFF else 1 for character in text]
    single, part = (160, 153) if gsm else (70, 67)
    pages, room = 1, part
    if sum(widths) > single:
        for width in widths:
            if width > room:
                pages, room = pages + 1, part
            room -= width
    return SmsLength("GSM-7" if gsm else "UCS-2", sum(widths), pages)


@pytest.mark.parametrize(
    ("text", "encoding", "units", "pages"),
    [
        ("", "GSM-7", 0, 1),
        ("a" * 160, "GSM-7", 160, 1),
        ("a" * 161, "GSM-7", 161, 2),
        ("a" * 306, "GSM-7", 306, 2),
        ("a" * 307, "GSM-7", 307, 3),
        ("€" * 80, "GSM-7", 160, 1),
        ("a" + "€" * 80, "GSM-7", 161, 2),
        # 152 and a euro fill one page but for one septet, which stays empty.
        ("a" * 152 + "€" + "a" * 152, "GSM-7", 306, 3),
        ("€" + "a" * 304, "GSM-7", 306, 2),
        ("é" * 160, "GSM-7", 160, 1),
        ("ç", "UCS-2", 1, 1),
        ("`", "UCS-2", 1, 1),
        ("ẹ" * 70, "UCS-2", 70, 1),
        ("ẹ" * 71, "UCS-2", 71, 2),
        ("ẹ" * 134, "UCS-2", 134, 2),
        ("ẹ" * 135, "UCS-2", 135, 3),
        ("😀" * 35, "UCS-2", 70, 1),
        ("😀" * 36, "UCS-2", 72, 2),
        ("😀" + "ẹ" * 132, "UCS-2", 134, 2),
        # 33 emoji fill a page of 67 but for one unit.
        ("😀" * 67, "UCS-2", 134, 3),
    ],
)
def test_pages(text: str, encoding: str, units: int, pages: int) -> None:
    measured = measure_sms(text)
    assert (measured.encoding, measured.units, measured.pages) == (encoding, units, pages)


@pytest.mark.parametrize("character", EXTENSION)
def test_escaped_characters_cost_two(character: str) -> None:
    assert measure_sms(character) == SmsLength("GSM-7", 2, 1)


@pytest.mark.parametrize("character", BASIC)
def test_basic_characters_cost_one(character: str) -> None:
    assert measure_sms(character) == SmsLength("GSM-7", 1, 1)


runs = st.tuples(st.sampled_from("aZ \n€^[é") | st.characters(), st.integers(0, 200))
texts = st.text() | st.lists(runs, max_size=5).map(lambda drawn: "".join(letter * times for letter, times in drawn))


@given(texts)
def test_agrees_with_the_plain_rule(text: str) -> None:
    assert measure_sms(text) == reference(text)


@given(texts, texts)
def test_more_text_never_costs_fewer_pages(text: str, more: str) -> None:
    assert measure_sms(text + more).pages >= measure_sms(text).pages


@pytest.mark.parametrize(
    ("content", "placeholder_format", "filled"),
    [
        ("Hello {first}, bye {first}", "{name}", "Hello Ada, bye Ada"),
        ("Hello %first%", "%name%", "Hello Ada"),
        ("Hello {{first}}", "{{name}}", "Hello Ada"),
        ("Hello {first}", "%name%", "Hello {first}"),
        ("Hello {stranger}", "{name}", "Hello {stranger}"),
        ("{name} {first}", "{name}", "Obi Ada"),
        ("{tricky}", "{name}", "{first}"),
        ("{first}{count}", "{name}", "Ada5"),
    ],
)
def test_placeholders_are_filled_once_each(content: str, placeholder_format: str, filled: str) -> None:
    # ``tricky`` comes first: its value must not be taken for the placeholder it looks like.
    values = {"tricky": "{first}", "first": "Ada", "name": "Obi", "count": 5}
    assert substitute(content, values, placeholder_format) == filled


def test_without_substitutions_a_text_stays_as_it_is() -> None:
    assert substitute("Hello {first}", {}) == "Hello {first}"
