"""What the journal holds: the intent of each request, its result, and what both together say of it."""

from __future__ import annotations

import dataclasses
import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Self

from cpaas_provider.sending.hashing import MEMBER_BYTES, WORDS_BYTES

JOURNAL_KEY = "cpaas_journal"
"""The key of the task's state under which the journal stands."""

NOTHING_SENT_KEY = "cpaas_nothing_sent"
"""The key under which a try notes that it ended before it began a request."""

CURRENT_KEY = "cpaas_current_try"
"""The key under which a try writes its number, to find out whether Airflow still lets it write."""

CAMPAIGN_MARKER = "cpaas_campaign"
"""The key under which a task that sends a campaign with a key notes that the database holds a journal of it."""

CAMPAIGN_DATABASE = "cpaas_campaign_database"
"""What the names of Airflow's variables begin with that say in which database campaigns with a key lie: all workers
see them, and no file of theirs is needed for it."""

VERSION = 7
"""Of the stored form."""

_PER_INTENT, _PER_RESULT = 80, 150


class State(StrEnum):
    """The state of a request, as far as the journal has it."""

    PENDING = "pending"
    ACCEPTED = "accepted"
    NOT_SENT = "not_sent"
    REJECTED = "rejected"
    UNKNOWN = "unknown"


UNRESOLVED = frozenset({State.PENDING, State.UNKNOWN})
PRECEDENCE = {State.NOT_SENT: 0, State.REJECTED: 1, State.PENDING: 2, State.UNKNOWN: 2, State.ACCEPTED: 3}
"""What is known of a recipient is what the strongest of their requests came to, the newest of several."""


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
    :param probe_snapshot: small JSON that the probes recorded, to know its outcome by
    :param previous_unknown: whether an earlier request of the same reference may have been accepted
    """

    number: int
    reference: str
    members: bytes
    words: bytes = b""
    probe_snapshot: Any = None
    previous_unknown: bool = False

    def __len__(self) -> int:
        """Return how many recipients it has."""
        return len(self.members) // MEMBER_BYTES

    @property
    def weight(self) -> int:
        """Bytes it takes in a segment, about."""
        more = len(json.dumps(json.dumps(self.probe_snapshot))) if self.probe_snapshot is not None else 0
        return _PER_INTENT + (len(self.members) + len(self.words)) * 4 // 3 + more

    def as_json(self) -> list[Any]:
        """Return what is stored."""
        facts = [self.number, self.reference, b64encode(self.members).decode(), b64encode(self.words).decode()]
        if self.probe_snapshot is None and not self.previous_unknown:
            return facts
        return [*facts, self.probe_snapshot, self.previous_unknown]

    @classmethod
    def from_json(cls, stored: Sequence[Any]) -> Self:
        """Return what was stored."""
        number, reference, members, words, *more = stored
        snapshot, unknown = more or (None, False)
        return cls(number, reference, b64decode(members), b64decode(words), snapshot, unknown)

    def words_of(self, member: bytes) -> bytes | None:
        """Return the hash of what it says to one recipient alone; ``None`` where it says the same to all."""
        return dict(self.each()).get(member) if self.words else None

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
    :param extra: small JSON that a single send makes its result from, in the place of ``result``
    """

    number: int
    state: State
    result: tuple[str | None, float | None, float | None] | None = None
    reason: str | None = None
    resolution: str | None = None
    left_out: bytes = b""
    extra: Mapping[str, Any] | None = None

    @property
    def details(self) -> dict[str, Any] | None:
        """Return all that the service told of a request, as small JSON."""
        if self.extra is not None:
            return dict(self.extra)
        told = dict(zip(("id", "charge", "balance"), self.result or (), strict=False))
        return {name: fact for name, fact in told.items() if fact is not None} or None

    @property
    def weight(self) -> int:
        """Bytes it takes in a segment, about."""
        # Of a letter beyond ASCII JSON makes six bytes, and JSON in JSON seven.
        words = sum(len(json.dumps(json.dumps(one))) for one in (self.reason, self.extra) if one)
        return _PER_RESULT + words + len(self.left_out) * 4 // 3

    def goes_to(self, members: Iterable[bytes]) -> list[bytes]:
        """Return those of a request's recipients that it says something of."""
        gone = set(split_members(self.left_out)) if self.left_out else ()
        return [member for member in members if member not in gone]

    def as_json(self) -> list[Any]:
        """Return what is stored."""
        facts = [self.number, self.state.value, self.result, self.reason, self.resolution]
        if self.extra is not None:
            return [*facts, b64encode(self.left_out).decode(), dict(self.extra)]
        return [*facts, b64encode(self.left_out).decode()] if self.left_out else facts

    @classmethod
    def from_json(cls, stored: Sequence[Any]) -> Self:
        """Return what was stored."""
        number, state, result, reason, resolution, *more = stored
        left_out, extra, *_ = (*more, None, None)
        return cls(
            number,
            State(state),
            None if result is None else tuple(result),
            reason,
            resolution,
            b64decode(left_out) if left_out else b"",
            extra,
        )


