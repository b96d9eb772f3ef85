"""The runner: one try of an operator. Only here do our errors become exceptions of Airflow, or a deferral."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import timezone
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException, TaskDeferred

from cpaas_provider.api.backoff import MAX_DEFERRAL
from cpaas_provider.api.errors import CpaasError, CpaasNotSentError
from cpaas_provider.sending import errors
from cpaas_provider.tasks.airflow.context import SKIP_REASON_KEY
from cpaas_provider.tasks.errors import PreflightError

if TYPE_CHECKING:
    from cpaas_provider.api.client import CpaasClient
    from cpaas_provider.hooks.connection import CpaasConnection
    from cpaas_provider.tasks.lineage import Lineage
    from cpaas_provider.tasks.runtime import TaskRuntime

REPORT_KEY = "report"
"""The XCom with the report of a task that fails: what was sent, and what is unknown."""

PARTIALLY_SENT = "An earlier try sent a request, or may have sent one. Its report is in the XCom `report`."

RESUME_METHOD = "resume_after_wait"


class Attempt:
    """One try of an operator, as the runner sees it."""

    is_send = False
    """Whether the try reaches a recipient or changes something at the service, at most once."""
    has_task_journal = False
    """Whether its requests are recorded in the task state store before they leave."""

    @property
    def lineage(self) -> Lineage | None:
        """What OpenLineage shows of the try, ``None`` for nothing."""
        return None

    def run(self) -> Any:
        """Do what the task is for, or what is left of it, and return its result."""
        raise NotImplementedError

    def push_report(self, *, quietly: bool) -> bool:
        """Push the report of a try that fails. Return whether something was sent or is unknown.

        :param quietly: whether unknown requests need no log line of their own
        """
        return False

    def record_end(self) -> None:
        """Record that no further try will send, so that sensors know for how many recipients to wait."""

    def describe_progress(self) -> str:
        """Return a sentence on what all tries of many requests have done so far; empty for a single request."""
        return ""

    def resume_kwargs(self) -> dict[str, Any]:
        """Return what the operator's ``resume_after_wait`` gets beside ``deadline``."""
        return {}


@dataclass(frozen=True)
class ReadAttempt(Attempt):
    """One try of an operator that reads, or whose request a retry may make again.

    :param request: makes the one request
    """

    runtime: TaskRuntime
    request: Callable[[CpaasClient, CpaasConnection], Any]

    def run(self) -> Any:
        """Make the request and return its result."""
        client = self.runtime.client
        self.runtime.log_begin()
        result = self.request(client, self.runtime.connection)
        self.runtime.log_done(result)
        return result


def run_attempt(attempt: Attempt, runtime: TaskRuntime, deadline: str | None) -> Any:
    """Run one try of an operator.

    :param deadline: until when the task may be deferred for Retry-After, ``None`` before the first deferral
    :raises AirflowFailException: when a retry would not help or could act twice
    :raises AirflowSkipException: when the run does not send
    :raises TaskDeferred: when the task continues later
    :raises Exception: when a retry of the task may continue
    """
    try:
        with runtime.exit_stack:
            return _run(attempt, runtime, deadline)
    except BaseException as error:
        # Airflow's timeout of a task is no Exception.
        if attempt.is_send and isinstance(error, AirflowSkipException):
            runtime.push_or_warn(SKIP_REASON_KEY, str(error))
        if attempt.has_task_journal:
            # Without this record a later clear would treat the empty journal as a lost one.
            runtime.record_nothing_sent()
        raise


def _run(attempt: Attempt, runtime: TaskRuntime, deadline: str | None) -> Any:
    try:
        for name, reason in runtime.valueless.items():
            # It would be sent as a word, or as a default.
            raise AirflowFailException(
                f"{name} {reason} after rendering. Nothing was sent in this try. Check its template or the task it "
                "comes from."
            )
        result = attempt.run()
    except Exception as error:
        # If another try has replaced this one, the send goes on.
        superseded = isinstance(error, errors.TrySupersededError)
        runtime.state_failed = superseded or isinstance(error, errors.JournalUnavailableError)
        ends = attempt.is_send and not (superseded or isinstance(error, errors.RetryLaterError))
        if ends and (_is_permanent(error) or runtime.is_last_try):
            attempt.record_end()
        ours = _for_airflow(error, attempt, runtime, deadline)
        if ours is error:
            raise
        raise ours from None
    attempt.record_end()
    return result


