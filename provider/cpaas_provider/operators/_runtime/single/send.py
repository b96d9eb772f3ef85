"""One try of an operator that makes one request, at most once across all tries."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from airflow.sdk import timezone
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from cpaas_provider.operators._runtime import task_log
from cpaas_provider.operators._runtime.delivery.reports import DeliveryReports, ReportOptions
from cpaas_provider.operators._runtime.errors import PreflightError
from cpaas_provider.operators._runtime.runner import PARTIALLY_SENT, REPORT_KEY, Attempt
from cpaas_provider.sending.engine import SendEngine
from cpaas_provider.sending.errors import PartlyRejectedError
from cpaas_provider.sending.journal.journal import Journal
from cpaas_provider.sending.resolver import describe_unknown
from cpaas_provider.sending.run_guard import check_run_may_send
from cpaas_provider.sending.spec import OnUnknown, Outcome

if TYPE_CHECKING:
    from cpaas_provider.operators._runtime.runtime import TaskRuntime
    from cpaas_provider.sending.spec import SendSpec

NO_TASK_STATE = (
    "Airflow's task state store is not available here, so no journal can be written. Nothing was sent. Run the "
    "operator as an Airflow task."
)


@dataclass(frozen=True)
class SendOptions:
    """What an author says about unknown outcomes, clears and runs.

    :param guards_run: whether backfills, catch-up runs and stale runs do not send
    """

    on_unknown: str = "fail"
    unknown_timeout: timedelta = timedelta(minutes=10)
    resend_on_clear: bool = False
    allow_backfill: bool = False
    max_lateness: timedelta | None = timedelta(days=1)
    guards_run: bool = True


class SingleRequest(Protocol):
    """What is to be requested once."""

    def build_spec(self, runtime: TaskRuntime, reports: DeliveryReports) -> SendSpec:
        """Return what is to be sent, checked as far as possible before anything leaves."""

    def result(self, outcome: Outcome, runtime: TaskRuntime) -> dict[str, Any]:
        """Return the task's result, as small JSON, from the results of all tries."""


def open_journal(runtime: TaskRuntime, options: SendOptions) -> Journal:
    """Return the task's journal.

    :raises PreflightError: outside of a task
    """
    if runtime.state_store is None:
        raise PreflightError(NO_TASK_STATE, permanent=True)
    return Journal(
        runtime.state_store,
        runtime.connection.hash_secrets,
        runtime.task_key,
        runtime.try_info,
        resend_on_clear=options.resend_on_clear,
    )


class SingleSend(Attempt):
    """One try of a single send.

    :param request: what is to be requested once
    :param task_type: the operator's class, for the log
    """

    is_send = has_task_journal = True

    def __init__(
        self,
        request: SingleRequest,
        options: SendOptions,
        report_options: ReportOptions,
        runtime: TaskRuntime,
        *,
        task_type: str,
        begin_line: str,
    ) -> None:
        self._request = request
        self._options = options
        self._report_options = report_options
        self._runtime = runtime
        self.task_type = task_type
        self.begin_line = begin_line
        self._journal: Journal | None = None

    def run(self) -> dict[str, Any]:
        """Log the begin, and send, or send what is left."""
        _ = self._runtime.client
        self._runtime.log.info("%s", self.begin_line)
        return self.send()

    def send(self) -> dict[str, Any]:
        """Send, or send what is left."""
        runtime, options = self._runtime, self._options
        reports = DeliveryReports(self._report_options, runtime)
        self._journal = open_journal(runtime, options)
        spec = self._build_spec(self._journal, reports)
        outcome = run_engine(spec, self._journal, options, runtime, reports)
        if outcome.settled and outcome.earlier:
            runtime.log.info("%s", task_log.nothing_left())
        result = build_result(self._request, outcome, runtime, reports)
        runtime.log.info("%s", task_log.done(self.task_type, result))
        return result

    def push_report(self, *, quietly: bool) -> bool:
        """Push the report of all tries. Return whether something was sent or is unknown."""
        outcome = Outcome.of(self._journal.records) if self._journal else Outcome()
        if not outcome:
            return False
        if outcome.unknown and not quietly:
            self._runtime.log.error("%s", describe_unknown(outcome.unknown, outcome.doubtful))
        self._runtime.push_or_warn(REPORT_KEY, outcome.report())
        return True

    def _build_spec(self, journal: Journal, reports: DeliveryReports) -> SendSpec:
        """Return what is to be sent, with the guards of the run. If it is refused now, name what earlier tries sent."""
        try:
            spec = self._request.build_spec(self._runtime, reports)
        except (AirflowFailException, AirflowSkipException) as error:
            if Outcome.of(journal.records):
                raise AirflowFailException(f"{error} {PARTIALLY_SENT}") from None
            raise
        return guarded(spec, self._options, self._runtime, reports)


def run_engine(
    spec: SendSpec, journal: Journal, options: SendOptions, runtime: TaskRuntime, reports: DeliveryReports
) -> Outcome:
    """Send, or send what is left, and record it for delivery tracking, also if the service rejects some recipients."""
    engine = SendEngine(
        spec,
        journal,
        runtime.client,
        runtime.stop,
        on_unknown=OnUnknown(options.on_unknown),
        unknown_timeout=options.unknown_timeout,
        address=runtime.cli_address,
    )
    try:
        outcome = engine.run()
    except PartlyRejectedError:
        reports.record_outcome(engine.outcome(), spec.recipients)
        raise
    reports.record_outcome(outcome, spec.recipients)
    return outcome


def build_result(
    request: SingleRequest, outcome: Outcome, runtime: TaskRuntime, reports: DeliveryReports
) -> dict[str, Any]:
    """Return the result of a single send, as small JSON."""
    return {
        **request.result(outcome, runtime),
        **reports.result_fields(),
        "unknown_recipients": outcome.doubtful,
        "unknown_references": [entry.reference for entry in outcome.unknown],
    }


def guarded(spec: SendSpec, options: SendOptions, runtime: TaskRuntime, reports: DeliveryReports) -> SendSpec:
    """Return a spec whose preflight checks the run and the receiver of delivery reports, too."""
    return replace(spec, preflight=partial(_check, spec, options, runtime, reports))


def _check(spec: SendSpec, options: SendOptions, runtime: TaskRuntime, reports: DeliveryReports) -> None:
    if options.guards_run:
        check_run_may_send(
            runtime.run_info,
            timezone.utcnow(),
            allow_backfill=options.allow_backfill,
            max_lateness=options.max_lateness,
        )
    reports.begin()
    spec.preflight()
