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
def test_permanent_error_fails_at_once_with_a_reason(error: errors.CpaasError) -> None:
    assert decide(error) == (RetryAction.FAIL, None)
    reason = CpaasRetryPolicy().evaluate(error, 1, 3).reason
    assert reason is not None
    assert type(error).__name__ in reason


@pytest.mark.parametrize("kind", [errors.CpaasRateLimitedError, errors.CpaasUnavailableError])
def test_error_with_retry_after_is_retried_then(kind: type[errors.CpaasError]) -> None:
    assert decide(kind("x", retry_after=90)) == (RetryAction.RETRY, timedelta(seconds=90))


@pytest.mark.parametrize(("hours", "action"), [(24, RetryAction.RETRY), (25, RetryAction.DEFAULT)])
def test_longer_wait_than_an_operator_obeys_is_the_task_s_own_to_retry(hours: int, action: RetryAction) -> None:
    assert decide(errors.CpaasUnavailableError("x", retry_after=hours * 3600))[0] == action


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


UNKNOWN = errors.CpaasUnknownOutcomeError("x")
BUSY, BUSIER = errors.CpaasRateLimitedError("x", retry_after=30), errors.CpaasRateLimitedError("x", retry_after=90)


def caused_by(error: BaseException, *, by: BaseException) -> BaseException:
    error.__cause__ = by
    return error


def raised_while_handling(error: BaseException, *, by: BaseException) -> BaseException:
    error.__context__ = by
    return error


@pytest.mark.parametrize(
    "error",
    [
        raised_while_handling(KeyError("in the handler"), by=UNKNOWN),
        raised_while_handling(KeyError("twice"), by=raised_while_handling(ValueError("in finally"), by=UNKNOWN)),
        ExceptionGroup("of a TaskGroup", [UNKNOWN]),
        ExceptionGroup("of a TaskGroup", [ValueError("first"), BUSY, UNKNOWN]),
        ExceptionGroup("of a TaskGroup", [ExceptionGroup("nested", [ExceptionGroup("deeper", [UNKNOWN])])]),
        BaseExceptionGroup("of a TaskGroup", [KeyboardInterrupt(), UNKNOWN]),
        caused_by(RuntimeError("of the author's own"), by=UNKNOWN),
        caused_by(RuntimeError("twice"), by=caused_by(ValueError("removed"), by=UNKNOWN)),
        caused_by(RuntimeError("both"), by=ExceptionGroup("of a TaskGroup", [UNKNOWN])),
        ExceptionGroup("of a TaskGroup", [caused_by(RuntimeError("both"), by=UNKNOWN)]),
        caused_by(errors.CpaasNotSentError("x"), by=UNKNOWN),
    ],
    ids=str,
)
def test_error_in_a_group_or_behind_another_is_found(error: BaseException) -> None:
    assert decide(error) == (RetryAction.FAIL, None)
    assert "CpaasUnknownOutcomeError" in str(CpaasRetryPolicy().evaluate(error, 1, 3).reason)


def test_suppressed_context_error_does_not_count() -> None:
    error = raised_while_handling(KeyError("own"), by=UNKNOWN)
    error.__suppress_context__ = True
    assert decide(error) == (RetryAction.DEFAULT, None)


def test_group_of_not_sent_errors_is_retried_after_the_longest_pause() -> None:
    group = ExceptionGroup("of a TaskGroup", [BUSY, ExceptionGroup("nested", [BUSIER]), errors.CpaasNotSentError("x")])
    assert decide(group) == (RetryAction.RETRY, timedelta(seconds=90))
    assert decide(ExceptionGroup("of a TaskGroup", [ValueError("own")])) == (RetryAction.DEFAULT, None)


def test_errors_that_cause_each_other_come_to_an_end() -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    assert decide(first) == (RetryAction.DEFAULT, None)


def test_service_that_asks_for_no_pause_gets_the_task_s_own() -> None:
    assert decide(errors.CpaasRateLimitedError("x", retry_after=0)) == (RetryAction.DEFAULT, None)


def test_retry_policy_survives_serialization() -> None:
    assert isinstance(CpaasRetryPolicy.deserialize(CpaasRetryPolicy().serialize()), CpaasRetryPolicy)
