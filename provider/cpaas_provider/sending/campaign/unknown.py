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
    """The recipients and requests of unknown outcome, as the resolver reads and changes them.

    :param body: hash of the content that this try sends to all
    :param lost: why the journal of an earlier try is lost; ``None`` if it is not
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
        """Return the number of recipients of unknown outcome."""
        return self._plan.counts()[RecipientStatus.UNKNOWN]

    def requests(self) -> list[RequestRecord]:
        """Return the unresolved requests, in order."""
        return [self._record(request) for request in self._index.unresolved()]

    def is_changed(self, request: RequestRecord) -> bool:
        """Return whether the content of a request differs from the content of this try."""
        if request.body != self._body:
            return True
        return any(
            sent_hash and values is not None and self._hasher.values_hash(values) != sent_hash
            for _, _, values, sent_hash in self._index.unresolved_recipients(request.number)
        )

    def confirm(self, accepted: Mapping[int, dict[str, Any]]) -> Sequence[Result]:
        """Record the requests that a probe established to be accepted."""
        results = [
            Result(number, State.ACCEPTED, (_text(message.get("id")), None, None), "established by a probe")
            for number, message in accepted.items()
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
        """Raise if recipients are still of unknown outcome.

        A recipient that is no longer in the source cannot be sent to again: the journal has only its hash. A recipient
        that a guard now excludes, or that the service rejects on the resend, is not sent to again either.
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
        """Return the recipients of unknown outcome that can be sent to again."""
        rows = self._plan.database.execute(
            "SELECT place, row, member, address, placeholder_values, pages, zone FROM recipient "
            "WHERE status = ? AND address IS NOT NULL AND coalesce(reason, '') != ?",
            (RecipientStatus.UNKNOWN, LEFT_OUT_SINCE),
        ).fetchall()
        return [recipient for recipient in map(Recipient._make, rows) if recipient.place not in self.rejected]

    def _record(self, request: UnknownRequest) -> RequestRecord:
        members = b"".join(member for _, member, _, _ in self._index.unresolved_recipients(request.number))
        intent = Intent(request.number, request.reference, members)
        outcome = Result(request.number, State.UNKNOWN, reason=request.reason)
        return RequestRecord(intent, self._operation, request.at, body=request.body, outcome=outcome)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
