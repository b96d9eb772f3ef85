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
SECRETS = st.text(min_size=1, max_size=40).filter(lambda text: text.isprintable())


def text_of(url: str) -> str:
    return url.rpartition("/")[2]


def made(token: CallbackToken = TOKEN, conn_id: str = "cpaas_default", secret: str = "secret") -> str:
    return text_of(callback_url(BASE, conn_id, secret, token))


class TestMaking:
    def test_the_url_is_below_the_receiver_s_and_names_the_connection(self) -> None:
        url = callback_url(BASE + "/", "cpaas_default", "secret", TOKEN)
        assert url.startswith(f"{BASE}/callback/cpaas_default/cpaas-spring.cpaas-spring-7.500.")
        assert len(text_of(url).rpartition(".")[2]) == 43

    @pytest.mark.parametrize("conn_id", ["team/cpaas", "a#b", "a\\b", "(a):b", "ä"])
    def test_a_connection_s_id_stays_one_part_of_the_path(self, conn_id: str) -> None:
        path = urlsplit(callback_url(BASE, conn_id, "secret", TOKEN)).path.removeprefix("/cpaas/callback/")
        (quoted, text) = path.split("/")
        assert unquote(quoted) == conn_id
        assert verify_token(conn_id, text, ("secret",)) == TOKEN

    def test_the_same_request_has_the_same_url(self) -> None:
        assert made() == made()

    def test_nothing_is_signed_without_a_secret(self) -> None:
        with pytest.raises(ValueError, match="needs a signing secret"):
            callback_url(BASE, "cpaas_default", "", TOKEN)

    @pytest.mark.parametrize(
        "fields",
        [("", "a", 1), ("a", "", 1), ("a.b", "a", 1), ("a", "a/b", 1), ("ä", "a", 1), ("a" * 101, "a", 1),
         ("a\n", "a", 1), ("a", "a", 0), ("a", "a", -1), ("a", "a", MAX_RECIPIENTS + 1)],
    )  # fmt: skip
    def test_what_would_not_fit_into_a_url_is_no_token(self, fields: tuple[str, str, int]) -> None:
        with pytest.raises(ValueError, match="callback token"):
            CallbackToken(*fields)


class TestReading:
    @given(TOKENS, st.text(min_size=1, max_size=30), SECRETS)
    def test_what_was_made_is_read(self, token: CallbackToken, conn_id: str, secret: str) -> None:
        assume(conn_id.isprintable())
        assert verify_token(conn_id, made(token, conn_id, secret), (secret,)) == token

    @given(st.text(max_size=300))
    def test_anything_else_is_refused(self, text: str) -> None:
        refused(text)

    @given(st.integers(0, len(made()) - 1), st.characters(codec="ascii"))
    def test_one_changed_character_is_enough(self, place: int, letter: str) -> None:
        assume(made()[place] != letter)
        refused(made()[:place] + letter + made()[place + 1 :])

    @given(st.integers(0, len(made()) - 1))
    def test_a_truncated_one_is_refused(self, length: int) -> None:
        refused(made()[:length])

    @pytest.mark.parametrize("more", ["=", "A", "\n", " ", "%00", ".", "\u0660"])
    def test_so_is_one_with_more_at_its_end(self, more: str) -> None:
        refused(made() + more)

    def test_the_last_character_s_spare_bits_are_no_second_form(self) -> None:
        """32 bytes leave two bits of the 43rd character open: only one of the four readings is ours."""
        others = [made()[:-1] + letter for letter in string.ascii_letters + string.digits + "-_"]
        read = [text for text in others if accepted(text)]
        assert read == [made()]

    @given(TOKENS)
    def test_one_signed_with_another_secret_is_refused(self, token: CallbackToken) -> None:
        refused(made(token, secret="somebody else's"))

    def test_one_of_another_connection_is_refused(self) -> None:
        refused(made(conn_id="cpaas_other"))

    @pytest.mark.parametrize(
        "token",
        [CallbackToken("cpaas-spring-7", "cpaas-spring", 500), CallbackToken("cpaas-spring", "cpaas-spring-7", 5000),
         CallbackToken("cpaas-spring", "cpaas-spring-75", 500), CallbackToken("cpaas-sprin", "gcpaas-spring-7", 500)],
    )  # fmt: skip
    def test_its_proof_proves_no_other_fields(self, token: CallbackToken) -> None:
        proof = made().rpartition(".")[2]
        refused(f"{token.campaign}.{token.reference}.{token.recipients}.{proof}")

    def test_fields_do_not_run_into_the_connection_s_id(self) -> None:
        refused(made(CallbackToken("a", "b", 1), conn_id="xa"), conn_id="x")
        assert made(CallbackToken("ab", "c", 1), conn_id="x") != made(CallbackToken("b", "c", 1), conn_id="xa")

    @pytest.mark.parametrize("count", ["0500", "+500", "5_00", "500000", "1e2", "\u0665", ""])
    def test_a_count_has_one_way_to_be_written(self, count: str) -> None:
        refused(made().replace(".500.", f".{count}."))

    def test_huge_ones_are_refused(self) -> None:
        refused("a" * 1_000_000)
        refused(".".join("a" * 90 for _ in range(10_000)))


class TestAge:
    def test_it_says_when_it_was_made(self) -> None:
        assert verify_token("cpaas_default", made(), ("secret",)).issued == ISSUED
        begun = datetime.now(UTC).replace(microsecond=0)
        fresh = verify_token("cpaas_default", made(CallbackToken("a", "b", 1)), ("secret",))
        assert fresh.issued is not None
        assert begun <= fresh.issued <= datetime.now(UTC)

    def test_nobody_can_make_it_younger(self) -> None:
        issued = str(int(ISSUED.timestamp()))
        refused(made().replace(issued, str(int(issued) + 1)))
        refused(made().replace(f".{issued}", ""))

    def test_it_expires(self) -> None:
        old = CallbackToken("a", "b", 1, datetime.now(UTC) - timedelta(days=90, seconds=1))
        assert old.expired(timedelta(days=90))
        assert not old.expired(timedelta(days=91))
        assert not CallbackToken("a", "b", 1).expired(timedelta(days=1))


class TestRotation:
    def test_the_first_secret_signs_and_all_verify(self) -> None:
        for secret in ("newest", "older", "oldest"):
            assert verify_token("cpaas_default", made(secret=secret), ("newest", "older", "oldest")) == TOKEN

    def test_a_secret_that_is_no_longer_listed_verifies_nothing(self) -> None:
        refused(made(secret="oldest"), secrets=("newest", "older"))

    @pytest.mark.parametrize("secrets", [(), ("",), ("", "")])
    def test_without_a_secret_nothing_is_ours(self, secrets: tuple[str, ...]) -> None:
        refused(made(), secrets=secrets)

    def test_the_refusal_does_not_say_which_part_was_wrong(self) -> None:
        said = {
            str(refused(text)) for text in ("", made()[:-1], made(secret="other"), made(conn_id="other"), "a.b.1.c")
        }
        assert len(said) == 1


def refused(text: str, conn_id: str = "cpaas_default", secrets: Any = ("secret",)) -> InvalidTokenError:
    with pytest.raises(InvalidTokenError) as refusal:
        verify_token(conn_id, text, secrets)
    return refusal.value


def accepted(text: str) -> bool:
    try:
        return verify_token("cpaas_default", text, ("secret",)) == TOKEN
    except InvalidTokenError:
        return False
