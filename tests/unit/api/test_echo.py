"""An answer counts only for its question: what it repeats of the request is compared."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cpaas_provider.api import endpoints
from cpaas_provider.api.core import Call
from cpaas_provider.api.endpoints import Endpoint
from cpaas_provider.api.errors import CpaasUnknownOutcomeError
from cpaas_provider.api.http.wire import HttpResponse
from cpaas_provider.api.responses.parsing import parse_response
from cpaas_provider.api.settings import ClientSettings
from tests.unit.api.conftest import ENDPOINTS, KEY

ADA, BOB = "2348031234567", "2348031234568"
WHEN = "2024-03-01T10:20:30.5+01:00"
OTP = {"id": "otp-1", "recipient": ADA, "status": 1, "status_desc": "SENT", "created_datetime": WHEN}
ROW = {"row": {"id": "row-1", "columns": {"a": "b"}}}
SMS = {"id": "sms-1", "recipients": [ADA], "sender_id": "Clinic"}
REFERENCED = {"recipients": [ADA], "sender_id": "Clinic", "content": "Hello", "external_ref": "order-7"}
PURCHASE = {"network": "MTN", "amount": 60, "recipient": f"+{ADA}", "external_ref": "order-7"}
LOOKUP = {"msisdn": ADA, "dnd": False}

ARGUMENTS: dict[str, dict[str, Any]] = {
    "lookup_phone": {"phone": f"+{ADA}"},
    "request_otp": {"recipient": f"+{ADA}"},
    "find_otps": {"recipient": f"+{ADA}"},
    "get_otp": {"id": "otp-1"},
    "verify_otp": {"id": "otp-1", "token": "471199"},
    "get_contact_row": {"row_id": "row-1"},
    "update_contact_row": {"row_id": "row-1", "columns": {"a": "b"}},
    "send_sms": REFERENCED,
    "send_email": {**REFERENCED, "recipients": ["ada@example.com"], "sender_id": "us@example.com"},
    "buy_airtime": PURCHASE,
}
BY_NAME = {endpoint.operation: endpoint for endpoint in ENDPOINTS}


def answered(operation: str, body: Any, arguments: dict[str, Any] | None = None) -> Any:
    endpoint: Endpoint[Any] = BY_NAME[operation]
    settings = ClientSettings("https://cpaas.example.com", KEY)
    _, fields = Call(endpoint, arguments or ARGUMENTS[operation]).build(settings)
    return parse_response(endpoint, HttpResponse(200, None, json.dumps(body).encode()), (), fields)


ANOTHERS: list[tuple[str, Any]] = [
    ("lookup_phone", LOOKUP | {"msisdn": BOB}),
    ("lookup_phone", LOOKUP | {"msisdn": ""}),
    ("lookup_phone", LOOKUP | {"msisdn": "unknown"}),
    ("lookup_phone", LOOKUP | {"msisdn": "08031234568"}),
    ("lookup_phone", LOOKUP | {"msisdn": "234803*****67"}),
    ("lookup_phone", {"status": 200, "type": "success", "message": "found", "data": LOOKUP | {"msisdn": BOB}}),
    ("request_otp", OTP | {"recipient": BOB}),
    ("request_otp", OTP | {"recipient": "*********68"}),
    ("find_otps", [OTP | {"recipient": BOB}]),
    ("find_otps", [OTP, OTP | {"id": "otp-2", "recipient": BOB}]),
    ("get_otp", OTP | {"id": "otp-2"}),
    ("get_otp", OTP | {"id": "OTP-1"}),
    ("verify_otp", OTP | {"id": "Otp-1", "status_desc": "VERIFIED"}),
    ("get_contact_row", {"row": ROW["row"] | {"id": "ROW-1"}}),
    ("verify_otp", OTP | {"id": "otp-2", "status_desc": "VERIFIED"}),
    ("get_contact_row", {"row": ROW["row"] | {"id": "row-2"}}),
    ("update_contact_row", {"row": ROW["row"] | {"id": "row-2"}}),
    ("send_sms", SMS | {"external_ref": "order-8"}),
    ("send_sms", {"status": 200, "data": SMS | {"external_ref": "order-7"}, "external_ref": "order-8"}),
    ("send_sms", {"status": 200, "data": SMS, "external_ref": "order-8"}),
    ("send_sms", SMS | {"external_ref": "order-7", "data": {"external_ref": "order-8"}}),
    ("send_email", SMS | {"external_ref": "order-8"}),
    ("buy_airtime", {"id": "air-1", "status": "pending", "recipient": BOB}),
    ("buy_airtime", {"id": "air-1", "status": "pending", "recipient": ADA, "network": "Glo"}),
    ("buy_airtime", {"id": "air-1", "status": "pending", "recipient": ADA, "external_ref": "order-8"}),
]


@pytest.mark.parametrize(("operation", "body"), ANOTHERS)
def test_answer_to_another_request_is_unknown(operation: str, body: Any) -> None:
    with pytest.raises(CpaasUnknownOutcomeError) as caught:
        answered(operation, body)
    assert "the response belongs to another request: it names another " in str(caught.value)
    for private in (ADA, BOB, "order-7", "order-8", "otp-2", "row-2"):
        assert private not in str(caught.value)


@pytest.mark.parametrize(
    ("operation", "body"),
    [
        ("lookup_phone", LOOKUP),
        *(("lookup_phone", LOOKUP | {"msisdn": form}) for form in (f"+{ADA}", f"00{ADA}", "+234 803 123 4567")),
        *(("lookup_phone", LOOKUP | {"msisdn": form}) for form in ("0803-123-4567", int(ADA), float(ADA), f" {ADA} ")),
        ("request_otp", OTP),
        ("request_otp", OTP | {"recipient": "234803****567"}),
        ("find_otps", []),
        ("find_otps", [OTP | {"recipient": f"+{ADA}"}, OTP]),
        ("get_otp", OTP | {"id": " otp-1 "}),
        ("verify_otp", OTP),
        ("get_contact_row", ROW),
        ("update_contact_row", ROW),
        ("send_sms", SMS),
        ("send_sms", SMS | {"external_ref": None}),
        ("send_sms", SMS | {"external_ref": "order-7"}),
        ("send_sms", {"status": 200, "data": SMS, "external_ref": " order-7"}),
        ("send_sms", {"status": 200, "data": SMS, "external_ref": "Order-7"}),
        ("send_sms", SMS | {"external_ref": "Order-7"}),
        ("send_sms", {"status": 200, "data": SMS, "external_ref": ""}),
        ("buy_airtime", {"id": "air-1", "status": "pending"}),
        ("buy_airtime", {"id": "air-1", "status": "pending", "network": "mtn"}),
        ("buy_airtime", {"id": "air-1", "status": "pending", "network": "MTN Nigeria"}),
        ("buy_airtime", {"id": "air-1", "status": "pending", "recipient": "08031234567", "external_ref": "order-7"}),
    ],
)
def test_value_in_another_notation_or_omitted_is_accepted(operation: str, body: Any) -> None:
    assert answered(operation, body) is not None


def test_id_that_is_a_number_is_that_of_the_path() -> None:
    assert answered("get_otp", OTP | {"id": 17}, {"id": "17"}).id == "17"
    with pytest.raises(CpaasUnknownOutcomeError):
        answered("get_otp", OTP | {"id": 171}, {"id": "17"})


def test_uuid_is_the_same_in_capitals() -> None:
    uuid = "0b1f9a64-5c1e-4d6e-9a35-1f2e3d4c5b6a"
    assert answered("get_otp", OTP | {"id": uuid.upper()}, {"id": uuid}).id == uuid.upper()


@pytest.mark.parametrize(
    "body",
    [
        LOOKUP | {"errors": [{"field": "phone", "message": "is unknown"}]},
        LOOKUP | {"errors": ["upstream timed out"], "message": "incomplete"},
        LOOKUP | {"error": "not found"},
        LOOKUP | {"status": 404},
        LOOKUP | {"status": "503"},
        {"status": 400, "type": "error", "message": "not found", "data": LOOKUP},
        {"status": 200, "type": "error", "message": "not found", "data": LOOKUP, "errors": [{"field": "phone"}]},
        {"status": 200, "message": "found", "data": LOOKUP | {"errors": [{"field": "phone"}]}},
    ],
)
def test_lookup_that_names_an_error_is_none_and_is_not_made_again(body: Any) -> None:
    with pytest.raises(CpaasUnknownOutcomeError) as caught:
        answered("lookup_phone", body)
    assert (caught.value.retryable, caught.value.maybe_sent) == (False, False)


@pytest.mark.parametrize(
    "body", [LOOKUP | {"errors": [], "status": 200}, {"status": 200, "type": "success", "message": "x", "data": LOOKUP}]
)
def test_lookup_beside_fields_that_name_no_error_is_one(body: Any) -> None:
    assert answered("lookup_phone", body).dnd is False


def test_every_pair_names_a_field_of_request_and_resource() -> None:
    for endpoint in ENDPOINTS:
        for echo in endpoint.echoes:
            assert echo.request in endpoint.request.model_fields
            assert endpoint.operation in ARGUMENTS
    assert {endpoint.operation for endpoint in ENDPOINTS if endpoint.echoes} == set(ARGUMENTS)


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.operation)
def test_no_request_may_be_stored_or_answered_by_a_cache(endpoint: Endpoint[Any]) -> None:
    rest: dict[str, dict[str, Any]] = {
        "revoke_otp": {"id": "otp-1"}, "delete_contact_row": {"row_id": "row-1"},
        "create_contact_row": {"columns": {"a": "b"}}, "get_contact_table": {},
    }  # fmt: skip
    arguments = (ARGUMENTS | rest)[endpoint.operation]
    request, _ = Call(endpoint, arguments).build(ClientSettings("https://cpaas.example.com", KEY))
    assert request.headers["Cache-Control"] == "no-store, no-cache"


def test_lookups_require_the_number() -> None:
    (echo,) = endpoints.LOOKUP_PHONE.echoes
    assert (echo.response, echo.request, echo.is_required) == ("msisdn", "phone", True)
