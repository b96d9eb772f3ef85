"""Which outcomes of a request PROMISES.md allows: an oracle for tests, written from the promises alone.

``judge`` takes what was asked and what was answered. Questions on which the promises are silent, so that more than one
verdict is allowed:

* A 429 by status line whose body speaks of acceptance, and a 503 with Retry-After the like: *not sent* or *unknown*.
* A negated word of acceptance ("could not be sent"), a word in another language, a figure: *rejected* or *unknown*.
* A status in a body without ``message``, or with fields that the documented error does not have: what it names, or
  *unknown*.
* An id of another name (``request_id``), a status as text ("400"), keys that the documented error does not have.
* A 401 or 403 whose body speaks of acceptance: *rejected*, whatever the body is (FACTS.md), or *unknown*.
* An id at a place where the contract has none, but not inside ``errors``: *accepted* or *unknown*.
* A recipient named by an index, or in another notation than the request's: rejected within the request, or accepted.
  So is a recipient who is named plainly beside an index that counts from 0 or from 1.
* A purchase whose body has a ``state`` or a second ``status``, or errors at any depth: *accepted* or *unknown*.
* A purchase refused under a success: *rejected* by the table of outcomes, *unknown* by FACTS.md.
* A refusal under another 2xx than 200, as *created* and *accepted* are words of acceptance: what it is, or *unknown*.
* An echo of other recipients than the request's: *accepted*, with a word, or *unknown*.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from tests.unit.api.outcome_evidence import Evidence, Level, as_code, id_level, in_body, in_text, is_note
from tests.unit.api.outcome_purchases import Purchase, purchase_outcomes
from tests.unit.api.outcome_recipients import rejected_within
from tests.unit.api.question import Answer, Question


class Verdict(enum.Enum):
    ACCEPTED = "accepted"
    NOT_SENT = "not sent"
    REJECTED = "rejected"
    UNKNOWN = "unknown"


ACCEPTED, NOT_SENT, REJECTED, UNKNOWN = Verdict
Verdicts = frozenset[Verdict]


@dataclass(frozen=True)
class Judgement:
    """What may be said of a request.

    :param rejected: the recipients that must be rejected within an accepted request
    :param rejectable: those that may be
    """

    verdicts: Verdicts
    rejected: frozenset[str] = frozenset()
    rejectable: frozenset[str] = frozenset()


_PURCHASES = {"buy_airtime"}
_ACTING = {"send_sms", "send_email", "request_otp", "create_contact_row", *_PURCHASES}
_DELETING = {"delete_contact_row", "revoke_otp"}
_ROWS = {"create_contact_row", "update_contact_row", "get_contact_row"}
_OTHER_FIELDS = {
    "send_sms": {"template_id", "personalisation", "external_ref", "is_trackable", "callback", "channel"},
    "send_email": {"template_id", "personalisation", "external_ref", "callback", "from_name", "subject", "reply_to"},
    "request_otp": {"length", "expires_in", "token", "channel"},
    "buy_airtime": {"callback", "external_ref"},
}
_OTP_FIELDS = ("recipient", "status", "status_desc", "created_datetime")
_ENVELOPE = {"status", "type", "message", "data"}
_NO_PROOF = (408, 460, 499)


class _NotJson:
    """Stands for a body that is no JSON."""


def judge(question: Question, answer: Answer) -> Judgement:
    """Return what PROMISES.md allows to be made of an answer."""
    body = _parse(answer.body)
    if isinstance(body, _NotJson):
        found = in_text(answer.body.decode(errors="replace"), question.fields)
    else:
        found = in_body(body, question.fields)
    if 200 <= answer.status < 300:
        return _of_success(question, answer, body, found)
    return Judgement(_of_failure(question, answer, found))


def _parse(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return _NotJson()


def _is_odd_json(answer: Answer) -> bool:
    """Whether a body is no JSON by its standard, and read by many all the same."""
    return b"NaN" in answer.body or b"Infinity" in answer.body or answer.body.startswith(b"\xef\xbb\xbf")


# -- by the status line -----------------------------------------------------------------------------------------------


def _of_failure(question: Question, answer: Answer, found: Evidence) -> Verdicts:
    status, is_purchase = answer.status, question.operation in _PURCHASES
    if status == 429:
        return _with(UNKNOWN, found.level, NOT_SENT)
    if status == 425 and not is_purchase:
        return _with(UNKNOWN, found.level, NOT_SENT)
    if status == 503 and answer.retry_after is not None and not is_purchase:
        doubt = Level.NO if _is_wait(answer.retry_after) else Level.DOUBT
        return _with(UNKNOWN, max(found.acceptance, doubt), NOT_SENT)
    if not 400 <= status < 500 or status in _NO_PROOF:
        # What is only read cannot be done twice.
        is_odd = status < 400 and question.operation not in _ACTING
        return frozenset({UNKNOWN, REJECTED} if is_odd else {UNKNOWN}) | _if_limited(question, found, harmless=is_odd)
    allowed = _of_proof(Level.CLEAR, found.level) | _if_limited(question, found)
    if status == 425 or _is_odd_json(answer):
        allowed |= {UNKNOWN}
    if status in (401, 403):
        # FACTS.md: whatever the body is.
        allowed |= {REJECTED}
    return allowed if question.operation in _ACTING else allowed | {REJECTED}


def _if_limited(question: Question, found: Evidence, *, harmless: bool = True) -> Verdicts:
    """Return what is allowed besides, where a body says that the service did nothing for now."""
    is_limited = found.limited or (found.early and question.operation not in _PURCHASES)
    if not is_limited or (question.operation in _ACTING and found.acceptance is Level.CLEAR):
        return frozenset()
    return frozenset({NOT_SENT, UNKNOWN} if harmless else ())


def _with(other: Verdict, level: Level, verdict: Verdict) -> Verdicts:
    return frozenset({verdict, other} if level else {verdict})


def _is_wait(retry_after: str) -> bool:
    if re.fullmatch(r"\d{1,6}", retry_after, re.ASCII):
        return True
    try:
        return parsedate_to_datetime(retry_after) is not None
    except ValueError:
        return False


def _of_proof(proof: Level, against: Level) -> Verdicts:
    """Return the verdicts where there is this much proof of a rejection, and this much against it."""
    if not proof or against is Level.CLEAR:
        return frozenset({UNKNOWN})
    if proof is Level.CLEAR and not against:
        return frozenset({REJECTED})
    return frozenset({REJECTED, UNKNOWN})


# -- under a success --------------------------------------------------------------------------------------------------


def _of_success(question: Question, answer: Answer, body: Any, found: Evidence) -> Judgement:
    if question.operation not in _ACTING:
        return Judgement(_of_harmless(question, answer, body, found))
    if isinstance(body, _NotJson):
        return Judgement(frozenset({UNKNOWN}))
    allowed = _of_acting(question, body, found)
    if answer.status != 200 and allowed & {REJECTED, NOT_SENT}:
        # "Created" and "Accepted" speak of acceptance themselves.
        allowed |= {UNKNOWN}
    if _is_odd_json(answer):
        allowed |= {UNKNOWN}
    if question.recipients and ACCEPTED in allowed:
        return Judgement(allowed, *rejected_within(question, body))
    return Judgement(allowed)


def _of_acting(question: Question, body: Any, found: Evidence) -> Verdicts:
    holders = list(_holders(question, body))
    levels = [id_level(holder.get("id")) for holder in holders]
    if any(_is_of_another(question, holder) for holder in holders):
        return frozenset({UNKNOWN})
    if Level.CLEAR in levels:
        return _of_accepted(question, body, found, holders, levels)
    allowed = _of_refusal(question, body, found, has_dead_id=any("id" in holder for holder in holders))
    if Level.DOUBT in levels or _has_id_outside_errors(body):
        allowed |= {ACCEPTED, UNKNOWN}
    return allowed


def _holders(question: Question, body: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects in which the contract has the resource's id: bare, and inside an envelope."""
    for holder in (body, body.get("data") if isinstance(body, dict) else None):
        if isinstance(holder, dict):
            row = holder.get("row")
            if question.operation not in _ROWS:
                yield holder
            elif isinstance(row, dict):
                yield row


