"""What a service may answer, as it goes over the wire, read by the client's own code: for the models' fake services."""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import Enum
from typing import Any

from cpaas_provider.api.endpoints import SEND_SMS
from cpaas_provider.api.http.wire import HttpResponse
from cpaas_provider.api.responses.parsing import parse_response


class Form(Enum):
    """In which form the service answers; the name tells what it has done by then."""

    ACCEPTED_PLAIN = 0
    ACCEPTED_EMPTY_ERRORS = 1
    ACCEPTED_QUEUED = 2
    ACCEPTED_BESIDE_400 = 3
    ACCEPTED_BESIDE_429 = 4
    ACCEPTED_BESIDE_503 = 5
    ACCEPTED_FOR_OTHERS = 6
    """Accepted for all but the first recipient, whom its errors name."""
    LOST_500 = 7
    LOST_503 = 8
    LOST_MESSAGE = 9
    LOST_REDIRECT = 10
    LOST_408 = 11
    REJECTED_NO_BALANCE = 12
    REJECTED_UNDER_200 = 13
    NOT_SENT_429 = 14
    NOT_SENT_425 = 15

    @property
    def accepted(self) -> bool:
        """Whether the service acted, and the answer tells."""
        return self.name.startswith("ACCEPTED")

    @property
    def lost(self) -> bool:
        """Whether the service acted, and the answer does not tell."""
        return self.name.startswith("LOST")

    @property
    def rejected(self) -> bool:
        return self.name.startswith("REJECTED")


def _answer(form: Form, people: Sequence[str], id_: str) -> HttpResponse:
    record = {"id": id_, "recipients": list(people)}
    left_out = {"errors": [{"field": "recipients", "message": f"{people[0]} is not valid", "type": "invalid"}]}

    def failure(status: int) -> dict[str, Any]:
        return {"status": status, "message": "It failed", "errors": []}

    queued = {"status": 200, "type": "queued", "message": "It was queued", "data": record}
    answers: dict[Form, tuple[int, Any]] = {
        Form.ACCEPTED_PLAIN: (200, record),
        Form.ACCEPTED_EMPTY_ERRORS: (200, {**record, "errors": []}),
        Form.ACCEPTED_QUEUED: (202, queued),
        Form.ACCEPTED_BESIDE_400: (200, {**failure(400), "data": record}),
        Form.ACCEPTED_BESIDE_429: (200, {**failure(429), "data": record}),
        Form.ACCEPTED_BESIDE_503: (200, {**failure(503), **record}),
        Form.ACCEPTED_FOR_OTHERS: (200, {**record, "message": "Not for all", **left_out}),
        Form.LOST_500: (200, failure(500)),
        Form.LOST_503: (200, failure(503)),
        Form.LOST_MESSAGE: (200, {"message": "Accepted"}),
        Form.LOST_REDIRECT: (302, failure(302)),
        Form.LOST_408: (408, failure(408)),
        Form.REJECTED_NO_BALANCE: (400, {"status": 400, "message": "Insufficient balance"}),
        Form.REJECTED_UNDER_200: (200, failure(400)),
        Form.NOT_SENT_429: (200, failure(429)),
        Form.NOT_SENT_425: (425, failure(425)),
    }
    status, body = answers[form]
    return HttpResponse(status, None, json.dumps(body).encode())


def read(form: Form, people: Sequence[str], id_: str) -> Any:
    """Return what the client makes of an answer.

    :raises CpaasError: what it raises
    """
    return parse_response(SEND_SMS, _answer(form, people, id_), (), {"recipients": ",".join(people)})


def untouched(form: Form, people: tuple[str, ...]) -> tuple[str, ...]:
    """Return whom the service did nothing for when it answers so."""
    if form is Form.ACCEPTED_FOR_OTHERS:
        return people[:1]
    return () if form.accepted or form.lost else people
