"""What a service may have accepted is never sent again, whatever it answers: a product over all forms of an answer.

The oracle here is a second reading of PROMISES.md and contract.md, and knows nothing of the code that is tested.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from cpaas_provider.api import endpoints, errors
from cpaas_provider.api.endpoints import Endpoint, RetrySafety
from cpaas_provider.api.http.wire import HttpResponse
from cpaas_provider.api.responses.parsing import parse_response
from cpaas_provider.sending.campaign.rejections import NextStep, classify
from cpaas_provider.sending.journal.model import State

from .conftest import ENDPOINTS

ADA, WHEN = "2348031234567", "2026-03-01T10:20:30+01:00"
ABSENT = object()

LINES = (200, 201, 202, 301, 302, 303, 307, 400, 402, 404, 408, 422, 425, 429, 500, 503, 504)
BODY_STATUSES = (ABSENT, 200, 202, 400, 402, 404, 408, 425, 429, 500, 503, 504, "queued", "503")
BAD_NUMBER = [{"field": "recipients.0", "message": "is not a number", "type": "value_error"}]
ERRORS = (ABSENT, None, [], {}, BAD_NUMBER, {"recipients.0": ["is not a number"]})
TYPES = (ABSENT, "success", "queued", "sms", "error")
IDS = (ABSENT, None, "lost", "x-1", 17, {"odd": 1})
PLACES = ("bare", "data", "row", "list in data")
WAITS = (None, "5")

OTP = {"recipient": ADA, "status": 1, "status_desc": "SENT", "created_datetime": WHEN}
REST: dict[str, dict[str, Any]] = {
    "send_sms": {},
    "send_email": {},
    "buy_airtime": {"network": "MTN"},
    "request_otp": OTP,
    "create_contact_row": {"columns": {}},
}
"""What stands beside the id in a resource that is whole."""

LEFT_OVER: dict[str, dict[str, Any]] = {
    "send_sms": {"recipients": [ADA], "sender_id": "Example"},
    "send_email": {"meta": {"estimate": {"charge": 0.2}}},
    "buy_airtime": {"created_datetime": WHEN},
    "request_otp": {"recipient": ADA, "status_desc": "SENT"},
    "create_contact_row": {"table": {"name": "Contacts"}},
}
"""What is left of a resource that lost its id on the way."""

ACTING = [one for one in ENDPOINTS if one.operation in REST]

# Coprime to the number of values of each part, so that every value meets every other.
STEP = 1 if os.environ.get("TORTURE") else 61


@dataclass(frozen=True)
class Case:
    line: int
    status: Any
    errors: Any
    type: Any
    id: Any
    place: str
    wait: str | None

    def body(self, endpoint: Endpoint[Any]) -> dict[str, Any]:
        parts = {"status": self.status, "errors": self.errors, "type": self.type, "message": "What was made of it"}
        body = {name: value for name, value in parts.items() if value is not ABSENT}
        if self.id is ABSENT:
            return body
        resource = {"id": self.id, **REST[endpoint.operation]}
        if self.id is None:
            resource = {"id": None}
        elif self.id == "lost":
            resource = LEFT_OVER[endpoint.operation]
        if self.place == "bare":
            # A passcode's own status stands where the body's would.
            return {**resource, **body}
        if self.place == "list in data":
            return body | {"data": [resource]}
        return body | {self.place: resource}

    def answer(self, endpoint: Endpoint[Any]) -> HttpResponse:
        return HttpResponse(self.line, self.wait, json.dumps(self.body(endpoint)).encode())

    @property
    def bears_resource(self) -> bool:
        """Tell whether an id, or anything else of a resource, is there."""
        return self.id is not ABSENT and self.id is not None

    def is_whole(self, endpoint: Endpoint[Any]) -> bool:
        """Tell whether the resource is there as the contract has it."""
        if self.id not in ("x-1", 17):
            return False
        if endpoint is endpoints.CREATE_CONTACT_ROW:
            return self.place == "row"
        number = isinstance(self.status, int) or self.status is ABSENT or str(self.status).isdigit()
        bare = self.place == "bare" and (number or endpoint is not endpoints.REQUEST_OTP)
        return bare or self.place == "data"


def cases() -> Iterator[Case]:
    parts = (LINES, BODY_STATUSES, ERRORS, TYPES, IDS, PLACES, WAITS)
    return itertools.starmap(Case, itertools.islice(itertools.product(*parts), 0, None, STEP))


def may_be_accepted(endpoint: Endpoint[Any], case: Case) -> bool:
    """Tell whether the service may have acted on a request that it answered so."""
    if case.line in (429, 425):
        return False
    if case.line == 503 and case.wait is not None:
        return endpoint.retry_safety is RetrySafety.PURCHASE
    if 400 <= case.line < 500:
        return case.line == 408
    if case.line != 200 or case.bears_resource:
        return True
    if case.type in ("success", "queued") or case.status in (202, "queued"):
        # It speaks of a success, whatever stands beside it.
        return True
    named = int(case.status) if isinstance(case.status, int) or str(case.status).isdigit() else 0
    if named >= 500 or named == 408:
        return True
    return not (400 <= named < 500 or (case.errors is not ABSENT and case.errors))


def broken_law(endpoint: Endpoint[Any], case: Case) -> str | None:
    """Return in words what is wrong about how an answer is taken."""
    whole = case.line < 300 and case.is_whole(endpoint)
    try:
        parse_response(endpoint, case.answer(endpoint))
    except errors.CpaasError as error:
        if whole:
            return f"an accepted resource is {type(error).__name__}"
        state, consequence = classify(error, 10)
        if may_be_accepted(endpoint, case):
            if error.retryable or not error.maybe_sent or state is not State.UNKNOWN:
                return f"what may have been accepted is {type(error).__name__}"
            return None if consequence is NextStep.GO_ON else f"what may have been accepted is to {consequence}"
        if error.maybe_sent:
            return "what was surely refused is unknown"
        if endpoint.retry_safety is RetrySafety.PURCHASE and error.retryable and 429 not in (case.line, case.status):
            return "a purchase counts as not made without a 429"
        return None
    return None if whole else "it counts as accepted without a resource"


@pytest.mark.parametrize("endpoint", ACTING, ids=lambda endpoint: endpoint.operation)
def test_what_may_have_been_accepted_is_never_sent_again(endpoint: Endpoint[Any]) -> None:
    tried, broken = 0, []
    for case in cases():
        tried += 1
        if found := broken_law(endpoint, case):
            broken.append(f"{case}: {found}")
    assert not broken, f"{len(broken)} of {tried}, such as {broken[:: max(1, len(broken) // 10)]}"


def test_whole_product_has_more_than_a_hundred_thousand_cases() -> None:
    parts = (LINES, BODY_STATUSES, ERRORS, TYPES, IDS, PLACES, WAITS)
    product = 1
    for values in parts:
        product *= len(values)
        assert len(values) % 61
    assert product >= 100_000
