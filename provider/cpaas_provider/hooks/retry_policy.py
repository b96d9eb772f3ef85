"""A retry policy for ``@task`` functions that use the hook: only what may be repeated is retried."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk.definitions.retry_policy import RetryDecision, RetryPolicy

if TYPE_CHECKING:
    from airflow.sdk import Context


class CpaasRetryPolicy(RetryPolicy):
    """Decide a task's retry by what became of its request.

    * a request the service rejected, or whose outcome is unknown and which must not simply be repeated: the task
      fails at once and keeps its retries;
    * a request that did nothing: retried, after as long as the service asked;
    * anything else: the task's own ``retries`` and ``retry_delay``.

    .. code-block:: python

        @task(retries=3, retry_policy=CpaasRetryPolicy())
        def welcome(): ...
    """

    def evaluate(
        self, exception: BaseException, try_number: int, max_tries: int, context: Context | None = None
    ) -> RetryDecision:
        """Return the decision for an exception that ended a try."""
        from cpaas_provider.api.errors import CpaasError

        if not isinstance(exception, CpaasError):
            return RetryDecision.default()
        reason = type(exception).__name__
        if not exception.retryable:
            return RetryDecision.fail(reason=f"{reason}: repeating it would not help, or might act twice")
        if exception.retry_after is None:
            return RetryDecision.default()
        return RetryDecision.retry(
            delay=timedelta(seconds=exception.retry_after), reason=f"{reason}: the service asked to wait"
        )

    def serialize(self) -> dict[str, Any]:
        """Return nothing: the policy has no options."""
        return {}

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> CpaasRetryPolicy:
        """Return the policy."""
        return cls()
