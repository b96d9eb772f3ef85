"""What becomes of messages, worked out from the promises alone: it imports nothing of the provider.

It records what happened and works out every answer from the whole record, so that order and timing cannot matter where
the promise says that they do not. Where the promise leaves something open, an answer is a range, or ``None``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from tests.unit.delivery.tracking.model.delivery_records import (
    RANKS,
    REACHED,
    UNDELIVERED,
    Campaign,
    Outcome,
    Report,
    Request,
)

_LONGEST_SEND = timedelta(days=7)
"""How long after its start a task has ended that never recorded its end."""

_LONGEST_UNFINISHED = timedelta(days=4)
"""How long after its end a send is kept for the publisher, although recipients have no final status."""


@dataclass(frozen=True)
class Range:
    """A figure. Its ends differ where the promise leaves it open, such as for a request that was sent again in part."""

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

    def begin_campaign(
        self, name: str, connection: str, operation: str = "send_sms", *, is_single: bool = False
    ) -> None:
        self.campaigns[name] = Campaign(name, connection, operation, is_single)

    def send(self, campaign: str, reference: str, recipients: Iterable[str]) -> None:
        """Record an intent."""
        known = self.campaigns[campaign]
        self.requests[reference] = Request(reference, campaign, known.connection, tuple(recipients))
        known.is_continued, known.is_begun_again = True, known.has_ended

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
        """Have a person decide an unknown outcome. That ends no try, and the campaign's wait follows it at once."""
        request = self.requests[reference]
        request.outcome = Outcome.ACCEPTED if is_sent else Outcome.NOT_SENT

    def report(
        self,
        connection: str,
        word: str,
        *,
        named: str | None,
        reference: str | None = None,
        message_id: str | None = None,
        at: datetime,
        by_webhook: bool = False,
        is_permanent: bool = False,
    ) -> None:
        """Store a report that was answered 200, by either endpoint."""
        self.reports.append(Report(connection, reference, message_id, named, word, at, by_webhook, is_permanent))
        for campaign in self.campaigns.values():
            campaign.erased_last &= campaign.connection != connection

    def end_campaign(self, name: str) -> None:
        """Have a try end. A request without a result has an unknown outcome from then on."""
        campaign = self.campaigns[name]
        campaign.has_ended, campaign.is_continued, campaign.is_begun_again = True, False, False
        campaign.since_end = timedelta()
        campaign.erased_last = False
        for request in self._requests_of(name):
            if request.outcome is Outcome.PENDING:
                request.outcome = Outcome.UNKNOWN

    def age(self, by: timedelta) -> None:
        """Have all reports be older."""
        for report in self.reports:
            report.at -= by
        for campaign in self.campaigns.values():
            campaign.since_start += by
            campaign.since_end += by

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
            # A report by message id cannot be matched before its request has one.
            is_early = request.outcome is Outcome.PENDING or campaign.is_continued
            if is_early or (status == "in_flight" and not is_named):
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
            request.is_open_to_doubt
            or self.has_strangers(request)
            or self._is_contradicted(request)
            or self._is_unnamed_and_repeated(request)
            for request in self._requests_of(name)
        )

    def _is_unnamed_and_repeated(self, request: Request) -> bool:
        """Tell whether nothing shows which recipient of another request of unknown outcome reports are about, too."""
        erased = self.campaigns[request.campaign].erased.intersection(request.recipients)
        is_unnamed = any(report.named is None for report in self._reports_of(request))
        return (bool(erased) or is_unnamed) and any(
            sibling is not request
            and sibling.outcome is request.outcome is Outcome.UNKNOWN
            and not set(sibling.recipients).isdisjoint(request.recipients)
            for sibling in self._requests_of(request.campaign)
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

    def sent_recipients(self, campaign: str) -> set[str]:
        """Return recipients whose request was accepted or is under way."""
        pending = [request for request in self._requests_of(campaign) if request.outcome is Outcome.PENDING]
        return self.accepted_recipients(campaign).union(*(request.recipients for request in pending))

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

    def is_superseded(self, request: Request) -> bool:
        """Tell whether all of a request of unknown outcome was sent again under other references, and accepted."""
        accepted = self.accepted_recipients(request.campaign)
        return request.outcome is Outcome.UNKNOWN and accepted.issuperset(request.recipients)

    def counted_rows(self, campaign: str) -> list[tuple[Request, str, str | None]]:
        """Return the rows without those of requests that were sent again: their reports change no figure."""
        return [row for row in self.rows(campaign) if not self.is_superseded(row[0])]

    def is_ambiguous(self, campaign: str) -> bool:
        """Tell whether only a part of an unknown request was sent again, so that its reports may count or not."""
        accepted = self.accepted_recipients(campaign)
        return any(
            request.outcome is Outcome.UNKNOWN
            and not accepted.isdisjoint(request.recipients)
            and not self.is_superseded(request)
            for request in self._requests_of(campaign)
        )

    def figures(self, campaign: str) -> dict[str, Range]:
        """Return expected, delivered, undelivered and open. Their sum holds in every case.

        They count messages: a recipient of two accepted requests counts twice.
        """
        rows = self.counted_rows(campaign)
        accepted = [row for row in rows if row[0].outcome is Outcome.ACCEPTED]
        unknown = [row for row in rows if row[0].outcome is Outcome.UNKNOWN]
        repeated = {recipient for _, recipient, _ in accepted}
        # A report of an unknown request need not count beside an accepted one to the same recipient.
        without_repeated = [row for row in unknown if row[1] not in repeated]
        countings = [
            _counted([status for _, _, status in accepted] + statuses)
            for some in (unknown, without_repeated)
            for statuses in ([status for _, _, status in some], _strongest(some))
        ]
        figures = {key: [each[key] for each in countings] for key in countings[0]}
        return {key: Range(min(each), max(each)) for key, each in figures.items()}

    def most_recipients(self, campaign: str) -> int:
        """Return how many recipients can be expected at most, in whatever the promise leaves open."""
        requests = self._requests_of(campaign)
        return sum(len(request.accepted or request.recipients) for request in requests)

    def reached(self, campaign: str) -> set[str]:
        return {recipient for _, recipient, status in self.rows(campaign) if status in REACHED}

    def undelivered(self, campaign: str) -> set[str]:
        """Return recipients that are reported as undelivered and reached by no message of the campaign."""
        failed = {recipient for _, recipient, status in self.counted_rows(campaign) if status in UNDELIVERED}
        return failed - self.reached(campaign)

    def open(self, campaign: str) -> set[str]:
        """Return accepted recipients without a final status by any message."""
        final = {recipient for _, recipient, status in self.rows(campaign) if status not in {None, "in_flight"}}
        return {recipient for _, recipient, _ in self.rows(campaign)} - final

    def has_open_message(self, campaign: str) -> bool:
        """Tell whether an accepted message has no final status, whatever another one to the same recipient came to."""
        return any(
            request.outcome is Outcome.ACCEPTED and status in {None, "in_flight"}
            for request, _, status in self.rows(campaign)
        )

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

    def outlives_prune(self, campaign: str) -> bool:
        """Tell whether a campaign is unfinished, and not so old that nobody looks for its end any more."""
        known = self.campaigns[campaign]
        if known.is_finished or known.is_pruned or (known.is_single and not known.has_ended):
            return False
        if known.has_ended and not known.is_begun_again:
            return known.since_end < _LONGEST_UNFINISHED
        return known.since_start < timedelta(days=8)

    def must_finish(self, campaign: str) -> bool | None:
        """Tell whether ``campaign_finished`` is due by now; ``None`` where the promise leaves it open."""
        known = self.campaigns[campaign]
        if known.is_finished:
            return True
        if not known.has_ended or known.is_begun_again:
            if known.is_single or known.since_start < _LONGEST_SEND:
                return False
            # Its try was killed for good, as far as anybody can tell.
            return None if known.is_pruned or known.has_ended else True
        if known.is_continued:
            return None
        if known.is_overdue and known.is_pruned and self.accepted_recipients(campaign) and not known.erased:
            # Its figures may be gone, but what is unfinished finishes, if it does so within the time of the publisher.
            return True if known.since_end < _LONGEST_UNFINISHED else None
        if not self._requests_of(campaign) or self.is_free(campaign) or not self.rows(campaign):
            return None
        if known.is_overdue:
            return None if known.erased else True
        if not self.is_complete(campaign):
            return False
        if known.erased_last:
            return False
        # After an erasure something else makes it finish, whenever that is.
        return None if known.erased or self.has_open_message(campaign) else True

    def verdict(self, campaign: str, min_delivered: float | None = None, *, with_unknown: bool = False) -> str | None:
        """Return what a sensor does at a look: ``wait``, ``succeed``, ``fail``; ``None`` where that is open.

        :param with_unknown: whether it waits for a report of each recipient of unknown outcome, too
        """
        figures = self.figures(campaign)
        if self.is_free(campaign) or any(figure.least != figure.most for figure in figures.values()):
            return None
        expected, delivered, remaining = (figures[key].least for key in ("expected", "delivered", "open"))
        if with_unknown:
            expected += len(self.unknown_recipients(campaign))
            remaining += len(self.unknown_recipients(campaign))
        if not expected:
            return None
        if min_delivered is None:
            return "wait" if remaining else "succeed"
        # A share of a few recipients is at least one of them.
        needed = max(1.0, min_delivered * expected)
        if delivered >= needed:
            return "succeed"
        return "fail" if delivered + remaining < needed else "wait"

    def is_listed(self, connection: str, recipient: str) -> bool | None:
        """Tell whether reports have the recipient on the suppression list; ``None`` where that is open.

        It is there if its newest permanent failure is newer than each report that it was reached. A failure of a
        message that reached it nevertheless does not count.
        """
        failures: list[datetime] = []
        arrivals: list[datetime] = []
        for report in self.reports:
            # One connection's report of another's message is open, as well as one that names nobody.
            names_it = report.named == recipient and report.connection == connection
            if names_it and (
                report.is_deleted or not any(report in self._reports_of(one) for one in self._sent_to(recipient))
            ):
                return None
        for request in self._sent_to(recipient):
            campaign = self.campaigns[request.campaign]
            if request.connection != connection:
                continue
            reports = list(self._reports_of(request))
            if campaign.is_pruned or recipient in campaign.erased or (reports and self.is_free(request.campaign)):
                return None
            if any(report.named is None and report.status in REACHED for report in reports):
                return None
            if request.outcome is Outcome.ACCEPTED and recipient not in request.accepted:
                continue
            is_airtime = campaign.operation == "buy_airtime"
            of_recipient = [report for report in reports if report.named == recipient]
            if not is_airtime:
                arrivals += [report.at for report in of_recipient if report.status in REACHED]
            if self.status(request, recipient) in UNDELIVERED:
                failures += [report.at for report in of_recipient if report.is_permanent]
        return bool(failures) and (not arrivals or max(arrivals) < max(failures))

    def _sent_to(self, recipient: str) -> list[Request]:
        return [request for request in self.requests.values() if recipient in request.recipients]


def _rank(status: str | None) -> int:
    return -1 if status is None else RANKS[status]


def _strongest(rows: Iterable[tuple[Request, str, str | None]]) -> list[str | None]:
    """Return the status of each recipient by any of its messages."""
    strongest: dict[str, str | None] = {}
    for _, recipient, status in rows:
        if recipient not in strongest or _rank(status) > _rank(strongest[recipient]):
            strongest[recipient] = status
    return list(strongest.values())


def _counted(statuses: Iterable[str | None]) -> dict[str, int]:
    counted = {"expected": 0, "delivered": 0, "undelivered": 0, "open": 0}
    for status in statuses:
        counted["expected"] += 1
        counted["delivered" if status in REACHED else "undelivered" if status in UNDELIVERED else "open"] += 1
    return counted
