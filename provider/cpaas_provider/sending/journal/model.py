"""What the journal notes of one request, and how it stands in the task's state."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Self

JOURNAL_KEY = "cpaas_journal"
"""The key of the task's state under which the journal stands."""

NOTHING_SENT_KEY = "cpaas_nothing_sent"
"""The key under which a try notes that it ended before it claimed anything."""

CAMPAIGN_MARKER = "cpaas_campaign"
"""The key under which a task that sends a campaign with a key notes that the database holds a journal of it."""

CAMPAIGN_DATABASE = "cpaas_campaign_database"
"""What the names of Airflow's variables begin with that say in which database campaigns with a key lie: all workers
see them, and no file of theirs is needed for it."""

VERSION = 5


def claim_key(number: int) -> str:
    """Return the key under which the journal of few requests stands since a claim of theirs, the first being 0."""
    return JOURNAL_KEY if number == 0 else f"{JOURNAL_KEY}.{number}"


class State(StrEnum):
    """How a request stands, as far as anybody here knows."""

    PENDING = "pending"
    ACCEPTED = "accepted"
    NOT_SENT = "not_sent"
    REJECTED = "rejected"
    UNKNOWN = "unknown"


IN_DOUBT = frozenset({State.PENDING, State.UNKNOWN})
# What is known of a person is the strongest of what their requests came to.
_STRENGTH = {State.NOT_SENT: 0, State.REJECTED: 1, State.PENDING: 2, State.UNKNOWN: 2, State.ACCEPTED: 3}


@dataclass
class RequestRecord:
    """One request: whom it was for, what it said, and what became of it.

    :param reference: its name, the same in every try
    :param members: hashes of its recipients
    :param body: hash of what it says to all of them; ``None`` where that is lost
    :param personal: hashes of what it says to each, in the order of ``members``; ``None`` where nothing is personal
    :param started_at: when it was about to leave; ``None`` where that is lost
    :param try_number: the try that claimed it
    :param result: small JSON the operator makes its result from
    :param reason: why it is not settled, in words
    :param evidence: what was noted before it left, to know its outcome by
    :param doubted: whether an earlier request of the same reference is unknown, too
    :param resolution: ``sent`` or ``not_sent`` where a person decided
    """

    reference: str
    operation: str
    members: tuple[str, ...]
    state: State
    body: str | None = None
    personal: tuple[str, ...] | None = None
    started_at: datetime | None = None
    try_number: int | None = None
    result: dict[str, Any] | None = None
    reason: str | None = None
    evidence: Any = None
    doubted: bool = False
    resolution: str | None = None

    @property
    def in_doubt(self) -> bool:
        """Whether nobody here knows if the service acted."""
        return self.state in IN_DOUBT

    @property
    def strength(self) -> int:
        """How much it says about its members, against their other entries."""
        return _STRENGTH[self.state]

    def personal_of(self, member: str) -> str | None:
        """Return the hash of what it says to one member alone."""
        if self.personal is None:
            return None
        return dict(zip(self.members, self.personal, strict=True)).get(member)

    def divided(self, chosen: Callable[[str], bool]) -> tuple[Self, Self]:
        """Return it for those of its members that are chosen, and for the others."""
        personal = self.personal or [None] * len(self.members)
        both = []
        for wanted in (True, False):
            pairs = [pair for pair in zip(self.members, personal, strict=True) if chosen(pair[0]) is wanted]
            own = tuple(word for _, word in pairs if word is not None) if self.personal is not None else None
            both.append(dataclasses.replace(self, members=tuple(member for member, _ in pairs), personal=own))
        return both[0], both[1]

    def as_json(self) -> dict[str, Any]:
        """Return what is stored."""
        facts = {
            "operation": self.operation,
            "recipient_hashes": list(self.members),
            "state": self.state.value,
            "body": self.body,
            "personal": list(self.personal) if self.personal is not None else None,
            "started_at": self.started_at.isoformat() if self.started_at else None,
            "try_number": self.try_number,
            "result": self.result,
            "reason": self.reason,
            "probe_snapshot": self.evidence,
            "previous_unknown": self.doubted or None,
            "resolution": self.resolution,
        }
        return {name: fact for name, fact in facts.items() if fact is not None}

    @classmethod
    def from_json(cls, reference: str, facts: Mapping[str, Any]) -> Self:
        """Return what was stored."""
        personal, started_at = facts.get("personal"), facts.get("started_at")
        return cls(
            reference=reference,
            operation=facts["operation"],
            members=tuple(facts["recipient_hashes"]),
            state=State(facts["state"]),
            body=facts.get("body"),
            personal=tuple(personal) if personal is not None else None,
            started_at=datetime.fromisoformat(started_at) if started_at else None,
            try_number=facts.get("try_number"),
            result=facts.get("result"),
            reason=facts.get("reason"),
            evidence=facts.get("probe_snapshot"),
            doubted=bool(facts.get("previous_unknown")),
            resolution=facts.get("resolution"),
        )


