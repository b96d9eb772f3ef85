"""Which parts of a URL the access log hides, and that hiding takes time in proportion to the URL's length."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpaas_provider.delivery.callbacks.tokens import CallbackToken, callback_url
from cpaas_provider.delivery.receiver.http.access_log import HIDDEN, hide_tokens
from tests.growth import LINEAR, growth, seconds

NAMES = st.text("abcXYZ0189_-", min_size=1, max_size=100)
TOKENS = st.builds(
    lambda campaign, reference, recipients, secret: callback_url(
        "", "c", secret, CallbackToken(campaign, reference, recipients)
    ).rpartition("/")[2],
    NAMES,
    NAMES,
    st.integers(1, 100_000),
    st.text("abc", min_size=1, max_size=5),
)
AROUND = ["{}", "/cpaas/callback/c/{}", "/x/{}/", "/{}/more", "token={}", "a=1&token={}&b=2", "next=/callback/c/{}&d=3"]
ENCODINGS = [
    lambda token: token,
    lambda token: token.replace(".", "%2e"),
    lambda token: token.replace(".", "%252E"),
    lambda token: token.replace(".", "%25252E").replace("-", "%2D").replace("_", "%255f"),
]


@given(token=TOKENS, around=st.sampled_from(AROUND), encode=st.sampled_from(ENCODINGS))
def test_token_is_hidden_and_the_rest_of_the_url_is_shown(token: str, around: str, encode: object) -> None:
    assert hide_tokens(around.format(encode(token))) == around.format(HIDDEN)  # type: ignore[operator]  # see ENCODINGS


@given(token=TOKENS, missing=st.integers(1, 7))
def test_token_that_lost_its_end_is_hidden_while_the_end_could_be_guessed(token: str, missing: int) -> None:
    assert hide_tokens(f"/callback/c/{token[:-missing]}") == f"/callback/c/{HIDDEN}"


@given(first=TOKENS, second=TOKENS)
def test_two_tokens_are_hidden(first: str, second: str) -> None:
    assert hide_tokens(f"/a.b/{first}/c.d/{second}?e.f") == f"/a.b/{HIDDEN}/c.d/{HIDDEN}"


@pytest.mark.parametrize(
    "text",
    [
        "team.marketing.daily_customer_campaign",
        "/api/v2/dags/team.marketing.daily_customer_campaign/dagRuns/scheduled__2026-01-31T00:00:00+00:00",
        "/api/v2/dags/d/dagRuns/r/taskInstances/outer.middle.inner_group_with_a_long_name.send_the_messages/logs/1",
        "/static/assets/index-BqU5n3vXkC1f9pQ2.c4ca4238a0b923820dcc509a6f75849b.min.js",
        "order_by=-dag_display_name.asc&limit=50&cursor=eyJhIjoxfQ.eyJiIjoyfQ.c4ca4238a0b923820dcc509a6f75849b00000000000",
        "/10.0.0.1/1.2.3.4",
        "",
    ],
)
def test_names_with_dots_that_are_no_tokens_are_shown(text: str) -> None:
    assert hide_tokens(text) == text


HOSTILE = [
    "a.",
    "a",
    ".",
    ".1",
    ".1.1234567890",
    ".1.1234567890.",
    ".1.1234567890." + "a" * 31 + "/",
    "a.b.1.1234567890." + "a" * 43 + "/",
    "/a.1.1234567890." + "a" * 43,
    ".1.1234567890." + "a" * 36 + "&",
    "a.b.1.1234567890." + "a" * 43,
    "%25",
    "%2e",
    "%252e1",
    "25",
    "/",
    "a/",
    "&a=",
]


@pytest.mark.parametrize("unit", HOSTILE)
def test_time_to_hide_is_in_proportion_to_the_length(unit: str) -> None:
    assert growth(hide_tokens, unit, 16_000) < LINEAR


@pytest.mark.parametrize("unit", HOSTILE)
def test_longest_url_takes_no_longer_than_to_hash_it_some_hundred_times(unit: str) -> None:
    text = (unit * 65_536)[:65_536]
    limit = seconds(lambda: [hashlib.sha512(text.encode()).digest() for _ in range(400)])
    assert seconds(lambda: hide_tokens(text)) < limit
