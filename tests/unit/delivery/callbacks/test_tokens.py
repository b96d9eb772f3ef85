"""Callback URLs: ours are read, and nothing else is, whoever changes what in them."""

from __future__ import annotations

import string
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cpaas_provider.delivery.callbacks.tokens import (
    MAX_RECIPIENTS,
    CallbackToken,
    InvalidTokenError,
    callback_url,
    verify_token,
)

BASE = "https://airflow.example.com/cpaas"
ISSUED = datetime(2026, 5, 1, 12, tzinfo=UTC)
TOKEN = CallbackToken("cpaas-spring", "cpaas-spring-7", 500, ISSUED)
NAMES = st.text(string.ascii_letters + string.digits + "_-", min_size=1, max_size=100)
TOKENS = st.builds(CallbackToken, NAMES, NAMES, st.integers(1, MAX_RECIPIENTS))
PRINTABLE = st.characters(exclude_categories=("C", "Z")) | st.just(" ")
SECRETS = st.text(PRINTABLE, min_size=1, max_size=40)


def token_in(url: str) -> str:
    return url.rpartition("/")[2]


def make_token(token: CallbackToken = TOKEN, conn_id: str = "cpaas_default", secret: str = "secret") -> str:
    return token_in(callback_url(BASE, conn_id, secret, token))


class TestCallbackUrl:
    def test_callback_url_extends_the_base_url_and_names_the_connection(self) -> None:
        url = callback_url(BASE + "/", "cpaas_default", "secret", TOKEN)
        assert url.startswith(f"{BASE}/callback/cpaas_default/cpaas-spring.cpaas-spring-7.500.")
        assert len(token_in(url).rpartition(".")[2]) == 43

    @pytest.mark.parametrize("conn_id", ["team/cpaas", "a#b", "a\\b", "(a):b", "ä"])
    def test_connection_id_is_quoted_as_one_path_segment(self, conn_id: str) -> None:
        path = urlsplit(callback_url(BASE, conn_id, "secret", TOKEN)).path.removeprefix("/cpaas/callback/")
        (quoted, text) = path.split("/")
        assert unquote(quoted) == conn_id
        assert verify_token(conn_id, text, ("secret",)) == TOKEN

    def test_same_request_has_the_same_callback_url(self) -> None:
        assert make_token() == make_token()

    def test_callback_url_needs_a_signing_secret(self) -> None:
        with pytest.raises(ValueError, match="needs a signing secret"):
            callback_url(BASE, "cpaas_default", "", TOKEN)

    @pytest.mark.parametrize(
        "fields",
        [("", "a", 1), ("a", "", 1), ("a.b", "a", 1), ("a", "a/b", 1), ("ä", "a", 1), ("a" * 101, "a", 1),
         ("a\n", "a", 1), ("a", "a", 0), ("a", "a", -1), ("a", "a", MAX_RECIPIENTS + 1)],
    )  # fmt: skip
    def test_token_fields_that_do_not_fit_into_a_url_are_refused(self, fields: tuple[str, str, int]) -> None:
        with pytest.raises(ValueError, match="callback token"):
            CallbackToken(*fields)


