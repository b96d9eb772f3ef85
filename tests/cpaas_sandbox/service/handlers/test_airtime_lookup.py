"""Airtime on the clock, and look-ups with stable answers."""

from __future__ import annotations

import re
from typing import Any

import pytest

from cpaas_sandbox.service.handlers.lookup import answer_for
from tests.cpaas_sandbox.conftest import ADA, BAYO, Harness


def buy(sandbox: Harness, **more: Any) -> dict[str, Any]:
    return dict(sandbox.ok("POST", "/airtime/buy", {"network": "MTN", "amount": 100, "recipient": ADA} | more))


def state(sandbox: Harness, purchase: dict[str, Any]) -> str:
    found = [item for item in sandbox.inbox("airtime") if item["id"] == purchase["id"]]
    return str(found[0]["status"])


def test_purchase_record_has_every_field(frozen: Harness) -> None:
    frozen.control("PUT", "balance", {"balance": 500})
    purchase = buy(frozen, external_ref="gift-1", callback="http://127.0.0.1:9/")
    assert re.match(r".*T.*\.\d{6}\+00:00\Z", purchase.pop("created_datetime"))
    assert isinstance(purchase.pop("id"), str)
    charge = {"amount": 100.0, "available_balance": 400.0, "balance_before": 500.0, "refunded": False}
    assert purchase == {
        "recipient": ADA,
        "network": "MTN",
        "status": "pending",
        "external_ref": "gift-1",
        "callback": "http://127.0.0.1:9/",
        "meta": {"method": "POST", "resource": "/airtime/buy", "charge": charge},
    }


def test_pending_sent_success(frozen: Harness) -> None:
    purchase = buy(frozen)
    assert state(frozen, purchase) == "pending"
    frozen.control("POST", "clock/advance", {"seconds": 1})
    assert state(frozen, purchase) == "sent"
    frozen.control("POST", "clock/advance", {"seconds": 1})
    assert state(frozen, purchase) == "success"
    assert frozen.counters()["airtime"]["success"] == 1


@pytest.mark.parametrize("outcome", ["failed", "error"])
def test_failed_purchase_is_refunded(frozen: Harness, outcome: str) -> None:
    frozen.control("PUT", "balance", {"balance": 500})
    frozen.control("POST", "seed", {"outcomes": {"airtime": {ADA: outcome}}})
    purchase = buy(frozen)
    assert frozen.counters()["balance"] == 400
    frozen.control("POST", "clock/advance", {"seconds": 60})
    assert state(frozen, purchase) == outcome
    counters = frozen.counters()
    assert (counters["balance"], counters["charged"], counters["airtime"]["refunded"]) == (500, 0, 1)
    assert frozen.inbox("airtime")[0]["refunded"] is True
    assert buy(frozen)["status"] == "pending"  # a failure guards nothing


def test_equal_purchase_within_five_minutes_is_a_duplicate(frozen: Harness) -> None:
    buy(frozen)
    duplicate = buy(frozen, network="Glo")
    assert duplicate["status"] == "duplicate"
    assert duplicate["meta"]["charge"]["amount"] == 0
    assert [buy(frozen, amount=101)["status"], buy(frozen, recipient=BAYO)["status"]] == ["pending", "pending"]
    frozen.control("POST", "clock/advance", {"seconds": 299})
    assert buy(frozen)["status"] == "duplicate"
    frozen.control("POST", "clock/advance", {"seconds": 1})
    assert buy(frozen)["status"] == "pending"
    counters = frozen.counters()
    assert (counters["airtime"]["purchases"], counters["airtime"]["duplicates"]) == (4, 2)
    assert counters["charged"] == 401


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"amount": 49.9999}, {"amount": "greater_than_equal"}),
        ({"amount": 500_001}, {"amount": "less_than_equal"}),
        ({"amount": "100"}, {"amount": "number_type"}),
        ({"network": "mtn"}, {"network": "enum"}),
        ({"recipient": "+2348030000001"}, {"recipient": "string_pattern_mismatch"}),
    ],
)
def test_invalid_purchase_is_refused(sandbox: Harness, change: dict[str, Any], found: dict[str, str]) -> None:
    request = {"network": "MTN", "amount": 100, "recipient": ADA} | change
    assert sandbox.refused(400, "POST", "/airtime/buy", request) == found


def test_airtime_without_money(sandbox: Harness) -> None:
    sandbox.control("PUT", "balance", {"balance": 99.99})
    request = {"network": "NTEL", "amount": 100, "recipient": ADA}
    assert sandbox.refused(402, "POST", "/airtime/buy", request) == {"balance": "insufficient_balance"}
    assert sandbox.counters()["airtime"]["purchases"] == 0


def test_lookup_is_stable_and_charged(sandbox: Harness) -> None:
    first = sandbox.ok("GET", "/lookup/phone", {"phone": ADA})
    assert set(first) == {"msisdn", "operator", "country", "ported", "dnd"}
    assert (first["msisdn"], first["country"]) == (ADA, "NG")
    assert sandbox.ok("GET", "/lookup/phone", {"phone": ADA}) == first == answer_for(ADA)
    counters = sandbox.counters()
    assert (counters["lookups"], counters["charged"]) == (2, 4.0)
    assert sandbox.inbox("lookups", recipient=ADA)[0]["answer"] == first


def test_about_eight_in_a_hundred_want_no_messages() -> None:
    answers = [answer_for(str(2348030000000 + n)) for n in range(4000)]
    assert 0.06 < sum(answer["dnd"] for answer in answers) / 4000 < 0.10
    assert len({answer["operator"] for answer in answers}) == 4


@pytest.mark.parametrize(("phone", "country"), [("447400123456", "GB"), ("14155552671", "US"), ("9991234567", None)])
def test_country_of_a_lookup_is_that_of_the_number(phone: str, country: str | None) -> None:
    assert answer_for(phone).get("country") == country


def test_seeded_lookup_precedes_the_derived_one(sandbox: Harness) -> None:
    derived = answer_for(ADA)
    sandbox.control("POST", "seed", {"lookups": [{"phone": ADA, "dnd": not derived["dnd"], "operator": "Moon"}]})
    found = sandbox.ok("GET", "/lookup/phone", {"phone": ADA})
    assert found == derived | {"dnd": not derived["dnd"], "operator": "Moon"}


def test_seeded_null_leaves_the_field_out_of_the_lookup(sandbox: Harness) -> None:
    unknown = {"operator": None, "country": None, "dnd": None}
    sandbox.control("POST", "seed", {"lookups": [{"phone": ADA, **unknown}]})
    found = sandbox.ok("GET", "/lookup/phone", {"phone": ADA})
    assert found == {name: value for name, value in answer_for(ADA).items() if name not in unknown}


def test_invalid_lookup_is_refused(sandbox: Harness) -> None:
    assert set(sandbox.refused(400, "GET", "/lookup/phone", {"phone": "0803"})) == {"phone"}
    assert sandbox.refused(400, "GET", "/lookup/phone", {}) == {"phone": "missing"}
    assert sandbox.refused(400, "GET", "/lookup/phone") == {"phone": "missing"}
