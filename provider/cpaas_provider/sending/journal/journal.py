"""The journal of a single send: its requests in memory, and each step of them in the log before the next one.

It lives in the task's own state (``context["task_state_store"]``), which outlives tries and killed workers. It holds
hashes, ids and counts, never a number, an address or a text.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from cpaas_provider.sending.errors import JournalTooLargeError, JournalUnavailableError, TrySupersededError
from cpaas_provider.sending.hashing import KeyedHasher
from cpaas_provider.sending.journal.log import MAX_BYTES, JournalLog
from cpaas_provider.sending.journal.model import (
    BROKE_OFF,
    Intent,
    LogEntry,
    RequestRecord,
    Result,
    State,
    by_reference,
    latest_by_member,
    replay,
    size_of,
    unresolved,
)
from cpaas_provider.sending.journal.store import StateStore, TryInfo

log = logging.getLogger(__name__)

_WRITE_ATTEMPTS = 3
_LONGEST_PAUSE = 5.0


class Journal:
    """One task instance's journal, opened by one of its tries.

    :param store: where it is kept
    :param secrets: what its hashes may be keyed with; the first is used for a new journal, any opens an old one
    :param identity: whose it is, see ``task_identity``
    :param tries: what Airflow says of this try
    :param resend_on_clear: after a clear, begin anew and send to everybody again
    :raises JournalUnavailableError: when it cannot be read
    """

    log_type: type[JournalLog] = JournalLog

    def __init__(
        self,
        store: StateStore,
        secrets: Sequence[str],
        identity: Sequence[str | int],
        tries: TryInfo,
        *,
        resend_on_clear: bool = False,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._log = self.log_type(store, secrets, identity, None, tries, resend_on_clear=resend_on_clear)
        self._clock = clock
        self._records: dict[int, RequestRecord] = {}
        for entry in self._log.replay():
            replay(entry, self._log.operation or "", self._records, tries.clear_epoch)
        self._next_number = max(self._log.first_number, *(number + 1 for number in self._records), 0)
        self._unstored: dict[int, Result] = {}
        """Results that could not be stored, or need not be by themselves; the next write has them."""
        self._broken_off = [
            Result(record.number, State.UNKNOWN, reason=BROKE_OFF)
            for record in self._records.values()
            if record.state is State.PENDING
        ]
        for result in self._broken_off:
            self._records[result.number] = self._records[result.number].ended(result)

    @property
    def hasher(self) -> KeyedHasher:
        """The keyed hashes of its recipients and texts."""
        return self._log.hasher

    @property
    def lost(self) -> str | None:
        """Why nobody can tell what earlier tries sent to recipients without a request, where that is so."""
        return self._log.lost

    @property
    def records(self) -> Iterable[RequestRecord]:
        """All requests, in the order in which they were made."""
        return self._records.values()

    def unresolved(self) -> list[RequestRecord]:
        """Return the requests somebody is in doubt by, one for each reference: the newest.

        What the service says of a reference may be about any of its requests.
        """
        found = []
        for record in by_reference(unresolved(self.records)):
            others = [one for one in self.records if one.reference == record.reference and one.number != record.number]
            unknown = record.previous_unknown or any(one.in_doubt for one in others)
            intent = dataclasses.replace(record.intent, previous_unknown=unknown)
            found.append(dataclasses.replace(record, intent=intent))
        return found

    def latest(self, operation: str, recipients: Iterable[str]) -> dict[str, RequestRecord | None]:
        """Return the request that decides about each recipient; ``None`` where there is none."""
        self._log.check_operation(operation)
        found = latest_by_member(self.records)
        return {one: found.get(self.hasher.member(operation, one)) for one in recipients}

    def reference(self, operation: str, recipients: Iterable[str]) -> str:
        """Return the name of a request to these recipients."""
        return self._reference(operation, [self.hasher.member(operation, one) for one in recipients])

    def begin(
        self,
        operation: str,
        recipients: Sequence[str],
        body: Mapping[str, Any],
        personal: Mapping[str, Any] | None = None,
        probe_snapshot: Any = None,
    ) -> RequestRecord:
        """Store the intent of a request; when this returns, it may leave.

        :param personal: what the request says to each recipient alone
        :param probe_snapshot: small JSON to know its outcome by
        :raises JournalUnavailableError: when that could not be stored; the request must not leave
        :raises JournalTooLargeError: when there is no room for it
        :raises TrySupersededError: when another try has taken this one's place
        """
        self._log.check_operation(operation)
        intent = self._intent(
            operation,
            [self.hasher.member(operation, one) for one in recipients],
            b"".join(self.hasher.personalisation_hash(personal.get(one)) for one in recipients) if personal else b"",
            probe_snapshot,
        )
        entry = self._entry(self.hasher.body(body), [intent], list(self._unstored.values()))
        if (size := size_of(entry.as_text())) > MAX_BYTES:
            raise JournalTooLargeError(
                f"A request to {len(recipients)} recipients takes {size} bytes of the journal of this task, and the "
                f"task state store holds {MAX_BYTES}. Nothing was sent in this try. Name fewer recipients in one task, "
                "or use SmsCampaignOperator or EmailCampaignOperator."
            )
        self._log.append(entry, "stored, so nothing was sent")
        self._unstored.clear()
        record = RequestRecord(intent, operation, entry.at, entry.try_number, entry.body)
        self._records[intent.number] = record
        return record

    def end(
        self,
        record: RequestRecord,
        state: State,
        *,
        result: dict[str, Any] | None = None,
        reason: str | None = None,
    ) -> None:
        """Store what became of a request.

        What cannot be stored is logged: the next try finds the request unknown, which is safe.

        :raises TrySupersededError: when another try has taken this one's place
        """
        self._store([], [Result(record.number, state, reason=reason, extra=result)], record)

    def end_in_part(
        self,
        record: RequestRecord,
        rejected: Sequence[str],
        *,
        result: dict[str, Any] | None = None,
        reason: str | None = None,
    ) -> None:
        """Store that a request was accepted for all but some, who have a request of their own from then on.

        :param rejected: the recipients it was not accepted for
        :raises TrySupersededError: when another try has taken this one's place
        """
        named = {self.hasher.member(record.operation, one) for one in rejected}
        apart = [(member, words) for member, words in record.intent.each() if member in named]
        if len(apart) == len(record.intent):
            self.end(record, State.REJECTED, reason=reason)
            return
        members = [member for member, _ in apart]
        intent = self._intent(record.operation, members, b"".join(words for _, words in apart))
        accepted = Result(record.number, State.ACCEPTED, extra=result, left_out=b"".join(members))
        self._store([intent], [accepted, Result(intent.number, State.REJECTED, reason=reason)], record)

    def record_unknown(self) -> None:
        """Store that what an earlier try had begun is unknown now, for whoever looks; a next try knows it anyhow."""
        results = [*self._unstored.values(), *self._broken_off]
        if not results:
            return
        try:
            self._log.append(self._entry(None, [], results))
        except (JournalUnavailableError, TrySupersededError) as error:
            log.warning("The journal could not be updated: %s", error)
            return
        self._unstored.clear()
        self._broken_off.clear()

    def record_loss(self, operation: str, recipients: Sequence[str]) -> None:
        """Store that nobody can tell whether an earlier try sent to those recipients that have no request."""
        strangers = [one for one, record in self.latest(operation, recipients).items() if record is None]
        if self.lost is None or not strangers:
            return
        intent = self._intent(operation, [self.hasher.member(operation, one) for one in strangers])
        self._store([intent], [Result(intent.number, State.UNKNOWN, reason=self.lost)])

    def _store(self, intents: Sequence[Intent], results: Sequence[Result], record: RequestRecord | None = None) -> None:
        """Bring results into the records, and write them, with the intents that are recorded beside them.

        :param record: the request they are about; ``None`` where nobody knows what it said
        """
        entry = self._entry(record.body if record else None, intents, [*self._unstored.values(), *results])
        replay(entry, self._log.operation or "", self._records)
        made = record or self._records[results[0].number]
        try:
            Retrying(
                retry=retry_if_exception_type(JournalUnavailableError),
                stop=stop_after_attempt(_WRITE_ATTEMPTS),
                wait=wait_random_exponential(max=_LONGEST_PAUSE),
                reraise=True,
            )(self._log.append, entry, f"stored. Request {made.reference} was made")
        except JournalUnavailableError as error:
            self._unstored.update((result.number, result) for result in results)
            log.warning(
                "The outcome of request %s (%s) could not be stored (%s). If the task is retried, this request is "
                "treated as unknown.",
                made.reference,
                results[0].state.value,
                type(error.__context__).__name__,
            )
        else:
            self._unstored.clear()

    def _intent(
        self, operation: str, members: Sequence[bytes], words: bytes = b"", probe_snapshot: Any = None
    ) -> Intent:
        reference = self._reference(operation, members)
        unknown = any(one.in_doubt for one in self.records if one.reference == reference)
        number, self._next_number = self._next_number, self._next_number + 1
        return Intent(number, reference, b"".join(members), words, probe_snapshot, unknown)

    def _reference(self, operation: str, members: Iterable[bytes]) -> str:
        return self.hasher.batch_reference(operation, members, self._log.resend_epoch)

    def _entry(self, body: str | None, intents: Sequence[Intent], results: Sequence[Result]) -> LogEntry:
        tries = self._log.tries
        return LogEntry(self._clock(), tries.number, tries.clear_epoch, body, intents, results)
