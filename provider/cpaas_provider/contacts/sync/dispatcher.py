"""The dispatcher: intent to the map, request, result to the map; several at a time, recorded in groups."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from cpaas_provider.contacts.errors import (
    LeaseLostError,
    NotSyncedError,
    SpoolError,
    StoppedError,
    TooManyFailuresError,
)
from cpaas_provider.contacts.key_map.entries import Change, MapEntry, RowState
from cpaas_provider.contacts.key_map.key_map import Lease
from cpaas_provider.contacts.sync.decisions import (
    Action,
    Decision,
    SyncRules,
    decide,
    in_step,
    requested,
    restored,
    undone,
)
from cpaas_provider.contacts.sync.requests import Pending, Response, Result, RowRequests
from cpaas_provider.contacts.sync.spool import Outcome, OutcomeLine, Spool, WorkItem
from cpaas_provider.database.errors import DatabaseError

if TYPE_CHECKING:
    from cpaas_provider.api.client import AsyncCpaasClient

log = logging.getLogger(__name__)

_FAILURES_IN_A_ROW = 5
_REJECTIONS_IN_A_ROW = 20
_REJECTIONS_AT_ONCE = 200
_BUSY_ROUNDS = 30
_BUSY_SECONDS = 1.0
_RENEWAL_SECONDS = 60.0
_WRITE_PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""How long to wait between attempts to record results: a database server needs about a minute to fail over."""


class StopSignal(Protocol):
    """Says when a task has to end."""

    @property
    def requested(self) -> bool:
        """Whether no further request may begin."""

    @property
    def grace_left(self) -> float:
        """Seconds that responses may still be waited for, once the stop was requested."""

    async def wait(self) -> None:
        """Return once the stop is requested."""


@dataclass
class Counts:
    """What a sync did in this try."""

    created: int = 0
    updated: int = 0
    deleted: int = 0
    rejected: int = 0
    unknown: int = 0
    not_sent: int = 0
    recorded: int = 0
    requests: int = 0
    done: int = 0
    """Rows of the spool that were dealt with."""

    @property
    def changes(self) -> int:
        """Return how many rows of the list changed."""
        return self.created + self.updated + self.deleted


