"""What a person decides of requests nobody knows the outcome of: the rules, on the journal alone."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Protocol

from cpaas_provider.sending.errors import join_references
from cpaas_provider.sending.journal.model import Pages, RequestRecord, State, claim_key, members_of, still_in_doubt

IN_FLIGHT_GRACE = timedelta(seconds=60)
"""For how long after its claim a request may be under way: the process of a task that was marked failed lives on until
it hears of that."""

NOTHING_CHANGED = "Nothing was changed."


class Resolution(StrEnum):
    """What a person found in the service's own records."""

    SENT = "sent"
    NOT_SENT = "not_sent"

    @property
    def words(self) -> str:
        """Return it as people read it."""
        return self.value.replace("_", " ")

    @property
    def state(self) -> State:
        """Return how a request stands of which that was found."""
        return State.ACCEPTED if self is Resolution.SENT else State.NOT_SENT

    def reason(self, before: str | None) -> str:
        """Return why a request stands so, beside what was known of it before."""
        reason = f"manually resolved as {self.words}"
        return f"{reason} (before: {before})" if before else reason


class CannotResolveError(ValueError):
    """The request cannot be resolved as asked. Nothing was changed."""


@dataclass(frozen=True)
class ResolutionResult:
    """What a decision makes of a journal.

    :param before: the requests decided, as they stood
    :param left: the requests in doubt still
    :param values: what is to be stored, by its key
    :param recipients: how many people were decided about
    :param lost: why nobody can tell what was sent to others, where that is so
    """

    before: tuple[RequestRecord, ...]
    left: tuple[RequestRecord, ...]
    values: Mapping[str, Any]
    recipients: int
    lost: str | None


class Journal(Protocol):
    """A journal that is looked at from outside of its task."""

    @property
    def lost(self) -> str | None:
        """Return why nobody can tell what was sent to people without a request, where that is so."""

    @property
    def change_keys(self) -> Sequence[str]:
        """Return the keys under which something else stands whenever the journal has changed."""

    def entries(self) -> Iterator[RequestRecord]:
        """Yield all requests, in the order of their first claims."""

    def doubtful(self) -> tuple[RequestRecord, ...]:
        """Return the requests in doubt, in the order of their first claims."""

    def resolve(
        self,
        decision: Resolution,
        references: Sequence[str] = (),
        *,
        result_id: str | None = None,
        now: datetime | None = None,
    ) -> ResolutionResult:
        """Return what is to be stored to decide requests in doubt; the journal in hand stays as it is.

        The task instance must not be running: a claimed request counts as in doubt, once it cannot be under way any
        more.

        :param references: which requests; without any, all that are in doubt
        :param result_id: the service's id of the one request that was sent
        :param now: the moment of the decision; without it, no request is taken to be under way
        :raises CannotResolveError: when a request is not there or not in doubt, when none is, when one may be under way
            still, or when the id fits none
        """


@dataclass(frozen=True)
class DecidedPages(ResolutionResult):
    """The same of a journal of few requests.

    :param pages: the whole journal as it is to be stored
    """

    pages: Pages


@dataclass(frozen=True)
class Single:
    """The journal of a task that makes one request, or few."""

    pages: Pages

    @property
    def lost(self) -> str | None:
        """Return why nobody can tell what was sent to people without a request, where that is so."""
        return self.pages.lost

    @property
    def change_keys(self) -> tuple[str, ...]:
        """Return the key under which it stands, and that of a further claim."""
        return claim_key(self.pages.claims), claim_key(self.pages.claims + 1)

    def entries(self) -> Iterator[RequestRecord]:
        """Yield all requests, in the order of their first claims."""
        yield from self.pages.entries.values()

    def doubtful(self) -> tuple[RequestRecord, ...]:
        """Return the requests in doubt, in the order of their first claims."""
        return doubtful(self.pages)

    def resolve(
        self,
        decision: Resolution,
        references: Sequence[str] = (),
        *,
        result_id: str | None = None,
        now: datetime | None = None,
    ) -> ResolutionResult:
        """Return what is to be stored to decide requests in doubt, see ``Journal.decide``."""
        return resolve(self.pages, decision, references, result_id=result_id, now=now)


