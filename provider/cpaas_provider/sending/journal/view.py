"""A journal, looked at from outside of its task, and what a person resolves of its requests."""

from __future__ import annotations

import dataclasses
import functools
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

from cpaas_provider.sending.journal.log import MAX_BYTES
from cpaas_provider.sending.journal.model import (
    UNRESOLVED,
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
from cpaas_provider.sending.journal.segments import SERIES, newest_series, next_index, part_key, read_series

_AFTER_LOSS = (
    " The journal of an earlier try is lost, so no command can resolve its requests. To send all the same, start a new "
    "run, or clear the task with resend_on_clear=True."
)


@dataclass(frozen=True)
class StateSummary:
    """Requests of one state together; ``recipients`` counts each once."""

    operation: str
    state: State
    requests: int
    recipients: int


@dataclass(frozen=True)
class JournalView:
    """A journal of one request, or of a campaign.

    A request that was made again has its reference again, and is another one: all unresolved requests of a
    reference are resolved together.

    :param requests: by number
    :param last: its last segment
    :param latest: the last batch
    :param index: where the next segment goes
    :param telling: the keys under which something else stands whenever it has changed
    """

    requests: Mapping[int, RequestRecord]
    last: Segment
    latest: LogEntry | None
    index: int
    change_keys: tuple[str, ...]

    @classmethod
    def read(cls, get: Callable[[str], Any], tries: int = 1) -> Self:
        """Return what is stored.

        :param get: returns what stands under a key, or ``None``
        :param tries: how many tries were made
        :raises ValueError: when it is no journal of this version
        """
        empty: dict[str, None] = {}

        def noting(key: str) -> Any:
            stored = get(key)
            if stored is None:
                # Every addition is written under one of these: what is written once stays as it is.
                empty[key] = None
            return stored

        newest, first = newest_series(noting, tries + 1) or (0, None)
        last, latest = Segment.from_json(first), None
        requests: dict[int, RequestRecord] = {}
        index = (tries - 1) * SERIES
        for series in range(newest + 1):
            for stored in read_series(noting, series):
                segment = Segment.from_json(stored.value)
                index = max(index, next_index(stored.index))
                if segment.continues(last):
                    last, latest = segment, _replayed(segment, requests) or latest
        return cls(requests, last, latest, index, tuple(empty))

    @property
    def operation(self) -> str:
        """Return what its requests are."""
        return self.last.operation or ""

    @property
    def lost(self) -> str | None:
        """Return why it is unknown what was sent to recipients without a request, where that is so."""
        return self.last.lost

    def entries(self, *, include_unresolved: bool = True) -> Iterator[RequestRecord]:
        """Yield all requests, in the order of their intents.

        :param include_unresolved: whether to yield unresolved requests, too
        """
        return self._all(include_unresolved)

    def unresolved(self) -> tuple[RequestRecord, ...]:
        """Return the unresolved requests, in the order of their intents."""
        return tuple(self._unresolved)

    def sums(self, *, include_unresolved: bool = True) -> list[StateSummary]:
        """Return how many requests there are of each state.

        :param include_unresolved: whether to count unresolved requests
        """
        numbers: dict[State, int] = {}
        members: dict[State, set[bytes]] = {}
        for request in self._all(include_unresolved):
            numbers[request.state] = numbers.get(request.state, 0) + 1
            members.setdefault(request.state, set()).update(request.members)
        return [
            StateSummary(self.operation, state, numbers[state], len(members[state]))
            for state in State
            if state in numbers
        ]

    def resolve(
        self,
        decision: Resolution,
        references: Sequence[str] = (),
        *,
        result_id: str | None = None,
        now: datetime | None = None,
    ) -> ResolutionResult:
        """Return what is to be stored to resolve requests, see ``resolution``."""
        chosen = self._named(references) if references else self._unresolved
        if not chosen:
            more = _AFTER_LOSS if self.lost else ""
            raise CannotResolveError(f"This journal has no unresolved request. {NOTHING_CHANGED}{more}")
        before = tuple(chosen)
        if now is not None:
            # A try that has one of them in flight may yet write the segment that the decision is to stand in.
            pending = [request for request in self.requests.values() if request.state is State.PENDING]
            check_not_in_flight(pending, now)
        if result_id is not None:
            check_result_id(decision, before)
        result = None if result_id is None else (result_id, None, None)
        decided = [_decided(request, decision, result) for request in chosen]
        after = {**self.requests, **{request.number: request for request in decided}}
        left = dataclasses.replace(self, requests=after).unresolved()
        members = members_of(chosen)
        recipients = len(members - reached_by(self.requests.values(), members))
        results = deque(request.outcome for request in decided if request.outcome)
        return ResolutionResult(before, left, self._appended(results, now or datetime.now(UTC)), recipients, self.lost)

    def _named(self, references: Sequence[str]) -> list[RequestRecord]:
        wanted = dict.fromkeys(references)
        found: dict[str, list[RequestRecord]] = {}
        for request in self.requests.values():
            found.setdefault(request.reference, []).append(request)
        check_known([reference for reference in wanted if reference not in found], list(found))
        open_ = {name: [one for one in found[name] if one.state in UNRESOLVED] for name in wanted}
        check_unresolved([found[name][-1] for name in wanted if not open_[name]])
        return [request for name in wanted for request in open_[name]]

    def _all(self, include_unresolved: bool) -> Iterator[RequestRecord]:
        left_out = set() if include_unresolved else {request.number for request in self._unresolved}
        return (request for number, request in self.requests.items() if number not in left_out)

    @functools.cached_property
    def _unresolved(self) -> list[RequestRecord]:
        """Return the unresolved requests that have a recipient no other request surely reached."""
        return unresolved(self.requests.values())

    def _appended(self, results: deque[Result], at: datetime) -> dict[str, Any]:
        """Return the segments to be written that ends are to stand in."""
        if self.latest is None:
            raise CannotResolveError(f"This journal has no unresolved request. {NOTHING_CHANGED}")
        written, index = {}, self.index
        while results:
            room = MAX_BYTES
            taken: list[Result] = []
            while results and (not taken or room > results[0].weight):
                room -= results[0].weight
                taken.append(results.popleft())
            batch = dataclasses.replace(self.latest, at=at, intents=(), results=taken).as_text()
            # What a clear is told by stays as the tries noted it.
            segment = dataclasses.replace(self.last.following(), clear_epoch=self.last.clear_epoch, batches=[batch])
            written[part_key(index, 0)] = segment.as_json()
            index += 1
        return written


def _replayed(segment: Segment, requests: dict[int, RequestRecord]) -> LogEntry | None:
    """Bring a segment into the requests, and return its last batch."""
    batch = None
    for batch in map(LogEntry.from_text, segment.batches):
        replay(batch, segment.operation or "", requests)
    return batch


def _decided(
    request: RequestRecord, decision: Resolution, result: tuple[str | None, None, None] | None
) -> RequestRecord:
    outcome = Result(request.number, decision.state, result, decision.reason(request.reason), decision.value)
    return dataclasses.replace(request, outcome=outcome)
