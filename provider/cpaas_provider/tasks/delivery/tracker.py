"""Where the delivery reports of a task's requests go, and what the provider's database records of the requests."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection

from cpaas_provider.api.models.airtime import PurchaseOutcome, purchase_outcome
from cpaas_provider.database.database import Database
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.delivery.callbacks.receiver_check import (
    HandshakeRefusedError,
    ReceiverClient,
    ReceiverUnreachableError,
)
from cpaas_provider.delivery.reports import normalise_recipient
from cpaas_provider.delivery.tracking import counts
from cpaas_provider.delivery.tracking.events import record_finished_before_prune
from cpaas_provider.delivery.tracking.sent_requests import (
    SentRequest,
    TrackedSend,
    record_recipients,
    record_requests,
    record_send_finished,
    record_send_started,
    record_states,
)
from cpaas_provider.sending.errors import RefutedError
from cpaas_provider.sending.shutdown import in_thread
from cpaas_provider.tasks.errors import PreflightError

if TYPE_CHECKING:
    from cpaas_provider.sending.journal.model import RequestRecord
    from cpaas_provider.sending.spec import Client, SendOutcome
    from cpaas_provider.tasks.runtime import TaskRuntime

log = logging.getLogger(__name__)

_REQUESTS_PER_WRITE = 500
_TRACKED_REQUESTS_PER_WRITE, _RECIPIENTS_PER_WRITE = 50, 2000
"""The most requests of which the recipients are recorded in one transaction, and the most recipients of several."""

_WRITE_INTERVAL = 1.0
_READ_AGAIN_AFTER = 1.0
"""Seconds for which confirmed requests are not read again: a probe is asked about one request after the other."""


@dataclass(eq=False, repr=False)
class DeliveryTracker:
    """Records the requests of a task instance, and returns the URLs for their delivery reports.

    :param track_recipients: whether to record the recipients, too
    :param conn_id: the id of the connection by which the receiver finds its secrets
    """

    operation: str
    runtime: TaskRuntime
    track_recipients: bool
    conn_id: str

    @cached_property
    def _receiver(self) -> ReceiverClient:
        connection = self.runtime.connection
        if connection.callback_url is None:
            raise ValueError("a connection without callback_url has no receiver")
        return ReceiverClient(connection.callback_url, self.conn_id, connection.hash_secrets[0], connection.options)

    @property
    def database(self) -> Database:
        """The provider's database, which a try opens once.

        :raises DatabaseError: when it cannot be opened
        """
        return self.runtime.database

    def begin(self) -> None:
        """Check that the receiver stores reports in this database, before anything is sent.

        :raises PreflightError: when reports would be lost, or the database cannot be used now
        """
        try:
            self._receiver.check(self.database.identity, self.database.redacted_url)
        except DatabaseError as error:
            raise PreflightError(
                f"{error} The connection has a callback_url, so delivery reports need this database. Nothing was sent.",
                permanent=False,
            ) from None
        except HandshakeRefusedError as error:
            raise PreflightError(f"{error} Nothing was sent.", permanent=True) from None
        except ReceiverUnreachableError as error:
            log.warning(
                "%s The provider cannot check that the receiver uses the same database. Sending continues. If the "
                "service cannot reach the receiver either, it sends its reports again.",
                error,
            )

    def url(self, campaign: str, reference: str, recipients: int) -> str:
        """Return the URL for the delivery reports of one request."""
        return self._receiver.url(campaign, reference, recipients)

    def record_begin(self, campaign: str, first_day: date | None = None) -> None:
        """Record that a campaign begins.

        :param first_day: the day, in UTC, of its first request in an earlier try or run
        """
        self._write(partial(self._record_started, campaign=campaign, first_day=first_day))

    def record_send_finished(
        self,
        campaign: str,
        expected: int,
        unknown: int,
        made: Sequence[SentRequest],
        first_day: date | None = None,
    ) -> None:
        """Record the number of recipients sent to in all tries, how many of them are unknown, and of which requests.

        :param unknown: the number of recipients of unknown outcome, also of those whose requests are lost
        :param made: all requests of all tries in their states, each with the addresses that the service rejected
        :param first_day: the day, in UTC, of the first request
        """
        recorded = [request._replace(rejected=_keys(request.rejected)) for request in made]
        without_request = max(0, unknown - sum(request.unknown for request in recorded))

        def work(connection: Connection) -> None:
            self._record_started(connection, campaign, first_day)
            record_states(connection, campaign, self.conn_id, recorded)
            record_send_finished(connection, campaign, expected, without_request)

        self._write(work)

    def record_accepted(self, campaign: str, made: Sequence[tuple[SentRequest, Sequence[str]]]) -> bool:
        """Record accepted requests, each with its recipients. Return whether that could be done."""
        accepted = [request for request, _ in made]
        if not self._write(lambda connection: record_requests(connection, campaign, self.conn_id, accepted)):
            return False
        # In transactions of their own, because there may be many, and the first one locks the requests' names.
        return not self.track_recipients or all(
            self._write(partial(self._record_recipients, campaign=campaign, made=part)) for part in _small_parts(made)
        )

    def record_outcome(self, outcome: SendOutcome, members: Mapping[bytes, str]) -> None:
        """Record requests each of which is a campaign by itself.

        :param members: the recipients of this try, by their hashes in the journal
        """
        for entry in outcome.accepted:
            self._write(partial(self._record_single, entry=entry, members=members))

    def _record_single(self, connection: Connection, entry: RequestRecord, members: Mapping[bytes, str]) -> None:
        campaign, number = entry.reference, len(entry.members)
        recipients, rejected = (
            [members[member] for member in hashes if member in members] for hashes in (entry.members, entry.left_out)
        )
        request = SentRequest(campaign, number, (entry.result or {}).get("id"), _keys(rejected))
        self._record_started(connection, campaign)
        record_requests(connection, campaign, self.conn_id, [request])
        # Of recipients that are no longer on the list, the journal has only hashes.
        if len(recipients) == number:
            self._record_recipients(connection, campaign, [(request, recipients)])
        record_send_finished(connection, campaign, number)

    def _record_started(self, connection: Connection, campaign: str, first_day: date | None = None) -> None:
        record_finished_before_prune(connection, campaign, self.conn_id, first_day)
        send = TrackedSend(campaign, self.operation, self.conn_id, *self.runtime.place)
        record_send_started(connection, send)

    def _record_recipients(
        self, connection: Connection, campaign: str, made: Sequence[tuple[SentRequest, Sequence[str]]]
    ) -> None:
        if self.track_recipients:
            by_reference = {request.reference: _keys(recipients) for request, recipients in made}
            record_recipients(connection, campaign, self.conn_id, by_reference)

    def _write(self, work: Callable[[Connection], None]) -> bool:
        try:
            self.database.write(work)
        except DatabaseError as error:
            log.warning("The requests could not be recorded for delivery tracking: %s", error)
            return False
        return True


def _small_parts(
    made: Sequence[tuple[SentRequest, Sequence[str]]],
) -> Iterator[Sequence[tuple[SentRequest, Sequence[str]]]]:
    """Yield requests with recipients in parts that are recorded quickly: the receiver waits meanwhile."""
    part: list[tuple[SentRequest, Sequence[str]]] = []
    for request, recipients in made:
        if part and (
            len(part) >= _TRACKED_REQUESTS_PER_WRITE
            or sum(len(members) for _, members in part) + len(recipients) > _RECIPIENTS_PER_WRITE
        ):
            yield part
            part = []
        if recipients:
            part.append((request, recipients))
    if part:
        yield part


def _keys(recipients: Iterable[str]) -> tuple[str, ...]:
    """Return recipients as reports name them."""
    return tuple(normalise_recipient(recipient) or recipient for recipient in recipients)


@dataclass(eq=False, repr=False)
class ReportProbe:
    """Base of the probes that read delivery reports of a request, whichever endpoint received them."""

    tracker: DeliveryTracker
    max_wait = timedelta(hours=24)
    """The service repeats reports for so long. A task waits no longer than its ``unknown_timeout``."""

    async def snapshot(self, client: Client) -> None:
        """Return nothing: reports name the request by its own reference."""

    async def check(self, client: Client, entry: RequestRecord) -> dict[str, Any] | None:
        """Return the result of a request, ``None`` if the reports do not say that it was accepted.

        :raises RefutedError: when a report says that it was not accepted
        """
        try:
            return await in_thread(partial(self._check, entry))
        except DatabaseError as error:
            log.warning("Delivery reports could not be read: %s", error)
            return None

    def _check(self, entry: RequestRecord) -> dict[str, Any] | None:
        raise NotImplementedError


@dataclass(eq=False, repr=False)
class DeliveryReportProbe(ReportProbe):
    """A delivery report of a request proves that the service accepted it.

    :param campaign: the campaign that the requests belong to; ``None`` where each is one by itself
    """

    campaign: str | None = None

    def __post_init__(self) -> None:
        self._known: dict[str, str | None] = {}
        self._asked = set[str]()
        self._read_at = float("-inf")

    def _check(self, entry: RequestRecord) -> dict[str, Any] | None:
        found = self._found(entry.reference)
        if entry.reference not in found:
            return None
        message_id = found[entry.reference]
        if self.campaign is not None:
            # Its reports belong to the campaign from now on. Earlier ones may be stored under its own reference.
            request = SentRequest(entry.reference, entry.recipients, message_id)
            self.tracker.record_accepted(self.campaign, [(request, ())])
        return {"id": message_id}

    def _found(self, reference: str) -> dict[str, str | None]:
        if self.campaign is None:
            return self._read([reference])
        if time.monotonic() - self._read_at > _READ_AGAIN_AFTER:
            self._known = self._read([self.campaign, *self._asked])
            self._read_at = time.monotonic()
        # A report on the account's webhook is not stored under the campaign while its request is not recorded.
        if reference not in self._known and reference not in self._asked:
            self._known |= self._read([reference])
            self._asked.add(reference)
        return self._known

    def _read(self, names: Sequence[str]) -> dict[str, str | None]:
        with self.tracker.database.connect() as connection:
            return counts.confirmed_requests(connection, self.tracker.conn_id, names)


class PurchaseReportProbe(ReportProbe):
    """A delivery report of a purchase resolves it by its status.

    A purchase under way counts as bought, as it does in a response of the service. A status that the contract does not
    know resolves nothing.
    """

    def _check(self, entry: RequestRecord) -> dict[str, Any] | None:
        with self.tracker.database.connect() as connection:
            report = counts.strongest_report(connection, self.tracker.conn_id, entry.reference)
        if report is None:
            return None
        outcome = purchase_outcome(report.status)
        is_duplicate = outcome is PurchaseOutcome.DUPLICATE
        # A deliberate repeat asks exactly this: does the service know the same purchase?
        if outcome is PurchaseOutcome.BOUGHT or (is_duplicate and entry.previous_unknown):
            return {"id": report.message_id, "status": report.status}
        # A reference is the same after a clear. An earlier report is about the purchase that failed then.
        since = entry.started_at
        is_not_bought = is_duplicate or outcome is PurchaseOutcome.FAILED
        if is_not_bought and since is not None and report.at >= since:
            raise RefutedError(
                f"Airtime was not bought: a delivery report has the status {report.status}. Request {entry.reference} "
                "bought nothing. Clear the task to buy again."
            )
        return None


@dataclass(eq=False, repr=False)
class SentRequestRecorder:
    """Records the requests of a campaign while it sends, in a thread of its own, some at a time."""

    MOST = 100_000
    """Requests that wait while the database cannot be written. Beyond that, the oldest are dropped."""

    tracker: DeliveryTracker
    campaign: str

    def __post_init__(self) -> None:
        self._made: list[tuple[SentRequest, Sequence[str]]] = []
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write_all, name="cpaas-requests", daemon=True)

    def __enter__(self) -> SentRequestRecorder:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        self._thread.join()

    def add(self, reference: str, recipients: Sequence[str], message_id: str | None, rejected: Sequence[str]) -> None:
        """Have an accepted request recorded soon. It does not block."""
        request = SentRequest(reference, len(recipients), message_id, _keys(rejected))
        with self._lock:
            self._made.append((request, recipients))
            del self._made[: -self.MOST]

    def _write_all(self) -> None:
        while not self._ended.wait(_WRITE_INTERVAL):
            self._write()
        self._write()

    def _write(self) -> None:
        with self._lock:
            made, self._made = self._made, []
        for start in range(0, len(made), _REQUESTS_PER_WRITE):
            if not self.tracker.record_accepted(self.campaign, made[start : start + _REQUESTS_PER_WRITE]):
                with self._lock:
                    self._made = [*made[start:], *self._made][-self.MOST :]
                return
