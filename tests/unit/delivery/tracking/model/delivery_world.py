"""Sends, reports and erasures through the provider's own endpoints, on a real database, beside the oracle of them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from fastapi.testclient import TestClient
from sqlalchemy import DateTime, delete, select, update

from cpaas_provider.database.database import Database
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.database.schema.all_tables import metadata
from cpaas_provider.delivery.callbacks.signatures import sign
from cpaas_provider.delivery.callbacks.tokens import CallbackToken, callback_url
from cpaas_provider.delivery.receiver.app import build_app
from cpaas_provider.delivery.receiver.secrets_cache import ConnectionSecrets
from cpaas_provider.delivery.receiver.writer import ReportWriter
from cpaas_provider.delivery.tracking.erasure import erase
from cpaas_provider.delivery.tracking.events import KINDS, DeliveryEvent, detect_events, mark_published, unpublished
from cpaas_provider.delivery.tracking.report_store import ReportStore
from cpaas_provider.delivery.tracking.request_state import RequestState
from cpaas_provider.delivery.tracking.retention import prune
from cpaas_provider.delivery.tracking.sent_requests import SentRequest, record_resolution
from cpaas_provider.operators._runtime.delivery.tracker import DeliveryReportProbe, DeliveryTracker
from tests.unit.delivery.tracking.model.delivery_oracle import DeliveryOracle
from tests.unit.delivery.tracking.model.delivery_records import STRANGER, Outcome, Request

RECIPIENTS = ("2348030000001", "2348030000002", "2348030000003", "2348030000004")
STRANGERS_NUMBER = "2348039999999"
SPELLINGS: dict[str, Callable[[str], str]] = {
    "digits": str,
    "plus": lambda digits: f"+{digits}",
    "spaces": lambda digits: f"+{digits[:3]} {digits[3:6]} {digits[6:]}",
    "prefix": lambda digits: f"00{digits}",
    "trunk": lambda digits: f"+{digits[:3]}0{digits[3:]}",
}
CONNECTIONS = ("shop", "bank")
CAMPAIGNS = {"spring": "shop", "summer": "shop", "loan": "bank"}
"""Campaigns, each with its connection. All are in one database."""

_BASE = "http://receiver"
_EVER = dict.fromkeys(KINDS, datetime(2000, 1, 1, tzinfo=UTC))
_MOST_BLOCKED = 0.3
"""Seconds that a transaction is held open for another one, which the first may block."""


class KilledError(DatabaseError):
    """The process was killed, as far as a transaction of it can tell."""


class MortalDatabase:
    """A database whose user can be killed at a transaction, or overtaken by another process in the middle of one."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._writes = itertools.count(1)
        self._kill: tuple[int, str] | None = None
        self._meanwhile: Callable[[], Any] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    def kill_at(self, number: int, moment: str) -> None:
        """Kill at the transaction of this number, before or after its commit."""
        self._writes, self._kill = itertools.count(1), (number, moment)

    def run_meanwhile(self, work: Callable[[], Any]) -> None:
        """Run this in the middle of the next transaction."""
        self._meanwhile = work

    def calm(self) -> None:
        self._kill = self._meanwhile = None

    def write(self, work: Callable[[Any], Any]) -> Any:
        number = next(self._writes)
        dies = self._kill[1] if self._kill is not None and self._kill[0] == number else None
        meanwhile, self._meanwhile = self._meanwhile, None
        threads: list[threading.Thread] = []

        def until_commit(connection: Any) -> Any:
            result = work(connection)
            if meanwhile is not None and not threads:
                threads.append(threading.Thread(target=meanwhile))
                threads[0].start()
                threads[0].join(_MOST_BLOCKED)
            if dies == "before":
                raise KilledError("killed before the commit")
            return result

        result = self._database.write(until_commit)
        for thread in threads:
            thread.join(30)
        if dies == "after":
            raise KilledError("killed after the commit")
        return result


