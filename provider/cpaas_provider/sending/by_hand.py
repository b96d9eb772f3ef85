"""What a person decides of requests nobody knows the outcome of: the rules, on the journal alone."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from cpaas_provider.sending.entries import Entry, Pages, State, members_of, still_in_doubt
from cpaas_provider.sending.errors import named

UNDER_WAY = timedelta(seconds=60)
"""For how long after its claim a request may be under way: the process of a task that was marked failed lives on until
it hears of that."""

_UNTOUCHED = "Nothing was changed."


class Decision(StrEnum):
    """What a person found in the service's own records."""

    SENT = "sent"
    UNSENT = "unsent"


class CannotDecideError(ValueError):
    """What is asked for would make the journal say what is not known. Nothing was changed."""


@dataclass(frozen=True)
class Decided:
    """What a decision makes of a journal.

    :param pages: the whole journal as it is to be stored
    :param before: the requests decided, as they stood
    """

    pages: Pages
    before: tuple[Entry, ...]

    @property
    def recipients(self) -> int:
        """Return how many recipients were decided about."""
        return count_recipients(self.before)


def decide(
    pages: Pages,
    decision: Decision,
    references: Sequence[str] = (),
    *,
    result_id: str | None = None,
    now: datetime | None = None,
) -> Decided:
    """Return the journal as it is once requests in doubt are decided; ``pages`` stay as they are.

    The task instance must not be running: a claimed request counts as in doubt, once it cannot be under way any more.

    :param references: which requests; without any, all that are in doubt
    :param result_id: the service's id of the one request that was sent
    :param now: the moment of the decision; without it, no request is taken to be under way
    :raises CannotDecideError: when a request is not there or not in doubt, when none is, when one may be under way
        still, or when the id fits none
    """
    before = _named(pages, references) if references else doubtful(pages)
    if not before:
        raise CannotDecideError(f"No request of this journal is in doubt. {_UNTOUCHED}")
    if now is not None:
        _refuse_under_way(before, now)
    if result_id is not None:
        _refuse_id(decision, before)
    after = {entry.reference: _decided(entry, decision, result_id) for entry in before}
    entries = {reference: after.get(reference, entry) for reference, entry in pages.entries.items()}
    return Decided(dataclasses.replace(pages, entries=entries), before)


def doubtful(pages: Pages) -> tuple[Entry, ...]:
    """Return the requests in doubt, in the order of their first claims."""
    return still_in_doubt(pages.entries.values())


def count_recipients(entries: Iterable[Entry]) -> int:
    """Return how many recipients requests have together, each counted once."""
    return len(members_of(entries))


def _named(pages: Pages, references: Sequence[str]) -> tuple[Entry, ...]:
    wanted = list(dict.fromkeys(references))
    if missing := [reference for reference in wanted if reference not in pages.entries]:
        raise CannotDecideError(
            f"This journal has no request {named(missing)}. {_UNTOUCHED} Its requests: {named(list(pages.entries))}."
        )
    entries = tuple(pages.entries[reference] for reference in wanted)
    if decided := [entry for entry in entries if not entry.in_doubt]:
        raise CannotDecideError(f"{' '.join(_why_not(entry) for entry in decided)} {_UNTOUCHED}")
    return entries


def _why_not(entry: Entry) -> str:
    name = f"Request {entry.reference}"
    if entry.state is State.SETTLED:
        how = "a person marked it sent" if entry.by_hand == Decision.SENT else "the service carried it out"
        return (
            f"{name} is settled: {how}. To have it made again, start a new run, or clear the task with "
            "resend_on_clear=True."
        )
    if entry.state is State.REJECTED:
        return f"{name} was rejected by the service, so nothing was sent; a clear has it tried again."
    how = "a person marked it unsent" if entry.by_hand == Decision.UNSENT else "it was surely not sent"
    return f"{name} is not in doubt: {how}; the next try makes it."


def _refuse_under_way(entries: Sequence[Entry], now: datetime) -> None:
    claims = {
        entry.reference: entry.claimed_at + UNDER_WAY - now
        for entry in entries
        if entry.state is State.CLAIMED and entry.claimed_at is not None
    }
    waits = {reference: wait for reference, wait in claims.items() if wait > timedelta()}
    if not waits:
        return
    others = len(entries) > len(waits)
    raise CannotDecideError(
        f"Claimed less than {UNDER_WAY.seconds} seconds ago: {named(list(waits))}. The process of a task that was just "
        f"marked failed may be at work for some seconds more, and the request under way. {_UNTOUCHED} Try again in "
        f"{math.ceil(max(waits.values()).total_seconds())} s{', or name only others' if others else ''}."
    )


def _refuse_id(decision: Decision, entries: Sequence[Entry]) -> None:
    if decision is not Decision.SENT:
        raise CannotDecideError(f"What was not sent has no id. {_UNTOUCHED} Leave the id out.")
    if len(entries) > 1:
        references = named([entry.reference for entry in entries])
        raise CannotDecideError(
            f"An id belongs to one request, and {len(entries)} would be marked: {references}. {_UNTOUCHED} Name the "
            "request the id belongs to."
        )


def _decided(entry: Entry, decision: Decision, result_id: str | None) -> Entry:
    reason = f"a person decided that it was {'sent' if decision is Decision.SENT else 'not sent'}"
    if entry.reason:
        reason += f" (before: {entry.reason})"
    if decision is Decision.SENT:
        result = None if result_id is None else {"id": result_id}
        return dataclasses.replace(entry, state=State.SETTLED, result=result, reason=reason, by_hand=decision.value)
    return dataclasses.replace(
        entry, state=State.NOT_SENT, result=None, reason=reason, doubted=False, by_hand=decision.value
    )
