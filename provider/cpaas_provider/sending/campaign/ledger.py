"""The journal of a campaign: a log of claims and of what became of them, in segments of the task's state.

The journal of a single request is one document that is written anew each time. For a million recipients it is a log:
what is new is appended to the last segment, and a full segment is not touched again. Like the other it holds hashes,
ids and counts, never a number, an address or a text.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self, TypeVar

from cpaas_provider.sending.entries import JOURNAL_KEY, Pages, State
from cpaas_provider.sending.errors import JournalUnavailableError, SendingError
from cpaas_provider.sending.fingerprints import MEMBER_BYTES, WORDS_BYTES, Fingerprints
from cpaas_provider.sending.journal import LOST, REKEYED, Store, TryFacts, of_store

T = TypeVar("T")

VERSION = 2
"""Of the stored form; that of a single request's journal is 1."""

FULL = 32_000
"""Bytes from which on a segment is not added to: each write sends all of it."""

ROOM = 60_000
"""Bytes a segment may have; MySQL holds no more than 64 KB in one value of the state."""

MOST_IN_A_CLAIM = 2_500
"""Recipients of one request at most, so that a segment holds its claim."""

_PER_CLAIM, _PER_END = 80, 150


def split_members(packed: bytes) -> list[bytes]:
    """Return hashes of recipients that stand together, each by itself."""
    return [packed[place : place + MEMBER_BYTES] for place in range(0, len(packed), MEMBER_BYTES)]


@dataclass(frozen=True, slots=True)
class Claim:
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
class End:
    """What became of a request.

    :param result: the service's id of the message, what it charged and the balance it told
    :param by_hand: ``sent`` or ``unsent`` where a person decided
    :param left_out: hashes of those of its recipients that an accepted request does not go to; requests of their own
        say what became of them
    """

    number: int
    state: State
    result: tuple[str | None, float | None, float | None] | None = None
    reason: str | None = None
    by_hand: str | None = None
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
        facts = [self.number, self.state.value, self.result, self.reason, self.by_hand]
        return [*facts, b64encode(self.left_out).decode()] if self.left_out else facts

    @classmethod
    def from_json(cls, stored: Sequence[Any]) -> Self:
        """Return what was stored."""
        number, state, result, reason, by_hand, *left_out = stored
        return cls(
            number,
            State(state),
            None if result is None else tuple(result),
            reason,
            by_hand,
            b64decode(left_out[0]) if left_out else b"",
        )


@dataclass(frozen=True)
class Batch:
    """What one write added.

    :param body: hash of what its claims say to all of their recipients
    :param generation: that of the try then, see ``TryFacts``
    """

    at: datetime
    try_number: int
    generation: int | str
    body: str
    claims: Sequence[Claim] = ()
    ends: Sequence[End] = ()

    def as_text(self) -> str:
        """Return what is stored."""
        parts = {
            "at": self.at.isoformat(),
            "try": self.try_number,
            "generation": self.generation,
            "body": self.body,
            "claims": [
                [one.number, one.reference, b64encode(one.members).decode(), b64encode(one.words).decode()]
                for one in self.claims
            ],
            "ends": [one.as_json() for one in self.ends],
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
                generation=stored["generation"],
                body=stored["body"],
                claims=[
                    Claim(number, reference, b64decode(members), b64decode(words))
                    for number, reference, members, words in stored["claims"]
                ],
                ends=[End.from_json(end) for end in stored["ends"]],
            )
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise _unreadable(error) from None


@dataclass
class Segment:
    """A part of the log as it is stored, and what tells whose it is.

    :param lock: tells which secret its hashes are keyed with
    :param operation: what its requests are
    :param edition: counts deliberate repetitions of the whole send
    :param lost: why nobody can tell what was sent to people without a claim, where that is so
    :param generation: that of the try that last wrote it, see ``TryFacts``
    :param batches: each as text, which worker, supervisor and server hand on as it is: they look at each part of a
        structure, again with each write
    :param size: bytes it takes, about
    """

    lock: str
    operation: str
    edition: int = 0
    lost: str | None = None
    generation: int | str | None = None
    batches: list[str] = field(default_factory=list)
    size: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return what is stored."""
        head = {"version": VERSION, "lock": self.lock, "operation": self.operation, "edition": self.edition}
        return {**head, "lost": self.lost, "generation": self.generation, "batches": self.batches}

    @classmethod
    def from_json(cls, stored: Any) -> Self:
        """Return what was stored.

        :raises ValueError: when it is no segment of this version
        """
        try:
            if stored["version"] != VERSION:
                raise ValueError(f"its version is {stored['version']}")
            found = cls(**{name: stored[name] for name in _STORED})
            if not all(isinstance(batch, str) for batch in found.batches):
                raise TypeError
            found.size = sum(map(size_of, found.batches))
        except (LookupError, TypeError, AttributeError) as error:
            raise _unreadable(error) from None
        return found

    def continues(self, other: Segment) -> bool:
        """Tell whether it belongs to the same log; a later edition leaves segments of earlier ones behind."""
        return (self.lock, self.operation, self.edition) == (other.lock, other.operation, other.edition)

    def emptied(self) -> Segment:
        """Return the one that follows it."""
        return Segment(self.lock, self.operation, self.edition, self.lost)


def _unreadable(error: Exception) -> ValueError:
    return ValueError(f"it cannot be read ({type(error).__name__})")


def size_of(batch: str) -> int:
    """Return the bytes a batch takes in a segment, about."""
    return len(json.dumps(batch)) + 2


_STORED = ("lock", "operation", "edition", "lost", "generation", "batches")


def key_of(index: int) -> str:
    """Return the key of the task's state under which a segment stands."""
    return JOURNAL_KEY if index == 0 else f"{JOURNAL_KEY}.{index}"


