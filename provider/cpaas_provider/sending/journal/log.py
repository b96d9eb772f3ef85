"""The journal of a campaign: a log of claims and of what became of them, in segments of the task's state.

The journal of a single request is one document. For a million recipients it is a log: what is new is added to the last
segment, and what was written is not touched again (see ``segments``). Like the other it holds hashes, ids and counts,
never a number, an address or a text.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self, TypeVar

from cpaas_provider.sending.errors import JournalUnavailableError, PartitionChangedError
from cpaas_provider.sending.hashing import MEMBER_BYTES, WORDS_BYTES, KeyedHasher
from cpaas_provider.sending.journal.journal import LOST, REKEYED, StateStore, TryInfo, storage_error
from cpaas_provider.sending.journal.model import NOTHING_SENT_KEY, Pages, State
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
from cpaas_provider.sending.partitions import Partition

T = TypeVar("T")

VERSION = 6
"""Of the stored form; that of a single request's journal is odd."""

ROLL_BYTES = 32_000
"""Bytes from which on a segment is not added to: its last write sends all of it."""

REQUESTS_PER_TRY = 10_000_000
"""Requests a try may make: each has numbers of its own, also where nothing of an earlier one was stored."""

MAX_BYTES = 60_000
"""Bytes a segment may have; MySQL holds no more than 64 KB in one value of the state."""

MAX_RECIPIENTS_PER_INTENT = 2_500
"""Recipients of one request at most, so that a segment holds its claim."""

_PER_CLAIM, _PER_END = 80, 150


def split_members(packed: bytes) -> list[bytes]:
    """Return hashes of recipients that stand together, each by itself."""
    return [packed[place : place + MEMBER_BYTES] for place in range(0, len(packed), MEMBER_BYTES)]


