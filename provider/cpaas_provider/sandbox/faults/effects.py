"""How each fault of ``faults`` shows on the wire."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from typing import Any

from cpaas_provider.sandbox.core.errors import FieldError, ServiceError
from cpaas_provider.sandbox.faults.rules import Rule
from cpaas_provider.sandbox.service.exchange import Answer, dump
from cpaas_provider.sandbox.service.wire import Wire

# What a client cannot do without, by result; elsewhere it is the id.
_ESSENTIAL = {"PhoneLookup": "msisdn", "RowAndTable": "row", "Deleted": "message"}
_ENUMERATIONS = {"status", "status_desc", "encoding", "type", "network"}
_STEPS = 200


def _refusal(status: int, message: str, headers: dict[str, str] | None = None) -> Answer:
    error = ServiceError(status, message, [FieldError("request", message, "fault")])
    return Answer(status, error.body(), headers or {})


def _retry_after(rule: Rule) -> dict[str, str]:
    seconds = rule.params["retry_after"]
    if seconds is None:
        return {}
    if rule.params["format"] == "http-date":
        return {"Retry-After": formatdate(time.time() + seconds, usegmt=True)}
    return {"Retry-After": f"{seconds:g}"}


async def _page_of_a_proxy(wire: Wire, status: int) -> None:
    name = "Bad Gateway" if status == 502 else "Gateway Timeout"
    page = f"<html><head><title>{status} {name}</title></head><body><h1>{status} {name}</h1></body></html>"
    await wire.raw(status, page.encode(), content_type="text/html")


# -- before acceptance ------------------------------------------------------------------------------------------------


async def _rate_limit(wire: Wire, rule: Rule) -> None:
    await wire.answer(_refusal(429, "Too many requests", _retry_after(rule)))


async def _unavailable(wire: Wire, rule: Rule) -> None:
    await wire.answer(_refusal(503, "The service is unavailable", _retry_after(rule)))


async def _error_500(wire: Wire, rule: Rule) -> None:
    await wire.answer(_refusal(500, "Internal error"))


async def _bad_gateway(wire: Wire, rule: Rule) -> None:
    await _page_of_a_proxy(wire, rule.params["status"])


async def _unauthorized(wire: Wire, rule: Rule) -> None:
    await wire.answer(_refusal(401, "Unauthorized", {"WWW-Authenticate": "Bearer"}))


async def _redirect(wire: Wire, rule: Rule) -> None:
    headers = {"Location": rule.params["location"]}
    await wire.answer(_refusal(rule.params["status"], "Moved elsewhere", headers))


async def _error_under_200(wire: Wire, rule: Rule) -> None:
    refusal = ServiceError(
        rule.params["body_status"], "The request failed", [FieldError("request", "refused", "missing")]
    )
    await wire.answer(Answer(200, refusal.body()))


async def _reject(wire: Wire, rule: Rule) -> None:
    refusal = ServiceError(rule.params["status"], rule.params["message"])
    await wire.answer(Answer(refusal.status, refusal.body()))


async def _cut(wire: Wire, rule: Rule) -> None:
    await wire.drop(rule.params["how"])


BEFORE: dict[str, Callable[[Wire, Rule], Awaitable[None]]] = {
    "rate_limit": _rate_limit,
    "unavailable": _unavailable,
    "error_500": _error_500,
    "bad_gateway": _bad_gateway,
    "unauthorized": _unauthorized,
    "redirect": _redirect,
    "error_under_200": _error_under_200,
    "reject": _reject,
    "cut_before": _cut,
}

# -- after acceptance -------------------------------------------------------------------------------------------------


def _in_resources(body: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """Change the resource itself: inside an envelope, or each of a list."""
    if isinstance(body, list):
        return [change(one) for one in body]
    if isinstance(body, dict) and set(body) == {"status", "type", "message", "data"}:
        return body | {"data": _in_resources(body["data"], change)}
    return change(body) if isinstance(body, dict) else body


def _unknown(value: Any, word: str) -> Any:
    """Put a word no enumeration knows wherever one stands, at any depth."""
    if isinstance(value, list):
        return [_unknown(one, word) for one in value]
    if not isinstance(value, dict):
        return value
    changed = {key: _unknown(member, word) for key, member in value.items()}
    for key in _ENUMERATIONS & set(changed):
        changed[key] = 99 if isinstance(changed[key], int) else word
    return changed


async def _cut_after(wire: Wire, rule: Rule, answer: Answer, result: str) -> None:
    await wire.drop(rule.params["how"])


async def _error_500_after(wire: Wire, rule: Rule, answer: Answer, result: str) -> None:
    await wire.answer(_refusal(500, "Internal error"))


async def _bad_gateway_after(wire: Wire, rule: Rule, answer: Answer, result: str) -> None:
    await _page_of_a_proxy(wire, rule.params["status"])


async def _stall_body(wire: Wire, rule: Rule, answer: Answer, result: str) -> None:
    body = dump(answer.body)
    await wire.start(200, {"Content-Type": "application/json", "Content-Length": str(len(body))})
    await wire.send(body[: len(body) // 2], more=True)
    await wire.hold(rule.params["seconds"])
    await wire.drop()


async def _slow_drip(wire: Wire, rule: Rule, answer: Answer, result: str) -> None:
    body = dump(answer.body)
    size = -(-len(body) // _STEPS)
    await wire.start(200, {"Content-Type": "application/json", "Content-Length": str(len(body))})
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    for part in parts[:-1]:
        await wire.send(part, more=True)
        await wire.pause(rule.params["seconds"] / len(parts))
    await wire.send(parts[-1])


async def _broken_json(wire: Wire, rule: Rule, answer: Answer, result: str) -> None:
    body = dump(answer.body)
    await wire.raw(200, body[: max(1, len(body) // 2)])


async def _no_charge(wire: Wire, rule: Rule, answer: Answer, result: str) -> None:
    gone = {"charge"} if rule.params["balance"] == "keep" else {"charge", "available_balance"}

    def without(one: dict[str, Any]) -> dict[str, Any]:
        meta = one.get("meta")
        if not isinstance(meta, dict) or not isinstance(meta.get("estimate"), dict):
            return one
        estimate = {name: value for name, value in meta["estimate"].items() if name not in gone}
        return one | {"meta": meta | {"estimate": estimate}}

    await wire.answer(Answer(answer.status, _in_resources(answer.body, without)))


async def _missing_field(wire: Wire, rule: Rule, answer: Answer, result: str) -> None:
    gone = rule.params["field"] or _ESSENTIAL.get(result, "id")
    without = _in_resources(answer.body, lambda one: {key: one[key] for key in one if key != gone})
    await wire.answer(Answer(200, without))


async def _unknown_enum(wire: Wire, rule: Rule, answer: Answer, result: str) -> None:
    word = rule.params["value"]
    body = answer.body if result == "Deleted" else _in_resources(answer.body, lambda one: _unknown(one, word))
    await wire.answer(Answer(answer.status, body))


async def _extra_fields(wire: Wire, rule: Rule, answer: Answer, result: str) -> None:
    extra = {"x_new": True, "links": {"self": "/somewhere", "items": [1, None, {"deep": "value"}]}}
    await wire.answer(Answer(answer.status, _in_resources(answer.body, lambda one: one | extra)))


def _bare(body: Any) -> Any:
    """Take a record out of its envelope."""
    return body["data"] if isinstance(body, dict) and set(body) == {"status", "type", "message", "data"} else body


async def _odd_answer(wire: Wire, rule: Rule, answer: Answer, result: str) -> None:
    record, named = _bare(answer.body), rule.params["body_status"]
    failure = {"status": named, "message": "The request failed", "errors": []}
    queued = {"status": 200, "message": "The request was queued"}
    forms: dict[str, Answer] = {
        "empty_errors": Answer(200, _in_resources(record, lambda one: one | {"errors": []})),
        "queued": Answer(200, queued | {"type": "queued", "data": record}),
        "status_beside": Answer(200, failure | {"data": record}),
        "status_alone": Answer(200, failure),
        "message": Answer(200, {"message": queued["message"]}),
        "redirect": Answer(302, failure | {"status": 302}, {"Location": "http://127.0.0.1:9/elsewhere"}),
    }
    await wire.answer(forms[rule.params["form"]])


AFTER: dict[str, Callable[[Wire, Rule, Answer, str], Awaitable[None]]] = {
    "cut_after": _cut_after,
    "error_500_after": _error_500_after,
    "bad_gateway_after": _bad_gateway_after,
    "stall_body": _stall_body,
    "slow_drip": _slow_drip,
    "broken_json": _broken_json,
    "no_charge": _no_charge,
    "missing_field": _missing_field,
    "unknown_enum": _unknown_enum,
    "extra_fields": _extra_fields,
    "odd_answer": _odd_answer,
}
