"""The kinds of faults: stage, meaning, parameters and effect of each."""

from __future__ import annotations

import enum
import time
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from http import HTTPStatus
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, ValidationError, create_model
from pydantic_core import to_json

from cpaas_sandbox.core.errors import FieldError, ServiceError
from cpaas_sandbox.core.validation import in_words
from cpaas_sandbox.faults.echo import echo, echo_rejection
from cpaas_sandbox.faults.odd_answers import (
    DeadId,
    NoteForm,
    PurchaseForm,
    RefusalForm,
    dead_id,
    error_under_200,
    in_records,
    is_envelope,
    note_beside_id,
    odd_purchase_status,
    odd_refusal,
)
from cpaas_sandbox.service.http import Answer, Wire

Params = dict[str, Any]
Record = dict[str, Any]
# Arguments: connection, parameters of the fault, correct response (empty before acceptance), its schema's name.
Effect = Callable[[Wire, Params, Answer, str], Awaitable[None]]

OddForm = Literal[
    "empty_errors",  # the record with a list of errors, empty unless recipients are left out
    "queued",  # an envelope of another type than success
    "status_beside",  # an envelope that names a failure's status, with the record in it
    "status_alone",  # a body that names a failure's status, without the record
    "message",  # a message and nothing else
    "redirect",  # 302
]
_Text = Annotated[str, Field(min_length=1, max_length=2000, pattern="^[ -~]+$")]
_Status = Annotated[int, Field(ge=100, le=599)]
_RetryAfter = Annotated[float, Field(ge=0, le=86_400)] | None
_RetryFormat = Literal["seconds", "http-date"]
_How = Literal["reset", "close"]
_Part = Literal["number", "id", "reference"]
_Gateway = Literal[502, 504]

# schema of the response -> the field that a client requires; for other schemas, the id
_ESSENTIAL = {"PhoneLookup": "msisdn", "RowAndTable": "row", "Deleted": "message"}
_ENUMERATIONS = {"status", "status_desc", "encoding", "type", "network"}
_PARTS = {"number": ("msisdn", "recipient"), "id": ("id", "row"), "reference": ("external_ref",)}
_EXTRA = {"x_new": True, "links": {"self": "/somewhere", "items": [1, None, {"deep": "value"}]}}
_STEPS = 200


class Stage(enum.Enum):
    """Where in a request's life a fault occurs."""

    DELAY = "delay"  # the request is served, late
    BEFORE = "before"  # nothing is accepted
    AFTER = "after"  # accepted, stored, charged and counted; then the answer goes wrong


class Kind:
    """A kind of fault; each of its parameters is a pair of type and default."""

    def __init__(self, stage: Stage, means: str, effect: Effect, **params: Any) -> None:
        self.stage = stage
        self.means = means
        self.show = effect
        self.params = {name: default for name, (_, default) in params.items()}
        self._model = create_model("Params", __config__=ConfigDict(extra="forbid", strict=True), **params)

    def read(self, given: Params) -> Params:
        """Return all parameters, missing ones with their defaults; raise ValueError naming every one not allowed."""
        try:
            return dict(self._model.model_validate(given))
        except ValidationError as error:
            raise ValueError(in_words(error)) from None


# -- a response in place of the correct one ---------------------------------------------------------------------------


def _answering(make: Callable[[Params, Answer, str], Answer]) -> Effect:
    async def effect(wire: Wire, params: Params, answer: Answer, result: str) -> None:
        await wire.answer(make(params, answer, result))

    return effect


def _refusal(status: int, message: str, headers: dict[str, str] | None = None) -> Answer:
    error = ServiceError(status, message, [FieldError("request", message, "fault")])
    return Answer(status, error.body(), headers or {})


def _refusing(status: int, message: str) -> Effect:
    def make(params: Params, answer: Answer, result: str) -> Answer:
        seconds = params.get("retry_after")
        if seconds is None:
            return _refusal(status, message)
        is_date = params["format"] == "http-date"
        retry_after = formatdate(time.time() + seconds, usegmt=True) if is_date else f"{seconds:g}"
        return _refusal(status, message, {"Retry-After": retry_after})

    return _answering(make)


def _proxy_page(params: Params, answer: Answer, result: str) -> Answer:
    status = HTTPStatus(params["status"])
    title = f"{status} {status.phrase}"
    page = f"<html><head><title>{title}</title></head><body><h1>{title}</h1></body></html>"
    return Answer(status, page.encode(), content_type="text/html")