def still_in_doubt(entries: Iterable[RequestRecord]) -> tuple[RequestRecord, ...]:
    """Return the requests in doubt that have somebody whom no other request surely reached."""
    entries = tuple(entries)
    reached = members_of(entry for entry in entries if entry.state is State.ACCEPTED)
    return tuple(entry for entry in entries if entry.in_doubt and not reached.issuperset(members_of([entry])))


def members_of(entries: Iterable[RequestRecord]) -> set[tuple[str, str]]:
    """Return whom requests are for, each once, by operation."""
    return {(entry.operation, member) for entry in entries for member in entry.members}


@dataclass
class Pages:
    """The whole journal of a task instance.

    :param key_id: tells which secret its hashes are keyed with
    :param clear_epoch: ``max_tries`` of the task instance when it was last written; a clear changes that
    :param resend_epoch: counts deliberate repetitions of the whole send
    :param lost: why nobody can tell what was sent to people without an entry, where that is so
    """

    key_id: str
    clear_epoch: int
    resend_epoch: int = 0
    lost: str | None = None
    entries: dict[str, RequestRecord] = field(default_factory=dict)
    claims: int = 0
    """How many claims it was written for, one less than there are keys of it; not stored."""

    def as_json(self) -> dict[str, Any]:
        """Return what is stored."""
        return {
            "version": VERSION,
            "key_id": self.key_id,
            "clear_epoch": self.clear_epoch,
            "resend_epoch": self.resend_epoch,
            **({"lost": self.lost} if self.lost else {}),
            "requests": {reference: entry.as_json() for reference, entry in self.entries.items()},
        }

    @classmethod
    def from_json(cls, stored: Any) -> Self:
        """Return what was stored.

        :raises ValueError: when it is no journal of this version
        """
        try:
            if stored["version"] != VERSION:
                raise ValueError(f"its version is {stored['version']}")
            return cls(
                key_id=stored["key_id"],
                clear_epoch=stored["clear_epoch"],
                resend_epoch=stored["resend_epoch"],
                lost=stored.get("lost"),
                entries={name: RequestRecord.from_json(name, facts) for name, facts in stored["requests"].items()},
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"it cannot be read ({type(error).__name__})") from None

    @classmethod
    def read(cls, get: Callable[[str], Any]) -> Self | None:
        """Return the newest there is; ``None`` where there is none.

        Each claim is written under a key of its own, with all that was there before. So a late copy of an earlier
        write never hides a claim; of what became of one it does, which counts as unknown then.

        :raises ValueError: when it is no journal of this version
        """
        stored, claims = get(JOURNAL_KEY), 0
        if stored is None:
            return None
        found = cls.from_json(stored)
        while (following := get(claim_key(claims + 1))) is not None:
            found, claims = cls.from_json(following), claims + 1
        found.claims = claims
        return found
