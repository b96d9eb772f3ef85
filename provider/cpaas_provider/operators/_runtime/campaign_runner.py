"""One try of a campaign operator: from its arguments to a campaign, and from its results to the report."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.sdk import timezone
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from cpaas_provider.links.delivery import page_url, push_link
from cpaas_provider.operators._runtime import task_log as task_log
from cpaas_provider.operators._runtime.campaign_options import build_content, build_options
from cpaas_provider.operators._runtime.campaign_partitions import check_partition_count, recorded_partition_count
from cpaas_provider.operators._runtime.campaign_report import build_report
from cpaas_provider.operators._runtime.context import cli_address, run_info, task_digest, task_key, try_info
from cpaas_provider.operators._runtime.state_store import open_state_store
from cpaas_provider.operators.base_idempotent import NO_TASK_STATE, REPORT_KEY
from cpaas_provider.sending.campaign.campaign import Campaign, SendSession, refuse_unknown_placeholders
from cpaas_provider.sending.campaign.guards.dnd import DndFilter, OnLookupError
from cpaas_provider.sending.campaign.loader import Columns, RecipientLoader
from cpaas_provider.sending.campaign.progress import LookUps
from cpaas_provider.sending.campaign.recipients import RecipientStatus, RecipientTable
from cpaas_provider.sending.errors import SendingError
from cpaas_provider.sending.hashing import KeyedHasher, campaign_identity
from cpaas_provider.sending.journal.log import JournalLog
from cpaas_provider.sending.journal.store import StateStore, TryInfo
from cpaas_provider.sending.partitions import Partition
from cpaas_provider.sending.run_guard import check_run_may_send
from cpaas_provider.sources import ListSource, as_source
from cpaas_provider.sources.base import SourceError
from cpaas_provider.sources.files import redacted_path
from cpaas_provider.sources.results_file import (
    SUFFIXES,
    ResultsFileError,
    check_writable,
    write_outcomes,
)

if TYPE_CHECKING:
    from airflow.sdk import Context

    from cpaas_provider.api.client import CpaasClient
    from cpaas_provider.hooks.connection import CpaasConnection
    from cpaas_provider.operators.base_campaign import CampaignOperator
    from cpaas_provider.sending.campaign.content import Send
    from cpaas_provider.sending.shutdown import StopSignal
    from cpaas_provider.sending.spec import OutcomeProbe
    from cpaas_provider.sources.base import Source


class CampaignRunner:
    """One try.

    :param exit_stack: closed when the try ends, however it does
    """

    def __init__(
        self,
        operator: CampaignOperator,
        context: Context,
        client: CpaasClient,
        connection: CpaasConnection,
        stop: StopSignal,
        exit_stack: contextlib.ExitStack,
    ) -> None:
        self._operator = operator
        self._context = context
        self._settings = client.settings
        self._stop = stop
        self._open = exit_stack
        self._partition = Partition.read(operator.partition)
        self._connection = connection.divided_by(self._partition.of) if self._partition.of > 1 else connection
        self._under_way: tuple[Campaign, RecipientLoader] | None = None
        self._tracked = False
        self._looked_up = LookUps()

    def run(self) -> dict[str, Any]:
        """Plan, send and report.

        :return: the report
        """
        log = self._operator.log
        log.info("%s", task_log.campaign_begins(self._operator, self._connection, self._partition))
        self._refuse_results_path()
        try:
            campaign, planner = self._draw_up()
        except (SourceError, OSError) as error:
            words = (
                str(error)
                if isinstance(error, SourceError)
                else f"The plan of the campaign could not be made ({error.strerror})."
            )
            raise AirflowException(f"{words.rstrip('.')}. Nothing was sent in this try.") from None
        self._preview(campaign)
        begun = build_report(campaign, planner.found, self._operator)
        log.info("%s", task_log.planned(begun, planner.found.rows))
        if self._operator.without_sending:
            log.info("%s", task_log.dry_run(begun))
        else:
            if begun["sent"] and not begun["not_sent"] and not begun["unknown_recipients"]:
                log.info("%s", task_log.nothing_left(self._operator))
            campaign.send(self._line)
        report = build_report(campaign, planner.found, self._operator)
        try:
            self._write_outcomes(campaign)
        except ResultsFileError as error:
            raise SendingError(
                f"{error} All tries together: {task_log.every_count(report)}. The next try writes the file. It sends "
                "to no accepted recipient again."
            ) from None
        if not self._operator.without_sending:
            log.info("%s", task_log.campaign_done(report))
        # A part with nobody in it is no reason for tasks downstream not to run.
        if not campaign.recipients() and not self._operator.test_only and self._partition.of == 1:
            self._push(report)
            raise AirflowSkipException("The campaign has no recipients. Nothing was sent.")
        return report

    def push_report(self, quietly: bool) -> bool:
        """Store report and results file of a try that fails; return whether anything was sent or is unknown."""
        if self._under_way is None or not self._under_way[0].drawn_up:
            return False
        campaign, planner = self._under_way
        try:
            self._write_outcomes(campaign)
        except ResultsFileError as error:
            self._operator.log.warning("%s", error)
        report = build_report(campaign, planner.found, self._operator)
        self._operator.log.warning("%s", task_log.campaign_done(report))
        if not quietly and report["unknown_recipients"]:
            self._operator.log.error("%s", campaign.doubts.words())
        self._push(report)
        return bool(report["sent"] or report["unknown_recipients"])

    def _draw_up(self) -> tuple[Campaign, RecipientLoader]:
        operator = self._operator
        message = build_content(operator, self._connection)
        if operator.substitutions:
            # An empty list says that what looks like placeholders is none.
            refuse_unknown_placeholders(message)
        journal = self._journal(message.channel.operation)
        plan = self._open.enter_context(RecipientTable(operator.spool_path))
        campaign = Campaign(
            plan,
            journal,
            message,
            build_options(operator, self._connection, self._partition),
            self._stop,
            cli_address(self._context),
            preflight=self._preflight,
            evidence=self._evidence(),
            publish=partial(_publish, _tags(self._context)),
            part=self._partition.part if operator.idempotency_key is not None and self._partition.of > 1 else None,
        )
        planner = RecipientLoader(
            plan,
            message,
            journal.hasher,
            default_region=self._settings.default_region,
            allowed=self._settings.allowed,
            partition=self._partition,
            check=self._stop.raise_if_stopped,
        )
        columns = Columns(operator.recipient_column, operator.timezone_column)
        # Before the source is gone through: what earlier tries did is not passed over where it cannot be read.
        self._under_way = campaign, planner
        banned = self._source("suppression_list")
        source = self._source("source")
        if source is None:
            raise AirflowFailException("source is empty. Nothing was sent.")
        campaign.prepare(planner, source, columns, tests=self._tests(), testing=not self._partition.part, banned=banned)
        return campaign, planner

    def record_send_finished(self) -> None:
        """Record the number of recipients accepted, for sensors that wait for their delivery."""
        tracking = self._operator.tracking
        if tracking is not None and self._under_way is not None and self._under_way[0].drawn_up:
            from cpaas_provider.delivery.tracking.sent_requests import SentRequest

            campaign = self._under_way[0]
            counts = campaign.plan.counts()
            # What an earlier try was killed before recording is in the journal.
            accepted = [SentRequest(*one) for one in campaign.standing.accepted()]
            tracking.record_send_finished(
                campaign.reference, counts[RecipientStatus.SENT], counts[RecipientStatus.UNKNOWN], accepted
            )
            self._operator.delivery_link = page_url([campaign.reference])

    def _evidence(self) -> Sequence[OutcomeProbe]:
        """Return the probes of unknown requests: any delivery report of one proves that it was accepted."""
        tracking = self._operator.tracking
        if tracking is None:
            return ()
        from cpaas_provider.operators._runtime.delivery import DeliveryReportProbe

        return (DeliveryReportProbe(tracking, self._reference),)

    def _reference(self) -> str:
        if self._under_way is None:
            raise RuntimeError("no campaign is drawn up yet")
        return self._under_way[0].reference

    def _source(self, field: str) -> Source | None:
        given = self._given(field)
        try:
            return None if given is None else as_source(given)
        except ValueError as error:
            raise AirflowFailException(f"{field}: {error} Nothing was sent.") from None

    def _given(self, field: str) -> Any:
        """Return a field as rendered; refuse one that the author gave and that is ``None`` after rendering."""
        given = self._operator.rendered(field)
        # Of what is there, Airflow is shown a summary.
        if given is None and getattr(self._operator, field) is not None:
            raise AirflowFailException(
                f"{field} is None after rendering. Nothing was sent. Check its template or the task it comes from."
            )
        return given

    def _tests(self) -> Source | None:
        given = self._given("test_recipients")
        if given is None:
            return None
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise AirflowFailException("test_recipients must be a list. Nothing was sent.")
        return ListSource(list(given))

    def _journal(self, operation: str) -> JournalLog:
        operator, context = self._operator, self._context
        tries = try_info(context, operator.retries)
        store: StateStore | None
        secrets = self._connection.hash_secrets
        self._refuse_lost_key()
        if operator.idempotency_key is not None:
            from cpaas_provider.database.registry import CampaignKey
            from cpaas_provider.operators._runtime.campaign_store import open_campaign_store

            key = CampaignKey(operator.cpaas_conn_id, operator.idempotency_key, self._connection.base_url)
            store = keyed = open_campaign_store(key, self._partition, context, self._open)
            # Its own, as with a new API key every recipient would else be unknown.
            identity, secrets = campaign_identity(operator.idempotency_key), (keyed.secret,)
            # What is stored there is not dropped by a clear, and each run tries the rejected again.
            tries = TryInfo(tries.number, tries.max_tries, tries.max_tries, run=task_digest(context))
        else:
            store = open_state_store(context)
            identity = task_key(context)
        if store is None:
            raise AirflowFailException(NO_TASK_STATE)
        journal = partial(JournalLog, partition=self._partition, resend_on_clear=operator.resend_on_clear)
        with (
            recorded_partition_count(self._context, self._partition) if self._has_siblings else contextlib.nullcontext()
        ):
            return journal(store, secrets, identity, operation, tries)

    @property
    def _has_siblings(self) -> bool:
        """Whether other task instances send the rest of the campaign, and only they know their number."""
        operator = self._operator
        return self._partition.of > 1 and operator.idempotency_key is None and not operator.resend_on_clear

    def _refuse_lost_key(self) -> None:
        if self._operator.keyed and self._operator.idempotency_key is None:
            raise AirflowFailException("idempotency_key is None after rendering. Nothing was sent.")

    def _preflight(self) -> None:
        if not self._operator.__dict__.get("_started_in_time"):
            check_run_may_send(
                run_info(self._context),
                timezone.utcnow(),
                allow_backfill=self._operator.allow_backfill,
                max_lateness=self._operator.max_lateness,
            )
        if self._has_siblings:
            # One that begins its try leaves its number anew, and may not have come to that before.
            check_partition_count(self._context, self._partition)
        tracking = self._operator.tracking
        if tracking is not None and not self._tracked:
            tracking.begin()
            tracking.record_begin(self._reference())
            self._operator.delivery_link = page_url([self._reference()])
            push_link(self._context, self._operator.delivery_link)
            self._tracked = True

    @contextlib.asynccontextmanager
    async def _line(self) -> AsyncIterator[SendSession]:
        from cpaas_provider.hooks.cpaas import async_client

        operator = self._operator
        client = await asyncio.to_thread(async_client, self._connection)
        async with client:
            body = operator.body(self._connection)
            look_up = getattr(operator, "skip_dnd", False)
            with self._recording(partial(operator.send, client, body)) as send:
                permitted = partial(self._dnd_filter, client) if look_up else None
                yield SendSession(client, send, permitted, self._looked_up)

    @contextlib.contextmanager
    def _recording(self, send: Callable[..., Awaitable[Any]]) -> Iterator[Send]:
        """Record the accepted requests, where their delivery is tracked."""
        tracking = self._operator.tracking
        if tracking is None:
            yield send
            return
        from cpaas_provider.operators._runtime.delivery import SentRequestRecorder

        campaign = self._reference()
        with SentRequestRecorder(tracking, campaign) as recorder:

            async def recorded(recipients: Sequence[str], personalisation: Any, reference: str) -> Any:
                answer = await send(recipients, personalisation, reference, campaign)
                left_out = {one.lower() for one in answer.rejected_recipients}
                taken = [one for one in recipients if one.removeprefix("+").lower() not in left_out]
                recorder.add(reference, taken, answer.id)
                return answer

            yield recorded

    def _dnd_filter(self, client: Any, plan: RecipientTable) -> DndFilter:
        from cpaas_provider.operators._runtime.campaign_store import open_lookup_cache

        operator: Any = self._operator
        hasher = KeyedHasher(self._connection.hash_secrets[0], ("lookups",))

        looked_up = self._looked_up

        async def look_up(address: str) -> bool | None:
            looked_up.asked += 1
            try:
                found: bool | None = (await client.lookup_phone(f"+{address}")).dnd
            finally:
                looked_up.answered += 1
            return found

        return DndFilter(
            plan,
            look_up,
            partial(hasher.member, "lookup_phone"),
            open_lookup_cache(self._open),
            ttl=operator.lookup_ttl,
            on_error=OnLookupError(operator.on_lookup_error),
            at_once=self._settings.max_concurrency,
        )

    def _preview(self, campaign: Campaign) -> None:
        """Push some rendered messages as an XCom, where the author asked for them; a log is no place for them."""
        if not self._operator.preview_count:
            return
        from itertools import islice

        from cpaas_provider.operators.base_campaign import PREVIEW_KEY

        message = campaign.message
        shown = [
            {
                "recipient": message.channel.mask(person.address),
                "texts": message.rendered(person.words),
                "pages": person.pages,
            }
            for person in islice(campaign.plan.not_sent(), self._operator.preview_count)
        ]
        self._context["ti"].xcom_push(key=PREVIEW_KEY, value=shown)
        self._operator.log.info("Stored %d rendered messages in the XCom %r.", len(shown), PREVIEW_KEY)

    def _refuse_results_path(self) -> None:
        path = self._operator.results_path
        if path is not None and not str(path).endswith(SUFFIXES):
            raise AirflowFailException(f"results_path must end in one of {', '.join(SUFFIXES)}. Nothing was sent.")
        if path is not None:
            try:
                check_writable(_storage_path(path))
            except ResultsFileError as error:
                raise AirflowException(f"{error} Nothing was sent in this try.") from None

    def _write_outcomes(self, campaign: Campaign) -> None:
        path = self._operator.results_path
        if path is None:
            return
        path = _storage_path(path)
        write_outcomes(path, campaign.plan.rows())
        self._operator.log.info("Results file written: %s.", redacted_path(path))

    def _push(self, report: Mapping[str, Any]) -> None:
        try:
            self._context["ti"].xcom_push(key=REPORT_KEY, value=report)
        except Exception as error:  # noqa: BLE001 - the failure that is being reported matters more
            self._operator.log.warning("The report could not be stored as XCom (%s).", type(error).__name__)


def _storage_path(path: Any) -> Any:
    from airflow.sdk import ObjectStoragePath

    return path if isinstance(path, ObjectStoragePath) else ObjectStoragePath(str(path))


def _publish(tags: Mapping[str, str], figures: Mapping[str, float]) -> None:
    """Publish figures as metrics of Airflow."""
    from airflow.sdk.observability import stats

    from cpaas_provider.hooks.metrics import CAMPAIGN

    for name, value in figures.items():
        stats.gauge(f"{CAMPAIGN}.{name}", value, tags=dict(tags))


def _tags(context: Context) -> dict[str, str]:
    instance: Any = context["ti"]
    return {"dag_id": instance.dag_id, "task_id": instance.task_id}
