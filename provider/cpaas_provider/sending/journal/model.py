"""The records of the journal: the intent and the result of each request, and how they are stored."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple, Self

from msgspec import Struct, field
from msgspec.structs import replace

from cpaas_provider.sending.journal.hashing import MEMBER_BYTES, VALUES_HASH_BYTES

JOURNAL_KEY = "cpaas_journal"
"""The key of the journal in the task state."""

IN_DATABASE = "in_database"
"""The field of the value under ``JOURNAL_KEY`` that names a journal which is stored in the database."""

NOTHING_SENT_KEY = "cpaas_nothing_sent"
"""The key under which a try records that it ended before it started a request."""

CURRENT_KEY = "cpaas_current_try"
"""The key under which a try writes its number, to find out whether Airflow still lets it write."""

INSTANCE_KEY = "cpaas_instance"
"""The key under which a task records the nonce that names it in our database. A run that is made again has another."""

CAMPAIGN_MARKER = "cpaas_campaign"
"""The key under which a task records which campaign with an idempotency key it sends, and how often it has written the
journal in the database."""

WRITES_KEY = "cpaas_writes"
"""The prefix of the keys beside such a journal: how often each task instance has written it."""

CAMPAIGN_DATABASE = "cpaas_campaign_database"
"""The prefix of Airflow variables that identify the database of campaigns with an idempotency key: all workers can read
a variable, but they share no files."""

CAMPAIGN_TRIES = "cpaas_campaign_tries"
"""The prefix of the Airflow variable that has the number of the newest try with an idempotency key."""

VERSION = 8
"""The version of the stored form."""

_INTENT_BYTES, _RESULT_BYTES = 80, 150


class State(StrEnum):
    """The state of a request in the journal."""

    PENDING = "pending"
    ACCEPTED = "accepted"
    NOT_SENT = "not_sent"
    REJECTED = "rejected"
    UNKNOWN = "unknown"


UNRESOLVED = frozenset({State.PENDING, State.UNKNOWN})
PRECEDENCE = {State.NOT_SENT: 0, State.REJECTED: 1, State.PENDING: 2, State.UNKNOWN: 2, State.ACCEPTED: 3}
"""The status of a recipient is the state of the strongest of the recipient's requests, and of several the newest."""


def split_members(packed: bytes) -> list[bytes]:
    """Return joined hashes of recipients as a list."""
    return [packed[place : place + MEMBER_BYTES] for place in range(0, len(packed), MEMBER_BYTES)]


