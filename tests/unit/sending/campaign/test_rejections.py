"""What a failed request means for its recipients and for the campaign."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

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
from cpaas_provider.sending.campaign.progress import LookUps
from cpaas_provider.sending.campaign.queue import TooManyFailuresError
from cpaas_provider.sending.campaign.recipients import Recipient, RecipientStatus
from cpaas_provider.sending.campaign.rejections import NextStep, OnRejectedBatch, bisect, decide_after_failure
from cpaas_provider.sending.journal.model import State
from cpaas_provider.sending.spec import OnUnknown
from tests.unit.sending.campaign.parts import SECOND_TRY, MemoryStore
from tests.unit.sending.campaign.running import accepted, tried


def rejected(status: int | None, *, is_message_error: bool = False) -> CpaasRejectedError:
    error = CpaasRejectedError("refused", status=status)
    error.is_message_error = is_message_error
    return error


def test_batch_is_not_bisected_where_the_author_forgoes_it() -> None:
    assert decide_after_failure(rejected(400), 500) == (State.NOT_SENT, NextStep.BISECT)
    assert decide_after_failure(rejected(400), 500, OnRejectedBatch.FAIL) == (State.REJECTED, NextStep.GO_ON)
    unauthorised = CpaasAuthenticationError("no", status=401)
    assert decide_after_failure(unauthorised, 500, OnRejectedBatch.FAIL) == (State.NOT_SENT, NextStep.END)


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
def test_error_not_about_recipients_ends_the_campaign_without_bisecting(error: CpaasError, size: int) -> None:
    assert decide_after_failure(error, size) == (State.NOT_SENT, NextStep.END)


@pytest.mark.parametrize("status", [200, 400, 413, 422])
def test_rejection_that_may_concern_one_recipient_is_bisected(status: int) -> None:
    assert decide_after_failure(rejected(status), 2) == (State.NOT_SENT, NextStep.BISECT)
    assert decide_after_failure(rejected(status), 1) == (State.REJECTED, NextStep.GO_ON)


@pytest.mark.parametrize("size", [1, 500])
def test_unknown_outcome_is_never_bisected(size: int) -> None:
    assert decide_after_failure(CpaasUnknownOutcomeError("no answer"), size) == (State.UNKNOWN, NextStep.GO_ON)


def recipients_of(*addresses: str) -> list[Recipient]:
    return [Recipient(place, place, b"", address, None, None, None) for place, address in enumerate(addresses, 1)]


def test_named_recipients_are_removed_and_the_others_form_one_batch() -> None:
    named, rest = bisect(recipients_of("a", "b", "c", "D@x.org"), frozenset({"b", "d@x.org"}))
    assert [one.address for one in named] == ["b", "D@x.org"]
    assert [[one.address for one in part] for part in rest] == [["a", "c"]]


def test_batch_with_all_recipients_named_leaves_no_batch() -> None:
    assert bisect(recipients_of("a", "b"), frozenset("ab")) == (tuple(recipients_of("a", "b")), [])


@pytest.mark.parametrize("refused", [frozenset(), frozenset({"somebody else"})])
def test_batch_without_named_recipients_is_halved(refused: frozenset[str]) -> None:
    named, parts = bisect(recipients_of("a", "b", "c"), refused)
    assert named == ()
    assert [[one.address for one in part] for part in parts] == [["a"], ["b", "c"]]


class SlowLookups:
    """The lookups of a campaign. The cache is slow when the campaign looks for further recipients and has none."""

    batch_size = 100
    look_ups = LookUps()

    def open(self, *_: Any) -> Any:
        return self

    async def filter(self, recipients: Sequence[Recipient]) -> list[Recipient]:
        if not recipients:
            await asyncio.sleep(0.2)
        return list(recipients)


def test_batch_that_is_rejected_while_further_recipients_are_looked_for_is_bisected() -> None:
    """No request is pending then, and the campaign must not end without the parts of the batch."""

    def answer(recipients: Sequence[str], reference: str) -> Any:
        if len(recipients) > 1:
            raise rejected(400)
        return accepted(reference)

    done = tried(answer, 4, dnd=SlowLookups())
    assert (done.of(RecipientStatus.SENT), done.error) == (4, None)


def test_error_of_rejected_recipients_counts_those_of_unknown_outcome() -> None:
    errors = [rejected(400), CpaasUnknownOutcomeError("no answer"), CpaasUnknownOutcomeError("no answer")]

    def service(recipients: Sequence[str], reference: str) -> Any:
        if errors:
            raise errors.pop()
        return accepted(reference)

    done = tried(service, 5, per_request=1, on_unknown=OnUnknown.SKIP)
    assert [done.of(status) for status in (RecipientStatus.SENT, RecipientStatus.UNKNOWN)] == [2, 2]
    assert "All other recipients were sent to, but 2 recipients of unknown outcome." in str(done.error)


def test_rejections_of_earlier_tries_count_for_max_failure_ratio() -> None:
    store, responses = MemoryStore(), iter([rejected(400), None, rejected(400), CpaasNotSentError("no connection")])

    def service(recipients: Sequence[str], reference: str) -> Any:
        if (error := next(responses)) is not None:
            raise error
        return accepted(reference)

    how = {"store": store, "per_request": 1, "window": 1, "max_failure_ratio": 0.2}
    assert isinstance(tried(service, 10, **how).error, CpaasNotSentError)
    responses = iter([None, rejected(400), *[None] * 6])
    second = tried(service, 10, tries=SECOND_TRY, **how)
    assert isinstance(second.error, TooManyFailuresError)
    assert (second.of(RecipientStatus.REJECTED), second.of(RecipientStatus.NOT_SENT)) == (3, 5)
