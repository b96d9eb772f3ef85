"""What the oracle of deliveries records: requests, reports and campaigns. It imports nothing of the provider."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum

RANKS = {"clicked": 5, "opened": 4, "bounced": 3, "delivered": 2, "undelivered": 1, "in_flight": 0}
REACHED = frozenset({"clicked", "opened", "delivered"})
UNDELIVERED = frozenset({"bounced", "undelivered"})
STATUS_OF_WORD = {
    "clicked": "clicked",
    "opened": "opened",
    "bounced": "bounced",
    "delivered": "delivered",
    "success": "delivered",
    **dict.fromkeys(("undelivered", "failed", "rejected", "expired", "error", "duplicate"), "undelivered"),
    **dict.fromkeys(("pending", "queued", "scheduled", "accepted", "submitted", "processing", "sent"), "in_flight"),
}
STRANGER = "a stranger"
"""A recipient that a report names and that is in no request."""


class Outcome(Enum):
    """What is known of a request. ``PENDING`` is an intent without a result."""

    PENDING = "pending"
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    NOT_SENT = "not_sent"
    UNKNOWN = "unknown"


@dataclass
class Report:
    """A report that was answered 200.

    :param connection: whose token or signature proved it
    :param reference: reference of the request that the token or the body names, ``None`` if it names a message id
    :param named: the recipient, ``STRANGER``, or ``None`` where it names nobody
    :param at: when it was made, by itself or else by its arrival
    :param is_permanent: it reports a permanent failure
    :param is_deleted: an erasure removed it
    """

    connection: str
    reference: str | None
    message_id: str | None
    named: str | None
    word: str
    at: datetime
    by_webhook: bool = False
    is_permanent: bool = False
    is_deleted: bool = False

    @property
    def status(self) -> str | None:
        return STATUS_OF_WORD.get(self.word)


@dataclass
class Request:
    """One request of a campaign."""

    reference: str
    campaign: str
    connection: str
    recipients: tuple[str, ...]
    outcome: Outcome = Outcome.PENDING
    rejected: frozenset[str] = frozenset()
    message_id: str | None = None
    is_tracked: bool = False
    """Whether its recipients are recorded."""
    statuses_at_erasure: dict[str, str] = field(default_factory=dict)
    is_open_to_doubt: set[str] = field(default_factory=set)
    """Recipients of whom the promise leaves the status open."""

    @property
    def accepted(self) -> tuple[str, ...]:
        if self.outcome is not Outcome.ACCEPTED:
            return ()
        return tuple(recipient for recipient in self.recipients if recipient not in self.rejected)


@dataclass
class Campaign:
    """One task's send, or one request that belongs to none.

    :param operation: ``send_sms``, ``send_email`` or ``buy_airtime``
    """

    name: str
    connection: str
    operation: str = "send_sms"
    is_single: bool = False
    has_ended: bool = False
    is_continued: bool = False
    """A try is at work, which may have ended before."""
    is_begun_again: bool = False
    """The try at work has recorded that it began, after an earlier one ended."""
    since_start: timedelta = timedelta()
    since_end: timedelta = timedelta()
    is_pruned: bool = False
    erased: set[str] = field(default_factory=set)
    is_finished: bool = False
    erased_last: bool = False
    """Only an erasure left nobody open, which by itself starts no DAG."""

    @property
    def is_overdue(self) -> bool:
        """More time has passed since the end of the task than its campaign is waited for."""
        return self.has_ended and not self.is_continued and self.since_end > timedelta(hours=72)