class Dispatcher:
    """Sends the rows of a spool.

    At most ``window`` requests have an intent and no recorded result at any moment: a crash leaves no more creations
    than that unknown.

    :param names: names of the list's columns, by id
    :param ends_at: by the monotonic clock, when no further request begins; ``None`` for never
    """

    def __init__(
        self,
        lease: Lease,
        rules: SyncRules,
        spool: Spool,
        requests: RowRequests,
        client: AsyncCpaasClient,
        stop: StopSignal,
        *,
        window: int,
        names: Callable[[str], str],
        ends_at: float | None = None,
        counts: Counts | None = None,
    ) -> None:
        self._lease = lease
        self._map = lease.key_map
        self._rules = rules
        self._spool = spool
        self._requests = requests
        self._client = client
        self._stop = stop
        self._window = max(1, window)
        self._names = names
        self._ends_at = ends_at
        self.counts = counts if counts is not None else Counts()
        self.out_of_time = False
        self._end: Exception | None = None
        self._place = (-1, 0)
        self._moved = 0
        self._exhausted = False
        self._again: deque[WorkItem] = deque()
        self._busy: dict[bytes, int] = {}
        self._waiting = 0
        self._queue: deque[Pending] = deque()
        self._in_flight: dict[asyncio.Task[Result], Pending] = {}
        self._finished: list[Result] = []
        self._failures = 0
        self._rejections = 0
        self._in_a_row: list[Result] = []
        self._to_reject: list[Result] = []
        self._changed = asyncio.Event()
        self._renewed = time.monotonic()

    async def run(self) -> None:
        """Send everything.

        :raises ContactsError: when the sync had to end early; what was sent is recorded
        :raises DatabaseError: when results could not be recorded
        :raises CpaasError: when the service asks for a pause, or refuses the account
        """
        watcher = asyncio.create_task(self._watch())
        try:
            while await self._round():
                pass
        finally:
            watcher.cancel()
            for task in self._in_flight:
                task.cancel()
            await asyncio.gather(watcher, *self._in_flight, return_exceptions=True)
            self.counts.requests = self._requests.count
        if self._rejections < _REJECTIONS_IN_A_ROW:
            self._to_reject += self._in_a_row
            await self._record_rejections()
        if self._end is not None:
            raise self._end

    async def _round(self) -> bool:
        """Record what came back, begin what there is room for, and tell whether anything is left."""
        self._check_time()
        if self._end is not None or self.out_of_time:
            self._give_back()
        finished, self._finished = self._finished, []
        moved = self._moved
        begun = await self._begin()
        changes = [change for result in finished if (change := self._recorded(result)) is not None]
        changes += [Change(before or MapEntry(item.key_hash), after) for item, _, before, after in begun]
        if changes:
            await self._write(changes, finished, begun)
            if len(self._to_reject) >= _REJECTIONS_AT_ONCE:
                await self._record_rejections()
            return True
        if finished or self._moved != moved:
            return True
        nothing_left = self._exhausted and not self._again and not self._waiting
        if not self._pending and (self._is_ended or nothing_left):
            return False
        await self._wait()
        return True

    @property
    def _pending(self) -> int:
        """Return how many rows have an intent and no recorded result."""
        return len(self._queue) + len(self._in_flight) + len(self._finished)

    @property
    def _is_ended(self) -> bool:
        return self._end is not None or self.out_of_time

    def _check_time(self) -> None:
        if self._ends_at is not None and time.monotonic() >= self._ends_at and not self.out_of_time:
            self.out_of_time = not (self._exhausted and not self._again and not self._waiting and not self._queue)
            self._ends_at = None

    async def _begin(self) -> list[tuple[WorkItem, Decision, MapEntry | None, MapEntry | None]]:
        """Return the next rows with what is to be recorded before their requests, as many as there is room for."""
        if self._is_ended or self._pending > self._window // 2:
            return []
        items = await self._next(self._window - self._pending)
        if not items:
            return []
        try:
            entries, others = await asyncio.to_thread(self._known, [item.key_hash for item in items])
        except DatabaseError as error:
            self._again.extendleft(reversed(items))
            self._finish(error)
            return []
        begun: list[tuple[WorkItem, Decision, MapEntry | None, MapEntry | None]] = []
        for item in items:
            entry = entries.get(item.key_hash)
            decision = decide(item, entry, self._rules, self._map.hashes, others)
            if decision.action is Action.BUSY:
                self._put_off(item)
            elif decision.action in (Action.CREATE, Action.UPDATE, Action.DELETE):
                intent = requested(
                    decision, item, entry, fencing_token=self._lease.fencing_token, now=self._map.clock()
                )
                begun.append((item, decision, entry, intent))
            elif decision.action is Action.RECORD and entry is not None:
                after = in_step(item, entry, entry.row_id, self._rules, self._map.hashes)
                begun.append((item, decision, entry, after))
            elif decision.action is Action.FORGET and entry is not None:
                begun.append((item, decision, entry, None))
            else:
                self._left(item, decision)
        # Another task may have dealt with all of them: the next ones are due at once.
        self._moved += len(items)
        return begun

    def _known(self, key_hashes: Sequence[bytes]) -> tuple[dict[bytes, MapEntry], set[int]]:
        return self._map.entries(key_hashes), self._map.leased().keys() - {self._lease.fencing_token}

    async def _next(self, count: int) -> list[WorkItem]:
        items: list[WorkItem] = []
        if not self._exhausted:
            try:
                items = self._spool.work(self._place, count)
            except SpoolError as error:
                self._finish(error)
                return []
            if items:
                self._place = (int(items[-1].is_missing), items[-1].seq)
            self._exhausted = len(items) < count
        while self._again and len(items) < count:
            items.append(self._again.popleft())
        return items

    def _put_off(self, item: WorkItem) -> None:
        """Come back to a row that another task has a request for."""
        rounds = self._busy[item.key_hash] = self._busy.get(item.key_hash, 0) + 1
        if rounds <= _BUSY_ROUNDS:
            asyncio.get_running_loop().call_later(_BUSY_SECONDS, self._come_back, item)
            self._waiting += 1
            return
        self._line(item, Outcome.NOT_SENT, reason="another task has a request for this row under way")
        self.counts.not_sent += 1
        self.counts.done += 1

    def _come_back(self, item: WorkItem) -> None:
        self._waiting -= 1
        self._again.append(item)
        self._changed.set()

    def _left(self, item: WorkItem, decision: Decision) -> None:
        """Count a row that another task has dealt with since the source was read."""
        self.counts.done += 1
        if decision.action is Action.UNKNOWN:
            self.counts.unknown += 1
            self._line(item, Outcome.UNKNOWN, reason="the outcome of its creation is unknown")

    async def _write(
        self,
        changes: Sequence[Change],
        finished: Sequence[Result],
        begun: Sequence[tuple[WorkItem, Decision, MapEntry | None, MapEntry | None]],
    ) -> None:
        """Record results and intents in one transaction, then let the requests leave."""
        for pause in (*_WRITE_PAUSES, None):
            try:
                changed = await asyncio.to_thread(self._lease.write, changes)
                break
            except LeaseLostError as error:
                self._finish(error)
                self._unrecorded(finished)
                return
            except DatabaseError as error:
                if pause is None or self._stop.requested or isinstance(self._end, DatabaseError):
                    self._finish(error)
                    self._unrecorded(finished)
                    return
                log.warning("Results cannot be recorded, the provider tries again: %s", error)
                await self._let_pass(pause)
        self._renewed = time.monotonic()
        for result in finished:
            self._count(result)
        for item, decision, before, after in begun:
            if item.key_hash in changed and not self._is_written(changed[item.key_hash], before, after):
                self._again.append(item)
            elif decision.action in (Action.RECORD, Action.FORGET):
                self.counts.recorded += 1
                self.counts.done += 1
            elif after is not None:
                intent = replace(after, version=(before.version if before else 0) + 1)
                self._queue.append(Pending(item, decision, before, intent))
        self._send()

    def _is_written(self, now: MapEntry | None, before: MapEntry | None, after: MapEntry | None) -> bool:
        """Tell whether an earlier attempt to write was carried out although its connection broke."""
        if now is None or after is None:
            return now is after
        mine = (after.state, after.fencing_token, after.row_id, (before.version if before else 0) + 1)
        return mine == (now.state, now.fencing_token, now.row_id, now.version)

    async def _let_pass(self, seconds: float) -> None:
        """Let time pass; a stop ends it."""
        until = time.monotonic() + seconds
        while not self._stop.requested and (left := until - time.monotonic()) > 0:
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), left)
        self._changed.set()

    def _send(self) -> None:
        """Let requests leave, as many at a time as the connection allows."""
        while self._queue and len(self._in_flight) < self._client.settings.max_concurrency and not self._is_ended:
            pending = self._queue.popleft()
            task = asyncio.create_task(self._requests.send(pending))
            self._in_flight[task] = pending
            task.add_done_callback(self._came_back)

    def _came_back(self, task: asyncio.Task[Result]) -> None:
        pending = self._in_flight.pop(task)
        self._changed.set()
        if task.cancelled():
            result = Result(pending, Response.UNKNOWN, reason="the task ended before a response came")
        elif (error := task.exception()) is not None:
            # Not a failure that the client knows: the row is left as after a crash.
            result = Result(pending, Response.UNKNOWN, reason=type(error).__name__)
            self._finish(error if isinstance(error, Exception) else RuntimeError(type(error).__name__))
        else:
            result = task.result()
        self._finished.append(result)
        self._judge(result)
        self._send()

    def _judge(self, result: Result) -> None:
        """End what cannot come to anything good."""
        if result.fatal is not None:
            self._finish(result.fatal)
        if result.response is Response.ACCEPTED:
            self._failures = 0
            if self._rejections < _REJECTIONS_IN_A_ROW:
                self._rejections = 0
        elif result.response is Response.REJECTED:
            self._failures = 0
            self._rejections += 1
            if self._rejections >= _REJECTIONS_IN_A_ROW:
                self._finish(
                    TooManyFailuresError(
                        f"The service rejected {_REJECTIONS_IN_A_ROW} rows in a row, so the cause is likely the same "
                        f"for all: {result.reason} Rows that were sent before are recorded; the rest was not sent. "
                        "Correct the mapping or the list's columns, then clear the task."
                    )
                )
        elif result.response in (Response.NOT_SENT, Response.UNKNOWN):
            self._failures += 1
            if self._failures >= _FAILURES_IN_A_ROW and self._end is None:
                self._finish(
                    NotSyncedError(
                        f"{self._failures} requests in a row failed: {result.reason} Rows that were sent before are "
                        "recorded. A retry of the task sends the rest."
                    )
                )

    def _recorded(self, result: Result) -> Change | None:
        """Return what is to be recorded of a result."""
        pending, response = result.pending, result.response
        item, intent, before = pending.item, pending.intent, pending.before
        if response is Response.ACCEPTED:
            if pending.decision.action is Action.DELETE:
                return Change(intent, None)
            known = before if before is not None else MapEntry(item.key_hash)
            return Change(intent, in_step(item, known, result.row_id, self._rules, self._map.hashes))
        if response is Response.NOT_BEGUN:
            return Change(intent, restored(before))
        if response is Response.NOT_FOUND and not self._reports_deleted(item):
            return Change(intent, None)
        if response is Response.NOT_FOUND:
            return Change(intent, replace(intent, rejected_hash=item.raw_hash or None, fencing_token=None))
        if response is Response.UNKNOWN and pending.decision.action is Action.CREATE:
            return Change(intent, replace(intent, state=RowState.UNKNOWN, fencing_token=None))
        return Change(intent, undone(pending.decision, intent, before))

    async def _record_rejections(self) -> None:
        """Have rejected rows count as rejected, unless all were rejected alike: then the next run sends them again.

        It is recorded once other rows were accepted, or at the end, so that a crash leaves no row behind that a
        failure of the whole service rejected.
        """
        rejected, self._to_reject = self._to_reject, []
        changes: list[Change] = []
        for result in rejected:
            left = undone(result.pending.decision, result.pending.intent, result.pending.before)
            item = result.pending.item
            # With the result recorded, the entry is one version on, or there is none.
            version = 0 if left is None else result.pending.intent.version + 1
            here = MapEntry(item.key_hash, version=version)
            if left is None:
                changes.append(Change(here, MapEntry(item.key_hash, RowState.REJECTED, rejected_hash=item.raw_hash)))
            elif left.state in (RowState.UNKNOWN, RowState.CREATING):
                # What repeats a creation of unknown outcome says nothing about that one.
                continue
            else:
                changes.append(Change(here, replace(left, rejected_hash=item.raw_hash or None)))
        if changes:
            # What cannot be recorded is sent once more, and rejected once more.
            with contextlib.suppress(LeaseLostError, DatabaseError):
                await asyncio.to_thread(self._lease.write, changes)

    def _reports_deleted(self, item: WorkItem) -> bool:
        return not item.is_missing and (self._rules.on_deleted_row == "report" or self._rules.mode == "update")

    def _count(self, result: Result) -> None:
        """Count a result that is recorded, and write its line of the results file."""
        if result.response is Response.NOT_BEGUN:
            # One of the rows that remain, as those that the spool still has.
            return
        item, action, counts = result.pending.item, result.pending.decision.action, self.counts
        columns = ", ".join(map(self._names, result.pending.decision.cells)) or None
        response = result.response
        if response is Response.NOT_FOUND and not self._reports_deleted(item):
            if item.is_missing:
                counts.done += 1
            else:
                self._again.append(item)
            return
        counts.done += 1
        if response is Response.ACCEPTED:
            name = {Action.CREATE: Outcome.CREATED, Action.UPDATE: Outcome.UPDATED}.get(action, Outcome.DELETED)
            self._line(item, name, result.row_id, columns)
            setattr(counts, name.value, getattr(counts, name.value) + 1)
            self._to_reject += self._in_a_row
            self._in_a_row.clear()
        elif response in (Response.REJECTED, Response.NOT_FOUND):
            counts.rejected += 1
            if response is Response.REJECTED:
                self._in_a_row.append(result)
            self._line(item, Outcome.REJECTED, result.pending.intent.row_id, columns, result.reason)
        elif response is Response.UNKNOWN and action is Action.CREATE:
            counts.unknown += 1
            self._line(item, Outcome.UNKNOWN, None, columns, result.reason)
        else:
            counts.not_sent += 1
            self._line(item, Outcome.NOT_SENT, result.pending.intent.row_id, columns, result.reason)

    def _unrecorded(self, finished: Sequence[Result]) -> None:
        """Name what was accepted and could not be recorded."""
        for result in finished:
            accepted = result.response is Response.ACCEPTED
            reason = "the service accepted it, and the key map could not record that" if accepted else result.reason
            if result.pending.decision.action is Action.CREATE:
                self._line(result.pending.item, Outcome.UNKNOWN, result.row_id, None, reason)
                self.counts.unknown += 1
            else:
                self._line(result.pending.item, Outcome.NOT_SENT, result.row_id, None, reason)
                self.counts.not_sent += 1
        if isinstance(self._end, LeaseLostError):
            # Nothing can be recorded of what has not left yet.
            self._queue.clear()

    def _give_back(self) -> None:
        """Have rows that wait for their request be as they were before their intent."""
        while self._queue:
            self._finished.append(Result(self._queue.popleft(), Response.NOT_BEGUN))

    def _line(
        self,
        item: WorkItem,
        outcome: Outcome,
        row_id: str | None = None,
        columns: str | None = None,
        reason: str | None = None,
    ) -> None:
        try:
            self._spool.add_outcomes([OutcomeLine(item.number, item.name, outcome, row_id, columns, reason)])
        except SpoolError as error:
            # Responses that are on their way are still recorded in the map.
            self._finish(error)

    def _finish(self, error: Exception) -> None:
        """Begin nothing further; the first reason counts."""
        if self._end is None:
            self._end = error
            self._client.stop()
        self._changed.set()

    async def _watch(self) -> None:
        """End in good order when the task has to stop."""
        await self._stop.wait()
        self._finish(
            StoppedError(
                "The task was asked to stop. Rows that were sent are recorded. A retry of the task sends the rest."
            )
        )
        await asyncio.sleep(self._stop.grace_left)
        for task in list(self._in_flight):
            task.cancel()

    async def _wait(self) -> None:
        """Wait until a response is there, or it is time to prolong the lease."""
        until = self._renewed + _RENEWAL_SECONDS
        if self._ends_at is not None:
            until = min(until, self._ends_at)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), max(0.0, until - time.monotonic()))
        self._changed.clear()
        if time.monotonic() - self._renewed >= _RENEWAL_SECONDS:
            self._renewed = time.monotonic()
            try:
                await asyncio.to_thread(self._lease.renew)
            except (LeaseLostError, DatabaseError) as error:
                self._finish(error)
