"""Every fault the sandbox can make: outcomes and repeats as README promises.

Outcomes differ by what an operation does to the world, so one operation stands for each of those. The clients differ
by their transports alone, so the async one meets every fault once. All operations meet those faults that look different
for each, because the resource itself is changed, and a cut.
"""

from __future__ import annotations

import re
from typing import Any, get_args

import pytest

from cpaas_provider.api import (
    CpaasAuthenticationError,
    CpaasError,
    CpaasInsufficientBalanceError,
    CpaasRateLimitedError,
    CpaasRejectedError,
    CpaasUnavailableError,
    CpaasUnknownOutcomeError,
)
from cpaas_sandbox.faults.kinds import KINDS
from cpaas_sandbox.faults.odd_answers import DeadId, NoteForm, PurchaseForm, RefusalForm
from tests.contract.speaking import OPERATIONS, SENDER, Operation, Speaker

BY_NAME = {one.name: one for one in OPERATIONS}
# A send, a purchase, a read, a deletion and a look-up, which is a read that is charged.
OF_EACH_EFFECT = ("send_sms", "buy_airtime", "get_contact_table", "delete_contact_row", "lookup_phone")

# Answered with a success that cannot be read: charged, so even a look-up is not made again.
UNREADABLE_SUCCESS = {"broken_json", "missing_field", "stall_body"}
NO_READABLE_ANSWER: dict[str, dict[str, Any]] = {
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
STRIKES_EVERYWHERE = {"cut_after", "missing_field", "unknown_enum", "extra_fields", "other_record", "two_answers"}
exercised: set[str] = set()


def struck_by(
    *faults: tuple[str, dict[str, Any]], operations: tuple[str, ...] = OF_EACH_EFFECT
) -> pytest.MarkDecorator:
    """Run a test with each fault: by the sync client on an operation of each effect, by the async one on one or all."""
    exercised.update(kind for kind, _ in faults)
    rows = [("sync", name, *fault) for name in operations for fault in faults]
    for fault in faults:
        rows += [("async", name, *fault) for name in (BY_NAME if fault[0] in STRIKES_EVERYWHERE else ["send_sms"])]
    marked = [
        pytest.param(client, BY_NAME[name], kind, params, id="-".join(map(str, (client, name, kind, *params.values()))))
        for client, name, kind, params in rows
    ]
    return pytest.mark.parametrize(("speak", "operation", "kind", "params"), marked, indirect=["speak"])


def attempt(
    speak: Speaker, operation: Operation, kind: str, params: dict[str, Any], times: int = 1
) -> CpaasError | None:
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


def test_every_fault_of_the_sandbox_is_exercised() -> None:
    assert exercised == set(KINDS)


@struck_by(*NO_READABLE_ANSWER.items())
def test_unknown_outcome_is_retried_only_if_that_is_harmless(
    speak: Speaker, operation: Operation, kind: str, params: dict[str, Any]
) -> None:
    error = attempt(speak, operation, kind, params)
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


@struck_by(("rate_limit", {"retry_after": 0}))
def test_request_is_retried_after_a_short_retry_after(
    speak: Speaker, operation: Operation, kind: str, params: dict[str, Any]
) -> None:
    assert attempt(speak, operation, kind, params, times=2) is None
    assert (speak.requests, speak.accepted) == (3, 1)


@struck_by(*[("rate_limit", {"retry_after": 120, "format": style}) for style in ("seconds", "http-date")])
def test_long_retry_after_is_raised_to_the_caller(
    speak: Speaker, operation: Operation, kind: str, params: dict[str, Any]
) -> None:
    error = attempt(speak, operation, kind, params)
    assert isinstance(error, CpaasRateLimitedError)
    assert error.retryable
    assert error.retry_after == pytest.approx(120, abs=5)
    assert (speak.requests, speak.accepted) == (1, 0)


@struck_by(("unavailable", {"retry_after": 0}))
def test_503_with_retry_after_is_not_sent_except_for_a_purchase(
    speak: Speaker, operation: Operation, kind: str, params: dict[str, Any]
) -> None:
    error = attempt(speak, operation, kind, params)
    if operation.name == "buy_airtime":
        assert isinstance(error, CpaasUnknownOutcomeError)
        assert (speak.requests, speak.accepted) == (1, 0)
    else:
        assert error is None
        assert (speak.requests, speak.accepted) == (2, 1)


@struck_by(("unavailable", {"retry_after": 600}))
def test_503_with_a_long_retry_after_is_raised_to_the_caller(
    speak: Speaker, operation: Operation, kind: str, params: dict[str, Any]
) -> None:
    error = attempt(speak, operation, kind, params)
    expected = CpaasUnknownOutcomeError if operation.name == "buy_airtime" else CpaasUnavailableError
    assert isinstance(error, expected)
    assert (speak.requests, speak.accepted) == (1, 0)


@struck_by(*[("error_under_200", {"body_status": status}) for status in (200, 400)])
def test_error_under_200_is_a_rejection(
    speak: Speaker, operation: Operation, kind: str, params: dict[str, Any]
) -> None:
    error = attempt(speak, operation, kind, params)
    assert isinstance(error, CpaasRejectedError)
    assert error.status == 200
    assert not error.maybe_sent
    assert (speak.requests, speak.accepted) == (1, 0)


@struck_by(("reject", {"status": 400}))
def test_rejection_with_balance_words_is_insufficient_balance(
    speak: Speaker, operation: Operation, kind: str, params: dict[str, Any]
) -> None:
    error = attempt(speak, operation, kind, params)
    billed = operation.name in ("send_sms", "buy_airtime", "lookup_phone")
    assert type(error) is (CpaasInsufficientBalanceError if billed else CpaasRejectedError)
    assert (speak.requests, speak.accepted) == (1, 0)


@struck_by(("echo_rejection", {"text": "Dear Ada, your blood test was positive"}))
def test_rejection_that_repeats_the_request_shows_none_of_it(
    speak: Speaker, operation: Operation, kind: str, params: dict[str, Any]
) -> None:
    error = attempt(speak, operation, kind, params)
    assert isinstance(error, CpaasRejectedError)
    assert (speak.requests, speak.accepted) == (1, 0)
    assert speak.api_key not in str(error)
    assert not re.search(r"\d{7}", str(error))


@struck_by(("unauthorized", {}))
def test_refused_key_is_not_retried(speak: Speaker, operation: Operation, kind: str, params: dict[str, Any]) -> None:
    assert isinstance(attempt(speak, operation, kind, params), CpaasAuthenticationError)
    assert (speak.requests, speak.accepted) == (1, 0)


@struck_by(*[("redirect", {"status": status}) for status in (302, 307)])
def test_redirect_is_not_followed(speak: Speaker, operation: Operation, kind: str, params: dict[str, Any]) -> None:
    error = attempt(speak, operation, kind, params)
    # What acts may have been done before the service pointed elsewhere.
    acts = operation.name in {"send_sms", "buy_airtime"}
    assert isinstance(error, CpaasUnknownOutcomeError if acts else CpaasRejectedError)
    assert error.maybe_sent is acts
    assert error.status == params["status"]
    assert (speak.requests, speak.accepted) == (1, 0)


@struck_by(
    ("unknown_enum", {}),
    ("extra_fields", {}),
    ("echo", {"text": "over and out"}),
    ("no_charge", {}),
    ("wrong_charge", {"charge": -4}),
    ("slow_drip", {"seconds": 0.1}),
    ("latency", {"ms": 50}),
)
def test_odd_success_is_accepted(speak: Speaker, operation: Operation, kind: str, params: dict[str, Any]) -> None:
    # It is not about time, which a busy machine takes.
    speak.options["timeout"] = 30.0
    assert attempt(speak, operation, kind, params) is None
    assert (speak.requests, speak.accepted) == (1, 1)


WITH_RECORD = [{"form": "empty_errors"}, {"form": "queued"}]
WITH_RECORD += [{"form": "status_beside", "body_status": status} for status in (400, 429, 500)]
WITHOUT_RECORD = [{"form": "message"}, {"form": "redirect"}]
WITHOUT_RECORD += [{"form": "status_alone", "body_status": status} for status in (408, 500, 503)]


@struck_by(*[("odd_answer", params) for params in WITH_RECORD])
def test_record_is_accepted_inside_any_odd_response(
    speak: Speaker, operation: Operation, kind: str, params: dict[str, Any]
) -> None:
    error = attempt(speak, operation, kind, params)
    if operation.name in TAKES_ANY_ANSWER:
        # A deletion has no record that would be proof, and is safe to repeat.
        assert error is None or isinstance(error, CpaasRejectedError)
    elif operation.name == "lookup_phone" and params["form"] == "status_beside":
        # A record without an id proves nothing beside an error.
        assert isinstance(error, CpaasUnknownOutcomeError)
        assert (error.retryable, speak.requests) == (False, 1)
    else:
        assert error is None
        assert (speak.requests, speak.accepted) == (1, 1)


NAMED = {"number": {"lookup_phone", "request_otp", "find_otps", "buy_airtime"}}
NAMED["id"] = {"get_otp", "verify_otp", "get_contact_row", "update_contact_row"}
"""The operations whose response names what the request asked for."""
HARMLESS = {"find_otps", "get_otp", "get_contact_row", "update_contact_row"}


@struck_by(*[("other_record", {"part": part}) for part in NAMED])
def test_record_of_another_is_no_answer(
    speak: Speaker, operation: Operation, kind: str, params: dict[str, Any]
) -> None:
    error = attempt(speak, operation, kind, params)
    if operation.name in NAMED[params["part"]] - HARMLESS:
        assert isinstance(error, CpaasUnknownOutcomeError)
        assert (error.retryable, speak.requests, speak.accepted) == (False, 1, 1)
        assert not re.search(r"\d{7}", str(error))
    else:
        # The next answer is the right one.
        assert error is None
        assert speak.requests == (2 if operation.name in NAMED[params["part"]] else 1)


@struck_by(("two_answers", {"ms": 0}), ("two_answers", {"ms": 5}))
def test_second_answer_is_that_of_no_other_request(
    speak: Speaker, operation: Operation, kind: str, params: dict[str, Any]
) -> None:
    assert attempt(speak, operation, kind, params) is None
    assert attempt(speak, operation, kind, params) is None
    assert (speak.requests, speak.accepted) == (1, 1)


@struck_by(*[("odd_answer", params) for params in WITHOUT_RECORD])
def test_unsafe_request_without_a_record_is_unknown(
    speak: Speaker, operation: Operation, kind: str, params: dict[str, Any]
) -> None:
    error = attempt(speak, operation, kind, params)
    if operation.name in {"send_sms", "buy_airtime"}:
        assert isinstance(error, CpaasUnknownOutcomeError)
        assert (error.maybe_sent, error.retryable) == (True, False)
        assert (speak.requests, speak.accepted) == (1, 1)
    else:
        assert error is None or not error.maybe_sent


STAGES = ("before", "after")
MISLEADING = [(f"odd_refusal_{stage}", {"form": form}) for stage in STAGES for form in get_args(RefusalForm)]
MISLEADING += [(f"dead_id_{stage}", {"id": id_}) for stage in STAGES for id_ in get_args(DeadId)]


@struck_by(*MISLEADING, operations=("buy_airtime",))
def test_request_that_acts_is_unknown_without_proof_of_rejection(
    speak: Speaker, operation: Operation, kind: str, params: dict[str, Any]
) -> None:
    error = attempt(speak, operation, kind, params)
    assert isinstance(error, CpaasUnknownOutcomeError)
    assert (error.maybe_sent, error.retryable) == (True, False)
    assert (speak.requests, speak.accepted) == (1, 1 if kind.endswith("after") else 0)


@struck_by(("odd_refusal_before", {"form": "id_in_400"}), ("dead_id_after", {"id": "0"}))
def test_request_that_changes_nothing_is_never_unknown(
    speak: Speaker, operation: Operation, kind: str, params: dict[str, Any]
) -> None:
    error = attempt(speak, operation, kind, params)
    assert error is None or error.maybe_sent is (operation.name in {"send_sms", "buy_airtime"})


@struck_by(*[("note_beside_id", {"form": form}) for form in get_args(NoteForm)], operations=("send_sms",))
def test_note_beside_an_id_rejects_no_recipient(
    speak: Speaker, operation: Operation, kind: str, params: dict[str, Any]
) -> None:
    speak.sandbox.control("POST", "faults", {"operation": operation.name, "kind": kind, "params": params})
    message = speak(operation.name, ["2348031234567", "2348031234568"], "Clinic", "Hello")
    assert (message.rejected_recipients, bool(message.model_extra)) == ((), True)


@struck_by(*[("odd_purchase_status", {"form": form}) for form in get_args(PurchaseForm)], operations=("buy_airtime",))
def test_odd_status_of_a_purchase_is_never_a_reason_to_buy_again(
    speak: Speaker, operation: Operation, kind: str, params: dict[str, Any]
) -> None:
    error = attempt(speak, operation, kind, params)
    assert error is None or isinstance(error, CpaasUnknownOutcomeError)
    assert (speak.requests, speak.accepted) == (1, 1)


@pytest.mark.parametrize("envelope", [False, True])
@pytest.mark.parametrize(
    ("operation", "sender", "recipients"),
    [
        ("send_sms", "Clinic", ["2348031234567", "2348031234568"]),
        ("send_email", SENDER, ["ada@example.com", "Bob.O@example.com"]),
    ],
)
def test_accepted_message_names_its_rejected_recipients(
    speak: Speaker, operation: str, sender: str, recipients: list[str], envelope: bool
) -> None:
    speak.sandbox.control("PUT", "settings", {"refused_recipients": "leave_out", "envelope": envelope})
    speak.sandbox.control("POST", "seed", {"refused_recipients": recipients[1:]})
    message = speak(operation, recipients, sender, "Hello")
    assert message.rejected_recipients == tuple(recipients[1:])
    assert recipients[1] not in message.rejection + repr(message)


def test_retries_end_after_the_maximum(speak: Speaker) -> None:
    error = attempt(speak, BY_NAME["get_contact_table"], "error_500", {}, times=50)
    assert isinstance(error, CpaasUnknownOutcomeError)
    assert error.retryable
    assert speak.requests == 5


def test_deletion_carried_out_before_the_cut_succeeds(speak: Speaker) -> None:
    assert attempt(speak, BY_NAME["delete_contact_row"], "cut_after", {}) is None
    assert speak.sandbox.counters()["contacts"]["rows"] == 0
