"""Every fault the sandbox can make, against every operation: outcomes and repeats as README promises."""

from __future__ import annotations

import pytest

from cpaas_provider.api import (
    CpaasAuthenticationError,
    CpaasError,
    CpaasRateLimitedError,
    CpaasRejectedError,
    CpaasUnavailableError,
    CpaasUnknownOutcomeError,
)
from tests.contract.speaking import OPERATIONS, Operation, Speaker

# Answered with a success that cannot be read: charged, so even a look-up is not made again.
UNREADABLE_SUCCESS = {"broken_json", "missing_field", "stall_body"}
NO_READABLE_ANSWER = {
    "error_500": {},
    "unavailable": {},
    "bad_gateway": {"status": 502},
    "cut_before": {},
    "cut_after": {},
    "error_500_after": {},
    "bad_gateway_after": {"status": 504},
    "broken_json": {},
    "missing_field": {},
    "stall_body": {"seconds": 20},
}
TAKES_ANY_ANSWER = {"revoke_otp", "delete_contact_row"}
ACCEPTS_FIRST = {
    "cut_after",
    "error_500_after",
    "bad_gateway_after",
    "broken_json",
    "missing_field",
    "stall_body",
}


def attempt(speak: Speaker, operation: Operation, kind: str, times: int = 1, **params: object) -> CpaasError | None:
    """Make one call while a fault strikes; return the error it ended with, if it did."""
    args, kwargs = operation.prepare(speak)
    speak.sandbox.control(
        "POST", "faults", {"operation": operation.name, "kind": kind, "times": times, "params": params}
    )
    if kind == "stall_body":
        speak.options["timeout"] = 0.3
    before = speak.sandbox.counters()
    error = None
    try:
        speak(operation.name, *args, **kwargs)
    except CpaasError as raised:
        error = raised
    after = speak.sandbox.counters()
    for what in ("requests", "accepted"):
        setattr(speak, what, after[what].get(operation.name, 0) - before[what].get(operation.name, 0))
    return error


@pytest.mark.parametrize("kind", NO_READABLE_ANSWER)
@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
def test_an_unknown_outcome_is_repeated_only_where_that_is_harmless(
    speak: Speaker, operation: Operation, kind: str
) -> None:
    error = attempt(speak, operation, kind, **NO_READABLE_ANSWER[kind])
    if operation.name in TAKES_ANY_ANSWER and kind == "missing_field":
        assert error is None
        assert speak.requests == 1
    elif operation.repeatable and not (operation.name == "lookup_phone" and kind in UNREADABLE_SUCCESS):
        assert error is None
        assert speak.requests == 2
    else:
        assert isinstance(error, CpaasUnknownOutcomeError)
        assert error.maybe_sent is (operation.name != "lookup_phone")
        assert not error.retryable
        assert speak.requests == 1
        assert speak.accepted == (1 if kind in ACCEPTS_FIRST else 0)


@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
def test_a_short_retry_after_is_waited_for_and_repeated(speak: Speaker, operation: Operation) -> None:
    assert attempt(speak, operation, "rate_limit", times=2, retry_after=0) is None
    assert (speak.requests, speak.accepted) == (3, 1)


@pytest.mark.parametrize("style", ["seconds", "http-date"])
@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
def test_a_long_retry_after_is_handed_on(speak: Speaker, operation: Operation, style: str) -> None:
    error = attempt(speak, operation, "rate_limit", retry_after=120, format=style)
    assert isinstance(error, CpaasRateLimitedError)
    assert error.retryable
    assert error.retry_after == pytest.approx(120, abs=5)
    assert (speak.requests, speak.accepted) == (1, 0)


@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
def test_a_503_with_retry_after_means_not_sent_but_for_money(speak: Speaker, operation: Operation) -> None:
    error = attempt(speak, operation, "unavailable", retry_after=0)
    if operation.name == "buy_airtime":
        assert isinstance(error, CpaasUnknownOutcomeError)
        assert (speak.requests, speak.accepted) == (1, 0)
    else:
        assert error is None
        assert (speak.requests, speak.accepted) == (2, 1)


@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
def test_a_503_that_asks_for_too_much_is_handed_on(speak: Speaker, operation: Operation) -> None:
    error = attempt(speak, operation, "unavailable", retry_after=600)
    expected = CpaasUnknownOutcomeError if operation.name == "buy_airtime" else CpaasUnavailableError
    assert isinstance(error, expected)
    assert (speak.requests, speak.accepted) == (1, 0)


@pytest.mark.parametrize("body_status", [200, 400])
@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
def test_an_error_under_200_is_a_rejection(speak: Speaker, operation: Operation, body_status: int) -> None:
    error = attempt(speak, operation, "error_under_200", body_status=body_status)
    assert isinstance(error, CpaasRejectedError)
    assert error.status == 200
    assert not error.maybe_sent
    assert (speak.requests, speak.accepted) == (1, 0)


@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
def test_a_refused_key_is_not_tried_again(speak: Speaker, operation: Operation) -> None:
    assert isinstance(attempt(speak, operation, "unauthorized"), CpaasAuthenticationError)
    assert (speak.requests, speak.accepted) == (1, 0)


@pytest.mark.parametrize("status", [302, 307])
@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
def test_a_redirect_is_not_followed(speak: Speaker, operation: Operation, status: int) -> None:
    error = attempt(speak, operation, "redirect", status=status)
    assert isinstance(error, CpaasRejectedError)
    assert error.status == status
    assert (speak.requests, speak.accepted) == (1, 0)


@pytest.mark.parametrize("kind", ["unknown_enum", "extra_fields", "slow_drip", "latency"])
@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
def test_an_odd_answer_is_an_answer(speak: Speaker, operation: Operation, kind: str) -> None:
    params = {"slow_drip": {"seconds": 0.1}, "latency": {"ms": 50}}.get(kind, {})
    # It is not about time, which a busy machine takes.
    speak.options["timeout"] = 30.0
    assert attempt(speak, operation, kind, **params) is None
    assert (speak.requests, speak.accepted) == (1, 1)


def test_repeats_end(speak: Speaker) -> None:
    operation = next(one for one in OPERATIONS if one.name == "get_contact_table")
    error = attempt(speak, operation, "error_500", times=50)
    assert isinstance(error, CpaasUnknownOutcomeError)
    assert error.retryable
    assert speak.requests == 5


def test_a_deletion_that_was_carried_out_before_the_cut_is_done(speak: Speaker) -> None:
    operation = next(one for one in OPERATIONS if one.name == "delete_contact_row")
    assert attempt(speak, operation, "cut_after") is None
    assert speak.sandbox.counters()["contacts"]["rows"] == 0
