"""Hashes that are the same in every try of a task instance, and nowhere else."""

from __future__ import annotations

import hmac
import json
import re
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpaas_provider.sending.journal.hashing import MEMBER_BYTES, VALUES_HASH_BYTES, KeyedHasher, task_identity

IDENTITY = task_identity("dag", "run", "task", -1)
PRINTS = KeyedHasher("secret", IDENTITY)
MEMBERS = [PRINTS.member_hasher("send_sms")(one) for one in ("2348030001111", "2348030002222", "2348030003333")]

OTHERS = {
    "another secret": KeyedHasher("another", IDENTITY),
    "another dag": KeyedHasher("secret", task_identity("dag2", "run", "task", -1)),
    "another run": KeyedHasher("secret", task_identity("dag", "run2", "task", -1)),
    "another task": KeyedHasher("secret", task_identity("dag", "run", "task2", -1)),
    "another map index": KeyedHasher("secret", task_identity("dag", "run", "task", 0)),
    "parts that join to the same": KeyedHasher("secret", task_identity("dagrun", "", "task", -1)),
}


def everything(hasher: KeyedHasher) -> set[str | bytes]:
    return {
        hasher.key_id,
        hasher.member_hasher("send_sms")("2348030001111"),
        hasher.body({"content": "text"}),
        hasher.reference("send_sms", MEMBERS, "n", 0),
    }


def test_hashes_are_those_of_the_standard_library() -> None:
    key = hmac.digest(b"secret", json.dumps(["journal", *IDENTITY], separators=(",", ":")).encode(), "sha256")
    assert PRINTS.values_hash('["Ada"]') == hmac.digest(key, b'words\0["Ada"]', "sha256")[:VALUES_HASH_BYTES]
    for operation, channel, recipient, known in (
        ("send_sms", "sms", "2348030001111", "2348030001111"),
        ("send_email", "email", "Ada@X.com", "ada@x.com"),
    ):
        expected = hmac.digest(key, f"member\0{operation}\0{known}".encode(), "sha256")[:MEMBER_BYTES]
        assert PRINTS.member_hasher(operation, channel)(recipient) == expected


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS.keys())
def test_hashes_differ_under_another_secret_or_identity(other: KeyedHasher) -> None:
    assert len(everything(PRINTS)) == 4
    assert not everything(PRINTS) & everything(other)


def test_hashes_are_the_same_in_the_next_try() -> None:
    assert everything(KeyedHasher("secret", task_identity("dag", "run", "task", -1))) == everything(PRINTS)


@given(st.permutations(MEMBERS))
def test_reference_does_not_depend_on_the_order_of_members(members: list[bytes]) -> None:
    assert PRINTS.reference("send_sms", members, "n", 0) == PRINTS.reference("send_sms", MEMBERS, "n", 0)


def test_reference_depends_on_members_operation_nonce_and_epoch() -> None:
    names = {
        PRINTS.reference(operation, members, nonce, resend_epoch)
        for operation in ("send_sms", "send_email")
        for members in (MEMBERS, MEMBERS[:2], MEMBERS[1:], [])
        for nonce in ("first", "second")
        for resend_epoch in (0, 1, 2)
    }
    assert len(names) == 2 * 4 * 2 * 3


def test_reference_fits_in_a_url_and_in_40_characters() -> None:
    assert re.fullmatch(r"cpaas-[a-p]{24}", PRINTS.reference("send_sms", MEMBERS, "n", 0))


def test_member_hash_depends_on_the_operation() -> None:
    assert PRINTS.member_hasher("send_sms")("2348030001111") != PRINTS.member_hasher("request_otp")("2348030001111")


def test_member_hash_depends_on_the_channel() -> None:
    by_channel = {PRINTS.member_hasher("send_sms", channel)("2348030001111") for channel in ("sms", "whatsapp")}
    assert len(by_channel) == 2


TEXTS = st.dictionaries(st.text(max_size=5), st.none() | st.text(max_size=5) | st.integers() | st.booleans())


@given(TEXTS, st.randoms())
def test_body_hash_does_not_depend_on_the_order_of_fields(fields: dict[str, object], shuffler: object) -> None:
    names = list(fields)
    shuffler.shuffle(names)  # type: ignore[attr-defined]
    assert PRINTS.body({name: fields[name] for name in names}) == PRINTS.body(fields)


@given(TEXTS, TEXTS)
def test_body_hash_depends_on_the_fields(one: dict[str, object], other: dict[str, object]) -> None:
    same = [(name, type(value), value) for name, value in sorted(one.items())] == [
        (name, type(value), value) for name, value in sorted(other.items())
    ]
    assert (PRINTS.body(one) == PRINTS.body(other)) == same


def test_body_hash_accepts_values_that_json_cannot_hold() -> None:
    at = datetime(2026, 3, 1, tzinfo=UTC)
    assert PRINTS.body({"at": at}) == PRINTS.body({"at": at})
    assert PRINTS.body({"at": at}) != PRINTS.body({"at": None})


def test_capitals_in_an_address_are_the_same_recipient() -> None:
    """As in a campaign: no mailbox tells them apart, and people write them as they like."""
    hash_of = PRINTS.member_hasher("send_email", "email")
    assert hash_of("Ada@example.com") == hash_of("ada@example.com")
