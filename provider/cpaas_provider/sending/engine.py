"""One request that must happen once: claimed, made, settled, and, where its outcome is unknown, found out or decided.

Everything that can end a try in between leaves a journal from which the next try knows what may be done.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from cpaas_provider.api.amounts import counted
from cpaas_provider.api.backoff import backoff
from cpaas_provider.api.errors import CpaasError, CpaasRejectedError
from cpaas_provider.sending.errors import (
    ChangedBodyError,
    PartlyRejectedError,
    ProbeFailedError,
    ProbeLaterError,
    RefutedError,
    ResendLimitError,
    StoppedError,
    UnknownOutcomeError,
    join_references,
)
from cpaas_provider.sending.journal.journal import Journal
from cpaas_provider.sending.journal.model import RequestRecord, State, by_reference
from cpaas_provider.sending.journal.resolution import count_recipients
from cpaas_provider.sending.shutdown import AnswerNotAwaitedError, StopSignal
from cpaas_provider.sending.spec import OnUnknown, Outcome, SendSpec

log = logging.getLogger(__name__)

RESENDS = 4
"""How often one try sends a request of unknown outcome again, where the author wants that."""

_FIRST_PAUSE = 1.0
_FIRST_LOOK = timedelta(seconds=5)
_LONGEST_BETWEEN_LOOKS = timedelta(seconds=60)

# {address} is the task instance, as the command takes it.
BY_HAND = (
    "Check the service's own records by recipient and time, or by the reference if it was sent as external_ref. Then "
    "resolve with `airflow cpaas journal resolve --sent {address}` or `--not-sent`, and clear the task"
)
# A clear that drops the state drops a manual resolution, too.
AFTER_LOSS = (
    "Check the service's own records. To send all the same, start a new run, or clear the task with "
    "resend_on_clear=True. To resolve it manually (`airflow cpaas journal show {address}`), clear the task so that its "
    "task state is retained"
)


class SendEngine:
    """Does a deed so that it happens once, whatever ended earlier tries.

    :param client: makes the requests; told to stop when the task is
    :param on_unknown: what to do where no evidence settles a request
    :param unknown_timeout: for how long after a claim evidence is waited for
    :param address: the task instance as `airflow cpaas journal` takes it
    """

    def __init__(
        self,
        deed: SendSpec,
        journal: Journal,
        client: Any,
        stop: StopSignal,
        *,
        on_unknown: OnUnknown = OnUnknown.FAIL,
        unknown_timeout: timedelta = timedelta(minutes=10),
        address: str = "DAG_ID RUN_ID TASK_ID",
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._deed = deed
        self._journal = journal
        self._client = client
        self._stop = stop
        self._on_unknown = on_unknown
        self._unknown_timeout = unknown_timeout
        self._address = address
        self._clock = clock
        self._requested = False
        self._unread: CpaasError | None = None

    def run(self) -> Outcome:
        """Do what is left to do.

        :raises CpaasError: when a request was surely not carried out: rejected, or not sent
        :raises SendingError: what else may happen, see there
        :raises ProbeLaterError: when evidence may yet come
        """
        self._journal.record_loss(self._deed.operation, self._deed.recipients)
        self._send_to_those_not_reached()
        self._look_for_all_evidence()
        if doubtful := self._doubtful():
            self._wait_for_evidence(doubtful)
            self._refuse_unread_evidence(doubtful)
            self._refuse_changed(doubtful)
            self._do_as_the_author_wants(doubtful)
        return self.outcome()

    def _do_as_the_author_wants(self, doubtful: Sequence[RequestRecord]) -> None:
        """Do what ``on_unknown`` says about requests that nothing could be found out about."""
        if self._on_unknown is OnUnknown.RESEND:
            self._resend()
            return
        self._journal.record_unknown()
        if self._on_unknown is OnUnknown.FAIL:
            raise UnknownOutcomeError(
                f"{in_doubt(doubtful)} {self._advice()}. on_unknown='skip' or 'resend' avoids this failure."
            )
        log.warning("%s on_unknown is 'skip', so it is not sent again and counts as unknown.", in_doubt(doubtful))

    def _advice(self) -> str:
        return (AFTER_LOSS if self._journal.lost else BY_HAND).format(address=self._address)

    def outcome(self) -> Outcome:
        """Return what is known by now."""
        return Outcome.of(self._journal.records, earlier=not self._requested)

    def _standings(self) -> dict[str, RequestRecord | None]:
        return self._journal.latest(self._deed.operation, self._deed.recipients)

    def _doubtful(self) -> list[RequestRecord]:
        """Return the requests that somebody is in doubt by; of people no longer on the list, too."""
        return self._journal.unresolved()

    def _send_to_those_not_reached(self) -> None:
        standings = self._standings()
        settled = any(entry.state is State.ACCEPTED for entry in standings.values() if entry)
        open_states = {State.NOT_SENT, State.REJECTED}
        left = [one for one, entry in standings.items() if entry is None or entry.state in open_states]
        self._tell_of_changes(standings, len(left))
        if left:
            self._refuse_rejected(left)
            if settled:
                log.info("An earlier try sent to some of %d recipients. %d are left.", len(standings), len(left))
            self._request(tuple(left))
        elif settled and not self._doubtful():
            log.info("Earlier tries made every request. Nothing is sent again.")

    def _refuse_rejected(self, recipients: Sequence[str]) -> None:
        """Raise where the service has refused the very same request in an earlier try."""
        reference = self._journal.reference(self._deed.operation, recipients)
        for entry in by_reference(self._journal.records):
            if entry.reference == reference and entry.state is State.REJECTED and not self._changed(entry):
                raise CpaasRejectedError(
                    f"{entry.reason} An earlier try received this rejection. Nothing was sent again.",
                    operation=entry.operation,
                )

    def _request(self, recipients: tuple[str, ...]) -> None:
        """Claim, make the request, and note what became of it."""
        deed, stop = self._deed, self._stop
        stop.call(deed.preflight, self._client)
        notes = [stop.call(partial(way.snapshot, self._client), self._client) for way in deed.evidence]
        stop.raise_if_stopped()
        entry = self._journal.begin(deed.operation, recipients, deed.body, deed.personal, probe_snapshot=notes or None)
        self._requested = True
        try:
            result = stop.call(partial(deed.send, recipients, entry.reference, entry.previous_unknown), self._client)
        except AnswerNotAwaitedError as error:
            self._journal.end(entry, State.UNKNOWN, reason=str(error))
            raise AnswerNotAwaitedError(f"{error} {in_doubt([entry])}") from None
        except StoppedError as error:
            self._journal.end(entry, State.NOT_SENT, reason=str(error))
            raise
        except PartlyRejectedError as error:
            self._journal.end_in_part(entry, error.rejected, result=error.result, reason=error.reason)
            raise
        except CpaasError as error:
            self._settle_failure(entry, error)
        except Exception as error:
            # A fault of ours, on this side of the request or on that: nobody knows.
            self._journal.end(entry, State.UNKNOWN, reason=f"the request ended in {type(error).__name__}")
            raise
        else:
            self._journal.end(entry, State.ACCEPTED, result=result)

    def _settle_failure(self, entry: RequestRecord, error: CpaasError) -> None:
        """Note a failure, and raise it unless it leaves the outcome unknown."""
        if error.maybe_sent:
            self._journal.end(entry, State.UNKNOWN, reason=str(error))
            log.warning("%s Request %s is of unknown outcome.", error, entry.reference)
            return
        state = State.REJECTED if isinstance(error, CpaasRejectedError) else State.NOT_SENT
        self._journal.end(entry, state, reason=str(error))
        raise error

    def _look_for_all_evidence(self) -> None:
        self._unread = None
        for entry in self._doubtful():
            self._look_for_evidence(entry)

    def _look_for_evidence(self, entry: RequestRecord) -> None:
        notes = entry.probe_snapshot or [None] * len(self._deed.evidence)
        for way, note in zip(self._deed.evidence, notes, strict=False):
            noted = dataclasses.replace(entry, intent=dataclasses.replace(entry.intent, probe_snapshot=note))
            try:
                found = self._stop.call(partial(way.check, self._client, noted), self._client)
            except CpaasError as error:
                self._stop.raise_if_stopped()
                log.warning("The probe of request %s failed: %s", entry.reference, error)
                if error.retryable:
                    self._unread = error
                continue
            except RefutedError as error:
                self._refute(entry, error)
                return
            if found is not None:
                log.info("A probe established that request %s of unknown outcome was accepted.", entry.reference)
                self._journal.end(entry, State.ACCEPTED, result=found)
                return

    def _refute(self, entry: RequestRecord, error: RefutedError) -> None:
        """Note that a request came to nothing, and raise that, unless an earlier one of its reference is in doubt."""
        if entry.previous_unknown:
            # That this one came to nothing says nothing about the earlier one.
            return
        self._journal.end(entry, State.REJECTED, reason=str(error))
        raise CpaasRejectedError(str(error), operation=entry.operation)

    def _wait_for_evidence(self, doubtful: Sequence[RequestRecord]) -> None:
        """Raise ProbeLaterError while there is a way that may still tell."""
        now = self._clock()
        max_wait = max((way.max_wait for way in self._deed.evidence), default=timedelta())
        max_wait = min(max_wait, self._unknown_timeout)
        claims = [entry.started_at for entry in doubtful if entry.started_at and entry.started_at + max_wait > now]
        if not claims:
            return
        since = max(_FIRST_LOOK, min(now - max(claims), _LONGEST_BETWEEN_LOOKS))
        until = min(now + since, max(claims) + max_wait)
        raise ProbeLaterError(f"{in_doubt(doubtful)} A probe may still resolve it.", until)

    def _refuse_unread_evidence(self, doubtful: Sequence[RequestRecord]) -> None:
        """Leave to a later try what evidence might have settled, had it been readable."""
        if doubtful and self._unread is not None:
            raise ProbeFailedError(
                f"{in_doubt(doubtful)} The probe failed: {self._unread} Nothing further was sent. A retry of the task "
                "probes again."
            )

    def _resend(self) -> None:
        """Send again to those of unknown outcome, until that is known or the try has done enough."""
        for resend in range(RESENDS):
            standings = self._standings()
            doubtful = [one for one, entry in standings.items() if entry and entry.in_doubt]
            if not doubtful:
                return
            log.warning(
                "on_unknown is 'resend': making a request of unknown outcome again. Recipients: %d.", len(doubtful)
            )
            if resend:
                self._stop.pause(backoff(resend + 1, _FIRST_PAUSE))
            self._request(tuple(doubtful))
            self._look_for_all_evidence()
            self._refuse_unread_evidence(self._doubtful())
        if any(entry and entry.in_doubt for entry in self._standings().values()):
            raise ResendLimitError(
                f"{in_doubt(self._doubtful())} It was sent {RESENDS} more times in this try. A retry of the task sends "
                f"it again. If no retry is left: {self._advice()}."
            )

    def _refuse_changed(self, doubtful: Sequence[RequestRecord]) -> None:
        if changed := [entry for entry in doubtful if self._changed(entry)]:
            raise ChangedBodyError(
                f"{in_doubt(changed)} The content changed since that request was made, so the task neither sends "
                f"nor skips it. {self._advice()}. Or start a new run."
            )

    def _changed(self, entry: RequestRecord) -> bool:
        """Tell whether a request said something else than it would now."""
        hasher = self._journal.hasher
        if entry.body is None:
            return False
        if entry.body != hasher.body(self._deed.body):
            return True
        now = self._deed.personal
        if entry.is_personal != bool(now):
            return True
        if not now:
            return False
        return any(
            entry.intent.words_of(member) not in (None, hasher.personalisation_hash(now.get(one)))
            for one in self._deed.recipients
            if (member := hasher.member(self._deed.operation, one)) in entry.members
        )

    def _tell_of_changes(self, standings: Mapping[str, RequestRecord | None], left: int) -> None:
        settled = {entry.number: entry for entry in standings.values() if entry and entry.state is State.ACCEPTED}
        if any(self._changed(entry) for entry in settled.values()):
            log.warning(
                "The content changed after an earlier try sent it to %d of %d recipients. They are not sent to again. "
                "%s.",
                sum(1 for entry in standings.values() if entry and entry.state is State.ACCEPTED),
                len(standings),
                f"The other {left} get the new content" if left else "No other recipient is left",
            )


def in_doubt(entries: Sequence[RequestRecord]) -> str:
    """Return which requests are of unknown outcome and why, in sentences."""
    references = [entry.reference for entry in entries]
    count = count_recipients(entries)
    # What comes after the first sentence is advice that the caller gives itself.
    reasons = sorted({entry.reason.split(". ")[0].rstrip(".") for entry in entries if entry.reason})
    why = "; ".join(reasons[:2]) or "not recorded"
    noun = "row" if all(entry.operation == "create_contact_row" for entry in entries) else "recipient"
    which = "request" if len(references) == 1 else f"{len(references)} requests"
    return f"Outcome unknown: {which} {join_references(references)} ({counted(count, noun)}). Cause: {why}."
