"""What a failed request means for its recipients and for the campaign."""

from __future__ import annotations

import pytest

from cpaas_provider.api.errors import (
    CpaasAuthenticationError,
    CpaasError,
    CpaasInsufficientBalanceError,
    CpaasInvalidRequestError,
    CpaasNotFoundError,
    CpaasNotSentError,
    CpaasRateLimitedError,
    CpaasRejectedError,
    CpaasUnavailableError,
    CpaasUnknownOutcomeError,
)
from cpaas_provider.sending.campaign.recipients import Recipient
from cpaas_provider.sending.campaign.rejections import NextStep, OnRejectedBatch, bisect, classify
from cpaas_provider.sending.journal.model import State


def rejected(status: int | None, *, is_message_error: bool = False) -> CpaasRejectedError:
    error = CpaasRejectedError("refused", status=status)
    error.is_message_error = is_message_error
    return error


def test_batch_is_not_bisected_where_the_author_forgoes_it() -> None:
    assert classify(rejected(400), 500) == (State.NOT_SENT, NextStep.BISECT)
    assert classify(rejected(400), 500, OnRejectedBatch.FAIL) == (State.REJECTED, NextStep.GO_ON)
    unauthorised = CpaasAuthenticationError("no", status=401)
    assert classify(unauthorised, 500, OnRejectedBatch.FAIL) == (State.NOT_SENT, NextStep.END)


@pytest.mark.parametrize("size", [1, 500])
@pytest.mark.parametrize(
    "error",
    [
        CpaasAuthenticationError("no", status=401),
        CpaasAuthenticationError("no", status=403),
        CpaasInsufficientBalanceError("no", status=402),
        CpaasNotFoundError("no", status=404),
        CpaasNotSentError("no"),
        CpaasRateLimitedError("no", status=429),
        CpaasUnavailableError("no", status=503),
        CpaasInvalidRequestError("no"),
        rejected(400, is_message_error=True),
        rejected(200, is_message_error=True),
        rejected(405),
        rejected(410),
    ],
    ids=lambda error: f"{type(error).__name__}-{error.status}",
)
def test_what_is_not_about_the_recipients_ends_it_without_taking_anything_apart(error: CpaasError, size: int) -> None:
    assert classify(error, size) == (State.NOT_SENT, NextStep.END)


@pytest.mark.parametrize("status", [200, 400, 413, 422])
def test_what_may_be_about_one_of_the_recipients_is_taken_apart(status: int) -> None:
    assert classify(rejected(status), 2) == (State.NOT_SENT, NextStep.BISECT)
    assert classify(rejected(status), 1) == (State.REJECTED, NextStep.GO_ON)


@pytest.mark.parametrize("size", [1, 500])
def test_what_is_unknown_is_never_taken_apart(size: int) -> None:
    assert classify(CpaasUnknownOutcomeError("no answer"), size) == (State.UNKNOWN, NextStep.GO_ON)


def people(*addresses: str) -> list[Recipient]:
    return [Recipient(place, place, b"", address, None, None, None) for place, address in enumerate(addresses, 1)]


def test_those_who_are_named_are_taken_out_and_the_rest_is_tried_once() -> None:
    named, rest = bisect(people("a", "b", "c", "D@x.org"), frozenset({"b", "d@x.org"}))
    assert [one.address for one in named] == ["b", "D@x.org"]
    assert [[one.address for one in part] for part in rest] == [["a", "c"]]


def test_when_all_are_named_nobody_is_left() -> None:
    assert bisect(people("a", "b"), frozenset("ab")) == (tuple(people("a", "b")), [])


@pytest.mark.parametrize("refused", [frozenset(), frozenset({"somebody else"})])
def test_when_nobody_is_named_it_is_halved(refused: frozenset[str]) -> None:
    named, parts = bisect(people("a", "b", "c"), refused)
    assert named == ()
    assert [[one.address for one in part] for part in parts] == [["a"], ["b", "c"]]
