"""The log that every journal is: intents and results of requests, in segments of a state store.

What is new is added to the last segment, and what was written is not touched again (see ``segments``), for one request
as for a million. It holds hashes, ids and counts, never a number, an address or a text.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from cpaas_provider.sending.errors import JournalUnavailableError, PartitionChangedError
from cpaas_provider.sending.hashing import KeyedHasher
from cpaas_provider.sending.journal.model import (
    NOTHING_SENT_KEY,
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
"""Bytes from which on a segment is not added to: its last write sends all of it."""

REQUESTS_PER_TRY = 10_000_000
"""Requests a try may make: each has numbers of its own, also where nothing of an earlier one was stored."""

MAX_BYTES = 60_000
"""Bytes a segment may have; MySQL holds no more than 64 KB in one value of the state."""

MAX_RECIPIENTS_PER_INTENT = 2_500
"""Recipients of one request at most, so that a segment holds its intent."""


class JournalLog:
    """A journal's log, opened by one try; ``replay`` must be gone through before anything is added.

    :param store: where it is kept
    :param secrets: what its hashes may be keyed with; the first is used for a new journal, any opens an old one
    :param identity: whose it is, see ``task_identity`` and ``campaign_identity``
    :param operation: what its requests are; ``None`` where that is told later, see ``check_operation``
    :param tries: what Airflow says of this try
    :param partition: which part of the campaign this is
    :param resend_on_clear: after a clear, send to all recipients again
    :raises JournalUnavailableError: when it cannot be read
    :raises PartitionChangedError: when it was begun as another part, or one of another number of parts
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
        # In a database, nothing is carried out late, and many task instances write one log.
        self._shared = bool(tries.run)
        self._series = 0 if self._shared else max(0, tries.number - 1)
        keys = [KeyedHasher(secret, identity) for secret in secrets]
        self._newest, head = self._head()
        self.hasher = next((key for key in keys if head and key.key_id == head.key_id), keys[0])
        self._index, self._parts = self._series * SERIES, 0
        self._unsure: str | None = None
        self._garbage: deque[str] = deque()
        self._last = Segment(self.hasher.key_id, operation, partition=(partition.part, partition.of))
        self._earlier = 0
        if head is None:
            self._last.lost = LOST if tries.after_clear and self._get(NOTHING_SENT_KEY) is None else None
            begin_anew = bool(self._last.lost) and tries.max_tries > tries.retries
        elif head.key_id != self.hasher.key_id:
            self._last.operation = head.operation
            self._last.lost = REKEYED if self._may_have_sent(head) else None
            # Should the secret be changed back, what was written before it would be taken for its own.
            self._last.resend_epoch = head.resend_epoch + 1
            begin_anew = head.clear_epoch != tries.clear_epoch
        else:
            self._last = head.following()
            self._earlier = self._newest + 1
            # A clear sets max_tries anew; the newest series knows what it was when it was written.
            begin_anew = resend_on_clear and head.clear_epoch != tries.clear_epoch
        if resend_on_clear and begin_anew:
            self._earlier = 0
            # Different after each clear, also where nothing of the last edition was kept.
            resend_epoch = max(head.resend_epoch if head else 0, tries.max_tries + tries.clear_number) + 1
            kind = head.operation if head else operation
            self._last = Segment(self.hasher.key_id, kind, resend_epoch, partition=(partition.part, partition.of))
        elif head is not None and tuple(head.partition) != (partition.part, partition.of):
            raise PartitionChangedError(
                f"An earlier try of this task instance was {_words(*head.partition)}, and this one is "
                f"{_words(partition.part, partition.of)}. Each partition records only its own recipients, so some "
                "recipients would be sent to twice. Nothing was sent in this try. Map the operator over "
                f"partitions({head.partition[1]}) again, or start a new run.",
                begun=head.partition[1],
            )
        if operation is not None:
            self.check_operation(operation)

    def check_operation(self, operation: str) -> None:
        """Raise where the journal is that of another operation.

        :raises JournalUnavailableError: when it is
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
        """What its requests are, ``None`` before that is told."""
        return self._last.operation

    @property
    def lost(self) -> str | None:
        """Why it is unknown what earlier tries sent to recipients without an intent, where that is so."""
        return self._last.lost

    @property
    def resend_epoch(self) -> int:
        """Which deliberate repetition of the whole send this is."""
        return self._last.resend_epoch

    @property
    def begun(self) -> bool:
        """Whether earlier tries stored anything of it."""
        return self._earlier > 0

    @property
    def first_number(self) -> int:
        """The number from which on this try numbers its requests, unless earlier ones came further."""
        return self._series * REQUESTS_PER_TRY

    def replay(self) -> Iterator[LogEntry]:
        """Yield what earlier tries stored, in order."""
        # Of its own series the end is looked for in any case: a task that was deferred goes on behind it.
        for series in range(self._newest + 1 if self._newest == self._series else self._earlier):
            for stored in read_series(self._get, series):
                segment = _read(Segment.from_json, stored.value)
                if self._earlier and segment.continues(self._last):
                    yield from (_read(LogEntry.from_text, batch) for batch in segment.batches)
                if series == self._series:
                    self._go_on_behind(stored, segment)

    @property
    def room(self) -> int:
        """Bytes the next write may add."""
        return MAX_BYTES - self._last.size

    def append(self, batch: LogEntry, what: str = "stored") -> None:
        """Store a batch for good, before returning.

        :param what: what the journal could not be, for the message of an error
        :raises JournalUnavailableError: when that could not be done
        :raises TrySupersededError: when another try has taken this one's place
        """
        added = batch.as_text()
        bytes_added = size_of(added)
        too_large = self._last.size + bytes_added > MAX_BYTES
        if self._unsure not in (None, added):
            # What failed may yet be carried out, and must not take the place of anything.
            self._leave_segment(what)
        elif too_large and self._parts:
            self._begin_segment()
        self._unsure = added
        segment, size = self._last, self._last.size + bytes_added
        full = size >= ROLL_BYTES or self._parts + 1 >= MOST_PARTS
        if full and self._parts:
            self._write(whole_key(self._index), [*segment.batches, added], what)
            self._garbage.extend(superseded(self._index, self._parts))
        else:
            self._write(part_key(self._index, self._parts), [added], what)
        self._unsure = None
        segment.batches.append(added)
        segment.size, self._parts = size, self._parts + 1
        if full:
            self._begin_segment()

    def tidy(self, most: int) -> None:
        """Remove keys that are not read any more, at most so many; one that stays does no harm."""
        for _ in range(min(most, len(self._garbage))):
            with contextlib.suppress(Exception):
                self._store.delete(self._garbage.popleft())

    def record_loss(self) -> None:
        """Store that what earlier tries sent is lost, before anything else is."""
        if self._last.lost and not self._earlier and not self._parts:
            self._write(part_key(self._index, 0), [], "stored, so nothing was sent")
            self._parts = 1

    def _leave_segment(self, what: str) -> None:
        """Go on behind a segment whose last write failed.

        A reader of the log goes on behind few that are missing, so one that holds nothing is stored as that.
        """
        if not self._parts:
            self._write(part_key(self._index, 0), [], what)
            self._unsure = None
        self._begin_segment()

    def _begin_segment(self) -> None:
        self._index, self._parts, self._last = self._index + 1, 0, self._last.following()

    def _go_on_behind(self, stored: Stored, segment: Segment) -> None:
        """Have what is added stand behind a segment that is there."""
        if self._shared and stored.parts is not None:
            self._index, self._parts, self._last = stored.index, stored.parts, segment
        elif self._shared:
            self._index, self._parts, self._last = stored.index + 1, 0, segment.following()
        else:
            self._index = next_index(stored.index)

    def _write(self, key: str, batches: list[str], what: str) -> None:
        self._last.clear_epoch = self.tries.clear_epoch
        value = dataclasses.replace(self._last, batches=batches).as_json()
        try:
            self._store.set(key, value)
        except Exception as error:  # noqa: BLE001 - Airflow raises several kinds, and none may let a request leave
            raise storage_error(error, what) from None

    def _head(self) -> tuple[int, Segment | None]:
        """Return the newest series there is, and what its first part says of it."""
        found = newest_series(self._get, self._series + 1)
        if found is None:
            return -1, None
        return found[0], _read(Segment.from_json, found[1])

    def _may_have_sent(self, head: Segment) -> bool:
        """Tell whether a log that another secret keyed has a request that may have been accepted."""
        records: dict[int, RequestRecord] = {}
        for series in range(self._newest + 1):
            for stored in read_series(self._get, series):
                segment = _read(Segment.from_json, stored.value)
                if segment.continues(head):
                    for batch in segment.batches:
                        replay(_read(LogEntry.from_text, batch), "", records)
        states = {record.state for record in records.values()}
        return bool(head.lost or states - {State.NOT_SENT, State.REJECTED})

    def _get(self, key: str) -> Any:
        try:
            return self._store.get(key)
        except Exception as error:  # noqa: BLE001 - Airflow raises several kinds, and none may let a request leave
            raise storage_error(error, "read, so nothing was sent") from None


def _words(part: int, count: int) -> str:
    return f"partition {part} of {count}"


def _read(form: Callable[[Any], T], stored: Any) -> T:
    try:
        return form(stored)
    except ValueError as error:
        raise JournalUnavailableError(
            f"The task state store holds a journal that this version of the provider cannot use: {error}. Nothing was "
            "sent. Install the version that wrote it, or start a new run."
        ) from None
