"""What is requested once: the base of messages, passcodes, purchases and new rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from cpaas_provider._common.records import PrivateRecord
from cpaas_provider.sending.journal.model import State

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from cpaas_provider.api.settings import ClientSettings
    from cpaas_provider.sending.spec import OutcomeProbe, SendOutcome, SendSpec


class SendSettings(Protocol):
    """What a request needs of its connection."""

    @property
    def settings(self) -> ClientSettings:
        """The settings of the client."""

    @property
    def sender_id(self) -> str | None:
        """The default sender of SMS."""

    @property
    def email_sender_id(self) -> str | None:
        """The default sender of emails."""

    @property
    def recipients_per_request(self) -> int:
        """The most recipients of one request."""

    @property
    def placeholder_format(self) -> str:
        """How the service writes the placeholder called ``name``."""


class SuppressionScope(NamedTuple):
    """The entries of the suppression list that count for a request.

    :param channel: their channel
    :param reasons: their reasons; ``None`` for all
    """

    channel: str
    reasons: Collection[str] | None = None


class SingleRequest(PrivateRecord, frozen=True):
    """What is to be requested once."""

    is_message: ClassVar[bool] = False
    """Whether the frequency cap counts it."""

    @property
    def operation(self) -> str:
        """The name of the operation."""
        raise NotImplementedError

    @property
    def suppression_scope(self) -> SuppressionScope | None:
        """The entries of the suppression list that count; ``None`` if the list does not count."""
        return None

    def build_spec(self, connection: SendSettings, probes: Sequence[OutcomeProbe] = ()) -> SendSpec:
        """Return what is to be sent, checked as far as possible before anything leaves.

        :param probes: ways to establish an unknown outcome, beside those of the request itself
        :raises InvalidRequestError: when it cannot be sent as it is
        :raises NoRecipientsError: when ``allowed_recipients`` leaves out every recipient
        """
        raise NotImplementedError

    def result(self, outcome: SendOutcome) -> dict[str, Any]:
        """Return the result as small JSON, from the results of all tries."""
        raise NotImplementedError


def latest_result(outcome: SendOutcome) -> dict[str, Any]:
    """Return the result of the accepted request to the recipient of this try, empty where none was accepted."""
    latest = outcome.latest
    # An earlier try may have made another request, to another recipient.
    return (latest.result if latest is not None and latest.state is State.ACCEPTED else None) or {}
