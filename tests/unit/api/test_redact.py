from __future__ import annotations

import re
import string
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpaas_provider.api.recipients.notation import with_ascii_digits
from cpaas_provider.api.redact import MAX_WORD, redact, sensitive_values, service_word
from tests.growth import seconds

# Without the two signs that scrubbing itself puts in.
letters = st.characters(exclude_characters="*…", exclude_categories=("Cs",))
private_texts = st.text(letters, min_size=3, max_size=40)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("number 2348031234567 is blocked", "number *** is blocked"),
        ("+234 803 123 4567 is blocked", "*** is blocked"),
        ("0803-123-4567, 0803.123.4567", "***, ***"),
        ("(0803) 123-4567", "(***"),
        ("0803  123\n4567", "***"),
        ("write to ada@example.com.", "write to ***"),
        ("<ada@example.com> bounced", "<***> bounced"),
        ("o'brien@example.com bounced", "*** bounced"),
        ("'ada@example.com' bounced", "*** bounced"),
        ("page 3 of 12, 160 characters, error 40023", "page 3 of 12, 160 characters, error 40023"),
        ("two\n  lines", "two lines"),
        ("\x1b[2J\x1b]0;owned\x07clears \x9b the screen", "[2J ]0;owned clears the screen"),
        ("0803\x00123\x004567 \ud800", "***"),
        ("", ""),
    ],
)
def test_any_numbers_and_addresses_are_hidden(words: str, shown: str) -> None:
    assert redact(words, ()) == shown


@pytest.mark.parametrize(
    ("words", "private", "shown"),
    [
        ("code 1234 is wrong", ["1234"], "code *** is wrong"),
        ("code 12 is wrong", ["12"], "code 12 is wrong"),
        ("Hello  Ada,\nyour code", ["Hello Ada,"], "*** your code"),
        ("Hello Ada, your code", ["Hello\tAda,"], "*** your code"),
        ("abcd and abc", ["abc", "abcd"], "*** and ***"),
        # A text that the service quotes only in part.
        (
            "'Dear Ada, your blood te...' is too long",
            ["Dear Ada, your blood test was positive"],
            "'***...' is too long",
        ),
        ("bad key sk_live_4eC39H", ["sk_live_4eC39HqLyjWDarjt"], "bad key ***"),
    ],
)
def test_values_of_the_request_are_hidden_even_in_part(words: str, private: list[str], shown: str) -> None:
    assert redact(words, private) == shown


@pytest.mark.parametrize(
    "words",
    [
        "code 7413 is wrong",
        "code 7 4 1 3",
        "code 7-4-1-3",
        "code 74-13",
        "7_4_1_3",
        "7,4,1,3",
        "7:4:1:3",
        "7\u20134\u20131\u20133",
        "7\u00a04\u00a01\u00a03",
        "\uff17\uff14\uff11\uff13",
        "\u0667\u0664\u0661\u0663",
        "7, 4, 1, 3",
        "(7) - (4) - (1) - (3)",
        "7'4'1'3",
        "7\ufe0f\u20e34\ufe0f\u20e31\ufe0f\u20e33\ufe0f\u20e3",
        "0000741300",
        "ada lovelace",
        "Dear ADA LOVELACE",
        "Weiss",
        "WEISS",
        "0803: 123: 4567",
        "234,803,123,4567",
        "234:803:1234567",
        "0803_123_4567",
        "0803\u2013123\u20134567",
        "ada%40example.org",
        "ada=40example.org",
        "ada&#64;example.org",
        "x" * 4_000 + " 7413",
        "\u0301" * 50_000 + "7413",
    ],
)
def test_private_value_is_hidden_however_it_is_written(words: str) -> None:
    private = ["7413", "Ada Lovelace", "Wei\u00df", "2348031234567", "ada@example.org"]
    shown = redact(words, private)
    digits = re.sub(r"[^0-9]", "", with_ascii_digits(shown))
    assert "7413" not in digits
    assert "803" not in digits
    assert not re.search("ada|lovelace|weiss|wei\u00df", shown, re.IGNORECASE)


@pytest.mark.parametrize(
    "words",
    [
        "Insufficient balance",
        "page 3 of 12, 160 characters, error 40023",
        "must be one of 100, 200, 500",
        "MTN Nigeria",
        "62130",
        "Retry after Wed, 21 Oct 2026 07:28:00 GMT",
        "valid until 2026-10-21T07:28:00Z",
        "SENT",
        "HTTP 503 from 10.0.0.1",
    ],
)
def test_text_without_personal_data_is_unchanged(words: str) -> None:
    assert redact(words, ["2348031234567", "7413"]) == words
    assert service_word(words, []) == words[:MAX_WORD] or len(words) > MAX_WORD