@dataclass(frozen=True)
class LogEntry:
    """What one write added.

    :param body: hash of what its intents say to all of their recipients; ``None`` where that is lost
    :param clear_epoch: that of the try then, see ``TryInfo``
    """

    at: datetime
    try_number: int
    clear_epoch: int | str
    body: str | None
    intents: Sequence[Intent] = ()
    results: Sequence[Result] = ()

    def as_text(self) -> str:
        """Return what is stored."""
        parts = {
            "at": self.at.isoformat(),
            "try": self.try_number,
            "clear_epoch": self.clear_epoch,
            "body": self.body,
            "intents": [one.as_json() for one in self.intents],
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
                intents=[Intent.from_json(intent) for intent in stored["intents"]],
                results=[Result.from_json(end) for end in stored["results"]],
            )
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise unreadable(error) from None


@dataclass
class Segment:
    """A part of the log as it is stored, and what tells whose it is.

    :param key_id: tells which secret its hashes are keyed with
    :param operation: what its requests are
    :param resend_epoch: counts deliberate repetitions of the whole send
    :param lost: why it is unknown what was sent to recipients without an intent, where that is so
    :param partition: which part of the campaign it is of, from 0, and of how many
    :param clear_epoch: that of the try that last wrote it, see ``TryInfo``
    :param batches: each as text, which worker, supervisor and server hand on as it is: they look at each part of a
        structure, again with each write
    :param size: bytes it takes, about
    """

    key_id: str
    operation: str | None
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
            raise unreadable(error) from None
        return found

    def continues(self, other: Segment) -> bool:
        """Tell whether it belongs to the same log; a later edition leaves segments of earlier ones behind."""
        return (self.key_id, self.operation, self.resend_epoch) == (other.key_id, other.operation, other.resend_epoch)

    def following(self) -> Segment:
        """Return the one that follows it."""
        return dataclasses.replace(self, batches=[], size=0)


def unreadable(error: Exception) -> ValueError:
    """Return that what is stored cannot be read."""
    return ValueError(f"it cannot be read ({type(error).__name__})")


def size_of(batch: str) -> int:
    """Return the bytes a batch takes in a segment, about."""
    if not batch.isascii():
        return len(json.dumps(batch)) + 2
    # As json.dumps writes it, without a copy: a text of JSON in ASCII holds nothing else that is escaped.
    return len(batch) + batch.count('"') + batch.count("\\") + 4


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


