"""One try of an operator that makes one request, at most once across all tries."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException
from msgspec import Struct

from cpaas_provider.sending.errors import InvalidRequestError, NoRecipientsError
from cpaas_provider.sending.journal.journal import Journal
from cpaas_provider.sending.resolver import describe_unknown
from cpaas_provider.sending.send import send_once
from cpaas_provider.sending.single import SingleSendState
from cpaas_provider.sending.spec import OnUnknown, SendOutcome, UnknownPolicy, channel_of
from cpaas_provider.tasks.airflow import task_log
from cpaas_provider.tasks.database.frequency import open_frequency_cap
from cpaas_provider.tasks.database.suppressions import StoredSuppressionList
from cpaas_provider.tasks.delivery.reports import DeliveryReports, ReportOptions
from cpaas_provider.tasks.runner import PARTIALLY_SENT, REPORT_KEY, Attempt
from cpaas_provider.tasks.single.activity import RECORDERS

if TYPE_CHECKING:
    from cpaas_provider.sending.requests.request import SingleRequest
    from cpaas_provider.sending.spec import SendSpec
    from cpaas_provider.tasks.runtime import TaskRuntime


class SendOptions(Struct, frozen=True):
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
    return Journal(
        runtime.require_journal_store(),
        runtime.connection.hash_secrets,
        runtime.task_key,
        runtime.try_info,
        resend_on_clear=options.resend_on_clear,
        several=several,
    )


@dataclass(kw_only=True)
class SingleSend(Attempt):
    """One try of a single send.

    :param request: what is to be requested once
    :param resends: the number of resends that the try made before it was deferred
    """

    is_send = has_task_journal = True

    request: SingleRequest
    options: SendOptions
    report_options: ReportOptions
    runtime: TaskRuntime
    resends: int = 0
    _journal: Journal | None = field(default=None, init=False)
    _sender: SingleSender | None = field(default=None, init=False)

    def run(self, *, has_begun: bool = False) -> dict[str, Any]:
        """Send, or send what is left.

        :param has_begun: whether the begin of the task is logged
        """
        if not has_begun:
            _ = self.runtime.async_client
            self.runtime.log_begin()
        sender = self._sender = SingleSender(
            self.request, self.options, self.report_options, self.runtime, self.resends
        )
        self._journal = open_journal(self.runtime, self.options)
        try:
            spec = self.request.build_spec(self.runtime.connection, sender.reports.probes())
        except (InvalidRequestError, NoRecipientsError) as error:
            if SendOutcome.of(self._journal.records):
                raise AirflowFailException(f"{error} {PARTIALLY_SENT}") from None
            raise
        state = sender.open_state(spec, self._journal)
        outcome = sender.send(state)
        sender.check_left_out(outcome)
        if outcome.accepted and outcome.earlier:
            self.runtime.log.info("%s", task_log.nothing_left())
        result = sender.build_result(outcome)
        self.runtime.log_done(result)
        return result

    def resume_kwargs(self) -> dict[str, Any]:
        """Return the number of resends of this try, if it has made any."""
        resends = self._sender.resends if self._sender else self.resends
        return {"resends": resends} if resends else {}

    def push_report(self, *, quietly: bool) -> bool:
        """Push the report of all tries. Return whether something was sent or is unknown."""
        outcome = SendOutcome.of(self._journal.records) if self._journal else SendOutcome()
        if not outcome:
            return False
        if outcome.unknown and not quietly:
            self.runtime.log.error("%s", describe_unknown(outcome.unknown, outcome.unknown_recipients))
        self.runtime.push_or_warn(REPORT_KEY, outcome.report())
        return True


class SingleSender:
    """The steps of a single send that operators and the idempotent client share, and what the engine needs of its try.

    :param request: what is to be requested once
    """

    def __init__(
        self,
        request: SingleRequest,
        options: SendOptions,
        report_options: ReportOptions,
        runtime: TaskRuntime,
        resends: int = 0,
    ) -> None:
        self._request = request
        self._options = options
        self._runtime = runtime
        self.reports = DeliveryReports(report_options, runtime)
        self.stop = runtime.stop
        self.cli_address = runtime.cli_address
        self.resends = resends

    def open_state(self, spec: SendSpec, journal: Journal) -> SingleSendState:
        """Return the status of the recipients of a send."""
        options, runtime = self._options, self._runtime
        frequency_cap = None
        if self._request.is_message:
            # A message by another channel is another message.
            channel = channel_of(spec.operation, spec.body)
            send = journal.log.reference((), f"{spec.operation}/{channel}")
            frequency_cap = open_frequency_cap(
                runtime, options.frequency_cap, options.frequency_category, send, runtime.confirm_current
            )
        scope = self._request.suppression_scope if options.use_suppression_list else None
        suppressions = StoredSuppressionList(runtime, *scope) if scope else None
        return SingleSendState(spec, journal, self.reports, suppressions=suppressions, frequency_cap=frequency_cap)

    def send(self, state: SingleSendState, *, waits: bool = False) -> SendOutcome:
        """Send, or send what is left.

        :param waits: whether to wait here while a probe may still establish an outcome
        """
        options = self._options
        policy = UnknownPolicy(OnUnknown(options.on_unknown), options.unknown_timeout, state.spec.probes)
        client = self._runtime.async_client
        return self._runtime.run(send_once(state, client, self, self.reports, policy, waits=waits))

    def check_may_send(self) -> None:
        """Raise where the run does not send, or where delivery reports would be lost."""
        if self._options.guards_run:
            self._runtime.check_run_may_send(
                allow_backfill=self._options.allow_backfill, max_lateness=self._options.max_lateness
            )
        self.reports.begin()

    def check_left_out(self, outcome: SendOutcome) -> None:
        """Check that guards did not leave out all recipients.

        :raises NoRecipientsError: when they did
        """
        suppressed, capped = outcome.suppressed, outcome.capped
        if outcome or not (suppressed or capped):
            return
        reasons = ["on the suppression list"] * bool(suppressed) + ["at the frequency cap"] * bool(capped)
        hint = (
            " `airflow cpaas suppressions list` shows the list, and use_suppression_list=False sends without it."
            if suppressed
            else ""
        )
        whose = "The recipient is" if suppressed + capped == 1 else "All recipients are"
        raise NoRecipientsError(f"{whose} {' or '.join(reasons)}. Nothing was sent.{hint}")

    def build_result(self, outcome: SendOutcome) -> dict[str, Any]:
        """Return the result of a single send, as small JSON, and record it for the pages in Airflow's UI."""
        result = {
            **self._request.result(outcome),
            **self.reports.result_fields(),
            "unknown_recipients": outcome.unknown_recipients,
            "unknown_references": [entry.reference for entry in outcome.unknown],
        }
        if record := RECORDERS.get(self._request.operation):
            record(result, outcome, self._runtime)
        return result
