"""Where the delivery reports of a task's requests go, and what the provider's database records of the requests."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection

from cpaas_provider.database.bulk import batched
from cpaas_provider.database.database import Database
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.delivery.callbacks.receiver_check import (
    HandshakeRefusedError,
    ReceiverClient,
    ReceiverUnreachableError,
)
from cpaas_provider.delivery.reports import normalise_recipient
from cpaas_provider.delivery.tracking import counts, sent_requests
from cpaas_provider.operators._runtime.errors import PreflightError
from cpaas_provider.sending.errors import RefutedError
from cpaas_provider.sending.shutdown import in_thread

if TYPE_CHECKING:
    from cpaas_provider.operators._runtime.runtime import TaskRuntime
    from cpaas_provider.sending.journal.model import RequestRecord
    from cpaas_provider.sending.spec import Client, Outcome

log = logging.getLogger(__name__)

_AT_ONCE = 500
"""Requests that are noted in one transaction."""

_READ_AGAIN = 1.0
"""Seconds for which what was reported is not read again: one look asks for request after request."""


class DeliveryTracker:
    """The delivery reports of a task instance's requests.

    ``conn_id`` is the connection's, by which the receiver finds its secrets.

    :param recipients: whether to record the recipients, too
    """

    def __init__(
        self,
        operation: str,
        runtime: TaskRuntime,
        *,
        recipients: bool = False,
    ) -> None:
        instance: Any = runtime.context["ti"]
        self._place = {
            "operation": operation,
            "conn_id": runtime.conn_id,
            "dag_id": instance.dag_id,
            "run_id": instance.run_id,
            "task_id": instance.task_id,
            "map_index": -1 if instance.map_index is None else instance.map_index,
        }
        self._runtime = runtime
        self.conn_id = runtime.conn_id
        self._recipients = recipients

    @cached_property
    def _receiver(self) -> ReceiverClient:
        connection = self._runtime.connection
        if connection.callback_url is None:
            raise ValueError("a connection without callback_url has no receiver")
        return ReceiverClient(connection.callback_url, self.conn_id, connection.hash_secrets[0], connection.options)

    @property
    def database(self) -> Database:
        """The provider's database, which a try opens once.

        :raises DatabaseError: when it cannot be opened
        """
        return self._runtime.database

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
        """Return where the delivery reports of one request go."""
        return self._receiver.url(campaign, reference, recipients)

    def record_begin(self, campaign: str) -> None:
        """Note that something is sent under a name."""
        self._write(
            partial(sent_requests.record_send_started, send=sent_requests.TrackedSend(campaign=campaign, **self._place))
        )

    def record_send_finished(
        self, campaign: str, expected: int, unknown: int, accepted: Sequence[sent_requests.SentRequest]
    ) -> None:
        """Record the number of recipients sent to in all tries, and how many of them are unknown.

        :param accepted: all requests the service accepted, should not all of them have been noted
        """

        def work(connection: Connection) -> None:
            sent_requests.record_send_started(connection, sent_requests.TrackedSend(campaign=campaign, **self._place))
            if sent_requests.count_recorded_recipients(connection, campaign) < expected:
                for some in batched(accepted):
                    sent_requests.record_requests(connection, campaign, self.conn_id, some)
            sent_requests.record_send_finished(connection, campaign, expected, unknown)

        self._write(work)

    def note(self, campaign: str, made: Sequence[tuple[sent_requests.SentRequest, Sequence[str]]]) -> bool:
        """Note requests that were carried out, each with its recipients, and tell whether that could be done."""
        return self._write(partial(self._note, campaign=campaign, made=made))

    def record_outcome(self, outcome: Outcome, recipients: Sequence[str]) -> None:
        """Note requests each of which is a campaign by itself."""

        def work(connection: Connection) -> None:
            for entry in outcome.accepted:
                campaign, number = entry.reference, len(entry.members)
                request = sent_requests.SentRequest(entry.reference, number, (entry.result or {}).get("id"))
                sent_requests.record_send_started(
                    connection, sent_requests.TrackedSend(campaign=campaign, **self._place)
                )
                # Of an earlier try with other recipients, who they were is known by their hashes alone.
                self._note(connection, campaign, [(request, recipients if len(recipients) == number else ())])
                sent_requests.record_send_finished(connection, campaign, number)

        self._write(work)

    def _note(
        self, connection: Connection, campaign: str, made: Sequence[tuple[sent_requests.SentRequest, Sequence[str]]]
    ) -> None:
        sent_requests.record_requests(connection, campaign, self.conn_id, [request for request, _ in made])
        for request, recipients in made if self._recipients else ():
            keys = [normalise_recipient(one) or one for one in recipients]
            sent_requests.record_recipients(connection, campaign, self.conn_id, request.reference, keys)

    def _write(self, work: Callable[[Connection], None]) -> bool:
        try:
            self.database.write(work)
        except DatabaseError as error:
            log.warning("The requests could not be recorded for delivery tracking: %s", error)
            return False
        return True


class DeliveryReportProbe:
    """A delivery report of a request proves that the service accepted it, whichever endpoint received it.

    :param campaign: of what the requests are part; ``None`` where each is one by itself
    """

    max_wait = timedelta(hours=24)
    """The service repeats reports for so long; a task waits no longer than its ``unknown_timeout``."""

    def __init__(self, tracking: DeliveryTracker, campaign: str | None = None) -> None:
        self._tracking = tracking
        self._campaign = campaign
        self._known: dict[str, str | None] = {}
        self._asked = set[str]()
        self._read_at = float("-inf")

    async def snapshot(self, client: Client) -> None:
        """Note nothing: the request's own reference is enough."""

    async def check(self, client: Client, entry: RequestRecord) -> dict[str, Any] | None:
        """Return what is known of a request, ``None`` where nothing was reported of it."""
        return await in_thread(partial(self._check, entry))

    def _check(self, entry: RequestRecord) -> dict[str, Any] | None:
        try:
            found = self._found(entry.reference)
        except DatabaseError as error:
            log.warning("Delivery reports could not be read: %s", error)
            return None
        if entry.reference not in found:
            return None
        message_id = found[entry.reference]
        if self._campaign is not None:
            # What is reported of it is the campaign's from now on, and what was before: it may wait under its own name.
            request = sent_requests.SentRequest(entry.reference, len(entry.members), message_id)
            self._tracking.note(self._campaign, [(request, ())])
        return {"id": message_id}

    def _found(self, reference: str) -> dict[str, str | None]:
        if self._campaign is None:
            return self._read([reference])
        if time.monotonic() - self._read_at > _READ_AGAIN:
            self._known = self._read([self._campaign, *self._asked])
            self._read_at = time.monotonic()
        # One that the account's webhook told of is not among the campaign's while it is not recorded.
        if reference not in self._known and reference not in self._asked:
            self._known |= self._read([reference])
            self._asked.add(reference)
        return self._known

    def _read(self, names: Sequence[str]) -> dict[str, str | None]:
        with self._tracking.database.connect() as connection:
            return counts.confirmed_requests(connection, self._tracking.conn_id, names)


