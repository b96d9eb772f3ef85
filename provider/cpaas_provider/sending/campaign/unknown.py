"""Requests of unknown outcome, when everything else is done: found out, or decided as the author wants."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta

from cpaas_provider.api.amounts import counted
from cpaas_provider.sending.campaign.journal_index import JournalIndex, UnknownRequest
from cpaas_provider.sending.campaign.recipients import LEFT_OUT_SINCE, Recipient, RecipientStatus, RecipientTable
from cpaas_provider.sending.engine import BY_HAND
from cpaas_provider.sending.errors import ChangedBodyError, ProbeLaterError, UnknownOutcomeError, join_references
from cpaas_provider.sending.hashing import KeyedHasher
from cpaas_provider.sending.journal.model import Intent, RequestRecord, Result, State
from cpaas_provider.sending.spec import OnUnknown, OutcomeProbe

log = logging.getLogger(__name__)

_FIRST_LOOK = timedelta(seconds=5)
_LONGEST_BETWEEN_LOOKS = timedelta(seconds=60)


class UnknownResolver:
    """What nobody knows of a campaign.

    :param body: hash of what this try says to all
    :param lost: why nobody knows of anybody, where that is so
    :param address: the task instance as `airflow cpaas journal` takes it
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
        address: str,
    ) -> None:
        self._plan = plan
        self._standing = standing
        self._hasher = hasher
        self._operation = operation
        self._body = body
        self._lost = lost
        self._address = address

    def people(self) -> int:
        """Return how many are in doubt."""
        return self._plan.counts()[RecipientStatus.UNKNOWN]

    def requests(self) -> list[UnknownRequest]:
        """Return the requests somebody is in doubt by, in order."""
        return self._standing.doubts()

    def look_for_evidence(
        self, ways: Sequence[OutcomeProbe], unknown_timeout: timedelta
    ) -> dict[int, dict[str, object]]:
        """Return what evidence there is, by the number of the request.

        :raises ProbeLaterError: when evidence may yet come
        """
        doubts = self._standing.doubts() if ways else []
        found = {}
        for doubt in doubts:
            entry = self._entry(doubt)
            results = (way.check(None, entry) for way in ways)
            if (result := next((one for one in results if one is not None), None)) is not None:
                log.info("A probe established that request %s of unknown outcome was accepted.", doubt.reference)
                found[doubt.number] = result
        max_wait = min(max((way.max_wait for way in ways), default=timedelta()), unknown_timeout)
        now = datetime.now(UTC)
        waiting = [doubt.at for doubt in doubts if doubt.number not in found and doubt.at + max_wait > now]
        if waiting and not found:
            since = max(_FIRST_LOOK, min(now - max(waiting), _LONGEST_BETWEEN_LOOKS))
            until = min(now + since, max(waiting) + max_wait)
            raise ProbeLaterError(f"{self.words()} A probe may still resolve it.", until)
        return found

    def refuse_changed(self) -> None:
        """Raise where somebody in doubt would now be told something else."""
        changed = [doubt for doubt in self._standing.doubts() if self._changed(doubt)]
        if changed:
            raise ChangedBodyError(
                f"{self.words()} The content changed since these requests were made, so the task neither sends nor "
                f"skips it. {self._advice()}. Or start a new run."
            )

    def decide(self, on_unknown: OnUnknown) -> None:
        """Do what the author wants about people nothing could be found out about; ``resend`` is done elsewhere.

        :raises UnknownOutcomeError: when the author wants the task to fail
        """
        if on_unknown is OnUnknown.SKIP:
            log.warning("%s on_unknown is 'skip', so it is not sent again and counts as unknown.", self.words())
            return
        raise UnknownOutcomeError(
            f"{self.words()} {self._advice()}. on_unknown='skip' or 'resend' avoids this failure."
        )

    def to_resend(self, rejected: Collection[int]) -> list[Recipient]:
        """Return the people in doubt who can be sent to again.

        :param rejected: the places of those the service rejected when they were
        """
        rows = self._plan.database.execute(
            "SELECT place, row, member, address, words, pages, zone FROM person "
            "WHERE fate = ? AND address IS NOT NULL AND coalesce(reason, '') != ?",
            (RecipientStatus.UNKNOWN, LEFT_OUT_SINCE),
        ).fetchall()
        return [person for row in rows if (person := Recipient._make(row)).place not in rejected]

    def refuse_hopeless(self, rejected: Collection[int]) -> None:
        """Raise where nobody in doubt can be sent to again: who left the source is known by a hash alone.

        Nor is anybody sent to whom a guard leaves out by now, or whom the service rejects.
        """
        if not self.to_resend(rejected):
            raise UnknownOutcomeError(
                f"{self.words()} They cannot be sent to again: they are no longer in the source, left out by a guard, "
                f"or rejected on the resend. {self._advice()}."
            )

    def words(self) -> str:
        """Return which requests are of unknown outcome and why, in sentences."""
        doubts = self._standing.doubts()
        references = [doubt.reference for doubt in doubts]
        reasons = sorted({doubt.reason.split(". ")[0].rstrip(".") for doubt in doubts if doubt.reason})
        if self._lost:
            reasons.insert(0, self._lost)
        why = "; ".join(reasons[:2]) or "not recorded"
        which = "request" if len(references) == 1 else f"{len(references)} requests"
        recipients = counted(self.people(), "recipient")
        if not references:
            return f"Outcome unknown: {recipients}. Cause: {why}."
        return f"Outcome unknown: {which} {join_references(references)} ({recipients}). Cause: {why}."

    def _entry(self, doubt: UnknownRequest) -> RequestRecord:
        members = b"".join(member for _, member, _, _ in self._standing.in_doubt_by(doubt.number))
        intent = Intent(doubt.number, doubt.reference, members)
        return RequestRecord(intent, self._operation, doubt.at, outcome=Result(doubt.number, State.UNKNOWN))

    def _changed(self, doubt: UnknownRequest) -> bool:
        if doubt.body != self._body:
            return True
        return any(
            said and words is not None and self._hasher.words(words) != said
            for _, _, words, said in self._standing.in_doubt_by(doubt.number)
        )

    def _advice(self) -> str:
        if self._lost:
            return (
                "Check the service's own records. To send all the same, start a new run, or clear the task with "
                "resend_on_clear=True"
            )
        return BY_HAND.format(address=self._address)
