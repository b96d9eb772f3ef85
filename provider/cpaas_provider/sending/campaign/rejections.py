"""What a failed request means: the state of the request, and how the campaign continues."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, StrEnum

from cpaas_provider.api.errors import (
    CpaasAuthenticationError,
    CpaasError,
    CpaasInsufficientBalanceError,
    CpaasRejectedError,
)
from cpaas_provider.api.recipients.reader import recipient_key
from cpaas_provider.sending.campaign.recipients import Recipient
from cpaas_provider.sending.journal.model import State

_ABOUT_THE_CONTENT = frozenset({200, 201, 202, 400, 413, 422})
"""HTTP statuses of rejections that one recipient, or the number of recipients, may cause."""


class OnRejectedBatch(StrEnum):
    """What to do about a batch that is rejected as a whole."""

    BISECT = "bisect"
    FAIL = "fail"


class NextStep(Enum):
    """What a failure means for the rest of the campaign."""

    GO_ON = "go on"
    BISECT = "bisect"
    END = "end"


def decide_after_failure(
    error: CpaasError, size: int, on_rejected_batch: OnRejectedBatch = OnRejectedBatch.BISECT
) -> tuple[State, NextStep]:
    """Return the state of a failed request to ``size`` recipients, and how the campaign continues."""
    if error.maybe_sent:
        return State.UNKNOWN, NextStep.GO_ON
    if not _may_be_about_recipients(error):
        return State.NOT_SENT, NextStep.END
    if size == 1 or on_rejected_batch is OnRejectedBatch.FAIL:
        return State.REJECTED, NextStep.GO_ON
    return State.NOT_SENT, NextStep.BISECT


def bisect(
    recipients: Sequence[Recipient], rejected: frozenset[str]
) -> tuple[tuple[Recipient, ...], list[tuple[Recipient, ...]]]:
    """Return the rejected recipients of a batch, and the smaller batches to send the others in.

    :param rejected: the addresses that the service names, in lower case. If there are none, the batch is halved
    """
    named, remaining = split_by_name(recipients, rejected)
    if named:
        return named, [remaining] if remaining else []
    half = len(recipients) // 2
    return (), [tuple(recipients[:half]), tuple(recipients[half:])]


def split_by_name(
    recipients: Sequence[Recipient], addresses: frozenset[str]
) -> tuple[tuple[Recipient, ...], tuple[Recipient, ...]]:
    """Return the recipients with one of the addresses, as ``recipient_key`` returns them, and the other recipients."""
    if not addresses:
        return (), tuple(recipients)
    named = tuple(recipient for recipient in recipients if recipient_key(recipient.address) in addresses)
    return named, tuple(recipient for recipient in recipients if recipient_key(recipient.address) not in addresses)


def _may_be_about_recipients(error: CpaasError) -> bool:
    if not isinstance(error, CpaasRejectedError) or error.is_message_error:
        return False
    if isinstance(error, (CpaasAuthenticationError, CpaasInsufficientBalanceError)):
        return False
    return error.status is None or error.status in _ABOUT_THE_CONTENT
