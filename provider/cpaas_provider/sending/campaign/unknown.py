"""The recipients of a campaign whose outcome is unknown."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cpaas_provider.sending.campaign.journal_index import JournalIndex
from cpaas_provider.sending.campaign.recipients import LEFT_OUT_SINCE, Recipient, RecipientStatus
from cpaas_provider.sending.errors import ResendLimitError, UnknownOutcomeError
from cpaas_provider.sending.journal.model import RequestRecord, Result, State
from cpaas_provider.sending.resolver import MAX_RESENDS, Unresolved, describe_unknown


@dataclass(eq=False, repr=False)
class UnknownRecipients(Unresolved):
    """The recipients and requests of unknown outcome, as the resolver reads and changes them.

    No probe of a message can refute a request, and the journal of a campaign has all results.

    :param index: has the requests of all tries
    """

    index: JournalIndex
    rejected: set[int] = field(default_factory=set, init=False)
    """The places of recipients that the service rejects on the resend."""

    @property
    def lost(self) -> str | None:
        """Why the journal of an earlier try is lost; ``None`` if it is not."""
        return self.index.journal.lost

    def recipients(self) -> int:
        """Return the number of recipients of unknown outcome."""
        return self.index.plan.counts()[RecipientStatus.UNKNOWN]

    def requests(self) -> list[RequestRecord]:
        """Return the unresolved requests, in order."""
        return self.index.unresolved()

    def is_changed(self, request: RequestRecord) -> bool:
        """Return whether the content of a request differs from the content of this try."""
        if request.body != self.index.body:
            return True
        hasher = self.index.journal.hasher
        return any(
            sent_hash and values is not None and hasher.values_hash(values) != sent_hash
            for _, values, sent_hash in self.index.unresolved_recipients(request.number)
        )

    def accepted_ids(self) -> Mapping[str, Collection[str | None]]:
        """Return the service's ids of accepted requests whose reference an unresolved request has, too.

        :return: the ids by reference, ``None`` for an id that is not recorded
        """
        return self.index.accepted_ids()

    def confirm(self, accepted: Mapping[int, dict[str, Any]]) -> Sequence[Result]:
        """Record the requests that a probe established to be accepted."""
        results = [
            Result(number, State.ACCEPTED, (_text(message.get("id")), None, None), "established by a probe")
            for number, message in accepted.items()
        ]
        for result in results:
            self.index.record_result(result)
            self.index.set_accepted(result.number)
        return results

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
        rows = self.index.plan.database.execute(
            "SELECT place, row, member, address, placeholder_values, pages, zone FROM recipient "
            "WHERE status = ? AND address IS NOT NULL AND coalesce(reason, '') != ?",
            (RecipientStatus.UNKNOWN, LEFT_OUT_SINCE),
        ).fetchall()
        return [recipient for recipient in map(Recipient._make, rows) if recipient.place not in self.rejected]


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
