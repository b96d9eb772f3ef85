"""A rejection needs proof: whatever else a body speaks of leaves a request unknown that must not be made twice."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cpaas_provider.api import errors
from cpaas_provider.api.endpoints import BUY_AIRTIME, REQUEST_OTP, SEND_EMAIL, SEND_SMS, VERIFY_OTP, Endpoint
from cpaas_provider.api.http.wire import HttpResponse
from cpaas_provider.api.models.airtime import PurchaseOutcome
from cpaas_provider.api.responses.parsing import parse_response
from cpaas_provider.api.responses.statements import find_statements_in_text
from cpaas_provider.api.responses.wording import speaks_of_acceptance

ADA, BOB, EVE = "2348031234567", "2348031234568", "2348031234569"
SMS = {"recipients": f"{ADA},{BOB},{EVE}", "sender_id": "Clinic", "content": "Your order was sent"}
ITEM = {"field": "recipients", "message": "is not valid", "type": "invalid"}
DOCUMENTED = {"status": 200, "message": "Bad request", "errors": [ITEM]}
DEAD_IDS = [
    0,
    -1,
    -0.5,
    False,
    None,
    "",
    " ",
    "\u200b",
    "\n",
    "0",
    "-1",
    "null",
    "None",
    "NaN",
    "undefined",
    "n/a",
    "-",
]


def parse(body: Any, status: int = 200, endpoint: Endpoint[Any] = SEND_SMS) -> Any:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return parse_response(endpoint, HttpResponse(status, None, content), (), SMS)


def error_of(body: Any, status: int = 200, endpoint: Endpoint[Any] = SEND_SMS) -> errors.CpaasError:
    with pytest.raises(errors.CpaasError) as caught:
        parse(body, status, endpoint)
    return caught.value


def assert_unknown(error: errors.CpaasError) -> None:
    assert isinstance(error, errors.CpaasUnknownOutcomeError)
    assert (error.maybe_sent, error.retryable) == (True, False)


@pytest.mark.parametrize("endpoint", [SEND_SMS, SEND_EMAIL, REQUEST_OTP, BUY_AIRTIME])
def test_documented_error_alone_is_a_rejection(endpoint: Endpoint[Any]) -> None:
    assert isinstance(error_of(DOCUMENTED, endpoint=endpoint), errors.CpaasRejectedError)


@pytest.mark.parametrize("field", ["recipients.3", "body.recipients[3]", "/recipients/3", "Sender_ID", "to", "content"])
def test_item_may_name_a_field_of_the_request_in_any_way(field: str) -> None:
    assert isinstance(error_of({**DOCUMENTED, "errors": [{**ITEM, "field": field}]}), errors.CpaasRejectedError)


@pytest.mark.parametrize(
    "body",
    [
        {"message": "Gateway timeout", "errors": ["upstream timed out"]},
        {"message": "Bad request", "errors": ["no such recipient"]},
        *(
            {"message": "Bad request", "errors": errors}
            for errors in ([None], [{}], [[]], [ITEM, None], {}, "bad", True)
        ),
        {"message": "Bad request", "errors": [{"code": 504}]},
        {"message": "Bad request", "errors": [{**ITEM, "code": 504}]},
        {"message": "Bad request", "errors": [{**ITEM, "status": "503"}]},
        {"message": "Bad request", "errors": [{"message": "is not valid"}]},
        {"message": "Bad request", "errors": [{**ITEM, "field": "row_id"}]},
        {"message": "Bad request", "errors": [{**ITEM, "field": None}]},
        {"message": "Bad request", "errors": {"recipients": ["is not valid"]}},
        {"message": "", "errors": [ITEM]},
        {"message": ["Bad request"], "errors": [ITEM]},
        {"errors": [ITEM]},
        # GraphQL, JSON:API, problem details.
        {"data": None, "errors": [{"message": "Bad", "path": ["sendSms"], "extensions": {"code": "BAD_INPUT"}}]},
        {"errors": [{"id": "e-1", "status": "422", "title": "Bad", "source": {"pointer": "/data/recipients"}}]},
        {"type": "about:blank", "title": "Bad", "status": 422, "detail": "no such recipient"},
        {"status": 460, "message": "The client closed the connection"},
        {"status": 499, "message": "The client closed the connection"},
        {"status": 408, "message": "Too slow"},
        [],
        ["bad"],
        "bad",
    ],
)
def test_success_without_the_documented_error_is_unknown(body: Any) -> None:
    assert_unknown(error_of(body))


SPEAKING = [
    {"message": "3 messages queued, 1 is not valid"},
    {"message": "Accepted for delivery"},
    {"message": "Not all messages were sent"},
    {"message": "The messages were not only accepted"},
    {"code": "MESSAGE_QUEUED"},
    {"code": 202},
    {"error": "partially accepted"},
    {"id": "m-1"},
    {"id": 17},
    {"id": "x" * 70_000},
    {"id": {"value": "m-1"}},
    {"message_id": "m-1"},
    {"messageIds": ["m-1"]},
    {"accepted": [ADA]},
    {"sent": {"ids": [1]}},
    {"accepted": 2},
    {"success": True},
    {"success": "yes"},
    {"data": {"results": [{"to": ADA, "status": "sent"}]}},
    {"data": {"a": {"b": {"c": {"d": {"e": {"f": {"id": 5}}}}}}}},
    {"errors": [{**ITEM, "id": "m-1"}]},
    {"errors": [{**ITEM, "accepted": [ADA]}]},
    {"errors": [{**ITEM, "message": f"{ADA} was queued"}]},
    {"message": "1 of 3 messages could not be sent"},
    {"message": "We could not deliver to 1 of the recipients"},
    {"data": {"state": "received"}},
    {"data": {"status": "ENROUTE"}},
    {"detail": '{"message_id": "m-1"}'},
]
FAILING = [
    {"message": "upstream timed out"},
    {"message": "Gateway Time-out"},
    {"message": "HTTP 503"},
    {"message": "502 Bad Gateway"},
    {"message": "InternalServerError"},
    {"code": 504},
    {"code": "504"},
    {"errors": [{**ITEM, "status": 503}]},
    {"errors": [{**ITEM, "type": "upstream_timeout"}]},
    {"detail": {"http_status": 499}},
    {"message": "ECONNRESET"},
    {"message": "rpc error: DeadlineExceeded"},
    {"code": "E503"},
]


@pytest.mark.parametrize("line", [200, 400, 404, 422])
@pytest.mark.parametrize("beside", [*SPEAKING, *FAILING])
def test_error_that_speaks_of_more_is_unknown(beside: dict[str, Any], line: int) -> None:
    if line == 200 and beside.get("id") in ("m-1", 17):
        assert parse({**DOCUMENTED, **beside}).id == str(beside["id"])
        return
    assert_unknown(error_of({**DOCUMENTED, **beside}, line))
    assert_unknown(error_of({"status": 400, "message": "Bad request", **beside}, line))


@pytest.mark.parametrize("line", [460, 499, 408])
def test_status_lines_of_a_closed_connection_are_unknown(line: int) -> None:
    assert_unknown(error_of(DOCUMENTED, line))


def test_id_that_an_object_has_twice_counts() -> None:
    assert_unknown(error_of(b'{"id": "m-1", "status": 400, "message": "Bad request", "id": null}'))


def test_response_that_is_cut_off_proves_no_rejection() -> None:
    response = HttpResponse(400, None, b'{"message": "Bad', "the connection broke")
    with pytest.raises(errors.CpaasUnknownOutcomeError):
        parse_response(SEND_SMS, response, (), SMS)


@pytest.mark.parametrize(
    "beside",
    [
        *({"id": dead} for dead in DEAD_IDS),
        {"accepted": 0, "success": False, "sent": [], "ids": [], "data": {"messages": [], "message_id": None}},
        {"message": "The message was not sent"},
        {"message": "None of the 3 recipients were accepted"},
        {"message": "0 of 3 messages accepted"},
        {"message": "Your request could not be processed"},
        {"message": "The sender must be created first"},
        {"message": "Nothing was queued: the recipient wasn't accepted"},
        {"message": "accepted values are sms and whatsapp"},
        {"message": "Unsuccessful, success: false"},
        {"message": "at most 500 recipients"},
        {"message": "0 of 3 messages could be sent"},
        {"message": "3 of 3 messages could not be sent"},
        {"message": "1 of 3 recipients is not valid"},
        {"errors": [{**ITEM, "field": "content", "message": "is too long"}]},
    ],
)
def test_rejection_stays_beside_neutral_fields(beside: dict[str, Any]) -> None:
    assert isinstance(error_of({**DOCUMENTED, **beside}), errors.CpaasRejectedError)
    assert isinstance(error_of({**DOCUMENTED, **beside}, 400), errors.CpaasRejectedError)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no such sender",
        b"<html><body>Not found</body></html>",
        {"message": "Bad request", "request_id": "r-1", "trace_id": "t-1"},
        {"message": "Bad request", "content": SMS["content"], "sender_id": "Clinic"},
        {"detail": [{"loc": ["body", "recipients"], "msg": "field required", "type": "value_error.missing"}]},
    ],
)
def test_4xx_without_a_sign_of_acceptance_is_a_rejection(body: Any) -> None:
    assert isinstance(error_of(body, 400), errors.CpaasRejectedError)


@pytest.mark.parametrize("body", [b"3 messages queued", b'{"message_id": "m-1', b"<h1>504 Gateway Time-out</h1>"])
def test_4xx_that_is_no_json_is_searched_as_text(body: bytes) -> None:
    assert_unknown(error_of(body, 400))


def test_id_that_the_request_named_is_no_proof() -> None:
    response = HttpResponse(404, None, json.dumps({"id": "otp-1", "message": "No such code"}).encode())
    with pytest.raises(errors.CpaasNotVerifiedError):
        parse_response(VERIFY_OTP, response, (), {"id": "otp-1", "token": "4711"})


@pytest.mark.parametrize("dead", [*DEAD_IDS, True, float("inf"), float("nan"), "x" * 101, [], {}, ["m-1"], {"id": 1}])
def test_meaningless_id_is_no_acceptance(dead: Any) -> None:
    assert_unknown(error_of({"id": dead, "recipients": [ADA]}))
    assert_unknown(error_of({"data": {"id": dead, "recipients": [ADA]}}))


@pytest.mark.parametrize(
    ("given", "read"), [("m-1", "m-1"), (" m-1\n", "m-1"), (17, "17"), (17.0, "17"), ("x" * 100, "x" * 100)]
)
def test_id_that_means_something_is_an_acceptance(given: Any, read: str) -> None:
    assert parse({"id": given, "status": 500, "message": "Gateway timeout", "errors": [ITEM]}).id == read


def named(*items: Any) -> dict[str, Any]:
    return {"id": "m-1", "errors": list(items)}


@pytest.mark.parametrize(
    ("items", "rejected"),
    [
        ([{"field": "recipients", "message": f"{BOB} is not valid"}], (BOB,)),
        ([{"field": "recipients", "message": f"+{BOB}", "type": "invalid_recipient"}], (BOB,)),
        (
            [{"field": "to", "message": f"{BOB} is blocked"}, {"field": "to", "message": f"{EVE} is blocked"}],
            (BOB, EVE),
        ),
        ([{"field": f"recipients.{BOB}", "message": "is not valid"}], (BOB,)),
        ([{"field": "recipients.1", "message": f"{BOB} is not valid"}], (BOB,)),
        ([{"field": "recipients.0", "message": "is not valid"}], (ADA,)),
        (
            [{"field": "recipients.0", "message": "is not valid"}, {"field": "recipients.2", "type": "invalid"}],
            (ADA, EVE),
        ),
        # Counted from 0 or from 1.
        ([{"field": "recipients.1", "message": "is not valid"}], ()),
        ([{"field": "recipients.3", "message": "is not valid"}], ()),
        ([{"field": "recipients", "message": f"{BOB} and {EVE} are not valid"}], ()),
        ([{"field": "recipients", "message": f"{ADA} was accepted, {BOB} is not valid"}], ()),
        ([{"field": "recipients", "message": f"{BOB} is not the same as {EVE}"}], ()),
        ([{"field": "recipients", "message": f"{BOB} may be unreachable"}], ()),
        ([{"field": "recipients", "message": f"{BOB} is on a slow route", "type": "warning"}], ()),
        ([{"field": "recipients", "message": f"{BOB} is not valid", "type": "warning"}], ()),
        ([{"field": "recipients", "message": f"{BOB} will get it later"}], ()),
        ([{"field": "recipients", "message": f"{BOB}"}], ()),
        ([{"field": "recipients", "message": f"{BOB} is not valid", "severity": "low"}], ()),
        ([{"field": "recipients", "message": f"{BOB} is not valid", "id": "m-2"}], ()),
        ([{"message": f"{BOB} is not valid"}], ()),
        ([{"field": "content", "message": f"{BOB} is not valid"}], ()),
        ([f"{BOB} is not valid"], ()),
        ([{"field": "to", "message": f"{BOB} is blocked"}, {"field": "to", "message": f"{BOB} was queued"}], ()),
    ],
)
def test_recipient_of_an_accepted_request_is_rejected_only_by_an_item_about_him_alone(
    items: list[Any], rejected: tuple[str, ...]
) -> None:
    message = parse(named(*items))
    assert message.rejected_recipients == rejected
    assert message.rejection, "the text is shown in any case"


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        *((word, PurchaseOutcome.BOUGHT) for word in ("pending", "sent", "success", "SUCCESS ", None)),
        *((word, PurchaseOutcome.FAILED) for word in ("failed", "FAILED ", "error", {"text": "failed"})),
        *((word, PurchaseOutcome.UNKNOWN) for word in ("declined", "reversed", "cancelled", "", 5, True, [], {"a": 1})),
        ("Duplicate", PurchaseOutcome.DUPLICATE),
    ],
)
def test_purchase_is_bought_or_failed_only_by_statuses_of_the_contract(status: Any, outcome: PurchaseOutcome) -> None:
    assert parse({"id": "a-1", "status": status}, endpoint=BUY_AIRTIME).outcome is outcome


@pytest.mark.parametrize(
    "beside",
    [
        {"refunded": True},
        {"refunded": "true"},
        {"meta": {"charge": {"refunded": True}}},
        {"data": {"status": "failed"}},
        {"data": [{"status": "declined"}]},
        {"data": {"state": "duplicate"}},
    ],
)
def test_purchase_with_a_contradictory_response_is_unknown(beside: dict[str, Any]) -> None:
    assert_unknown(error_of({"id": "a-1", "status": "success", **beside}, endpoint=BUY_AIRTIME))


def test_status_within_an_error_is_not_that_of_a_purchase() -> None:
    body = {"id": "a-1", "status": "pending", "errors": [{"field": "callback", "status": "failed"}]}
    assert parse(body, endpoint=BUY_AIRTIME).outcome is PurchaseOutcome.BOUGHT


def test_envelope_of_a_failed_purchase_may_speak_of_success() -> None:
    body = {"status": "success", "data": {"id": "a-1", "status": "failed"}}
    assert parse(body, endpoint=BUY_AIRTIME).outcome is PurchaseOutcome.FAILED
    assert_unknown(error_of({"status": "failed", "data": {"id": "a-1", "status": "sent"}}, endpoint=BUY_AIRTIME))


@pytest.mark.parametrize("beside", [{"state": "success"}, {"items": [{"status": "sent"}]}])
def test_envelope_whose_failed_purchase_speaks_of_success_is_unknown(beside: dict[str, Any]) -> None:
    body = {"status": "success", "data": {"id": "a-1", "status": "failed", **beside}}
    assert_unknown(error_of(body, endpoint=BUY_AIRTIME))


@pytest.mark.parametrize("text", ["not yet sent", "not only accepted", "failed after 3 were sent", "will be delivered"])
def test_sentences_that_speak_of_an_acceptance(text: str) -> None:
    assert speaks_of_acceptance(text)


@pytest.mark.parametrize(
    "unit", ["sent ", "not ", "n't be sent", "accepted = false ", "<", "<b", '"id" : ', "_", "aA", "5"]
)
def test_search_takes_time_in_proportion_to_the_length(unit: str) -> None:
    find_statements_in_text(unit * (300_000 // len(unit)))


@pytest.mark.parametrize(
    ("recipients", "unnamed"),
    [
        (None, 0),
        ([], 0),
        ([ADA, BOB, EVE], 0),
        (f"+{ADA}, +{BOB}, +{EVE}", 0),
        (["0803 123 4567", "08031234568", "234-803-123-4569"], 0),
        (["2348****4567", BOB], 0),
        (3, 0),
        (["rcp_12345"], 0),
        ([""], 0),
        (["a***@example.com"], 0),
        ([ADA], 2),
        ([ADA, "2348030000000"], 2),
    ],
)
def test_recipients_that_a_response_leaves_out_are_accepted_and_shown(recipients: Any, unnamed: int) -> None:
    message = parse({"id": "m-1", "recipients": recipients})
    assert message.rejected_recipients == ()
    assert (message.rejection or "").count(f"does not name {unnamed} recipients") == bool(unnamed)


def test_response_to_other_recipients_or_another_reference_is_unknown() -> None:
    assert_unknown(error_of({"id": "m-1", "recipients": ["2348030000000", "2348030000001"]}))
    response = HttpResponse(200, None, json.dumps({"id": "m-1", "external_ref": "r-2"}).encode())
    with pytest.raises(errors.CpaasUnknownOutcomeError):
        parse_response(SEND_SMS, response, (), {**SMS, "external_ref": "r-1"})


def test_recipient_named_by_index_beside_another_address_counts_as_accepted() -> None:
    request = {"recipients": "ada@example.org,bob@example.org", "sender_id": "us@example.org", "content": "Hello"}
    items = [
        {"field": "recipients[0]", "message": "is not valid", "type": "invalid"},
        {"field": "recipients[1]", "message": "+bob@example.org: unknown address", "type": "invalid"},
    ]
    content = json.dumps({"id": "email-1", "message": "Some are invalid", "errors": items}).encode()
    message = parse_response(SEND_EMAIL, HttpResponse(200, None, content), (), request)
    assert message.rejected_recipients == ("ada@example.org",)