@dataclass(frozen=True, slots=True)
class Intent:
    """That a request is about to leave.

    :param number: which request of the campaign, from 0, over all tries
    :param members: hashes of its recipients, each of ``MEMBER_BYTES``
    :param words: hashes of what it says to each alone, each of ``WORDS_BYTES``, in the same order; empty where it says
        the same to all
    """

    number: int
    reference: str
    members: bytes
    words: bytes = b""

    def __len__(self) -> int:
        """Return how many recipients it has."""
        return len(self.members) // MEMBER_BYTES

    @property
    def weight(self) -> int:
        """Bytes it takes in a segment, about."""
        return _PER_CLAIM + (len(self.members) + len(self.words)) * 4 // 3

    def each(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield each member with the hash of its own words."""
        for place in range(len(self)):
            yield (
                self.members[place * MEMBER_BYTES : (place + 1) * MEMBER_BYTES],
                self.words[place * WORDS_BYTES : (place + 1) * WORDS_BYTES],
            )


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a request.

    :param result: the service's id of the message, what it charged and the balance it told
    :param resolution: ``sent`` or ``not_sent`` where a person decided
    :param left_out: hashes of those of its recipients that an accepted request does not go to; requests of their own
        say what became of them
    """

    number: int
    state: State
    result: tuple[str | None, float | None, float | None] | None = None
    reason: str | None = None
    resolution: str | None = None
    left_out: bytes = b""

    @property
    def weight(self) -> int:
        """Bytes it takes in a segment, about."""
        # Of a letter beyond ASCII JSON makes six bytes, and JSON in JSON seven.
        words = len(json.dumps(json.dumps(self.reason))) if self.reason else 0
        return _PER_END + words + len(self.left_out) * 4 // 3

    def goes_to(self, members: Iterable[bytes]) -> list[bytes]:
        """Return those of a request's recipients that it says something of."""
        gone = set(split_members(self.left_out)) if self.left_out else ()
        return [member for member in members if member not in gone]

    def as_json(self) -> list[Any]:
        """Return what is stored."""
        facts = [self.number, self.state.value, self.result, self.reason, self.resolution]
        return [*facts, b64encode(self.left_out).decode()] if self.left_out else facts

    @classmethod
    def from_json(cls, stored: Sequence[Any]) -> Self:
        """Return what was stored."""
        number, state, result, reason, resolution, *left_out = stored
        return cls(
            number,
            State(state),
            None if result is None else tuple(result),
            reason,
            resolution,
            b64decode(left_out[0]) if left_out else b"",
        )


@dataclass(frozen=True)
class LogEntry:
    """What one write added.

    :param body: hash of what its claims say to all of their recipients
    :param clear_epoch: that of the try then, see ``TryInfo``
    """

    at: datetime
    try_number: int
    clear_epoch: int | str
    body: str
    intents: Sequence[Intent] = ()
    results: Sequence[Result] = ()

    def as_text(self) -> str:
        """Return what is stored."""
        parts = {
            "at": self.at.isoformat(),
            "try": self.try_number,
            "clear_epoch": self.clear_epoch,
            "body": self.body,
            "intents": [
                [one.number, one.reference, b64encode(one.members).decode(), b64encode(one.words).decode()]
                for one in self.intents
            ],
            "results": [one.as_json() for one in self.results],
        }
        return json.dumps(parts, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Return what was stored.

        :raises ValueError: when it is no batch of this version
        """
        try:
            stored = json.loads(text)
            return cls(
                at=datetime.fromisoformat(stored["at"]),
                try_number=stored["try"],
                clear_epoch=stored["clear_epoch"],
                body=stored["body"],
                intents=[
                    Intent(number, reference, b64decode(members), b64decode(words))
                    for number, reference, members, words in stored["intents"]
                ],
                results=[Result.from_json(end) for end in stored["results"]],
            )
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise _unreadable(error) from None


@dataclass
class Segment:
    """A part of the log as it is stored, and what tells whose it is.

    :param key_id: tells which secret its hashes are keyed with
    :param operation: what its requests are
    :param resend_epoch: counts deliberate repetitions of the whole send
    :param lost: why nobody can tell what was sent to people without a claim, where that is so
    :param partition: which part of the campaign it is of, from 0, and of how many
    :param clear_epoch: that of the try that last wrote it, see ``TryInfo``
    :param batches: each as text, which worker, supervisor and server hand on as it is: they look at each part of a
        structure, again with each write
    :param size: bytes it takes, about
    """

    key_id: str
    operation: str
    resend_epoch: int = 0
    lost: str | None = None
    partition: Sequence[int] = (0, 1)
    clear_epoch: int | str | None = None
    batches: list[str] = field(default_factory=list)
    size: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return what is stored."""
        head = {
            "version": VERSION,
            "key_id": self.key_id,
            "operation": self.operation,
            "resend_epoch": self.resend_epoch,
        }
        whose = {"lost": self.lost, "partition": list(self.partition), "clear_epoch": self.clear_epoch}
        return {**head, **whose, "batches": self.batches}

    @classmethod
    def from_json(cls, stored: Any) -> Self:
        """Return what was stored.

        :raises ValueError: when it is no segment of this version
        """
        try:
            if stored["version"] != VERSION:
                raise ValueError(f"its version is {stored['version']}")
            found = cls(**{name: stored[key] for name, key in _STORED.items()})
            if not all(isinstance(batch, str) for batch in found.batches):
                raise TypeError
            found.size = sum(map(size_of, found.batches))
        except (LookupError, TypeError, AttributeError) as error:
            raise _unreadable(error) from None
        return found

    def continues(self, other: Segment) -> bool:
        """Tell whether it belongs to the same log; a later edition leaves segments of earlier ones behind."""
        return (self.key_id, self.operation, self.resend_epoch) == (other.key_id, other.operation, other.resend_epoch)

    def following(self) -> Segment:
        """Return the one that follows it."""
        return dataclasses.replace(self, batches=[], size=0)


def _unreadable(error: Exception) -> ValueError:
    return ValueError(f"it cannot be read ({type(error).__name__})")


def size_of(batch: str) -> int:
    """Return the bytes a batch takes in a segment, about."""
    return len(json.dumps(batch)) + 2


_STORED = {
    "key_id": "key_id",
    "operation": "operation",
    "resend_epoch": "resend_epoch",
    "lost": "lost",
    "partition": "partition",
    "clear_epoch": "clear_epoch",
    "batches": "batches",
}
"""By which key the segment's fields are stored."""


class JournalLog:
    """A campaign's journal, opened by one try; ``replay`` must be gone through before anything is added.

    :param store: where it is kept
    :param secrets: what its hashes may be keyed with; the first is used for a new journal, any opens an old one
    :param identity: whose it is, see ``task_identity`` and ``campaign_identity``
    :param tries: what Airflow says of this try
    :param partition: which part of the campaign this is
    :param resend_on_clear: after a clear, begin anew and send to everybody again
    :raises JournalUnavailableError: when it cannot be read
    :raises PartitionChangedError: when it was begun as another part, or one of another number of parts
    """

    def __init__(
        self,
        store: StateStore,
        secrets: Sequence[str],
        identity: Sequence[str | int],
        operation: str,
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
        elif head.operation != operation:
            raise JournalUnavailableError(
                "The task state store holds the journal of another kind of send: the task had another operator in an "
                "earlier try. Nothing was sent. Start a new run."
            )
        elif head.key_id != self.hasher.key_id:
            self._last.lost = REKEYED
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
            self._last = Segment(self.hasher.key_id, operation, resend_epoch, partition=(partition.part, partition.of))
        elif head is not None and tuple(head.partition) != (partition.part, partition.of):
            raise PartitionChangedError(
                f"An earlier try of this task instance was {_words(*head.partition)}, and this one is "
                f"{_words(partition.part, partition.of)}. Each partition records only its own recipients, so some "
                "recipients would be sent to twice. Nothing was sent in this try. Map the operator over "
                f"partitions({head.partition[1]}) again, or start a new run.",
                begun=head.partition[1],
            )

    @property
    def lost(self) -> str | None:
        """Why nobody can tell what earlier tries sent to people without a claim, where that is so."""
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

    def append(self, batch: LogEntry) -> None:
        """Store a batch for good, before returning.

        :raises JournalUnavailableError: when that could not be done
        :raises TrySupersededError: when another try has taken this one's place
        """
        added = batch.as_text()
        too_large = self._last.size + size_of(added) > MAX_BYTES
        if self._unsure not in (None, added) or (too_large and self._parts):
            # What failed may yet be carried out, and must not take the place of anything.
            self._begin_segment()
        self._unsure = added
        segment, size = self._last, self._last.size + size_of(added)
        full = size >= ROLL_BYTES or self._parts + 1 >= MOST_PARTS
        if full and self._parts:
            self._write(whole_key(self._index), [*segment.batches, added])
            self._garbage.extend(superseded(self._index, self._parts))
        else:
            self._write(part_key(self._index, self._parts), [added])
        self._unsure = None
        segment.batches.append(added)
        segment.size, self._parts = size, self._parts + 1
        if full:
            self._begin_segment()

    def tidy(self, most: int) -> None:
        """Remove keys that nobody reads any more, at most so many; one that stays does no harm."""
        for _ in range(min(most, len(self._garbage))):
            with contextlib.suppress(Exception):
                self._store.delete(self._garbage.popleft())

    def record_loss(self) -> None:
        """Store that what earlier tries sent is lost, before anything else is."""
        if self._last.lost and not self._earlier and not self._parts:
            self._write(part_key(self._index, 0), [])
            self._parts = 1

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

    def _write(self, key: str, batches: list[str]) -> None:
        self._last.clear_epoch = self.tries.clear_epoch
        value = dataclasses.replace(self._last, batches=batches).as_json()
        try:
            self._store.set(key, value)
        except Exception as error:  # noqa: BLE001 - Airflow raises several kinds, and none may let a request leave
            raise storage_error(error, "stored, so the requests to record were not sent") from None

    def _head(self) -> tuple[int, Segment | None]:
        """Return the newest series there is, and what its first part says of it."""
        found = newest_series(self._get, self._series + 1)
        if found is None:
            return -1, None
        try:
            pages = Pages.from_json(found[1])
        except ValueError:
            return found[0], _read(Segment.from_json, found[1])
        if pages.entries or pages.lost:
            raise JournalUnavailableError(
                "The task state store holds the journal of a single send: the task was no campaign in an earlier try. "
                "Nothing was sent. Start a new run."
            )
        return -1, None

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
