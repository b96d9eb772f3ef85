"""Generates what a service may answer, from the contract's own forms to the oddest: for the oracle and the models.

Not made of strategies: those take a hundred times as long, and no shorter answer says more than the one that failed.
"""

from __future__ import annotations

import copy
import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.unit.api.question import Answer, Question

GOOD_IDS: tuple[Any, ...] = ("msg-1", "8c1f0a52-5d1e-4b8e-9a60-2f6f6a5d7a11", 7, 1_234_567_890_123)
DEAD_IDS: tuple[Any, ...] = (
    None, 0, -1, -7.5, False, True, "", "  ", "\t\n", "\u200b", "\u200b \ufeff", "\u2060", "null", "None", "NULL ",
    "undefined", "nan", "NaN", " nil ", math.nan, math.inf, -math.inf, "x" * 70_000, [], {}, [1], {"a": 1},
)  # fmt: skip
ODD_IDS: tuple[Any, ...] = ("0", "-1", "false", "N/A", 1.5, "a b", "\u2603", "000")

ACCEPTANCE = (
    "accepted", "queued", "sent", "OK", "success", "submitted", "processing", "delivered", "scheduled", "created",
    "Message queued", "Your message has been accepted for delivery", "SENT", "QUEUED_FOR_DELIVERY", "messageAccepted",
)  # fmt: skip
FAULTS = (
    "upstream timed out", "Gateway timeout", "Internal error", "internal server error", "Service unavailable",
    "timeout", "Bad Gateway", "InternalError",
)  # fmt: skip
REFUSALS = ("is invalid", "The request is not valid", "field required", "Unknown sender", "Insufficient balance")
DOUBTFUL = (
    "could not be sent", "not accepted", "angenommen", "encolado", "envoyé", "принято", "Try again after a timeout",
    "Error 503", "must be accepted before it is sent",
)  # fmt: skip
CODES: tuple[Any, ...] = (
    200, 202, 400, 404, 408, 422, 425, 429, 460, 499, 500, 503, 504, "400", "429", "503", "504", 0, 1, -1, 5000, 503.0,
)  # fmt: skip
STATUS_LINES = (
    100, 102, 200, 200, 200, 200, 200, 201, 202, 204, 206, 226, 300, 302, 307, 400, 400, 400, 401, 402, 403, 404, 405,
    408, 409, 410, 413, 422, 425, 429, 451, 460, 499, 500, 501, 502, 503, 503, 504, 520, 599,
)  # fmt: skip
RETRY_AFTER = (None, None, None, "1", "0", "Wed, 21 Oct 2065 07:28:00 GMT", "soon", "-1", "")
NOTES = ("warning", "note", "info", "Warning", "NOTICE")
TYPES = ("missing", "invalid", "value_error")
_KEYS_OF_IDS = ("id", "id", "ID", "Id", "message_id", "messageId", "transaction_id", "request_id", "uuid")
_KEYS_OF_WORDS = (
    "status",
    "message",
    "code",
    "type",
    "result",
    "state",
    "error",
    "detail",
    "Status",
    "MESSAGE",
    "note",
)
_KEYS_OF_CODES = ("status", "code", "statusCode", "status_code", "http_status", "Code")
_HOLDERS = ("data", "result", "results", "response", "error", "errors", "messages", "extensions", "meta", "x")


def resource(question: Question, id_: Any = "msg-1") -> dict[str, Any]:
    """Return the resource that the contract has for an operation."""
    fields = question.fields
    if question.operation in ("create_contact_row", "update_contact_row", "get_contact_row"):
        row_id = fields.get("row_id", id_)
        return {"row": {"id": row_id, "columns": copy.deepcopy(dict(fields.get("columns", {"name": "Ada"})))}}
    if question.operation == "lookup_phone":
        return {"msisdn": fields["phone"], "operator": "MTN", "country": "NG", "ported": False, "dnd": False}
    if question.operation in ("request_otp", "get_otp"):
        found = {"id": fields.get("id", id_), "recipient": fields.get("recipient", "2348031234567"), "status": 1}
        return {**found, "status_desc": "SENT", "created_datetime": "2026-01-02T03:04:05.678+01:00"}
    if question.operation == "buy_airtime":
        return {"id": id_, **fields, "status": "pending", "created_datetime": "2026-01-02T03:04:05.678+01:00"}
    if question.operation in ("delete_contact_row", "revoke_otp"):
        return {"status": 200, "type": "success", "message": "deleted"}
    return {"id": id_, **fields, "recipients": list(question.recipients)}