def _is_of_another(question: Question, holder: Mapping[str, Any]) -> bool:
    ours, echoed = question.fields.get("external_ref"), holder.get("external_ref")
    return ours is not None and isinstance(echoed, str) and bool(echoed.strip()) and echoed.strip() != ours


def _of_accepted(
    question: Question, body: dict[str, Any], found: Evidence, holders: list[dict[str, Any]], levels: list[Level]
) -> Verdicts:
    record = holders[levels.index(Level.CLEAR)]
    is_documented = record is body or body.keys() >= _ENVELOPE or "row" in body
    is_one = len([holder for holder in holders if "id" in holder]) == 1
    doubts = [
        not is_documented,
        not is_one,
        question.operation in _ROWS and not isinstance(record.get("columns"), dict),
        question.operation == "request_otp" and not _is_passcode(record, question),
        _echoes_others(question, record),
        _echoes_odd_reference(question, record),
    ]
    allowed = frozenset({ACCEPTED, UNKNOWN} if any(doubts) else {ACCEPTED})
    is_odd = found.fault or _has_failure(body, body, record)
    is_odd = is_odd or (record is not body and body.get("status") != 200)
    if question.operation in _PURCHASES and is_odd:
        # FACTS.md: of a purchase, a failure in the body is unknown.
        allowed |= {UNKNOWN}
    if question.operation in _PURCHASES and Purchase.BOUGHT not in purchase_outcomes(body):
        allowed |= {UNKNOWN, REJECTED} if Purchase.FAILED in purchase_outcomes(body) else {UNKNOWN}
    elif question.operation in _PURCHASES and len(purchase_outcomes(body)) > 1:
        allowed |= {UNKNOWN}
    return allowed