def _broken_json(params: Params, answer: Answer, result: str) -> Answer:
    body = to_json(answer.body)
    return Answer(200, body[: max(1, len(body) // 2)])


def _odd_answer(params: Params, answer: Answer, result: str) -> Answer:
    record = answer.body["data"] if is_envelope(answer.body) else answer.body
    failure = {"status": params["body_status"], "message": "The request failed", "errors": []}
    queued = {"status": 200, "message": "The request was queued"}
    forms: dict[str, Answer] = {
        "empty_errors": Answer(200, in_records(record, lambda item: {"errors": [], **item})),
        "queued": Answer(200, queued | {"type": "queued", "data": record}),
        "status_beside": Answer(200, failure | {"data": record}),
        "status_alone": Answer(200, failure),
        "message": Answer(200, {"message": queued["message"]}),
        "redirect": Answer(302, failure | {"status": 302}, {"Location": "http://127.0.0.1:9/elsewhere"}),
    }
    return forms[params["form"]]


# -- the correct response, changed ------------------------------------------------------------------------------------


def _changing(change: Callable[[Record, Params, str], Record]) -> Effect:
    return _answering(
        lambda params, answer, result: Answer(
            answer.status, in_records(answer.body, lambda record: change(record, params, result))
        )
    )


def _changing_estimate(change: Callable[[Record, Params], Record]) -> Effect:
    def changed(record: Record, params: Params, result: str) -> Record:
        meta = record.get("meta")
        if not isinstance(meta, dict) or not isinstance(meta.get("estimate"), dict):
            return record
        return record | {"meta": meta | {"estimate": change(meta["estimate"], params)}}

    return _changing(changed)


def _without_charge(estimate: Record, params: Params) -> Record:
    gone = {"charge"} if params["balance"] == "keep" else {"charge", "available_balance"}
    return {name: value for name, value in estimate.items() if name not in gone}


def _missing_field(params: Params, answer: Answer, result: str) -> Answer:
    gone = params["field"] or _ESSENTIAL.get(result, "id")
    return Answer(200, in_records(answer.body, lambda record: {name: record[name] for name in record if name != gone}))


def _with_unknown(value: Any, word: str) -> Any:
    """Replace every enumerated value, at any depth: a text by the word, a number by 99."""
    if isinstance(value, list):
        return [_with_unknown(item, word) for item in value]
    if not isinstance(value, dict):
        return value
    changed = {key: _with_unknown(member, word) for key, member in value.items()}
    return changed | {key: 99 if isinstance(changed[key], int) else word for key in _ENUMERATIONS & set(changed)}


def _of_another(record: Record, params: Params, result: str) -> Record:
    """Return the record as another number, id or reference would have got it."""
    changed = dict(record)
    for name in _PARTS[params["part"]]:
        if isinstance(changed.get(name), dict):
            changed[name] = _of_another(changed[name], params, result)
        elif name in changed:
            # Another last digit, or another ending.
            value = str(changed[name])
            changed[name] = value[:-1] + str((int(value[-1]) + 1) % 10) if value.isdigit() else f"{value}-another"
    return changed


# -- the connection itself --------------------------------------------------------------------------------------------


async def _delay(wire: Wire, params: Params, answer: Answer, result: str) -> None:
    await wire.pause(params["ms"] / 1000)


async def _cut(wire: Wire, params: Params, answer: Answer, result: str) -> None:
    await wire.drop(params["how"])


async def _stall_body(wire: Wire, params: Params, answer: Answer, result: str) -> None:
    body = await wire.start(Answer(200, to_json(answer.body)))
    await wire.send(body[: len(body) // 2], more=True)
    await wire.hold(params["seconds"])
    await wire.drop()


async def _slow_drip(wire: Wire, params: Params, answer: Answer, result: str) -> None:
    body = await wire.start(Answer(200, to_json(answer.body)))
    size = -(-len(body) // _STEPS)
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    for part in parts[:-1]:
        await wire.send(part, more=True)
        await wire.pause(params["seconds"] / len(parts))
    await wire.send(parts[-1])


async def _two_answers(wire: Wire, params: Params, answer: Answer, result: str) -> None:
    wire.write_ahead(Answer(200, answer.body))
    await wire.pause(params["ms"] / 1000)
    await wire.answer(Answer(200, to_json(answer.body)))


_DELAY, _BEFORE, _AFTER = Stage.DELAY, Stage.BEFORE, Stage.AFTER
_REFUSED_AS = {"retry_after": (_RetryAfter, None), "format": (_RetryFormat, "seconds")}

KINDS: dict[str, Kind] = {
    "latency": Kind(_DELAY, "the response is late", _delay, ms=(Annotated[float, Field(ge=0, le=120_000)], 1000)),
    "rate_limit": Kind(
        _BEFORE,
        "429 with Retry-After",
        _refusing(429, "Too many requests"),
        **_REFUSED_AS | {"retry_after": (_RetryAfter, 1)},
    ),
    "unavailable": Kind(
        _BEFORE, "503, with Retry-After if given", _refusing(503, "The service is unavailable"), **_REFUSED_AS
    ),
    "error_500": Kind(_BEFORE, "500", _refusing(500, "Internal error")),
    "bad_gateway": Kind(_BEFORE, "a proxy's HTML error page", _answering(_proxy_page), status=(_Gateway, 502)),
    "unauthorized": Kind(
        _BEFORE,
        "401 although the key is right",
        _answering(lambda *_: _refusal(401, "Unauthorized", {"WWW-Authenticate": "Bearer"})),
    ),
    "redirect": Kind(
        _BEFORE,
        "a redirect",
        _answering(lambda params, *_: _refusal(params["status"], "Moved elsewhere", {"Location": params["location"]})),
        status=(Literal[301, 302, 303, 307, 308], 307),
        location=(_Text, "http://127.0.0.1:9/elsewhere"),
    ),
    "error_under_200": Kind(
        _BEFORE, "the documented error body with HTTP 200", error_under_200, body_status=(_Status, 200)
    ),
    "reject": Kind(
        _BEFORE,
        "a 4xx with a message of your choice",
        _answering(
            lambda params, *_: Answer(params["status"], ServiceError(params["status"], params["message"]).body())
        ),
        status=(Literal[400, 402, 409, 422], 400),
        message=(_Text, "Insufficient balance"),
    ),
    "echo_rejection": Kind(
        _BEFORE,
        "a 400 with key and texts of the request, and a text of your choice",
        echo_rejection,
        text=(_Text | None, None),
    ),
    "cut_before": Kind(_BEFORE, "the connection is dropped", _cut, how=(_How, "reset")),
    "cut_after": Kind(_AFTER, "the connection is dropped without a byte", _cut, how=(_How, "reset")),
    "error_500_after": Kind(_AFTER, "500", _refusing(500, "Internal error")),
    "bad_gateway_after": Kind(_AFTER, "a proxy's HTML error page", _answering(_proxy_page), status=(_Gateway, 504)),
    "stall_body": Kind(
        _AFTER,
        "headers and part of the body, then silence",
        _stall_body,
        seconds=(Annotated[float, Field(ge=0, le=300)], 30),
    ),
    "slow_drip": Kind(_AFTER, "the body byte by byte", _slow_drip, seconds=(Annotated[float, Field(ge=0, le=120)], 5)),
    "broken_json": Kind(_AFTER, "200 with truncated JSON", _answering(_broken_json)),
    "no_charge": Kind(
        _AFTER,
        "200 without the charge, or also without the balance",
        _changing_estimate(_without_charge),
        balance=(Literal["keep", "drop"], "keep"),
    ),
    "wrong_charge": Kind(
        _AFTER,
        "200 that names another charge than the one the account pays: any JSON value",
        _changing_estimate(lambda estimate, params: estimate | {"charge": params["charge"]}),
        charge=(Any, 0),
    ),
    "missing_field": Kind(
        _AFTER, "200 without a required field", _answering(_missing_field), field=(_Text | None, None)
    ),
    "unknown_enum": Kind(
        _AFTER,
        "200 with a value that no enumeration has",
        _changing(lambda item, params, result: item if result == "Deleted" else _with_unknown(item, params["value"])),
        value=(_Text, "quantum"),
    ),
    "extra_fields": Kind(
        _AFTER,
        "200 with fields that the interface document does not have",
        _changing(lambda record, *_: record | _EXTRA),
    ),
    "other_record": Kind(
        _AFTER,
        "200 with the record of another number, id or reference",
        _changing(_of_another),
        part=(_Part, "number"),
    ),
    "two_answers": Kind(
        _AFTER,
        "200 twice for one request",
        _two_answers,
        ms=(Annotated[float, Field(ge=0, le=10_000)], 0),
    ),
    "echo": Kind(
        _AFTER,
        "200 with key and texts of the request, and a text of your choice, in each of its texts",
        echo,
        text=(_Text | None, None),
    ),
    "odd_refusal_before": Kind(
        _BEFORE, "a response that resembles a refusal and proves none", odd_refusal, form=(RefusalForm, "gateway_error")
    ),
    "odd_refusal_after": Kind(
        _AFTER, "the same, although the request was accepted", odd_refusal, form=(RefusalForm, "gateway_error")
    ),
    "dead_id_before": Kind(_BEFORE, "200 with an id that means nothing", dead_id, id=(DeadId, "null")),
    "dead_id_after": Kind(_AFTER, "the same, although the request was accepted", dead_id, id=(DeadId, "null")),
    "note_beside_id": Kind(
        _AFTER,
        "200 with an item of errors that rejects no recipient, in a message that was accepted",
        note_beside_id,
        form=(NoteForm, "warning"),
    ),
    "odd_purchase_status": Kind(
        _AFTER,
        "200 with a purchase whose status is none of the interface document's, or contradicts itself",
        odd_purchase_status,
        form=(PurchaseForm, "word"),
        status=(_Text, "declined"),
    ),
    "odd_answer": Kind(
        _AFTER,
        "a response that resembles a failure",
        _answering(_odd_answer),
        form=(OddForm, "empty_errors"),
        body_status=(_Status, 500),
    ),
}