def _is_permanent(error: Exception) -> bool:
    from cpaas_provider.contacts.errors import ContactsError

    if isinstance(error, CpaasError):
        return error.is_permanent
    return isinstance(error, (errors.SendingError, ContactsError)) and error.permanent


def _for_airflow(error: Exception, attempt: Attempt, runtime: TaskRuntime, deadline: str | None) -> BaseException:
    """Return the exception of Airflow for an error of ours, and push the report of the try; others as they are."""
    if isinstance(error, errors.RetryLaterError):
        return _deferral(str(error), error.until, attempt, runtime, deadline)
    runtime.failure = failure_text(error)
    # The other try pushes the report: a report of this one would overwrite it.
    superseded = isinstance(error, errors.TrySupersededError)
    not_allowed = isinstance(error, errors.RunNotAllowedError)
    # The message of another error of a send names the unknown requests.
    quietly = isinstance(error, errors.SendingError) and not not_allowed
    if not superseded and attempt.push_report(quietly=quietly) and not_allowed:
        return AirflowFailException(f"{error} {PARTIALLY_SENT}")
    if not_allowed:
        runtime.log.warning("%s", error)
    if isinstance(error, CpaasError):
        return _of_service(error, attempt, runtime, deadline)
    return airflow_exception(error)


def failure_text(error: Exception) -> str:
    """Return an error for the pages. The text of an error that is not ours may contain anything, so its kind is given.

    Our texts name no recipient, no key and no body.
    """
    if isinstance(error, CpaasError) or airflow_exception(error) is not error:
        return str(error)
    return f"The task failed with {type(error).__name__}. Its log has the rest."


def airflow_exception(error: Exception) -> Exception:
    """Return the exception of Airflow for an error of ours, and any other error as it is."""
    # Few tries fail, and most raise the errors of one or two of these.
    from cpaas_provider.contacts.errors import ContactsError
    from cpaas_provider.database.errors import DatabaseError
    from cpaas_provider.sources.base import SourceError
    from cpaas_provider.sources.results_file import ResultsFileError

    if isinstance(error, (errors.RunNotAllowedError, errors.NoRecipientsError)):
        return AirflowSkipException(str(error))
    if isinstance(error, (errors.SendingError, PreflightError, ContactsError)):
        return (AirflowFailException if error.permanent else AirflowException)(str(error))
    if isinstance(error, SourceError):
        failed = AirflowFailException if error.permanent else AirflowException
        return failed(f"{str(error).rstrip('.')}. Nothing was sent in this try.")
    if isinstance(error, (DatabaseError, ResultsFileError)):
        return AirflowException(str(error))
    if isinstance(error, CpaasNotSentError) and error.is_permanent:
        # The retries would be used up long before a person lets requests leave again.
        return AirflowFailException(str(error))
    return error


def _of_service(error: CpaasError, attempt: Attempt, runtime: TaskRuntime, deadline: str | None) -> BaseException:
    """Fail for good, wait for as long as the service asked, or leave the error to the task's retries."""
    if error.is_permanent:
        progress = attempt.describe_progress() if isinstance(error, CpaasNotSentError) else ""
        return AirflowFailException(f"{error} {progress}".strip())
    if error.retry_after is None or error.retry_after <= runtime.connection.settings.max_retry_after:
        return error
    now = timezone.utcnow()
    latest = datetime.fromisoformat(deadline) if deadline else now + MAX_DEFERRAL
    until = now + timedelta(seconds=error.retry_after)
    return error if until > latest else _deferral(str(error), until, attempt, runtime, latest.isoformat())


def _deferral(why: str, until: datetime, attempt: Attempt, runtime: TaskRuntime, deadline: str | None) -> TaskDeferred:
    from cpaas_provider.triggers.wait import WaitTrigger

    runtime.log.warning("%s The task is deferred until %s.", why, until.isoformat(timespec="seconds"))
    return TaskDeferred(
        trigger=WaitTrigger(until=until.isoformat()),
        method_name=RESUME_METHOD,
        kwargs={"deadline": deadline, **attempt.resume_kwargs()},
    )