class DeliveryWorld:
    """Campaigns of two connections in one database, their receiver, and what the oracle says of them."""

    def __init__(self, database: Database, *, tracked: Sequence[str] = ()) -> None:
        _empty(database)
        self.database = MortalDatabase(database)
        self.oracle = DeliveryOracle()
        self.tracked = frozenset(tracked)
        self.finished: dict[str, dict[str, Any]] = {}
        self.keys: list[str] = []
        self._numbers = itertools.count(1)
        self._references = itertools.count()
        secrets = {name: ConnectionSecrets((f"c-{name}",), f"w-{name}", "X-Signature") for name in CONNECTIONS}
        mortal: Any = self.database
        app = build_app(
            secrets.get,
            ReportWriter(ReportStore(mortal).save),
            guard=None,
            database_id=lambda: "one",
            emit_metric=None,
            expected=lambda: CONNECTIONS,
        )
        self.receiver = TestClient(app, base_url=_BASE)

    def __enter__(self) -> DeliveryWorld:
        self.receiver.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.receiver.__exit__(*error)

    # Sends.

    def reference_of(self, campaign: str) -> str:
        return f"cpaas-{campaign:a<24}"

    def send(self, campaign: str, *recipients: str) -> str:
        """Write an intent, and return its reference. Delivery tracking learns that the campaign begins."""
        if campaign not in self.oracle.campaigns:
            self.oracle.begin_campaign(campaign, CAMPAIGNS[campaign])
            self._tracker(campaign).record_begin(self.reference_of(campaign))
        number = next(self._references)
        reference = f"cpaas-{'request' + chr(97 + number // 26) + chr(97 + number % 26):b<24}"
        self.oracle.send(campaign, reference, recipients)
        return reference

    def record(
        self, reference: str, outcome: Outcome, *, rejected: Sequence[str] = (), dies: str | None = None
    ) -> None:
        """Record a result as a campaign does. If it is killed, only the journal has it, and the next end records it."""
        request = self.oracle.requests[reference]
        message_id = f"m-{reference[6:18]}" if outcome is Outcome.ACCEPTED else None
        is_tracked = outcome is Outcome.ACCEPTED and request.campaign in self.tracked
        self.oracle.record(reference, outcome, rejected=rejected, message_id=message_id, is_tracked=is_tracked)
        if outcome is not Outcome.ACCEPTED or not request.accepted:
            return
        if dies:
            self.database.kill_at(1, dies)
        sent = SentRequest(reference, len(request.accepted), message_id, tuple(sorted(request.rejected)))
        made = [(sent, request.accepted)]
        if not self._tracker(request.campaign).record_accepted(self.reference_of(request.campaign), made):
            request.is_tracked = is_tracked and dies == "after"
        self.database.calm()

    def resolve(self, reference: str, *, is_sent: bool) -> None:
        """Have a person resolve an unknown request, by a command that reaches the database."""
        request = self.oracle.requests[reference]
        known = [one.reference for one in self.oracle.requests.values() if one.campaign == request.campaign]
        accepted = self.oracle.accepted_recipients(request.campaign)
        resolved = SentRequest(
            reference,
            len(set(request.recipients) - accepted),
            state=RequestState.ACCEPTED if is_sent else RequestState.NOT_SENT,
        )
        place = ("dag", "run", request.campaign, -1)
        self.database.write(lambda connection: record_resolution(connection, place, known, [resolved]))
        self.oracle.resolve(reference, is_sent=is_sent)

    def probe(self, reference: str) -> bool:
        """Have a try look for a report of an unknown request, and return whether it is resolved."""
        request = self.oracle.requests[reference]
        tracker = self._tracker(request.campaign)
        probe = DeliveryReportProbe(tracker, self.reference_of(request.campaign))
        entry: Any = SimpleNamespace(reference=reference, members=request.recipients)
        client: Any = None
        result = asyncio.run(probe.check(client, entry))
        if result is not None:
            self.oracle.resolve(reference, is_sent=True)
            self.oracle.campaigns[request.campaign].is_continued = True
            request.message_id = result["id"]
        return result is not None

    def end(self, campaign: str, *, dies: str | None = None) -> None:
        """End a try, as often as it is killed."""
        if campaign not in self.oracle.campaigns:
            return
        self.oracle.end_campaign(campaign)
        accepted = self.oracle.accepted_recipients(campaign)
        requests = [request for request in self.oracle.requests.values() if request.campaign == campaign]
        unknown = {name for one in requests if one.outcome is Outcome.UNKNOWN for name in one.recipients} - accepted
        made = [self._in_its_state(request, accepted) for request in requests]
        if dies:
            self.database.kill_at(1, dies)
            self._end(campaign, len(accepted), len(unknown), made)
            self.database.calm()
        self._end(campaign, len(accepted), len(unknown), made)

    def _in_its_state(self, request: Request, accepted: set[str]) -> SentRequest:
        """Return a request as the end of a try records it."""
        if request.outcome is Outcome.ACCEPTED:
            state = RequestState.ACCEPTED if request.accepted else RequestState.NOT_SENT
            return SentRequest(request.reference, len(request.accepted), request.message_id, state=state)
        if request.outcome is not Outcome.UNKNOWN:
            return SentRequest(request.reference, len(request.recipients), state=RequestState.NOT_SENT)
        unknown = len(set(request.recipients) - accepted)
        state = RequestState.UNKNOWN if unknown else RequestState.SUPERSEDED
        return SentRequest(request.reference, len(request.recipients), state=state, unknown=unknown)

    def _end(self, campaign: str, accepted: int, unknown: int, made: Sequence[SentRequest]) -> None:
        self._tracker(campaign).record_send_finished(self.reference_of(campaign), accepted, unknown, made)

    def _tracker(self, campaign: str) -> DeliveryTracker:
        place = ("dag", "run", campaign, -1)
        runtime: Any = SimpleNamespace(conn_id=CAMPAIGNS[campaign], database=self.database, place=place)
        return DeliveryTracker("send_sms", runtime, campaign in self.tracked)

    # Reports.

    def report(
        self,
        reference: str,
        word: str,
        named: str | None,
        *,
        spelling: str = "digits",
        by: str = "callback",
        conn_id: str | None = None,
        times: int = 1,
        dies: str | None = None,
    ) -> None:
        """Have the service report until it is answered 200.

        :param named: a recipient, ``STRANGER``, or ``None``
        :param by: ``callback``, or ``reference`` or ``message_id`` for the webhook
        :param conn_id: the connection whose webhook it comes to. Default: the request's
        """
        request = self.oracle.requests[reference]
        conn_id = conn_id or request.connection
        body: dict[str, Any] = {"status": word, "nonce": next(self._numbers)}
        if named is not None:
            body["recipient"] = SPELLINGS[spelling](STRANGERS_NUMBER if named == STRANGER else named)
        if by == "message_id":
            body["message_id"] = f"m-{reference[6:18]}"
        elif by == "reference":
            body["external_ref"] = reference
        content = json.dumps(body).encode()
        if dies:
            self.database.kill_at(1, dies)
            assert self._post(request, by, conn_id, content) == 503
            self.database.calm()
        for _ in range(times):
            assert self._post(request, by, conn_id, content) == 200
        self.oracle.report(
            conn_id,
            word,
            named=named,
            reference=None if by == "message_id" else reference,
            message_id=body.get("message_id"),
            by_webhook=by != "callback",
        )

    def _post(self, request: Any, by: str, conn_id: str, content: bytes) -> int:
        headers = {"content-type": "application/json"}
        if by == "callback":
            token = CallbackToken(self.reference_of(request.campaign), request.reference, len(request.recipients))
            url = callback_url(_BASE, request.connection, f"c-{request.connection}", token)
        else:
            url = f"{_BASE}/webhook/{conn_id}"
            headers["X-Signature"] = sign(content, f"w-{conn_id}")
        return self.receiver.post(url, content=content, headers=headers).status_code

    def overlap(self, first: Callable[[], Any], second: Callable[[], Any]) -> None:
        """Have the second begin in the middle of the first's next transaction."""
        failures: list[BaseException] = []

        def run() -> None:
            try:
                second()
            except BaseException as failure:  # noqa: BLE001 - the test's thread raises it
                failures.append(failure)

        self.database.run_meanwhile(run)
        first()
        if self.database._meanwhile is not None:
            self.database.calm()
            run()
        if failures:
            raise failures[0]

    # What else happens.

    def erase(self, recipient: str, *, dies: tuple[int, str] | None = None) -> None:
        database: Any = self.database
        if dies:
            self.database.kill_at(*dies)
            with contextlib.suppress(KilledError):
                erase(database, recipient)
            self.database.calm()
        erase(database, recipient)
        self.oracle.erase(recipient)

    def prune(self) -> None:
        """Prune what last changed more than a day ago. What is finished may go, what is unfinished may not."""
        database: Any = self.database
        before = datetime.now(UTC) - timedelta(days=1)
        for _ in prune(database, before, before):
            pass
        with self.database.connect() as connection:
            remaining = set(connection.execute(select(metadata.tables["cpaas_deliveries"].c.campaign)).scalars())
        self.oracle.prune(name for name in self.oracle.campaigns if self.reference_of(name) not in remaining)

    def age(self, by: timedelta) -> None:
        """Have everything so far be older."""
        for table in metadata.sorted_tables:
            moments = [
                column for column in table.columns if isinstance(getattr(column.type, "impl", column.type), DateTime)
            ]
            for moment in moments:
                self._age(table, moment, by)
        if by > timedelta(hours=72):
            self.oracle.pass_days()

    def _age(self, table: Any, moment: Any, by: timedelta) -> None:
        keys = list(table.primary_key)
        with self.database.connect() as connection:
            rows = connection.execute(select(moment, *keys).where(moment.is_not(None))).all()

        def work(connection: Any) -> None:
            for at, *key in rows:
                is_row = [column == value for column, value in zip(keys, key, strict=True)]
                connection.execute(update(table).where(*is_row).values({moment.name: at - by}))

        if rows:
            self.database.write(work)

    def publish(self, *, dies: tuple[int, str] | None = None) -> list[DeliveryEvent]:
        """Look for events and publish them, as often as the publisher is killed. Return all of them."""
        database: Any = self.database
        published: list[DeliveryEvent] = []
        for kill in (dies, None) if dies else (None,):
            if kill:
                self.database.kill_at(*kill)
            try:
                detect_events(database, _EVER)
                with self.database.connect() as connection:
                    events = unpublished(connection)
                published += [event for event in events if event.id not in {known.id for known in published}]
                self.database.write(lambda connection, events=events: mark_published(connection, events))
            except KilledError:
                pass
            self.database.calm()
        return published


def _empty(database: Database) -> None:
    def work(connection: Any) -> None:
        for table in reversed(metadata.sorted_tables):
            if table.name not in {"cpaas_alembic_version", "cpaas_identity", "cpaas_hash_keys"}:
                connection.execute(delete(table))

    database.write(work)
