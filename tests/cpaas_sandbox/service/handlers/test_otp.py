"""The life of a one-time passcode."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cpaas_sandbox.conftest import ADA, BAYO, Harness


def requested(sandbox: Harness, **more: Any) -> tuple[str, str]:
    """Request a token; return its id and the code its recipient reads."""
    record = sandbox.ok("POST", "/otp/request_token", {"recipient": ADA} | more)
    item = sandbox.inbox("otp", limit=1)[0]
    assert item["id"] == record["id"]
    return record["id"], item["code"]


def status(sandbox: Harness, token_id: str) -> tuple[int, str]:
    record = sandbox.ok("GET", f"/otp/{token_id}")
    return record["status"], record["status_desc"]


def test_otp_record_and_message_have_every_field(sandbox: Harness) -> None:
    record = sandbox.ok("POST", "/otp/request_token", {"recipient": ADA, "channel": "whatsapp"})
    assert set(record) == {"id", "recipient", "status", "status_desc", "created_datetime"}
    assert (record["status"], record["status_desc"], record["recipient"]) == (1, "SENT", ADA)
    item = sandbox.inbox("otp")[0]
    assert (len(item["code"]), item["channel"], item["recipient"]) == (4, "whatsapp", ADA)
    assert item["code"] in item["text"]
    assert "15 minutes" in item["text"]


def test_code_is_in_no_response(sandbox: Harness) -> None:
    code = "QZX-77-SECRET"
    texts = [sandbox.call("POST", "/otp/request_token", {"recipient": ADA, "token": code}).text]
    token_id = sandbox.inbox("otp")[0]["id"]
    texts.append(sandbox.call("GET", f"/otp/{token_id}").text)
    texts.append(sandbox.call("GET", "/otp/get-by-recipient", params={"recipient": ADA}).text)
    texts.append(sandbox.call("POST", "/otp/verify", {"id": token_id, "token": "wrong"}).text)
    texts.append(sandbox.call("POST", "/otp/verify", {"id": token_id, "token": code}).text)
    texts.append(sandbox.call("DELETE", f"/otp/{token_id}").text)
    assert not [text for text in texts if code in text]


@pytest.mark.parametrize("length", [4, 5, 6, 7, 8])
def test_code_has_the_requested_length(sandbox: Harness, length: int) -> None:
    _, code = requested(sandbox, length=length)
    assert len(code) == length
    assert code.isdigit()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"length": 3}, "length"),
        ({"length": 9}, "length"),
        ({"length": 4.5}, "length"),
        ({"length": "4"}, "length"),
        ({"length": True}, "length"),
        ({"expires_in": 0}, "expires_in"),
        ({"expires_in": 61}, "expires_in"),
        ({"recipient": "+2348030000001"}, "recipient"),
        ({"channel": "email"}, "channel"),
        ({"token": ""}, "token"),
    ],
)
def test_invalid_otp_request_is_refused(sandbox: Harness, change: dict[str, Any], field: str) -> None:
    assert set(sandbox.refused(400, "POST", "/otp/request_token", {"recipient": ADA} | change)) == {field}


def test_code_is_verified_only_once(sandbox: Harness) -> None:
    token_id, code = requested(sandbox)
    record = sandbox.ok("POST", "/otp/verify", {"id": token_id, "token": code})
    assert (record["status"], record["status_desc"]) == (2, "VERIFIED")
    assert record["updated_datetime"] >= record["created_datetime"]
    assert status(sandbox, token_id) == (2, "VERIFIED")
    assert sandbox.refused(404, "POST", "/otp/verify", {"id": token_id, "token": code}) == {"token": "verified"}


def test_unknown_otp_is_not_found(sandbox: Harness) -> None:
    assert sandbox.refused(404, "POST", "/otp/verify", {"id": "x", "token": "1234"}) == {"id": "not_found"}
    assert sandbox.refused(404, "GET", "/otp/x") == {"id": "not_found"}
    assert sandbox.refused(404, "DELETE", "/otp/x") == {"id": "not_found"}


def test_too_many_wrong_codes_end_it(sandbox: Harness) -> None:
    token_id, code = requested(sandbox, token="1234")
    for _ in range(4):
        assert sandbox.refused(404, "POST", "/otp/verify", {"id": token_id, "token": "4321"}) == {
            "token": "wrong_token"
        }
    assert status(sandbox, token_id) == (1, "SENT")
    sandbox.refused(404, "POST", "/otp/verify", {"id": token_id, "token": "4321"})
    assert status(sandbox, token_id) == (4, "FAILED")
    assert sandbox.refused(404, "POST", "/otp/verify", {"id": token_id, "token": code}) == {"token": "failed"}
    counted = sandbox.counters()["otp"]
    assert (counted["wrong_attempts"], counted["failed"], counted["verified"]) == (5, 1, 0)


def test_otp_expires_by_the_clock(sandbox: Harness) -> None:
    sandbox.control("PUT", "clock", {"now": "2030-01-01T00:00:00+00:00", "frozen": True})
    token_id, code = requested(sandbox, expires_in=10)
    sandbox.control("POST", "clock/advance", {"seconds": 599})
    assert status(sandbox, token_id) == (1, "SENT")
    sandbox.control("POST", "clock/advance", {"seconds": 1})
    assert status(sandbox, token_id) == (3, "EXPIRED")
    assert sandbox.ok("GET", f"/otp/{token_id}")["updated_datetime"].startswith("2030-01-01T00:10:00.")
    assert sandbox.refused(404, "POST", "/otp/verify", {"id": token_id, "token": code}) == {"token": "expired"}


def test_revoked_otp_cannot_be_verified(sandbox: Harness) -> None:
    token_id, code = requested(sandbox)
    assert sandbox.ok("DELETE", f"/otp/{token_id}")["type"] == "success"
    assert status(sandbox, token_id) == (5, "REVOKED")
    assert sandbox.refused(404, "POST", "/otp/verify", {"id": token_id, "token": code}) == {"token": "revoked"}
    assert sandbox.call("DELETE", f"/otp/{token_id}").status_code == 200
    assert sandbox.counters()["otp"]["revoked"] == 1


def test_revoked_and_gone_where_it_is_set(sandbox: Harness) -> None:
    token_id, _ = requested(sandbox)
    sandbox.settings(revoked_otps="gone")
    sandbox.ok("DELETE", f"/otp/{token_id}")
    sandbox.refused(404, "GET", f"/otp/{token_id}")
    sandbox.refused(404, "DELETE", f"/otp/{token_id}")
    assert sandbox.ok("GET", "/otp/get-by-recipient", params={"recipient": ADA}) == []


@pytest.mark.parametrize(("setting", "status_code"), [("message", 200), ("record", 200), ("empty", 204)])
def test_response_to_an_otp_deletion_is_configurable(sandbox: Harness, setting: str, status_code: int) -> None:
    sandbox.settings(delete_body=setting)
    token_id, _ = requested(sandbox)
    answer = sandbox.call("DELETE", f"/otp/{token_id}")
    assert answer.status_code == status_code
    if setting == "record":
        assert answer.json()["status_desc"] == "REVOKED"
    elif setting == "empty":
        assert answer.content == b""


def test_sent_mode_always_returns_the_status_sent(sandbox: Harness) -> None:
    sandbox.settings(otp_status_mode="sent")
    token_id, code = requested(sandbox)
    sandbox.refused(404, "POST", "/otp/verify", {"id": token_id, "token": code + "0"})
    record = sandbox.ok("POST", "/otp/verify", {"id": token_id, "token": code})
    assert (record["status"], record["status_desc"]) == (1, "SENT")
    assert status(sandbox, token_id) == (1, "SENT")
    sandbox.refused(404, "POST", "/otp/verify", {"id": token_id, "token": code})
    other, code = requested(sandbox)
    sandbox.control("POST", "clock/advance", {"seconds": 3600})
    assert status(sandbox, other) == (1, "SENT")
    assert sandbox.refused(404, "POST", "/otp/verify", {"id": other, "token": code}) == {"token": "expired"}


def test_found_by_recipient_newest_first(sandbox: Harness) -> None:
    ids = [requested(sandbox)[0] for _ in range(3)]
    requested(sandbox, recipient=BAYO)
    found = sandbox.ok("GET", "/otp/get-by-recipient", params={"recipient": ADA})
    assert [one["id"] for one in found] == ids[::-1]
    assert {one["recipient"] for one in found} == {ADA}
    assert sandbox.ok("GET", "/otp/get-by-recipient", params={"recipient": "2348039999999"}) == []
    assert sandbox.refused(400, "GET", "/otp/get-by-recipient") == {"recipient": "missing"}
    assert set(sandbox.refused(400, "GET", "/otp/get-by-recipient", params={"recipient": "ada"})) == {"recipient"}


def test_otp_is_charged(sandbox: Harness) -> None:
    sandbox.control("PUT", "balance", {"balance": 5})
    requested(sandbox)
    sandbox.refused(402, "POST", "/otp/request_token", {"recipient": ADA})
    assert sandbox.counters()["balance"] == 1.0
    assert sandbox.counters()["otp"]["requested"] == 1


@pytest.mark.parametrize(
    ("outcome", "number", "word"),
    [("verified", 2, "VERIFIED"), ("expired", 3, "EXPIRED"), ("failed", 4, "FAILED"), ("revoked", 5, "REVOKED")],
)
def test_seeded_outcome_is_the_status_after_the_response_to_the_request(
    sandbox: Harness, outcome: str, number: int, word: str
) -> None:
    sandbox.control("POST", "seed", {"outcomes": {"otp": {ADA: outcome}}})
    record = sandbox.ok("POST", "/otp/request_token", {"recipient": ADA})
    assert (record["status"], record["status_desc"]) == (1, "SENT")
    assert "updated_datetime" not in record
    assert status(sandbox, record["id"]) == (number, word)
    assert sandbox.inbox("otp")[0]["status_desc"] == word
    other, _ = requested(sandbox, recipient=BAYO)
    assert status(sandbox, other) == (1, "SENT")


def test_outcome_that_a_passcode_cannot_have_is_refused(sandbox: Harness) -> None:
    refused = sandbox.call("POST", "/_control/seed", {"outcomes": {"otp": {ADA: "delivered"}}})
    assert refused.status_code == 400
    assert "must be one of verified, expired, failed, revoked" in refused.text
