"""What earlier tries recorded, added to the recipient table from the journal, and what this try records beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from cpaas_provider.api.amounts import to_decimal, total
from cpaas_provider.sending.campaign.recipients import LEFT_OUT_SINCE, RecipientStatus, RecipientTable
from cpaas_provider.sending.journal.log import JournalLog
from cpaas_provider.sending.journal.model import BROKE_OFF, PRECEDENCE, Intent, LogEntry, Result, State, split_members

_REJECTED, _DOUBTFUL, _SETTLED = 1, 2, 3
_FATES = {_REJECTED: RecipientStatus.REJECTED, _DOUBTFUL: RecipientStatus.UNKNOWN, _SETTLED: RecipientStatus.SENT}
_REMOVED_FROM_SOURCE = "no longer in the source"


@dataclass(frozen=True)
class UnknownRequest:
    """A request of unknown outcome.

    :param body: hash of what it says to all; ``None`` where that is lost
    """

    number: int
    reference: str
    at: datetime
    reason: str | None
    body: str | None


class JournalIndex:
    """Which request decides about each person: the strongest of theirs, the newest of several.

    :param body: hash of what this try says to all
    """

    def __init__(self, plan: RecipientTable, journal: JournalLog, body: str) -> None:
        self._plan = plan
        self._journal = journal
        self._body = body
        self.next_number = 0

    def replay(self) -> None:
        """Go through what earlier tries stored, once, when the plan is made."""
        with self._plan.transaction():
            for batch in self._journal.replay():
                for claim in batch.intents:
                    if claim.number < self.next_number and self._is_there(claim.number):
                        # A write that failed, was made again, and was carried out both times.
                        continue
                    self._claimed(claim, batch.body, batch.at, end=_broke_off(claim), now=False)
                    self._plan.database.executemany(
                        "INSERT INTO standing VALUES (?, ?, ?)",
                        ((member, claim.number, words) for member, words in claim.each()),
                    )
                for end in batch.results:
                    self.record_result(self._reopened(end, batch))
                    self._plan.database.executemany(
                        "INSERT INTO left_out VALUES (?, ?)",
                        ((member, end.number) for member in split_members(end.left_out)),
                    )
        if self.next_number:
            self._decide()
        self.next_number = max(self.next_number, self._journal.first_number)
        if self._journal.lost:
            # What was rejected since only repeated a request that may have been accepted before the loss.
            self._plan.database.execute(
                "UPDATE person SET fate = ?, reason = ?, request = NULL WHERE fate IN (?, ?)",
                (RecipientStatus.UNKNOWN, self._journal.lost, RecipientStatus.NOT_SENT, RecipientStatus.REJECTED),
            )

    def record(self, claim: Intent, at: datetime, end: Result) -> None:
        """Note a request of this try, and what became of it."""
        self._claimed(claim, self._body, at, end=end, now=True)

    def record_result(self, end: Result) -> None:
        """Note what became of a request."""
        result = end.result or (None, None, None)
        self._plan.database.execute(
            "UPDATE request SET state = ?, id = ?, charge = ?, balance = ?, reason = ? WHERE number = ?",
            (PRECEDENCE[end.state], *result, end.reason, end.number),
        )

    def doubts(self) -> list[UnknownRequest]:
        """Return the requests that somebody in the plan is in doubt by, in order."""
        rows = self._plan.database.execute(
            """SELECT number, reference, at, reason, body FROM request
            WHERE number IN (SELECT DISTINCT request FROM person WHERE fate = ?) ORDER BY number""",
            (RecipientStatus.UNKNOWN,),
        ).fetchall()
        return [
            UnknownRequest(number, reference, datetime.fromisoformat(at), reason, body)
            for number, reference, at, reason, body in rows
        ]

    def accepted(self) -> Iterator[tuple[str, int, str | None]]:
        """Yield each request the service accepted: its reference, how many recipients, and the id of the service."""
        yield from self._plan.database.execute(
            """SELECT reference, count(*), id FROM person JOIN request ON number = person.request
            WHERE fate = ? GROUP BY number ORDER BY number""",
            (RecipientStatus.SENT,),
        )

    def in_doubt_by(self, number: int) -> Iterator[tuple[int, bytes, str | None, bytes | None]]:
        """Yield place, member and words of each person in doubt by a request, and the hash of the words it said."""
        yield from self._plan.database.execute(
            """SELECT place, person.member, person.words, standing.words FROM person
            LEFT JOIN standing ON standing.member = person.member AND standing.request = person.request
            WHERE person.request = ? AND fate = ?""",
            (number, RecipientStatus.UNKNOWN),
        ).fetchall()

    def settle_doubt(self, number: int) -> None:
        """Note that a request of unknown outcome was carried out after all."""
        self._plan.database.execute(
            "UPDATE person SET fate = ?, reason = NULL WHERE request = ? AND fate = ?",
            (RecipientStatus.SENT, number, RecipientStatus.UNKNOWN),
        )

    def changed(self) -> bool:
        """Tell whether an earlier try sent another text to somebody."""
        query = "SELECT 1 FROM request WHERE state = ? AND body != ? LIMIT 1"
        return self._plan.database.execute(query, (_SETTLED, self._body)).fetchone() is not None

    def money(self) -> tuple[float | None, float | None, int]:
        """Return what settled requests were charged, the last balance told, and how many there are."""
        # SQL would sum binary floats. There are few charges, however many requests.
        charges = self._plan.database.execute(
            "SELECT charge, count(*) FROM request WHERE state = ? GROUP BY charge", (_SETTLED,)
        ).fetchall()
        spent = total(None if charge is None else to_decimal(charge) * times for charge, times in charges)
        requests = sum(times for _, times in charges)
        last = self._plan.database.execute(
            "SELECT balance FROM request WHERE balance IS NOT NULL ORDER BY now DESC, number DESC LIMIT 1"
        ).fetchone()
        return spent, (last[0] if last else None), requests

    def _claimed(self, claim: Intent, body: str | None, at: datetime, *, end: Result, now: bool) -> None:
        self.next_number = max(self.next_number, claim.number + 1)
        self._plan.change(
            "INSERT INTO request VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                claim.number,
                claim.reference,
                PRECEDENCE[end.state],
                body,
                at.isoformat(),
                len(claim),
                *(end.result or (None, None, None)),
                end.reason,
                now,
            ),
        )

    def _is_there(self, number: int) -> bool:
        return self._plan.database.execute("SELECT 1 FROM request WHERE number = ?", (number,)).fetchone() is not None

    def _reopened(self, end: Result, batch: LogEntry) -> Result:
        """Whatever they were rejected for, a clear since has it tried again, and so has another run."""
        if end.state is State.REJECTED and batch.clear_epoch != self._journal.tries.clear_epoch:
            return Result(end.number, State.NOT_SENT, reason=end.reason)
        return end

    def _decide(self) -> None:
        self._plan.database.executescript(
            f"""
            CREATE INDEX standing_of ON standing (member, request);
            DELETE FROM standing WHERE (member, request) IN (SELECT member, request FROM left_out);
            CREATE TABLE strongest AS
                SELECT member, standing.request AS request, state, reason,
                    max(state * 1000000000000 + number) AS strength
                FROM standing JOIN request ON number = standing.request GROUP BY member;
            CREATE UNIQUE INDEX strongest_of ON strongest (member);
            DELETE FROM strongest WHERE state = 0;
            UPDATE person SET request = found.request, fate = {_fate_of("found.state")},
                reason = CASE WHEN found.state = {_DOUBTFUL} AND fate != {RecipientStatus.NOT_SENT:d}
                    THEN '{LEFT_OUT_SINCE}' END
                FROM strongest AS found WHERE found.member = person.member
                AND (fate = {RecipientStatus.NOT_SENT:d}
                     OR (found.state >= {_DOUBTFUL}
                         AND fate IN ({RecipientStatus.NOT_ALLOWED:d}, {RecipientStatus.SUPPRESSED:d})));
            INSERT INTO person (fate, member, request, reason)
                SELECT {_fate_of("state")}, member, request, '{_REMOVED_FROM_SOURCE}' FROM strongest AS found
                WHERE state >= {_DOUBTFUL} AND NOT EXISTS (SELECT 1 FROM person WHERE person.member = found.member);
            DROP TABLE strongest;
            """  # noqa: S608 - numbers of our own
        )


def _broke_off(claim: Intent) -> Result:
    return Result(claim.number, State.PENDING, reason=BROKE_OFF)


def _fate_of(column: str) -> str:
    whens = " ".join(f"WHEN {state} THEN {fate:d}" for state, fate in _FATES.items())
    return f"CASE {column} {whens} END"
