"""CpaasRetryPolicy: what becomes of a task whose try ended in an error."""

from __future__ import annotations

from datetime import timedelta

import pytest
from airflow.sdk.definitions.retry_policy import RetryAction

from cpaas_provider.api import errors
from cpaas_provider.hooks.retry_policy import CpaasRetryPolicy

FOR_GOOD = [
    errors.CpaasConfigurationError("x"),
    errors.CpaasInvalidRequestError("x"),
    errors.CpaasRejectedError("x", status=400),
    errors.CpaasAuthenticationError("x", status=401),
    errors.CpaasInsufficientBalanceError("x", status=402),
    errors.CpaasNotFoundError("x", status=404),
    errors.CpaasNotVerifiedError("x", status=404),
    errors.CpaasOperationRemovedError("x", status=410),
    errors.CpaasUnknownOutcomeError("x"),
]


def decide(error: BaseException) -> tuple[RetryAction, timedelta | None]:
    decision = CpaasRetryPolicy().evaluate(error, try_number=1, max_tries=3)
    return decision.action, decision.retry_delay


@pytest.mark.parametrize("error", FOR_GOOD, ids=lambda error: type(error).__name__)
def test_what_must_not_be_repeated_fails_at_once_and_says_why(error: errors.CpaasError) -> None:
    assert decide(error) == (RetryAction.FAIL, None)
    reason = CpaasRetryPolicy().evaluate(error, 1, 3).reason
    assert reason is not None
    assert type(error).__name__ in reason


@pytest.mark.parametrize("kind", [errors.CpaasRateLimitedError, errors.CpaasUnavailableError])
def test_what_did_nothing_is_retried_when_the_service_says(kind: type[errors.CpaasError]) -> None:
    assert decide(kind("x", retry_after=90)) == (RetryAction.RETRY, timedelta(seconds=90))


@pytest.mark.parametrize(
    "error",
    [
        errors.CpaasNotSentError("x"),
        errors.CpaasRateLimitedError("x"),
        errors.CpaasUnknownOutcomeError("x", maybe_sent=False, retryable=True),
        ValueError("of the author's own"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_anything_else_is_the_task_s_own_to_retry(error: BaseException) -> None:
    assert decide(error) == (RetryAction.DEFAULT, None)


def test_it_survives_being_written_down() -> None:
    assert isinstance(CpaasRetryPolicy.deserialize(CpaasRetryPolicy().serialize()), CpaasRetryPolicy)
