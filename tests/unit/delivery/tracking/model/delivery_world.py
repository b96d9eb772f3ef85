"""Sends, reports and erasures through the provider's own endpoints, on a real database, beside the oracle of them."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import json
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote, urlsplit

from sqlalchemy import DateTime, bindparam, select, update

from cpaas_provider.database.schema.all_tables import metadata
from cpaas_provider.database.schema.delivery import RequestState
from cpaas_provider.delivery.callbacks.signatures import sign
from cpaas_provider.delivery.callbacks.tokens import CallbackToken, callback_url
from cpaas_provider.delivery.receiver.secrets_cache import ConnectionSecrets
from cpaas_provider.delivery.tracking.erasure import erase
from cpaas_provider.delivery.tracking.events import KINDS, DeliveryEvent, detect_events, mark_published, unpublished
from cpaas_provider.delivery.tracking.report_store import ReportStore
from cpaas_provider.delivery.tracking.retention import prune
from cpaas_provider.delivery.tracking.sent_requests import SentRequest, record_resolution
from cpaas_provider.sending.journal.hashing import MEMBER_BYTES
from cpaas_provider.sending.journal.model import Intent, RequestRecord
from cpaas_provider.tasks.delivery.tracker import DeliveryReportProbe, DeliveryTracker
from tests.unit.delivery.tracking.model.delivery_oracle import DeliveryOracle
from tests.unit.delivery.tracking.model.delivery_records import STRANGER, Outcome, Request
from tests.unit.delivery.tracking.model.delivery_setting import KilledError, Setting

RECIPIENTS = ("2348030000001", "2348030000002", "2348030000003", "2348030000004")
ADDRESSES = dict(
    zip(RECIPIENTS, ("ada@example.com", "obi@example.com", "uma@example.org", "eze@example.org"), strict=True)
)
"""The addresses of the same recipients, for campaigns by email."""
STRANGERS = {"send_email": "nobody@example.com"}
STRANGERS_NUMBER = "2348039999999"
SPELLINGS: dict[str, Callable[[str], str]] = {
    "digits": str,
    "plus": lambda digits: f"+{digits}",
    "spaces": lambda digits: f"+{digits[:3]} {digits[3:6]} {digits[6:]}",
    "prefix": lambda digits: f"00{digits}",
    "trunk": lambda digits: f"+{digits[:3]}0{digits[3:]}",
}
NATIONAL: dict[str, Callable[[str], str]] = {"national": lambda digits: f"0{digits[3:]}"}
"""A spelling that has no name of its own in files, until a report spells the recipient in another way."""
ADDRESS_SPELLINGS: dict[str, Callable[[str], str]] = {
    "digits": str,
    "plus": str.upper,
    "spaces": lambda address: f" {address} ",
    "prefix": str.title,
    "trunk": lambda address: address.replace("example", "Example"),
}
CONNECTIONS = ("shop", "bank")
CAMPAIGNS = {"spring": "shop", "summer": "shop", "letter": "shop", "loan": "bank"}
"""Campaigns, each with its connection. All are in one database. The letter is an email."""
SINGLES = {"notice": "send_sms", "receipt": "send_email", "topup": "buy_airtime"}
"""Kinds of single sends, each of which is a request that belongs to no campaign."""
PERMANENT = {"send_sms": ("undelivered", "unknown subscriber"), "send_email": ("bounced", "5.1.1 user unknown")}
"""What reports say of a permanent failure: status and reason."""

_BASE = "http://receiver"
_TEXTS = (
    select(metadata.tables["cpaas_reports"].c.body),
    select(metadata.tables["cpaas_deliveries"].c.recipient),
)
"""Where recipients are named."""
_EVER = dict.fromkeys(KINDS, datetime(2000, 1, 1, tzinfo=UTC))


class DeliveryWorld:
    """Campaigns of two connections in one database, their receiver, and what the oracle says of them."""

    def __init__(self, setting: Setting, *, tracked: Sequence[str] = (), is_thorough: bool = False) -> None:
        self.setting = setting
        self._keys = {name: (f"c-{name}",) for name in CONNECTIONS}
        self._webhook_keys = {name: f"w-{name}" for name in CONNECTIONS}
        self._signed_with: dict[str, str] = {}
        self._edits = itertools.count(1)
        self.database, self._number = setting.begin(self._secrets, CONNECTIONS, is_wiped=is_thorough)
        mortal: Any = self.database
        setting.save_with(ReportStore(mortal).save)
        self.oracle = DeliveryOracle()
        self.tracked = frozenset(tracked)
        self.keys: list[str] = []
        self.has_published = False
        self.unknown_at_end: dict[str, int] = {}
        """By campaign, the number of recipients of unknown outcome that its task returned."""
        self.unacknowledged: list[Callable[[], None]] = []
        """Reports that the service repeats, because they were not answered 200."""
        self._numbers = itertools.count(1)
        self._references = itertools.count()

    def _secrets(self, conn_id: str) -> ConnectionSecrets | None:
        if conn_id not in self._keys:
            return None
        return ConnectionSecrets(self._keys[conn_id], self._webhook_keys[conn_id], "X-Signature")

    # Sends.

    def reference_of(self, campaign: str) -> str:
        """Return the reference of a campaign, which no other world has. A single send has that of its request."""
        return f"cpaas-{campaign.replace('-', '') + _letters(self._number):a<24}"

    def send(self, campaign: str, *recipients: str) -> str:
        """Write an intent, and return its reference. Delivery tracking learns that the campaign begins."""
        if campaign not in self.oracle.campaigns:
            operation = "send_email" if campaign == "letter" else "send_sms"
            self.oracle.begin_campaign(campaign, CAMPAIGNS[campaign], operation)
            self._tracker(campaign).record_begin(self.reference_of(campaign))
        elif (known := self.oracle.campaigns[campaign]).has_ended and not known.is_begun_again:
            # A later try.
            self._tracker(campaign).record_begin(self.reference_of(campaign))
        number = next(self._references)
        name = f"request{_letters(self._number)}q{_letters(number)}"
        return self._send(campaign, f"cpaas-{name:b<24}", recipients)

    def send_single(self, kind: str, *recipients: str) -> str:
        """Write the intent of a single send, of which delivery tracking learns once it is accepted."""
        campaign = f"{kind}-{_letters(next(self._references))}"
        self.oracle.begin_campaign(campaign, "shop", SINGLES[kind], is_single=True)
        return self._send(campaign, self.reference_of(campaign), recipients)

    def _send(self, campaign: str, reference: str, recipients: Sequence[str]) -> str:
        self.oracle.send(campaign, reference, recipients)
        self._signed_with[reference] = self._keys[self.oracle.campaigns[campaign].connection][0]
        return reference

    def record(
        self, reference: str, outcome: Outcome, *, rejected: Sequence[str] = (), dies: str | None = None
    ) -> None:
        """Record a result as a campaign does. If it is killed, only the journal has it, and the next end records it."""
        request = self.oracle.requests[reference]
        message_id = self.message_id_of(reference) if outcome is Outcome.ACCEPTED else None
        is_tracked = outcome is Outcome.ACCEPTED and self.is_tracked(request.campaign)
        self.oracle.record(reference, outcome, rejected=rejected, message_id=message_id, is_tracked=is_tracked)
        if outcome is not Outcome.ACCEPTED or not request.accepted:
            return
        if self.oracle.campaigns[request.campaign].is_single:
            self._record_single(request, dies)
            return
        if dies:
            self.database.kill_at(1, dies)
        sent = SentRequest(reference, len(request.accepted), message_id, tuple(sorted(request.rejected)))
        made = [(sent, request.accepted)]
        if not self._tracker(request.campaign).record_accepted(self.reference_of(request.campaign), made):
            request.is_tracked = is_tracked and dies == "after"
        self.database.calm()

    def _record_single(self, request: Any, dies: str | None) -> None:
        """Record a single send, which ends with it, as often as its task is killed."""
        self.oracle.end_campaign(request.campaign)
        accepted, rejected = (
            {name.encode(): name for name in sorted(names)} for names in (request.accepted, request.rejected)
        )
        entry = SimpleNamespace(
            reference=request.reference,
            members=[*accepted],
            left_out=[*rejected],
            result={"id": request.message_id},
        )
        outcome: Any = SimpleNamespace(accepted=(entry,))
        for kill in (dies, None) if dies else (None,):
            if kill:
                self.database.kill_at(1, kill)
            self._tracker(request.campaign).record_outcome(outcome, accepted | rejected)
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
        self.oracle.resolve(reference, is_sent=is_sent)
        unresolved = list(map(self._in_its_state, self._unknown_requests(request.campaign)))
        place = ("dag", "run", request.campaign, -1)
        self.database.write(lambda connection: record_resolution(connection, place, known, [resolved, *unresolved]))

    def probe(self, reference: str) -> bool:
        """Have a try look for a report of an unknown request, and return whether it is resolved."""
        request = self.oracle.requests[reference]
        tracker = self._tracker(request.campaign)
        probe = DeliveryReportProbe(tracker, self.reference_of(request.campaign))
        # A campaign asks about the recipients of unknown outcome alone, of however many the request has.
        unknown = set(request.recipients) - self.oracle.accepted_recipients(request.campaign)
        members = b"".join(name.encode()[-MEMBER_BYTES:].rjust(MEMBER_BYTES) for name in sorted(unknown))
        entry = RequestRecord(Intent(0, reference, members), "send_sms", size=len(request.recipients))
        client: Any = None
        result = asyncio.run(probe.check(client, entry))
        if result is not None:
            self.oracle.resolve(reference, is_sent=True)
            self.oracle.campaigns[request.campaign].is_continued = True
            request.message_id = result["id"]
        return result is not None

    def end(self, campaign: str, *, dies: str | None = None) -> None:
        """End a try, as often as it is killed."""
        if campaign not in self.oracle.campaigns or self.oracle.campaigns[campaign].is_single:
            return
        self.oracle.end_campaign(campaign)
        accepted = self.oracle.accepted_recipients(campaign)
        requests = [request for request in self.oracle.requests.values() if request.campaign == campaign]
        unknown = {name for one in requests if one.outcome is Outcome.UNKNOWN for name in one.recipients} - accepted
        self.unknown_at_end[campaign] = len(unknown)
        made = [self._in_its_state(request) for request in requests]
        if dies:
            self.database.kill_at(1, dies)
            self._end(campaign, len(accepted), len(unknown), made)
            self.database.calm()
        self._end(campaign, len(accepted), len(unknown), made)

    def _in_its_state(self, request: Request) -> SentRequest:
        """Return a request as the end of a try records it.

        Of a recipient of several requests of unknown outcome, the journal knows the newest.
        """
        if request.outcome is Outcome.ACCEPTED:
            state = RequestState.ACCEPTED if request.accepted else RequestState.NOT_SENT
            rejected = tuple(sorted(request.rejected))
            return SentRequest(request.reference, len(request.accepted), request.message_id, rejected, state)
        if request.outcome is not Outcome.UNKNOWN:
            return SentRequest(request.reference, len(request.recipients), state=RequestState.NOT_SENT)
        unreached = set(request.recipients) - self.oracle.accepted_recipients(request.campaign)
        newest = {
            recipient: unknown_request.reference
            for unknown_request in self._unknown_requests(request.campaign)
            for recipient in unknown_request.recipients
        }
        unknown = [name for name in unreached if newest[name] == request.reference]
        state = RequestState.UNKNOWN if unreached else RequestState.SUPERSEDED
        return SentRequest(request.reference, len(request.recipients), state=state, unknown=len(unknown))

    def _unknown_requests(self, campaign: str) -> list[Request]:
        requests = self.oracle.requests.values()
        return [request for request in requests if (request.campaign, request.outcome) == (campaign, Outcome.UNKNOWN)]

    def _end(self, campaign: str, accepted: int, unknown: int, made: Sequence[SentRequest]) -> None:
        self._tracker(campaign).record_send_finished(self.reference_of(campaign), accepted, unknown, made)

    def _tracker(self, campaign: str) -> DeliveryTracker:
        known = self.oracle.campaigns[campaign]
        place = ("dag", "run", campaign, -1)
        runtime: Any = SimpleNamespace(database=self.database, place=place)
        return DeliveryTracker(known.operation, runtime, self.is_tracked(campaign), known.connection)

    def is_tracked(self, campaign: str) -> bool:
        """Tell whether the recipients of a campaign are recorded."""
        return campaign.partition("-")[0] in self.tracked

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
        is_permanent: bool = False,
        minutes_ago: int = 0,
        dies: str | None = None,
    ) -> None:
        """Have the service report until it is answered 200, or until its signature is refused.

        :param named: a recipient, ``STRANGER``, or ``None``
        :param by: ``callback``, or ``reference`` or ``message_id`` for the webhook
        :param conn_id: the connection whose webhook it comes to. Default: the request's
        :param is_permanent: have it be of a permanent failure, whatever the word
        :param minutes_ago: how long ago it happened, by its own time
        """
        request = self.oracle.requests[reference]
        conn_id = conn_id or request.connection
        operation = self.oracle.campaigns[request.campaign].operation
        body: dict[str, Any] = {"status": word, "nonce": next(self._numbers)}
        if is_permanent and operation in PERMANENT and named in request.recipients:
            word, reason = PERMANENT[operation]
            body |= {"status": word, "reason": reason, "channel": operation.removeprefix("send_")}
        else:
            is_permanent = False
        if named is not None:
            body["recipient"] = self._spelled(named, operation, spelling)
        if by == "message_id":
            body["message_id"] = self.message_id_of(reference)
        elif by == "reference":
            body["external_ref"] = reference
        said_at = None
        if minutes_ago:
            said_at = datetime.now(UTC) - timedelta(minutes=minutes_ago)
            body["timestamp"] = said_at.isoformat()
        content = json.dumps(body).encode()

        def deliver() -> None:
            if dies:
                self.database.kill_at(1, dies)
                status = self._post(request, by, conn_id, content)
                self.database.calm()
                assert status in (401, 403, 404, 503), f"killed, and answered {status}"
            for _ in range(times):
                status = self._post(request, by, conn_id, content)
                if by == "callback" and self._signed_with[reference] not in self._keys[conn_id]:
                    assert 400 <= status < 500, f"answered {status}, signed with a key that was removed"
                    return
                if self.database.is_down:
                    assert status >= 500, f"answered {status} while the database refuses"
                    self.unacknowledged.append(deliver)
                    return
                assert status == 200, f"answered {status}"
            self.oracle.report(
                conn_id,
                word,
                named=named,
                reference=None if by == "message_id" else reference,
                message_id=body.get("message_id"),
                at=said_at or datetime.now(UTC),
                by_webhook=by != "callback",
                is_permanent=is_permanent,
            )

        deliver()

    def message_id_of(self, reference: str) -> str:
        return f"m-{reference.removeprefix('cpaas-').rstrip('ab')}"

    def _spelled(self, named: str, operation: str, spelling: str) -> str:
        if named == STRANGER:
            named = STRANGERS.get(operation, STRANGERS_NUMBER)
        return (ADDRESS_SPELLINGS if "@" in named else SPELLINGS | NATIONAL)[spelling](named)

    def _post(self, request: Any, by: str, conn_id: str, content: bytes) -> int:
        """Post a report as the service does, which repeats it once where its signature is refused."""
        status = self._post_once(request, by, conn_id, content)
        if status in (401, 403):
            # The receiver reads an edited connection again, but not all the time.
            self.setting.pass_hour()
            status = self._post_once(request, by, conn_id, content)
        return status

    def _post_once(self, request: Any, by: str, conn_id: str, content: bytes) -> int:
        headers = {"content-type": "application/json"}
        if by == "callback":
            token = CallbackToken(self.reference_of(request.campaign), request.reference, len(request.recipients))
            url = callback_url(_BASE, request.connection, self._signed_with[request.reference], token)
            path = unquote(urlsplit(url).path)
        else:
            path = f"/webhook/{conn_id}"
            headers["X-Signature"] = sign(content, self._webhook_keys[conn_id])
        return self.setting.loop.request(self.setting.receiver, "POST", path, headers, content).status

    def edit_key(self, conn_id: str, *, is_kept: bool) -> None:
        """Put a new signing key in front of the connection's, and remove the others or not."""
        key = f"c-{conn_id}-{next(self._edits)}"
        self._keys[conn_id] = (key, *self._keys[conn_id]) if is_kept else (key,)
        if not is_kept:
            self.setting.pass_hour()

    def edit_webhook_key(self, conn_id: str) -> None:
        """Replace the key by which the account signs."""
        self._webhook_keys[conn_id] = f"w-{conn_id}-{next(self._edits)}"

    def fall(self) -> None:
        """Have the database refuse everything from now on."""
        self.database.is_down = True

    def rise(self) -> None:
        """Have the database back. The service repeats what was not acknowledged."""
        self.database.is_down = False
        waiting, self.unacknowledged = self.unacknowledged, []
        for deliver in waiting:
            deliver()

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
        if self.database.take_meanwhile() is not None:
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
        others = self._stored_reports(recipient)[1]
        erase(database, recipient)
        named, others_then = self._stored_reports(recipient)
        assert not named, f"{len(named)} reports name an erased recipient"
        assert others_then == others, "an erasure changed reports of other recipients"
        self.oracle.erase(recipient)

    def _stored_reports(self, recipient: str) -> tuple[list[str], list[str]]:
        """Return the stored texts that name a recipient, and those that name others."""
        with self.database.connect() as connection:
            texts = [*connection.execute(_TEXTS[0]).scalars(), *connection.execute(_TEXTS[1]).scalars()]
        named = [text for text in texts if _mentions(text, recipient)]
        # The name of an erased one is a hash.
        return named, sorted(text for text in set(texts) - set(named) if not text.startswith("#"))

    def prune(self) -> None:
        """Prune what last changed more than a day ago. What is finished may go, what is unfinished may not."""
        database: Any = self.database
        before = datetime.now(UTC) - timedelta(days=1)
        numbers = self._numbers_of_rows("cpaas_deliveries")
        for _ in prune(database, before, before):
            pass
        remaining, sends = (self._numbers_of_rows(table) for table in ("cpaas_deliveries", "cpaas_sends"))
        for name in self.oracle.campaigns:
            reference = self.reference_of(name)
            if self.oracle.outlives_prune(name):
                assert remaining[reference] == numbers[reference], f"rows of {name}, which is unfinished, were pruned"
        # Of a send that is gone, new reports have no number of recipients to be compared with.
        kept = remaining.keys() & sends.keys()
        self.oracle.prune(name for name in self.oracle.campaigns if self.reference_of(name) not in kept)

    def _numbers_of_rows(self, table: str) -> Counter[str]:
        """Return how many rows of a table each campaign has."""
        with self.database.connect() as connection:
            return Counter(connection.execute(select(metadata.tables[table].c.campaign)).scalars())

    def age(self, by: timedelta) -> None:
        """Have everything so far be older."""

        def work(connection: Any) -> None:
            for rows_of, change, keys, moments in _aging():
                rows = connection.execute(rows_of).mappings().all()
                values = [
                    {f"key_{key}": row[key] for key in keys}
                    | {f"new_{name}": row[name] and row[name] - by for name in moments}
                    for row in rows
                ]
                if values:
                    connection.execute(change, values)

        self.database.write(work)
        self.oracle.age(by)

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
        self.has_published = bool(published)
        return published


