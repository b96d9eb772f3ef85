"""When a campaign stops asking a service that refuses whatever it is asked."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from cpaas_provider.api.errors import CpaasInsufficientBalanceError, CpaasRejectedError
from cpaas_provider.sending.campaign.guards.circuit_breaker import CircuitOpenError, RejectionBreaker
from cpaas_provider.sending.campaign.queue import AllRejectedError
from cpaas_provider.sending.campaign.recipients import RecipientStatus
from tests.unit.sending.campaign.parts import SECOND_TRY, MemoryStore, phones
from tests.unit.sending.campaign.running import accepted, tried


def rejection(words: str, **facts: Any) -> CpaasRejectedError:
    error = CpaasRejectedError(f"send_sms: the service rejected the request (HTTP 400): {words}.", status=400)
    vars(error).update(facts)
    return error


def refusing_after_first(error: CpaasRejectedError) -> Any:
    numbers = itertools.count()

    def answer(_: Sequence[str], reference: str) -> Any:
        if next(numbers):
            raise error
        return accepted(reference)

    return answer


@pytest.mark.parametrize("per_request", [100, 10, 1])
def test_same_rejection_again_and_again_ends_the_campaign(per_request: int) -> None:
    done = tried(refusing_after_first(rejection("Sender ID not approved")), 1000, per_request=per_request)
    assert len(done.requests) < 40
    assert isinstance(done.error, CircuitOpenError)
    assert "Sender ID not approved" in str(done.error)
    assert done.of(RecipientStatus.SENT) == per_request
    assert done.of(RecipientStatus.REJECTED) + done.of(RecipientStatus.NOT_SENT) == 1000 - per_request
    assert done.of(RecipientStatus.NOT_SENT) > 900 - per_request


def test_rejection_that_differs_in_a_number_only_is_the_same() -> None:
    numbers = itertools.count()

    def answer(_: Sequence[str], reference: str) -> Any:
        if number := next(numbers):
            raise rejection(f"Request r-{number} was refused: sender not approved")
        return accepted(reference)

    assert len(tried(answer, 1000).requests) < 40


def test_insufficient_balance_ends_the_campaign_at_once() -> None:
    error = CpaasInsufficientBalanceError("send_sms: Insufficient balance.", status=400)
    done = tried(refusing_after_first(error), 1000)
    # What was under way with the first of them is answered, too.
    assert len(done.requests) <= 1 + 8
    assert done.error is error
    assert (done.of(RecipientStatus.SENT), done.of(RecipientStatus.REJECTED), done.of(RecipientStatus.NOT_SENT)) == (
        100,
        0,
        900,
    )


def test_bad_recipients_among_good_ones_are_found() -> None:
    bad = set(phones(1000)[::67])

    def answer(recipients: Sequence[str], reference: str) -> Any:
        if bad & set(recipients):
            raise rejection("A recipient is invalid")
        return accepted(reference)

    done = tried(answer, 1000, max_failure_ratio=1.0)
    assert (done.error, done.of(RecipientStatus.SENT), done.of(RecipientStatus.REJECTED)) == (
        None,
        1000 - len(bad),
        len(bad),
    )


def test_recipients_that_are_named_are_about_themselves_however_many() -> None:
    bad = set(phones(400)[20:])

    def answer(recipients: Sequence[str], reference: str) -> Any:
        if named := bad & set(recipients):
            raise rejection("A recipient is invalid", rejected_recipients=tuple(named))
        return accepted(reference)

    done = tried(answer, 400, per_request=10, max_failure_ratio=1.0)
    assert (done.error, done.of(RecipientStatus.SENT)) == (None, 20)


def test_limit_can_be_lifted() -> None:
    bad = set(phones(64)[1:])

    def answer(recipients: Sequence[str], reference: str) -> Any:
        if bad & set(recipients):
            raise rejection("A recipient is invalid")
        return accepted(reference)

    given = {"per_request": 1, "max_failure_ratio": 1.0}
    assert isinstance(tried(answer, 64, **given).error, CircuitOpenError)
    done = tried(answer, 64, max_identical_rejections=None, **given)
    assert (done.error, done.of(RecipientStatus.REJECTED)) == (None, 63)


def test_next_try_continues_where_the_circuit_opened() -> None:
    store, good = MemoryStore(), []
    tried(refusing_after_first(rejection("Sender ID not approved")), 300, store=store)

    def answer(recipients: Sequence[str], reference: str) -> Any:
        good.extend(recipients)
        return accepted(reference)

    done = tried(answer, 300, store=store, tries=SECOND_TRY, max_failure_ratio=1.0)
    assert done.error is None
    assert len(good) == len(set(good)) == 200 - done.of(RecipientStatus.REJECTED)


def test_fifty_rejections_without_an_acceptance_end_the_campaign_without_a_limit_too() -> None:
    def refuse(recipients: Sequence[str], reference: str) -> Any:
        raise rejection("Sender ID not approved")

    done = tried(refuse, 70, per_request=1, max_identical_rejections=None, max_failure_ratio=1.0)
    assert isinstance(done.error, AllRejectedError)
    assert 50 <= done.of(RecipientStatus.REJECTED) < 70


def test_circuit_opens_before_any_recipient_was_accepted() -> None:
    def refuse(recipients: Sequence[str], reference: str) -> Any:
        raise rejection("Sender ID not approved")

    done = tried(refuse, 1000)
    assert len(done.requests) < 40
    assert isinstance(done.error, CircuitOpenError | AllRejectedError)


class TestBreaker:
    def test_opens_at_its_limit(self) -> None:
        breaker = RejectionBreaker(3)
        assert [breaker.rejected(rejection("No")) for _ in range(3)] == [False, False, True]

    def test_acceptance_closes_it(self) -> None:
        breaker = RejectionBreaker(2)
        assert not breaker.rejected(rejection("No"))
        breaker.accepted()
        assert not breaker.rejected(rejection("No"))

    def test_rejection_of_different_text_restarts_the_count(self) -> None:
        breaker = RejectionBreaker(2)
        assert [breaker.rejected(rejection(words)) for words in ("No", "Never", "No")] == [False, False, False]
