"""What is to happen once, and what became of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any, Protocol, Self

from cpaas_provider.sending.journal.model import RequestRecord, State, by_reference, members_of, unresolved


class OnUnknown(StrEnum):
    """What an author wants done about a request whose outcome nobody can find out."""

    FAIL = "fail"
    SKIP = "skip"
    RESEND = "resend"


class OutcomeProbe(Protocol):
    """A way to find out whether a request was carried out.

    ``max_wait`` is for how long after the claim it may still learn something.
    """

    max_wait: timedelta

    def snapshot(self, client: Any) -> Any:
        """Return small JSON to note with the claim, ``None`` where there is nothing to note."""

    def check(self, client: Any, entry: RequestRecord) -> dict[str, Any] | None:
        """Return the result of a request that was carried out, ``None`` where that cannot be told.

        :raises RefutedError: when it came to nothing
        """


@dataclass(frozen=True)
class SendSpec:
    """What a task instance is to do once.

    :param operation: the operation's name
    :param recipients: whom it reaches, normalised, each once
    :param body: what it says to all of them
    :param personal: what it says to each of them alone
    :param send: makes the request to some of the recipients under a reference, ``again`` telling that an earlier
        request to them is unknown; returns small JSON, or raises CpaasError or PartlyRejectedError
    :param preflight: called where something is to be sent, before it is claimed; raises where it may not be
    :param probes: ways to find out what became of it
    """

    operation: str
    recipients: tuple[str, ...] = field(repr=False)
    body: Mapping[str, Any] = field(repr=False)
    send: Callable[[tuple[str, ...], str, bool], dict[str, Any]]
    personal: Mapping[str, Any] | None = field(default=None, repr=False)
    preflight: Callable[[], None] = lambda: None
    evidence: Sequence[OutcomeProbe] = ()


@dataclass(frozen=True)
class Outcome:
    """What became of a deed over all tries: requests that were carried out, and those nobody knows of.

    :param earlier: whether all of it was done by earlier tries, and this one made no request
    """

    settled: tuple[RequestRecord, ...] = ()
    unknown: tuple[RequestRecord, ...] = ()
    earlier: bool = False

    @classmethod
    def of(cls, entries: Iterable[RequestRecord], *, earlier: bool = True) -> Self:
        """Return what requests came to."""
        entries = tuple(entries)
        settled = by_reference(entry for entry in entries if entry.state is State.ACCEPTED)
        return cls(tuple(settled), tuple(by_reference(unresolved(entries))), earlier)

    def __bool__(self) -> bool:
        """Tell whether anything was done, or may have been."""
        return bool(self.settled or self.unknown)

    @property
    def sent(self) -> int:
        """Return how many recipients were surely sent to."""
        return len(members_of(self.settled))

    @property
    def doubtful(self) -> int:
        """Return how many may or may not have been sent to."""
        return len(members_of(self.unknown) - members_of(self.settled))

    def report(self) -> dict[str, Any]:
        """Return counts and references as small JSON."""
        return {
            "recipients": self.sent,
            "references": [entry.reference for entry in self.settled],
            "unknown_recipients": self.doubtful,
            "unknown_references": [entry.reference for entry in self.unknown],
        }