@pytest.mark.parametrize(
    "word", ["VERIFIED\nWARNING forged line", "v" * 60, "\x1b[2Jsent", "sent to 2348031234567", ""]
)
def test_service_word_is_one_short_line(word: str) -> None:
    shown = service_word(word, [])
    assert len(shown) <= MAX_WORD
    assert shown.isprintable()
    assert "2348031234567" not in shown


class NeverRead:
    """Private values of a large request, which no usual answer may cost a look at."""

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("the values of the request were read")


@pytest.mark.parametrize(
    "word", ["SENT", "GSM-7", "GSM7", "GSM_7BIT", "gsm 7bit", "UCS-2", "UCS2", "utf-16", "Unicode"]
)
def test_usual_word_is_not_compared_with_the_request(word: str) -> None:
    assert service_word(word, NeverRead()) == word


@pytest.mark.parametrize("word", ["GSM4711", "GSM_2348031234567", "ascii4711bit", "7bit", "Ada UCS-2"])
def test_word_with_more_than_an_encoding_is_compared_with_the_request(word: str) -> None:
    with pytest.raises(AssertionError, match="were read"):
        service_word(word, NeverRead())


@pytest.mark.parametrize(
    ("word", "private"),
    [("Ada", "ada"), ("to Ada", "Ada"), ("WEISS", "wei\u00df"), ("n 471 1", "4711"), ("sent 471", "471")],
)
def test_short_word_hides_a_short_private_value(word: str, private: str) -> None:
    assert service_word(word, [private, "a longer value " * 9]) != word


@pytest.mark.parametrize("unit", ["a\u0301\u0327", "\ufdfa", "1 ", "a@", "&#64;", "2026-01-01 ", "\u0301"])
def test_time_to_redact_grows_at_most_linearly(unit: str) -> None:
    longer, longest = (unit * size for size in (20_000, 80_000))
    assert seconds(lambda: redact(longest, ["7413"])) < 4 * seconds(lambda: redact(longer, ["7413"])) + 0.05


def test_time_to_redact_a_repeated_piece_is_in_proportion_to_the_private_value() -> None:
    assert seconds(lambda: redact("-" * 4_000, ["-" * 40_000]), 1) < 20 * seconds(lambda: redact("-" * 4_000, []), 2)


def test_time_to_redact_is_in_proportion_to_the_private_values() -> None:
    def redacting(count: int) -> None:
        redact("x " * 1_000, [f"{number} " + "private words " * 30 for number in range(count)])

    assert seconds(lambda: redacting(1_000), 2) < 4 * seconds(lambda: redacting(500), 2)


@given(
    st.lists(private_texts, min_size=1, max_size=5).flatmap(
        lambda values: st.tuples(st.just(values), st.lists(st.sampled_from(values) | st.text(letters), max_size=8))
    )
)
def test_no_private_value_survives(drawn: tuple[list[str], list[str]]) -> None:
    private, parts = drawn
    shown = redact(" ".join(parts), private)
    for value in private:
        assert len(value.strip()) < 3 or value not in shown


@given(st.text(st.sampled_from(string.digits + "+-. ()/x")), st.lists(private_texts, max_size=3))
def test_no_run_of_seven_digits_survives(words: str, private: list[str]) -> None:
    assert not re.search(r"\d{7}", redact(words, private))


@given(st.text(max_size=5_000))
def test_redacted_text_is_one_line_of_bounded_length(words: str) -> None:
    shown = redact(words, ())
    assert len(shown) <= 300
    assert "\n" not in shown


@pytest.mark.parametrize("words", ["a" * 5_000_000, "1" * 5_000_000, "a@" * 2_000_000, " 1" * 2_000_000])
def test_huge_text_is_redacted_within_two_seconds(words: str) -> None:
    before = time.process_time()
    redact(words, [str(number) for number in range(10_000, 12_000)])
    assert time.process_time() - before < 2


def test_every_personal_value_of_a_request_is_sensitive() -> None:
    fields = {
        "recipients": "2348031234567,2348031234568",
        "channel": "whatsapp",
        "template_id": "template-1",
        "id": "otp-1",
        "is_trackable": True,
        "amount": 150,
        "personalisation": [{"to": "2348031234567", "substitutions": {"name": "Ada", "id": "patient-9", "old": True}}],
        "columns": {"column-1": ["red", "green"], "column-2": None},
    }
    assert set(sensitive_values(fields)) == {
        "2348031234567,2348031234568",
        "2348031234567",
        "2348031234568",
        "150",
        "Ada",
        "patient-9",
        "red",
        "green",
    }
