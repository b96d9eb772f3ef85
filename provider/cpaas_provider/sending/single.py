"""A single send: the status of its recipients, and the queue with its one request."""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from functools import partial
from operator import attrgetter
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cpaas_provider.api.amounts import counted
from cpaas_provider.api.core import Call
from cpaas_provider.api.errors import CpaasError, CpaasRejectedError
from cpaas_provider.api.recipients.reader import recipient_key
from cpaas_provider.sending.dispatcher import Ended
from cpaas_provider.sending.errors import (
    JournalTooLargeError,
    PartlyRejectedError,
    RefutedError,
    ResendLimitError,
    UnknownOutcomeError,
)
from cpaas_provider.sending.journal.journal import SEVERAL_OPERATIONS, Journal
from cpaas_provider.sending.journal.log import MAX_BYTES
from cpaas_provider.sending.journal.model import (
    Intent,
    LogEntry,
    RequestRecord,
    Result,
    State,
    by_reference,
    latest_by_member,
    size_of,
)
from cpaas_provider.sending.journal.writer import JournalWriter
from cpaas_provider.sending.resolver import MAX_RESENDS, SendRequests
from cpaas_provider.sending.shutdown import StopSignal, in_thread
from cpaas_provider.sending.spec import (
    Client,
    Delivery,
    FrequencyCap,
    RequestResult,
    SendOutcome,
    SendSpec,
    SuppressionList,
    channel_of,
)

log = logging.getLogger(__name__)

_SENDABLE = frozenset({State.NOT_SENT, State.REJECTED})


