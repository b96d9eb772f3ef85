"""What happens in a world of deliveries as a list of steps, and the comparisons after it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from tests.unit.delivery.tracking.model.delivery_records import STRANGER, Outcome
from tests.unit.delivery.tracking.model.delivery_views import DeliveryViews
from tests.unit.delivery.tracking.model.delivery_world import ADDRESSES, DeliveryWorld


@dataclass(frozen=True)
class Step:
    """Something that happens.

    :param what: the name of a method of ``Script``
    """

    what: str
    arguments: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"{self.what}({', '.join(f'{name}={value!r}' for name, value in self.arguments.items())})"


class Script:
    """Steps on a world, and what is compared after them. A step that makes no sense then does nothing.

    While the database refuses, only reports arrive and sensors look: a task's writes are repeated at its end.
    """

    def __init__(self, world: DeliveryWorld, views: DeliveryViews) -> None:
        self.world = world
        self.views = views
        self.references: list[str] = []

    def run(self, steps: list[Step]) -> None:
        for step in steps:
            if self.world.database.is_down and step.what not in {"report", "rise", "edit_key", "compare"}:
                continue
            getattr(self, step.what)(**step.arguments)
        self.rise()
        for campaign in self.world.oracle.campaigns:
            self.world.end(campaign)
        lines = [*self.views.disagreements(), *self.views.publish()]
        if self.world.has_published:
            # Nothing comes twice.
            lines += self.views.publish()
        assert not lines, "\n".join(lines)

    def send(self, campaign: str, recipients: tuple[str, ...]) -> None:
        """Send to those to whom a try may send: nothing that is accepted or under way is sent again."""
        oracle = self.world.oracle
        if campaign == "letter":
            recipients = tuple(ADDRESSES[recipient] for recipient in recipients)
        sent = oracle.sent_recipients(campaign) if campaign in oracle.campaigns else set()
        remaining = [recipient for recipient in recipients if recipient not in sent]
        if remaining:
            self.references.append(self.world.send(campaign, *remaining))

    def send_single(self, kind: str, recipients: tuple[str, ...]) -> None:
        if kind == "receipt":
            recipients = tuple(ADDRESSES[recipient] for recipient in recipients)
        elif kind == "topup":
            recipients = recipients[:1]
        self.references.append(self.world.send_single(kind, *recipients))

    def record(self, number: int, outcome: Outcome, rejected: tuple[str, ...] = (), dies: str | None = None) -> None:
        if (reference := self._request(number)) and self._outcome(reference) is Outcome.PENDING:
            rejected = (*rejected, *(ADDRESSES[recipient] for recipient in rejected))
            recipients = self.world.oracle.requests[reference].recipients
            rejected = tuple(recipient for recipient in rejected if recipient in recipients)
            if outcome is Outcome.ACCEPTED and len(rejected) == len(recipients):
                outcome = Outcome.REJECTED
            self.world.record(reference, outcome, rejected=rejected, dies=dies)

    def resolve(self, number: int, is_sent: bool) -> None:
        if (reference := self._unresolved(number)) is not None:
            self.world.resolve(reference, is_sent=is_sent)

    def probe(self, number: int) -> None:
        """Have a try look for a report. Some recipients may have been accepted in another request."""
        if (reference := self._unresolved(number, is_partly_repeated=True)) is not None:
            request = self.world.oracle.requests[reference]
            is_reported = any(self.world.oracle.status(request, recipient) for recipient in request.recipients)
            is_free = request.statuses_at_erasure or self.world.oracle.has_strangers(request)
            assert self.world.probe(reference) == is_reported or is_free, "the probe differs from the reports"

    def report(self, number: int, word: str, named: int | str | None, by: str = "callback", **options: Any) -> None:
        if not (reference := self._request(number)):
            return
        request = self.world.oracle.requests[reference]
        if isinstance(named, int):
            named = request.recipients[named % len(request.recipients)]
        elif named == STRANGER and len(request.recipients) == 1:
            # Whether the only recipient is meant is open.
            named = None
        self.world.report(reference, word, named, by=by, **options)

    def overlap(self, number: int, word: str, by: str, is_report_first: bool) -> None:
        """Store a report and record its request at the same time."""
        if (reference := self._request(number)) and self._outcome(reference) is Outcome.PENDING:
            request = self.world.oracle.requests[reference]

            def record() -> None:
                self.world.record(reference, Outcome.ACCEPTED)

            def report() -> None:
                self.world.report(reference, word, request.recipients[0], by=by)

            self.world.overlap(*((report, record) if is_report_first else (record, report)))

    def end(self, campaign: str, dies: str | None = None) -> None:
        self.world.end(campaign, dies=dies)

    def erase(self, recipient: str, dies: tuple[int, str] | None = None) -> None:
        self.world.erase(recipient, dies=dies)

    def age(self, hours: float) -> None:
        self.world.age(timedelta(hours=hours))

    def prune(self) -> None:
        self.world.prune()

    def edit_key(self, conn_id: str, is_kept: bool) -> None:
        self.world.edit_key(conn_id, is_kept=is_kept)

    def edit_webhook_key(self, conn_id: str) -> None:
        self.world.edit_webhook_key(conn_id)

    def fall(self) -> None:
        self.world.fall()

    def rise(self) -> None:
        self.world.rise()

    def publish(self, dies: tuple[int, str] | None = None) -> None:
        lines = self.views.publish(dies)
        assert not lines, "\n".join(lines)

    def compare(self) -> None:
        lines = self.views.disagreements()
        assert not lines, "\n".join(lines)

    def _request(self, number: int) -> str | None:
        return self.references[number % len(self.references)] if self.references else None

    def _unresolved(self, number: int, *, is_partly_repeated: bool = False) -> str | None:
        """Return the reference of an unknown request of a campaign, unless its recipients were sent to again.

        :param is_partly_repeated: whether some of its recipients may have been accepted in another request
        """
        if not (reference := self._request(number)) or self._outcome(reference) is not Outcome.UNKNOWN:
            return None
        oracle = self.world.oracle
        request = oracle.requests[reference]
        if oracle.campaigns[request.campaign].is_single:
            return None
        repeated = oracle.sent_recipients(request.campaign).intersection(request.recipients)
        if is_partly_repeated and repeated < set(request.recipients):
            repeated -= oracle.accepted_recipients(request.campaign)
        return None if repeated else reference

    def _outcome(self, reference: str) -> Outcome:
        return self.world.oracle.requests[reference].outcome
