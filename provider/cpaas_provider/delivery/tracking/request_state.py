"""The state of a campaign's request in the database of delivery reports."""

from __future__ import annotations

from enum import StrEnum


class RequestState(StrEnum):
    """What is known of a request. One without a row is pending: its task has not ended, or its journal is lost."""

    ACCEPTED = "accepted"
    UNKNOWN = "unknown"
    """The outcome of some of its recipients is unknown. Its reports count in addition to those of accepted requests."""

    SUPERSEDED = "superseded"
    """Its outcome is unknown, but each of its recipients is in a later request that counts instead."""

    NOT_SENT = "not_sent"
    """It was not sent, or rejected, for all of its recipients."""
