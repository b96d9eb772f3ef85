"""One try of a campaign: the recipients, and the state that the engine asks for."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import time
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import islice
from typing import Any, Protocol

from cpaas_provider.api.amounts import Amount, counted, share_of, to_decimal_or_none
from cpaas_provider.api.text import placeholders_in
from cpaas_provider.sending.campaign.batcher import Batcher
from cpaas_provider.sending.campaign.content import CampaignDelivery, Content
from cpaas_provider.sending.campaign.guards.advice import advise
from cpaas_provider.sending.campaign.guards.budget import Budget
from cpaas_provider.sending.campaign.guards.circuit_breaker import MOST_IDENTICAL_REJECTIONS
from cpaas_provider.sending.campaign.guards.dnd import DndFilter, LookupsFailedError
from cpaas_provider.sending.campaign.guards.frequency import FrequencyFilter
from cpaas_provider.sending.campaign.guards.send_window import SendWindow
from cpaas_provider.sending.campaign.guards.spending import EarlierRequest, Spending
from cpaas_provider.sending.campaign.guards.suppressions import SuppressionFilter
from cpaas_provider.sending.campaign.journal_index import JournalIndex
from cpaas_provider.sending.campaign.loader import CannotPlanError, Columns, RecipientLoader
from cpaas_provider.sending.campaign.progress import LookUps, Progress, Publish
from cpaas_provider.sending.campaign.queue import CampaignQueue, TooManyFailuresError
from cpaas_provider.sending.campaign.recipients import FAILED, LEFT_OUT, RecipientStatus, RecipientTable
from cpaas_provider.sending.campaign.rejections import OnRejectedBatch
from cpaas_provider.sending.errors import SendingError
from cpaas_provider.sending.journal.log import JournalLog
from cpaas_provider.sending.journal.writer import JournalWriter
from cpaas_provider.sending.shutdown import StopSignal
from cpaas_provider.sending.spec import Client, FrequencyCap, OnUnknown, SuppressionList
from cpaas_provider.sources.base import Source

log = logging.getLogger(__name__)

_SUPPRESSIONS_AT_ONCE = 1_000
_GC_THRESHOLD = 20_000
"""The number of new objects, a few megabytes, after which Python collects garbage during a campaign."""


class TestFailedError(SendingError):
    """A test recipient was rejected or excluded, or its outcome is unknown, so the campaign ended."""

    permanent = True


class RecipientsLeftError(SendingError):
    """Recipients were not sent to, although nothing ended the campaign."""


class RecipientLimitError(SendingError):
    """The campaign has more recipients than ``max_recipients``.

    :param recipients: their number
    """

    permanent = True

    def __init__(self, message: str, recipients: int) -> None:
        super().__init__(message)
        self.recipients = recipients


_LIMIT = {"is_limit": True}


@dataclass(frozen=True, kw_only=True)
class AuthorOptions:
    """The options that a campaign takes by the name of the operator's argument, which explains each.

    :param templates: the names of the limits and switches that are templates
    """

    test_only: bool = False
    max_recipients: int | None = field(default=None, metadata=_LIMIT)
    max_charge: Amount | None = field(default=None, metadata=_LIMIT)
    min_balance: Amount | None = field(default=None, metadata=_LIMIT)
    price_per_page: Amount | None = field(default=None, metadata=_LIMIT)
    on_missing_charge: str = "balance"
    on_invalid_suppression: str = "fail"
    max_failure_ratio: float = field(default=0.0, metadata=_LIMIT)
    max_identical_rejections: int | None = MOST_IDENTICAL_REJECTIONS
    progress_interval: float = 10.0
    templates: Collection[str] = ()

    @property
    def limits(self) -> dict[str, Any]:
        """The limits that the first line of the log names."""
        return {option.name: getattr(self, option.name) for option in fields(self) if "is_limit" in option.metadata}


@dataclass(frozen=True)
class CampaignOptions(AuthorOptions):
    """The author's options, and what follows from the connection, the partition and a confirmation.

    :param window: the most requests that may be pending (``max_pending_requests``)
    :param max_charge_of_all: ``max_charge`` of all partitions together
    :param outcome_file: whether a results file is written
    :param in_flight: the most requests that may be in flight; ``None`` for as many as ``window``
    """

    recipients_per_request: int
    window: int
    on_unknown: OnUnknown = OnUnknown.FAIL
    on_rejected_batch: OnRejectedBatch = OnRejectedBatch.BISECT
    max_charge_of_all: Amount | None = None
    send_window: SendWindow | None = None
    outcome_file: bool = False
    in_flight: int | None = None

    @property
    def min_write_batch(self) -> int:
        """The number of intents that one write of the journal waits for: those ahead of their requests can wait."""
        ahead = self.window - min(self.window, self.in_flight or self.window)
        return max(1, self.window // 4, ahead // 2)


class DndFilterFactory(Protocol):
    """Makes the DND filter of a campaign."""

    look_ups: LookUps
    """Counts the lookups of the filter."""

    def open(self, table: RecipientTable, client: Client) -> DndFilter:
        """Return the filter."""


@dataclass
class Campaign:
    """One try of a campaign.

    :param plan: the recipients
    :param log: the journal
    :param delivery: returns the callback URLs, and records accepted requests
    :param dnd: makes the DND filter; ``None`` without one
    :param publish: takes the figures of the progress
    :param part: the number of the partition if all partitions share the identity of one journal; else ``None``
    :param suppressions: the stored suppression list; ``None`` without one
    :param frequency_cap: counts messages to recipients over all campaigns; ``None`` without one
    """

    in_line = False

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
    is_prepared: bool = field(default=False, init=False)
    """Whether the table has all recipients, with the status that earlier tries recorded."""

    def __post_init__(self) -> None:
        self.body = self.log.hasher.body(self.message.body)
        self.index = JournalIndex(self.plan, self.log, self.body, self.options.in_flight or self.options.window)
        self.requests = self.index
        self.min_write_batch = self.options.min_write_batch
        self.max_pending = self.options.window
        self._earlier_epochs: Sequence[EarlierRequest] = ()
        self._suppressed_at = 0.0

    def prepare(
        self,
        loader: RecipientLoader,
        source: Source,
        columns: Columns,
        *,
        tests: Source | None,
        suppression_list: Source | None,
    ) -> None:
        """Load the recipients, and set their status by what earlier tries recorded.

        :param tests: the test recipients; ``None`` for none. A partition sends only to those that belong to it, so that
            no recipient gets the message twice if the list changes between tries
        :raises SendingError: when the sources cannot be used, or have too many recipients
        :raises SourceError: when a source cannot be read
        """
        with self.plan.transaction():
            if tests is not None:
                loader.read(tests, columns, test=True)
            loader.read(source, columns)
            if suppression_list is not None:
                self._suppress(loader, suppression_list, columns.recipient)
        self.plan.deduplicate_and_suppress()
        self._leave_out_suppressed()
        self.index.replay()
        if self.options.max_charge is not None:
            self._earlier_epochs = self.index.earlier_epochs()
        self.is_prepared = True
        self._refuse_too_many(loader.stats.other_partitions)
        self._refuse_failed_tests()

    def _suppress(self, loader: RecipientLoader, suppression_list: Source, column: str) -> None:
        """Suppress the recipients on the author's list, and raise if the list has rows that cannot be read."""
        stats = loader.suppress(suppression_list, column)
        loader.stats.invalid_suppression_rows = stats.invalid
        if stats.invalid and self.options.on_invalid_suppression != "skip":
            raise CannotPlanError(
                f"{stats.describe_invalid()} Their recipients would be sent to. Nothing was sent. Correct the list and "
                "clear the task, or give on_invalid_suppression='skip' to continue without these rows."
            )
        if stats.rows and not self.plan.has_suppressed():
            raise CannotPlanError(
                f"None of the {stats.rows} rows of the suppression list has a recipient in the column {column}, so "
                "every recipient on it would be sent to. Nothing was sent."
            )
        if stats.invalid:
            log.warning("%s on_invalid_suppression is 'skip', so these rows are left out.", stats.describe_invalid())
        if stats.empty:
            rows = counted(stats.empty, "row of the suppression list is", "rows of the suppression list are")
            log.info("%s empty in the column %s.", rows, column)

    def _leave_out_suppressed(self) -> None:
        """Exclude recipients on the stored suppression list."""
        if self.suppressions is None:
            return
        self._suppressed_at = time.monotonic()
        recipients = self.plan.not_sent()
        with self.plan.transaction():
            while batch := list(islice(recipients, _SUPPRESSIONS_AT_ONCE)):
                reasons = self.suppressions.find([recipient.address for recipient in batch])
                for reason in set(reasons.values()):
                    positions = [recipient.position for recipient in batch if reasons.get(recipient.address) == reason]
                    self.plan.exclude(positions, RecipientStatus.SUPPRESSED, reason)

    # What the engine needs.

    async def record_head(self, writer: JournalWriter) -> None:
        """Store the head of a new journal, so that the next try has the same name for the campaign."""
        await writer.record_head()

    def has_remaining(self) -> bool:
        """Return whether recipients are left to send to."""
        if not self.plan.counts()[RecipientStatus.NOT_SENT]:
            return False
        if self.index.changed():
            log.warning(
                "The content changed after an earlier try. Recipients that were sent to are not sent to again. The "
                "others get the new content."
            )
        return True

    @contextlib.asynccontextmanager
    async def open_queue(
        self, client: Client, stop: StopSignal, *, is_resend: bool = False
    ) -> AsyncIterator[CampaignQueue | None]:
        """Open the queue of requests to the remaining recipients. The progress is logged while it is open.

        :param is_resend: to send to recipients of unknown outcome instead, again. ``None`` if that is not possible
        """
        only = self.index.to_resend() if is_resend else None
        if only:
            log.warning(
                "on_unknown is 'resend': sending to %s of unknown outcome again.", counted(len(only), "recipient")
            )
        elif is_resend:
            yield None
            return
        options = self.options
        remaining = self.plan.counts()[RecipientStatus.NOT_SENT] if only is None else len(only)
        progress = Progress(remaining, self.publish)
        dnd_filter = None
        if self.dnd is not None:
            progress.look_ups = self.dnd.look_ups
            dnd_filter = self.dnd.open(self.plan, client)
        frequency_filter = None
        if self.frequency_cap is not None:
            frequency_filter = FrequencyFilter(self.plan, self.frequency_cap, is_resend=is_resend)
        suppression_filter = None
        if self.suppressions is not None:
            suppression_filter = SuppressionFilter(self.plan, self.suppressions, self._suppressed_at)
        needs_price, endpoint = None, self.message.channel.endpoint
        if client.guard is not None and client.guard.counts(endpoint):
            needs_price = partial(asyncio.to_thread, client.guard.needs_price, endpoint)
        budget = self._budget()
        batcher = Batcher(
            self.plan,
            options.recipients_per_request,
            budget,
            window=options.send_window,
            suppression_filter=suppression_filter,
            dnd_filter=dnd_filter,
            frequency_filter=frequency_filter,
            needs_price=needs_price,
            only=only,
            test_only=options.test_only,
        )
        queue = CampaignQueue(
            self.index,
            self.message,
            batcher,
            budget,
            progress,
            self.delivery,
            frequency_filter,
            on_rejected_batch=options.on_rejected_batch,
            max_rejected=self._may_fail() if options.max_failure_ratio > 0 else None,
            max_identical_rejections=options.max_identical_rejections,
            is_resend=is_resend,
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
        if options.max_charge is None and options.min_balance is None:
            return Budget()
        spending = Spending(
            to_decimal_or_none(options.price_per_page),
            unknown_units=self.plan.units(RecipientStatus.UNKNOWN)
            + sum(request.units for request in self._earlier_epochs if request.is_unknown),
            resent_units=self.index.resent_units(),
        )
        spending.add_earlier(self.index.earlier_requests())
        spending.add_earlier(self._earlier_epochs)
        return Budget(
            to_decimal_or_none(options.max_charge),
            to_decimal_or_none(options.min_balance),
            spending,
            refuse_missing_charge=options.on_missing_charge == "fail",
            max_charge_of_all=to_decimal_or_none(options.max_charge_of_all),
            templates=options.templates,
        )

    async def _report_progress(self, progress: Progress) -> None:
        """Log and publish the progress at intervals, until cancelled."""
        while True:
            await asyncio.sleep(self.options.progress_interval)
            progress.report(*self.index.money()[:2])

    # What the runner asks at the end.

    def check_result(self) -> None:
        """Raise if recipients are left, or if more failed than the author allows.

        :raises RecipientsLeftError: when recipients are left that no guard left out. No campaign may end like that
        :raises LookupsFailedError: when no recipient is left because lookups failed, or too many lookups failed
        :raises TooManyFailuresError: when more recipients failed than ``max_failure_ratio`` allows
        """
        counts, recipients = self.plan.counts(), self.recipients()
        if remaining := counts[RecipientStatus.NOT_SENT]:
            raise RecipientsLeftError(
                f"Of {counted(recipients, 'recipient')}, {remaining:,} were not sent to, although nothing stopped the "
                "campaign. This is a defect of the provider, please report it. A retry of the task sends to them."
            )
        if (failed := counts[RecipientStatus.LOOKUP_FAILED]) and not recipients:
            # Without this error it would look like a campaign without recipients.
            raise LookupsFailedError(
                f"The lookup failed for each of the {failed} recipients. Nothing was sent. A retry of the task looks "
                "them up again. on_lookup_error='send' sends to recipients whose lookup fails."
            )
        rejected, invalid, not_looked_up = (counts[status] for status in FAILED)
        total = recipients + invalid + not_looked_up
        allowed = share_of(self.options.max_failure_ratio, total)
        if rejected + invalid + not_looked_up <= allowed:
            return
        failures = f"{counted(rejected, 'recipient')} rejected and {counted(invalid, 'invalid row')}"
        if not_looked_up:
            failures += f", and {counted(not_looked_up, 'recipient')} not sent to because the lookup failed"
        others = " or left out by a guard" if any(counts[status] for status in LEFT_OUT) else ""
        if unknown := counts[RecipientStatus.UNKNOWN]:
            others += f", but {counted(unknown, 'recipient')} of unknown outcome"
        message = (
            f"{failures}, of {total:,}: more than max_failure_ratio ({self.options.max_failure_ratio:g}) "
            f"allows. All other recipients were sent to{others}. "
            + (
                "The results file has each of them with its reason."
                if self.options.outcome_file
                else "With results_path, a results file has each of them with its reason."
            )
        )
        if rejected + invalid > allowed:
            raise TooManyFailuresError(message)
        raise LookupsFailedError(
            f"{message} A retry or a clear of the task looks these numbers up again and sends to them. "
            "on_lookup_error='send' sends to recipients whose lookup fails."
        )

    def _refuse_too_many(self, other_partitions: int) -> None:
        """Raise if the campaign has more recipients than ``max_recipients``, over all partitions."""
        recipients, limit = self.recipients() + other_partitions, self.options.max_recipients
        if limit is not None and recipients > limit:
            where = " in all partitions, with the duplicates of other partitions" if other_partitions else ""
            by_clear = "If it is right, raise max_recipients and clear the task."
            advice = advise("max_recipients", self.options.templates, by_clear)
            raise RecipientLimitError(
                f"The campaign has {counted(recipients, 'recipient')}{where}, more than max_recipients ({limit}) "
                f"allows. Nothing was sent in this try. Check the source. {advice}",
                recipients,
            )

    def _refuse_failed_tests(self) -> None:
        """Raise if a test recipient was not sent to, or has an unknown outcome that fails the task."""
        failed = [
            RecipientStatus.INVALID_ROW,
            RecipientStatus.REJECTED,
            RecipientStatus.NOT_ALLOWED,
            RecipientStatus.SUPPRESSED,
        ]
        if self.options.on_unknown is OnUnknown.FAIL:
            failed.append(RecipientStatus.UNKNOWN)
        if first := self.plan.tests(failed):
            status, reason = first
            raise TestFailedError(
                f"A test recipient is {status.word.replace('_', ' ')}{f' ({reason})' if reason else ''}. No other "
                "recipient was sent to. Give test recipients as mappings with the columns of the source, correct the "
                "cause, and clear the task."
            )

    @property
    def reference(self) -> str:
        """Return the name of the campaign, the same in each of its tries."""
        return campaign_reference(self.log, self.part)

    def recipients(self) -> int:
        """Return the number of valid recipients that no guard excluded, whatever the outcome."""
        counts = self.plan.counts()
        return sum(number for status, number in counts.items() if status < RecipientStatus.INVALID_ROW)

    def _may_fail(self) -> int:
        """Return how many more recipients may be rejected under ``max_failure_ratio``."""
        counts = self.plan.counts()
        invalid = counts[RecipientStatus.INVALID_ROW]
        allowed = share_of(self.options.max_failure_ratio, self.recipients() + invalid)
        return max(0, allowed - invalid - counts[RecipientStatus.REJECTED])


@contextlib.contextmanager
def _fewer_collections() -> Iterator[None]:
    """Collect garbage more rarely: reference counting frees nearly all objects of a request."""
    thresholds = gc.get_threshold()
    if thresholds[0]:
        gc.set_threshold(max(thresholds[0], _GC_THRESHOLD), *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


def campaign_reference(journal: JournalLog, part: int | None) -> str:
    """Return the name of a campaign, the same in each of its tries.

    :param part: the number of the partition if all partitions share the identity of one journal; else ``None``
    """
    name = journal.reference()
    return name if part is None else f"{name}-{part}"


def refuse_unknown_placeholders(message: Content) -> None:
    """Raise if recipients would read a placeholder, as in ``Dear {name}``.

    :raises CannotPlanError: when a text has a placeholder that no column fills
    """
    used = {name for text in message.texts for name in placeholders_in(text, message.placeholder_format)}
    if unfilled := sorted(used - set(message.columns)):
        raise CannotPlanError(
            f"No column fills the placeholders {', '.join(unfilled)} of the text, and recipients would read the "
            "placeholders. Nothing was sent. Name their columns in substitutions."
        )
