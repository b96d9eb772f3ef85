"""The log of a journal: intents and results of requests, in segments of a state store.

A write adds to the last segment, and nothing that was written is changed (see ``segments``). So a write costs the same
after one request as after a million. The log holds hashes, ids and counts, never a number, an address or a text.
"""

from __future__ import annotations

import contextlib
import secrets as random_names
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from cpaas_provider.sending.errors import JournalUnavailableError, PartitionChangedError
from cpaas_provider.sending.journal.hashing import KeyedHasher
from cpaas_provider.sending.journal.model import (
    NOTHING_SENT_KEY,
    Intent,
    LogEntry,
    RequestRecord,
    Segment,
    State,
    replay,
    size_of,
)
from cpaas_provider.sending.journal.segments import (
    MOST_PARTS,
    SERIES,
    Stored,
    newest_series,
    next_index,
    part_key,
    read_series,
    superseded,
    whole_key,
)
from cpaas_provider.sending.journal.store import LOST, REKEYED, StateStore, TryInfo, storage_error
from cpaas_provider.sending.partitions import Partition

T = TypeVar("T")

ROLL_BYTES = 32_000
"""The size in bytes at which a segment is full. The write that fills it stores all of its parts together.

A first write of half that size is stored as a whole segment: to store it again with the next one would cost more than
another key.
"""

REQUESTS_PER_TRY = 10_000_000
"""The most requests of a try."""

MAX_BYTES = 60_000
"""The most bytes of a segment: MySQL stores at most 64 KB in one value of the task state."""

_NONCE_BYTES = 8
_NO_ENTRY = ""

MAX_RECIPIENTS_PER_INTENT = 2_500
"""The most recipients of a request, so that its intent fits into a segment."""

# All segments of a series have one key, so that its first part decides whether the series can be read.
_REKEYED_IN_THIS_TRY = (
    "Another secret began the journal of this try. Either the connection's secrets changed while the try was deferred, "
    "or the task used another connection before, and a task's journal belongs to one connection. Nothing was sent with "
    "this secret in this try. If it changed, list the earlier one in callback_secret, after the new one, before the "
    "next try. Without it, the next try may treat earlier sends as unknown."
)


