"""A campaign from its first try to its last report: its tries, what Airflow knows of them, and the truth.

The world of deliveries has the requests, the reports and what becomes of both. Here are the tries around them: their
progress is recorded late, their end perhaps never, and a try that Airflow has replaced may still be at work.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from cpaas_provider.database.activity.progress import (
    CAMPAIGN,
    FAILED,
    FINISHED,
    RUNNING,
    WAITING,
    RecordedTask,
    record_progress,
)
from cpaas_provider.delivery.campaigns import Place, TaskState
from cpaas_provider.delivery.tracking.retention import prune
from tests.unit.delivery.tracking.model.delivery_records import REACHED, UNDELIVERED, Outcome, Request
from tests.unit.delivery.tracking.model.delivery_setting import Setting
from tests.unit.delivery.tracking.model.delivery_world import RECIPIENTS, DeliveryWorld

NAME = "spring"
PLACE: Place = ("dag", "run", NAME, -1)


class CampaignWorld:
    """One campaign to all recipients, and another one beside it that nothing may change.

    :param is_tracked: whether its recipients are recorded
    """

    def __init__(self, setting: Setting, *, is_tracked: bool) -> None:
        self.deliveries = DeliveryWorld(setting, tracked=(NAME,) if is_tracked else ())
        self.oracle = self.deliveries.oracle
        self._states = setting.task_states
        self.number = 0
        self.is_alive = False
        self.recorded: str | None = None
        """The state in the progress."""
        self.ends_at_service: set[str] = set()
        """References of the requests that the service got."""
        self.is_settled = False
        """Whether the last try ended in good order, and nothing happened since that only the next try records."""
        self.is_known_dead = False
        """Whether Airflow knows that a try is over that recorded no end."""
        self.erased: set[str] = set()
        self.replaced: tuple[int, dict[str, Any]] | None = None
        """A try that Airflow took for dead and that still runs: its number, and the last figures it knows."""
        self.in_flight: list[str] = []
        """Its requests that have not reached the service yet."""

    @property
    def reference(self) -> str:
        return self.deliveries.reference_of(NAME)

    # Tries.

    def begin(self) -> None:
        """Airflow starts a try, or resumes a deferred one."""
        if self.is_alive:
            return
        number = self.number if self.recorded == WAITING else self.number + 1
        self.number, self.is_alive, self.is_settled, self.is_known_dead = number, True, False, False
        for request in self._requests(Outcome.PENDING):
            # What an earlier try began has an unknown outcome.
            request.outcome = Outcome.UNKNOWN
        self._states[PLACE] = TaskState("running", number)
        self._record(RUNNING)

    def send(self, recipients: Sequence[str], *, arrives: bool) -> None:
        """Write an intent, and have the request reach the service or not."""
        sent = self.oracle.sent_recipients(NAME) | self._members(Outcome.UNKNOWN) | self._members(Outcome.REJECTED)
        remaining = [recipient for recipient in recipients if recipient not in sent]
        if self.is_alive and remaining:
            reference = self.deliveries.send(NAME, *remaining)
            self.oracle.campaigns[NAME].is_continued = True
            if arrives:
                self.ends_at_service.add(reference)

    def respond(self, number: int, *, is_lost: bool) -> None:
        """The service responds to a request of the present try, which records it, or gets no response."""
        if not (self.is_alive and (pending := self._requests(Outcome.PENDING))):
            return
        request = pending[number % len(pending)]
        if is_lost:
            request.outcome = Outcome.UNKNOWN
        elif request.reference in self.ends_at_service:
            self.deliveries.record(request.reference, Outcome.ACCEPTED)
        else:
            self.deliveries.record(request.reference, Outcome.REJECTED if number % 2 else Outcome.NOT_SENT)

    def progress(self) -> None:
        """The try records its progress."""
        if self.is_alive:
            self._record(RUNNING)

    def kill(self, *, still_runs: bool) -> None:
        """Kill the try, or have Airflow only believe so."""
        if self.is_alive:
            self.is_alive = False
            if still_runs:
                self.replaced = self.number, self.report()
                self.in_flight = [
                    request.reference
                    for request in self._requests(Outcome.PENDING)
                    if request.reference not in self.ends_at_service
                ]

    def notice(self, state: str) -> None:
        """Airflow notices that the try is over."""
        if not self.is_alive and self.recorded is not None and self._is_running():
            self._states[PLACE] = TaskState(state, self.number)
            self.is_known_dead = self.recorded == RUNNING

    def haunt(self) -> None:
        """A replaced try goes on: its requests reach the service, and it records its progress."""
        if self.replaced is None:
            return
        self.ends_at_service.update(self.in_flight)
        self.in_flight = []
        number, figures = self.replaced
        self._record(RUNNING, figures, number)

    def end(self, *, fails: bool, is_last: bool, dies: bool) -> None:
        """The try ends in good order, or is killed between its two records."""
        if not self.is_alive:
            return
        for request in self._requests(Outcome.PENDING):
            request.outcome = Outcome.UNKNOWN
        self.is_alive = False
        report = self.report()
        ends = not fails or is_last
        if fails:
            if ends and not dies:
                self.deliveries.end(NAME)
            self._record(FAILED, report)
        else:
            self._record(FINISHED, report)
            if not dies:
                self.deliveries.end(NAME)
        self._states[PLACE] = TaskState(
            "up_for_retry" if fails and not is_last else "failed" if fails else "success", self.number
        )
        self.is_settled = True

    def defer(self) -> None:
        """The try waits for later."""
        if self.is_alive:
            for request in self._requests(Outcome.PENDING):
                request.outcome = Outcome.UNKNOWN
            self.is_alive = False
            self._record(WAITING)
            self._states[PLACE] = TaskState("deferred", self.number)
            self.is_settled = True

    def clear(self) -> None:
        """Somebody clears the task. Airflow 3.3 keeps its journal."""
        if not self.is_alive and self.recorded is not None and self.recorded != WAITING:
            self._states[PLACE] = TaskState(None, self.number)
            self.is_known_dead = self.recorded == RUNNING

    def forget(self) -> None:
        """Somebody deletes the run in Airflow, which then has no state of its task."""
        if not self.is_alive and self._states.pop(PLACE, None) is not None:
            self.is_known_dead = False

    # What else happens.

    def report_delivery(self, number: int, word: str) -> None:
        """The service reports on a recipient of a request that it got."""
        arrived = [
            (reference, recipient)
            for reference in sorted(self.ends_at_service)
            for recipient in self.oracle.requests[reference].recipients
        ]
        if arrived:
            reference, recipient = arrived[number % len(arrived)]
            self.deliveries.report(reference, word, recipient)

    def resolve(self, number: int) -> None:
        """A person finds out what became of an unresolved request, and is right."""
        if self.is_alive or self.in_flight or self._is_running():
            return
        for request in self._requests(Outcome.PENDING):
            request.outcome = Outcome.UNKNOWN
        if unknown := self._requests(Outcome.UNKNOWN):
            request = unknown[number % len(unknown)]
            self.deliveries.resolve(request.reference, is_sent=request.reference in self.ends_at_service)

    def erase(self, recipient: str) -> None:
        self.deliveries.erase(recipient)
        self.erased.add(recipient)

    def prune(self) -> None:
        """Prune what is old, which is nothing."""
        database: Any = self.deliveries.database
        before = datetime.now(UTC) - timedelta(days=30)
        for _ in prune(database, before, before):
            pass

    def _is_running(self) -> bool:
        """Tell whether Airflow takes the task for running."""
        return PLACE in self._states and self._states[PLACE].state == "running"

    # Truth.

    def report(self) -> dict[str, Any]:
        """Return the report of the journal."""
        accepted = self.oracle.accepted_recipients(NAME) if self.number else set()
        unknown = self._members(Outcome.UNKNOWN) - accepted
        rejected = self._members(Outcome.REJECTED) - accepted - unknown
        counted = len(accepted) + len(unknown) + len(rejected)
        return {
            "recipients": len(RECIPIENTS),
            "sent": len(accepted),
            "rejected": len(rejected),
            "unknown_recipients": len(unknown),
            "not_sent": len(RECIPIENTS) - counted,
            "delivery_reports": "callback",
        }

    def got(self) -> set[str]:
        """Return the recipients of requests that the service got."""
        return {name for reference in self.ends_at_service for name in self.oracle.requests[reference].recipients}

    def status(self, recipient: str) -> str | None:
        """Return what the reports say of a recipient."""
        for reference in self.ends_at_service:
            request = self.oracle.requests[reference]
            if recipient in request.recipients:
                return self.oracle.status(request, recipient)
        return None

    def delivered(self) -> set[str]:
        return {recipient for recipient in RECIPIENTS if self.status(recipient) in REACHED}

    def undelivered(self) -> set[str]:
        return {recipient for recipient in RECIPIENTS if self.status(recipient) in UNDELIVERED}

    def _requests(self, outcome: Outcome) -> list[Request]:
        requests = self.oracle.requests.values()
        return [request for request in requests if request.campaign == NAME and request.outcome is outcome]

    def _members(self, outcome: Outcome) -> set[str]:
        return {recipient for request in self._requests(outcome) for recipient in request.recipients}

    def _record(self, state: str, figures: dict[str, Any] | None = None, number: int | None = None) -> None:
        number = number or self.number
        task = RecordedTask(self.reference, CAMPAIGN, "send_sms", "shop", *PLACE, number)
        known = self.report() if figures is None else figures
        self.deliveries.database.write(lambda connection: record_progress(connection, task, state, known))
        if number == self.number:
            self.recorded = state
