"""A text that is too long is cut where a reader sees a whole character, word or link end."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpaas_provider.api.text import ELLIPSIS, shorten
from cpaas_provider.api.text.sms import measure_sms, shorten_sms

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
THUMB = "\U0001f44d\U0001f3fd"
FLAG = "\U0001f1f3\U0001f1ec"
KEY_CAP = "1\ufe0f\u20e3"
ACCENT = "e\u0301"
LINK = "https://airflow.example.com/dags/orders/runs/now"


def test_text_that_fits_stays_as_it_is() -> None:
    assert shorten_sms("a" * 160, 1) == "a" * 160
    assert shorten("short", 5) == "short"


def test_text_is_cut_at_a_word_and_its_ending_stays_whole() -> None:
    text = shorten_sms("word " * 60, 1, f" {LINK}")
    assert text.endswith(f"word{ELLIPSIS} {LINK}")
    assert measure_sms(text).pages == 1
    assert len(text) > 155


def test_long_word_is_cut_as_late_as_possible() -> None:
    assert shorten_sms("a" * 500, 1) == "a" * 157 + ELLIPSIS
    assert shorten("a" * 30, 10) == "a" * 7 + ELLIPSIS


@pytest.mark.parametrize("unit", [FAMILY, THUMB, FLAG, KEY_CAP, ACCENT, "\U0001f600"], ids=ascii)
@pytest.mark.parametrize("before", range(8))
def test_grapheme_is_never_cut(unit: str, before: int) -> None:
    text = shorten_sms("x" * before + unit * 100, 1)
    seen = text.removesuffix(ELLIPSIS).removeprefix("x" * before)
    assert seen == unit * (len(seen) // len(unit))
    assert measure_sms(text).pages == 1


@pytest.mark.parametrize("before", [0, 100, 120, 150])
def test_no_link_is_cut(before: int) -> None:
    text = shorten_sms(f"{'a' * before} {LINK} {'b' * 100}", 1)
    assert LINK in text or "http" not in text
    assert measure_sms(text).pages == 1


def test_blanks_behind_a_text_are_no_reason_to_cut_it() -> None:
    assert shorten_sms("a" * 150 + " " * 20, 1) == "a" * 150


def test_only_the_ending_remains_if_no_text_fits() -> None:
    assert shorten("abcdef", 5, " link") == "link"


@given(st.text(), st.integers(1, 3), st.sampled_from(["", f" {LINK}", " (and 499 more)"]))
def test_any_text_fits_and_keeps_its_beginning(text: str, pages: int, ending: str) -> None:
    found = shorten_sms(text, pages, ending)
    assert measure_sms(found).pages <= pages
    assert found.endswith(ending.lstrip())
    if found != text.rstrip() + ending:
        beginning = found.removesuffix(ending).removesuffix(ELLIPSIS)
        assert text.startswith(beginning) or found == ending.lstrip()
        following = text[len(beginning) : len(beginning) + 1]
        assert not following or not unicodedata.category(following).startswith("M") or not beginning
