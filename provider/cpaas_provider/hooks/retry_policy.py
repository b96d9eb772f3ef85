"""A retry policy for ``@task`` functions that use the hook: it retries only requests that are safe to retry."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk.definitions.retry_policy import RetryDecision, RetryPolicy

if TYPE_CHECKING:
    from airflow.sdk import Context


class CpaasRetryPolicy(RetryPolicy):
    """Decides on a task's retry by the outcome of its request.

    * If the service rejected the request, the task fails without a retry.
    * If the outcome is unknown and a retry could act twice, the task fails without a retry.
    * If the request was not sent, the task is retried after the time that the service asked for, up to 24 hours.
    * After any other error, the task's own ``retries`` and ``retry_delay`` apply.

    It knows only the error of this try. A task that sends several messages is protected by
    ``CpaasHook().get_idempotent_client()``, whose journal records what was sent.

    In an ``ExceptionGroup``, as ``asyncio.TaskGroup`` raises it, every error counts. The cause of an error counts,
    too, and an error in whose handling it was raised. If one of them must not be retried, the task fails.

    .. code-block:: python

        @task(retries=3, retry_policy=CpaasRetryPolicy())
        def welcome(): ...
    """

    def evaluate(
        self, exception: BaseException, try_number: int, max_tries: int, context: Context | None = None
    ) -> RetryDecision:
        """Return the decision for an exception that ended a try."""
        from cpaas_provider.api.backoff import MAX_DEFERRAL
        from cpaas_provider.api.errors import CpaasError

        errors = [error for error in _with_causes(exception) if isinstance(error, CpaasError)]
        for error in errors:
            if error.is_permanent:
                reason = f"{type(error).__name__}: a retry would not help, or could act twice"
                return RetryDecision.fail(reason=reason)
        longest = max(errors, key=lambda error: error.retry_after or 0, default=None)
        if longest is None or not 0 < (longest.retry_after or 0) <= MAX_DEFERRAL.total_seconds():
            return RetryDecision.default()
        return RetryDecision.retry(
            delay=timedelta(seconds=longest.retry_after or 0),
            reason=f"{type(longest).__name__}: the service asked to wait",
        )

    def serialize(self) -> dict[str, Any]:
        """Return nothing: the policy has no options."""
        return {}

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> CpaasRetryPolicy:
        """Return the policy."""
        return cls()


def _with_causes(exception: BaseException) -> Iterator[BaseException]:
    """Yield an exception, the exceptions in its group, and their causes, each once."""
    pending, seen = [exception], set[int]()
    while pending:
        error = pending.pop()
        if id(error) in seen:
            continue
        seen.add(id(error))
        yield error
        if isinstance(error, BaseExceptionGroup):
            pending.extend(error.exceptions)
        # Also an error that was being handled when this one was raised, unless the author left it out by "from None".
        causes = [error.__cause__, None if error.__suppress_context__ else error.__context__]
        pending.extend(cause for cause in causes if cause is not None)
