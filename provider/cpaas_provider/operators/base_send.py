"""The base of the operators that make one request at most once: messages, passcodes and purchases."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from cpaas_provider.api import bounds
from cpaas_provider.operators.base import STOP_GRACE_PERIOD, CpaasOperator
from cpaas_provider.tasks import validators

if TYPE_CHECKING:
    from airflow.sdk import BaseOperatorLink

    from cpaas_provider.sending.requests.request import SingleRequest
    from cpaas_provider.tasks.runner import Attempt
    from cpaas_provider.tasks.runtime import TaskRuntime

OnUnknown = Literal["fail", "skip", "resend"]


class LazyDeliveryLinks:
    """The ``operator_extra_links`` of a class. The link is imported on first use, because a DAG file needs none."""

    def __get__(self, operator: object, owner: Any) -> tuple[BaseOperatorLink, ...]:
        if owner.operation is None:
            # The service sends no delivery reports for passcodes, so there is no page to link to.
            return ()
        from cpaas_provider.links.delivery import DeliveryLink

        return (DeliveryLink(),)


class SendOperator(CpaasOperator):
    """Base of operators whose request must not be made twice (docs: concepts/guarantees).

    Before a request leaves, its intent is written to the journal in Airflow's task state store. Its result is written
    after the response. A later try returns accepted requests and sends requests that were not sent. For a request of
    unknown outcome it runs the probes, then follows ``on_unknown``. A stale run does not send.

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
    :param allow_backfill: let backfills and catch-up runs send, too
    :param track_recipients: record the recipients in the database, so that ``DeliverySensor`` can name recipients
        without a delivery report. It needs ``callback_url`` on the connection
    :param max_lateness: how long after ``run_after`` any other run may still send. ``None`` sets no limit
    :param use_suppression_list: do not send to recipients on the suppression list that the provider stores. For a
        passcode only ``invalid_number`` counts, because its recipient asked for it. A purchase of airtime does not
        consult it (docs: guides/suppressions)
    :param external_ref: a reference of your own. Default: the provider's, which errors and the journal name (templated)
    :param callback: a URL of your own that receives the delivery reports (templated)
    :param frequency_cap: how many messages of ``frequency_category`` a recipient may get, over all DAGs, such as
        ``(3, timedelta(days=7))`` for three in seven days, at most 90 days. Recipients at the cap are left out
    :param frequency_category: the category in which the message counts, such as ``marketing``. Without a
        ``frequency_cap`` it counts, and no recipient is left out. Default: ``default``, if there is a cap
    """

    has_task_journal = True
    operator_extra_links: Any = LazyDeliveryLinks()
    operation: ClassVar[str | None] = None
    """The operation that delivery reports belong to, ``None`` if the service sends none."""

    # Arguments of some of the operators, which are described above for all of these.
    callback: str | None = None
    external_ref: str | None = None
    frequency_cap: tuple[int, timedelta] | None = None
    frequency_category: str | None = None

    def __init__(
        self,
        *,
        on_unknown: OnUnknown = "fail",
        unknown_timeout: timedelta | float = timedelta(minutes=10),
        resend_on_clear: bool = False,
        stop_grace_period: float = STOP_GRACE_PERIOD,
        allow_backfill: bool = False,
        track_recipients: bool = False,
        max_lateness: timedelta | None = timedelta(days=1),
        use_suppression_list: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.on_unknown = self._checked(validators.on_unknown, on_unknown=on_unknown)
        self.unknown_timeout = self._checked(validators.duration, unknown_timeout=unknown_timeout)
        self.resend_on_clear = self._checked(bounds.flag, resend_on_clear=resend_on_clear)
        self.stop_grace_period = self._checked(validators.seconds, stop_grace_period=stop_grace_period)
        self.allow_backfill = self._checked(bounds.flag, allow_backfill=allow_backfill)
        self.track_recipients = self._checked(bounds.flag, track_recipients=track_recipients)
        self.use_suppression_list = self._checked(bounds.flag, use_suppression_list=use_suppression_list)
        self.max_lateness = self._checked(validators.duration_or_none, max_lateness=max_lateness)

    def build_request(self) -> SingleRequest:
        """Return the one request, from the rendered arguments."""
        raise NotImplementedError

    def make_attempt(self, runtime: TaskRuntime, **resumed: Any) -> Attempt:
        """Return one try of the send."""
        from cpaas_provider.tasks.delivery.reports import ReportOptions
        from cpaas_provider.tasks.single.send import SendOptions, SingleSend

        return SingleSend(
            request=self.build_request(),
            options=self._build_spec(SendOptions, guards_run=True),
            report_options=self._build_spec(ReportOptions),
            runtime=runtime,
        )
