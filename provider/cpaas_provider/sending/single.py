"""A single send: where its recipients stand, and its one request at a time."""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from cpaas_provider.api.core import Call
from cpaas_provider.api.errors import CpaasError, CpaasRejectedError
from cpaas_provider.sending.dispatcher import Ended
from cpaas_provider.sending.errors import (
    JournalTooLargeError,
    PartlyRejectedError,
    RefutedError,
    ResendLimitError,
    UnknownOutcomeError,
)
from cpaas_provider.sending.journal.journal import Journal, latest_requests, unresolved_requests
from cpaas_provider.sending.journal.log import MAX_BYTES
from cpaas_provider.sending.journal.model import Intent, LogEntry, RequestRecord, Result, State, by_reference, size_of
from cpaas_provider.sending.journal.resolution import count_recipients
from cpaas_provider.sending.journal.writer import JournalWriter
from cpaas_provider.sending.resolver import MAX_RESENDS
from cpaas_provider.sending.shutdown import StopSignal, in_thread
from cpaas_provider.sending.spec import (
    Client,
    Delivery,
    FrequencyCap,
    Outcome,
    RequestResult,
    SendSpec,
    SuppressionList,
)

log = logging.getLogger(__name__)

_OPEN = frozenset({State.NOT_SENT, State.REJECTED})


