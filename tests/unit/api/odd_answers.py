"""Generates what a service may answer, from the contract's own forms to the oddest: for the oracle and the models."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

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

words = st.sampled_from(ACCEPTANCE + FAULTS + REFUSALS + DOUBTFUL)
ids = st.one_of(st.sampled_from(GOOD_IDS), st.sampled_from(DEAD_IDS), st.sampled_from(ODD_IDS))


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


def _item(question: Question) -> st.SearchStrategy[Any]:
    field = st.sampled_from(
        [*question.fields, *question.fields, "template_id", "foo", "recipients[1]", "Recipients ", None]
    )
    message = st.one_of(st.sampled_from(REFUSALS), words, _about_recipients(question))
    documented = st.fixed_dictionaries(
        {"field": field, "message": message}, optional={"type": st.sampled_from([*TYPES, *TYPES, *NOTES])}
    )
    plain = st.fixed_dictionaries(
        {
            "field": st.sampled_from(list(question.fields)),
            "message": st.sampled_from(REFUSALS),
            "type": st.sampled_from(TYPES),
        }
    )
    odd = st.one_of(
        st.sampled_from([None, {}, "", 0, True]),
        words,
        st.fixed_dictionaries({"message": words}),
        st.builds(lambda code: {"code": code}, st.sampled_from(CODES)),
        st.builds(lambda item, id_: {**item, "id": id_}, documented, ids),
        st.builds(lambda item, word: {**item, "status": word}, documented, words),
    )
    return st.one_of(plain, plain, documented, _naming(question), odd)


def _about_recipients(question: Question) -> st.SearchStrategy[str]:
    if not question.recipients:
        return st.just("is invalid")
    names = st.sampled_from(question.recipients)
    return st.one_of(
        st.builds("{} is not valid".format, names),
        st.builds("{} and {} are not valid".format, names, names),
        st.builds("{} accepted, {} refused".format, names, names),
        st.builds("+{}: unknown number".format, names),
        st.builds("{}99 is not valid".format, names),
        st.builds("{} will be delivered later".format, names),
    )


def _naming(question: Question) -> st.SearchStrategy[Any]:
    """Return items of ``errors`` that name a recipient, in more and in less documented forms."""
    if not question.recipients:
        return st.just({"field": next(iter(question.fields)), "message": "is invalid", "type": "invalid"})
    names = st.sampled_from(question.recipients)
    indexes = st.integers(0, len(question.recipients))
    return st.one_of(
        st.builds(
            lambda name, type_: {"field": "recipients", "message": f"{name} is not valid", "type": type_},
            names,
            st.sampled_from([*TYPES, *NOTES]),
        ),
        st.builds(lambda text: {"field": "recipients", "message": text}, _about_recipients(question)),
        st.builds(lambda text: {"field": "content", "message": text, "type": "invalid"}, _about_recipients(question)),
        st.builds(lambda at: {"field": f"recipients[{at}]", "message": "is invalid", "type": "invalid"}, indexes),
        st.builds(lambda at: {"field": f"recipients.{at}", "message": "is invalid"}, indexes),
        st.builds(lambda name: {"field": name, "message": "is invalid", "type": "invalid"}, names),
        st.builds(lambda name: f"{name} is invalid", names),
    )


def documented_errors(question: Question) -> st.SearchStrategy[dict[str, Any]]:
    """Return errors as the contract shows them, of fields of the request."""
    item = st.fixed_dictionaries(
        {
            "field": st.sampled_from(list(question.fields)),
            "message": st.sampled_from(REFUSALS),
            "type": st.sampled_from(TYPES),
        }
    )
    return st.fixed_dictionaries(
        {"message": st.sampled_from(REFUSALS), "errors": st.lists(item, min_size=1, max_size=3)},
        optional={"status": st.sampled_from([200, 400, 422])},
    )


def _foreign_forms(question: Question) -> st.SearchStrategy[Any]:
    """Return the shapes in which other interfaces answer."""
    graphql = st.builds(
        lambda word, code: {
            "data": None,
            "errors": [{"message": word, "path": ["send"], "extensions": {"code": code}}],
        },
        words,
        st.sampled_from(["BAD_USER_INPUT", "INTERNAL_SERVER_ERROR", "503"]),
    )
    json_api = st.builds(
        lambda code, word, more: {"errors": [{"status": code, "title": word, "source": {"pointer": "/data"}, **more}]},
        st.sampled_from(CODES),
        words,
        st.one_of(st.just({}), st.builds(lambda id_: {"id": id_}, ids)),
    )
    problem = st.builds(
        lambda code, word: {"type": "about:blank", "title": word, "status": code, "detail": word},
        st.sampled_from(CODES),
        words,
    )
    per_recipient = st.builds(
        lambda said, name: {name: [{"to": one, "status": said} for one in question.recipients or ("2348031234567",)]},
        words,
        st.sampled_from(["data", "results", "errors", "messages", "recipients"]),
    )
    figures = st.builds(lambda number, name: {name: number}, st.integers(0, 3), st.sampled_from(["accepted", "sent"]))
    return st.one_of(graphql, json_api, problem, per_recipient, figures)


def _shapes(question: Question) -> st.SearchStrategy[Any]:
    records = st.builds(lambda id_: resource(question, id_), ids)
    items = st.lists(_item(question), max_size=4)
    errors = st.fixed_dictionaries(
        {"message": words, "errors": items}, optional={"status": st.sampled_from(CODES), "type": words}
    )
    statuses = st.builds(lambda code, word: {"status": code, "message": word}, st.sampled_from(CODES), words)
    return st.one_of(
        st.just(resource(question)),
        st.just(envelope(resource(question))),
        documented_errors(question),
        documented_errors(question),
        records,
        st.builds(envelope, records, st.sampled_from(CODES), words),
        st.builds(lambda record, error: {**record, **error}, records, errors),
        st.builds(lambda record, error: {**error, "data": record}, records, errors),
        errors,
        statuses,
        _foreign_forms(question),
        st.one_of(words, st.sampled_from([None, True, 0, 7, "", [], {}])),
        st.lists(records, max_size=2),
        words.map(lambda word: {"message": word}),
    )


def _wrapped(value: Any, holders: list[str]) -> Any:
    for holder in holders:
        value = [value] if holder == "x" else {holder: value}
    return value


def _additions(question: Question) -> st.SearchStrategy[dict[str, Any]]:
    """Return what may stand in a body besides, at depths up to six."""
    one = st.one_of(
        st.builds(lambda key, value: {key: value}, st.sampled_from(_KEYS_OF_IDS), ids),
        st.builds(lambda key, value: {key: value}, st.sampled_from(_KEYS_OF_WORDS), words),
        st.builds(lambda key, value: {key: value}, st.sampled_from(_KEYS_OF_CODES), st.sampled_from(CODES)),
        st.builds(lambda key, value: {key: value}, words, st.sampled_from([True, False, 1, 0, ["2348031234567"], []])),
        st.builds(lambda ref: {"external_ref": ref}, st.sampled_from(["another-ref", "", None, 7])),
        st.builds(lambda items: {"errors": items}, st.lists(_item(question), max_size=3)),
        st.builds(lambda flag: {"success": flag}, st.booleans()),
    )
    deep = st.builds(
        lambda value, holders, key: {key: _wrapped(value, holders)},
        one,
        st.lists(st.sampled_from(_HOLDERS), max_size=5),
        st.sampled_from(_HOLDERS),
    )
    return st.one_of(one, deep)


def _places(value: Any) -> list[dict[str, Any]]:
    """Return every object in a value."""
    if isinstance(value, list):
        return [place for member in value for place in _places(member)]
    if isinstance(value, dict):
        return [value, *(place for member in value.values() for place in _places(member))]
    return []


@st.composite
def bodies(draw: st.DrawFn, question: Question) -> Any:
    """Return a body as a JSON value."""
    body = copy.deepcopy(draw(_shapes(question)))
    for _ in range(draw(st.sampled_from([0, 0, 1, 1, 2]))):
        places = _places(body)
        if places:
            place = places[draw(st.integers(0, len(places) - 1))]
            addition = draw(_additions(question))
            # What is there stays: the record's own fields are its own.
            place.update({key: value for key, value in addition.items() if key not in place})
    return body


TEXTS = (
    b"", b"   ", b"Bad request", b"<html><head><title>400</title></head><body><h1>Bad Request</h1></body></html>",
    b"OK", b"accepted", b"Your message was queued", b"upstream timed out", b"<h1>502 Bad Gateway</h1>", b"\xff\xfe",
    b"[" * 100_000, b'{"id":"msg-1","a":' * 50_000,
)  # fmt: skip


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


def raw_bodies(question: Question) -> st.SearchStrategy[bytes]:
    """Return a body as it goes over the wire: mostly whole JSON."""
    whole = bodies(question).map(encoded)
    changes: tuple[Callable[[bytes], bytes], ...] = (
        lambda raw: raw[: len(raw) // 2],
        lambda raw: raw[:-1],
        lambda raw: b"\xef\xbb\xbf" + raw,
    )
    changed = st.builds(lambda raw, change: change(raw), whole, st.sampled_from(changes))
    return st.one_of(whole, whole, whole, whole, changed, st.sampled_from(TEXTS))


def answers(question: Question) -> st.SearchStrategy[Answer]:
    """Return anything that may come back for a request."""
    return st.builds(Answer, st.sampled_from(STATUS_LINES), raw_bodies(question), st.sampled_from(RETRY_AFTER))
