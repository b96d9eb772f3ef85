"""The recipients of a campaign whose outcome is unknown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


class UnknownRecipients:
    """What a resolver works on of a campaign.

    :param body: hash of what this try says to all
    :param lost: why the journal of an earlier try is lost, where that is so
    """

    def __init__(
        self,
        plan: RecipientTable,
        index: JournalIndex,
        hasher: KeyedHasher,
        operation: str,
        body: str,
        *,
        lost: str | None,
    ) -> None:
        self._plan = plan
        self._index = index
        self._hasher = hasher
        self._operation = operation
        self._body = body
        self.lost = lost
        self.rejected = set[int]()
        """The places of recipients that the service rejects on the resend."""

    def recipients(self) -> int:
        """Return how many are of unknown outcome."""
        return self._plan.counts()[RecipientStatus.UNKNOWN]

    def requests(self) -> list[RequestRecord]:
        """Return the unresolved requests, in order."""
        return [self._record(request) for request in self._index.unresolved()]

    def is_changed(self, request: RequestRecord) -> bool:
        """Return whether a request sent other content than it would now."""
        if request.body != self._body:
            return True
        return any(
            sent and words is not None and self._hasher.words(words) != sent
            for _, _, words, sent in self._index.unresolved_recipients(request.number)
        )

    def confirm(self, found: Mapping[int, dict[str, Any]]) -> Sequence[Result]:
        """Record that requests were accepted, as a probe established."""
        results = [
            Result(number, State.ACCEPTED, (_text(message.get("id")), None, None), "established by a probe")
            for number, message in found.items()
        ]
        for result in results:
            self._index.record_result(result)
            self._index.set_accepted(result.number)
        return results

    def refute(self, request: RequestRecord, error: RefutedError) -> Result | None:
        """Leave a request unknown: no probe of a message can establish that it was not accepted."""
        return None

    def interrupted(self) -> Sequence[Result]:
        """Return nothing: the journal of a campaign has all results."""
        return ()

    def end_resends(self, unknown: str, advice: str) -> None:
        """Raise where recipients are of unknown outcome still.

        The journal has only hashes, so recipients that left the source cannot be sent to again. Nor are recipients that
        a guard leaves out by now, or that the service rejects.
        """
        if not self.recipients():
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

    def describe(self) -> str:
        """Return which requests are of unknown outcome and why, in sentences."""
        return describe_unknown(self.requests(), self.recipients(), self.lost)

    def to_resend(self) -> list[Recipient]:
        """Return those who can be sent to again."""
        rows = self._plan.database.execute(
            "SELECT place, row, member, address, words, pages, zone FROM recipient "
            "WHERE status = ? AND address IS NOT NULL AND coalesce(reason, '') != ?",
            (RecipientStatus.UNKNOWN, LEFT_OUT_SINCE),
        ).fetchall()
        return [one for row in rows if (one := Recipient._make(row)).place not in self.rejected]

    def _record(self, request: UnknownRequest) -> RequestRecord:
        members = b"".join(member for _, member, _, _ in self._index.unresolved_recipients(request.number))
        intent = Intent(request.number, request.reference, members)
        outcome = Result(request.number, State.UNKNOWN, reason=request.reason)
        return RequestRecord(intent, self._operation, request.at, body=request.body, outcome=outcome)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