class SingleSendState:
    """Where the recipients of a single send stand.

    :param journal: of the task
    :param delivery: says where delivery reports go
    :param suppressions: recipients that are not sent to; ``None`` for none
    :param frequency_cap: counts messages to recipients over all sends; ``None`` without
    """

    min_write_batch = max_pending = 1

    def __init__(
        self,
        spec: SendSpec,
        journal: Journal,
        delivery: Delivery,
        *,
        suppressions: SuppressionList | None = None,
        frequency_cap: FrequencyCap | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        journal.check_operation(spec.operation)
        self.spec = spec
        self.journal = journal
        self.log = journal.log
        self.body = journal.hasher.body(spec.body)
        self._delivery = delivery
        self._suppressions = suppressions
        self.suppressed = frozenset[str]()
        """The recipients that this try does not send to, because they are on the suppression list."""
        self._frequency_cap = frequency_cap
        self.frequency_capped = frozenset[str]()
        """The recipients that this try does not send to, because they got as many messages as they may."""
        self._clock = clock
        self._members = dict(zip(spec.recipients, journal.members(spec.operation, spec.recipients), strict=True))
        self._has_requested = False

    @property
    def records(self) -> Sequence[RequestRecord]:
        """The requests of the send, in the order in which they were made.

        Where the task makes several sends, a send has those to its own recipients. Where it makes one, requests to
        recipients who are no longer on the list are part of it, too.
        """
        records = self.journal.records
        if not self.journal.several:
            return list(records)
        members = set(self._members.values())
        return [one for one in records if not members.isdisjoint(one.members)]

    def outcome(self) -> Outcome:
        """Return what is known by now."""
        return Outcome.of(self.records, earlier=not self._has_requested)

    def latest(self) -> dict[str, RequestRecord | None]:
        """Return the request that decides about each recipient; ``None`` where there is none."""
        return latest_requests(self.records, self._members)

    # What the engine needs.

    async def record_loss(self, writer: JournalWriter) -> None:
        """Store that it is unknown whether an earlier try sent to those recipients that have no request."""
        strangers = [self._members[one] for one, record in self.latest().items() if record is None]
        if self.lost is None or not strangers:
            return
        intent = self.journal.new_intent(self.spec.operation, strangers)
        result = Result(intent.number, State.UNKNOWN, reason=self.lost)
        await writer.record_lost(intent, result)
        self.journal.add(intent, self.spec.operation, None, None)
        self.journal.end(result)

    def has_remaining(self) -> bool:
        """Return whether there are recipients to send to, and log what earlier tries did.

        :raises CpaasRejectedError: when the service has rejected the very same request in an earlier try
        """
        latest = self.latest()
        remaining = self._remaining(latest)
        accepted = [entry for entry in latest.values() if entry and entry.state is State.ACCEPTED]
        self._warn_of_changes(latest, accepted, len(remaining))
        if not remaining and accepted and not self.requests():
            log.info("Earlier tries made every request. Nothing is sent again.")
        if not remaining:
            return False
        self._refuse_rejected(remaining)
        if accepted:
            log.info("An earlier try sent to some of %d recipients. %d are left.", len(latest), len(remaining))
        return True

    @contextlib.asynccontextmanager
    async def open_queue(self, client: Client, stop: StopSignal) -> AsyncIterator[SingleSendQueue]:
        """Give the one request to the remaining recipients, as far as guards let it."""
        recipients = await self._permitted(tuple(self._remaining(self.latest())), stop)
        try:
            yield await self._queue(recipients, client, stop) if recipients else SingleSendQueue(self, self.spec)
        finally:
            await self._release_unsent(recipients)

    @contextlib.asynccontextmanager
    async def open_resend_queue(self, client: Client, stop: StopSignal) -> AsyncIterator[SingleSendQueue | None]:
        """Give the one request to recipients on the list that are of unknown outcome; ``None`` if there is none."""
        unknown = await self._permitted(self._unknown_recipients(), stop)
        if unknown:
            log.warning(
                "on_unknown is 'resend': sending a request of unknown outcome again. Recipients: %d.", len(unknown)
            )
        yield await self._queue(unknown, client, stop) if unknown else None

    async def _permitted(self, recipients: tuple[str, ...], stop: StopSignal) -> tuple[str, ...]:
        """Return the recipients that guards let pass, and count the others."""
        return await self._below_cap(await self._not_suppressed(recipients, stop), stop)

    async def _below_cap(self, recipients: tuple[str, ...], stop: StopSignal) -> tuple[str, ...]:
        if self._frequency_cap is None or not recipients:
            return recipients
        try:
            capped = await stop.finish(in_thread(partial(self._frequency_cap.reserve, recipients)))
        except BaseException:
            # Some of them may be counted.
            await self._release_unsent(recipients)
            raise
        if capped:
            self.frequency_capped |= frozenset(capped)
            log.warning("Not sent to %d of %d recipients, by the frequency cap.", len(capped), len(recipients))
        return tuple(one for one in recipients if one not in capped)

    async def _release_unsent(self, recipients: Sequence[str]) -> None:
        """Have messages not counted that were certainly not sent."""
        if self._frequency_cap is None or not recipients:
            return
        latest = self.latest()
        unsent = self._remaining({one: latest[one] for one in recipients})
        try:
            if unsent:
                await in_thread(partial(self._frequency_cap.release, unsent))
        except Exception as error:  # noqa: BLE001 - what ends the send matters more
            log.warning(
                "Messages to %d recipients were not sent, and still count for the frequency cap (%s).",
                len(unsent),
                type(error).__name__,
            )

    async def _not_suppressed(self, recipients: tuple[str, ...], stop: StopSignal) -> tuple[str, ...]:
        if self._suppressions is None or not recipients:
            return recipients
        found = await stop.finish(in_thread(partial(self._suppressions.find, recipients)))
        if found:
            self.suppressed |= found.keys()
            reasons = ", ".join(f"{number} {reason}" for reason, number in sorted(Counter(found.values()).items()))
            log.warning(
                "Not sent to %d of %d recipients, because they are on the suppression list (%s).",
                len(found),
                len(recipients),
                reasons,
            )
        return tuple(one for one in recipients if one not in found)

    def _remaining(self, latest: Mapping[str, RequestRecord | None]) -> list[str]:
        return [one for one, entry in latest.items() if entry is None or entry.state in _OPEN]

    async def _queue(self, recipients: tuple[str, ...], client: Client, stop: StopSignal) -> SingleSendQueue:
        spec = await stop.finish(self.spec.prepared(client), client)
        snapshots = [await stop.finish(probe.snapshot(client), client) for probe in spec.probes]
        return SingleSendQueue(self, spec, recipients, snapshots or None)

    def _refuse_rejected(self, recipients: Sequence[str]) -> None:
        """Raise where the service has rejected the very same request in an earlier try."""
        reference = self.journal.reference(self.spec.operation, [self._members[one] for one in recipients])
        for entry in by_reference(self.records):
            if entry.reference == reference and entry.state is State.REJECTED and not self.is_changed(entry):
                raise CpaasRejectedError(
                    f"{entry.reason} An earlier try received this rejection. Nothing was sent again.",
                    operation=entry.operation,
                )

    def _warn_of_changes(
        self, latest: Mapping[str, RequestRecord | None], accepted: Sequence[RequestRecord], remaining: int
    ) -> None:
        if any(self.is_changed(entry) for entry in {entry.number: entry for entry in accepted}.values()):
            log.warning(
                "The content changed after an earlier try sent it to %d of %d recipients. They are not sent to again. "
                "%s.",
                len(accepted),
                len(latest),
                f"The other {remaining} get the new content" if remaining else "No other recipient is left",
            )

    # What the resolver needs.

    @property
    def unresolved(self) -> SingleSendState:
        """The requests of unknown outcome: those of this send."""
        return self

    @property
    def lost(self) -> str | None:
        """Why it is unknown what earlier tries sent, where that is so."""
        return self.log.lost

    def requests(self) -> Sequence[RequestRecord]:
        """Return the requests of unknown outcome; of recipients no longer on the list, too."""
        return unresolved_requests(self.records)

    def recipients(self) -> int:
        """Return how many recipients may or may not have been sent to."""
        return count_recipients(self.requests())

    def confirm(self, found: Mapping[int, dict[str, Any]]) -> Sequence[Result]:
        """Take note that requests were accepted, as a probe established."""
        results = [Result(number, State.ACCEPTED, extra=result) for number, result in found.items()]
        for result in results:
            self.journal.end(result)
        return results

    def refute(self, request: RequestRecord, error: RefutedError) -> Result | None:
        """Take note that a request was not accepted."""
        result = Result(request.number, State.REJECTED, reason=str(error))
        self.journal.end(result)
        return result

    def interrupted(self) -> Sequence[Result]:
        """Return that what earlier tries had begun is unknown."""
        return self.journal.interrupted

    def end_resends(self, unknown: str, advice: str) -> None:
        """Raise where a recipient on the list is still of unknown outcome."""
        unknown_recipients = self._unknown_recipients()
        if unknown_recipients and (self.suppressed | self.frequency_capped).issuperset(unknown_recipients):
            raise UnknownOutcomeError(
                f"{unknown} It cannot be sent again, because its recipients are on the suppression list or at the "
                f"frequency cap. {advice}."
            )
        if unknown_recipients:
            raise ResendLimitError(
                f"{unknown} It was sent {MAX_RESENDS} more times in this try. A retry of the task sends it again. If "
                f"no retry is left: {advice}."
            )

    def is_changed(self, request: RequestRecord) -> bool:
        """Tell whether a request said something else than it would now."""
        if request.body is None:
            return False
        now = self.spec.personal
        if request.body != self.body or request.is_personal != bool(now):
            return True
        if not now:
            return False
        hasher = self.journal.hasher
        members = set(request.members)
        return any(
            request.intent.values_hash_of(member) not in (None, hasher.personalisation_hash(now.get(one)))
            for one, member in self._members.items()
            if member in members
        )

    def _unknown_recipients(self) -> tuple[str, ...]:
        return tuple(one for one, entry in self.latest().items() if entry and entry.is_unresolved)

    # What its queue needs.

    def begin(self, spec: SendSpec, recipients: tuple[str, ...], snapshots: Any) -> SingleRequest:
        """Return the request to some of the recipients.

        :raises JournalTooLargeError: when the journal has no room for it
        """
        hasher, members = self.journal.hasher, [self._members[one] for one in recipients]
        personal = spec.personal
        words = b"".join(hasher.personalisation_hash(personal.get(one)) for one in recipients) if personal else b""
        intent = self.journal.new_intent(spec.operation, members, words, snapshots)
        at = self._clock()
        self._check_size(intent, at)
        url = self._delivery.callback_url(intent.reference, len(recipients))
        return SingleRequest(intent, spec.build_call(recipients, intent.reference, url), at)

    def add(self, request: SingleRequest) -> None:
        """Take note that the intent of a request is stored."""
        self._has_requested = True
        self.journal.add(request.intent, self.spec.operation, request.at, self.body)

    def end(self, result: Result) -> Result:
        """Take note of the result of a request."""
        self.journal.end(result)
        return result

    def reject(self, request: SingleRequest, rejected: frozenset[str], reason: str) -> tuple[Intent, Result] | None:
        """Take note that an accepted request does not go to some of its recipients; ``None`` if it goes to none.

        They get a request of their own, which was not made.
        """
        named = {self._members[one] for one in self.spec.recipients if one.lower() in rejected}
        apart = [(member, words) for member, words in request.intent.each() if member in named]
        if len(apart) == len(request.intent):
            return None
        intent = self.journal.new_intent(
            self.spec.operation, [member for member, _ in apart], b"".join(words for _, words in apart)
        )
        self.journal.add(intent, self.spec.operation, request.at, self.body)
        return intent, self.end(Result(intent.number, State.REJECTED, reason=reason))

    def _check_size(self, intent: Intent, at: datetime) -> None:
        tries = self.log.tries
        size = size_of(LogEntry(at, tries.number, tries.clear_epoch, self.body, [intent]).as_text())
        if size > MAX_BYTES:
            raise JournalTooLargeError(
                f"A request to {len(intent)} recipients takes {size} bytes of the journal of this task, and the "
                f"task state store holds {MAX_BYTES}. Nothing was sent in this try. Name fewer recipients in one task, "
                "or use SmsCampaignOperator or EmailCampaignOperator."
            )


@dataclass(frozen=True, slots=True)
class SingleRequest:
    """The one request of a single send."""

    intent: Intent
    call: Call[Any]
    at: datetime


class SingleSendQueue:
    """Gives a dispatcher one request.

    :param recipients: ``None`` for no request
    :param snapshots: what the probes recorded before it
    """

    def __init__(
        self,
        state: SingleSendState,
        spec: SendSpec,
        recipients: tuple[str, ...] | None = None,
        snapshots: Any = None,
    ) -> None:
        self.operation = spec.operation
        self._state = state
        self._spec = spec
        self._recipients = recipients
        self._snapshots = snapshots

    async def next(self, in_flight: int) -> tuple[str, ...] | None:
        """Return the recipients, once."""
        recipients, self._recipients = self._recipients, None
        return recipients

    def begin(self, batch: tuple[str, ...]) -> SingleRequest:
        """Return the request."""
        return self._state.begin(self._spec, batch, self._snapshots)

    def left(self, request: SingleRequest) -> None:
        """Take note that the intent is stored and the request leaves."""
        self._state.add(request)

    def withdraw(self, request: SingleRequest) -> None:
        """Do nothing: what is not stored did not happen."""

    def read(self, request: SingleRequest, response: Any) -> RequestResult:
        """Return what a response says."""
        return self._spec.read_result(response, repeated=request.intent.previous_unknown)

    def accept(self, request: SingleRequest, result: RequestResult) -> Ended:
        """Record that the service accepted the request, for all of its recipients or for some."""
        number, details = request.intent.number, dict(result.details or {})
        if not result.rejection:
            return Ended(self._state.end(Result(number, State.ACCEPTED, extra=details)))
        reason = str(result.rejection)
        named = sum(1 for one in self._spec.recipients if one.lower() in result.rejected)
        if not named:
            log.warning("The service names no rejected recipient, so all count as accepted. %s", reason)
            return Ended(self._state.end(Result(number, State.ACCEPTED, extra=details)))
        error = PartlyRejectedError(
            f"{reason} The service accepted {len(request.intent) - named} of {len(request.intent)} "
            f"recipients as message {result.id}. They are not sent to again. Correct or remove the rejected "
            "recipients, and clear the task. It sends to the rejected recipients only."
        )
        rejected = self._state.reject(request, result.rejected, reason)
        if rejected is None:
            return Ended(self._state.end(Result(number, State.REJECTED, reason=reason)), error=error)
        left_out = rejected[0].members
        accepted = self._state.end(Result(number, State.ACCEPTED, extra=details, left_out=left_out))
        return Ended(accepted, [rejected], error)

    def fail(self, request: SingleRequest, error: CpaasError) -> Ended:
        """Record a failure, which ends the send unless it leaves the outcome unknown."""
        number, reason = request.intent.number, str(error)
        if error.maybe_sent:
            log.warning("%s The outcome of request %s is unknown.", error, request.intent.reference)
            return Ended(self._state.end(Result(number, State.UNKNOWN, reason=reason)))
        state = State.REJECTED if isinstance(error, CpaasRejectedError) else State.NOT_SENT
        return Ended(self._state.end(Result(number, state, reason=reason)), error=error)

    def end(self, request: SingleRequest, state: State, reason: str) -> Ended:
        """Record that the request did not leave, or that its outcome is unknown."""
        self._state.add(request)
        return Ended(self._state.end(Result(request.intent.number, state, reason=reason)))
