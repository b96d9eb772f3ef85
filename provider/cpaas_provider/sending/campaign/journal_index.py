"""The requests of a campaign, of earlier tries (from the journal) and of this one, beside the recipient table."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any, NamedTuple

from cpaas_provider.api.amounts import known_figure, to_decimal, total
from cpaas_provider.sending.campaign.guards.spending import EarlierRequest
from cpaas_provider.sending.campaign.recipients import LEFT_OUT_SINCE, Recipient, RecipientStatus, RecipientTable
from cpaas_provider.sending.errors import ResendLimitError, UnknownOutcomeError
from cpaas_provider.sending.journal.log import JournalLog
from cpaas_provider.sending.journal.model import (
    BROKE_OFF,
    PRECEDENCE,
    Intent,
    RequestRecord,
    Result,
    State,
    split_members,
    unknown_by_request,
)
from cpaas_provider.sending.resolver import MAX_RESENDS, SendRequests

_REJECTED, _UNKNOWN, _ACCEPTED = 1, 2, 3
_STATUSES = {_REJECTED: RecipientStatus.REJECTED, _UNKNOWN: RecipientStatus.UNKNOWN, _ACCEPTED: RecipientStatus.SENT}
_STATES = {strength: state for state, strength in PRECEDENCE.items() if state is not State.PENDING}
"""A request without a result is of unknown outcome."""

_REMOVED_FROM_SOURCE = "no longer in the source"


class TrackedRequest(NamedTuple):
    """What delivery tracking records of a request.

    :param recipients: the number of its recipients, without those that the service rejected from it
    :param unknown: how many of them are of unknown outcome, each counted for the newest of its requests
    :param is_open: whether any of them is, also if a newer request of unknown outcome has it, too
    :param message_id: the service's id of the message
    :param rejected: the addresses that the service rejected from it, as far as the source has them
    """

    reference: str
    state: State
    recipients: int
    unknown: int
    is_open: bool
    message_id: str | None
    rejected: tuple[str, ...]

    def or_stronger(self, earlier: TrackedRequest | None) -> TrackedRequest:
        """Return this request, or an earlier one of its reference if that is stronger."""
        if earlier is None:
            return self
        stronger = self if PRECEDENCE[self.state] >= PRECEDENCE[earlier.state] else earlier
        unknown = 0 if stronger.state is State.ACCEPTED else max(self.unknown, earlier.unknown)
        return stronger._replace(unknown=unknown, is_open=self.is_open or earlier.is_open)


@dataclass(eq=False, repr=False)
class JournalIndex(SendRequests):
    """The request that decides the status of each recipient: of the strongest state, and of several the newest.

    No probe of a message can refute a request, and the journal of a campaign has all results.

    :param body: hash of the content that this try sends to all
    :param in_flight: the most requests that may be in flight
    """

    plan: RecipientTable
    log: JournalLog
    body: str
    in_flight: int = 1
    rejected_resends: set[int] = field(default_factory=set, init=False)
    """The positions of recipients of unknown outcome that the service rejected on a resend."""

    def __post_init__(self) -> None:
        self._last_balances = deque[float](maxlen=self.in_flight)

    def replay(self) -> None:
        """Read what earlier tries stored, and set the status of recipients by it; once, after the table is loaded."""
        next_number = 0
        with self.plan.transaction():
            for entry in self.log.replay():
                for intent in entry.intents:
                    if intent.number < next_number and self._has_request(intent.number):
                        # A write that seemed to fail was repeated, and the store carried out both.
                        continue
                    next_number = max(next_number, intent.number + 1)
                    pending = Result(intent.number, State.PENDING, reason=BROKE_OFF)
                    self._add(intent, entry.body, entry.at.timestamp(), pending)
                    self._add_recipients(intent)
                for result in entry.results:
                    self._add_left_out(result)
                    self.record_result(result)
        if next_number:
            self._decide()
        if self.log.lost:
            # A request that was rejected after the loss repeated one that may have been accepted before it.
            self.plan.database.execute(
                "UPDATE recipient SET status = ?, reason = ?, request = NULL WHERE status IN (?, ?)",
                (RecipientStatus.UNKNOWN, self.log.lost, RecipientStatus.NOT_SENT, RecipientStatus.REJECTED),
            )

    def record(self, intent: Intent, at: float, result: Result) -> None:
        """Record a request of this try, and its result.

        :param at: when it was taken from the queue, as ``time.time()`` returns it
        """
        self._add(intent, self.body, at, result)
        if result.result is not None and (balance := known_figure(result.result[2])) is not None:
            self._last_balances.append(float(balance))
        if result.state is State.UNKNOWN:
            self._add_recipients(intent)
        self._add_left_out(result)

    def record_result(self, result: Result) -> None:
        """Record the result of a request. An accepted request stays accepted, whatever a late write has."""
        values = result.result or (None, None, None)
        self.plan.database.execute(
            "UPDATE request SET state = ?, id = ?, charge = ?, balance = ?, reason = ? WHERE number = ? AND state != ?",
            (PRECEDENCE[result.state], *values, result.reason, result.number, _ACCEPTED),
        )

    @property
    def records(self) -> list[RequestRecord]:
        """The requests that a recipient of unknown outcome has, each with these recipients alone.

        Of their references, the accepted requests are among them, without recipients.
        """
        if not self.plan.counts()[RecipientStatus.UNKNOWN]:
            return []
        members, values_hashes = dict[int, list[bytes]](), dict[int, list[bytes]]()
        for number, member, values_hash in self.plan.database.execute(
            """SELECT sent.request, member, values_hash
            FROM recipient CROSS JOIN recipient_request AS sent USING (member) WHERE status = ?""",
            (RecipientStatus.UNKNOWN,),
        ):
            members.setdefault(number, []).append(member)
            values_hashes.setdefault(number, []).append(values_hash)
        rows = self.plan.database.execute(
            """SELECT number, reference, at, body, state, id, reason, size FROM request
            WHERE state >= ? AND reference IN (SELECT reference
                FROM recipient CROSS JOIN recipient_request AS sent USING (member) JOIN request ON number = sent.request
                WHERE status = ? AND request.state = ?) ORDER BY number""",
            (_UNKNOWN, RecipientStatus.UNKNOWN, _UNKNOWN),
        ).fetchall()
        records = []
        for number, reference, at, body, strength, message_id, reason, size in rows:
            intent = Intent(
                number, reference, b"".join(members.get(number, ())), b"".join(values_hashes.get(number, ()))
            )
            message = None if message_id is None else (message_id, None, None)
            outcome = Result(number, _STATES[strength], message, reason)
            started_at = datetime.fromtimestamp(at, UTC)
            # A report is about any of its recipients, so a probe needs their number.
            records.append(
                RequestRecord(intent, self.log.operation or "", started_at, body=body, outcome=outcome, size=size)
            )
        return records

    def values_hashes(self, members: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the hashes of the placeholder values that this try sends, by recipient."""
        hashes = {}
        for member in members:
            for (values,) in self.plan.database.execute(
                "SELECT placeholder_values FROM recipient WHERE member = ? AND status = ?",
                (member, RecipientStatus.UNKNOWN),
            ):
                if values is not None:
                    hashes[member] = self.log.hasher.values_hash(values)
        return hashes

    def unknown_recipients(self) -> int:
        """Return the number of recipients of unknown outcome."""
        return self.plan.counts()[RecipientStatus.UNKNOWN]

    def requests(self) -> Iterable[TrackedRequest]:
        """Return the requests of all tries, those of one reference as one."""
        members: dict[int, set[bytes]] = {}
        addresses: dict[int, dict[str, None]] = {}
        for number, member, address in self.plan.database.execute(
            """SELECT left_out.request, left_out.member, address FROM left_out
            LEFT JOIN recipient ON recipient.member = left_out.member"""
        ):
            members.setdefault(number, set()).add(member)
            if address is not None:
                addresses.setdefault(number, {})[address] = None
        unknown = unknown_by_request(self.records)
        found: dict[str, TrackedRequest] = {}
        for number, reference, strength, size, message_id in self.plan.database.execute(
            "SELECT number, reference, state, size, id FROM request ORDER BY number"
        ):
            request = TrackedRequest(
                reference,
                _STATES[strength],
                size - len(members.get(number, ())),
                unknown.get(number, 0),
                number in unknown,
                message_id,
                tuple(addresses.get(number, ())),
            )
            found[reference] = request.or_stronger(found.get(reference))
        return found.values()

    def first_day(self) -> date | None:
        """Return the day, in UTC, of the first request that was accepted or may have been; ``None`` without one."""
        query = "SELECT min(at) FROM request WHERE state IN (?, ?)"
        at = self.plan.database.execute(query, (_ACCEPTED, _UNKNOWN)).fetchone()[0]
        return None if at is None else datetime.fromtimestamp(at, UTC).date()

    def confirm(self, accepted: Mapping[int, dict[str, Any]]) -> Sequence[Result]:
        """Record the requests that a probe established to be accepted."""
        results = []
        for number, message in accepted.items():
            message_id = None if message.get("id") is None else str(message["id"])
            result = Result(number, State.ACCEPTED, (message_id, None, None), "established by a probe")
            self.record_result(result)
            self.plan.database.execute(
                # Also those whose newest request of unknown outcome is another one.
                """UPDATE recipient SET status = ?, reason = NULL, request = ?
                WHERE status = ? AND (request = ? OR EXISTS
                (SELECT 1 FROM recipient_request AS sent WHERE sent.member = recipient.member AND sent.request = ?))""",
                (RecipientStatus.SENT, number, RecipientStatus.UNKNOWN, number, number),
            )
            results.append(result)
        return results

    def to_resend(self) -> list[Recipient]:
        """Return the recipients of unknown outcome that can be sent to again."""
        rows = self.plan.database.execute(
            "SELECT position, row, member, address, placeholder_values, pages, zone FROM recipient "
            "WHERE status = ? AND address IS NOT NULL AND coalesce(reason, '') != ?",
            (RecipientStatus.UNKNOWN, LEFT_OUT_SINCE),
        ).fetchall()
        recipients = map(Recipient._make, rows)
        return [recipient for recipient in recipients if recipient.position not in self.rejected_resends]

    def end_resends(self, unknown: str, advice: str) -> None:
        """Raise if recipients are still of unknown outcome.

        A recipient that is no longer in the source cannot be sent to again: the journal has only its hash. A recipient
        that a guard now excludes, or that the service rejects on the resend, is not sent to again either.
        """
        if not self.unknown_recipients():
            return
        if not self.to_resend():
            raise UnknownOutcomeError(
                f"{unknown} They cannot be sent to again: they are no longer in the source, left out by a guard, "
                f"or rejected on the resend. {advice}."
            )
        raise ResendLimitError(
            f"{unknown} They were sent to {MAX_RESENDS} more times in this try. A retry of the task sends to them "
            "again."
        )

    def changed(self) -> bool:
        """Return whether an earlier try sent another text to a recipient."""
        query = "SELECT 1 FROM request WHERE state = ? AND body != ? LIMIT 1"
        return self.plan.database.execute(query, (_ACCEPTED, self.body)).fetchone() is not None

    def money(self) -> tuple[float | None, float | None, int]:
        """Return what accepted requests were charged, the balance after the last, and the number of these requests."""
        # SQL would sum binary floats. There are few distinct charges, so they are summed here as decimals.
        charges = self.plan.database.execute(
            "SELECT charge, count(*) FROM request WHERE state = ? GROUP BY charge", (_ACCEPTED,)
        ).fetchall()
        spent = total(None if charge is None else to_decimal(charge) * times for charge, times in charges)
        requests = sum(times for _, times in charges)
        if self._last_balances:
            # Responses overtake each other, so the last one may have an older balance.
            return spent, min(self._last_balances), requests
        last = self.plan.database.execute(
            "SELECT balance FROM request WHERE balance IS NOT NULL ORDER BY number DESC LIMIT 1"
        ).fetchone()
        return spent, (last[0] if last else None), requests

    def earlier_requests(self) -> list[EarlierRequest]:
        """Return the requests that were accepted or are of unknown outcome, in the order in which they were started.

        One of unknown outcome may have been charged, also if a resend to its recipients was accepted.
        """
        rows = self.plan.database.execute(
            # A recipient names the newest of its accepted requests. Only requests that not all of their recipients name
            # are looked up by their recipients, and these are not stored of a request that is accepted in this try.
            """WITH latest AS (
                SELECT request AS number, count(*) AS recipients, sum(coalesce(pages, 1)) AS units FROM recipient
                WHERE status = ? GROUP BY request
            ), stored AS (
                SELECT sent.request AS number, sum(coalesce(pages, 1)) AS units FROM recipient_request AS sent
                LEFT JOIN recipient ON recipient.member = sent.member AND status != ?
                WHERE sent.request IN (SELECT number FROM request LEFT JOIN latest USING (number)
                    WHERE state >= ? AND coalesce(recipients, 0) < size)
                GROUP BY sent.request
            )
            SELECT at, coalesce(stored.units, latest.units, 0), charge, balance, state = ? FROM request
            LEFT JOIN stored USING (number) LEFT JOIN latest USING (number)
            WHERE state >= ? ORDER BY at, number""",
            (RecipientStatus.SENT, RecipientStatus.DUPLICATE, _UNKNOWN, _UNKNOWN, _UNKNOWN),
        )
        return [EarlierRequest(*row) for row in rows]

    def resent_units(self) -> int:
        """Return the billable units of requests of unknown outcome whose recipients were sent to again.

        Each of these requests may have been charged beside the newest one.
        """
        query = """SELECT coalesce(sum(coalesce(pages, 1)), 0) FROM recipient_request AS sent
            JOIN request ON number = sent.request
            LEFT JOIN recipient ON recipient.member = sent.member AND status != ?
            WHERE state = ? AND NOT (status IS ? AND recipient.request IS number)"""
        arguments = (RecipientStatus.DUPLICATE, _UNKNOWN, RecipientStatus.UNKNOWN)
        units: int = self.plan.database.execute(query, arguments).fetchone()[0]
        return units

    def earlier_epochs(self) -> list[EarlierRequest]:
        """Return the like requests before the clears after which all recipients are sent to again."""
        requests = list[EarlierRequest]()
        for record in self.log.earlier_requests():
            at = record.started_at.timestamp() if record.started_at else 0.0
            if record.state is State.ACCEPTED and record.outcome is not None:
                _, charge, balance = record.outcome.result or (None, None, None)
                requests.append(EarlierRequest(at, self._units(record.members), charge, balance))
            elif record.is_unresolved:
                requests.append(EarlierRequest(at, self._units(record.members), None, None, is_unknown=True))
        return sorted(requests, key=lambda request: request.at)

    def _units(self, members: Sequence[bytes]) -> int:
        """Return the billable units of recipients: their pages now, one where they are not known."""
        find = "SELECT coalesce(pages, 1) FROM recipient WHERE member = ? ORDER BY position LIMIT 1"
        found = (self.plan.database.execute(find, (member,)).fetchone() for member in members)
        return sum(row[0] if row else 1 for row in found)

    def _add(self, intent: Intent, body: str | None, at: float, result: Result) -> None:
        self.plan.change(
            "INSERT INTO request (number, reference, state, body, at, size, id, charge, balance, reason) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                intent.number,
                intent.reference,
                PRECEDENCE[result.state],
                body,
                at,
                len(intent),
                *(result.result or (None, None, None)),
                result.reason,
            ),
        )

    def _add_recipients(self, intent: Intent) -> None:
        self.plan.database.executemany(
            "INSERT INTO recipient_request VALUES (?, ?, ?)",
            ((member, intent.number, values_hash) for member, values_hash in intent.each()),
        )

    def _add_left_out(self, result: Result) -> None:
        for member in split_members(result.left_out):
            self.plan.change("INSERT INTO left_out VALUES (?, ?)", (member, result.number))

    def _has_request(self, number: int) -> bool:
        return self.plan.database.execute("SELECT 1 FROM request WHERE number = ?", (number,)).fetchone() is not None

    def _decide(self) -> None:
        self.plan.database.executescript(
            f"""
            CREATE INDEX by_recipient_request ON recipient_request (member, request);
            DELETE FROM recipient_request WHERE (member, request) IN (SELECT member, request FROM left_out);
            CREATE TABLE strongest AS
                SELECT member, recipient_request.request AS request, state, reason,
                    max(state * 1000000000000 + number) AS strength
                FROM recipient_request JOIN request ON number = recipient_request.request GROUP BY member;
            CREATE UNIQUE INDEX strongest_of ON strongest (member);
            DELETE FROM strongest WHERE state = 0;
            UPDATE recipient SET request = strongest.request, status = {_status_of("strongest.state")},
                reason = CASE WHEN strongest.state = {_UNKNOWN} AND status != {RecipientStatus.NOT_SENT:d}
                    THEN '{LEFT_OUT_SINCE}' END
                FROM strongest WHERE strongest.member = recipient.member
                AND (status = {RecipientStatus.NOT_SENT:d}
                     OR (strongest.state >= {_UNKNOWN}
                         AND status IN ({RecipientStatus.NOT_ALLOWED:d}, {RecipientStatus.SUPPRESSED:d})));
            INSERT INTO recipient (status, member, request, reason)
                SELECT {_status_of("state")}, member, request, '{_REMOVED_FROM_SOURCE}' FROM strongest
                WHERE state >= {_UNKNOWN}
                AND NOT EXISTS (SELECT 1 FROM recipient WHERE recipient.member = strongest.member);
            DROP TABLE strongest;
            """  # noqa: S608 - only constants of this module
        )


def _status_of(column: str) -> str:
    """Return SQL for the status of a recipient by the state of its request."""
    whens = " ".join(f"WHEN {state} THEN {status:d}" for state, status in _STATUSES.items())
    return f"CASE {column} {whens} END"
