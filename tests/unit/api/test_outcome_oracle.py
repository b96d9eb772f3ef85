"""Whatever a service answers, the client's verdict is one that PROMISES.md allows."""

from __future__ import annotations

import random
from collections.abc import Set as AbstractSet
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpaas_provider.api import errors
from cpaas_provider.api import operations as ask
from cpaas_provider.api.core import Call, run_call
from cpaas_provider.api.http.wire import HttpResponse
from cpaas_provider.api.rate_limit import RateLimiter
from cpaas_provider.api.settings import ClientSettings
from tests.unit.api.generated_answers import DEAD_IDS, OddAnswers, encoded
from tests.unit.api.outcome_oracle import (
    ACCEPTED,
    NOT_SENT,
    REJECTED,
    UNKNOWN,
    Judgement,
    Verdict,
    judge,
)
from tests.unit.api.question import Answer, Question

ADA, BO, CY = "2348031234567", "2348031234568", "2348031234569"
REFERENCE = "order-1001"
SETTINGS = ClientSettings("https://cpaas.example.com/v1", "sk_live_4eC39HqLyjWDarjtT1zdp7dc", max_retries=0)
EACH = 5
"""Answers of an example: to make one takes less time than the example."""

CALLS: dict[str, Call[Any]] = {
    "send_sms": ask.send_sms([ADA, BO, CY], "Clinic", "Hello", external_ref=REFERENCE),
    "send_sms to one": ask.send_sms(ADA, "Clinic", "Hello"),
    "send_email": ask.send_email(["ada@example.org", "bo@example.org"], "us@example.com", "Hello", subject="News"),
    "request_otp": ask.request_otp(ADA, length=6),
    "buy_airtime": ask.buy_airtime("MTN", 100, ADA, external_ref=REFERENCE),
    "create_contact_row": ask.create_contact_row({"name": "Ada"}),
    "update_contact_row": ask.update_contact_row("row-1", {"name": "Ada"}),
    "delete_contact_row": ask.delete_contact_row("row-1"),
    "get_contact_row": ask.get_contact_row("row-1"),
    "get_otp": ask.get_otp("otp-1"),
    "lookup_phone": ask.lookup_phone(ADA),
}


def asked(name: str) -> Question:
    call = CALLS[name]
    return Question(call.endpoint.operation, call.build(SETTINGS)[1])


def verdict_of(name: str, answer: Answer) -> tuple[Verdict, Any]:
    """Return the client's verdict on an answer, and what it returns or raises."""
    steps = run_call(CALLS[name], SETTINGS, RateLimiter(1_000))
    next(steps)
    try:
        steps.send(HttpResponse(answer.status, answer.retry_after, answer.body))
    except StopIteration as end:
        return ACCEPTED, end.value
    except errors.CpaasNotSentError as error:
        return NOT_SENT, error
    except errors.CpaasRejectedError as error:
        return REJECTED, error
    except errors.CpaasUnknownOutcomeError as error:
        return UNKNOWN, error
    raise AssertionError("the client asked for more")


def words(verdicts: AbstractSet[Verdict]) -> str:
    return " or ".join(sorted(verdict.value for verdict in verdicts))


def check(name: str, answer: Answer) -> None:
    """Compare the client's verdict with what the promises allow."""
    judgement = judge(asked(name), answer)
    verdict, result = verdict_of(name, answer)
    case = f"{name}: {answer.status} {answer.body[:2_000]!r}"
    assert verdict in judgement.verdicts, f"{case} is {verdict.value}, and must be {words(judgement.verdicts)}"
    if verdict is ACCEPTED and asked(name).recipients:
        rejected = frozenset(result.rejected_recipients)
        wrong = rejected - judgement.rejectable
        assert not wrong, f"{case}: {set(wrong)} are rejected, which nothing says of them alone"
        assert judgement.rejected <= rejected, f"{case}: {set(judgement.rejected - rejected)} are not rejected"


@pytest.mark.parametrize("name", CALLS)
@given(seed=st.integers(0, 2**32))
def test_verdict_on_any_answer_is_one_that_the_promises_allow(name: str, seed: int) -> None:
    odd = OddAnswers(random.Random(seed), asked(name))
    for _ in range(EACH):
        check(name, odd.answer())
        # Under 200 all depends on the body.
        check(name, Answer(200, odd.raw_body()))


# -- cases by hand: what the oracle itself must say, and the client ----------------------------------------------------