class JournalLog:
    """The log of a journal, opened by one try. Exhaust ``replay`` before the first ``append``.

    :param store: stores the segments
    :param secrets: the connection's secrets. The first keys the hashes of a new journal. Any may have keyed an old one
    :param identity: the identity of the send, see ``task_identity`` and ``campaign_identity``
    :param operation: the operation of the requests; ``None`` to give it later to ``check_operation``
    :param tries: what Airflow states about this try
    :param partition: the partition of the campaign
    :param resend_on_clear: after a clear, send to all recipients again
    :raises JournalUnavailableError: when the log cannot be read, or other secrets began the series of this try
    :raises PartitionChangedError: when an earlier try had another partition
    """

    def __init__(
        self,
        store: StateStore,
        secrets: Sequence[str],
        identity: Sequence[str | int],
        operation: str | None,
        tries: TryInfo,
        *,
        partition: Partition = Partition(),  # noqa: B008 - it is frozen
        resend_on_clear: bool = False,
    ) -> None:
        self._store = store
        self.tries = tries
        # The log of a campaign with an idempotency key is in our database. Many task instances write it, and no late
        # write can appear in it.
        self._shared = bool(tries.run)
        self._series = 0 if self._shared else max(0, tries.number - 1)
        hashers = [KeyedHasher(secret, identity) for secret in secrets]
        self._newest, head = self._head()
        self.hasher = next((hasher for hasher in hashers if head and hasher.key_id == head.key_id), hashers[0])
        self._index, self._parts = self._series * SERIES, 0
        self._failed_entry: str | None = None
        self._has_written = False
        self._obsolete_keys: deque[str] = deque()
        # Each try has its own range of numbers, even if nothing of an earlier one is stored.
        self._next_number = self._series * REQUESTS_PER_TRY
        # With a nonce of its own, a run that is deleted and made again, or a cloned deployment, has other references.
        nonce = head.nonce if head else random_names.token_hex(_NONCE_BYTES)
        own_partition = partition.part, partition.of
        self._last = Segment(self.hasher.key_id, nonce, operation, partition=own_partition)
        self._readable_series = 0
        if head is None:
            self._last.lost = LOST if tries.after_clear and self._get(NOTHING_SENT_KEY) is None else None
            is_cleared = bool(self._last.lost) and tries.max_tries > tries.retries
        elif head.key_id != self.hasher.key_id:
            if self._newest == self._series:
                raise JournalUnavailableError(_REKEYED_IN_THIS_TRY)
            self._last.operation = head.operation
            self._last.lost = REKEYED if self._may_have_sent(head) else None
            # Another epoch, so that this log and that of the first secret stay apart if the secret is changed back.
            self._last.resend_epoch = head.resend_epoch + 1
            is_cleared = head.clear_epoch != tries.clear_epoch
        else:
            self._last = head.following()
            self._readable_series = self._newest + 1
            # A clear raises max_tries, and the head has the value of the try that wrote it.
            is_cleared = head.clear_epoch != tries.clear_epoch
        if resend_on_clear and is_cleared:
            self._readable_series = 0
            # Different after each clear, even if Airflow dropped the journal with the last epoch.
            resend_epoch = max(head.resend_epoch if head else 0, tries.max_tries + tries.clear_number) + 1
            kind = head.operation if head else operation
            self._last = Segment(self.hasher.key_id, nonce, kind, resend_epoch, partition=own_partition)
        elif head is not None and tuple(head.partition) != own_partition:
            raise PartitionChangedError(
                f"An earlier try of this task instance was {_describe(*head.partition)}, and this one is "
                f"{_describe(partition.part, partition.of)}. Each partition records only its own recipients, so some "
                "recipients would be sent to twice. Nothing was sent in this try. Map the operator over "
                f"partitions({head.partition[1]}) again, or start a new run.",
                begun=Partition(*head.partition),
            )
        if operation is not None:
            self.check_operation(operation)

    def check_operation(self, operation: str) -> None:
        """Raise if the journal has another operation. A new journal takes this one.

        :raises JournalUnavailableError: when it has
        """
        if self._last.operation is None:
            self._last.operation = operation
        elif self._last.operation != operation:
            raise JournalUnavailableError(
                "The task state store holds the journal of another kind of send: the task had another operator in an "
                "earlier try. Nothing was sent. Start a new run."
            )

    @property
    def operation(self) -> str | None:
        """The operation of the requests; ``None`` if it is not given yet."""
        return self._last.operation

    @property
    def lost(self) -> str | None:
        """Why requests of earlier tries may be missing, so that recipients without one are of unknown outcome."""
        return self._last.lost

    @property
    def resend_epoch(self) -> int:
        """Counts the clears after which all recipients are sent to again."""
        return self._last.resend_epoch

    def reference(self, members: Iterable[bytes] = (), operation: str | None = None) -> str:
        """Return the reference of a request to members; without members, the name of the send.

        No other run has it, and neither has this one after a lost journal.

        :param operation: the operation of the request; ``None`` for that of the journal
        """
        operation = operation or self.operation or ""
        return self.hasher.reference(operation, members, self._last.nonce, self._last.resend_epoch)

    def new_intent(
        self,
        members: Sequence[bytes],
        values_hashes: bytes = b"",
        probe_snapshot: Any = None,
        *,
        operation: str | None = None,
    ) -> Intent:
        """Return the intent of a new request, with the next number.

        :param operation: as for ``reference``
        """
        number, self._next_number = self._next_number, self._next_number + 1
        return Intent(number, self.reference(members, operation), b"".join(members), values_hashes, probe_snapshot)

    def earlier_requests(self) -> Iterator[RequestRecord]:
        """Yield the requests of earlier resend epochs, which ``replay`` leaves out."""
        records: dict[tuple[str, str | None, int], dict[int, RequestRecord]] = {}
        # The first epoch has none before it.
        for series in range(self._newest + 1 if self.resend_epoch else 0):
            for stored in read_series(self._get, series):
                segment = _read(Segment.from_json, stored.value)
                if not segment.continues(self._last):
                    of_log = records.setdefault((segment.key_id, segment.operation, segment.resend_epoch), {})
                    for text in segment.batches:
                        replay(_read(LogEntry.from_text, text), segment.operation or "", of_log)
        for of_log in records.values():
            yield from of_log.values()

    def replay(self) -> Iterator[LogEntry]:
        """Yield what earlier tries stored, in order, and find the end of the log.

        What was rejected before a clear or in another run counts as not sent.
        """
        # The own series is read even without readable entries: before a deferral this try may have written to it.
        for series in range(self._newest + 1 if self._newest == self._series else self._readable_series):
            for stored in read_series(self._get, series):
                segment = _read(Segment.from_json, stored.value)
                if self._readable_series and segment.continues(self._last):
                    for text in segment.batches:
                        entry = _read(LogEntry.from_text, text)
                        last = max((intent.number for intent in entry.intents), default=-1)
                        self._next_number = max(self._next_number, last + 1)
                        is_of_this_epoch = entry.clear_epoch == self.tries.clear_epoch
                        yield entry if is_of_this_epoch else entry.with_rejected_as_not_sent()
                if series == self._series:
                    self._continue_after(stored, segment)

    @property
    def room(self) -> int:
        """How many bytes the next write may add."""
        return MAX_BYTES - self._last.size

    def append(self, entry: LogEntry, what: str = "stored") -> None:
        """Store an entry. It is stored when this returns.

        :param what: completes "the journal could not be" in the message of an error
        :raises JournalUnavailableError: when it could not be stored
        :raises TrySupersededError: when another try has replaced this one
        """
        added = entry.as_text()
        bytes_added = size_of(added)
        too_large = self._last.size + bytes_added > MAX_BYTES
        if self._failed_entry not in (None, added):
            # The failed write may still arrive, and must not replace another one.
            self._leave_segment(what)
        elif too_large and self._parts:
            self._begin_segment()
        self._failed_entry = added
        segment, size = self._last, self._last.size + bytes_added
        full = size >= ROLL_BYTES or self._parts + 1 >= MOST_PARTS or (not segment.batches and 2 * size >= ROLL_BYTES)
        # The first write is a part, which shows that the series exists. If it arrives late, it hides no other part.
        if full and (self._parts or self._has_written):
            self._write(whole_key(self._index), [*segment.batches, added], what)
            self._obsolete_keys.extend(superseded(self._index, self._parts))
        else:
            self._write(part_key(self._index, self._parts), [added], what)
        self._failed_entry = None
        segment.batches.append(added)
        segment.size, self._parts = size, self._parts + 1
        if full:
            self._begin_segment()

    def tidy(self, limit: int) -> None:
        """Remove keys that are no longer read, at most ``limit``. A key that stays does no harm."""
        for _ in range(min(limit, len(self._obsolete_keys))):
            with contextlib.suppress(Exception):
                self._store.delete(self._obsolete_keys.popleft())

    @property
    def write_failed(self) -> bool:
        """Whether the last write failed, so that it may still be carried out."""
        return self._failed_entry is not None

    @property
    def is_new(self) -> bool:
        """Whether no try has stored anything of it."""
        return self._newest < 0

    @property
    def has_head(self) -> bool:
        """Whether its head is stored, so that the next try has the same name for the send."""
        return bool(self._readable_series) or self._has_written

    def record_head(self) -> None:
        """Store the head of a new journal before its first entry: the nonce, and whether an earlier journal is lost.

        Call it before the name of the send is stored anywhere else. Otherwise the next try may draw another nonce.

        :raises JournalUnavailableError: when it could not be stored
        :raises TrySupersededError: when another try has replaced this one
        """
        if self.has_head:
            return
        # If this fails, it may still arrive, and must not replace an entry.
        self._failed_entry = _NO_ENTRY
        self._write(part_key(self._index, 0), [], "stored, so nothing was sent")
        self._failed_entry, self._parts = None, 1

    def _leave_segment(self, what: str) -> None:
        """Begin another segment, because the last write to this one failed.

        A segment without parts is stored as empty: a reader stops after a few missing segments.
        """
        if not self._parts:
            self._write(part_key(self._index, 0), [], what)
            self._failed_entry = None
        self._begin_segment()

    def _begin_segment(self) -> None:
        self._index, self._parts, self._last = self._index + 1, 0, self._last.following()

    def _continue_after(self, stored: Stored, segment: Segment) -> None:
        """Set the position of the next write after a segment that is stored."""
        if self._shared and stored.parts is not None:
            self._index, self._parts, self._last = stored.index, stored.parts, segment
        elif self._shared:
            self._index, self._parts, self._last = stored.index + 1, 0, segment.following()
        else:
            self._index = next_index(stored.index)

    def _write(self, key: str, batches: list[str], what: str) -> None:
        self._last.clear_epoch = self.tries.clear_epoch
        value = replace(self._last, batches=batches).as_json()
        try:
            self._store.set(key, value)
        except Exception as error:  # noqa: BLE001 - Airflow raises many types, and after none may a request leave
            raise storage_error(error, what) from None
        self._has_written = True

    def _head(self) -> tuple[int, Segment | None]:
        """Return the number and the head of the newest series; -1 and ``None`` if there is none."""
        newest = newest_series(self._get, self._series + 1)
        if newest is None:
            return -1, None
        series, first_part = newest
        return series, _read(Segment.from_json, first_part)

    def _may_have_sent(self, head: Segment) -> bool:
        """Return whether a log with the hashes of another secret has a request that may have been accepted."""
        records: dict[int, RequestRecord] = {}
        for series in range(self._newest + 1):
            for stored in read_series(self._get, series):
                segment = _read(Segment.from_json, stored.value)
                if segment.continues(head):
                    for text in segment.batches:
                        replay(_read(LogEntry.from_text, text), "", records)
        states = {record.state for record in records.values()}
        return bool(head.lost or states - {State.NOT_SENT, State.REJECTED})

    def _get(self, key: str) -> Any:
        try:
            return self._store.get(key)
        except Exception as error:  # noqa: BLE001 - Airflow raises many types, and after none may a request leave
            raise storage_error(error, "read, so nothing was sent") from None


def _describe(part: int, count: int) -> str:
    return f"partition {part} of {count}"


def _read(parse: Callable[[Any], T], stored: Any) -> T:
    try:
        return parse(stored)
    except ValueError as error:
        raise JournalUnavailableError(
            f"The task state store holds a journal that this version of the provider cannot use: {error}. Nothing was "
            "sent. Install the version that wrote it, or start a new run."
        ) from None
