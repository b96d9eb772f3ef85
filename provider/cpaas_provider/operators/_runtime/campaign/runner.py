"""One try of a campaign: from its spec to requests, and from their results to the report."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from cpaas_provider.database.activity.progress import FAILED, FINISHED, WAITING
from cpaas_provider.delivery.tracking.sent_requests import SentRequest
from cpaas_provider.hooks.metrics import CAMPAIGN
from cpaas_provider.links.delivery import page_url
from cpaas_provider.operators._runtime import task_log
from cpaas_provider.operators._runtime.campaign.options import build_content, build_options
from cpaas_provider.operators._runtime.campaign.partition_count import recorded_partition_count
from cpaas_provider.operators._runtime.campaign.ports import CampaignPorts, CampaignReports, DndLookups, has_siblings
from cpaas_provider.operators._runtime.campaign.progress import CampaignProgress
from cpaas_provider.operators._runtime.campaign.report import build_report
from cpaas_provider.operators._runtime.campaign.spec import PREVIEW_KEY
from cpaas_provider.operators._runtime.database.frequency import open_frequency_cap
from cpaas_provider.operators._runtime.database.suppressions import StoredSuppressionList
from cpaas_provider.operators._runtime.delivery.reports import DeliveryReports, ReportOptions
from cpaas_provider.operators._runtime.errors import PreflightError
from cpaas_provider.operators._runtime.results import check_results_path, storage_path
from cpaas_provider.operators._runtime.runner import REPORT_KEY, Attempt
from cpaas_provider.operators._runtime.single.message import channel_of
from cpaas_provider.operators._runtime.single.send import NO_TASK_STATE
from cpaas_provider.sending.campaign.campaign import (
    Campaign,
    campaign_reference,
    refuse_unknown_placeholders,
)
from cpaas_provider.sending.campaign.loader import Columns, RecipientLoader
from cpaas_provider.sending.campaign.recipients import RecipientStatus, RecipientTable
from cpaas_provider.sending.engine import SendEngine, UnknownPolicy
from cpaas_provider.sending.errors import RetryLaterError, SendingError
from cpaas_provider.sending.hashing import campaign_identity
from cpaas_provider.sending.journal.log import JournalLog
from cpaas_provider.sending.journal.store import StateStore, TryInfo
from cpaas_provider.sending.partitions import Partition
from cpaas_provider.sending.spec import OnUnknown
from cpaas_provider.sources import ListSource, as_source
from cpaas_provider.sources.files import redacted_path
from cpaas_provider.sources.results_file import (
    ResultsFileError,
    write_outcomes,
)

if TYPE_CHECKING:
    from cpaas_provider.hooks.connection import CpaasConnection
    from cpaas_provider.operators._runtime.campaign.spec import CampaignSpec
    from cpaas_provider.operators._runtime.runtime import TaskRuntime
    from cpaas_provider.sources.base import Source


class CampaignRunner(Attempt):
    """One try of a campaign.

    :param started_in_time: whether the campaign began in time before the task was deferred, so that it is not late now
    """

    is_send = True

    def __init__(self, spec: CampaignSpec, runtime: TaskRuntime, *, started_in_time: bool = False) -> None:
        self._spec = spec
        self._runtime = runtime
        self._started_in_time = started_in_time
        # The journal of a campaign with an idempotency key is in the database.
        self.has_task_journal = spec.idempotency_key is None
        self._partition = Partition.read(spec.partition)
        self._under_way: tuple[Campaign, RecipientLoader] | None = None
        self._confirm_current = runtime.confirm_current
        self._reports: DeliveryReports | None = None
        self._progress: CampaignProgress | None = None

    @cached_property
    def _connection(self) -> CpaasConnection:
        """The settings of the connection, of which each partition has its share."""
        connection = self._runtime.connection
        return connection.divided_by(self._partition.of) if self._partition.of > 1 else connection

    def run(self) -> dict[str, Any]:
        """Plan, send and report.

        :return: the report
        """
        spec, log = self._spec, self._runtime.log
        log.info("%s", task_log.campaign_begins(spec, self._connection, self._partition))
        check_results_path(spec.results_path)
        reports = self._reports = self._delivery_reports()
        try:
            campaign, planner = self._prepare(reports)
        except OSError as error:
            raise PreflightError(
                f"The plan of the campaign could not be made ({error.strerror}). Nothing was sent in this try.",
                permanent=False,
            ) from None
        self._preview(campaign)
        begun = self._build_report(campaign, planner)
        log.info("%s", task_log.planned(begun, planner.stats.rows))
        if spec.dry_run:
            log.info("%s", task_log.dry_run(begun))
        else:
            if begun["sent"] and not begun["not_sent"] and not begun["unknown_recipients"]:
                log.info("%s", task_log.nothing_left(campaign=True, has_idempotency_key=bool(spec.idempotency_key)))
            self._progress = CampaignProgress(spec, self._partition, self._runtime, campaign.reference, begun)
            try:
                self._send(campaign, reports)
            except RetryLaterError:
                self._progress.end(WAITING, self._build_report(campaign, planner))
                raise
        report = self._build_report(campaign, planner)
        try:
            self._write_outcomes(campaign)
        except ResultsFileError as error:
            raise SendingError(
                f"{error} All tries together: {task_log.every_count(report)}. The next try writes the file. It sends "
                "to no accepted recipient again."
            ) from None
        if not spec.dry_run:
            log.info("%s", task_log.campaign_done(report))
        if self._progress is not None:
            self._progress.end(FINISHED, report)
        # A part without recipients is no reason for tasks downstream not to run.
        if not campaign.recipients() and not spec.test_only and self._partition.of == 1:
            self._runtime.push_or_warn(REPORT_KEY, report)
            raise AirflowSkipException("The campaign has no recipients. Nothing was sent.")
        if spec.dry_run and self.has_task_journal:
            self._runtime.record_nothing_sent()
        return report

    def push_report(self, *, quietly: bool) -> bool:
        """Store report and results file of a try that fails; return whether anything was sent or is unknown."""
        if self._under_way is None or not self._under_way[0].is_prepared:
            return False
        campaign, planner = self._under_way
        try:
            self._write_outcomes(campaign)
        except ResultsFileError as error:
            self._runtime.log.warning("%s", error)
        report = self._build_report(campaign, planner)
        if self._progress is not None:
            self._progress.end(FAILED, report)
        self._runtime.log.warning("%s", task_log.campaign_done(report))
        if not quietly and report["unknown_recipients"]:
            self._runtime.log.error("%s", campaign.unresolved.describe())
        self._runtime.push_or_warn(REPORT_KEY, report)
        return bool(report["sent"] or report["unknown_recipients"])

    def record_end(self) -> None:
        """Record the number of recipients accepted, for sensors that wait for their delivery."""
        tracker = self._reports.tracker if self._reports else None
        if tracker is not None and self._under_way is not None and self._under_way[0].is_prepared:
            campaign = self._under_way[0]
            counts = campaign.plan.counts()
            # What an earlier try was killed before recording is in the journal.
            accepted = [SentRequest(*one) for one in campaign.index.accepted()]
            tracker.record_send_finished(
                campaign.reference, counts[RecipientStatus.SENT], counts[RecipientStatus.UNKNOWN], accepted
            )
            self._runtime.delivery_link = page_url([campaign.reference])

    def resume_kwargs(self) -> dict[str, Any]:
        """Return that the campaign began in time."""
        return {"started_in_time": True}

    def _publish(self, figures: Mapping[str, float]) -> None:
        """Take the figures of the progress, for the pages and as metrics."""
        if self._progress is not None:
            self._progress.update(figures)
        self._runtime.publish(CAMPAIGN, figures)

    def _delivery_reports(self) -> DeliveryReports:
        spec = self._spec
        options = ReportOptions(spec.operation, spec.callback, spec.external_ref, spec.track_recipients)
        return DeliveryReports(options, self._runtime)

    def _build_report(self, campaign: Campaign, planner: RecipientLoader) -> dict[str, Any]:
        # A report on the account's webhook does not name the campaign.
        tracked = self._reports is not None and self._reports.tracker is not None
        return build_report(campaign, planner.stats, self._spec, "callback" if tracked else None)

    def _prepare(self, reports: DeliveryReports) -> tuple[Campaign, RecipientLoader]:
        spec, runtime, settings = self._spec, self._runtime, self._connection.settings
        content = build_content(spec, self._connection)
        if spec.substitutions:
            # An empty list says that what looks like placeholders is none.
            refuse_unknown_placeholders(content)
        journal = self._open_journal(spec.operation)
        part = self._partition.part if spec.idempotency_key is not None and self._partition.of > 1 else None
        reference = campaign_reference(journal, spec.operation, part)
        plan = runtime.exit_stack.enter_context(RecipientTable(spec.spool_path))
        campaign = Campaign(
            plan,
            journal,
            content,
            build_options(spec, self._connection, self._partition),
            CampaignReports(reports, reference, spec.external_ref),
            dnd=None if spec.dnd is None else DndLookups(spec.dnd, self._connection, runtime),
            publish=self._publish,
            part=part,
            suppressions=self._suppressions(),
            frequency_cap=open_frequency_cap(
                runtime, spec.frequency_cap, spec.frequency_category, reference, self._confirm_current
            ),
        )
        planner = RecipientLoader(
            plan,
            content,
            journal.hasher,
            default_region=settings.default_region,
            allowed=settings.allowed,
            partition=self._partition,
            check=runtime.stop.raise_if_stopped,
        )
        columns = Columns(spec.recipient_column, spec.timezone_column)
        # Before the source is gone through: what earlier tries did is not passed over where it cannot be read.
        self._under_way = campaign, planner
        suppression_list = self._source("suppression_list", spec.suppression_list)
        source = self._source("source", spec.source)
        if source is None:
            raise AirflowFailException("source is empty. Nothing was sent.")
        campaign.prepare(
            planner,
            source,
            columns,
            tests=self._tests(),
            testing=not self._partition.part,
            suppression_list=suppression_list,
        )
        return campaign, planner

    def _suppressions(self) -> StoredSuppressionList | None:
        spec = self._spec
        if not spec.use_suppression_list:
            return None
        return StoredSuppressionList(self._runtime, channel_of(spec.operation, spec.body))

    def _check_rendered(self, field: str) -> None:
        """Refuse a field that the author gave and that is ``None`` after rendering."""
        if field in self._spec.lost_fields:
            raise AirflowFailException(
                f"{field} is None after rendering. Nothing was sent. Check its template or the task it comes from."
            )

    def _source(self, field: str, given: Any) -> Source | None:
        self._check_rendered(field)
        try:
            return None if given is None else as_source(given)
        except ValueError as error:
            raise AirflowFailException(f"{field}: {error} Nothing was sent.") from None

    def _tests(self) -> Source | None:
        self._check_rendered("test_recipients")
        given = self._spec.test_recipients
        if given is None:
            return None
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise AirflowFailException("test_recipients must be a list. Nothing was sent.")
        return ListSource(list(given))

    def _open_journal(self, operation: str) -> JournalLog:
        spec, runtime = self._spec, self._runtime
        tries = runtime.try_info
        store: StateStore | None
        secrets = self._connection.hash_secrets
        if "idempotency_key" in spec.lost_fields:
            raise AirflowFailException("idempotency_key is None after rendering. Nothing was sent.")
        if spec.idempotency_key is not None:
            from cpaas_provider.database.registry import CampaignKey
            from cpaas_provider.operators._runtime.campaign.store import open_campaign_store

            key = CampaignKey(spec.conn_id, spec.idempotency_key, self._connection.base_url)
            store = keyed = open_campaign_store(key, self._partition, runtime)
            self._confirm_current = keyed.confirm_current
            # Its own, as with a new API key every recipient would else be unknown.
            identity, secrets = campaign_identity(spec.idempotency_key), (keyed.secret,)
            # What is stored there is not dropped by a clear, and each run tries the rejected again.
            tries = TryInfo(tries.number, tries.max_tries, tries.max_tries, run=runtime.task_digest)
        else:
            store = runtime.state_store
            identity = runtime.task_key
        if store is None:
            raise PreflightError(NO_TASK_STATE, permanent=True)
        counted_once = (
            recorded_partition_count(runtime.context, self._partition)
            if has_siblings(spec, self._partition)
            else contextlib.nullcontext()
        )
        with counted_once:
            return JournalLog(
                store,
                secrets,
                identity,
                operation,
                tries,
                partition=self._partition,
                resend_on_clear=spec.resend_on_clear,
            )

    def _send(self, campaign: Campaign, reports: DeliveryReports) -> None:
        """Send to all recipients that are left."""
        spec, runtime = self._spec, self._runtime
        policy = UnknownPolicy(OnUnknown(spec.on_unknown), spec.unknown_timeout, reports.probes(campaign.reference))
        ports = CampaignPorts(
            spec, self._partition, runtime, reports, campaign.reference, started_in_time=self._started_in_time
        )
        engine = SendEngine(campaign, runtime.open_async_client(self._connection), ports, policy)
        runtime.run(engine.run(resolve=not spec.test_only))
        if not spec.test_only:
            campaign.check_result()

    def _preview(self, campaign: Campaign) -> None:
        """Push some rendered messages as an XCom, where the author asked for them; a log is no place for them."""
        if not self._spec.preview_count:
            return
        message = campaign.message
        shown = [
            {
                "recipient": message.channel.mask(recipient.address),
                "texts": message.rendered(recipient.placeholder_values),
                "pages": recipient.pages,
            }
            for recipient in islice(campaign.plan.not_sent(), self._spec.preview_count)
        ]
        self._runtime.push(PREVIEW_KEY, shown)
        self._runtime.log.info("Stored %d rendered messages in the XCom %r.", len(shown), PREVIEW_KEY)

    def _write_outcomes(self, campaign: Campaign) -> None:
        if self._spec.results_path is None:
            return
        path = storage_path(self._spec.results_path)
        write_outcomes(path, campaign.plan.rows())
        self._runtime.log.info("Results file written: %s.", redacted_path(path))