ITEM = {"field": "sender_id", "message": "is invalid", "type": "invalid"}
DOCUMENTED = {"message": "The request is not valid", "errors": [ITEM]}
RECORD = {"id": "msg-1", "recipients": [ADA, BO, CY]}
CAREFUL = {REJECTED, UNKNOWN}


def about(recipient: str, **more: Any) -> dict[str, Any]:
    return {"field": "recipients", "message": f"{recipient} is not valid", "type": "invalid", **more}


CASES: list[tuple[int, Any, set[Verdict]]] = [
    (200, RECORD, {ACCEPTED}),
    (202, {"status": 202, "type": "queued", "message": "Queued", "data": RECORD}, {ACCEPTED}),
    (200, {"status": 503, "message": "Service unavailable", "errors": [ITEM], **RECORD}, {ACCEPTED}),
    (200, {**RECORD, "id": 7}, {ACCEPTED}),
    (200, {**RECORD, "external_ref": "of-another"}, {UNKNOWN}),
    *((200, {**RECORD, "id": id_}, {UNKNOWN}) for id_ in DEAD_IDS),
    *((200, {**DOCUMENTED, "id": id_}, CAREFUL) for id_ in DEAD_IDS),
    (200, DOCUMENTED, {REJECTED}),
    (200, {**DOCUMENTED, "status": 200}, {REJECTED}),
    (200, {"status": 400, "message": "The request is not valid"}, {REJECTED}),
    (200, {"status": 429, "message": "Too many requests", "errors": []}, {NOT_SENT}),
    (200, {"type": "about:blank", "title": "Too many requests", "status": 429}, {NOT_SENT, UNKNOWN}),
    (200, {"message": "Gateway timeout", "errors": ["upstream timed out"]}, {UNKNOWN}),
    (200, {"message": "It failed", "errors": [None]}, {UNKNOWN}),
    (200, {"message": "It failed", "errors": [{}]}, {UNKNOWN}),
    (200, {"message": "It failed", "errors": [{**ITEM, "code": 504}]}, {UNKNOWN}),
    (200, {"message": "It failed", "errors": [{**ITEM, "status": "503"}]}, {UNKNOWN}),
    (200, {"message": "It failed", "errors": [{"field": "request", "message": "refused"}]}, {UNKNOWN}),
    (200, {"message": "It failed", "errors": [{**ITEM, "id": "msg-1"}]}, {UNKNOWN}),
    (200, {"errors": [{"message": "It failed", "path": ["send"]}], "data": None}, {UNKNOWN}),
    (200, {"errors": [{"status": "422", "title": "Invalid", "source": {"pointer": "/data"}}]}, {UNKNOWN}),
    (200, {**DOCUMENTED, "message": "Message queued"}, {UNKNOWN}),
    (200, {**DOCUMENTED, "code": "ACCEPTED"}, {UNKNOWN}),
    (200, {**DOCUMENTED, "accepted": [ADA]}, {UNKNOWN}),
    (200, {"status": 400, "message": "Accepted", "errors": [ITEM]}, {UNKNOWN}),
    (200, {"message": "Accepted"}, {UNKNOWN}),
    (200, {"status": 499, "message": "Closed", "errors": [ITEM]}, {UNKNOWN}),
    (200, {"status": 500, "message": "It failed", "errors": []}, {UNKNOWN}),
    (400, DOCUMENTED, {REJECTED}),
    (422, {"status": 422, **DOCUMENTED}, {REJECTED}),
    (400, {"message": "Insufficient balance"}, {REJECTED}),
    (400, {"title": "Bad Request", "status": 400, "type": "about:blank"}, {REJECTED}),
    (400, {"id": "msg-1", **DOCUMENTED}, {UNKNOWN}),
    (400, {"id": 0, **DOCUMENTED}, {REJECTED}),
    (400, {"message": "Bad", "errors": [{**ITEM, "id": "msg-1"}]}, {UNKNOWN}),
    (400, {"message": "Bad", "data": {"result": [{"messages": [{"id": 7}]}]}}, {UNKNOWN}),
    (400, {"message": "Bad", "errors": [{**ITEM, "code": 503}]}, {UNKNOWN}),
    (400, {"message": "Your message has been queued"}, {UNKNOWN}),
    (400, {"results": [{"to": ADA, "status": "accepted"}, {"to": BO, "status": "invalid"}]}, {UNKNOWN}),
    *((status, DOCUMENTED, {UNKNOWN}) for status in (408, 460, 499, 500, 502, 503, 504, 302)),
    *((status, DOCUMENTED, {REJECTED}) for status in (400, 401, 402, 403, 404, 405, 409, 410, 413, 422)),
    (429, DOCUMENTED, {NOT_SENT}),
    (425, DOCUMENTED, {NOT_SENT}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("status", "body", "allowed"), CASES, ids=lambda value: words(value) if isinstance(value, set) else str(value)[:60]
)
def test_oracle_and_client_agree_on_hand_written_verdicts(status: int, body: Any, allowed: set[Verdict]) -> None:
    answer = Answer(status, encoded(body))
    assert judge(asked("send_sms"), answer).verdicts == allowed
    check("send_sms", answer)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
@pytest.mark.parametrize("body", [b"", b"Bad request", b"<html><body><h1>400 Bad Request</h1></body></html>"])
def test_4xx_without_a_json_body_is_rejected(status: int, body: bytes) -> None:
    assert judge(asked("send_sms"), Answer(status, body)).verdicts == {REJECTED}
    check("send_sms", Answer(status, body))


@pytest.mark.parametrize(
    ("name", "allowed"), [("send_sms", NOT_SENT), ("request_otp", NOT_SENT), ("buy_airtime", UNKNOWN)]
)
def test_503_with_retry_after_is_not_sent_except_for_a_purchase(name: str, allowed: Verdict) -> None:
    answer = Answer(503, b'{"message":"Later"}', "1")
    assert judge(asked(name), answer).verdicts == {allowed}
    check(name, answer)


@pytest.mark.parametrize(
    ("items", "judgement"),
    [
        ([about(ADA)], ({ADA}, {ADA})),
        ([about(ADA), about(BO)], ({ADA, BO}, {ADA, BO})),
        ([about(ADA, type="warning")], (set(), set())),
        ([about(ADA, type="Note")], (set(), set())),
        ([about(f"{ADA} was accepted and {BO}")], (set(), set())),
        ([about(f"{ADA} and {BO}")], (set(), set())),
        ([about(ADA), about(ADA, type="warning")], (set(), {ADA})),
        ([about(f"{ADA}9")], (set(), set())),
        ([about(ADA, status="queued")], (set(), set())),
        ([about(ADA, field="content")], (set(), set())),
        ([f"{ADA} is not valid"], (set(), set())),
        ([{"field": "recipients", "message": "one is not valid"}], (set(), set())),
        ([about(f"+{ADA}")], (set(), {ADA})),
        ([about(ADA), about(BO), about(CY)], (set(), {ADA, BO, CY})),
    ],
)
def test_recipient_is_rejected_within_an_accepted_request_only_alone(
    items: list[Any], judgement: tuple[set[str], set[str]]
) -> None:
    answer = Answer(200, encoded({**RECORD, "message": "Some failed", "errors": items}))
    rejected, rejectable = map(frozenset, judgement)
    assert judge(asked("send_sms"), answer) == Judgement(frozenset({ACCEPTED}), rejected, rejectable)
    check("send_sms", answer)


@pytest.mark.parametrize(
    ("body", "allowed"),
    [
        ({"msisdn": ADA, "dnd": False}, {ACCEPTED}),
        ({"msisdn": BO, "dnd": False}, CAREFUL),
        ({"msisdn": ADA, "dnd": False, "errors": [{"field": "phone", "message": "is invalid"}]}, CAREFUL),
        ({"msisdn": None, "dnd": False}, CAREFUL),
        ({"message": "It failed", "errors": [{"field": "phone", "message": "is invalid"}]}, {REJECTED}),
    ],
)
def test_lookup_of_another_number_is_not_accepted(body: Any, allowed: set[Verdict]) -> None:
    answer = Answer(200, encoded(body))
    assert judge(asked("lookup_phone"), answer).verdicts == allowed
    check("lookup_phone", answer)


@pytest.mark.parametrize("answer", [Answer(204), Answer(200), Answer(200, b'{"status":200,"message":"deleted"}')])
def test_deletion_needs_no_body(answer: Answer) -> None:
    assert ACCEPTED in judge(asked("delete_contact_row"), answer).verdicts
    assert verdict_of("delete_contact_row", answer)[0] is ACCEPTED


def test_every_verdict_is_generated_for_every_request_that_acts() -> None:
    for name in ("send_sms", "buy_airtime", "create_contact_row"):
        odd = OddAnswers(random.Random(7), asked(name))
        seen = {judge(asked(name), odd.answer()).verdicts for _ in range(300)}
        assert {frozenset({verdict}) for verdict in Verdict} <= seen
