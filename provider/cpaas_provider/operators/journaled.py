"""Operators that reach a person or cost money: what they do, they do once, whatever ends a try."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from cpaas_provider.operators import _arguments as arguments
from cpaas_provider.operators.base import CpaasOperator
from cpaas_provider.provider_info import DEFAULT_CONN_ID

if TYPE_CHECKING:
    import jinja2
    from airflow.sdk import Context

    from cpaas_provider.api.client import CpaasClient
    from cpaas_provider.hooks.connection import CpaasConnection
    from cpaas_provider.operators._tracking import Tracking
    from cpaas_provider.sending.deed import Deed, Evidence, Outcome
    from cpaas_provider.sending.journal import Journal
    from cpaas_provider.sending.stopping import Stop

T = TypeVar("T")

REPORT_KEY = "report"
"""The XCom under which a task that fails says what it did and what nobody knows."""

SKIP_REASON_KEY = "skip_reason"
"""The XCom under which a task that is skipped says why."""

_BEGUN = "An earlier try had sent, or may have: its report is in the XCom `report`."


class JournaledOperator(CpaasOperator):
    """Base of operators whose request must not be made twice (docs: concepts/guarantees).

    What is about to be requested is stored in the task's state before it leaves, and what became of it afterwards. A
    later try returns what was done without a request, and does what was surely not done. Where nobody knows, it looks
    for evidence, then does what ``on_unknown`` says.

    :param on_unknown: what to do about a request of unknown outcome: ``fail`` (for good, naming it), ``skip`` (succeed
        and count it apart) or ``resend``
    :param unknown_timeout: for how long after a request of unknown outcome evidence of it is waited for, at most; the
        task is deferred meanwhile. A passcode's record is waited for 30 seconds; of SMS, email and airtime a delivery
        report is evidence, which comes where the connection has a ``callback_url``
    :param resend_on_clear: do everything again when the task is cleared; by default only what was not done
    :param stop_grace_period: seconds an answer is waited for after the task was told to stop, or before its
        ``execution_timeout``; Airflow kills a task 5 seconds after telling it to stop
    :param cpaas_conn_id: the connection to use
    """

    operation: ClassVar[str | None] = None
    """What the service reports the delivery of; ``None`` where it reports nothing."""

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
        self.on_unknown = self._checked(arguments.one_of("fail", "skip", "resend"), on_unknown=on_unknown)
        self.unknown_timeout = self._checked(arguments.span, unknown_timeout=unknown_timeout)
        self.resend_on_clear = self._checked(arguments.switch, resend_on_clear=resend_on_clear)
        self.stop_grace_period = self._checked(arguments.seconds, stop_grace_period=stop_grace_period)

    def _checked(self, check: Callable[[str, Any], T], **argument: Any) -> T:
        """Return an argument as it is to be, or refuse it in words that name the task, too."""
        ((name, value),) = argument.items()
        try:
            return check(name, value)
        except ValueError as error:
            raise ValueError(f"{self}: {error}") from None

    def deed(self, client: CpaasClient, connection: CpaasConnection) -> Deed:
        """Return what is to be done once, checked as far as it can be before anything leaves."""
        raise NotImplementedError

    def result(self, client: CpaasClient, outcome: Outcome) -> dict[str, Any]:
        """Return the task's result, as small JSON, from what became of the deed in all tries."""
        raise NotImplementedError

    def evidence(self, connection: CpaasConnection) -> Sequence[Evidence]:
        """Return ways to find out what became of a request, besides the operator's own."""
        if self.tracking is None:
            return ()
        from cpaas_provider.operators._tracking import ReportEvidence

        return (ReportEvidence(self.tracking),)

    @property
    def tracking(self) -> Tracking | None:
        """The delivery reports of this try's requests; ``None`` where nobody receives them."""
        return self.__dict__.get("_tracking")

    def delivery_reports(self) -> Literal["callback", "webhook"] | None:
        """Return which endpoint the delivery reports of this send reach; ``None`` where none can come."""
        if self.tracking is not None:
            return "callback"
        return None if self.__dict__.get("_by_webhook") is None else "webhook"

    def callback_url(self, reference: str, recipients: int, campaign: str | None = None) -> str | None:
        """Return where the delivery reports of a request go: the author's own place, or the connection's receiver.

        :param campaign: what the request is a part of; ``None`` where it stands by itself
        """
        own: str | None = self.private("callback")
        if own is not None or self.tracking is None:
            return own
        return self.tracking.url(campaign or reference, reference, recipients)

    def _track(self, context: Context, connection: CpaasConnection, open_things: contextlib.ExitStack) -> None:
        """Have delivery reports received where the connection says, unless the author has his own place for them."""
        self.__dict__["_tracking"] = self.__dict__["_by_webhook"] = None
        if self.operation is None:
            return
        by_callback = connection.callback_url is not None and self.private("callback") is None
        # A report on the account's webhook names the request by our reference, unless the author gave one of his own.
        has_webhook = connection.webhook_secret and connection.signature_header
        by_webhook = has_webhook and self.__dict__.get("external_ref") is None
        if not (by_callback or by_webhook):
            return
        from cpaas_provider.operators._tracking import Tracking

        self.__dict__["_tracking" if by_callback else "_by_webhook"] = Tracking(
            self.operation,
            self.cpaas_conn_id,
            connection,
            context,
            open_things,
            recipients=getattr(self, "track_recipients", False),
        )

    def on_kill(self) -> None:
        """Let nothing further leave, and give an answer on its way a last moment."""
        # The task may be told so while it is still being rendered, or reads its connection.
        self.__dict__["_told_to_stop"] = True
        stop: Stop | None = self.__dict__.get("_stop")
        if stop is not None:
            stop.request()

    def carry_out(
        self, context: Context, client: CpaasClient, connection: CpaasConnection, give_up_at: str | None
    ) -> Any:
        """Do the deed, or what is left of it."""
        from cpaas_provider.operators._run_facts import address_of
        from cpaas_provider.sending.deed import OnUnknown
        from cpaas_provider.sending.errors import PartlyRejectedError
        from cpaas_provider.sending.once import Once

        stop = self._listen()
        journal: Journal | None = None

        def push_report(quietly: bool) -> bool:
            return self._push_report(context, journal, quietly=quietly)

        with contextlib.ExitStack() as open_things, self._understood_by_airflow(give_up_at, push_report):
            self._track(context, connection, open_things)
            journal = self._journal(context, connection)
            deed = self._prepared(context, client, connection, journal)
            once = Once(
                deed,
                journal,
                client,
                stop,
                on_unknown=OnUnknown(self.on_unknown),
                unknown_timeout=self.unknown_timeout,
                address=address_of(context),
            )
            try:
                outcome = once.run()
            except PartlyRejectedError:
                self._follow(once.outcome(), deed)
                raise
            if outcome.settled and outcome.earlier:
                from cpaas_provider.operators import _task_log as task_log

                self.log.info("%s", task_log.nothing_left(self))
            self._follow(outcome, deed)
            return {
                **self.result(client, outcome),
                **({} if self.operation is None else {"delivery_reports": self.delivery_reports()}),
                "unknown_recipients": outcome.doubtful,
                "unknown_references": [entry.reference for entry in outcome.unknown],
            }

    def _follow(self, outcome: Outcome, deed: Deed) -> None:
        """Have the delivery followed of what was carried out."""
        if self.tracking is not None:
            from cpaas_provider.links.delivery import lead

            self.tracking.note_outcome(outcome, deed.recipients)
            lead(self, [entry.reference for entry in outcome.settled])
        elif (by_webhook := self.__dict__.get("_by_webhook")) is not None:
            # Or nobody could tell on which connection the reports of it are genuine.
            by_webhook.note_outcome(outcome, deed.recipients)

    def _listen(self) -> Stop:
        """Return what says when to end, which ``on_kill`` tells from now on."""
        from cpaas_provider.sending.stopping import Stop

        stop: Stop = Stop(self.stop_grace_period, self.execution_timeout, self.__dict__.get("_began"))
        self.__dict__["_stop"] = stop
        if self.__dict__.get("_told_to_stop"):
            stop.request()
        return stop

    @contextlib.contextmanager
    def _understood_by_airflow(self, give_up_at: str | None, push_report: Callable[[bool], bool]) -> Iterator[None]:
        """Turn what ends a send into what Airflow understands, its report being left for tasks downstream.

        :param push_report: told whether what is in doubt need not be logged as well; tells whether anything was done
        """
        from cpaas_provider.sending import errors

        try:
            yield
        except errors.LaterError as later:
            self._defer_until(later, give_up_at)
            raise
        except errors.NotNowError as error:
            if push_report(False):
                raise AirflowFailException(f"{error} {_BEGUN}") from None
            self.log.warning("%s", error)
            raise AirflowSkipException(str(error)) from None
        except errors.TryReplacedError as error:
            # To report is the other try's part: what this one knows would take the place of what that one found.
            self._state_failed = True
            raise AirflowException(str(error)) from None
        except errors.SendingError as error:
            # Its own words name what is in doubt.
            self._state_failed = isinstance(error, errors.JournalUnavailableError)
            push_report(True)
            kind = AirflowFailException if error.for_good else AirflowException
            raise kind(str(error)) from None
        except Exception:
            push_report(False)
            raise

    def _attempt(self, context: Context, give_up_at: str | None) -> Any:
        self._state_failed = False
        try:
            return super()._attempt(context, give_up_at)
        except AirflowSkipException as skipped:
            self._push(context, SKIP_REASON_KEY, str(skipped))
            self._note_no_claim(context)
            raise
        except Exception:
            self._note_no_claim(context)
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
                self._note_no_claim(context)
            raise

    def _note_no_claim(self, context: Context) -> None:
        """Have the state of a try that failed say so where it claimed nothing, unless the state is what failed."""
        from cpaas_provider.operators._run_facts import try_facts
        from cpaas_provider.operators._task_state import task_state
        from cpaas_provider.sending.journal import note_no_claim

        state = task_state(context)
        if state is not None and not self.__dict__.get("_state_failed"):
            note_no_claim(state, try_facts(context, self.retries))

    def prepare(self, context: Context, client: CpaasClient, connection: CpaasConnection) -> Deed:
        """Return the deed, with whatever of the run decides about it."""
        return self.deed(client, connection)

    def _prepared(self, context: Context, client: CpaasClient, connection: CpaasConnection, journal: Journal) -> Deed:
        """Return the deed; where it is refused now, what earlier tries did is not passed over."""
        from cpaas_provider.sending.deed import Outcome

        try:
            return self.prepare(context, client, connection)
        except (AirflowFailException, AirflowSkipException) as error:
            if Outcome.of(journal.entries):
                raise AirflowFailException(f"{error} {_BEGUN}") from None
            raise

    def _journal(self, context: Context, connection: CpaasConnection) -> Journal:
        from cpaas_provider.operators._run_facts import identity_of, try_facts
        from cpaas_provider.operators._task_state import task_state
        from cpaas_provider.sending.journal import Journal

        state = task_state(context)
        if state is None:
            raise AirflowFailException("This task has no state to keep a journal in. Nothing was sent.")
        return Journal(
            state,
            connection.journal_secrets,
            identity_of(context),
            try_facts(context, self.retries),
            resend_on_clear=self.resend_on_clear,
        )

    def _defer_until(self, later: Any, give_up_at: str | None) -> None:
        from cpaas_provider.triggers.wait import WaitTrigger

        self.log.warning("%s The task is deferred until %s.", later, later.until.isoformat(timespec="seconds"))
        self.defer(
            trigger=WaitTrigger(until=later.until.isoformat()),
            method_name="execute_after_wait",
            kwargs=self.after_wait(give_up_at),
        )

    def _push_report(self, context: Context, journal: Journal | None, *, quietly: bool = False) -> bool:
        """Leave for tasks downstream what a failing task did in all its tries, and tell whether that is anything.

        :param quietly: whether what is in doubt need not be logged as well
        """
        from cpaas_provider.sending.deed import Outcome
        from cpaas_provider.sending.once import in_doubt

        outcome = Outcome.of(journal.entries) if journal else Outcome()
        if not outcome:
            return False
        if outcome.unknown and not quietly:
            self.log.error("%s", in_doubt(outcome.unknown))
        self._push(context, REPORT_KEY, outcome.report())
        return True

    def _push(self, context: Context, key: str, value: Any) -> None:
        try:
            context["ti"].xcom_push(key=key, value=value)
        except Exception as error:  # noqa: BLE001 - what is being reported matters more
            self.log.warning("The %s could not be stored as XCom (%s).", key, type(error).__name__)