def _has_failure(value: Any, *records: Any) -> bool:
    """Whether anything in the body of a purchase may speak of its failure.

    :param records: the objects with a status of their own
    """
    members = value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else ())
    speaks = {"state", "error", "errors"} | (set() if any(value is record for record in records) else {"status"})
    return any((name in speaks and part) or _has_failure(part, *records) for name, part in members)


def _is_passcode(record: Mapping[str, Any], question: Question) -> bool:
    return (
        all(name in record for name in _OTP_FIELDS)
        and record["recipient"] == question.fields.get("recipient")
        and record["status"] == 1
        and record["status_desc"] == "SENT"
    )


def _echoes_others(question: Question, record: Mapping[str, Any]) -> bool:
    for name in ("recipients", "recipient"):
        if name in record and question.operation != "create_contact_row":
            echoed = record[name] if isinstance(record[name], list) else str(record[name]).split(",")
            if sorted(map(str, echoed)) != sorted(str(question.fields.get(name)).split(",")):
                return True
    return False


def _echoes_odd_reference(question: Question, record: Mapping[str, Any]) -> bool:
    echoed = record.get("external_ref")
    return echoed is not None and echoed != question.fields.get("external_ref")


def _has_id_outside_errors(value: Any) -> bool:
    """Whether an id may be that of the resource although it is not where the contract has it."""
    if isinstance(value, list):
        return any(map(_has_id_outside_errors, value))
    if not isinstance(value, dict):
        return False
    return any(
        id_level(member) > Level.NO if _is_id(name) else _has_id_outside_errors(member)
        for name, member in value.items()
        if name.casefold() not in ("errors", "error")
    )


def _is_id(name: str) -> bool:
    return re.sub(r"[^a-z]", "", name.casefold()) in ("id", "messageid", "transactionid")


def _of_refusal(question: Question, body: Any, found: Evidence, *, has_dead_id: bool = False) -> Verdicts:
    """Return the verdicts on a success without an id."""
    status = body.get("status") if isinstance(body, dict) else None
    if found.limited is Level.CLEAR and status == 429:
        is_plain = "message" in body and body.keys() <= {"status", "type", "message", "errors"}
        doubt = max(found.level, Level.NO if is_plain else Level.DOUBT)
        return frozenset({UNKNOWN}) if found.acceptance is Level.CLEAR else _with(UNKNOWN, doubt, NOT_SENT)
    code = as_code(status)
    if code in _NO_PROOF:
        return frozenset({UNKNOWN})
    proof = max(documented(question, body), _proof_by_status(body, code))
    if has_dead_id or question.operation in _PURCHASES:
        proof = min(proof, Level.DOUBT)
    allowed = _of_proof(proof, found.level)
    return allowed | _if_limited(question, found)


def _proof_by_status(body: Any, code: int | None) -> Level:
    if code is None or not 400 <= code < 500 or code == 429:
        return Level.NO
    is_exact = type(body["status"]) is int and code != 425
    is_plain = is_exact and "message" in body and body.keys() <= {"status", "message", "errors"}
    return Level.CLEAR if is_plain else Level.DOUBT


