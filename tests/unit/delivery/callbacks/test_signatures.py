"""What an account webhook is signed with."""

from __future__ import annotations

import ast
import base64
import contextlib
import hashlib
import hmac
import inspect

import itsdangerous.signer
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpaas_provider.delivery.callbacks import signatures, tokens
from cpaas_provider.delivery.callbacks.signatures import sign, verify

RAW = b'{"event": "text.delivered"}'


def test_signature_is_base64_of_hmac_sha512_over_the_raw_body() -> None:
    assert sign(RAW, "secret") == base64.b64encode(hmac.new(b"secret", RAW, hashlib.sha512).digest()).decode()


@pytest.mark.parametrize("length", [2046, 2047, 2048, 4094, 4095, 10_000])
def test_long_body_is_signed_whole(length: int) -> None:
    raw = bytes(number % 251 for number in range(length))
    assert sign(raw, "secret") == base64.b64encode(hmac.digest(b"secret", raw, "sha512")).decode()
    assert not verify(raw[:-1] + b"?", sign(raw, "secret"), "secret")


def test_signature_matches_the_test_vector_of_rfc_4231() -> None:
    """RFC 4231, test case 2."""
    known = (
        "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea250554"
        "9758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737"
    )
    assert sign(b"what do ya want for nothing?", "Jefe") == base64.b64encode(bytes.fromhex(known)).decode()


@given(st.binary(max_size=1000), st.text(min_size=1).filter(str.isprintable))
def test_signature_of_a_body_verifies(raw: bytes, secret: str) -> None:
    assert verify(raw, sign(raw, secret), secret)


@given(st.binary(max_size=100), st.text())
def test_any_other_text_does_not_verify(raw: bytes, text: str) -> None:
    assert not verify(raw, text, "secret") or text.strip() == sign(raw, "secret")


@pytest.mark.parametrize("raw", [RAW + b" ", RAW[:-1], b"", RAW.replace(b" ", b"")])
def test_signature_does_not_verify_a_changed_body(raw: bytes) -> None:
    assert not verify(raw, sign(RAW, "secret"), "secret")


def test_signature_under_another_secret_does_not_verify() -> None:
    assert not verify(RAW, sign(RAW, "other"), "secret")


@pytest.mark.parametrize("signature", [None, "", " ", "ä", "\udc80", "A" * 1_000_000, sign(RAW, "secret")[:-1]])
def test_missing_or_malformed_signature_does_not_verify(signature: str | None) -> None:
    assert not verify(RAW, signature, "secret")


def test_empty_secret_verifies_nothing() -> None:
    assert not verify(RAW, sign(RAW, ""), "")


def test_webhook_signatures_are_compared_only_in_constant_time() -> None:
    tree = ast.parse(inspect.getsource(signatures))
    compared = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "compare_digest"]
    assert len(compared) == 1
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and any(isinstance(one, ast.Eq | ast.NotEq | ast.In) for one in node.ops):
            named = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
            assert not named & {"sign", "signature"}, ast.unparse(node)


@pytest.mark.parametrize(("secret", "tried"), [("newest", 1), ("oldest", 3), ("unlisted", 3)])
def test_token_signatures_are_compared_in_constant_time(
    secret: str, tried: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = []
    original = hmac.compare_digest
    monkeypatch.setattr(
        itsdangerous.signer.hmac, "compare_digest", lambda one, other: compared.append(other) or original(one, other)
    )
    text = tokens.callback_url("https://x", "c", secret, tokens.CallbackToken("a", "b", tried)).rpartition("/")[2]
    with contextlib.suppress(tokens.InvalidTokenError):
        tokens.verify_token("c", text, ("newest", "older", "oldest"))
    assert len(set(compared)) == tried
