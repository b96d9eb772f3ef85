"""Rejections as services, frameworks and proxies write them: 4xx bodies that must not become unknown without need."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cpaas_provider.api import errors
from cpaas_provider.api.endpoints import SEND_SMS
from cpaas_provider.api.http.wire import HttpResponse
from cpaas_provider.api.responses.parsing import parse_response

ADA, BOB, EVE = "2348031234567", "2348031234568", "2348031234569"
SMS = {
    "channel": "sms",
    "recipients": f"{ADA},{BOB},{EVE}",
    "sender_id": "Clinic",
    "content": "Your order was sent and is in progress",
    "subject": "Order created",
    "external_ref": "cpaas-abc123def456",
    "callback": "https://cb.example.com/airflow/x",
    "personalisation": [{"to": ADA, "substitutions": {"order_id": "A-17", "status": "delivered"}}],
}
"""A request whose own words speak of an acceptance. Some services repeat them in a rejection."""
TABLE = [json.loads(line) for line in (Path(__file__).parent / "usual_rejections.jsonl").read_text().splitlines()]


def error_of(status: int, body: Any) -> errors.CpaasError:
    content = body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()
    with pytest.raises(errors.CpaasError) as caught:
        parse_response(SEND_SMS, HttpResponse(status, None, content), (), SMS)
    return caught.value


@pytest.mark.parametrize("case", TABLE, ids=[f"{number}-{case['status']}" for number, case in enumerate(TABLE)])
def test_usual_rejection_is_a_rejection(case: dict[str, Any]) -> None:
    assert isinstance(error_of(case["status"], case["body"]), errors.CpaasRejectedError)


ITEM = {"field": "recipients", "message": "is not valid", "type": "invalid"}
DOCUMENTED = {"status": 200, "message": "Bad request", "errors": [ITEM]}


@pytest.mark.parametrize(
    "beside",
    [
        # Results of single recipients.
        {"SMSMessageData": {"Recipients": [{"statusCode": 101, "number": f"+{ADA}", "cost": "NGN 2.2"}]}},
        {"results": [{"to": ADA, "code": 0}, {"to": BOB, "code": 400}]},
        {"results": [{"to": ADA, "error": None}, {"to": BOB, "error": "invalid"}]},
        {"results": {ADA: True, BOB: False}},
        {"valid_recipients": [ADA], "invalid_recipients": [BOB]},
        # A part was refused.
        {"message": "Some messages could not be sent"},
        {"message": "2 of 3 recipients failed"},
        {"message": "Some of the recipients were not reached"},
        {"message": "2 failed 1 sent"},
        {"message": "0 recipients failed 3 sent"},
        # Ids by other names.
        {"id_message": "m-1"},
        {"idEnvio": 17},
        {"messageID1": "m-1"},
        {"message_identifier": "m-1"},
        # What another server responded, quoted.
        {"message": 'Upstream wrote {"message_id": "m-1"}'},
        {"message": "<response><MessageId>17</MessageId></response>"},
        {"status": "ESME_ROK"},
        {"message": "DELIVRD"},
        {"message": "Your account was charged"},
        {"message": "We will retry"},
        # A fault of the server.
        {"message": "read ECONNRESET"},
        {"message": "connect ETIMEDOUT 10.0.0.1:443"},
        {"message": "socket hang up"},
        {"message": "context deadline exceeded"},
        {"message": "SQLSTATE[40001]"},
        {"message": "NullPointerException"},
        {"message": "Something went wrong"},
        {"message": "502"},
        {"responseCode": 504},
        {"httpstatus": "504"},
        {"error": 504},
    ],
)
@pytest.mark.parametrize("line", [200, 400])
def test_rejection_that_speaks_of_more_is_unknown(beside: dict[str, Any], line: int) -> None:
    assert isinstance(error_of(line, {**DOCUMENTED, **beside}), errors.CpaasUnknownOutcomeError)


@pytest.mark.parametrize("status", ["P", "queueing", "0x1"])
def test_success_with_a_status_that_names_no_error_is_unknown(status: str) -> None:
    assert isinstance(error_of(200, {**DOCUMENTED, "status": status}), errors.CpaasUnknownOutcomeError)
    assert isinstance(error_of(200, {**DOCUMENTED, "status": "failed"}), errors.CpaasRejectedError)


@pytest.mark.parametrize(
    "body",
    [
        "<response><MessageId>abc17</MessageId><status>failed</status></response>",
        "<sms id='17' error='bad'/>",
        "<r><m status='queued'/></r>",
        "<error><code>503</code></error>",
        "id=17&error=bad",
        "error=bad&messageid=17",
        "message_id: 17\nerror: bad\n",
        "&lt;id&gt;17&lt;/id&gt;",
        "Message accepted".encode("utf-16"),
        "<messageId>17</messageId>".encode("utf-16"),
    ],
)
def test_rejection_that_is_no_json_is_searched_for_ids_words_and_codes(body: str | bytes) -> None:
    assert isinstance(error_of(400, body), errors.CpaasUnknownOutcomeError)


@pytest.mark.parametrize(
    "message",
    [
        "Number of messages sent: 3",
        "Message body sent to the carrier",
        "You have already sent this message",
        "You have sent 3 messages",
        "Verification sent",
        "Account created and message sent",
        "2 sent, 1 is invalid",
        "the message sent was not delivered",
    ],
)
def test_rejection_with_words_of_a_success_is_unknown(message: str) -> None:
    assert isinstance(error_of(400, {"message": message}), errors.CpaasUnknownOutcomeError)


@pytest.mark.parametrize(
    ("message", "is_rejected"),
    [
        ("must be in international format", True),
        ("is not valid", True),
        ("appears twice, duplicate removed", False),
        ("failed the lookup, using MTN", False),
        ("had a wrong prefix and was corrected", False),
        ("has no error", False),
    ],
)
def test_recipient_of_an_accepted_request_is_not_rejected_by_a_correction(message: str, is_rejected: bool) -> None:
    body = {"id": "m-1", "errors": [{"field": "recipients", "message": f"{BOB} {message}"}]}
    response = HttpResponse(200, None, json.dumps(body).encode())
    assert parse_response(SEND_SMS, response, (), SMS).rejected_recipients == ((BOB,) if is_rejected else ())
