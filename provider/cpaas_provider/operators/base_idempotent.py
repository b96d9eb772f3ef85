"""Operators that reach a recipient or cost money: idempotent across retries, crashes and clears."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from cpaas_provider.operators import _validators as validators
from cpaas_provider.operators.base import CpaasOperator
from cpaas_provider.provider_info import DEFAULT_CONN_ID

if TYPE_CHECKING:
    import jinja2
    from airflow.sdk import Context

    from cpaas_provider.api.client import CpaasClient
    from cpaas_provider.hooks.connection import CpaasConnection
    from cpaas_provider.operators._runtime.delivery import DeliveryTracker
    from cpaas_provider.sending.journal.journal import Journal
    from cpaas_provider.sending.spec import Outcome, OutcomeProbe, SendSpec

REPORT_KEY = "report"
"""The XCom with the report of a task that fails: what was sent, and what is unknown."""

SKIP_REASON_KEY = "skip_reason"
"""The XCom with the reason of a task that is skipped."""

NO_TASK_STATE = (
    "Airflow's task state store is not available here, so no journal can be written. Nothing was sent. Run the "
    "operator as an Airflow task."
)

_PARTIALLY_SENT = "An earlier try sent a request, or may have sent one. Its report is in the XCom `report`."


class IdempotentOperator(CpaasOperator):
    """Base of operators whose request must not be made twice (docs: concepts/guarantees).

    Before a request leaves, its intent is written to the journal in Airflow's task state store. Its result is written
    after the response. A later try returns accepted requests and sends requests that were not sent. For a request of
    unknown outcome it runs the probes, then follows ``on_unknown``.

    :param on_unknown: what to do about a request of unknown outcome. ``fail`` fails the task without a retry and names
        the request. ``skip`` lets the task succeed and counts its recipients as unknown. ``resend`` sends it again
    :param unknown_timeout: longest wait for a probe to resolve a request of unknown outcome, as a timedelta or in
        seconds, counted from the request. The task is deferred meanwhile. For a passcode the probe is its record, and
        the wait is 30 seconds at most. For SMS, email and airtime it is a delivery report, which needs a
        ``callback_url`` on the connection
    :param resend_on_clear: send everything again when the task is cleared. By default a clear sends only what was not
        accepted
    :param stop_grace_period: seconds to wait for a response after Airflow stops the task, or before its
        ``execution_timeout``. Airflow kills a task 5 seconds after it stops it
    :param cpaas_conn_id: the connection to use
    """

    operation: ClassVar[str | None] = None
    """The operation as the service reports its delivery, ``None`` where it reports nothing."""
    delivery_link: str = ""
    """The address that ``DeliveryLink`` shows; empty without delivery reports."""

    def __init__(
        self,
        *,
        on_unknown: Literal["fail", "skip", "resend"] = "fail",
        unknown_timeout: timedelta | float = timedelta(minutes=10),
        resend_on_clear: bool = False,
        stop_grace_period: float = 4.0,
        cpaas_conn_id: str = DEFAULT_CONN_ID,
        **kwargs: Any,
    ) -> None:
        super().__init__(cpaas_conn_id=cpaas_conn_id, **kwargs)
        self.on_unknown = self._checked(validators.one_of("fail", "skip", "resend"), on_unknown=on_unknown)
        self.unknown_timeout = self._checked(validators.duration, unknown_timeout=unknown_timeout)
        self.resend_on_clear = self._checked(validators.boolean, resend_on_clear=resend_on_clear)
        self.stop_grace_period = self._checked(validators.seconds, stop_grace_period=stop_grace_period)

    def build_request(self, client: CpaasClient, connection: CpaasConnection) -> SendSpec:
        """Return what is to be sent, checked as far as possible before anything leaves."""
        raise NotImplementedError

    def result(self, client: CpaasClient, outcome: Outcome) -> dict[str, Any]:
        """Return the task's result, as small JSON, from the results of all tries."""
        raise NotImplementedError

    def evidence(self, connection: CpaasConnection) -> Sequence[OutcomeProbe]:
        """Return the probes of an unknown outcome, besides the operator's own."""
        if self.tracking is None:
            return ()
        from cpaas_provider.operators._runtime.delivery import DeliveryReportProbe

        return (DeliveryReportProbe(self.tracking),)

    @property
    def tracking(self) -> DeliveryTracker | None:
        """The delivery reports of this try's requests, ``None`` without a callback endpoint."""
        return self.__dict__.get("_tracking")

    def delivery_reports(self) -> Literal["callback", "webhook"] | None:
        """Return the endpoint that the delivery reports of this send reach, ``None`` where none can arrive."""
        if self.tracking is not None:
            return "callback"
        return None if self.__dict__.get("_by_webhook") is None else "webhook"

    def callback_url(self, reference: str, recipients: int, campaign: str | None = None) -> str | None:
        """Return the callback URL of a request: the author's own, or that of the connection's receiver.

        :param campaign: the reference of the request's campaign, ``None`` for a single request
        """
        own: str | None = self.rendered("callback")
        if own is not None or self.tracking is None:
            return own
        return self.tracking.url(campaign or reference, reference, recipients)

    def _track(self, context: Context, connection: CpaasConnection, exit_stack: contextlib.ExitStack) -> None:
        """Prepare delivery tracking as the connection says, unless the author gave a callback of their own."""
        self.__dict__["_tracking"] = self.__dict__["_by_webhook"] = None
        if self.operation is None:
            return
        by_callback = connection.callback_url is not None and self.rendered("callback") is None
        # A report on the account's webhook names the request by our reference, unless the author gave another.
        has_webhook = connection.webhook_secret and connection.signature_header
        by_webhook = has_webhook and self.__dict__.get("external_ref") is None
        if not (by_callback or by_webhook):
            return
        from cpaas_provider.operators._runtime.delivery import DeliveryTracker

        self.__dict__["_tracking" if by_callback else "_by_webhook"] = DeliveryTracker(
            self.operation,
            self.cpaas_conn_id,
            connection,
            context,
            exit_stack,
            recipients=getattr(self, "track_recipients", False),
        )

    def carry_out(
        self, context: Context, client: CpaasClient, connection: CpaasConnection, deadline: str | None
    ) -> Any:
        """Send, or send what is left."""
        from cpaas_provider.operators._runtime.context import cli_address
        from cpaas_provider.sending.engine import SendEngine
        from cpaas_provider.sending.errors import PartlyRejectedError
        from cpaas_provider.sending.spec import OnUnknown

        stop = self._install_stop_signal()
        journal: Journal | None = None

        def push_report(quietly: bool) -> bool:
            return self._push_report(context, journal, quietly=quietly)

        with contextlib.ExitStack() as exit_stack, self._airflow_exceptions(deadline, push_report):
            self._track(context, connection, exit_stack)
            journal = self._journal(context, connection)
            deed = self._prepared(context, client, connection, journal)
            once = SendEngine(
                deed,
                journal,
                client,
                stop,
                on_unknown=OnUnknown(self.on_unknown),
                unknown_timeout=self.unknown_timeout,
                address=cli_address(context),
            )
            try:
                outcome = once.run()
            except PartlyRejectedError:
                self._follow(once.outcome(), deed)
                raise
            if outcome.settled and outcome.earlier:
                from cpaas_provider.operators._runtime import task_log as task_log

                self.log.info("%s", task_log.nothing_left(self))
            self._follow(outcome, deed)
            return {
                **self.result(client, outcome),
                **({} if self.operation is None else {"delivery_reports": self.delivery_reports()}),
                "unknown_recipients": outcome.doubtful,
                "unknown_references": [entry.reference for entry in outcome.unknown],
            }

    def _follow(self, outcome: Outcome, deed: SendSpec) -> None:
        """Record the accepted requests for delivery tracking."""
        if self.tracking is not None:
            from cpaas_provider.links.delivery import page_url

            self.tracking.record_outcome(outcome, deed.recipients)
            self.delivery_link = page_url(entry.reference for entry in outcome.settled)
        elif (by_webhook := self.__dict__.get("_by_webhook")) is not None:
            # Without it the receiver could not check on which connection the reports are genuine.
            by_webhook.record_outcome(outcome, deed.recipients)

    @contextlib.contextmanager
    def _airflow_exceptions(self, deadline: str | None, push_report: Callable[[bool], bool]) -> Iterator[None]:
        """Turn the errors of a send into Airflow's exceptions, and push its report for tasks downstream.

        :param push_report: takes whether unknown requests need no log line; returns whether anything was sent
        """
        from cpaas_provider.sending import errors

        try:
            yield
        except errors.RetryLaterError as later:
            self._defer_until(later, deadline)
            raise
        except errors.RunNotAllowedError as error:
            if push_report(False):
                raise AirflowFailException(f"{error} {_PARTIALLY_SENT}") from None
            self.log.warning("%s", error)
            raise AirflowSkipException(str(error)) from None
        except errors.TrySupersededError as error:
            # The other try pushes the report: a report of this one would overwrite it.
            self._state_failed = True
            raise AirflowException(str(error)) from None
        except errors.SendingError as error:
            # Its message names the unknown requests.
            self._state_failed = isinstance(error, errors.JournalUnavailableError)
            push_report(True)
            kind = AirflowFailException if error.permanent else AirflowException
            raise kind(str(error)) from None
        except Exception:
            push_report(False)
            raise

    def _attempt(self, context: Context, deadline: str | None) -> Any:
        self._state_failed = False
        try:
            return super()._attempt(context, deadline)
        except AirflowSkipException as skipped:
            self._push(context, SKIP_REASON_KEY, str(skipped))
            self._record_nothing_sent(context)
            raise
        except Exception:
            self._record_nothing_sent(context)
            raise

    def _do_render_template_fields(
        self,
        parent: Any,
        template_fields: Iterable[str],
        context: Context,
        jinja_env: jinja2.Environment,
        seen_oids: set[int],
    ) -> None:
        try:
            super()._do_render_template_fields(parent, template_fields, context, jinja_env, seen_oids)
        except Exception:
            if parent is self:
                self._record_nothing_sent(context)
            raise

    def _record_nothing_sent(self, context: Context) -> None:
        """Have the state of a try that failed say so where it claimed nothing, unless the state is what failed."""
        from cpaas_provider.operators._runtime.context import try_info
        from cpaas_provider.operators._runtime.state_store import open_state_store
        from cpaas_provider.sending.journal.store import record_nothing_sent

        state = open_state_store(context)
        if state is not None and not self.__dict__.get("_state_failed"):
            record_nothing_sent(state, try_info(context, self.retries))

    def prepare(self, context: Context, client: CpaasClient, connection: CpaasConnection) -> SendSpec:
        """Return what is to be sent, with the guards of the run."""
        return self.build_request(client, connection)

    def _prepared(
        self, context: Context, client: CpaasClient, connection: CpaasConnection, journal: Journal
    ) -> SendSpec:
        """Return what is to be sent; where it is refused now, the error names what earlier tries sent."""
        from cpaas_provider.sending.spec import Outcome

        try:
            return self.prepare(context, client, connection)
        except (AirflowFailException, AirflowSkipException) as error:
            if Outcome.of(journal.records):
                raise AirflowFailException(f"{error} {_PARTIALLY_SENT}") from None
            raise

    def _journal(self, context: Context, connection: CpaasConnection) -> Journal:
        from cpaas_provider.operators._runtime.context import task_key, try_info
        from cpaas_provider.operators._runtime.state_store import open_state_store
        from cpaas_provider.sending.journal.journal import Journal

        state = open_state_store(context)
        if state is None:
            raise AirflowFailException(NO_TASK_STATE)
        return Journal(
            state,
            connection.hash_secrets,
            task_key(context),
            try_info(context, self.retries),
            resend_on_clear=self.resend_on_clear,
        )

    def _defer_until(self, later: Any, deadline: str | None) -> None:
        from cpaas_provider.triggers.wait import WaitTrigger

        self.log.warning("%s The task is deferred until %s.", later, later.until.isoformat(timespec="seconds"))
        self.defer(
            trigger=WaitTrigger(until=later.until.isoformat()),
            method_name="resume_after_wait",
            kwargs=self.resume_kwargs(deadline),
        )

    def _push_report(self, context: Context, journal: Journal | None, *, quietly: bool = False) -> bool:
        """Push the report of a failing task over all its tries; return whether it reports anything.

        :param quietly: whether unknown requests need no log line
        """
        from cpaas_provider.sending.engine import in_doubt
        from cpaas_provider.sending.spec import Outcome

        outcome = Outcome.of(journal.records) if journal else Outcome()
        if not outcome:
            return False
        if outcome.unknown and not quietly:
            self.log.error("%s", in_doubt(outcome.unknown))
        self._push(context, REPORT_KEY, outcome.report())
        return True
