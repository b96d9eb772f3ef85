"""What is to be sent at most once, and the outcome over all tries."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeVar

from cpaas_provider.sending.journal.model import RequestRecord, State, by_reference, members_of, unresolved

if TYPE_CHECKING:
    from cpaas_provider.api.core import Call
    from cpaas_provider.api.rate_limit import Pace
    from cpaas_provider.api.settings import ClientSettings

T = TypeVar("T")


class OnUnknown(StrEnum):
    """What an author wants done about a request of unknown outcome."""

    FAIL = "fail"
    SKIP = "skip"
    RESEND = "resend"


class Client(Protocol):
    """What a send needs of ``AsyncCpaasClient``."""

    @property
    def settings(self) -> ClientSettings:
        """The settings of the connection."""

    @property
    def rate_limiter(self) -> Pace:
        """The moments at which requests leave."""

    async def run(self, call: Call[T]) -> T:
        """Run a call."""

    def stop(self) -> None:
        """Let no further request leave."""


class OutcomeProbe(Protocol):
    """A way to establish whether a request was accepted.

    ``max_wait`` is for how long after the intent a probe may still establish it.
    """

    max_wait: timedelta

    async def snapshot(self, client: Client) -> Any:
        """Return small JSON to record with the intent, ``None`` where there is nothing to record."""

    async def check(self, client: Client, entry: RequestRecord) -> dict[str, Any] | None:
        """Return the result of an accepted request, ``None`` where its outcome stays unknown.

        :raises RefutedError: when it was not accepted
        """


class SuppressionList(Protocol):
    """Recipients that are not sent to."""

    def find(self, recipients: Sequence[str]) -> Mapping[str, str]:
        """Return the reason of each of the recipients that is on the list. This may block."""


class FrequencyCap(Protocol):
    """Counts the messages of a send to recipients. A message of the same send is counted once, whatever its tries."""

    def reserve(self, recipients: Sequence[str]) -> Collection[str]:
        """Count a message to each recipient who may get one, and return the others. This may block."""

    def release(self, recipients: Sequence[str]) -> None:
        """Do not count the messages to recipients: they were not sent. This may block.

        :raises Exception: when another try may have taken the place of this one, and sent them
        """


class Delivery(Protocol):
    """What a send needs of delivery tracking."""

    def callback_url(self, reference: str, recipients: int) -> str | None:
        """Return where the service sends the delivery reports of a request."""


class RequestResult(NamedTuple):
    """What the service says of a request it accepted.

    :param details: small JSON that a single send makes its result from, in the place of id, charge and balance
    :param rejected: the recipients it does not go to, in lower case and without a plus
    :param rejection: why it does not go to them
    """

    id: str | None = None
    charge: float | None = None
    balance: float | None = None
    details: Mapping[str, Any] | None = None
    rejected: frozenset[str] = frozenset()
    rejection: str | None = None


@dataclass(frozen=True)
class SendSpec:
    """What a task instance sends at most once, in one request.

    :param operation: the operation's name
    :param recipients: normalised, each once
    :param body: the fields that are the same for all recipients
    :param personal: the values of the placeholders, by recipient
    :param probes: ways to establish an unknown outcome
    """

    operation: str
    recipients: tuple[str, ...] = field(repr=False)
    body: Mapping[str, Any] = field(repr=False)
    personal: Mapping[str, Any] | None = field(default=None, repr=False, kw_only=True)
    probes: Sequence[OutcomeProbe] = field(default=(), kw_only=True)

    async def prepared(self, client: Client) -> Self:
        """Return it with what has to be read from the service before the first intent."""
        return self

    def build_call(self, recipients: Sequence[str], reference: str, callback_url: str | None) -> Call[Any]:
        """Return the request to some of the recipients."""
        raise NotImplementedError

    def read_result(self, response: Any, *, repeated: bool) -> RequestResult:
        """Return what a response says.

        :param repeated: whether an earlier request to the same recipients may have been accepted
        :raises CpaasError: when it says that nothing was accepted
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Outcome:
    """The outcome of a send over all tries: its accepted requests, and those of unknown outcome.

    :param earlier: whether all of it was done by earlier tries, and this one made no request
    """

    accepted: tuple[RequestRecord, ...] = ()
    unknown: tuple[RequestRecord, ...] = ()
    earlier: bool = False

    @classmethod
    def of(cls, entries: Iterable[RequestRecord], *, earlier: bool = True) -> Self:
        """Return what requests came to."""
        entries = tuple(entries)
        accepted = by_reference(entry for entry in entries if entry.state is State.ACCEPTED)
        return cls(tuple(accepted), tuple(by_reference(unresolved(entries))), earlier)

    def __bool__(self) -> bool:
        """Tell whether anything was done, or may have been."""
        return bool(self.accepted or self.unknown)

    @property
    def sent(self) -> int:
        """Return how many recipients were surely sent to."""
        return len(members_of(self.accepted))

    @property
    def unknown_recipients(self) -> int:
        """Return how many may or may not have been sent to."""
        return len(members_of(self.unknown) - members_of(self.accepted))

    def report(self) -> dict[str, Any]:
        """Return counts and references as small JSON."""
        return {
            "recipients": self.sent,
            "references": [entry.reference for entry in self.accepted],
            "unknown_recipients": self.unknown_recipients,
            "unknown_references": [entry.reference for entry in self.unknown],
        }
