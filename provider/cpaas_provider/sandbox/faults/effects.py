"""How each fault of ``rules`` shows on the wire."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from typing import Any

from cpaas_provider.sandbox.core.errors import FieldError, ServiceError
from cpaas_provider.sandbox.service.http import Answer, Wire, dump

Params = dict[str, Any]
Record = dict[str, Any]
Before = Callable[[Wire, Params], Awaitable[None]]
After = Callable[[Wire, Params, Answer, str], Awaitable[None]]

# What a client cannot do without, by result; elsewhere it is the id.
_ESSENTIAL = {"PhoneLookup": "msisdn", "RowAndTable": "row", "Deleted": "message"}
_ENUMERATIONS = {"status", "status_desc", "encoding", "type", "network"}
_EXTRA = {"x_new": True, "links": {"self": "/somewhere", "items": [1, None, {"deep": "value"}]}}
_STEPS = 200


def _refusal(status: int, message: str, headers: dict[str, str] | None = None) -> Answer:
    error = ServiceError(status, message, [FieldError("request", message, "fault")])
    return Answer(status, error.body(), headers or {})


def _retry_after(params: Params) -> dict[str, str]:
    seconds = params["retry_after"]
    if seconds is None:
        return {}
    if params["format"] == "http-date":
        return {"Retry-After": formatdate(time.time() + seconds, usegmt=True)}
    return {"Retry-After": f"{seconds:g}"}


def _proxy_page(params: Params) -> Answer:
    status = params["status"]
    name = "Bad Gateway" if status == 502 else "Gateway Timeout"
    page = f"<html><head><title>{status} {name}</title></head><body><h1>{status} {name}</h1></body></html>"
    return Answer(status, page.encode(), content_type="text/html")


# -- before acceptance ------------------------------------------------------------------------------------------------


def _answering(make: Callable[[Params], Answer]) -> Before:
    async def effect(wire: Wire, params: Params) -> None:
        await wire.answer(make(params))

    return effect


def _error_under_200(params: Params) -> Answer:
    error = ServiceError(params["body_status"], "The request failed", [FieldError("request", "refused", "missing")])
    return Answer(200, error.body())


async def _cut(wire: Wire, params: Params) -> None:
    await wire.drop(params["how"])


BEFORE: dict[str, Before] = {
    "rate_limit": _answering(lambda params: _refusal(429, "Too many requests", _retry_after(params))),
    "unavailable": _answering(lambda params: _refusal(503, "The service is unavailable", _retry_after(params))),
    "error_500": _answering(lambda _: _refusal(500, "Internal error")),
    "bad_gateway": _answering(_proxy_page),
    "unauthorized": _answering(lambda _: _refusal(401, "Unauthorized", {"WWW-Authenticate": "Bearer"})),
    "redirect": _answering(
        lambda params: _refusal(params["status"], "Moved elsewhere", {"Location": params["location"]})
    ),
    "error_under_200": _answering(_error_under_200),
    "reject": _answering(
        lambda params: Answer(params["status"], ServiceError(params["status"], params["message"]).body())
    ),
    "cut_before": _cut,
}

# -- after acceptance -------------------------------------------------------------------------------------------------


def _instead(before: Before) -> After:
    """Return the effect that does after acceptance what another does before."""

    async def effect(wire: Wire, params: Params, answer: Answer, result: str) -> None:
        await before(wire, params)

    return effect


def _is_envelope(body: Any) -> bool:
    return isinstance(body, dict) and set(body) == {"status", "type", "message", "data"}


def _in_records(body: Any, change: Callable[[Record], Record]) -> Any:
    """Change the record itself: inside an envelope, or each of a list."""
    if isinstance(body, list):
        return [change(one) for one in body]
    if _is_envelope(body):
        return body | {"data": _in_records(body["data"], change)}
    return change(body) if isinstance(body, dict) else body


def _changing(change: Callable[[Record, Params, str], Record]) -> After:
    async def effect(wire: Wire, params: Params, answer: Answer, result: str) -> None:
        body = _in_records(answer.body, lambda record: change(record, params, result))
        await wire.answer(Answer(answer.status, body))

    return effect


def _without_charge(record: Record, params: Params, result: str) -> Record:
    gone = {"charge"} if params["balance"] == "keep" else {"charge", "available_balance"}
    meta = record.get("meta")
    if not isinstance(meta, dict) or not isinstance(meta.get("estimate"), dict):
        return record
    estimate = {name: value for name, value in meta["estimate"].items() if name not in gone}
    return record | {"meta": meta | {"estimate": estimate}}


async def _missing_field(wire: Wire, params: Params, answer: Answer, result: str) -> None:
    gone = params["field"] or _ESSENTIAL.get(result, "id")
    body = _in_records(answer.body, lambda record: {name: record[name] for name in record if name != gone})
    await wire.answer(Answer(200, body))


def _with_unknown(value: Any, word: str) -> Any:
    """Put a word no enumeration knows wherever one stands, at any depth."""
    if isinstance(value, list):
        return [_with_unknown(one, word) for one in value]
    if not isinstance(value, dict):
        return value
    changed = {key: _with_unknown(member, word) for key, member in value.items()}
    return changed | {key: 99 if isinstance(changed[key], int) else word for key in _ENUMERATIONS & set(changed)}


async def _stall_body(wire: Wire, params: Params, answer: Answer, result: str) -> None:
    body = dump(answer.body)
    await wire.start(200, {"Content-Type": "application/json", "Content-Length": str(len(body))})
    await wire.send(body[: len(body) // 2], more=True)
    await wire.hold(params["seconds"])
    await wire.drop()


async def _slow_drip(wire: Wire, params: Params, answer: Answer, result: str) -> None:
    body = dump(answer.body)
    size = -(-len(body) // _STEPS)
    await wire.start(200, {"Content-Type": "application/json", "Content-Length": str(len(body))})
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    for part in parts[:-1]:
        await wire.send(part, more=True)
        await wire.pause(params["seconds"] / len(parts))
    await wire.send(parts[-1])


async def _broken_json(wire: Wire, params: Params, answer: Answer, result: str) -> None:
    body = dump(answer.body)
    await wire.answer(Answer(200, body[: max(1, len(body) // 2)]))


async def _odd_answer(wire: Wire, params: Params, answer: Answer, result: str) -> None:
    record = answer.body["data"] if _is_envelope(answer.body) else answer.body
    failure = {"status": params["body_status"], "message": "The request failed", "errors": []}
    queued = {"status": 200, "message": "The request was queued"}
    forms: dict[str, Answer] = {
        "empty_errors": Answer(200, _in_records(record, lambda one: one | {"errors": []})),
        "queued": Answer(200, queued | {"type": "queued", "data": record}),
        "status_beside": Answer(200, failure | {"data": record}),
        "status_alone": Answer(200, failure),
        "message": Answer(200, {"message": queued["message"]}),
        "redirect": Answer(302, failure | {"status": 302}, {"Location": "http://127.0.0.1:9/elsewhere"}),
    }
    await wire.answer(forms[params["form"]])


AFTER: dict[str, After] = {
    "cut_after": _instead(_cut),
    "error_500_after": _instead(BEFORE["error_500"]),
    "bad_gateway_after": _instead(BEFORE["bad_gateway"]),
    "stall_body": _stall_body,
    "slow_drip": _slow_drip,
    "broken_json": _broken_json,
    "no_charge": _changing(_without_charge),
    "missing_field": _missing_field,
    "unknown_enum": _changing(
        lambda record, params, result: record if result == "Deleted" else _with_unknown(record, params["value"])
    ),
    "extra_fields": _changing(lambda record, params, result: record | _EXTRA),
    "odd_answer": _odd_answer,
}
