"""What becomes of messages, worked out from the promises alone: it imports nothing of the provider.

It records what happened and works out every answer from the whole record, so that order and timing cannot matter where
the promise says that they do not. Where the promise leaves something open, an answer is a range, or ``None``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
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
    :param is_deleted: an erasure removed it
    """

    connection: str
    reference: str | None
    message_id: str | None
    named: str | None
    word: str
    by_webhook: bool = False
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
    """One task's send."""

    name: str
    connection: str
    has_ended: bool = False
    is_continued: bool = False
    """A try is at work, which may have ended before."""
    is_overdue: bool = False
    is_pruned: bool = False
    erased: set[str] = field(default_factory=set)
    is_finished: bool = False
    erased_last: bool = False
    """Only an erasure left nobody open, which by itself starts no DAG."""


@dataclass(frozen=True)
class Range:
    """A figure. Its ends differ where the promise leaves it open, such as for a recipient with two messages."""

    least: int
    most: int

    def __contains__(self, figure: object) -> bool:
        return isinstance(figure, int) and self.least <= figure <= self.most

    def __str__(self) -> str:
        return str(self.least) if self.least == self.most else f"{self.least} to {self.most}"


class DeliveryOracle:
    """A world of connections, campaigns, requests, reports, prunes and erasures."""

    def __init__(self) -> None:
        self.campaigns: dict[str, Campaign] = {}
        self.requests: dict[str, Request] = {}
        self.reports: list[Report] = []

    # What happens.

    def begin_campaign(self, name: str, connection: str) -> None:
        self.campaigns[name] = Campaign(name, connection)

    def send(self, campaign: str, reference: str, recipients: Iterable[str]) -> None:
        """Record an intent."""
        connection = self.campaigns[campaign].connection
        self.requests[reference] = Request(reference, campaign, connection, tuple(recipients))
        self.campaigns[campaign].is_continued = True

    def record(
        self,
        reference: str,
        outcome: Outcome,
        *,
        rejected: Iterable[str] = (),
        message_id: str | None = None,
        is_tracked: bool = False,
    ) -> None:
        """Record a result.

        :param is_tracked: whether its recipients are recorded with it
        """
        request = self.requests[reference]
        request.is_tracked = is_tracked
        request.outcome, request.rejected, request.message_id = outcome, frozenset(rejected), message_id

    def resolve(self, reference: str, *, is_sent: bool) -> None:
        """Have a person decide an unknown outcome."""
        request = self.requests[reference]
        request.outcome = Outcome.ACCEPTED if is_sent else Outcome.NOT_SENT
        self.campaigns[request.campaign].is_continued = True

    def report(
        self,
        connection: str,
        word: str,
        *,
        named: str | None,
        reference: str | None = None,
        message_id: str | None = None,
        by_webhook: bool = False,
    ) -> None:
        """Store a report that was answered 200, by either endpoint."""
        self.reports.append(Report(connection, reference, message_id, named, word, by_webhook))

    def end_campaign(self, name: str) -> None:
        """Have a try end. A request without a result has an unknown outcome from then on."""
        self.campaigns[name].has_ended, self.campaigns[name].is_continued = True, False
        for request in self._requests_of(name):
            if request.outcome is Outcome.PENDING:
                request.outcome = Outcome.UNKNOWN

    def pass_days(self) -> None:
        """Have more time pass than a campaign is waited for."""
        for campaign in self.campaigns.values():
            campaign.is_overdue = True

    def prune(self, campaigns: Iterable[str]) -> None:
        """Delete what last changed long ago: the figures of these campaigns are open from then on."""
        for name in campaigns:
            self.campaigns[name].is_pruned = True

    def erase(self, recipient: str) -> None:
        """Erase one recipient. What it came to stays as a count, and one in flight is waited for no longer."""
        waited = {name for name in self.campaigns if not self.is_complete(name)}
        for request in self.requests.values():
            if recipient not in request.recipients:
                continue
            campaign = self.campaigns[request.campaign]
            campaign.erased.add(recipient)
            status = self.status(request, recipient)
            is_named = any(
                report.named == recipient and report.status and not report.is_deleted
                for report in self._reports_of(request)
            )
            is_early = request.outcome is Outcome.PENDING or campaign.is_continued
            if (is_named and is_early) or (status == "in_flight" and not is_named):
                # Whether a count stays of reports before their request, or of one that nobody is named in, is open.
                request.is_open_to_doubt.add(recipient)
            if is_named or request.is_tracked:
                # What is in flight counts as undelivered, but no report said so.
                request.statuses_at_erasure[recipient] = "undelivered" if status in {None, "in_flight"} else status
        for report in self.reports:
            if report.named == recipient:
                report.is_deleted = True
        for name in waited:
            self.campaigns[name].erased_last = self.campaigns[name].erased_last or self.is_complete(name)

    def note_finished(self, name: str) -> None:
        """Record that a campaign finished. That happens once."""
        self.campaigns[name].is_finished = True

    # What is true.

    def _reports_of(self, request: Request) -> Iterator[Report]:
        for report in self.reports:
            if report.connection != request.connection:
                continue
            if report.reference == request.reference or (report.message_id and report.message_id == request.message_id):
                yield report

    def status(self, request: Request, recipient: str) -> str | None:
        """Return the status of one recipient of one request, ``None`` where no report tells."""
        statuses = [
            report.status
            for report in self._reports_of(request)
            if not report.is_deleted
            and report.status is not None
            and (report.named == recipient or (report.named is None and len(request.recipients) == 1))
        ]
        if recipient in request.statuses_at_erasure:
            # An undelivered of an erasure is the lowest of all that any report says later.
            statuses.append(request.statuses_at_erasure[recipient])
        return max(statuses, key=RANKS.__getitem__, default=None)

    def has_strangers(self, request: Request) -> bool:
        """Tell whether a report names somebody else, who may take a place where recipients are not recorded."""
        if request.is_tracked and len(request.recipients) > 1:
            return False
        return any(report.named not in {None, *request.recipients} for report in self._reports_of(request))

    def is_free(self, name: str) -> bool:
        """Tell whether the promise leaves the figures of a campaign open."""
        return self.campaigns[name].is_pruned or any(
            request.is_open_to_doubt or self.has_strangers(request) or self._is_contradicted(request)
            for request in self._requests_of(name)
        )

    def _is_contradicted(self, request: Request) -> bool:
        """Tell whether reports speak of a request that by its result nobody got, or that the database cannot know.

        Nothing names the campaign of a report to the webhook while no accepted request is recorded for it.
        """
        if request.outcome is Outcome.UNKNOWN:
            return any(report.by_webhook for report in self._reports_of(request))
        return request.outcome in {Outcome.NOT_SENT, Outcome.REJECTED} and any(self._reports_of(request))

    def _requests_of(self, campaign: str) -> list[Request]:
        return [request for request in self.requests.values() if request.campaign == campaign]

    def rows(self, campaign: str) -> list[tuple[Request, str, str | None]]:
        """Return request, recipient and status of everybody who counts.

        Of an accepted request that is everybody accepted, of an unknown one only who was reported. Nothing counts of a
        pending request: once its result is recorded, its reports do.
        """
        rows: list[tuple[Request, str, str | None]] = []
        for request in self._requests_of(campaign):
            if request.outcome is Outcome.ACCEPTED:
                rows += [(request, recipient, self.status(request, recipient)) for recipient in request.accepted]
            elif request.outcome is Outcome.UNKNOWN:
                statuses = [(recipient, self.status(request, recipient)) for recipient in request.recipients]
                rows += [(request, recipient, status) for recipient, status in statuses if status is not None]
        return rows

    def accepted_recipients(self, campaign: str) -> set[str]:
        return {recipient for request in self._requests_of(campaign) for recipient in request.accepted}

    def unknown_recipients(self, campaign: str) -> set[str]:
        """Return recipients of whom nobody has established whether their request was accepted."""
        unknown = {
            recipient
            for request in self._requests_of(campaign)
            if request.outcome is Outcome.UNKNOWN
            for recipient in request.recipients
            if self.status(request, recipient) is None
        }
        return unknown - {recipient for _, recipient, _ in self.rows(campaign)}

    def figures(self, campaign: str) -> dict[str, Range]:
        """Return expected, delivered, undelivered and open. Their sum holds in every case."""
        rows = self.rows(campaign)
        by_recipient: dict[str, str | None] = {}
        for _, recipient, status in rows:
            if recipient not in by_recipient or _rank(status) > _rank(by_recipient[recipient]):
                by_recipient[recipient] = status
        by_row = _counted(status for _, _, status in rows)
        counted = _counted(by_recipient.values())
        return {key: Range(min(counted[key], by_row[key]), max(counted[key], by_row[key])) for key in counted}

    def reached(self, campaign: str) -> set[str]:
        return {recipient for _, recipient, status in self.rows(campaign) if status in REACHED}

    def undelivered(self, campaign: str) -> set[str]:
        """Return recipients that are reported as undelivered and reached by no message of the campaign."""
        return {recipient for _, recipient, status in self.rows(campaign) if status in UNDELIVERED} - self.reached(
            campaign
        )

    def open(self, campaign: str) -> set[str]:
        """Return accepted recipients without a final status by any message."""
        final = {recipient for _, recipient, status in self.rows(campaign) if status not in {None, "in_flight"}}
        return {recipient for _, recipient, _ in self.rows(campaign)} - final

    def clicked(self, campaign: str) -> set[str]:
        return {recipient for _, recipient, status in self.rows(campaign) if status == "clicked"}

    def goes_to_next_channel(self, campaign: str, people: Iterable[str]) -> set[str]:
        """Return who of a source gets the message on the next channel: everybody whom no message has reached."""
        return set(people) - self.reached(campaign)

    def conflicts(self, campaign: str) -> set[str]:
        """Return recipients that one request's reports name as both delivered and undelivered."""
        in_conflict = set()
        for request, recipient, _ in self.rows(campaign):
            statuses = {
                report.status
                for report in self._reports_of(request)
                if report.named == recipient or (report.named is None and len(request.recipients) == 1)
            }
            if statuses & REACHED and statuses & UNDELIVERED:
                in_conflict.add(recipient)
        return in_conflict

    def is_complete(self, campaign: str) -> bool:
        """Tell whether every recipient has a final status, those of an unknown outcome included."""
        return not self.open(campaign) and not self.unknown_recipients(campaign)

    def must_finish(self, campaign: str) -> bool | None:
        """Tell whether ``campaign_finished`` is due by now; ``None`` where the promise leaves it open."""
        known = self.campaigns[campaign]
        if known.is_finished:
            return True
        if not known.has_ended or known.is_continued:
            return None if known.is_overdue or known.has_ended else False
        if not self._requests_of(campaign) or self.is_free(campaign) or not self.rows(campaign):
            return None
        if known.is_overdue:
            return True
        if not self.is_complete(campaign):
            return False
        return None if known.erased_last else True

    def verdict(self, campaign: str, min_delivered: float | None = None) -> str | None:
        """Return what a sensor does at a look: ``wait``, ``succeed``, ``fail``; ``None`` where that is open."""
        figures = self.figures(campaign)
        if self.is_free(campaign) or any(figure.least != figure.most for figure in figures.values()):
            return None
        expected, delivered, remaining = (figures[key].least for key in ("expected", "delivered", "open"))
        if not expected:
            return None
        if min_delivered is None:
            return "wait" if remaining else "succeed"
        if delivered >= min_delivered * expected:
            return "succeed"
        return "fail" if delivered + remaining < min_delivered * expected else "wait"


def _rank(status: str | None) -> int:
    return -1 if status is None else RANKS[status]


def _counted(statuses: Iterable[str | None]) -> dict[str, int]:
    counted = {"expected": 0, "delivered": 0, "undelivered": 0, "open": 0}
    for status in statuses:
        counted["expected"] += 1
        counted["delivered" if status in REACHED else "undelivered" if status in UNDELIVERED else "open"] += 1
    return counted
