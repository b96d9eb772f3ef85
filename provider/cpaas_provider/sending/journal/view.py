"""A journal as the command line reads it, outside of its task, and the manual resolution of its requests."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Self

from msgspec import Struct
from msgspec.structs import replace

from cpaas_provider.sending.journal.log import MAX_BYTES
from cpaas_provider.sending.journal.model import (
    LogEntry,
    RequestRecord,
    Result,
    Segment,
    State,
    members_of,
    reached_by,
    replay,
    unresolved,
)
from cpaas_provider.sending.journal.resolution import (
    NOTHING_CHANGED,
    CannotResolveError,
    Resolution,
    ResolutionResult,
    check_known,
    check_not_in_flight,
    check_result_id,
    check_unresolved,
)
from cpaas_provider.sending.journal.segments import newest_series, next_index, part_key, read_series

_AFTER_LOSS = (
    " The journal of an earlier try is lost, so no command can resolve its requests. To send all the same, start a new "
    "run, or clear the task with resend_on_clear=True."
)


class StateSummary(Struct, frozen=True):
    """Counts the requests of one state. A recipient of several requests counts once."""

    operation: str
    state: State
    requests: int
    recipients: int


class JournalView(Struct, frozen=True, dict=True):
    """The journal of a single send or a campaign.

    A resend has the same reference as the request that it repeats. All unresolved requests of a reference are resolved
    together.

    :param requests: the requests, by number
    :param last: the last segment
    :param latest: the last log entry; ``None`` if there is none
    :param index: the number of the next segment
    :param change_keys: keys without a value. Any change of the journal stores a value under one of them
    """

    requests: Mapping[int, RequestRecord]
    last: Segment
    latest: LogEntry | None
    index: int
    change_keys: tuple[str, ...]

    @classmethod
    def read(cls, get: Callable[[str], Any], tries: int = 1) -> Self:
        """Read a journal.

        :param get: returns the value of a key, or ``None``
        :param tries: the number of tries made
        :raises ValueError: when it is no journal of this version
        """
        missing_keys: dict[str, None] = {}

        def get_and_record_missing(key: str) -> Any:
            stored = get(key)
            if stored is None:
                # An addition takes one of these keys, because stored values are not changed.
                missing_keys[key] = None
            return stored

        newest, first = newest_series(get_and_record_missing, tries + 1) or (0, None)
        last = Segment.from_json(first)
        latest: LogEntry | None = None
        requests: dict[int, RequestRecord] = {}
        # A resolution continues the newest series. If it began that of the coming try, it would be its head.
        index = 0
        for series in range(newest + 1):
            for stored in read_series(get_and_record_missing, series):
                segment = Segment.from_json(stored.value)
                index = max(index, next_index(stored.index))
                if segment.continues(last):
                    last = segment
                    for batch in segment.batches:
                        latest = LogEntry.from_text(batch)
                        replay(latest, segment.operation or "", requests)
        return cls(requests, last, latest, index, tuple(missing_keys))

    @property
    def operation(self) -> str:
        """The operation of the requests."""
        return self.last.operation or ""

    @property
    def lost(self) -> str | None:
        """Why requests of earlier tries may be missing; ``None`` if none are."""
        return self.last.lost

    def entries(self, *, include_unresolved: bool = True) -> Iterator[RequestRecord]:
        """Return all requests, in the order of their intents.

        :param include_unresolved: whether to yield unresolved requests, too
        """
        left_out = set() if include_unresolved else {request.number for request in self._unresolved}
        return (request for number, request in self.requests.items() if number not in left_out)

    def unresolved(self) -> tuple[RequestRecord, ...]:
        """Return the unresolved requests, in the order of their intents."""
        return tuple(self._unresolved)

    def sums(self, *, include_unresolved: bool = True) -> list[StateSummary]:
        """Return the counts of each state that has requests.

        :param include_unresolved: whether to count unresolved requests
        """
        by_state: dict[State, list[RequestRecord]] = {}
        for request in self.entries(include_unresolved=include_unresolved):
            by_state.setdefault(request.state, []).append(request)
        return [
            StateSummary(self.operation, state, len(found), len(members_of(found)))
            for state in State
            if (found := by_state.get(state))
        ]

    def resolve(
        self,
        decision: Resolution,
        references: Sequence[str] = (),
        *,
        result_id: str | None = None,
        now: datetime | None = None,
    ) -> ResolutionResult:
        """Return what a manual resolution changes.

        :param decision: the outcome that a person established
        :param references: the requests to resolve; empty for all unresolved requests
        :param result_id: the service's id of the message
        :param now: to refuse requests that may be in flight; ``None`` not to check this
        :raises CannotResolveError: when a request cannot be resolved so
        """
        chosen = self._named(references) if references else self._unresolved
        if not chosen:
            hint = _AFTER_LOSS if self.lost else ""
            raise CannotResolveError(f"This journal has no unresolved request. {NOTHING_CHANGED}{hint}")
        before = tuple(chosen)
        if now is not None:
            check_not_in_flight(list(self.requests.values()), now)
        if result_id is not None:
            check_result_id(result_id, decision, before)
        result = None if result_id is None else (result_id, None, None)
        results = deque(
            Result(request.number, decision.state, result, decision.reason(request.reason), decision.value)
            for request in chosen
        )
        after = dict(self.requests)
        for resolved in results:
            after[resolved.number] = replace(after[resolved.number], outcome=resolved)
        left = replace(self, requests=after).unresolved()
        members = members_of(chosen)
        recipients = len(members - reached_by(self.requests.values(), members))
        return ResolutionResult(before, left, self._appended(results, now or datetime.now(UTC)), recipients, self.lost)

    def resolved_earlier(
        self, decision: Resolution, references: Collection[str]
    ) -> tuple[JournalView, ResolutionResult, str | None] | None:
        """Return an earlier manual resolution, so that it can be recorded elsewhere again.

        :param references: the requests; empty for all that are resolved so
        :return: the journal before it, what it changed, and the id of the message, if it is one. ``None`` if these
            requests were not resolved so
        """
        still_unresolved = {request.reference for request in self.requests.values() if request.is_unresolved}
        resolved = [
            request
            for request in self.requests.values()
            if request.resolution == decision
            and request.reference not in still_unresolved
            and (not references or request.reference in references)
        ]
        if not resolved:
            return None
        unknown = {request.number: Result(request.number, State.UNKNOWN) for request in resolved}
        before = replace(
            self,
            requests={
                number: replace(request, outcome=unknown.get(number, request.outcome))
                for number, request in self.requests.items()
            },
        )
        ids = {str(request.result["id"]) for request in resolved if request.result and request.result.get("id")}
        names = list(dict.fromkeys(request.reference for request in resolved))
        return before, before.resolve(decision, names), ids.pop() if len(ids) == len(names) == 1 else None

    def _named(self, references: Sequence[str]) -> list[RequestRecord]:
        """Return the unresolved requests of some references."""
        wanted = dict.fromkeys(references)
        by_reference: dict[str, list[RequestRecord]] = {}
        for request in self.requests.values():
            by_reference.setdefault(request.reference, []).append(request)
        check_known([reference for reference in wanted if reference not in by_reference], list(by_reference))
        chosen = {name: [request for request in by_reference[name] if request.is_unresolved] for name in wanted}
        check_unresolved([by_reference[name][-1] for name in wanted if not chosen[name]])
        return [request for name in wanted for request in chosen[name]]

    @functools.cached_property
    def _unresolved(self) -> list[RequestRecord]:
        """The unresolved requests with a recipient that no accepted request has."""
        return unresolved(self.requests.values())

    def _appended(self, results: deque[Result], at: datetime) -> dict[str, Any]:
        """Return the segments that store the results, by key."""
        if self.latest is None:
            raise CannotResolveError(f"This journal has no unresolved request. {NOTHING_CHANGED}")
        segments, index = {}, self.index
        while results:
            room = MAX_BYTES
            taken: list[Result] = []
            while results and (not taken or room > results[0].weight):
                room -= results[0].weight
                taken.append(results.popleft())
            batch = replace(self.latest, at=at, intents=(), results=taken).as_text()
            # The clear epoch stays that of the last try, so that the next try still detects a clear.
            segment = replace(self.last.following(), clear_epoch=self.last.clear_epoch, batches=[batch])
            segments[part_key(index, 0)] = segment.as_json()
            index += 1
        return segments
