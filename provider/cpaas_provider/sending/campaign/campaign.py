"""One try of a campaign, from its sources to its report."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

from cpaas_provider.api.amounts import Amount, counted, to_decimal, to_decimal_or_none
from cpaas_provider.api.text import placeholders_in
from cpaas_provider.sending.campaign.batcher import Batcher
from cpaas_provider.sending.campaign.content import CampaignDelivery, Content
from cpaas_provider.sending.campaign.guards.budget import Budget
from cpaas_provider.sending.campaign.guards.circuit_breaker import MOST_IDENTICAL_REJECTIONS
from cpaas_provider.sending.campaign.guards.dnd import DndFilter, NoLookupSucceededError
from cpaas_provider.sending.campaign.guards.frequency import FrequencyFilter
from cpaas_provider.sending.campaign.guards.send_window import SendWindow
from cpaas_provider.sending.campaign.journal_index import JournalIndex
from cpaas_provider.sending.campaign.loader import CannotPlanError, Columns, RecipientLoader
from cpaas_provider.sending.campaign.progress import LookUps, Progress, Publish
from cpaas_provider.sending.campaign.queue import CampaignQueue, FailureRules, TooManyFailuresError
from cpaas_provider.sending.campaign.recipients import LEFT_OUT, Recipient, RecipientStatus, RecipientTable
from cpaas_provider.sending.campaign.rejections import OnRejectedBatch
from cpaas_provider.sending.campaign.unknown import UnknownRecipients
from cpaas_provider.sending.errors import SendingError
from cpaas_provider.sending.journal.log import JournalLog
from cpaas_provider.sending.journal.writer import JournalWriter
from cpaas_provider.sending.shutdown import StopSignal
from cpaas_provider.sending.spec import Client, FrequencyCap, OnUnknown, SuppressionList
from cpaas_provider.sources.base import Source

log = logging.getLogger(__name__)

_SUPPRESSIONS_AT_ONCE = 1_000
_BETWEEN_COLLECTIONS = 20_000
"""Objects made and not gone, a few megabytes."""


class TestFailedError(SendingError):
    """A test recipient was rejected, left out or of unknown outcome, so the campaign ended."""

    permanent = True


class TooManyRecipientsError(SendingError):
    """The campaign has more recipients than ``max_recipients``."""

    permanent = True


@dataclass(frozen=True)
class CampaignOptions:
    """What the author asks for; the operator's documentation explains each.

    :param window: requests that are pending, at most
    :param outcome_file: whether there will be one
    :param in_flight: requests that are under way at once, at most; ``None`` for as many as the window
    """

    recipients_per_request: int
    window: int
    on_unknown: OnUnknown = OnUnknown.FAIL
    on_rejected_batch: OnRejectedBatch = OnRejectedBatch.BISECT
    max_recipients: int | None = None
    max_charge: Amount | None = None
    min_balance: Amount | None = None
    price_per_page: Amount | None = None
    refuse_missing_charge: bool = False
    skip_invalid_suppression: bool = False
    max_failure_ratio: float = 0.0
    max_identical_rejections: int | None = MOST_IDENTICAL_REJECTIONS
    send_window: SendWindow | None = None
    test_only: bool = False
    outcome_file: bool = False
    progress_interval: float = 10.0
    in_flight: int | None = None

    @property
    def min_write_batch(self) -> int:
        """How many intents are worth a write: those ahead of the requests can be stored together."""
        ahead = self.window - min(self.window, self.in_flight or self.window)
        return max(1, self.window // 4, ahead // 2)


class DndFilterFactory(Protocol):
    """Makes the filter of do-not-disturb numbers of a campaign."""

    look_ups: LookUps
    """Counts what the filter looks up."""

    def open(self, table: RecipientTable, client: Client) -> DndFilter:
        """Return the filter."""


@dataclass
class Campaign:
    """One try of a campaign.

    :param delivery: says where delivery reports go, and records accepted requests
    :param dnd: makes the filter of do-not-disturb numbers; ``None`` without one
    :param suppressions: the stored suppression list; ``None`` for none
    :param frequency_cap: counts messages to recipients over all campaigns; ``None`` without
    :param part: which part it is, where all partitions share the name of one journal
    """

    plan: RecipientTable
    log: JournalLog
    message: Content
    options: CampaignOptions
    delivery: CampaignDelivery
    dnd: DndFilterFactory | None = None
    publish: Publish = lambda figures: None
    part: int | None = None
    suppressions: SuppressionList | None = None
    frequency_cap: FrequencyCap | None = None
    drawn_up: bool = field(default=False, init=False)
    """Whether the plan is whole, and says what earlier tries did."""

    def __post_init__(self) -> None:
        self.body = self.log.hasher.body(self.message.body)
        self.index = JournalIndex(self.plan, self.log, self.body)
        self.unresolved = UnknownRecipients(
            self.plan,
            self.index,
            self.log.hasher,
            self.message.channel.operation,
            self.body,
            lost=self.log.lost,
        )
        self.min_write_batch = self.options.min_write_batch
        self.max_pending = self.options.window

    def prepare(
        self,
        planner: RecipientLoader,
        source: Source,
        columns: Columns,
        *,
        tests: Source | None,
        testing: bool = True,
        suppression_list: Source | None,
    ) -> None:
        """Make the plan, and bring into it what earlier tries did.

        :param testing: whether the test recipients are sent to by this part, or by another one
        :raises SendingError: when the plan cannot be made, or is too large
        :raises SourceError: when a source cannot be read
        """
        with self.plan.transaction():
            if tests is not None and testing:
                planner.read(tests, columns, test=True)
            planner.read(source, columns)
            if suppression_list is not None:
                self._suppress(planner, suppression_list, columns.recipient)
            # After the list itself, which must not look as if it had recipients because of them.
            if tests is not None and not testing:
                planner.suppress(tests, columns.recipient)
        self.plan.deduplicate_and_suppress()
        self._leave_out_suppressed()
        self.index.replay()
        self.drawn_up = True
        self._refuse_too_many(planner.found.other_partitions)
        self._refuse_failed_tests()

    def _suppress(self, planner: RecipientLoader, suppression_list: Source, column: str) -> None:
        """Leave out the suppression list; a row that cannot be read would be sent to."""
        found = planner.suppress(suppression_list, column)
        planner.found.invalid_suppression_rows = found.invalid
        if found.invalid and not self.options.skip_invalid_suppression:
            raise CannotPlanError(
                f"{found.in_words()} Their recipients would be sent to. Nothing was sent. Correct the list and clear "
                "the task, or give on_invalid_suppression='skip' to continue without these rows."
            )
        if found.rows and not self.plan.has_suppressed():
            raise CannotPlanError(
                f"None of the {found.rows} rows of the suppression list has a recipient in the column {column}, so "
                "every recipient on it would be sent to. Nothing was sent."
            )
        if found.invalid:
            log.warning("%s on_invalid_suppression is 'skip', so these rows are left out.", found.in_words())
        if found.empty:
            log.info("%d rows of the suppression list are empty in the column %s.", found.empty, column)

    def _leave_out_suppressed(self) -> None:
        """Leave out recipients on the stored suppression list."""
        if self.suppressions is None:
            return
        recipients = self.plan.not_sent()
        with self.plan.transaction():
            while some := list(islice(recipients, _SUPPRESSIONS_AT_ONCE)):
                found = self.suppressions.find([one.address for one in some])
                for reason in set(found.values()):
                    places = [one.place for one in some if found.get(one.address) == reason]
                    self.plan.exclude(places, RecipientStatus.SUPPRESSED, reason)

    # What the engine needs.

    async def record_loss(self, writer: JournalWriter) -> None:
        """Store that it is unknown what earlier tries sent, where that is so."""
        await writer.record_loss()

    def has_remaining(self) -> bool:
        """Return whether there are recipients to send to."""
        if not self.plan.counts()[RecipientStatus.NOT_SENT]:
            return False
        self._warn_of_changes()
        return True

    @contextlib.asynccontextmanager
    async def open_queue(self, client: Client, stop: StopSignal) -> AsyncIterator[CampaignQueue]:
        """Give the requests to the remaining recipients, and log the progress meanwhile."""
        async with self._queue(client, None) as queue:
            yield queue

    @contextlib.asynccontextmanager
    async def open_resend_queue(self, client: Client, stop: StopSignal) -> AsyncIterator[CampaignQueue | None]:
        """Give the requests to recipients of unknown outcome that can be sent to again; ``None`` if there is none."""
        recipients = self.unresolved.to_resend()
        if not recipients:
            yield None
            return
        log.warning(
            "on_unknown is 'resend': sending to %s of unknown outcome again.", counted(len(recipients), "recipient")
        )
        async with self._queue(client, recipients) as queue:
            try:
                yield queue
            finally:
                self.unresolved.rejected |= queue.rejected_resends

    @contextlib.asynccontextmanager
    async def _queue(self, client: Client, only: Sequence[Recipient] | None) -> AsyncIterator[CampaignQueue]:
        options = self.options
        counts = self.plan.counts()
        progress = Progress(len(only) if only is not None else counts[RecipientStatus.NOT_SENT], self.publish)
        dnd_filter = None
        if self.dnd is not None:
            progress.look_ups = self.dnd.look_ups
            dnd_filter = self.dnd.open(self.plan, client)
        frequency_filter = None
        if self.frequency_cap is not None:
            frequency_filter = FrequencyFilter(self.plan, self.frequency_cap, is_resend=only is not None)
        budget = self._budget()
        batcher = Batcher(
            self.plan,
            options.recipients_per_request,
            budget,
            window=options.send_window,
            dnd_filter=dnd_filter,
            frequency_filter=frequency_filter,
            only=only,
            test_only=options.test_only,
        )
        rules = FailureRules(
            options.on_rejected_batch,
            self._may_fail() if options.max_failure_ratio > 0 else None,
            options.max_identical_rejections,
        )
        queue = CampaignQueue(
            self.plan,
            self.index,
            self.log,
            self.message,
            batcher,
            budget,
            progress,
            self.delivery,
            rules,
            frequency_filter=frequency_filter,
            is_resend=only is not None,
        )
        reporting = asyncio.create_task(self._report_progress(progress))
        try:
            with self.delivery.recording(), self.plan.transaction(), _fewer_collections():
                yield queue
        finally:
            reporting.cancel()
            if frequency_filter is not None:
                await frequency_filter.close()
            progress.report(*self.index.money()[:2])

    def _budget(self) -> Budget:
        options = self.options
        spent, *_ = self.index.money()
        return Budget(
            to_decimal_or_none(options.max_charge),
            to_decimal_or_none(options.min_balance),
            to_decimal_or_none(options.price_per_page),
            to_decimal(spent or 0),
            unknown_units=self.plan.units(RecipientStatus.UNKNOWN),
            unpriced=self.plan.unpriced(),
            refuse_missing_charge=options.refuse_missing_charge,
        )

    async def _report_progress(self, progress: Progress) -> None:
        """Log how far it is, until cancelled."""
        while True:
            await asyncio.sleep(self.options.progress_interval)
            progress.report(*self.index.money()[:2])

    # What is told of it.

    def check_result(self) -> None:
        """Raise where more failed than the author allows.

        :raises NoLookupSucceededError: when no recipient is left because lookups failed
        :raises TooManyFailuresError: when more recipients failed than ``max_failure_ratio`` allows
        """
        self._refuse_failed_lookups()
        self._refuse_failures()

    def _refuse_too_many(self, other_partitions: int) -> None:
        """Raise where the whole campaign is for too many, its other parts included."""
        recipients, limit = self.recipients() + other_partitions, self.options.max_recipients
        if limit is not None and recipients > limit:
            whole = " in all partitions, with the duplicates of other partitions" if other_partitions else ""
            raise TooManyRecipientsError(
                f"The campaign has {counted(recipients, 'recipient')}{whole}, more than max_recipients ({limit}) "
                "allows. Nothing was sent in this try. Check the source, or raise max_recipients and clear the task."
            )

    def _refuse_failed_tests(self) -> None:
        """Raise where a test recipient got nothing, or that is unknown: the campaign was to be tried with them."""
        bad = [
            RecipientStatus.INVALID_ROW,
            RecipientStatus.REJECTED,
            RecipientStatus.NOT_ALLOWED,
            RecipientStatus.SUPPRESSED,
        ]
        if self.options.on_unknown is OnUnknown.FAIL:
            bad.append(RecipientStatus.UNKNOWN)
        if found := self.plan.tests(bad):
            status, reason = found
            raise TestFailedError(
                f"A test recipient is {status.word.replace('_', ' ')}{f' ({reason})' if reason else ''}. No other "
                "recipient was sent to. Give test recipients as mappings with the columns of the source, correct the "
                "cause, and clear the task."
            )

    @property
    def reference(self) -> str:
        """Return the name of the campaign, the same in each of its tries."""
        return campaign_reference(self.log, self.message.channel.operation, self.part)

    def recipients(self) -> int:
        """Return how many the campaign is for, whatever became of them."""
        counts = self.plan.counts()
        return sum(
            counts[status]
            for status in (
                RecipientStatus.NOT_SENT,
                RecipientStatus.SENT,
                RecipientStatus.REJECTED,
                RecipientStatus.UNKNOWN,
            )
        )

    def _failures(self) -> tuple[int, int]:
        counts = self.plan.counts()
        return counts[RecipientStatus.REJECTED], counts[RecipientStatus.INVALID_ROW]

    def _may_fail(self) -> int:
        """Return how many recipients may be rejected, beside the invalid rows there are."""
        _, bad = self._failures()
        allowed = self.options.max_failure_ratio * (self.recipients() + bad)
        return max(0, int(allowed + 1e-9) - bad)

    def _refuse_failures(self) -> None:
        rejected, bad = self._failures()
        whole = self.recipients() + bad
        if rejected + bad > self.options.max_failure_ratio * whole + 1e-9:
            raise TooManyFailuresError(
                f"{counted(rejected, 'recipient')} rejected and {counted(bad, 'invalid row')}, of {whole:,}: more "
                f"than max_failure_ratio ({self.options.max_failure_ratio:g}) allows. All other recipients were sent "
                f"to{' or left out by a guard' if self._left_out() else ''}. "
                + (
                    "The results file has each of them with its reason."
                    if self.options.outcome_file
                    else "With results_path, a results file has each of them with its reason."
                )
            )

    def _refuse_failed_lookups(self) -> None:
        """Raise where no recipient is left because lookups failed: it would look like a campaign without recipients."""
        failed = self.plan.counts()[RecipientStatus.LOOKUP_FAILED]
        if failed and not self.recipients():
            raise NoLookupSucceededError(
                f"The lookup failed for each of the {failed} recipients. Nothing was sent. A retry of the task looks "
                "them up again. on_lookup_error='send' sends to recipients whose lookup fails."
            )

    def _left_out(self) -> int:
        counts = self.plan.counts()
        return sum(counts[status] for status in LEFT_OUT)

    def _warn_of_changes(self) -> None:
        if self.index.changed():
            log.warning(
                "The content changed after an earlier try. Recipients that were sent to are not sent to again. The "
                "others get the new content."
            )


@contextlib.contextmanager
def _fewer_collections() -> Iterator[None]:
    """Let Python look for garbage more rarely: nearly all that a request leaves behind goes by itself."""
    usual = gc.get_threshold()
    if usual[0]:
        gc.set_threshold(max(usual[0], _BETWEEN_COLLECTIONS), *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)


def campaign_reference(journal: JournalLog, operation: str, part: int | None) -> str:
    """Return the name of a campaign, the same in each of its tries.

    :param part: which part of it, where all parts go by the same name
    """
    name = journal.hasher.batch_reference(operation, (), journal.resend_epoch)
    return name if part is None else f"{name}-{part}"


def refuse_unknown_placeholders(message: Content) -> None:
    """Let no recipient read ``Dear {name}``.

    :raises CannotPlanError: when a text has a placeholder that no column fills
    """
    used = {name for text in message.texts for name in placeholders_in(text, message.placeholder_format)}
    if strangers := sorted(used - set(message.columns)):
        raise CannotPlanError(
            f"No column fills the placeholders {', '.join(strangers)} of the text, and recipients would read the "
            "placeholders. Nothing was sent. Name their columns in substitutions."
        )
