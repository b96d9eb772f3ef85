from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpaas_provider.api.text import MessageTemplate, placeholders_in, substitute
from cpaas_provider.api.text.sms import SmsEstimator, SmsLength, measure_sms

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
def test_text_has_its_encoding_units_and_pages(text: str, encoding: str, units: int, pages: int) -> None:
    measured = measure_sms(text)
    assert (measured.encoding, measured.units, measured.pages) == (encoding, units, pages)


@pytest.mark.parametrize("character", EXTENSION)
def test_escaped_characters_cost_two(character: str) -> None:
    assert measure_sms(character) == SmsLength("GSM-7", 2, 1)


def test_basic_characters_cost_one() -> None:
    assert len(BASIC) == 127
    for character in BASIC:
        assert measure_sms(character) == SmsLength("GSM-7", 1, 1), f"{character!r} (U+{ord(character):04X})"


runs = st.tuples(st.sampled_from("aZ \n€^[é") | st.characters(), st.integers(0, 200))
texts = st.text() | st.lists(runs, max_size=5).map(lambda drawn: "".join(letter * times for letter, times in drawn))


@given(texts)
def test_measure_equals_the_reference(text: str) -> None:
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


def test_text_without_substitutions_is_unchanged() -> None:
    assert substitute("Hello {first}", {}) == "Hello {first}"


FORMATS = ["{name}", "%name%", "{{name}}", "$name", "name", "[[name:name]]", "<%name%>", "%s", ""]
names = st.sampled_from(["first", "fir", "a", "ab", "Ẹni", "amount", "name", "a b", "%s", "1"])
pieces = st.lists(
    names | st.sampled_from([*FORMATS, "%", "%%", "%s", "{", "}", "$", " "]) | st.text(max_size=3), max_size=8
)


@given(pieces, st.lists(names, unique=True), st.sets(names), st.sampled_from(FORMATS), st.data())
def test_template_renders_like_plain_substitution(
    parts: list[str], known: list[str], absent: set[str], placeholder_format: str, data: st.DataObject
) -> None:
    written = [placeholder_format.replace("name", part) if data.draw(st.booleans()) else part for part in parts]
    content = "".join(written)
    text = MessageTemplate(content, known, placeholder_format)
    for missing in (set(), absent):
        values = {name: data.draw(st.text(max_size=5)) for name in known if name not in missing}
        assert text.render(values) == substitute(content, values, placeholder_format)
        assert text.render({**values, "stranger": "x"}) == text.render(values)


@given(
    st.lists(st.sampled_from(["{a}", "{b}", "Hello ", "€", "Ẹ", "😀", "x" * 30, "%"]), max_size=10),
    st.lists(
        st.tuples(*[st.one_of(st.text(max_size=4), st.sampled_from(["Ada", "y" * 70, "[", "\ud83d", "{b}"]))] * 3),
        min_size=1,
        max_size=4,
    ),
)
def test_estimator_measures_as_the_whole_text_is_measured(parts: list[str], people: list[tuple[str, str, str]]) -> None:
    content, names = "".join(parts), ("unused", "a", "b")
    text = MessageTemplate(content, names)
    estimator = SmsEstimator(text)
    for values in people:
        assert estimator.measure(values) == measure_sms(text.render(dict(zip(names, values, strict=True))))


def test_template_has_the_slots_it_needs() -> None:
    text = MessageTemplate("{b} and {a}, {b}, {stranger}, 100% {c", ["a", "b", "c"])
    assert text.slots == ("b", "a", "b")
    assert text.render({"a": "{b}", "b": "5 %s", "c": "x"}) == "5 %s and {b}, 5 %s, {stranger}, 100% {c"
    assert text.render({"b": "5"}) == "5 and {a}, 5, {stranger}, 100% {c"
    assert MessageTemplate("100% {a}", []).render({"a": "x"}) == "100% {a}"
    assert MessageTemplate("100%", ["a"]).slots == ()


@pytest.mark.parametrize(
    ("content", "placeholder_format", "found"),
    [
        ("{b} and {a}, {b}", "{name}", ("b", "a")),
        ("{Ẹni} {a1_} {a b} {} {a", "{name}", ("Ẹni", "a1_", "a b")),
        ("%a% 100% %b%", "%name%", ("a", "b")),
        ("{{a}} {b}", "{{name}}", ("a",)),
        ("<a|a> <a|b>", "<name|name>", ("a",)),
        ("aXa1 aXb1", "nameXname1", ("a",)),
        ("nothing", "%s", ()),
        ("", "{name}", ()),
        ("Only $100 for $name1, at 10:30", "$name", ("name1",)),
        ("Only $100, at 10:30, :_id", ":name", ("_id",)),
    ],
)
def test_placeholders_are_found_in_a_text(content: str, placeholder_format: str, found: tuple[str, ...]) -> None:
    assert placeholders_in(content, placeholder_format) == found


@given(st.lists(st.from_regex(r"\w{1,8}", fullmatch=True)), st.sampled_from(["{name}", "%name%", "{{name}}"]))
def test_every_placeholder_is_found_in_any_format(written: list[str], placeholder_format: str) -> None:
    content = " ".join(placeholder_format.replace("name", name) for name in written)
    assert placeholders_in(content, placeholder_format) == tuple(dict.fromkeys(written))
    assert MessageTemplate(content, reversed(written), placeholder_format).slots == tuple(written)
