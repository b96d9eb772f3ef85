"""Where the delivery reports of one try go: to the author, to the provider's receiver, to the webhook, or nowhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from cpaas_provider._common.records import PrivateRecord

if TYPE_CHECKING:
    from cpaas_provider.sending.spec import OutcomeProbe, SendOutcome
    from cpaas_provider.tasks.delivery.tracker import DeliveryTracker
    from cpaas_provider.tasks.runtime import TaskRuntime


class ReportOptions(PrivateRecord, frozen=True):
    """What an author says about the delivery reports of a send.

    :param operation: the operation as the service reports its delivery, ``None`` where it reports nothing
    :param callback: the author's own URL for them
    :param external_ref: the author's own reference
    :param track_recipients: whether to record the recipients, too
    """

    operation: str | None = None
    callback: str | None = None
    external_ref: str | None = None
    track_recipients: bool = False


class DeliveryReports:
    """The delivery reports of one try, as options and connection say.

    ``endpoint`` is where they arrive. ``tracker`` records what the callback endpoint waits for.
    """

    campaign: str | None = None
    """The reference of the campaign that the requests belong to; ``None`` where each is one by itself."""

    def __init__(self, options: ReportOptions, runtime: TaskRuntime) -> None:
        connection = runtime.connection
        self._options = options
        self._runtime = runtime
        self.endpoint: Literal["callback", "webhook"] | None = None
        self.tracker: DeliveryTracker | None = None
        self._recorder: DeliveryTracker | None = None
        if options.operation is None:
            return
        if connection.callback_url is not None and options.callback is None:
            self.endpoint = "callback"
        # A report on the account's webhook names the request by our reference, unless the author gave another.
        elif connection.webhook_secret and connection.signature_header and options.external_ref is None:
            self.endpoint = "webhook"
        else:
            return
        from cpaas_provider.hooks._receiver import receiver_conn_id
        from cpaas_provider.tasks.delivery.tracker import DeliveryTracker

        conn_id = receiver_conn_id(runtime.conn_id)
        self._recorder = DeliveryTracker(options.operation, runtime, options.track_recipients, conn_id)
        if self.endpoint == "callback":
            self.tracker = self._recorder

    def callback_url(self, reference: str, recipients: int) -> str | None:
        """Return the callback URL of a request: the author's own, or that of the connection's receiver."""
        if self.tracker is None:
            return self._options.callback
        return self.tracker.url(self.campaign or reference, reference, recipients)

    def begin(self) -> None:
        """Check that the receiver stores reports in this database, before anything is sent."""
        if self.endpoint is not None:
            self._runtime.connection.warn_of_weak_secrets()
        if self.tracker is not None:
            self.tracker.begin()

    def probes(self) -> Sequence[OutcomeProbe]:
        """Return the probe of requests of unknown outcome: it reads their delivery reports."""
        if self.tracker is None:
            return ()
        from cpaas_provider.tasks.delivery.tracker import DeliveryReportProbe, PurchaseReportProbe

        if self._options.operation == "buy_airtime":
            return (PurchaseReportProbe(self.tracker),)
        return (DeliveryReportProbe(self.tracker, self.campaign),)

    def result_fields(self) -> dict[str, str | None]:
        """Return what the result of a send says of its delivery reports."""
        return {} if self._options.operation is None else {"delivery_reports": self.endpoint}

    def record_outcome(self, outcome: SendOutcome, members: Mapping[bytes, str]) -> None:
        """Record the accepted requests of a single send, and link to them.

        :param members: the recipients of this try, by their hashes in the journal
        """
        if self._recorder is None:
            return
        # Also for the webhook: by these records the receiver checks on which connection a report is genuine.
        self._recorder.record_outcome(outcome, members)
        if self.tracker is not None:
            from cpaas_provider.links.delivery import page_url

            self._runtime.delivery_link = page_url(entry.reference for entry in outcome.accepted)