class Intent(Struct, frozen=True):
    """The record that a request is about to leave.

    :param number: the number of the request, from 0, over all tries
    :param members: hashes of its recipients, joined, each of ``MEMBER_BYTES``
    :param values_hashes: hashes of the placeholder values of each recipient, joined, each of ``VALUES_HASH_BYTES``, in
        the same order; empty if the content is the same for all
    :param probe_snapshot: small JSON of the probes, by which they later establish the outcome
    :param previous_unknown: whether an earlier request of the same reference may have been accepted
    """

    number: int
    reference: str
    members: bytes
    values_hashes: bytes = b""
    probe_snapshot: Any = None
    previous_unknown: bool = False

    def __len__(self) -> int:
        """Return the number of recipients."""
        return len(self.members) // MEMBER_BYTES

    @property
    def weight(self) -> int:
        """About how many bytes it takes in a segment."""
        snapshot = len(json.dumps(json.dumps(self.probe_snapshot))) if self.probe_snapshot is not None else 0
        return _INTENT_BYTES + (len(self.members) + len(self.values_hashes)) * 4 // 3 + snapshot

    def as_json(self) -> list[Any]:
        """Return what is stored."""
        fields = [self.number, self.reference, b64encode(self.members).decode(), b64encode(self.values_hashes).decode()]
        if self.probe_snapshot is None and not self.previous_unknown:
            return fields
        return [*fields, self.probe_snapshot, self.previous_unknown]

    @classmethod
    def from_json(cls, stored: Sequence[Any]) -> Self:
        """Return what was stored."""
        number, reference, members, values_hashes, *more = stored
        snapshot, unknown = more or (None, False)
        return cls(number, reference, b64decode(members), b64decode(values_hashes), snapshot, unknown)

    def each(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the hash of each recipient with the hash of the recipient's placeholder values."""
        for place in range(len(self)):
            yield (
                self.members[place * MEMBER_BYTES : (place + 1) * MEMBER_BYTES],
                self.values_hashes[place * VALUES_HASH_BYTES : (place + 1) * VALUES_HASH_BYTES],
            )


class Result(NamedTuple):
    """The record of how a request ended.

    :param result: the service's id of the message, the charge and the balance
    :param reason: the cause, as text
    :param resolution: ``sent`` or ``not_sent`` after a manual resolution
    :param left_out: hashes of the recipients that the service rejected from an accepted request. Each is in another
        record, of a rejected request
    :param extra: small JSON from which a single send makes its XCom, instead of ``result``
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
        """What the service returned, as small JSON; ``None`` for nothing."""
        if self.extra is not None:
            return dict(self.extra)
        details = dict(zip(("id", "charge", "balance"), self.result or (), strict=False))
        return {name: value for name, value in details.items() if value is not None} or None

    @property
    def weight(self) -> int:
        """About how many bytes it takes in a segment."""
        # JSON writes a letter beyond ASCII in six bytes, and JSON in JSON in seven.
        texts = sum(len(json.dumps(json.dumps(one))) for one in (self.reason, self.extra) if one)
        return _RESULT_BYTES + texts + len(self.left_out) * 4 // 3

    def goes_to(self, members: Iterable[bytes]) -> list[bytes]:
        """Return the recipients of the request less those that are left out."""
        left_out = set(split_members(self.left_out))
        return [member for member in members if member not in left_out]

    def as_json(self) -> list[Any]:
        """Return what is stored."""
        fields = [self.number, self.state.value, self.result, self.reason, self.resolution]
        if self.extra is not None:
            return [*fields, b64encode(self.left_out).decode(), dict(self.extra)]
        return [*fields, b64encode(self.left_out).decode()] if self.left_out else fields

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


class LogEntry(Struct, frozen=True):
    """The intents and results of one write.

    :param at: when it was written
    :param body: hash of the content of its intents that is the same for all recipients; ``None`` where that is lost
    :param clear_epoch: the clear epoch of the try that wrote it, see ``TryInfo``
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

    def with_rejected_as_not_sent(self) -> Self:
        """Return it with its rejected requests as not sent, so that they are made again."""
        results = [
            result._replace(state=State.NOT_SENT) if result.state is State.REJECTED else result
            for result in self.results
        ]
        return replace(self, results=results)

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Return what was stored.

        :raises ValueError: when it is no log entry of this version
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


class Segment(Struct):
    """A part of the log as it is stored, with a head that identifies the log.

    :param key_id: identifies the secret of the hashes, see ``KeyedHasher.key_id``
    :param nonce: random, the same in all tries, and part of every name that the send has outside of the journal
    :param operation: the operation of the requests
    :param resend_epoch: counts the clears after which all recipients are sent to again
    :param lost: why earlier requests may be missing, so that recipients without a request are of unknown outcome;
        ``None`` if none are missing
    :param partition: the number of the partition, from 0, and the number of partitions
    :param clear_epoch: the clear epoch of the try that last wrote it, see ``TryInfo``
    :param batches: log entries, each as JSON text. Worker, supervisor and API server pass a text on as it is; a
        structure they would validate part by part in each write
    :param size: about how many bytes the batches take
    """

    key_id: str
    nonce: str
    operation: str | None
    resend_epoch: int = 0
    lost: str | None = None
    partition: Sequence[int] = (0, 1)
    clear_epoch: int | str | None = None
    batches: list[str] = field(default_factory=list)
    size: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return what is stored."""
        fields = {name: getattr(self, name) for name in _STORED}
        return {"version": VERSION, **fields, "partition": list(self.partition)}

    @classmethod
    def from_json(cls, stored: Any) -> Self:
        """Return what was stored.

        :raises ValueError: when it is no segment of this version
        """
        try:
            if IN_DATABASE in stored:
                raise ValueError("it is stored in the provider's database, so set [cpaas] journal to database again")
            if stored["version"] != VERSION:
                raise ValueError(f"its version is {stored['version']}")
            segment = cls(**{name: stored[name] for name in _STORED})
            if not all(isinstance(batch, str) for batch in segment.batches):
                raise TypeError
            segment.size = sum(map(size_of, segment.batches))
        except (LookupError, TypeError, AttributeError) as error:
            raise unreadable(error) from None
        return segment

    def continues(self, other: Segment) -> bool:
        """Return whether both belong to one log. Segments of earlier secrets and resend epochs stay stored."""
        return (self.key_id, self.operation, self.resend_epoch) == (other.key_id, other.operation, other.resend_epoch)

    def following(self) -> Segment:
        """Return an empty segment with the same head, to follow this one."""
        return replace(self, batches=[], size=0)


def unreadable(error: Exception) -> ValueError:
    """Return the error for a record that cannot be read."""
    return ValueError(f"it cannot be read ({type(error).__name__})")


def size_of(batch: str) -> int:
    """Return about how many bytes a batch takes in a segment."""
    if not batch.isascii():
        return len(json.dumps(batch)) + 2
    # The length of json.dumps(batch), without a copy: in JSON of ASCII letters it escapes only these two.
    return len(batch) + batch.count('"') + batch.count("\\") + 4


_STORED = ("key_id", "nonce", "operation", "resend_epoch", "lost", "partition", "clear_epoch", "batches")
"""The fields of a segment that are stored, in this order."""


BROKE_OFF = "the try ended before a response was recorded"


class RequestRecord(Struct, frozen=True):
    """One request: its intent, and its result if that is recorded.

    A resend to the same recipients is another request with the same reference.

    :param started_at: when its intent was written; ``None`` where that is lost
    :param try_number: the try that made it
    :param body: hash of the content that is the same for all recipients; ``None`` where that is lost
    :param outcome: its result; ``None`` if it is pending
    :param size: the number of recipients that it was sent to; ``None`` if ``intent`` names all of them
    """

    intent: Intent
    operation: str
    started_at: datetime | None = None
    try_number: int | None = None
    body: str | None = None
    outcome: Result | None = None
    size: int | None = None

    @property
    def number(self) -> int:
        """The number of the request in the journal."""
        return self.intent.number

    @property
    def reference(self) -> str:
        """The reference of the request."""
        return self.intent.reference

    @property
    def members(self) -> list[bytes]:
        """The hashes of its recipients, less those that the service rejected from it."""
        members = split_members(self.intent.members)
        return self.outcome.goes_to(members) if self.outcome else members

    @property
    def recipients(self) -> int:
        """The number of its recipients, less those that the service rejected from it."""
        return len(self.members) if self.size is None else self.size - len(self.left_out)

    @property
    def left_out(self) -> list[bytes]:
        """The hashes of the recipients that the service rejected from it."""
        return split_members(self.outcome.left_out) if self.outcome else []

    @property
    def state(self) -> State:
        """The state of the request."""
        return self.outcome.state if self.outcome else State.PENDING

    @property
    def reason(self) -> str | None:
        """The cause of the state, as text; ``None`` if none is recorded."""
        return self.outcome.reason if self.outcome else None

    @property
    def result(self) -> dict[str, Any] | None:
        """What the service returned, as small JSON; ``None`` for nothing."""
        return self.outcome.details if self.outcome else None

    @property
    def resolution(self) -> str | None:
        """``sent`` or ``not_sent`` after a manual resolution; else ``None``."""
        return self.outcome.resolution if self.outcome else None

    @property
    def probe_snapshot(self) -> Any:
        """What the probes recorded before it left."""
        return self.intent.probe_snapshot

    @property
    def previous_unknown(self) -> bool:
        """Whether an earlier request of the same reference may have been accepted."""
        return self.intent.previous_unknown

    @property
    def is_personal(self) -> bool:
        """Whether the content differs for each recipient."""
        return bool(self.intent.values_hashes)

    @property
    def is_unresolved(self) -> bool:
        """Whether its outcome is unknown."""
        return self.state in UNRESOLVED

    def ended(self, result: Result) -> Self:
        """Return it with a result. An accepted request stays accepted, whatever a later or late write has."""
        if self.state is State.ACCEPTED:
            return self
        return replace(self, outcome=result)


def replay(entry: LogEntry, operation: str, records: dict[int, RequestRecord]) -> None:
    """Add the intents and results of one write to the records, which have their numbers as keys."""
    at = entry.at if entry.body is not None else None
    for intent in entry.intents:
        records.setdefault(intent.number, RequestRecord(intent, operation, at, entry.try_number, entry.body))
    for result in entry.results:
        # A stopped try also records results of requests whose intents it could not store: these have no record.
        if (record := records.get(result.number)) is not None:
            records[result.number] = record.ended(result)


def latest_by_member(records: Iterable[RequestRecord]) -> dict[bytes, RequestRecord]:
    """Return the request that decides the status of each recipient: the strongest, and of several the newest."""
    latest: dict[bytes, RequestRecord] = {}
    for record in records:
        for member in record.members:
            if member not in latest or PRECEDENCE[record.state] >= PRECEDENCE[latest[member].state]:
                latest[member] = record
    return latest


def unresolved(records: Iterable[RequestRecord]) -> list[RequestRecord]:
    """Return the unresolved requests with a recipient that no accepted request has."""
    records = list(records)
    candidates = [record for record in records if record.is_unresolved]
    if not candidates:
        return []
    reached = reached_by(records, members_of(candidates))
    return [record for record in candidates if not reached.issuperset(record.members)]


def unresolved_by_reference(records: Iterable[RequestRecord]) -> list[RequestRecord]:
    """Return the newest unresolved request of each reference, of those with a recipient that no accepted request has.

    The service may answer a question about a reference for any of its requests, so ``previous_unknown`` is set if
    another one is unresolved, too.
    """
    records = list(records)
    requests = unresolved(records)
    counts = Counter(record.reference for record in records if record.is_unresolved)
    newest = {request.reference: request for request in requests}
    return [
        replace(request, intent=replace(request.intent, previous_unknown=True))
        if counts[request.reference] > 1
        else request
        for request in newest.values()
    ]


def unknown_by_request(records: Iterable[RequestRecord], reached: AbstractSet[bytes] = frozenset()) -> dict[int, int]:
    """Return the unresolved requests with a recipient of unknown outcome, each with how many it is the newest one of.

    :param reached: the recipients that an accepted request has
    :return: the numbers of these recipients, by the number of the request
    """
    newest: dict[bytes, int] = {}
    counts = Counter[int]()
    for record in records:
        if record.is_unresolved and (unknown := set(record.members) - reached):
            newest.update(dict.fromkeys(unknown, record.number))
            counts[record.number] = 0
    counts.update(newest.values())
    return dict(counts)


def reached_by(records: Iterable[RequestRecord], members: set[bytes]) -> set[bytes]:
    """Return those of the recipients that an accepted request has."""
    reached: set[bytes] = set()
    if members:
        for record in records:
            if record.state is State.ACCEPTED:
                reached.update(members.intersection(record.members))
    return reached


def members_of(records: Iterable[RequestRecord]) -> set[bytes]:
    """Return the hashes of all recipients of requests."""
    return {member for record in records for member in record.members}


def by_reference(records: Iterable[RequestRecord]) -> list[RequestRecord]:
    """Return the newest request of each reference, in the order of the first ones."""
    return list({record.reference: record for record in records}.values())


def accepted_by_reference(records: Iterable[RequestRecord]) -> list[RequestRecord]:
    """Return the newest accepted request of each reference, with the recipients of all accepted ones of it.

    The service may reject a recipient from a request, and a manual resolution establish that an earlier one of the same
    reference was accepted for all.
    """
    accepted: dict[str, RequestRecord] = {}
    for record in records:
        if record.outcome is None or record.state is not State.ACCEPTED:
            continue
        earlier = accepted.get(record.reference)
        accepted[record.reference] = record
        if record.outcome.left_out and earlier is not None:
            reached = set(earlier.members)
            left_out = b"".join(one for one in split_members(record.outcome.left_out) if one not in reached)
            accepted[record.reference] = replace(record, outcome=record.outcome._replace(left_out=left_out))
    return list(accepted.values())