@functools.cache
def _aging() -> list[tuple[Any, Any, list[str], list[str]]]:
    """Return for each table with moments the query of its rows, the change, its key and its moments."""
    found = []
    for table in metadata.sorted_tables:
        keys = [column.name for column in table.primary_key]
        moments = [
            column.name for column in table.columns if isinstance(getattr(column.type, "impl", column.type), DateTime)
        ]
        if moments:
            is_row = [table.c[key] == bindparam(f"key_{key}") for key in keys]
            change = update(table).where(*is_row).values({name: bindparam(f"new_{name}") for name in moments})
            columns = dict.fromkeys([*keys, *moments])
            # The oldest first: a moment may be part of the key, and the key that a row moves to must be free.
            rows = select(*(table.c[name] for name in columns)).order_by(*(table.c[name] for name in moments))
            found.append((rows, change, keys, moments))
    return found


def _mentions(text: str, recipient: str) -> bool:
    """Tell whether a report or the name of a row names a recipient in any spelling."""
    if "@" in recipient:
        return recipient in text.lower()
    named = json.loads(text).get("recipient", "") if text.startswith("{") else text
    # Without the country code, which is written in several ways.
    return recipient[3:] in "".join(filter(str.isdigit, named)) and not named.startswith("#")


def _letters(number: int) -> str:
    """Return a number in letters, as references have no other digits than some."""
    return "".join(chr(ord("c") + int(digit)) for digit in str(number))