def documented(question: Question, body: Any) -> Level:
    """Say whether a body is the documented error and nothing else (contract.md 7)."""
    if not isinstance(body, dict):
        return Level.NO
    inner = body.get("data")
    if isinstance(inner, dict) and "errors" in inner and "errors" not in body:
        return min(documented(question, inner), Level.DOUBT)
    message, items = body.get("message"), body.get("errors")
    if not isinstance(message, str) or not isinstance(items, list) or not items:
        return Level.NO
    is_exact = body.keys() <= {"message", "errors", "status"} and bool(message.strip())
    if "status" in body:
        code = as_code(body["status"])
        is_exact = is_exact and type(body["status"]) is int and (code == 200 or (code is not None and code >= 400))
    return min(Level.CLEAR if is_exact else Level.DOUBT, *(_item_level(question, item) for item in items), Level.CLEAR)


def _item_level(question: Question, item: Any) -> Level:
    if not isinstance(item, dict) or not isinstance(item.get("field"), str):
        return Level.NO
    name, message = item["field"], item.get("message")
    stem = re.split(r"[.\[/]", name.strip().strip("$./").casefold())[0]
    known = (
        question.fields.keys() | _OTHER_FIELDS.get(question.operation, set()) | set(question.fields.get("columns", ()))
    )
    if stem not in known and name not in question.recipients:
        return Level.NO
    is_exact = name in question.fields and item.keys() <= {"field", "message", "type"} and not is_note(item)
    is_exact = is_exact and isinstance(message, str) and bool(message.strip())
    return Level.CLEAR if is_exact and isinstance(item.get("type", ""), str) else Level.DOUBT


# -- what can be repeated without harm --------------------------------------------------------------------------------


def _of_harmless(question: Question, answer: Answer, body: Any, found: Evidence) -> Verdicts:
    any_failure = frozenset({REJECTED, UNKNOWN})
    if isinstance(body, _NotJson):
        if question.operation in _DELETING:
            return any_failure | {ACCEPTED} if answer.body.strip() else frozenset({ACCEPTED})
        return any_failure
    if documented(question, body) is Level.CLEAR and not found.level and not found.limited:
        return frozenset({REJECTED})
    allowed = any_failure | _if_limited(question, found)
    if question.operation in _DELETING:
        return allowed | {ACCEPTED} if documented(question, body) is not Level.CLEAR else allowed
    if question.operation == "lookup_phone":
        return _of_lookup(question, body, allowed)
    if _is_whole(question, body):
        return frozenset({ACCEPTED})
    return allowed | {ACCEPTED} if found.acceptance else allowed


def _of_lookup(question: Question, body: Any, failures: Verdicts) -> Verdicts:
    record = body
    if isinstance(body, dict) and "msisdn" not in body and isinstance(body.get("data"), dict):
        record = body["data"]
    if not isinstance(record, dict):
        return failures
    if record.get("msisdn") != question.fields["phone"]:
        # The same number may be written in another way.
        is_same = str(record.get("msisdn")).strip("+ ") == question.fields["phone"]
        return failures | {ACCEPTED} if is_same else failures
    if any(isinstance(item, dict) and "message" in item for item in _errors(body) + _errors(record)):
        return failures
    is_plain = record.keys() <= {"msisdn", "operator", "country", "ported", "dnd"} and (
        record is body or (body.keys() == _ENVELOPE and body["status"] == 200)
    )
    return frozenset({ACCEPTED}) if is_plain else failures | {ACCEPTED}


def _errors(record: Mapping[str, Any]) -> list[Any]:
    errors = record.get("errors")
    return errors if isinstance(errors, list) else []


def _is_whole(question: Question, body: Any) -> bool:
    """Whether the body is the plain resource of a read or an update, bare or in an envelope, and nothing else."""
    if isinstance(body, dict) and body.keys() == _ENVELOPE and body["status"] == 200:
        body = body["data"]
    if not isinstance(body, dict):
        return False
    if question.operation in _ROWS:
        row = body.get("row")
        is_row = isinstance(row, dict) and row.keys() == {"id", "columns"} and isinstance(row["columns"], dict)
        return is_row and body.keys() == {"row"} and row["id"] == question.fields.get("row_id")
    return body.keys() == {"id", *_OTP_FIELDS} and body["id"] == question.fields.get("id") and body["status"] == 1
