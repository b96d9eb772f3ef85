"""Requests of unknown outcome, when everything else is sent: probed, waited for, and then as ``on_unknown`` says."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from cpaas_provider.api.amounts import counted
from cpaas_provider.api.errors import CpaasError, CpaasRejectedError
from cpaas_provider.sending.errors import (
    ChangedBodyError,
    ProbeFailedError,
    ProbeLaterError,
    RefutedError,
    UnknownOutcomeError,
    join_references,
)
from cpaas_provider.sending.journal.model import RequestRecord, Result
from cpaas_provider.sending.journal.resolution import count_recipients
from cpaas_provider.sending.journal.writer import JournalWriter
from cpaas_provider.sending.shutdown import StopSignal
from cpaas_provider.sending.spec import Client, OnUnknown, OutcomeProbe

log = logging.getLogger(__name__)

MAX_RESENDS = 4
"""How often one try sends a request of unknown outcome again, where the author wants that."""

_FIRST_PROBE = timedelta(seconds=5)
_LONGEST_BETWEEN_PROBES = timedelta(seconds=60)

# {address} is the task instance, as the command takes it.
RESOLVE_HINT = (
    "Check the service's own records by recipient and time, or by the reference if it was sent as external_ref. Then "
    "resolve with `airflow cpaas journal resolve --sent {address}` or `--not-sent`, and clear the task"
)
_LOST_HINT = (
    "Check the service's own records. To send all the same, start a new run, or clear the task with "
    "resend_on_clear=True"
)
# A clear that drops the state drops a manual resolution, too.
_LOST_REQUEST_HINT = (
    f"{_LOST_HINT}. To resolve it manually (`airflow cpaas journal show {{address}}`), clear the task so that its task "
    "state is retained"
)


class Unresolved(Protocol):
    """A send of which requests are of unknown outcome."""

    @property
    def lost(self) -> str | None:
        """Why it is unknown what earlier tries sent, where that is so."""

    def requests(self) -> Sequence[RequestRecord]:
        """Return the requests of unknown outcome, one for each reference, less recipients surely reached by others."""

    def recipients(self) -> int:
        """Return how many recipients may or may not have been sent to."""

    def is_changed(self, request: RequestRecord) -> bool:
        """Tell whether a request said something else than it would now."""

    def confirm(self, found: Mapping[int, dict[str, Any]]) -> Sequence[Result]:
        """Take note that requests were accepted, and return that for the journal.

        :param found: their results, by their numbers
        """

    def refute(self, request: RequestRecord, error: RefutedError) -> Result | None:
        """Take note that a request was not accepted, and return that for the journal; ``None`` if it stays unknown."""

    def interrupted(self) -> Sequence[Result]:
        """Return for the journal that what earlier tries had begun is unknown."""

    def end_resends(self, unknown: str, advice: str) -> None:
        """Raise where recipients are still of unknown outcome when no resend follows in this try.

        :param unknown: which, in sentences
        :param advice: what a person can do
        """


class UnknownResolver:
    """Establishes the outcome of requests, or does what the author wants done without.

    :param writer: stores what is established
    :param stop: ends the try
    :param unknown_timeout: for how long after a request a probe is waited for
    :param address: the task instance as `airflow cpaas journal` takes it
    """

    def __init__(
        self,
        send: Unresolved,
        probes: Sequence[OutcomeProbe],
        writer: JournalWriter,
        client: Client,
        stop: StopSignal,
        *,
        on_unknown: OnUnknown,
        unknown_timeout: timedelta,
        address: str,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._send = send
        self._probes = probes
        self._writer = writer
        self._client = client
        self._stop = stop
        self._on_unknown = on_unknown
        self._unknown_timeout = unknown_timeout
        self._address = address
        self._clock = clock
        self._failed: CpaasError | None = None

    async def resolve(self) -> bool:
        """Do what can be done about requests of unknown outcome, and return whether they are to be sent again.

        :raises ProbeLaterError: when a probe may resolve them later
        :raises ProbeFailedError: when a probe could not be asked
        :raises CpaasRejectedError: when a probe established that one was not accepted
        :raises ChangedBodyError: when they said something else than the task would send now
        :raises UnknownOutcomeError: when the author wants the task to fail
        """
        await self.probe()
        if not self._send.recipients():
            return False
        self._raise_if_changed()
        if self._on_unknown is OnUnknown.RESEND:
            return True
        for result in self._send.interrupted():
            self._writer.end(result)
        if self._on_unknown is OnUnknown.FAIL:
            raise UnknownOutcomeError(
                f"{self.describe()} {self.advice()}. on_unknown='skip' or 'resend' avoids this failure."
            )
        log.warning("%s on_unknown is 'skip', so it is not sent again and counts as unknown.", self.describe())
        return False

    async def probe(self) -> None:
        """Probe the requests.

        :raises ProbeLaterError: when a probe may resolve them later
        :raises ProbeFailedError: when a probe could not be asked
        :raises CpaasRejectedError: when a probe established that one was not accepted
        """
        self._failed = None
        found: dict[int, dict[str, Any]] = {}
        try:
            for request in self._send.requests() if self._probes else ():
                if (result := await self._established(request)) is not None:
                    log.info("A probe established that request %s of unknown outcome was accepted.", request.reference)
                    found[request.number] = result
        finally:
            # Also if a later request is refuted, or the task is stopped: the journal keeps what is established.
            for ended in self._send.confirm(found) if found else ():
                self._writer.end(ended)
        self._raise_if_waiting()
        self._raise_if_probe_failed()

    def end_resends(self) -> None:
        """Raise where requests are still of unknown outcome after the resends of this try.

        :raises ResendLimitError: when they are
        """
        self._send.end_resends(self.describe(), self.advice())

    def describe(self) -> str:
        """Return which requests are of unknown outcome and why, in sentences."""
        return describe_unknown(self._send.requests(), self._send.recipients(), self._send.lost)

    def advice(self) -> str:
        """Return what a person can do about them."""
        if not self._send.lost:
            return RESOLVE_HINT.format(address=self._address)
        # A recipient that no request names, no command can resolve.
        named = count_recipients(self._send.requests()) >= self._send.recipients()
        hint = _LOST_REQUEST_HINT if named else _LOST_HINT
        return hint.format(address=self._address)

    async def _established(self, request: RequestRecord) -> dict[str, Any] | None:
        """Return the result of a request if a probe establishes that it was accepted."""
        snapshots = request.probe_snapshot or [None] * len(self._probes)
        for probe, snapshot in zip(self._probes, snapshots, strict=False):
            seen = dataclasses.replace(request, intent=dataclasses.replace(request.intent, probe_snapshot=snapshot))
            try:
                result = await self._stop.finish(probe.check(self._client, seen), self._client)
            except CpaasError as error:
                self._stop.raise_if_stopped()
                log.warning("The probe of request %s failed: %s", request.reference, error)
                if error.retryable:
                    self._failed = error
            except RefutedError as error:
                # That this one came to nothing says nothing about an earlier one of its reference.
                if not request.previous_unknown and (ended := self._send.refute(request, error)) is not None:
                    self._writer.end(ended)
                    raise CpaasRejectedError(str(error), operation=request.operation) from None
                return None
            else:
                if result is not None:
                    return result
        return None

    def _raise_if_waiting(self) -> None:
        now = self._clock()
        longest = max((probe.max_wait for probe in self._probes), default=timedelta())
        longest = min(longest, self._unknown_timeout)
        starts = [one.started_at for one in self._send.requests() if one.started_at and one.started_at + longest > now]
        if starts:
            since = max(_FIRST_PROBE, min(now - max(starts), _LONGEST_BETWEEN_PROBES))
            until = min(now + since, max(starts) + longest)
            raise ProbeLaterError(f"{self.describe()} A probe may still resolve it.", until)

    def _raise_if_probe_failed(self) -> None:
        """Leave to a later try what a probe might have established, had it been readable."""
        if self._failed is not None and self._send.recipients():
            raise ProbeFailedError(
                f"{self.describe()} The probe failed: {self._failed} Nothing further was sent. A retry of the task "
                "probes again."
            )

    def _raise_if_changed(self) -> None:
        changed = [request for request in self._send.requests() if self._send.is_changed(request)]
        if changed:
            raise ChangedBodyError(
                f"{describe_unknown(changed, count_recipients(changed), self._send.lost)} The content changed since "
                "these requests were made, so the task neither sends nor skips them. "
                f"{self.advice()}. Or start a new run."
            )


def describe_unknown(requests: Sequence[RequestRecord], recipients: int, lost: str | None = None) -> str:
    """Return which requests are of unknown outcome and why, in sentences.

    :param recipients: how many recipients they have together
    :param lost: why it is unknown what earlier tries sent, where that is so
    """
    references = [request.reference for request in requests]
    # What comes after the first sentence is advice that the caller gives itself.
    reasons = sorted({request.reason.split(". ")[0].rstrip(".") for request in requests if request.reason} - {lost})
    if lost:
        reasons.insert(0, lost)
    why = "; ".join(reasons[:2]) or "not recorded"
    noun = "row" if requests and all(one.operation == "create_contact_row" for one in requests) else "recipient"
    number = counted(recipients, noun)
    if not references:
        return f"Outcome unknown: {number}. Cause: {why}."
    which = "request" if len(references) == 1 else f"{len(references)} requests"
    return f"Outcome unknown: {which} {join_references(references)} ({number}). Cause: {why}."
