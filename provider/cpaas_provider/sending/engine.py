"""One request that must happen once: claimed, made, settled, and, where its outcome is unknown, found out or decided.

Everything that can end a try in between leaves a journal from which the next try knows what may be done.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from cpaas_provider.api.backoff import backoff
from cpaas_provider.api.errors import CpaasError, CpaasRejectedError
from cpaas_provider.sending.errors import (
    PartlyRejectedError,
    RefutedError,
    ResendLimitError,
    StoppedError,
)
from cpaas_provider.sending.journal.journal import Journal
from cpaas_provider.sending.journal.model import RequestRecord, State, by_reference
from cpaas_provider.sending.journal.resolution import count_recipients
from cpaas_provider.sending.resolver import MAX_RESENDS, UnknownResolver, describe_unknown
from cpaas_provider.sending.shutdown import AnswerNotAwaitedError, StopSignal
from cpaas_provider.sending.spec import OnUnknown, Outcome, SendSpec

log = logging.getLogger(__name__)

_FIRST_PAUSE = 1.0


class SendEngine:
    """Does a deed so that it happens once, whatever ended earlier tries.

    :param client: makes the requests; told to stop when the task is
    :param on_unknown: what to do where no probe establishes an outcome
    :param unknown_timeout: for how long after an intent a probe is waited for
    :param address: the task instance as `airflow cpaas journal` takes it
    """

    def __init__(
        self,
        spec: SendSpec,
        journal: Journal,
        client: Any,
        stop: StopSignal,
        *,
        on_unknown: OnUnknown = OnUnknown.FAIL,
        unknown_timeout: timedelta = timedelta(minutes=10),
        address: str = "DAG_ID RUN_ID TASK_ID",
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._spec = spec
        self._journal = journal
        self._client = client
        self._stop = stop
        self._requested = False
        self._resolver = UnknownResolver(
            self,
            spec.probes,
            lambda probe, request: stop.call(partial(probe.check, client, request), client),
            stop,
            on_unknown=on_unknown,
            unknown_timeout=unknown_timeout,
            address=address,
            clock=clock,
        )

    def run(self) -> Outcome:
        """Do what is left to do.

        :raises CpaasError: when a request was surely not carried out: rejected, or not sent
        :raises SendingError: what else may happen, see there
        :raises ProbeLaterError: when a probe may establish it later
        """
        self._journal.record_loss(self._spec.operation, self._spec.recipients)
        self._send_to_those_not_reached()
        self._resolver.resolve()
        return self.outcome()

    def outcome(self) -> Outcome:
        """Return what is known by now."""
        return Outcome.of(self._journal.records, earlier=not self._requested)

    def _standings(self) -> dict[str, RequestRecord | None]:
        return self._journal.latest(self._spec.operation, self._spec.recipients)

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
        elif settled and not self.requests():
            log.info("Earlier tries made every request. Nothing is sent again.")

    def _refuse_rejected(self, recipients: Sequence[str]) -> None:
        """Raise where the service has refused the very same request in an earlier try."""
        reference = self._journal.reference(self._spec.operation, recipients)
        for entry in by_reference(self._journal.records):
            if entry.reference == reference and entry.state is State.REJECTED and not self.is_changed(entry):
                raise CpaasRejectedError(
                    f"{entry.reason} An earlier try received this rejection. Nothing was sent again.",
                    operation=entry.operation,
                )

    def _request(self, recipients: tuple[str, ...]) -> None:
        """Claim, make the request, and note what became of it."""
        spec, stop = self._spec, self._stop
        stop.call(spec.preflight, self._client)
        notes = [stop.call(partial(way.snapshot, self._client), self._client) for way in spec.probes]
        stop.raise_if_stopped()
        entry = self._journal.begin(spec.operation, recipients, spec.body, spec.personal, probe_snapshot=notes or None)
        self._requested = True
        try:
            result = stop.call(partial(spec.send, recipients, entry.reference, entry.previous_unknown), self._client)
        except AnswerNotAwaitedError as error:
            self._journal.end(entry, State.UNKNOWN, reason=str(error))
            raise AnswerNotAwaitedError(f"{error} {describe_unknown([entry], len(entry.members))}") from None
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

    @property
    def lost(self) -> str | None:
        """Why nobody can tell what earlier tries sent, where that is so."""
        return self._journal.lost

    def requests(self) -> Sequence[RequestRecord]:
        """Return the requests of unknown outcome; of recipients no longer on the list, too."""
        return self._journal.unresolved()

    def recipients(self) -> int:
        """Return how many recipients may or may not have been sent to."""
        return count_recipients(self.requests())

    def accept(self, found: Mapping[int, dict[str, Any]]) -> None:
        """Record that requests were accepted, as a probe established."""
        for request in self.requests():
            if request.number in found:
                self._journal.end(request, State.ACCEPTED, result=found[request.number])

    def refute(self, request: RequestRecord, error: RefutedError) -> None:
        """Record that a request was not accepted, and raise that."""
        self._journal.end(request, State.REJECTED, reason=str(error))
        raise CpaasRejectedError(str(error), operation=request.operation)

    def record_unknown(self) -> None:
        """Record that what earlier tries had begun is unknown."""
        self._journal.record_unknown()

    def resend(self, resend: int) -> bool:
        """Send to those on the list again who are of unknown outcome, and tell whether there was one."""
        unknown = self._unknown_recipients()
        if not unknown:
            return False
        log.warning("on_unknown is 'resend': making a request of unknown outcome again. Recipients: %d.", len(unknown))
        if resend:
            self._stop.pause(backoff(resend + 1, _FIRST_PAUSE))
        self._request(unknown)
        return True

    def end_resends(self, unknown: str, advice: str) -> None:
        """Raise where somebody on the list is of unknown outcome still."""
        if self._unknown_recipients():
            raise ResendLimitError(
                f"{unknown} It was sent {MAX_RESENDS} more times in this try. A retry of the task sends it again. If "
                f"no retry is left: {advice}."
            )

    def _unknown_recipients(self) -> tuple[str, ...]:
        return tuple(one for one, entry in self._standings().items() if entry and entry.in_doubt)

    def is_changed(self, entry: RequestRecord) -> bool:
        """Tell whether a request said something else than it would now."""
        hasher = self._journal.hasher
        if entry.body is None:
            return False
        if entry.body != hasher.body(self._spec.body):
            return True
        now = self._spec.personal
        if entry.is_personal != bool(now):
            return True
        if not now:
            return False
        return any(
            entry.intent.words_of(member) not in (None, hasher.personalisation_hash(now.get(one)))
            for one in self._spec.recipients
            if (member := hasher.member(self._spec.operation, one)) in entry.members
        )

    def _tell_of_changes(self, standings: Mapping[str, RequestRecord | None], left: int) -> None:
        settled = {entry.number: entry for entry in standings.values() if entry and entry.state is State.ACCEPTED}
        if any(self.is_changed(entry) for entry in settled.values()):
            log.warning(
                "The content changed after an earlier try sent it to %d of %d recipients. They are not sent to again. "
                "%s.",
                sum(1 for entry in standings.values() if entry and entry.state is State.ACCEPTED),
                len(standings),
                f"The other {left} get the new content" if left else "No other recipient is left",
            )