class TestVerifyToken:
    @given(TOKENS, st.text(PRINTABLE, min_size=1, max_size=30), SECRETS)
    def test_token_of_a_callback_url_is_verified_and_read(
        self, token: CallbackToken, conn_id: str, secret: str
    ) -> None:
        assert verify_token(conn_id, make_token(token, conn_id, secret), (secret,)) == token

    @given(st.text(max_size=300))
    def test_any_other_text_is_refused(self, text: str) -> None:
        assert_refused(text)

    @given(st.integers(0, len(make_token()) - 1), st.characters(codec="ascii"))
    def test_token_with_one_changed_character_is_refused(self, place: int, letter: str) -> None:
        assume(make_token()[place] != letter)
        assert_refused(make_token()[:place] + letter + make_token()[place + 1 :])

    @given(st.integers(0, len(make_token()) - 1))
    def test_truncated_token_is_refused(self, length: int) -> None:
        assert_refused(make_token()[:length])

    @pytest.mark.parametrize("more", ["=", "A", "\n", " ", "%00", ".", "\u0660"])
    def test_token_with_more_at_its_end_is_refused(self, more: str) -> None:
        assert_refused(make_token() + more)

    def test_last_character_of_a_token_has_only_one_accepted_form(self) -> None:
        """32 bytes leave two bits of the 43rd character open: only one of the four readings is ours."""
        others = [make_token()[:-1] + letter for letter in string.ascii_letters + string.digits + "-_"]
        read = [text for text in others if is_accepted(text)]
        assert read == [make_token()]

    @given(TOKENS)
    def test_token_signed_with_another_secret_is_refused(self, token: CallbackToken) -> None:
        assert_refused(make_token(token, secret="somebody else's"))

    def test_token_of_another_connection_is_refused(self) -> None:
        assert_refused(make_token(conn_id="cpaas_other"))

    @pytest.mark.parametrize(
        "token",
        [CallbackToken("cpaas-spring-7", "cpaas-spring", 500), CallbackToken("cpaas-spring", "cpaas-spring-7", 5000),
         CallbackToken("cpaas-spring", "cpaas-spring-75", 500), CallbackToken("cpaas-sprin", "gcpaas-spring-7", 500)],
    )  # fmt: skip
    def test_signature_of_a_token_does_not_verify_other_fields(self, token: CallbackToken) -> None:
        proof = make_token().rpartition(".")[2]
        assert_refused(f"{token.campaign}.{token.reference}.{token.recipients}.{proof}")

    def test_signature_separates_the_fields_from_the_connection_id(self) -> None:
        assert_refused(make_token(CallbackToken("a", "b", 1), conn_id="xa"), conn_id="x")
        assert make_token(CallbackToken("ab", "c", 1), conn_id="x") != make_token(
            CallbackToken("b", "c", 1), conn_id="xa"
        )

    @pytest.mark.parametrize("count", ["0500", "+500", "5_00", "500000", "1e2", "\u0665", ""])
    def test_other_notation_of_the_recipient_count_is_refused(self, count: str) -> None:
        assert_refused(make_token().replace(".500.", f".{count}."))

    def test_huge_tokens_are_refused(self) -> None:
        assert_refused("a" * 1_000_000)
        assert_refused(".".join("a" * 90 for _ in range(10_000)))


class TestTokenAge:
    def test_token_holds_the_time_at_which_it_was_issued(self) -> None:
        assert verify_token("cpaas_default", make_token(), ("secret",)).issued == ISSUED
        begun = datetime.now(UTC).replace(microsecond=0)
        fresh = verify_token("cpaas_default", make_token(CallbackToken("a", "b", 1)), ("secret",))
        assert fresh.issued is not None
        assert begun <= fresh.issued <= datetime.now(UTC)

    def test_token_with_a_changed_time_of_issue_is_refused(self) -> None:
        issued = str(int(ISSUED.timestamp()))
        assert_refused(make_token().replace(issued, str(int(issued) + 1)))
        assert_refused(make_token().replace(f".{issued}", ""))

    def test_token_expires_after_its_lifetime(self) -> None:
        old = CallbackToken("a", "b", 1, datetime.now(UTC) - timedelta(days=90, seconds=1))
        assert old.expired(timedelta(days=90))
        assert not old.expired(timedelta(days=91))
        assert not CallbackToken("a", "b", 1).expired(timedelta(days=1))


class TestSecretRotation:
    def test_each_listed_secret_verifies(self) -> None:
        for secret in ("newest", "older", "oldest"):
            assert verify_token("cpaas_default", make_token(secret=secret), ("newest", "older", "oldest")) == TOKEN

    def test_secret_that_is_no_longer_listed_verifies_nothing(self) -> None:
        assert_refused(make_token(secret="oldest"), secrets=("newest", "older"))

    @pytest.mark.parametrize("secrets", [(), ("",), ("", "")])
    def test_no_token_verifies_without_a_secret(self, secrets: tuple[str, ...]) -> None:
        assert_refused(make_token(), secrets=secrets)

    def test_error_does_not_show_which_part_of_a_token_is_wrong(self) -> None:
        said = {
            str(assert_refused(text))
            for text in ("", make_token()[:-1], make_token(secret="other"), make_token(conn_id="other"), "a.b.1.c")
        }
        assert len(said) == 1


def assert_refused(text: str, conn_id: str = "cpaas_default", secrets: Any = ("secret",)) -> InvalidTokenError:
    with pytest.raises(InvalidTokenError) as refusal:
        verify_token(conn_id, text, secrets)
    return refusal.value


def is_accepted(text: str) -> bool:
    try:
        return verify_token("cpaas_default", text, ("secret",)) == TOKEN
    except InvalidTokenError:
        return False
