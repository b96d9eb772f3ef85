"""The recipients of a campaign whose outcome is unknown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cpaas_provider.sending.campaign.journal_index import JournalIndex, UnknownRequest
from cpaas_provider.sending.campaign.recipients import (
    LEFT_OUT_SINCE,
    Recipient,
    RecipientStatus,
    RecipientTable,
)
from cpaas_provider.sending.errors import RefutedError, ResendLimitError, UnknownOutcomeError
from cpaas_provider.sending.hashing import KeyedHasher
from cpaas_provider.sending.journal.model import Intent, RequestRecord, Result, State
from cpaas_provider.sending.resolver import MAX_RESENDS, describe_unknown

Resend = Callable[[Sequence[Recipient], int], set[int]]


class UnknownRecipients:
    """What a resolver works on of a campaign.

    :param body: hash of what this try says to all
    :param lost: why nobody knows of anybody, where that is so
    :param settle: records results of requests, as probes established them
    """

    def __init__(
        self,
        plan: RecipientTable,
        standing: JournalIndex,
        hasher: KeyedHasher,
        operation: str,
        body: str,
        *,
        lost: str | None,
        settle: Callable[[Sequence[Result]], None],
    ) -> None:
        self._plan = plan
        self._standing = standing
        self._hasher = hasher
        self._operation = operation
        self._body = body
        self.lost = lost
        self._settle = settle
        self._rejected = set[int]()
        self.send: Resend = lambda recipients, resend: set()
        """Sends to recipients again, and returns the places of those whom the service rejects by now."""

    def recipients(self) -> int:
        """Return how many are of unknown outcome."""
        return self._plan.counts()[RecipientStatus.UNKNOWN]

    def requests(self) -> list[RequestRecord]:
        """Return the requests that somebody is in doubt by, in order."""
        return [self._record(request) for request in self._standing.doubts()]

    def is_changed(self, request: RequestRecord) -> bool:
        """Tell whether a request said something else than it would now."""
        if request.body != self._body:
            return True
        return any(
            said and words is not None and self._hasher.words(words) != said
            for _, _, words, said in self._standing.in_doubt_by(request.number)
        )

    def accept(self, found: Mapping[int, dict[str, Any]]) -> None:
        """Record that requests were accepted, as a probe established."""
        results = [
            Result(number, State.ACCEPTED, (_text(told.get("id")), None, None), "established by a probe")
            for number, told in found.items()
        ]
        self._settle(results)
        for result in results:
            self._standing.record_result(result)
            self._standing.settle_doubt(result.number)

    def refute(self, request: RequestRecord, error: RefutedError) -> None:
        """Leave a request unknown: no probe of a message can establish that it was not accepted."""

    def record_unknown(self) -> None:
        """Record nothing: the journal of a campaign has all there is to say."""

    def resend(self, resend: int) -> bool:
        """Send again to those who can be sent to, and tell whether there was one."""
        recipients = self._to_resend()
        if not recipients:
            return False
        self._rejected |= self.send(recipients, resend)
        return True

    def end_resends(self, unknown: str, advice: str) -> None:
        """Raise where somebody is of unknown outcome still.

        Who left the source is known by a hash alone. Nor is anybody sent to whom a guard leaves out by now, or whom the
        service rejects.
        """
        if not self.recipients():
            return
        if not self._to_resend():
            raise UnknownOutcomeError(
                f"{unknown} They cannot be sent to again: they are no longer in the source, left out by a guard, "
                f"or rejected on the resend. {advice}."
            )
        raise ResendLimitError(
            f"{unknown} They were sent to {MAX_RESENDS} more times in this try. A retry of the task sends to them "
            "again."
        )

    def describe(self) -> str:
        """Return which requests are of unknown outcome and why, in sentences."""
        return describe_unknown(self.requests(), self.recipients(), self.lost)

    def _to_resend(self) -> list[Recipient]:
        rows = self._plan.database.execute(
            "SELECT place, row, member, address, words, pages, zone FROM person "
            "WHERE fate = ? AND address IS NOT NULL AND coalesce(reason, '') != ?",
            (RecipientStatus.UNKNOWN, LEFT_OUT_SINCE),
        ).fetchall()
        return [one for row in rows if (one := Recipient._make(row)).place not in self._rejected]

    def _record(self, request: UnknownRequest) -> RequestRecord:
        members = b"".join(member for _, member, _, _ in self._standing.in_doubt_by(request.number))
        intent = Intent(request.number, request.reference, members)
        outcome = Result(request.number, State.UNKNOWN, reason=request.reason)
        return RequestRecord(intent, self._operation, request.at, body=request.body, outcome=outcome)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
