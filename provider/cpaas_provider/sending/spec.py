"""What is to be sent at most once, and the outcome over all tries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any, Protocol, Self

from cpaas_provider.sending.journal.model import RequestRecord, State, by_reference, members_of, unresolved


class OnUnknown(StrEnum):
    """What an author wants done about a request of unknown outcome."""

    FAIL = "fail"
    SKIP = "skip"
    RESEND = "resend"


class OutcomeProbe(Protocol):
    """A way to establish whether a request was accepted.

    ``max_wait`` is for how long after the intent a probe may still establish it.
    """

    max_wait: timedelta

    def snapshot(self, client: Any) -> Any:
        """Return small JSON to record with the intent, ``None`` where there is nothing to record."""

    def check(self, client: Any, entry: RequestRecord) -> dict[str, Any] | None:
        """Return the result of an accepted request, ``None`` where its outcome stays unknown.

        :raises RefutedError: when it was not accepted
        """


@dataclass(frozen=True)
class SendSpec:
    """What a task instance sends at most once.

    :param operation: the operation's name
    :param recipients: normalised, each once
    :param body: the fields that are the same for all recipients
    :param send: makes the request to some of the recipients under a reference. Its third argument tells whether an
        earlier request to them is unknown. Returns small JSON, or raises CpaasError or PartlyRejectedError
    :param personal: the values of the placeholders, by recipient
    :param preflight: called before the first intent; raises where the task may not send
    :param probes: ways to establish an unknown outcome
    """

    operation: str
    recipients: tuple[str, ...] = field(repr=False)
    body: Mapping[str, Any] = field(repr=False)
    send: Callable[[tuple[str, ...], str, bool], dict[str, Any]]
    personal: Mapping[str, Any] | None = field(default=None, repr=False)
    preflight: Callable[[], None] = lambda: None
    probes: Sequence[OutcomeProbe] = ()


@dataclass(frozen=True)
class Outcome:
    """The outcome of a send over all tries: its accepted requests, and those of unknown outcome.

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