class Ledger:
    """A campaign's journal, opened by one try; ``replay`` must be gone through before anything is added.

    :param store: where it is kept
    :param secrets: what its hashes may be keyed with; the first is used for a new journal, any opens an old one
    :param identity: whose it is, see ``task_identity`` and ``campaign_identity``
    :param tries: what Airflow says of this try
    :param resend_on_clear: after a clear, begin anew and send to everybody again
    :raises JournalUnavailableError: when it cannot be read
    """

    def __init__(
        self,
        store: Store,
        secrets: Sequence[str],
        identity: Sequence[str | int],
        operation: str,
        tries: TryFacts,
        *,
        resend_on_clear: bool = False,
    ) -> None:
        self._store = store
        self.tries = tries
        keys = [Fingerprints(secret, identity) for secret in secrets]
        first, noted = self._first()
        self.prints = next((key for key in keys if first and key.lock == first.lock), keys[0])
        self._index = 0
        self._last = Segment(self.prints.lock, operation)
        self._earlier: Segment | None = None
        if first is None:
            self._last.lost = LOST if not noted and tries.follows_clear else None
            begin_anew = bool(self._last.lost) and tries.max_tries > tries.retries
        elif first.operation != operation:
            raise JournalUnavailableError(
                "The task's state holds the journal of another kind of send: the task was another one in an earlier "
                "try. Nothing was sent. Start a new run."
            )
        elif first.lock != self.prints.lock:
            self._last.lost = REKEYED if first.lost or first.batches else None
            # Should the secret be changed back, the segments that stand behind the first would be taken for its own.
            self._last.edition = first.edition + 1
            begin_anew = first.generation != tries.generation
        else:
            self._earlier = self._last = first
            # A clear sets max_tries anew; the last segment knows what it was when something was last written.
            begin_anew = resend_on_clear and self._latest(first).generation != tries.generation
        if resend_on_clear and begin_anew:
            self._earlier = None
            # Different after each clear, also where nothing of the last edition was kept.
            edition = max(first.edition if first else 0, tries.max_tries + tries.clear_number) + 1
            self._last = Segment(self.prints.lock, operation, edition)

    @property
    def lost(self) -> str | None:
        """Why nobody can tell what earlier tries sent to people without a claim, where that is so."""
        return self._last.lost

    @property
    def edition(self) -> int:
        """Which deliberate repetition of the whole send this is."""
        return self._last.edition

    def replay(self) -> Iterator[Batch]:
        """Yield what earlier tries stored, in order."""
        if self._earlier is None:
            return
        segment: Segment | None = self._earlier
        while segment is not None:
            self._last = segment
            for batch in segment.batches:
                yield _read(Batch.from_text, batch)
            following = self._read(key_of(self._index + 1))
            segment = following if following and following.continues(self._last) else None
            self._index += segment is not None

    @property
    def room(self) -> int:
        """Bytes the next write may add."""
        return ROOM if self._last.size >= FULL else ROOM - self._last.size

    def append(self, batch: Batch) -> None:
        """Store a batch for good, before returning.

        :raises JournalUnavailableError: when that could not be done
        :raises TryReplacedError: when another try has taken this one's place
        """
        segment, index = self._last, self._index
        if segment.batches and segment.size >= FULL:
            segment, index = segment.emptied(), index + 1
        added = batch.as_text()
        segment.batches.append(added)
        try:
            self._write(segment, index)
        except SendingError:
            segment.batches.pop()
            raise
        segment.size += size_of(added)
        self._last, self._index = segment, index

    def note_lost(self) -> None:
        """Store that what earlier tries sent is lost, before anything else is."""
        if self._last.lost and not self._last.batches:
            self._write(self._last, self._index)

    def _write(self, segment: Segment, index: int) -> None:
        segment.generation = self.tries.generation
        try:
            self._store.set(key_of(index), segment.as_json())
        except Exception as error:  # noqa: BLE001 - Airflow raises several kinds, and none may let a request leave
            raise of_store(error, "stored, so what it was to claim was not sent") from None

    def _latest(self, first: Segment) -> Segment:
        index, latest = 0, first
        while (following := self._read(key_of(index := index + 1))) and following.continues(first):
            latest = following
        return latest

    def _first(self) -> tuple[Segment | None, bool]:
        """Return the first segment, and whether an earlier try noted that it had claimed nothing."""
        stored = self._get(key_of(0))
        if stored is None:
            return None, False
        try:
            pages = Pages.from_json(stored)
        except ValueError:
            return _read(Segment.from_json, stored), False
        if pages.entries or pages.lost:
            raise JournalUnavailableError(
                "The task's state holds the journal of a single send: the task was no campaign in an earlier try. "
                "Nothing was sent. Start a new run."
            )
        return None, True

    def _read(self, key: str) -> Segment | None:
        stored = self._get(key)
        return None if stored is None else _read(Segment.from_json, stored)

    def _get(self, key: str) -> Any:
        try:
            return self._store.get(key)
        except Exception as error:  # noqa: BLE001 - Airflow raises several kinds, and none may let a request leave
            raise of_store(error, "read, so nothing was sent") from None


def _read(form: Callable[[Any], T], stored: Any) -> T:
    try:
        return form(stored)
    except ValueError as error:
        raise JournalUnavailableError(
            f"The task's state holds a journal this version of the provider cannot use: {error}. Nothing was sent."
        ) from None