def envelope(record: Any, status: Any = 200, type_: str = "success") -> dict[str, Any]:
    return {"status": status, "type": type_, "message": "Done", "data": record}


@dataclass(frozen=True)
class OddAnswers:
    """Makes answers to a question.

    :param chance: decides all that is open
    """

    chance: random.Random
    question: Question

    def answer(self) -> Answer:
        """Return anything that may come back for a request."""
        status = self.one(STATUS_LINES)
        return Answer(status, b"" if status == 204 else self.raw_body(), self.one(RETRY_AFTER))

    def raw_body(self) -> bytes:
        """Return a body as it goes over the wire: mostly whole JSON."""
        if self.chance.random() < 0.1:
            return self.one(TEXTS)
        whole = encoded(self.body())
        return self.one(_CHANGES)(whole) if self.chance.random() < 0.1 else whole

    def body(self) -> Any:
        """Return a body as a JSON value."""
        body = copy.deepcopy(self.shape())
        for _ in range(self.one((0, 0, 1, 1, 2))):
            if places := _places(body):
                # A copy, as the next addition may go into this one.
                place, addition = self.one(places), copy.deepcopy(self.addition())
                # What is there stays: the record's own fields are its own.
                place.update({key: value for key, value in addition.items() if key not in place})
        return body

    # -- parts --------------------------------------------------------------------------------------------------------

    def one(self, options: Sequence[Any]) -> Any:
        return self.chance.choice(options)

    def id(self) -> Any:
        return self.one(self.one((GOOD_IDS, DEAD_IDS, ODD_IDS)))

    def word(self) -> str:
        return str(self.one(self.one((ACCEPTANCE, FAULTS, REFUSALS, DOUBTFUL))))

    def some(self, make: Callable[[], Any], least: int, most: int) -> list[Any]:
        return [make() for _ in range(self.chance.randint(least, most))]

    def plain_item(self) -> dict[str, Any]:
        """Return an item of ``errors`` as the contract shows it, of a field of the request."""
        fields = list(self.question.fields)
        return {"field": self.one(fields), "message": self.one(REFUSALS), "type": self.one(TYPES)}

    def item(self) -> Any:
        return self.one((self.plain_item, self.plain_item, self._documented_item, self._naming_item, self._odd_item))()

    def _documented_item(self) -> dict[str, Any]:
        fields = [*self.question.fields] * 2
        fields += ["template_id", "foo", "recipients[1]", "Recipients ", None]  # type: ignore[list-item]
        item = {"field": self.one(fields), "message": self.one((self.word, self._about_recipients))()}
        return {**item, "type": self.one([*TYPES, *TYPES, *NOTES])} if self.chance.random() < 0.7 else item

    def _odd_item(self) -> Any:
        return self.one(
            (
                lambda: self.one((None, {}, "", 0, True)),
                self.word,
                lambda: {"message": self.word()},
                lambda: {"code": self.one(CODES)},
                lambda: {**self._documented_item(), "id": self.id()},
                lambda: {**self._documented_item(), "status": self.word()},
            )
        )()

    def _about_recipients(self) -> str:
        if not self.question.recipients:
            return "is invalid"
        forms = (
            "{} is not valid", "{} and {} are not valid", "{} accepted, {} refused", "+{}: unknown number",
            "{}99 is not valid", "{} will be delivered later",
        )  # fmt: skip
        return str(self.one(forms)).format(self.one(self.question.recipients), self.one(self.question.recipients))

    def _naming_item(self) -> Any:
        """Return an item of ``errors`` that names a recipient, in a more or a less documented form."""
        if not self.question.recipients:
            return self.plain_item()
        name, at = self.one(self.question.recipients), self.chance.randint(0, len(self.question.recipients))
        invalid = {"message": "is invalid", "type": "invalid"}
        return self.one(
            (
                {"field": "recipients", "message": f"{name} is not valid", "type": self.one([*TYPES, *NOTES])},
                {"field": "recipients", "message": self._about_recipients()},
                {"field": "content", "message": self._about_recipients(), "type": "invalid"},
                {"field": f"recipients[{at}]", **invalid},
                {"field": f"recipients.{at}", **invalid},
                {"field": name, **invalid},
                f"{name} is invalid",
            )
        )

    # -- shapes -------------------------------------------------------------------------------------------------------

    def shape(self) -> Any:
        return self.one(
            (
                lambda: resource(self.question),
                lambda: envelope(resource(self.question)),
                self.documented_error,
                self.documented_error,
                self.record,
                lambda: envelope(self.record(), self.one(CODES), self.word()),
                lambda: {**self.record(), **self.error()},
                lambda: {**self.error(), "data": self.record()},
                self.error,
                lambda: {"status": self.one(CODES), "message": self.word()},
                self._foreign_form,
                lambda: self.one((self.word(), None, True, 0, 7, "", [], {})),
                lambda: self.some(self.record, 0, 2),
                lambda: {"message": self.word()},
            )
        )()

    def record(self) -> dict[str, Any]:
        return resource(self.question, self.id())

    def documented_error(self) -> dict[str, Any]:
        """Return an error as the contract shows it."""
        error = {"message": self.one(REFUSALS), "errors": self.some(self.plain_item, 1, 3)}
        return {**error, "status": self.one((200, 400, 422))} if self.chance.random() < 0.5 else error

    def error(self) -> dict[str, Any]:
        error: dict[str, Any] = {"message": self.word(), "errors": self.some(self.item, 0, 4)}
        if self.chance.random() < 0.4:
            error["status"] = self.one(CODES)
        if self.chance.random() < 0.3:
            error["type"] = self.word()
        return error

    def _foreign_form(self) -> Any:
        """Return a shape in which other interfaces answer."""
        code, word, recipients = self.one(CODES), self.word(), self.question.recipients or ("2348031234567",)
        extensions = {"code": self.one(("BAD_USER_INPUT", "INTERNAL_SERVER_ERROR", "503"))}
        item = {"status": code, "title": word, "source": {"pointer": "/data"}}
        return self.one(
            (
                {"data": None, "errors": [{"message": word, "path": ["send"], "extensions": extensions}]},
                {"errors": [self.one((item, {**item, "id": self.id()}))]},
                {"type": "about:blank", "title": word, "status": code, "detail": word},
                {
                    self.one(("data", "results", "errors", "messages", "recipients")): [
                        {"to": recipient, "status": self.word()} for recipient in recipients
                    ]
                },
                {self.one(("accepted", "sent")): self.chance.randint(0, 3)},
            )
        )

    def addition(self) -> dict[str, Any]:
        """Return what may stand in a body besides, at a depth of up to six."""
        added = self.one(
            (
                lambda: {self.one(_KEYS_OF_IDS): self.id()},
                lambda: {self.one(_KEYS_OF_WORDS): self.word()},
                lambda: {self.one(_KEYS_OF_CODES): self.one(CODES)},
                lambda: {self.word(): self.one((True, False, 1, 0, ["2348031234567"], []))},
                lambda: {"external_ref": self.one(("another-ref", "", None, 7))},
                lambda: {"errors": self.some(self.item, 0, 3)},
                lambda: {"success": self.one((True, False))},
            )
        )()
        if self.chance.random() < 0.5:
            return dict(added)
        for holder in self.some(lambda: self.one(_HOLDERS), 0, 5):
            added = [added] if holder == "x" else {holder: added}
        return {self.one(_HOLDERS): added}


def _places(value: Any) -> list[dict[str, Any]]:
    """Return every object in a value."""
    if isinstance(value, list):
        return [place for member in value for place in _places(member)]
    if isinstance(value, dict):
        return [value, *(place for member in value.values() for place in _places(member))]
    return []


TEXTS = (
    b"", b"   ", b"Bad request", b"<html><head><title>400</title></head><body><h1>Bad Request</h1></body></html>",
    b"OK", b"accepted", b"Your message was queued", b"upstream timed out", b"<h1>502 Bad Gateway</h1>", b"\xff\xfe",
    b"[" * 2_000, b'{"id":"msg-1","a":' * 2_000,
)  # fmt: skip
_CHANGES: tuple[Callable[[bytes], bytes], ...] = (
    lambda raw: raw[: len(raw) // 2],
    lambda raw: raw[:-1],
    lambda raw: b"\xef\xbb\xbf" + raw,
)


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()