@dataclass(eq=False, repr=False)
class SingleSendState(SendRequests):
    """The status of the recipients of a single send.

    :param journal: the journal of the task
    :param delivery: returns the callback URL
    :param suppressions: the stored suppression list; ``None`` without one
    :param frequency_cap: counts messages to recipients over all sends; ``None`` without one
    """

    min_write_batch = max_pending = 1
    in_line = True

    spec: SendSpec
    journal: Journal
    delivery: Delivery
    _: KW_ONLY
    suppressions: SuppressionList | None = None
    frequency_cap: FrequencyCap | None = None
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    suppressed: frozenset[str] = field(default=frozenset(), init=False)
    """The recipients that this try does not send to, because they are on the suppression list."""

    frequency_capped: frozenset[str] = field(default=frozenset(), init=False)
    """The recipients that this try does not send to, because they are at the frequency cap."""

    def __post_init__(self) -> None:
        operation = self.spec.operation
        self.log = self.journal.log
        self.log.check_operation(SEVERAL_OPERATIONS if self.journal.several else operation)
        self.body = self.log.hasher.body(self.spec.body)
        member_of = self.log.hasher.member_hasher(operation, channel_of(operation, self.spec.body))
        self.members = {recipient: member_of(recipient) for recipient in self.spec.recipients}
        self.has_requested = False
        self.recipient_mark: str | None = None
        """Stands for the recipient under every ``idempotency_key``, if the service knows requests by it."""
        if self.journal.several and self.spec.is_known_by_recipient:
            mark = self.log.hasher.member_hasher(operation.partition("/")[0])
            self.recipient_mark = mark(self.spec.recipients[0]).hex()

    @property
    def records(self) -> Sequence[RequestRecord]:
        """The requests of the send, in the order of their intents.

        If the task makes one send, these are all requests, also to recipients that are no longer on the list. If it
        makes several, these are the requests to the recipients of this one.
        """
        records = self.journal.records
        if not self.journal.several:
            return list(records)
        members = set(self.members.values())
        return [record for record in records if not members.isdisjoint(record.members)]

    @property
    def other_requests(self) -> list[RequestRecord]:
        """The requests that the task made to the same recipient under another ``idempotency_key``.

        Empty if the service knows requests by their references.
        """
        if self.recipient_mark is None:
            return []
        members = set(self.members.values())
        return [
            record
            for record in self.journal.records
            if self.recipient_mark in (record.probe_snapshot or ())
            and record.state not in _SENDABLE
            and members.isdisjoint(record.members)
        ]

    def outcome(self) -> SendOutcome:
        """Return the outcome so far."""
        outcome = SendOutcome.of(
            self.records,
            earlier=not self.has_requested,
            not_allowed=self.spec.not_allowed,
            suppressed=len(self.suppressed),
            capped=len(self.frequency_capped),
        )
        decisive = [record for record in self.latest().values() if record is not None]
        if not decisive:
            return outcome
        latest = max(decisive, key=attrgetter("number"))
        return replace(outcome, latest=latest, is_of_this_content=latest.body == self.body)

    def latest(self) -> dict[str, RequestRecord | None]:
        """Return the request that decides the status of each recipient; ``None`` if the recipient has none."""
        latest = latest_by_member(self.records)
        return {recipient: latest.get(member) for recipient, member in self.members.items()}

    @property
    def by_member(self) -> dict[bytes, str]:
        """The recipients by their hashes in the journal."""
        return {member: recipient for recipient, member in self.members.items()}

    # What the engine needs.

    async def record_head(self, writer: JournalWriter) -> None:
        """Store an unknown request to the recipients that have none, if the journal of earlier tries is lost."""
        if self.frequency_cap is not None:
            # It counts messages under the name of the send before their intent is stored.
            await writer.record_head()
        unrecorded = [self.members[recipient] for recipient, record in self.latest().items() if record is None]
        if self.lost is None or not unrecorded:
            return
        intent = self.log.new_intent(unrecorded, operation=self.spec.operation)
        result = Result(intent.number, State.UNKNOWN, reason=self.lost)
        # First, so that they count as unknown also in the report of a try that cannot store this.
        self.journal.add(intent, self.spec.operation, None, None)
        self.journal.end(result)
        await writer.record_lost(intent, result)

    def has_remaining(self) -> bool:
        """Return whether recipients are left to send to, and log what earlier tries did.

        :raises CpaasRejectedError: when the service rejected the same request in an earlier try
        """
        latest = self.latest()
        remaining = self.remaining(latest)
        accepted = [entry for entry in latest.values() if entry and entry.state is State.ACCEPTED]
        self._warn_of_changes(latest, accepted, len(remaining))
        if not remaining and accepted and not self.unresolved():
            log.info("Earlier tries made every request. Nothing is sent again.")
        if not remaining:
            return False
        self._refuse_rejected(remaining)
        if accepted:
            log.info("An earlier try sent to some of %d recipients. %d are left.", len(latest), len(remaining))
        return True

    @contextlib.asynccontextmanager
    async def open_queue(
        self, client: Client, stop: StopSignal, *, is_resend: bool = False
    ) -> AsyncIterator[SingleSendQueue | None]:
        """Open the queue with the request to the remaining recipients; ``None`` if the guards permit none.

        :param is_resend: to send to recipients of unknown outcome instead, again
        """
        recipients = self._unknown_recipients() if is_resend else tuple(self.remaining(self.latest()))
        recipients = await self._below_cap(await self._not_suppressed(recipients, stop), stop)
        if is_resend and recipients:
            log.warning(
                "on_unknown is 'resend': sending a request of unknown outcome again. Recipients: %d.", len(recipients)
            )
        try:
            if not recipients:
                yield None
                return
            spec = await stop.finish(self.spec.prepared(client), client)
            snapshots = [await stop.finish(probe.snapshot(client), client) for probe in spec.probes]
            if self.recipient_mark is not None:
                snapshots.append(self.recipient_mark)
            yield SingleSendQueue(self, spec, recipients, snapshots or None)
        finally:
            await self._release_unsent(recipients)

    async def _below_cap(self, recipients: tuple[str, ...], stop: StopSignal) -> tuple[str, ...]:
        if self.frequency_cap is None or not recipients:
            return recipients
        try:
            capped = await stop.finish(in_thread(partial(self.frequency_cap.reserve, recipients)))
        except BaseException:
            # Some of them may be counted.
            await self._release_unsent(recipients)
            raise
        if capped:
            self.frequency_capped |= frozenset(capped)
            log.warning("Not sent to %d of %d recipients, by the frequency cap.", len(capped), len(recipients))
        return tuple(recipient for recipient in recipients if recipient not in capped)

    async def _release_unsent(self, recipients: Sequence[str]) -> None:
        """Uncount messages that were certainly not sent from the frequency cap."""
        if self.frequency_cap is None or not recipients:
            return
        latest = self.latest()
        unsent = self.remaining({recipient: latest[recipient] for recipient in recipients})
        try:
            if unsent:
                await in_thread(partial(self.frequency_cap.release, unsent))
        except Exception as error:  # noqa: BLE001 - a failed release must not hide how the send ended
            log.warning(
                "Messages to %s were not sent, and still count for the frequency cap (%s).",
                counted(len(unsent), "recipient"),
                type(error).__name__,
            )

    async def _not_suppressed(self, recipients: tuple[str, ...], stop: StopSignal) -> tuple[str, ...]:
        if self.suppressions is None or not recipients:
            return recipients
        suppressed = await stop.finish(in_thread(partial(self.suppressions.find, recipients)))
        if suppressed:
            self.suppressed |= suppressed.keys()
            counts = sorted(Counter(suppressed.values()).items())
            log.warning(
                "Not sent to %d of %d recipients, because they are on the suppression list (%s).",
                len(suppressed),
                len(recipients),
                ", ".join(f"{number} {reason}" for reason, number in counts),
            )
        return tuple(recipient for recipient in recipients if recipient not in suppressed)

    def remaining(self, latest: Mapping[str, RequestRecord | None]) -> list[str]:
        """Return the recipients to send to: no request to them is accepted or unresolved."""
        return [recipient for recipient, entry in latest.items() if entry is None or entry.state in _SENDABLE]

    def _refuse_rejected(self, recipients: Sequence[str]) -> None:
        """Raise if the service rejected the same request in an earlier try."""
        members = [self.members[recipient] for recipient in recipients]
        reference = self.log.reference(members, self.spec.operation)
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
    def requests(self) -> SendRequests:
        """The part that the resolver reads and changes: this object."""
        return self

    def values_hashes(self, members: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """Return the hashes of the placeholder values that this try sends, by recipient."""
        hasher, personal, wanted = self.log.hasher, self.spec.personal, set(members)
        return {
            member: hasher.personalisation_hash(personal.get(recipient)) if personal else b""
            for recipient, member in self.members.items()
            if member in wanted
        }

    def accepted_ids(self) -> Mapping[str, set[str | None]]:
        """Return the service's ids of accepted requests, by reference.

        Without a reference, what a probe finds may be of any request of the task, under any ``idempotency_key``. If a
        later one to the same recipient is of unknown outcome, too, it proves nothing: ``None`` is among the ids.
        """
        ids = super().accepted_ids()
        if self.spec.carries_reference:
            return ids
        results = (record.result or {} for record in self.journal.records if record.state is State.ACCEPTED)
        known = {str(result["id"]) for result in results if result.get("id") is not None}
        last = max((record.number for record in self.other_requests if record.is_unresolved), default=-1)
        return {
            request.reference: ids.get(request.reference, set()) | known | ({None} if last > request.number else set())
            for request in self.unresolved()
        }

    def confirm(self, accepted: Mapping[int, dict[str, Any]]) -> Sequence[Result]:
        """Record the requests that a probe established to be accepted."""
        return [self.journal.end(Result(number, State.ACCEPTED, extra=result)) for number, result in accepted.items()]

    def refute(self, request: RequestRecord, error: RefutedError) -> Result | None:
        """Record that a request was not accepted. It stays unknown if it is not the only one of its reference.

        A request that is repeated after a clear has the same reference, and evidence of the first one may come late.
        """
        if any(record.reference == request.reference and record.number != request.number for record in self.records):
            return None
        return self.journal.end(Result(request.number, State.REJECTED, reason=str(error)))

    def interrupted(self) -> Sequence[Result]:
        """Return the results (unknown) for requests of earlier tries that have none in the journal."""
        return self.journal.interrupted

    def end_resends(self, unknown: str, advice: str) -> None:
        """Raise if a recipient on the list is still of unknown outcome."""
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

    def _unknown_recipients(self) -> tuple[str, ...]:
        return tuple(recipient for recipient, entry in self.latest().items() if entry and entry.is_unresolved)


class SingleRequest(Struct, frozen=True):
    """The one request of a single send."""

    intent: Intent
    call: Call[Any]
    at: datetime


@dataclass(eq=False, repr=False)
class SingleSendQueue:
    """A queue with one request.

    :param recipients: the recipients of the request; ``None`` once it is taken
    :param snapshots: the snapshots of the probes; ``None`` without probes
    """

    state: SingleSendState
    spec: SendSpec
    recipients: tuple[str, ...] | None
    snapshots: Any = None

    def __post_init__(self) -> None:
        self.operation = self.spec.operation

    async def next(self, pending: int) -> tuple[str, ...] | None:
        """Return the recipients at the first call, then ``None``."""
        recipients, self.recipients = self.recipients, None
        return recipients

    def begin(self, batch: tuple[str, ...]) -> SingleRequest:
        """Return the request.

        :raises JournalTooLargeError: when the journal has no room for its intent
        """
        state, spec = self.state, self.spec
        hasher, tries = state.log.hasher, state.log.tries
        members = [state.members[recipient] for recipient in batch]
        values_hashes = b""
        if personal := spec.personal:
            values_hashes = b"".join(hasher.personalisation_hash(personal.get(recipient)) for recipient in batch)
        intent = state.log.new_intent(members, values_hashes, self.snapshots, operation=spec.operation)
        if any(record.is_unresolved for record in state.records if record.reference == intent.reference):
            # A duplicate may be of the same purchase under another key, too.
            is_alone = all(other.body != state.body for other in state.other_requests)
            intent = replace(intent, previous_unknown=is_alone)
        at = state.clock()
        size = size_of(LogEntry(at, tries.number, tries.clear_epoch, state.body, [intent]).as_text())
        if size > MAX_BYTES:
            raise JournalTooLargeError(
                f"A request to {len(intent)} recipients takes {size} bytes of the journal of this task, and the "
                f"task state store holds {MAX_BYTES}. Nothing was sent in this try. Name fewer recipients in one task, "
                "or use SmsCampaignOperator or EmailCampaignOperator."
            )
        url = state.delivery.callback_url(intent.reference, len(batch))
        return SingleRequest(intent, spec.build_call(batch, intent.reference, url), at)

    def on_request_sent(self, request: SingleRequest) -> None:
        """Record that the intent is stored and the request leaves."""
        self.state.has_requested = True
        self.state.journal.add(request.intent, self.operation, request.at, self.state.body)

    def withdraw(self, request: SingleRequest) -> None:
        """Do nothing, because a request is added only once its intent is stored."""

    def read(self, request: SingleRequest, response: Any) -> RequestResult:
        """Return the result that a response states."""
        return self.spec.read_result(response, repeated=request.intent.previous_unknown)

    def accept(self, request: SingleRequest, result: RequestResult) -> Ended:
        """Record that the service accepted the request, for all of its recipients or for some."""
        number, details = request.intent.number, dict(result.details or {})
        reason = result.rejection
        named = sum(recipient_key(recipient) in result.rejected for recipient in self.spec.recipients)
        if reason and not named:
            log.warning("The service names no rejected recipient, so all count as accepted. %s", reason)
        if not reason or not named:
            return Ended(self.state.journal.end(Result(number, State.ACCEPTED, extra=details)))
        error = PartlyRejectedError(
            f"{reason} The service accepted {len(request.intent) - named} of {len(request.intent)} "
            f"recipients as message {result.id}. They are not sent to again. Correct or remove the rejected "
            "recipients, and clear the task. It sends to the rejected recipients only."
        )
        intent = self._rejected_intent(request, result.rejected)
        journal, rejection = self.state.journal, Result(intent.number, State.REJECTED, reason=reason)
        if intent is request.intent:
            return Ended(journal.end(rejection), error=error)
        journal.add(intent, self.operation, request.at, self.state.body)
        journal.end(rejection)
        accepted = journal.end(Result(number, State.ACCEPTED, extra=details, left_out=intent.members))
        return Ended(accepted, [(intent, rejection)], error)

    def fail(self, request: SingleRequest, error: CpaasError) -> Ended:
        """Record a failure, which ends the send unless it leaves the outcome unknown."""
        number, reason = request.intent.number, str(error)
        if error.maybe_sent:
            log.warning("%s The outcome of request %s is unknown.", error, request.intent.reference)
            return Ended(self.state.journal.end(Result(number, State.UNKNOWN, reason=reason)))
        state = State.REJECTED if isinstance(error, CpaasRejectedError) else State.NOT_SENT
        return Ended(self.state.journal.end(Result(number, state, reason=reason)), error=error)

    def end(self, request: SingleRequest, state: State, reason: str) -> Ended:
        """Record that the request did not leave, or that its outcome is unknown."""
        self.on_request_sent(request)
        return Ended(self.state.journal.end(Result(request.intent.number, state, reason=reason)))

    def _rejected_intent(self, request: SingleRequest, rejected: frozenset[str]) -> Intent:
        """Return the intent that records the rejected recipients: that of the request if all of them were rejected."""
        state = self.state
        named = {state.members[recipient] for recipient in self.spec.recipients if recipient_key(recipient) in rejected}
        pairs = [(member, values_hash) for member, values_hash in request.intent.each() if member in named]
        if len(pairs) == len(request.intent):
            return request.intent
        members = [member for member, _ in pairs]
        values_hashes = b"".join(values_hash for _, values_hash in pairs)
        return state.log.new_intent(members, values_hashes, operation=self.operation)