BROKE_OFF = "the try ended before a response was recorded"


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request: its intent, and its result where that is recorded.

    A request that is made again has its reference again, and is another one.

    :param started_at: when it was about to leave; ``None`` where that is lost
    :param try_number: the try that made it
    :param body: hash of what it says to all of its recipients; ``None`` where that is lost
    """

    intent: Intent
    operation: str
    started_at: datetime | None = None
    try_number: int | None = None
    body: str | None = None
    outcome: Result | None = None

    @property
    def number(self) -> int:
        """Return its number in the journal."""
        return self.intent.number

    @property
    def reference(self) -> str:
        """Return its name, the same whenever it is made again."""
        return self.intent.reference

    @property
    def members(self) -> list[bytes]:
        """Return the hashes of its recipients, less those that an accepted request does not go to."""
        members = split_members(self.intent.members)
        return self.outcome.goes_to(members) if self.outcome else members

    @property
    def state(self) -> State:
        """Return how it stands."""
        return self.outcome.state if self.outcome else State.PENDING

    @property
    def reason(self) -> str | None:
        """Return why it stands so, in words."""
        return self.outcome.reason if self.outcome else None

    @property
    def result(self) -> dict[str, Any] | None:
        """Return the small JSON that the operator makes its result from."""
        return self.outcome.details if self.outcome else None

    @property
    def resolution(self) -> str | None:
        """Return ``sent`` or ``not_sent`` where a person resolved it."""
        return self.outcome.resolution if self.outcome else None

    @property
    def probe_snapshot(self) -> Any:
        """Return what the probes recorded before it left."""
        return self.intent.probe_snapshot

    @property
    def previous_unknown(self) -> bool:
        """Whether an earlier request of the same reference may have been accepted."""
        return self.intent.previous_unknown

    @property
    def is_personal(self) -> bool:
        """Whether it says something else to each recipient."""
        return bool(self.intent.words)

    @property
    def is_unresolved(self) -> bool:
        """Whether its outcome is unknown."""
        return self.state in UNRESOLVED

    @property
    def strength(self) -> int:
        """Return how much it says about its recipients, against their other requests."""
        return PRECEDENCE[self.state]

    def ended(self, result: Result) -> Self:
        """Return it with a result. That it was accepted stays, as a late copy of a write says the truth, too."""
        if self.state is State.ACCEPTED:
            return self
        return dataclasses.replace(self, outcome=result)


def replay(
    entry: LogEntry, operation: str, records: dict[int, RequestRecord], clear_epoch: int | str | None = None
) -> None:
    """Bring what one write added into the records by their numbers.

    :param clear_epoch: that of this try, for which what was rejected before a clear is not sent; ``None`` leaves it so
    """
    at = entry.at if entry.body is not None else None
    for intent in entry.intents:
        records.setdefault(intent.number, RequestRecord(intent, operation, at, entry.try_number, entry.body))
    for result in entry.results:
        # A try that was told to stop records the result of an intent, too, that it could no longer store.
        if (record := records.get(result.number)) is not None:
            if result.state is State.REJECTED and clear_epoch not in (None, entry.clear_epoch):
                result = dataclasses.replace(result, state=State.NOT_SENT)  # noqa: PLW2901 - the same, opened again
            records[result.number] = record.ended(result)


def latest_by_member(records: Iterable[RequestRecord]) -> dict[bytes, RequestRecord]:
    """Return the request that decides about each recipient: the strongest, the newest of several."""
    found: dict[bytes, RequestRecord] = {}
    for record in records:
        for member in record.members:
            if member not in found or record.strength >= found[member].strength:
                found[member] = record
    return found


def unresolved(records: Iterable[RequestRecord]) -> list[RequestRecord]:
    """Return the unresolved requests that have a recipient no other request surely reached."""
    records = list(records)
    open_ = [record for record in records if record.is_unresolved]
    reached = reached_by(records, members_of(open_))
    return [record for record in open_ if not reached.issuperset(record.members)]


def reached_by(records: Iterable[RequestRecord], members: set[bytes]) -> set[bytes]:
    """Return who of some recipients surely got the message."""
    found: set[bytes] = set()
    if members:
        for record in records:
            if record.state is State.ACCEPTED:
                found.update(members.intersection(record.members))
    return found


def members_of(records: Iterable[RequestRecord]) -> set[bytes]:
    """Return the recipients of requests, each once."""
    return {member for record in records for member in record.members}


def by_reference(records: Iterable[RequestRecord]) -> list[RequestRecord]:
    """Return the newest request of each reference, in the order in which they were first made."""
    return list({record.reference: record for record in records}.values())
