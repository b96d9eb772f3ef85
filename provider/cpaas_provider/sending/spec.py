"""The send spec (what to send at most once), its ports, and the outcome over all tries."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self, TypeVar

from msgspec import Struct

from cpaas_provider._common.records import PrivateRecord
from cpaas_provider.sending.journal.model import (
    RequestRecord,
    accepted_by_reference,
    members_of,
    unresolved_by_reference,
)

if TYPE_CHECKING:
    from cpaas_provider.api.core import Call, RunnableCall
    from cpaas_provider.api.rate_limit import Pace, RequestGuard
    from cpaas_provider.api.settings import ClientSettings

T = TypeVar("T")


def channel_of(operation: str, body: Mapping[str, Any]) -> str:
    """Return the channel of a message: ``sms``, ``whatsapp`` or ``email``."""
    # The scope of an idempotency_key may follow the name of the operation.
    return "email" if operation.partition("/")[0] == "send_email" else str(body.get("channel") or "sms")


class OnUnknown(StrEnum):
    """What to do about a request of unknown outcome."""

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
        """The rate limit."""

    @property
    def guard(self) -> RequestGuard | None:
        """May refuse requests, and knows whether a budget needs a price."""

    async def run(self, call: RunnableCall[T]) -> T:
        """Run a call."""

    def stop(self) -> None:
        """Let no further request leave."""


class OutcomeProbe(Protocol):
    """A way to establish whether a request was accepted."""

    max_wait: timedelta
    """How long after its intent the outcome of a request may be established."""

    async def snapshot(self, client: Client) -> Any:
        """Return small JSON to record with the intent; ``None`` for nothing."""

    async def check(self, client: Client, entry: RequestRecord) -> dict[str, Any] | None:
        """Return the result of an accepted request; ``None`` if its outcome stays unknown.

        :raises RefutedError: when the request was not accepted
        """


class UnknownPolicy(NamedTuple):
    """What to do about requests of unknown outcome.

    :param on_unknown: what to do if no probe establishes the outcome
    :param unknown_timeout: how long after its intent a request is probed
    :param probes: ways to establish an outcome
    """

    on_unknown: OnUnknown = OnUnknown.FAIL
    unknown_timeout: timedelta = timedelta(minutes=10)
    probes: Sequence[OutcomeProbe] = ()


class SuppressionList(Protocol):
    """The stored suppression list."""

    def find(self, recipients: Sequence[str]) -> Mapping[str, str]:
        """Return the recipients that are on the list, with their reasons. This may block."""


class FrequencyCap(Protocol):
    """Counts messages to recipients. A message of one send counts once, however many tries the send has."""

    def reserve(self, recipients: Sequence[str]) -> Collection[str]:
        """Count a message to each recipient below the cap, and return the other recipients. This may block."""

    def release(self, recipients: Sequence[str]) -> None:
        """Uncount the messages to recipients, because they were not sent. This may block.

        :raises Exception: when another try may have replaced this one and sent the messages
        """


class Delivery(Protocol):
    """What a send needs of delivery tracking."""

    def callback_url(self, reference: str, recipients: int) -> str | None:
        """Return the URL for the delivery reports of a request; ``None`` for no delivery reports."""


class RequestResult(NamedTuple):
    """The result of an accepted request.

    :param id: the service's id of the message
    :param details: small JSON from which a single send makes its XCom, instead of id, charge and balance
    :param rejected: the recipients that the service rejected from the request, in lower case and without a plus
    :param rejection: why it rejected them; ``None`` if it rejected none
    """

    id: str | None = None
    charge: float | None = None
    balance: float | None = None
    details: Mapping[str, Any] | None = None
    rejected: frozenset[str] = frozenset()
    rejection: str | None = None


class SendSpec(PrivateRecord, frozen=True):
    """What a task instance sends at most once, in one request.

    :param operation: the name of the operation
    :param recipients: the normalised recipients, without duplicates
    :param body: the fields that are the same for all recipients
    :param personal: the values of the placeholders, by recipient; ``None`` without placeholders
    :param probes: ways to establish an unknown outcome
    :param not_allowed: the number of recipients that ``allowed_recipients`` left out
    """

    operation: str
    recipients: tuple[str, ...]
    body: Mapping[str, Any]
    personal: Mapping[str, Any] | None = None
    probes: Sequence[OutcomeProbe] = ()
    not_allowed: int = 0
    carries_reference: ClassVar[bool] = True
    """Whether the service knows the reference, so that what a probe finds can only be of a request with it."""
    is_known_by_recipient: ClassVar[bool] = False
    """Whether what the service says of a request may be about another one to the same recipient."""

    async def prepared(self, client: Client) -> Self:
        """Return the spec, completed by what must be read from the service before the intent."""
        return self

    def build_call(self, recipients: Sequence[str], reference: str, callback_url: str | None) -> Call[Any]:
        """Return the request to some of the recipients."""
        raise NotImplementedError

    def read_result(self, response: Any, *, repeated: bool) -> RequestResult:
        """Return the result that a response states.

        :param repeated: whether an earlier request to the same recipients may have been accepted
        :raises CpaasError: when it states that nothing was accepted
        """
        raise NotImplementedError


class SendOutcome(Struct, frozen=True):
    """The outcome of a send over all tries.

    :param accepted: the accepted requests
    :param unknown: the requests of unknown outcome
    :param earlier: whether this try made no request, so that all requests are of earlier tries
    :param not_allowed: the number of recipients that ``allowed_recipients`` left out
    :param suppressed: the number of recipients that the suppression list left out
    :param capped: the number of recipients that the frequency cap left out
    :param latest: the newest request that decides the status of a recipient of this try; ``None`` without one
    :param is_of_this_content: whether its content, apart from placeholder values, is certainly that of this try
    """

    accepted: tuple[RequestRecord, ...] = ()
    unknown: tuple[RequestRecord, ...] = ()
    earlier: bool = False
    not_allowed: int = 0
    suppressed: int = 0
    capped: int = 0
    latest: RequestRecord | None = None
    is_of_this_content: bool = True

    @classmethod
    def of(
        cls,
        entries: Iterable[RequestRecord],
        *,
        earlier: bool = True,
        not_allowed: int = 0,
        suppressed: int = 0,
        capped: int = 0,
    ) -> Self:
        """Return the outcome of requests."""
        entries = tuple(entries)
        accepted, unknown = tuple(accepted_by_reference(entries)), tuple(unresolved_by_reference(entries))
        return cls(accepted, unknown, earlier, not_allowed, suppressed, capped)

    def __bool__(self) -> bool:
        """Return whether a request was accepted, or may have been."""
        return bool(self.accepted or self.unknown)

    @property
    def sent(self) -> int:
        """The number of recipients that the service accepted."""
        return len(members_of(self.accepted))

    @property
    def unknown_recipients(self) -> int:
        """The number of recipients of unknown outcome."""
        return len(members_of(self.unknown) - members_of(self.accepted))

    def report(self) -> dict[str, Any]:
        """Return counts and references as small JSON."""
        return {
            "recipients": self.sent,
            "references": [entry.reference for entry in self.accepted],
            "unknown_recipients": self.unknown_recipients,
            "unknown_references": [entry.reference for entry in self.unknown],
        }
