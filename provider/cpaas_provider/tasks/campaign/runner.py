"""One try of a campaign: from its spec to requests, and from their results to the report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from cpaas_provider.api.amounts import counted
from cpaas_provider.database.activity.progress import FAILED, FINISHED, WAITING
from cpaas_provider.database.schema.delivery import RequestState
from cpaas_provider.delivery.tracking.sent_requests import SentRequest
from cpaas_provider.hooks.metrics import CAMPAIGN
from cpaas_provider.links.delivery import page_url, push_link
from cpaas_provider.sending.campaign.campaign import (
    Campaign,
    RecipientLimitError,
    campaign_reference,
    refuse_unknown_placeholders,
)
from cpaas_provider.sending.campaign.guards.budget import BudgetReachedError
from cpaas_provider.sending.campaign.loader import Columns, LoadStats, RecipientLoader
from cpaas_provider.sending.campaign.recipients import RecipientStatus, RecipientTable
from cpaas_provider.sending.engine import SendEngine
from cpaas_provider.sending.errors import (
    NotConfirmedError,
    PartitionChangedError,
    RetryLaterError,
    SendingError,
    TrySupersededError,
)
from cpaas_provider.sending.journal.hashing import campaign_identity
from cpaas_provider.sending.journal.log import JournalLog
from cpaas_provider.sending.journal.model import State
from cpaas_provider.sending.journal.store import StateStore, TryInfo
from cpaas_provider.sending.resolver import describe_unknown
from cpaas_provider.sending.spec import OnUnknown, UnknownPolicy, channel_of
from cpaas_provider.sources import ListSource
from cpaas_provider.sources.results_file import CAMPAIGN_COLUMNS, ResultsFileError
from cpaas_provider.sources.tables import has_content
from cpaas_provider.tasks.airflow import task_log
from cpaas_provider.tasks.airflow.confirmation import Confirmation, Confirmations
from cpaas_provider.tasks.bulk import PREVIEW_KEY, BulkAttempt
from cpaas_provider.tasks.campaign.mapped_partitions import MappedPartitions, campaign_hash
from cpaas_provider.tasks.campaign.options import build_content, build_options
from cpaas_provider.tasks.campaign.ports import CampaignReports, DndLookups
from cpaas_provider.tasks.campaign.report import CampaignProgress, build_question, build_report
from cpaas_provider.tasks.database.frequency import open_frequency_cap, send_name
from cpaas_provider.tasks.database.suppressions import StoredSuppressionList
from cpaas_provider.tasks.delivery.reports import ReportOptions
from cpaas_provider.tasks.errors import PreflightError
from cpaas_provider.tasks.runner import REPORT_KEY

if TYPE_CHECKING:
    from cpaas_provider.sending.campaign.journal_index import TrackedRequest
    from cpaas_provider.sources.base import Source
    from cpaas_provider.tasks.campaign.spec import CampaignSpec
    from cpaas_provider.tasks.runtime import TaskRuntime

_REPLACED = (
    "Airflow has replaced this try with another one, which continues from the journal. The report and the results file "
    "of this try were not written."
)


class CampaignRunner(BulkAttempt):
    """One try of a campaign. It is also what the engine needs of the try.

    :param started_in_time: whether the campaign began in time before the task was deferred, so that it is not late now
    :param resends: the number of resends that the try made before it was deferred
    """

    is_send = True
    metrics = CAMPAIGN

    def __init__(
        self, spec: CampaignSpec, runtime: TaskRuntime, *, started_in_time: bool = False, resends: int = 0
    ) -> None:
        super().__init__(runtime, spec.results_path, spec.partition)
        self.stop = runtime.stop
        self.cli_address = runtime.cli_address
        self._spec = spec
        self._started_in_time = started_in_time
        self.resends = resends
        # The journal of a campaign with an idempotency key is in the database.
        self.has_task_journal = spec.idempotency_key is None
        self._confirm_current = runtime.confirm_current
        self._campaign: Campaign | None = None
        self._reports: CampaignReports | None = None
        self._stats = LoadStats()
        self._is_tracked = False
        self._confirmations = Confirmations(runtime) if spec.on_limit == "ask" and not spec.dry_run else None

    def run(self) -> dict[str, Any]:
        """Plan, send and report.

        :return: the report
        """
        spec, log = self._spec, self._runtime.log
        asked = self._confirmations.read() if self._confirmations else None
        confirmed = asked.confirmed if asked else {}
        limits = task_log.campaign_limits(spec, self._connection, self._partition, confirmed)
        self._runtime.log_begin(f", from {spec.source_summary}", limits)
        self._check_results_file()
        try:
            campaign = self._prepare(confirmed)
        except OSError as error:
            raise PreflightError(
                f"The plan of the campaign could not be made ({error.strerror}). Nothing was sent in this try.",
                permanent=False,
            ) from None
        except RecipientLimitError as error:
            if asked:
                self._refuse(asked)
            self._ask(error)
            raise
        if asked:
            self._refuse(asked)
        self._preview(campaign)
        begun = self._build_report(campaign)
        log.info("%s", task_log.planned(begun, self._stats.rows))
        if spec.dry_run:
            log.info("%s", task_log.dry_run(begun, spec.encoding))
        else:
            if begun["sent"] and not begun["not_sent"] and not begun["unknown_recipients"]:
                log.info("%s", task_log.nothing_left(campaign=True, has_idempotency_key=bool(spec.idempotency_key)))
            if self._siblings and not campaign.log.has_head:
                self._siblings.record(self._partition, self._runtime.require_task_state())
            # Before the campaign's name is stored anywhere else.
            campaign.log.record_head()
            self._progress = CampaignProgress(spec, self._partition, self._runtime, campaign.reference, begun)
            try:
                self._send(campaign)
            except RetryLaterError:
                self._end_progress(WAITING, self._build_report(campaign))
                raise
            except BudgetReachedError as error:
                self._ask(error)
                raise
        report = self._build_report(campaign)
        if not spec.dry_run and self._runtime.is_replaced():
            raise TrySupersededError(_REPLACED)
        try:
            self._write_results(campaign.plan.rows(), CAMPAIGN_COLUMNS)
        except ResultsFileError as error:
            raise SendingError(
                f"{error} All tries together: {task_log.every_count(report)}. The next try writes the file. It sends "
                "to no accepted recipient again."
            ) from None
        if not spec.dry_run:
            log.info("%s", task_log.campaign_done(report))
        self._end_progress(FINISHED, report)
        # An empty partition does not skip the tasks downstream.
        if not campaign.recipients() and not spec.test_only and self._partition.of == 1:
            self._runtime.push_or_warn(REPORT_KEY, report)
            raise AirflowSkipException("The campaign has no recipients. Nothing was sent.")
        return report

    def push_report(self, *, quietly: bool) -> bool:
        """Store report and results file of a try that fails; return whether anything was sent or is unknown."""
        campaign = self._campaign
        if campaign is None or not campaign.is_prepared:
            return False
        report = self._build_report(campaign)
        if self._is_replaced():
            self._runtime.log.warning("%s", _REPLACED)
            return False
        try:
            self._write_results(campaign.plan.rows(), CAMPAIGN_COLUMNS)
        except ResultsFileError as error:
            self._runtime.log.warning("%s", error)
        self._end_progress(FAILED, {**report, "error": self._runtime.failure})
        self._runtime.log.warning("%s", task_log.campaign_done(report))
        if not quietly and report["unknown_recipients"]:
            unknown, index = report["unknown_recipients"], campaign.index
            self._runtime.log.error("%s", describe_unknown(index.unresolved(), unknown, index.lost))
        self._runtime.push_or_warn(REPORT_KEY, report)
        return bool(report["sent"] or report["unknown_recipients"])

    def describe_progress(self) -> str:
        """Return what all tries sent and did not send."""
        if self._campaign is None or not self._campaign.is_prepared:
            return ""
        return f"All tries together: {task_log.every_count(self._build_report(self._campaign))}."

    def record_end(self) -> None:
        """Record the number of recipients accepted, for sensors that wait for their delivery."""
        campaign, tracker = self._campaign, self._reports.tracker if self._reports else None
        if campaign is None or not campaign.is_prepared or tracker is None or not campaign.log.has_head:
            return
        if self._is_replaced():
            # The other try still sends, and records the end.
            return
        counts = campaign.plan.counts()
        # What an earlier try was killed before recording is in the journal.
        made = [_sent_request(request) for request in campaign.index.requests()]
        tracker.record_send_finished(
            campaign.reference,
            counts[RecipientStatus.SENT],
            counts[RecipientStatus.UNKNOWN],
            made,
            campaign.index.first_day(),
        )
        self._runtime.delivery_link = page_url([campaign.reference])

    def _is_replaced(self) -> bool:
        return not self._runtime.state_failed and self._runtime.is_replaced()

    def resume_kwargs(self) -> dict[str, Any]:
        """Return that the campaign began in time, and the number of resends of this try."""
        return {"started_in_time": True, "resends": self.resends}

    def check_may_send(self) -> None:
        """Raise where the run does not send, or where delivery reports would be lost."""
        spec, runtime, reports = self._spec, self._runtime, self._reports
        if not self._started_in_time:
            runtime.check_run_may_send(allow_backfill=spec.allow_backfill, max_lateness=spec.max_lateness)
        if self._siblings:
            # Another task instance that begins its try pushes its partition now, and may not have pushed it before.
            self._siblings.check(self._partition)
        if reports and reports.tracker and self._campaign is not None and not self._is_tracked:
            reference = self._campaign.reference
            reports.begin()
            reports.tracker.record_begin(reference, self._campaign.index.first_day())
            runtime.delivery_link = page_url([reference])
            push_link(runtime.context, runtime.delivery_link)
            self._is_tracked = True

    def _build_report(self, campaign: Campaign) -> dict[str, Any]:
        # A report on the account's webhook does not name the campaign.
        is_tracked = self._reports is not None and self._reports.tracker is not None
        return build_report(campaign, self._stats, self._spec, "callback" if is_tracked else None)

    def _refuse(self, asked: Confirmation) -> None:
        """End the try if a user did not confirm what a limit had stopped.

        :raises NotConfirmedError: in this case
        """
        campaign = self._campaign
        if not asked.refusal or campaign is None:
            return
        if campaign.log.has_head:
            # An earlier process recorded that the campaign waits.
            begun = self._build_report(campaign)
            self._progress = CampaignProgress(self._spec, self._partition, self._runtime, campaign.reference, begun)
        raise NotConfirmedError(asked.refusal)

    def _ask(self, error: RecipientLimitError | BudgetReachedError) -> None:
        """Have a user confirm what a limit stopped, if the author wants that and it can be confirmed."""
        campaign, spec = self._campaign, self._spec
        if self._confirmations is None or campaign is None or not self._confirmations.may_ask():
            return
        report = self._build_report(campaign)
        if (question := build_question(error, campaign, report)) is None:
            return
        if not self._started_in_time:
            # A run that does not send has nothing to ask.
            self._runtime.check_run_may_send(allow_backfill=spec.allow_backfill, max_lateness=spec.max_lateness)
        self._end_progress(WAITING, report)
        self._confirmations.ask(question, spec.confirmation_timeout, self.resume_kwargs())

    def _prepare(self, confirmed: Mapping[str, int | str]) -> Campaign:
        spec, runtime, settings = self._spec, self._runtime, self._connection.settings
        content = build_content(spec, self._connection)
        if spec.substitutions:
            # If the list is empty, what looks like a placeholder is plain text.
            refuse_unknown_placeholders(content)
        if spec.encoding and content.writer and (unchanged := content.writer.count_other_characters()):
            runtime.log.warning(
                "encoding is 'gsm7', but the text stays UCS-2: %s of it have no form in GSM-7.",
                counted(unchanged, "character"),
            )
        journal = self._open_journal()
        if self.has_task_journal and journal.is_new:
            # A kill while the source is read leaves no other sign that nothing was sent.
            runtime.record_nothing_sent(is_new=True)
        part = self._partition.part if spec.idempotency_key is not None and self._partition.of > 1 else None
        reference = campaign_reference(journal, part)
        plan = runtime.exit_stack.enter_context(RecipientTable(spec.spool_path))
        options = ReportOptions(spec.operation, spec.callback, spec.external_ref, spec.track_recipients)
        self._reports = CampaignReports(options, runtime, reference)
        suppressions = None
        if spec.use_suppression_list:
            suppressions = StoredSuppressionList(runtime, channel_of(spec.operation, spec.body))
        campaign = Campaign(
            plan,
            journal,
            content,
            build_options(spec, self._connection, self._partition, confirmed),
            self._reports,
            dnd=None if spec.dnd is None else DndLookups(spec.dnd, self._connection, runtime),
            publish=self._publish,
            part=part,
            suppressions=suppressions,
            frequency_cap=open_frequency_cap(
                runtime,
                spec.frequency_cap,
                spec.frequency_category,
                send_name(reference, spec.frequency_contact),
                self._confirm_current,
            ),
        )
        loader = RecipientLoader(
            plan,
            content,
            journal.hasher,
            reader=settings.recipient_reader(content.channel.recipients),
            partition=self._partition,
            check=runtime.stop.raise_if_stopped,
        )
        # Before the source is read: if it cannot be read, the report still has what earlier tries sent.
        self._campaign, self._stats = campaign, loader.stats
        suppression_list = None
        if spec.suppression_list is not None:
            suppression_list = self._read_source("suppression_list", spec.suppression_list)
        if spec.source is None:
            raise AirflowFailException("source is empty. Nothing was sent.")
        source = self._read_source("source", spec.source)
        campaign.prepare(
            loader,
            source,
            Columns(spec.recipient_column, spec.timezone_column),
            tests=self._tests(),
            suppression_list=suppression_list,
        )
        return campaign

    def _tests(self) -> Source | None:
        recipients = self._spec.test_recipients
        if recipients is None:
            return None
        if isinstance(recipients, str) or not isinstance(recipients, Iterable):
            raise AirflowFailException("test_recipients must be a list. Nothing was sent.")
        items = list(recipients)
        if any(isinstance(item, Mapping) and not has_content(item.values()) for item in items):
            # It would be no row, and the campaign would be sent without this test.
            raise AirflowFailException("test_recipients has an entry without any value. Nothing was sent.")
        return ListSource(items)

    def _open_journal(self) -> JournalLog:
        spec, runtime = self._spec, self._runtime
        tries = runtime.try_info
        store: StateStore
        secrets = self._connection.hash_secrets
        if spec.idempotency_key is not None:
            from cpaas_provider.database.registry import CampaignKey
            from cpaas_provider.tasks.campaign.store import open_campaign_store

            channel = channel_of(spec.operation, spec.body)
            key = CampaignKey(runtime.conn_id, channel, spec.idempotency_key, self._connection.base_url)
            store = keyed = open_campaign_store(key, self._partition, runtime)
            self._confirm_current = keyed.confirm_current
            # A secret of its own: with a new API key every recipient would be unknown.
            identity, secrets = campaign_identity(spec.idempotency_key), (keyed.secret,)
            # A clear does not drop what is stored there, and each run tries the rejected recipients again.
            tries = TryInfo(tries.number, tries.max_tries, tries.max_tries, run=runtime.instance_nonce)
        else:
            store = runtime.require_journal_store()
            identity = runtime.task_key
        try:
            journal = JournalLog(
                store,
                secrets,
                identity,
                spec.operation,
                tries,
                partition=self._partition,
                resend_on_clear=spec.resend_on_clear,
            )
        except PartitionChangedError as error:
            if self._siblings:
                self._siblings.push(error.begun)
            raise
        if self._siblings:
            self._siblings.begin(self._partition)
        return journal

    @cached_property
    def _siblings(self) -> MappedPartitions | None:
        """The partitions of the mapped task instances, ``None`` where the database has them or there is one task."""
        spec = self._spec
        if spec.partition is None or not self.has_task_journal or self._runtime.place.map_index < 0:
            return None
        campaign = campaign_hash(spec, self._connection.hash_secrets[0])
        # After a clear with resend_on_clear, other partitions may send all of it again.
        return MappedPartitions(self._runtime.context, campaign, one_number=not spec.resend_on_clear)

    def _send(self, campaign: Campaign) -> None:
        """Send to all recipients that are left."""
        spec, runtime = self._spec, self._runtime
        probes = self._reports.probes() if self._reports else ()
        policy = UnknownPolicy(OnUnknown(spec.on_unknown), spec.unknown_timeout, probes)
        engine = SendEngine(campaign, runtime.open_async_client(self._connection), self, policy)
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


def _sent_request(request: TrackedRequest) -> SentRequest:
    """Return a request of the journal as delivery tracking records it."""
    state = RequestState.NOT_SENT
    if request.state is State.ACCEPTED:
        state = RequestState.ACCEPTED
    elif request.state is State.UNKNOWN:
        state = RequestState.UNKNOWN if request.is_open else RequestState.SUPERSEDED
    recipients, message_id, rejected = request.recipients, request.message_id, request.rejected
    return SentRequest(request.reference, recipients, message_id, rejected, state, request.unknown)