_BOUGHT = frozenset({"success", "pending", "sent"})
_NOT_BOUGHT = frozenset({"failed", "error"})
_DUPLICATE = "duplicate"


class PurchaseReportProbe:
    """A delivery report of a purchase resolves it by its status.

    A purchase under way counts as bought, as it does in an answer of the service. A status that the contract does not
    know resolves nothing.
    """

    max_wait = DeliveryReportProbe.max_wait

    def __init__(self, tracking: DeliveryTracker) -> None:
        self._tracking = tracking

    async def snapshot(self, client: Client) -> None:
        """Note nothing: the request's own reference is enough."""

    async def check(self, client: Client, entry: RequestRecord) -> dict[str, Any] | None:
        """Return what is known of a purchase that was made, ``None`` where nothing can be told.

        :raises RefutedError: when a report says that nothing was bought
        """
        return await in_thread(partial(self._check, entry))

    def _check(self, entry: RequestRecord) -> dict[str, Any] | None:
        try:
            with self._tracking.database.connect() as connection:
                told = counts.strongest_report(connection, self._tracking.conn_id, entry.reference)
        except DatabaseError as error:
            log.warning("Delivery reports could not be read: %s", error)
            return None
        if told is None:
            return None
        # A deliberate repeat asks exactly this: does the service know the same purchase?
        if told.status in _BOUGHT or (told.status == _DUPLICATE and entry.previous_unknown):
            return {"id": told.message_id, "status": told.status}
        # A reference is the same after a clear: what was reported before that is of the purchase that came to nothing.
        since = entry.started_at
        if told.status in _NOT_BOUGHT | {_DUPLICATE} and since is not None and told.at >= since:
            raise RefutedError(
                f"Airtime was not bought: a delivery report has the status {told.status}. Request {entry.reference} "
                "bought nothing. Clear the task to buy again."
            )
        return None


class SentRequestRecorder:
    """Notes the requests of a campaign while they are made, in a thread of its own, some at a time.

    :param every: seconds between two notes
    """

    MOST = 100_000
    """Requests that are kept for later while the store cannot be written; beyond that, the oldest are given up."""

    def __init__(self, tracking: DeliveryTracker, campaign: str, every: float = 1.0) -> None:
        self._tracking = tracking
        self._campaign = campaign
        self._every = every
        self._made: list[tuple[sent_requests.SentRequest, Sequence[str]]] = []
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write_all, name="cpaas-notes", daemon=True)

    def __enter__(self) -> SentRequestRecorder:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        self._thread.join()

    def add(self, reference: str, recipients: Sequence[str], message_id: str | None) -> None:
        """Have a request noted that was carried out."""
        request = sent_requests.SentRequest(reference, len(recipients), message_id)
        with self._lock:
            self._made.append((request, recipients))
            del self._made[: -self.MOST]

    def _write_all(self) -> None:
        while True:
            ended = self._ended.wait(self._every)
            self._write()
            if ended:
                return

    def _write(self) -> None:
        with self._lock:
            made, self._made = self._made, []
        for start in range(0, len(made), _AT_ONCE):
            if not self._tracking.note(self._campaign, made[start : start + _AT_ONCE]):
                with self._lock:
                    self._made = [*made[start:], *self._made][-self.MOST :]
                return
