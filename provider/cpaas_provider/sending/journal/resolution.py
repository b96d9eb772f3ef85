"""Manual resolution of requests of unknown outcome: the rules, without reading or writing a store."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from msgspec import Struct

from cpaas_provider.api.values import no_value_reason
from cpaas_provider.sending.errors import join_references
from cpaas_provider.sending.journal.model import RequestRecord, State

IN_FLIGHT_GRACE = timedelta(seconds=60)
"""How long after its intent a request may be in flight: the process of a task that was marked failed runs on until it
learns of that."""

NOTHING_CHANGED = "Nothing was changed."


class Resolution(StrEnum):
    """How a person resolves a request, by the service's own records."""

    SENT = "sent"
    NOT_SENT = "not_sent"

    @property
    def words(self) -> str:
        """The name in messages: ``sent`` or ``not sent``."""
        return self.value.replace("_", " ")

    @property
    def state(self) -> State:
        """The state of a request that is resolved so."""
        return State.ACCEPTED if self is Resolution.SENT else State.NOT_SENT

    def reason(self, before: str | None) -> str:
        """Return the reason to record.

        :param before: the reason before the resolution
        """
        reason = f"manually resolved as {self.words}"
        return f"{reason} (before: {before})" if before else reason


class CannotResolveError(ValueError):
    """The request cannot be resolved as asked. Nothing was changed."""


class ResolutionResult(Struct, frozen=True):
    """What a resolution changes in a journal.

    :param before: the resolved requests, before the change
    :param left: the requests that are still unresolved
    :param values: the values to store, by key
    :param recipients: the number of recipients whose outcome is resolved
    :param lost: why requests of earlier tries may be missing; ``None`` if none are
    """

    before: tuple[RequestRecord, ...]
    left: tuple[RequestRecord, ...]
    values: Mapping[str, Any]
    recipients: int
    lost: str | None


def count_recipients(entries: Iterable[RequestRecord]) -> int:
    """Return the number of recipients of all requests. A recipient of several counts once."""
    return len({(entry.operation, member) for entry in entries for member in entry.members})


def check_known(missing: Sequence[str], existing: Sequence[str]) -> None:
    """Raise if the user named requests that the journal does not have."""
    if missing:
        raise CannotResolveError(
            f"This journal has no request {join_references(missing)}. "
            f"{NOTHING_CHANGED} Its requests: {join_references(existing)}."
        )


def check_unresolved(entries: Sequence[RequestRecord]) -> None:
    """Raise if the user named requests that are not unresolved.

    :param entries: these requests
    """
    if entries:
        raise CannotResolveError(f"{' '.join(_why_not(entry) for entry in entries)} {NOTHING_CHANGED}")


def check_not_in_flight(entries: Sequence[RequestRecord], now: datetime) -> None:
    """Raise if requests may be in flight: their try may still write the segment that the resolution would write."""
    remaining = {
        entry.reference: entry.started_at + IN_FLIGHT_GRACE - now
        for entry in entries
        if entry.state is State.PENDING and entry.started_at is not None
    }
    waits = {reference: wait for reference, wait in remaining.items() if wait > timedelta()}
    if waits:
        raise CannotResolveError(
            f"Started less than {IN_FLIGHT_GRACE.seconds} seconds ago: {join_references(list(waits))}. The process of "
            "a task that was just marked failed can run for some seconds more, so a request may be in flight. "
            f"{NOTHING_CHANGED} Try again in {math.ceil(max(waits.values()).total_seconds())} s."
        )


def check_result_id(result_id: str, decision: Resolution, entries: Sequence[RequestRecord]) -> None:
    """Raise if the id of a message means nothing, or cannot belong to the resolved requests."""
    if reason := no_value_reason(result_id):
        raise CannotResolveError(f"The id {reason}. {NOTHING_CHANGED} Give the service's id, or leave it out.")
    if decision is not Resolution.SENT:
        raise CannotResolveError(f"A request that was not sent has no id. {NOTHING_CHANGED} Leave the id out.")
    references = list(dict.fromkeys(entry.reference for entry in entries))
    if len(references) > 1:
        raise CannotResolveError(
            f"An id belongs to one request, and {len(references)} would be resolved: "
            f"{join_references(references)}. {NOTHING_CHANGED} "
            "Name the request that the id belongs to."
        )


def _why_not(entry: RequestRecord) -> str:
    name = f"Request {entry.reference}"
    if entry.state is State.ACCEPTED:
        how = "manually resolved as sent" if entry.resolution == Resolution.SENT else "accepted by the service"
        return (
            f"{name} is resolved already: {how}. To send it again, start a new run, or clear the task with "
            "resend_on_clear=True."
        )
    if entry.state is State.REJECTED:
        return f"{name} was rejected by the service, so it was not sent. A clear of the task sends it again."
    how = "manually resolved as not sent" if entry.resolution == Resolution.NOT_SENT else "not sent"
    return f"{name} is resolved already: {how}. The next try sends it."
