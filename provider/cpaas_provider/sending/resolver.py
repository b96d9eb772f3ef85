"""The resolver: probes requests of unknown outcome after all others are sent, then follows ``on_unknown``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

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
from cpaas_provider.sending.journal.log import JournalLog
from cpaas_provider.sending.journal.model import RequestRecord, Result, State, unresolved_by_reference
from cpaas_provider.sending.journal.resolution import count_recipients
from cpaas_provider.sending.journal.writer import JournalWriter
from cpaas_provider.sending.shutdown import StopSignal
from cpaas_provider.sending.spec import Client, OnUnknown, UnknownPolicy

log = logging.getLogger(__name__)

MAX_RESENDS = 4
"""The most resends of a request of unknown outcome in one try, if ``on_unknown`` is ``resend``."""

_FIRST_PROBE = timedelta(seconds=5)
_MAX_PROBE_INTERVAL = timedelta(seconds=60)

# {address} is the task instance, as an argument of the command.
RESOLVE_HINT = (
    "Check the service's own records by recipient and time, or by the reference if it was sent as external_ref. Then "
    "resolve with `airflow cpaas journal resolve --sent {address}` or `--not-sent`, and clear the task"
)
_LOST_HINT = (
    "Check the service's own records by recipient and time. To send all the same, start a new run, or clear the task "
    "with resend_on_clear=True"
)
# A clear that drops the task state drops a manual resolution, too.
_LOST_REQUEST_HINT = (
    f"{_LOST_HINT}. To resolve it manually (`airflow cpaas journal show {{address}}`), clear the task so that its "
    "task state is retained"
)


class SendRequests:
    """The requests of a send. A subclass stores them: in memory for a list, on disk for a source."""

    log: JournalLog
    """The journal."""

    body: str
    """Hash of the content that this try sends to all."""

    @property
    def records(self) -> Iterable[RequestRecord]:
        """The requests in order, at least those that a recipient of unknown outcome has.

        Of the references of these, all accepted requests are among them.
        """
        raise NotImplementedError

    def values_hashes(self, members: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """Return the hashes of the placeholder values that this try sends, by recipient.

        :param members: recipients of one request. Those that this try does not send to may be missing in what is
            returned
        """
        raise NotImplementedError

    @property
    def lost(self) -> str | None:
        """Why requests of earlier tries may be missing from the journal; ``None`` if none are."""
        return self.log.lost

    def unresolved(self) -> Sequence[RequestRecord]:
        """Return the newest request of each unresolved reference, unless accepted requests have all its recipients."""
        return unresolved_by_reference(self.records)

    def unknown_recipients(self) -> int:
        """Return the number of recipients of unknown outcome."""
        return count_recipients(self.unresolved())

    def is_changed(self, request: RequestRecord) -> bool:
        """Return whether the content of a request differs from the content of this try."""
        if request.body is None:
            return False
        if request.body != self.body:
            return True
        present = self.values_hashes(request.members)
        return any(present.get(member, sent) != sent for member, sent in request.intent.each())

    def accepted_ids(self) -> Mapping[str, set[str | None]]:
        """Return the service's ids of accepted requests, at least of references that an unresolved request has, too.

        :return: the ids by reference, ``None`` for an id that is not recorded
        """
        ids: dict[str, set[str | None]] = {}
        for request in self.records:
            if request.state is State.ACCEPTED:
                message_id = (request.result or {}).get("id")
                ids.setdefault(request.reference, set()).add(None if message_id is None else str(message_id))
        return ids

    def confirm(self, accepted: Mapping[int, dict[str, Any]]) -> Sequence[Result]:
        """Record that requests were accepted, and return the results for the journal.

        :param accepted: what the probe returned, by the number of the request
        """
        raise NotImplementedError

    def refute(self, request: RequestRecord, error: RefutedError) -> Result | None:
        """Record that a request was not accepted. Return the result for the journal, ``None`` if it stays unknown."""
        return None

    def interrupted(self) -> Sequence[Result]:
        """Return results (unknown) for requests of earlier tries that have none in the journal."""
        return ()

    def end_resends(self, unknown: str, advice: str) -> None:
        """Raise if recipients are still of unknown outcome after the last resend of this try.

        :param unknown: the text of ``UnknownResolver.describe``
        :param advice: the text of ``UnknownResolver.advice``
        """
        raise NotImplementedError


@dataclass(eq=False, repr=False)
class UnknownResolver:
    """Establishes the outcome of requests, or follows ``on_unknown``.

    :param send: has the requests
    :param writer: stores the results
    :param stop: ends the try
    :param address: the task instance as an argument of `airflow cpaas journal`
    """

    send: SendRequests
    policy: UnknownPolicy
    writer: JournalWriter
    client: Client
    stop: StopSignal
    address: str
    clock: Callable[[], datetime]
    _probe_error: CpaasError | None = field(default=None, init=False)

    async def resolve(self) -> bool:
        """Probe the requests, then follow ``on_unknown``. Return whether to send to the recipients again.

        :raises ProbeLaterError: when a probe may establish an outcome later
        :raises ProbeFailedError: when a probe failed
        :raises CpaasRejectedError: when a probe established that a request was not accepted
        :raises ChangedBodyError: when the content changed since a request was made
        :raises UnknownOutcomeError: when ``on_unknown`` is ``fail``
        """
        if not self.send.unknown_recipients():
            return False
        await self.probe()
        if not self.send.unknown_recipients():
            return False
        self._raise_if_changed()
        if self.policy.on_unknown is OnUnknown.RESEND:
            return True
        for result in self.send.interrupted():
            self.writer.end(result)
        if self.policy.on_unknown is OnUnknown.FAIL:
            raise UnknownOutcomeError(
                f"{self.describe()} {self.advice()}. on_unknown='skip' or 'resend' avoids this failure."
            )
        log.warning("%s on_unknown is 'skip', so it is not sent again and counts as unknown.", self.describe())
        return False

    async def probe(self) -> None:
        """Probe the requests.

        :raises ProbeLaterError: when a probe may establish an outcome later
        :raises ProbeFailedError: when a probe failed
        :raises CpaasRejectedError: when a probe established that a request was not accepted
        """
        self._probe_error = None
        accepted: dict[int, dict[str, Any]] = {}
        requests = self.send.unresolved() if self.policy.probes else ()
        recorded = self.send.accepted_ids() if requests else {}
        try:
            for request in requests:
                result = await self._established(request)
                if result is not None and not _is_recorded(result, recorded.get(request.reference, ())):
                    log.info("A probe established that request %s of unknown outcome was accepted.", request.reference)
                    accepted[request.number] = result
        finally:
            # In any case, so that an outcome is recorded even if the next probe raises or the task is stopped.
            for confirmed in self.send.confirm(accepted) if accepted else ():
                self.writer.end(confirmed)
        self._raise_if_waiting()
        self._raise_if_probe_failed()

    def end_resends(self) -> None:
        """Raise if recipients are still of unknown outcome after the resends of this try.

        :raises ResendLimitError: when a retry can send to them again
        :raises UnknownOutcomeError: when they cannot be sent to again
        """
        self.send.end_resends(self.describe(), self.advice())

    def describe(self) -> str:
        """Return which requests are of unknown outcome and why, in sentences."""
        return describe_unknown(self.send.unresolved(), self.send.unknown_recipients(), self.send.lost)

    def advice(self) -> str:
        """Return what a person can do about these requests."""
        if not self.send.lost:
            return RESOLVE_HINT.format(address=self.address)
        # The command resolves requests, so it cannot resolve recipients without one.
        is_resolvable = count_recipients(self.send.unresolved()) >= self.send.unknown_recipients()
        hint = _LOST_REQUEST_HINT if is_resolvable else _LOST_HINT
        return hint.format(address=self.address)

    async def _established(self, request: RequestRecord) -> dict[str, Any] | None:
        """Return the result of a request if a probe establishes that it was accepted."""
        snapshots = request.probe_snapshot or [None] * len(self.policy.probes)
        for probe, snapshot in zip(self.policy.probes, snapshots, strict=False):
            # Each probe gets its own part of the snapshot.
            probed = replace(request, intent=replace(request.intent, probe_snapshot=snapshot))
            try:
                result = await self.stop.finish(probe.check(self.client, probed), self.client)
            except CpaasError as error:
                self.stop.raise_if_stopped()
                log.warning("The probe of request %s failed: %s", request.reference, error)
                if error.retryable:
                    self._probe_error = error
            except RefutedError as error:
                # If an earlier request of the same reference is unresolved, the reference stays unknown.
                if not request.previous_unknown and (refuted := self.send.refute(request, error)) is not None:
                    self.writer.end(refuted)
                    raise CpaasRejectedError(str(error), operation=request.operation) from None
                return None
            else:
                if result is not None:
                    return result
        return None

    def _raise_if_waiting(self) -> None:
        """Raise if a request is young enough to be probed again, with the time of the next probe."""
        now = self.clock()
        max_wait = max((probe.max_wait for probe in self.policy.probes), default=timedelta())
        max_wait = min(max_wait, self.policy.unknown_timeout)
        ages = [now - request.started_at for request in self.send.unresolved() if request.started_at is not None]
        # A start far in the future was recorded by a worker whose clock is wrong, and may be years away.
        if young := [age for age in ages if abs(age) < max_wait]:
            # The time between probes doubles: the next one is when the newest request is twice as old.
            youngest = min(young)
            interval = max(_FIRST_PROBE, min(youngest, _MAX_PROBE_INTERVAL))
            until = now + min(interval, max_wait - youngest)
            raise ProbeLaterError(f"{self.describe()} A probe may still resolve it.", until)

    def _raise_if_probe_failed(self) -> None:
        """Raise if a probe failed, because a later try may still establish the outcome."""
        if self._probe_error is not None and self.send.unknown_recipients():
            raise ProbeFailedError(
                f"{self.describe()} The probe failed: {self._probe_error} Nothing further was sent. A retry of the "
                "task probes again."
            )

    def _raise_if_changed(self) -> None:
        changed = [request for request in self.send.unresolved() if self.send.is_changed(request)]
        if changed:
            raise ChangedBodyError(
                f"{describe_unknown(changed, count_recipients(changed), self.send.lost)} The content changed since "
                "these requests were made, so the task neither sends nor skips them. "
                f"{self.advice()}. Or start a new run."
            )


def _is_recorded(result: Mapping[str, Any], ids: Collection[str | None]) -> bool:
    """Return whether a probe may have found the message of an accepted request of the same reference.

    A resend has the reference of the request that it repeats. The service may have rejected recipients from it.

    :param ids: the ids of these messages, ``None`` for one that is not recorded
    """
    found = result.get("id")
    return bool(ids) and (found is None or None in ids or str(found) in ids)


def describe_unknown(requests: Sequence[RequestRecord], recipients: int, lost: str | None = None) -> str:
    """Return which requests are of unknown outcome and why, in sentences.

    :param recipients: the number of their recipients
    :param lost: why requests of earlier tries may be missing from the journal; ``None`` if none are
    """
    references = [request.reference for request in requests]
    # Only the first sentence: advice follows it, and the caller gives advice of its own.
    reasons = sorted({request.reason.split(". ")[0].rstrip(".") for request in requests if request.reason} - {lost})
    if lost:
        reasons.insert(0, lost)
    cause = "; ".join(reasons[:2]) or "not recorded"
    are_rows = requests and all(request.operation == "create_contact_row" for request in requests)
    noun = "row" if are_rows else "recipient"
    number = counted(recipients, noun)
    if not references:
        return f"Outcome unknown: {number}. Cause: {cause}."
    which = "request" if len(references) == 1 else f"{len(references)} requests"
    return f"Outcome unknown: {which} {join_references(references)} ({number}). Cause: {cause}."
