"""The requests of a campaign: one for each batch, and what the result of each means for the rest of the campaign."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from decimal import Decimal
from typing import Any, NamedTuple

from cpaas_provider.api.amounts import counted
from cpaas_provider.api.errors import CpaasError, CpaasRejectedError
from cpaas_provider.api.recipients.reader import recipient_key
from cpaas_provider.sending.campaign.batcher import Batch, Batcher, billable_units
from cpaas_provider.sending.campaign.content import CampaignDelivery, Content
from cpaas_provider.sending.campaign.guards.budget import Budget
from cpaas_provider.sending.campaign.guards.circuit_breaker import RejectionBreaker
from cpaas_provider.sending.campaign.guards.frequency import FrequencyFilter
from cpaas_provider.sending.campaign.journal_index import JournalIndex
from cpaas_provider.sending.campaign.message_series import SeriesMessage
from cpaas_provider.sending.campaign.progress import Progress
from cpaas_provider.sending.campaign.recipients import Recipient, RecipientStatus
from cpaas_provider.sending.campaign.rejections import (
    NextStep,
    OnRejectedBatch,
    bisect,
    decide_after_failure,
    split_by_name,
)
from cpaas_provider.sending.dispatcher import Ended, Wait
from cpaas_provider.sending.errors import SendingError
from cpaas_provider.sending.journal.model import Intent, Result, State
from cpaas_provider.sending.spec import RequestResult

log = logging.getLogger(__name__)

_REJECTED_WITHOUT_SUCCESS = 50
_UNKNOWN_IN_A_ROW = 10


class AllRejectedError(SendingError):
    """The service rejected every recipient, so the cause is probably the message."""

    permanent = True


class MessageRejectedError(SendingError):
    """The service rejected what is the same for every recipient, such as the sender or the content."""

    permanent = True


class TooManyFailuresError(SendingError):
    """More recipients failed than ``max_failure_ratio`` allows."""

    permanent = True


class ServiceFailingError(SendingError):
    """Too many requests in a row have an unknown outcome, so no further request was started."""


class CampaignRequest(NamedTuple):
    """One request of a campaign.

    :param units: its billable units: pages, or recipients where pages are not known
    :param reserved: the money reserved for it in the budget
    :param at: when it was taken from the queue, as ``time.time()`` returns it
    """

    batch: Batch
    intent: Intent
    call: SeriesMessage
    units: int
    reserved: Decimal
    at: float


@dataclass(eq=False, repr=False)
class CampaignQueue:
    """The requests of one try, or of one resend within it.

    :param on_rejected_batch: whether a batch that is rejected as a whole may be split and sent again
    :param max_rejected: the most further recipients that may be rejected; ``None`` for no limit
    :param max_identical_rejections: this many equal rejections in a row end the campaign; ``None`` for no limit
    :param is_resend: whether the requests go to recipients of unknown outcome, again
    """

    index: JournalIndex
    content: Content
    batcher: Batcher
    budget: Budget
    progress: Progress
    delivery: CampaignDelivery
    frequency_filter: FrequencyFilter | None
    _: KW_ONLY
    on_rejected_batch: OnRejectedBatch
    max_rejected: int | None
    max_identical_rejections: int | None
    is_resend: bool

    def __post_init__(self) -> None:
        self.operation = self.content.channel.endpoint.operation
        self._series = self.content.series()
        self._breaker = RejectionBreaker(self.max_identical_rejections)
        self._accepted = self.index.money()[2] > 0
        self._unknown_in_a_row = 0
        self._rejections = 0

    async def next(self, pending: int) -> Batch | Wait | None:
        """Return the recipients of the next request, see ``Batcher.next``."""
        try:
            return await self.batcher.next(pending)
        finally:
            self.progress.skipped = self.batcher.left_out

    def begin(self, batch: Batch) -> CampaignRequest:
        """Return the request to these recipients."""
        units, intent = billable_units(batch), self._intent(batch)
        call = self.content.build_message(self._series, batch, intent.reference, self.delivery)
        return CampaignRequest(batch, intent, call, units, self.budget.reserve(units), time.time())

    def on_request_sent(self, request: CampaignRequest) -> None:
        """Count the request, which leaves now."""
        self.progress.requests += 1
        if self.frequency_filter is not None:
            self.frequency_filter.sent(request.batch)

    def withdraw(self, request: CampaignRequest) -> None:
        """Release the reserved money."""
        self.budget.release(request.reserved)

    def read(self, request: CampaignRequest, response: Any) -> RequestResult:
        """Return the result that a response states."""
        return self.content.read_result(response)

    def accept(self, request: CampaignRequest, result: RequestResult) -> Ended:
        """Record that the service accepted the request, for all of its recipients or for some."""
        self._accepted = True
        self._breaker.accepted()
        self._unknown_in_a_row = 0
        rejected, accepted = split_by_name(request.batch, result.rejected)
        self.progress.sent += len(accepted)
        left_out = b"".join([recipient.member for recipient in rejected])
        number = request.intent.number
        ended = Result(number, State.ACCEPTED, (result.id, result.charge, result.balance), left_out=left_out)
        self.index.record(request.intent, request.at, ended)
        self._set_status(accepted, RecipientStatus.SENT, number)
        addresses = [recipient.address for recipient in accepted]
        rejected_addresses = [recipient.address for recipient in rejected]
        self.delivery.record(request.intent.reference, addresses, result.id, rejected_addresses)
        error: Exception | None = None
        try:
            self.budget.record_charge(request.reserved, request.units, result.charge, result.balance)
        except SendingError as limit_reached:
            error = limit_reached
        if not result.rejection:
            return Ended(ended, error=error)
        log.warning(
            "Request %s was accepted for %d of %d recipients: %s",
            request.intent.reference,
            len(accepted),
            len(request.batch),
            result.rejection,
        )
        unsent = self._reject(rejected, result.rejection)
        if rejected and self._is_test(rejected):
            error = error or CpaasRejectedError(f"{result.rejection} A test recipient is among the rejected ones.")
        return Ended(ended, unsent, error or (self._too_many_failures() if rejected else None))

    def fail(self, request: CampaignRequest, error: CpaasError) -> Ended:
        """Record a failure. A batch that may have an invalid recipient is bisected. Some failures end the campaign."""
        state, next_step = decide_after_failure(error, len(request.batch), self.on_rejected_batch)
        ended = self.end(request, state, str(error)).result
        if state is not State.UNKNOWN:
            self._unknown_in_a_row = 0
        unsent: Sequence[tuple[Intent, Result]] = ()
        end: Exception | None = None
        if next_step is NextStep.END or self._is_test(request.batch):
            end = _end_of(error)
        elif next_step is NextStep.BISECT and isinstance(error, CpaasRejectedError):
            unsent = self._bisect(request.batch, error)
        if isinstance(error, CpaasRejectedError) and self._breaker.rejected(error):
            end = end or self._breaker.opened(error)
        return Ended(ended, unsent, end or self._too_many_failures())

    def end(self, request: CampaignRequest, state: State, reason: str) -> Ended:
        """Record that a request did not succeed."""
        result = Result(request.intent.number, state, reason=reason)
        self.index.record(request.intent, request.at, result)
        if state is State.UNKNOWN:
            self.budget.record_unknown(request.reserved, request.units)
            self.progress.unknown += len(request.batch)
            self._unknown_in_a_row += 1
            self._set_status(request.batch, RecipientStatus.UNKNOWN, result.number)
            log.warning("Outcome unknown: request %s. Cause: %s", request.intent.reference, reason)
            return Ended(result)
        self.budget.release(request.reserved)
        self._release(request.batch)
        if state is State.REJECTED:
            self.progress.rejected += len(request.batch)
            # One rejection for the whole batch: one of its recipients may be the cause.
            self._rejections += 1
            self._set_status(request.batch, RecipientStatus.REJECTED, result.number)
        return Ended(result)

    def _intent(self, batch: Batch) -> Intent:
        values_hashes = b""
        if self.content.columns:
            values_hash = self.index.log.hasher.values_hash
            values_hashes = b"".join([values_hash(recipient.placeholder_values or "") for recipient in batch])
        return self.index.log.new_intent([recipient.member for recipient in batch], values_hashes)

    def _release(self, recipients: Iterable[Recipient]) -> None:
        """Release recipients from the frequency cap, because they were certainly not sent to."""
        if self.frequency_filter is not None:
            self.frequency_filter.not_sent(recipients)

    def _is_test(self, batch: Batch) -> bool:
        return batch[0].row == 0 and not self.is_resend

    def _bisect(self, batch: Batch, error: CpaasRejectedError) -> Sequence[tuple[Intent, Result]]:
        rejected, parts = bisect(batch, frozenset(map(recipient_key, error.rejected_recipients)))
        log.info(
            "A batch of %s was rejected: %d of them named, the others are sent in %s.",
            counted(len(batch), "recipient"),
            len(rejected),
            counted(len(parts), "smaller batch", "smaller batches"),
        )
        self.batcher.requeue(parts)
        return self._reject(rejected, str(error))

    def _reject(self, recipients: Batch, reason: str) -> list[tuple[Intent, Result]]:
        """Record recipients that the service rejected by name, each as a rejected request of its own."""
        unsent = []
        for recipient in recipients:
            intent = self._intent((recipient,))
            result = Result(intent.number, State.REJECTED, reason=reason)
            self.index.record(intent, time.time(), result)
            unsent.append((intent, result))
        self._release(recipients)
        self._set_status(recipients, RecipientStatus.REJECTED, None, reason)
        self.progress.rejected += len(recipients)
        self._rejections += len(recipients)
        return unsent

    def _set_status(
        self, recipients: Iterable[Recipient], status: RecipientStatus, request: int | None, reason: str | None = None
    ) -> None:
        positions = [recipient.position for recipient in recipients]
        # A resend that is not accepted does not resolve the request that it repeats.
        if not self.is_resend or status is RecipientStatus.SENT:
            self.index.plan.set_status(positions, status, request, reason)
        elif status is RecipientStatus.REJECTED:
            self.index.rejected_resends.update(positions)

    def _too_many_failures(self) -> SendingError | None:
        """Return the error that ends the campaign after too many failures, if any."""
        progress, limit = self.progress, self.max_rejected
        if self._unknown_in_a_row >= _UNKNOWN_IN_A_ROW:
            return ServiceFailingError(
                f"{self._unknown_in_a_row} requests in a row have an unknown outcome. No further request was "
                "started, because its outcome would be unknown, too. A retry of the task continues when the "
                "service responds again."
            )
        if self._rejections >= _REJECTED_WITHOUT_SUCCESS and not self._accepted:
            return AllRejectedError(
                f"The service rejected {counted(progress.rejected, 'recipient')} and accepted none, so the cause "
                "is probably the message, not the recipients. No further request was started. Correct the message "
                "and clear the task. With a results_path, the file there has the reason of each rejection."
            )
        if limit is not None and progress.rejected > limit:
            return TooManyFailuresError(
                "More recipients were rejected than max_failure_ratio allows. No further request was started."
            )
        return None


def _end_of(error: CpaasError) -> Exception:
    """Return the error with which a failed request ends the campaign."""
    if not isinstance(error, CpaasRejectedError) or not error.is_message_error:
        return error
    return MessageRejectedError(
        f"{error} The message is wrong, not a recipient, so no further request was started. Correct the message and "
        "clear the task."
    )
