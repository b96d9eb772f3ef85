"""One try of an operator that makes one request, at most once across all tries."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from cpaas_provider.operators._runtime import task_log
from cpaas_provider.operators._runtime.database.frequency import open_frequency_cap
from cpaas_provider.operators._runtime.delivery.reports import DeliveryReports, ReportOptions
from cpaas_provider.operators._runtime.errors import LeftOutError, PreflightError
from cpaas_provider.operators._runtime.runner import PARTIALLY_SENT, REPORT_KEY, Attempt
from cpaas_provider.sending.engine import SendEngine, UnknownPolicy
from cpaas_provider.sending.errors import PartlyRejectedError
from cpaas_provider.sending.journal.journal import Journal
from cpaas_provider.sending.resolver import describe_unknown
from cpaas_provider.sending.single import SingleSendState
from cpaas_provider.sending.spec import OnUnknown, Outcome

if TYPE_CHECKING:
    from cpaas_provider.operators._runtime.runtime import TaskRuntime
    from cpaas_provider.operators._runtime.single.request import SingleRequest
    from cpaas_provider.sending.spec import SendSpec

NO_TASK_STATE = (
    "Airflow's task state store is not available here, so no journal can be written. Nothing was sent. Run the "
    "operator as an Airflow task."
)


@dataclass(frozen=True)
class SendOptions:
    """What an author says about unknown outcomes, clears and runs.

    :param guards_run: whether backfills, catch-up runs and stale runs do not send
    :param use_suppression_list: whether recipients on the stored suppression list are left out
    :param frequency_cap: how many messages of the category a recipient may get, and within how long
    """

    on_unknown: str = "fail"
    unknown_timeout: timedelta = timedelta(minutes=10)
    resend_on_clear: bool = False
    allow_backfill: bool = False
    max_lateness: timedelta | None = timedelta(days=1)
    guards_run: bool = True
    use_suppression_list: bool = True
    frequency_cap: tuple[int, timedelta] | None = None
    frequency_category: str | None = None


def open_journal(runtime: TaskRuntime, options: SendOptions, *, several: bool = False) -> Journal:
    """Return the task's journal.

    :param several: whether the task makes several sends, of whatever operation
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
        several=several,
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
        _ = self._runtime.async_client
        self._runtime.log.info("%s", self.begin_line)
        return self.send()

    def send(self) -> dict[str, Any]:
        """Send, or send what is left."""
        runtime, options = self._runtime, self._options
        reports = DeliveryReports(self._report_options, runtime)
        self._journal = open_journal(runtime, options)
        spec = self._build_spec(self._journal, reports)
        state = open_state(spec, self._journal, reports, self._request, options, runtime)
        outcome = run_engine(state, options, runtime, reports)
        check_left_out(state, outcome, self._request)
        if outcome.accepted and outcome.earlier:
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
            self._runtime.log.error("%s", describe_unknown(outcome.unknown, outcome.unknown_recipients))
        self._runtime.push_or_warn(REPORT_KEY, outcome.report())
        return True

    def _build_spec(self, journal: Journal, reports: DeliveryReports) -> SendSpec:
        """Return what is to be sent. If it is refused now, name what earlier tries sent."""
        try:
            return self._request.build_spec(self._runtime, reports)
        except (AirflowFailException, AirflowSkipException) as error:
            if Outcome.of(journal.records):
                raise AirflowFailException(f"{error} {PARTIALLY_SENT}") from None
            raise


def open_state(
    spec: SendSpec,
    journal: Journal,
    reports: DeliveryReports,
    request: SingleRequest,
    options: SendOptions,
    runtime: TaskRuntime,
) -> SingleSendState:
    """Return where the recipients of a send stand."""
    suppressions = request.suppressions(runtime) if options.use_suppression_list else None
    send = journal.hasher.reference(spec.operation, (), journal.log.resend_epoch)
    frequency_cap = None
    if request.is_message:
        frequency_cap = open_frequency_cap(
            runtime, options.frequency_cap, options.frequency_category, send, runtime.confirm_current
        )
    return SingleSendState(spec, journal, reports, suppressions=suppressions, frequency_cap=frequency_cap)


def check_left_out(state: SingleSendState, outcome: Outcome, request: SingleRequest) -> None:
    """Count the recipients that guards left out.

    :raises LeftOutError: when no recipient is left
    """
    suppressed, capped = len(state.suppressed), len(state.frequency_capped)
    request.record_left_out(suppressed, capped)
    if outcome or not (suppressed or capped):
        return
    if suppressed and capped:
        where = "on the suppression list or at the frequency cap"
    else:
        where = "on the suppression list" if suppressed else "at the frequency cap"
    hint = (
        " `airflow cpaas suppressions list` shows the list, and use_suppression_list=False sends without it."
        if suppressed
        else ""
    )
    whose = "The recipient is" if suppressed + capped == 1 else "All recipients are"
    raise LeftOutError(f"{whose} {where}. Nothing was sent.{hint}")


def run_engine(state: SingleSendState, options: SendOptions, runtime: TaskRuntime, reports: DeliveryReports) -> Outcome:
    """Send, or send what is left, and record it for delivery tracking, also if the service rejects some recipients."""
    spec = state.spec
    policy = UnknownPolicy(OnUnknown(options.on_unknown), options.unknown_timeout, spec.probes)
    engine = SendEngine(state, runtime.async_client, SingleSendPorts(options, runtime, reports), policy)
    try:
        runtime.run(engine.run())
    except PartlyRejectedError:
        reports.record_outcome(state.outcome(), spec.recipients)
        raise
    outcome = state.outcome()
    reports.record_outcome(outcome, spec.recipients)
    return outcome


class SingleSendPorts:
    """What the engine needs of the try of a single send."""

    def __init__(self, options: SendOptions, runtime: TaskRuntime, reports: DeliveryReports) -> None:
        self.stop = runtime.stop
        self.cli_address = runtime.cli_address
        self._options = options
        self._runtime = runtime
        self._reports = reports

    def check_may_send(self) -> None:
        """Raise where the run does not send, or where delivery reports would be lost."""
        if self._options.guards_run:
            self._runtime.check_run_may_send(
                allow_backfill=self._options.allow_backfill, max_lateness=self._options.max_lateness
            )
        self._reports.begin()


def build_result(
    request: SingleRequest, outcome: Outcome, runtime: TaskRuntime, reports: DeliveryReports
) -> dict[str, Any]:
    """Return the result of a single send, as small JSON, and record it for the pages in Airflow's UI."""
    result = {
        **request.result(outcome, runtime),
        **reports.result_fields(),
        "unknown_recipients": outcome.unknown_recipients,
        "unknown_references": [entry.reference for entry in outcome.unknown],
    }
    request.record_activity(result, runtime)
    return result