def resolve(
    pages: Pages,
    decision: Resolution,
    references: Sequence[str] = (),
    *,
    result_id: str | None = None,
    now: datetime | None = None,
) -> DecidedPages:
    """Return the journal as it is once requests in doubt are decided, see ``Journal.decide``."""
    before = _named(pages, references) if references else doubtful(pages)
    if not before:
        raise CannotResolveError(f"This journal has no unresolved request. {NOTHING_CHANGED}")
    if now is not None:
        check_not_in_flight(before, now, others=True)
    if result_id is not None:
        check_result_id(decision, before)
    decided = {entry.reference: _decided(entry, decision, result_id) for entry in before}
    entries = {reference: decided.get(reference, entry) for reference, entry in pages.entries.items()}
    after = dataclasses.replace(pages, entries=entries)
    values = {claim_key(pages.claims): after.as_json()}
    return DecidedPages(before, doubtful(after), values, count_recipients(before), pages.lost, after)


def doubtful(pages: Pages) -> tuple[RequestRecord, ...]:
    """Return the requests in doubt, in the order of their first claims."""
    return still_in_doubt(pages.entries.values())


def count_recipients(entries: Iterable[RequestRecord]) -> int:
    """Return how many recipients requests have together, each counted once."""
    return len(members_of(entries))


def check_known(missing: Sequence[str], there: Sequence[str]) -> None:
    """Raise where requests are named that are not there."""
    if missing:
        raise CannotResolveError(
            f"This journal has no request {join_references(missing)}. "
            f"{NOTHING_CHANGED} Its requests: {join_references(there)}."
        )


def check_unresolved(entries: Sequence[RequestRecord]) -> None:
    """Raise where requests are named that are not in doubt."""
    if entries:
        raise CannotResolveError(f"{' '.join(_why_not(entry) for entry in entries)} {NOTHING_CHANGED}")


def check_not_in_flight(entries: Sequence[RequestRecord], now: datetime, *, others: bool) -> None:
    """Raise where requests may be under way.

    :param others: whether those beside them can be decided all the same
    """
    claims = {
        entry.reference: entry.started_at + IN_FLIGHT_GRACE - now
        for entry in entries
        if entry.state is State.PENDING and entry.started_at is not None
    }
    waits = {reference: wait for reference, wait in claims.items() if wait > timedelta()}
    if not waits:
        return
    only_others = ", or name only other requests" if others and len(entries) > len(waits) else ""
    raise CannotResolveError(
        f"Started less than {IN_FLIGHT_GRACE.seconds} seconds ago: {join_references(list(waits))}. "
        "The process of a task that was just "
        f"marked failed can run for some seconds more, so a request may be in flight. {NOTHING_CHANGED} Try again in "
        f"{math.ceil(max(waits.values()).total_seconds())} s{only_others}."
    )


def check_result_id(decision: Resolution, entries: Sequence[RequestRecord]) -> None:
    """Raise where an id cannot be of the one request that was sent."""
    if decision is not Resolution.SENT:
        raise CannotResolveError(f"A request that was not sent has no id. {NOTHING_CHANGED} Leave the id out.")
    references = list(dict.fromkeys(entry.reference for entry in entries))
    if len(references) > 1:
        raise CannotResolveError(
            f"An id belongs to one request, and {len(references)} would be resolved: "
            f"{join_references(references)}. {NOTHING_CHANGED} "
            "Name the request that the id belongs to."
        )


def _named(pages: Pages, references: Sequence[str]) -> tuple[RequestRecord, ...]:
    wanted = list(dict.fromkeys(references))
    check_known([reference for reference in wanted if reference not in pages.entries], list(pages.entries))
    entries = tuple(pages.entries[reference] for reference in wanted)
    check_unresolved([entry for entry in entries if not entry.in_doubt])
    return entries


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


def _decided(entry: RequestRecord, decision: Resolution, result_id: str | None) -> RequestRecord:
    return dataclasses.replace(
        entry,
        state=decision.state,
        result=None if result_id is None else {"id": result_id},
        reason=decision.reason(entry.reason),
        doubted=entry.doubted and decision is Resolution.SENT,
        resolution=decision.value,
    )
