"""Answers that resemble a refusal although they prove none, and answers whose id or status says less than it seems."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Literal
from urllib.parse import parse_qsl

from cpaas_sandbox.core.errors import FieldError, ServiceError
from cpaas_sandbox.service.http import Answer, Wire

Params = dict[str, Any]
Record = dict[str, Any]

RefusalForm = Literal[
    "gateway_error",  # 200, with the words of a gateway as a list of texts
    "empty_item",  # 200, with an item of errors that names nothing
    "null_item",  # 200, with null as the only item
    "code_in_item",  # 200 and the documented error, with a code of 504 in an item
    "accepted_in_message",  # 200 and the documented error, whose message speaks of acceptance
    "graphql",  # 200, with the errors of a GraphQL service
    "id_in_item",  # 400 and the documented error, with an id in an item
    "id_in_400",  # 400 and the documented error, with an id beside it
    "queued_400",  # 400 with a message that speaks of acceptance
    "list_in_400",  # 400 with a list of results, one of them accepted
    "status_460",  # the load balancer's word for a client that left
    "status_499",  # the same, as another server has it
]
DeadId = Literal["null", "None", "0", "-1", "false", "true", "blank", "zero_width", "not_a_number", "too_long"]
NoteForm = Literal["warning", "note", "sentence"]
PurchaseForm = Literal["word", "case", "object", "refunded", "inside_data"]

_ID = "5f0c7a52-9b1e-4b8e-9a60-2f6f6a5d7a11"
_DEAD_IDS: dict[str, Any] = {
    "null": None,
    "None": "None",
    "0": 0,
    "-1": -1,
    "false": False,
    "true": True,
    "blank": "  ",
    "zero_width": "\u200b",
    "not_a_number": "NaN",
    "too_long": "x" * 70_000,
}


def first_field(wire: Wire) -> str:
    """Return the name of the first field of a request; ``request`` where it has none."""
    body = json.loads(wire.received) if wire.received else {}
    names = [*(body if isinstance(body, dict) else ()), *(name for name, _ in parse_qsl(wire.query.decode("latin-1")))]
    return str(names[0]) if names else "request"


def documented(wire: Wire, status: int) -> Record:
    """Return the documented error, of a field of the request."""
    return ServiceError(status, "The request failed", [FieldError(first_field(wire), "is not valid", "missing")]).body()


async def error_under_200(wire: Wire, params: Params, answer: Answer, result: str) -> None:
    """Answer 200 with the documented error."""
    await wire.answer(Answer(200, documented(wire, params["body_status"])))


async def odd_refusal(wire: Wire, params: Params, answer: Answer, result: str) -> None:
    """Answer in a way that resembles a refusal and proves none."""
    error = documented(wire, 400)
    (item,) = error["errors"]
    results = [{"position": 0, "status": "accepted"}, {"position": 1, "status": "invalid"}]
    forms: dict[str, tuple[int, Record]] = {
        "gateway_error": (200, {"message": "Gateway timeout", "errors": ["upstream timed out"]}),
        "empty_item": (200, {"message": "The request failed", "errors": [{}]}),
        "null_item": (200, {"message": "The request failed", "errors": [None]}),
        "code_in_item": (200, error | {"status": 200, "errors": [item | {"code": 504}]}),
        "accepted_in_message": (200, error | {"status": 200, "message": "Accepted for delivery"}),
        "graphql": (200, {"data": None, "errors": [{"message": "The request failed", "path": ["send"]}]}),
        "id_in_item": (400, error | {"errors": [item | {"id": _ID}]}),
        "id_in_400": (400, error | {"id": _ID}),
        "queued_400": (400, {"message": "The message was queued"}),
        "list_in_400": (400, {"message": "Some failed", "results": results}),
        "status_460": (460, error),
        "status_499": (499, error),
    }
    status, body = forms[params["form"]]
    await wire.answer(Answer(status, body))


async def dead_id(wire: Wire, params: Params, answer: Answer, result: str) -> None:
    """Answer 200 with an id that means nothing, beside a message of a failure."""
    id_ = _DEAD_IDS[params["id"]]
    body: Record = {"row": {"id": id_, "columns": {}}} if wire.raw_path.endswith("/rows") else {"id": id_}
    await wire.answer(Answer(200, body | {"message": "The request failed", "errors": []}))


def is_envelope(body: Any) -> bool:
    """Return whether a body is a result in its envelope."""
    return isinstance(body, dict) and set(body) == {"status", "type", "message", "data"}


def in_records(body: Any, change: Callable[[Record], Record]) -> Any:
    """Change the record of a body: bare, in an envelope, or each record of a list."""
    if isinstance(body, list):
        return [change(record) for record in body]
    if is_envelope(body):
        return body | {"data": in_records(body["data"], change)}
    return change(body) if isinstance(body, dict) else body


async def note_beside_id(wire: Wire, params: Params, answer: Answer, result: str) -> None:
    """Answer correctly, with an item of ``errors`` that rejects no recipient."""

    def with_note(record: Record) -> Record:
        recipients = record.get("recipients")
        if not isinstance(recipients, list) or not recipients:
            return record
        first, last, form = recipients[0], recipients[-1], params["form"]
        texts = {"sentence": f"{first} was accepted, {last} may be late"}
        item = {"field": "recipients", "message": texts.get(form, f"{first} is a ported number")}
        # What an accepted message leaves out stays named.
        errors = record.get("errors", [])
        return record | {"errors": [*errors, item | {"type": "invalid" if form == "sentence" else form}]}

    await wire.answer(Answer(answer.status, in_records(answer.body, with_note), answer.headers))


async def odd_purchase_status(wire: Wire, params: Params, answer: Answer, result: str) -> None:
    """Answer with a purchase whose status the interface document does not have, or that contradicts itself."""

    def changed(record: Record) -> Record:
        if result != "AirtimePurchase":
            return record
        word, status = params["status"], str(record["status"])
        charge = record["meta"]["charge"] | {"refunded": True}
        forms: dict[str, Record] = {
            "word": {"status": word},
            "case": {"status": f"{word.upper()} "},
            "object": {"status": {"text": word}},
            "refunded": {"status": status, "meta": record["meta"] | {"charge": charge}},
            "inside_data": {"data": {"status": word}},
        }
        return record | forms[params["form"]]

    await wire.answer(Answer(answer.status, in_records(answer.body, changed), answer.headers))
