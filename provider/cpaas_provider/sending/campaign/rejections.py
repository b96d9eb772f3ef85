"""What a failed request means for its recipients, and for the campaign."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, StrEnum

from cpaas_provider.api.errors import (
    CpaasAuthenticationError,
    CpaasError,
    CpaasInsufficientBalanceError,
    CpaasRejectedError,
)
from cpaas_provider.sending.campaign.recipients import Recipient
from cpaas_provider.sending.journal.model import State

_ABOUT_THE_CONTENT = frozenset({200, 201, 202, 400, 413, 422})
"""Statuses under which a rejection may be about one of the recipients, or about how many they are."""


class OnRejectedBatch(StrEnum):
    """What an author wants done about a batch that is rejected as a whole."""

    BISECT = "bisect"
    FAIL = "fail"


class NextStep(Enum):
    """What a failure means for the rest of the campaign."""

    GO_ON = "go on"
    BISECT = "bisect"
    END = "end"


def classify(
    error: CpaasError, size: int, on_rejected_batch: OnRejectedBatch = OnRejectedBatch.BISECT
) -> tuple[State, NextStep]:
    """Return how a failed request to ``size`` recipients stands, and what follows from it."""
    if error.maybe_sent:
        return State.UNKNOWN, NextStep.GO_ON
    if not _may_be_about_recipients(error):
        return State.NOT_SENT, NextStep.END
    if size == 1 or on_rejected_batch is OnRejectedBatch.FAIL:
        return State.REJECTED, NextStep.GO_ON
    return State.NOT_SENT, NextStep.BISECT


def bisect(
    recipients: Sequence[Recipient], refused: frozenset[str]
) -> tuple[tuple[Recipient, ...], list[tuple[Recipient, ...]]]:
    """Return who of a rejected batch is refused by name, and the batches to try the others in.

    :param refused: the addresses the service names
    """
    named, rest = named_apart(recipients, refused)
    if named:
        return named, [rest] if rest else []
    half = len(recipients) // 2
    return (), [tuple(recipients[:half]), tuple(recipients[half:])]


def named_apart(
    recipients: Sequence[Recipient], named: frozenset[str]
) -> tuple[tuple[Recipient, ...], tuple[Recipient, ...]]:
    """Return those whose addresses the service names, and the others."""
    if not named:
        return (), tuple(recipients)
    refused = tuple(recipient for recipient in recipients if recipient.address.lower() in named)
    return refused, tuple(recipient for recipient in recipients if recipient.address.lower() not in named)


def _may_be_about_recipients(error: CpaasError) -> bool:
    if not isinstance(error, CpaasRejectedError) or error.is_message_error:
        return False
    if isinstance(error, (CpaasAuthenticationError, CpaasInsufficientBalanceError)):
        return False
    return error.status is None or error.status in _ABOUT_THE_CONTENT
