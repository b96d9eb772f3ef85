"""The dispatcher: stores intents in the key map, sends requests concurrently, and records their results in groups."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, TypeVarTuple

from cpaas_provider.api.errors import CpaasError
from cpaas_provider.contacts.errors import LeaseLostError, SharedRowError, SpoolError, StoppedError
from cpaas_provider.contacts.key_map.entries import Change, MapEntry, RowState
from cpaas_provider.contacts.key_map.key_map import Lease
from cpaas_provider.contacts.mapping.rows import RowMapping
from cpaas_provider.contacts.sync.decisions import Action, Decision, SyncRules, decide, in_step, requested
from cpaas_provider.contacts.sync.limits import Cause, FailureLimits
from cpaas_provider.contacts.sync.results import Counts, ResultRecorder
from cpaas_provider.contacts.sync.rows.requests import Pending, Response, Result, RowRequests, other_row_error
from cpaas_provider.contacts.sync.spool import RowOutcome, Spool, WorkItem
from cpaas_provider.contacts.sync.work import PendingWindow, ProbedWork
from cpaas_provider.database.errors import DatabaseError

if TYPE_CHECKING:
    from cpaas_provider.api.client import AsyncCpaasClient
    from cpaas_provider.api.models.contacts import ContactTable

log = logging.getLogger(__name__)

Arguments = TypeVarTuple("Arguments")
Returned = TypeVar("Returned")

_BUSY_ROUNDS = 30
_BUSY_SECONDS = 1.0
_LONGEST_WAIT = 60.0
"""Seconds after which the lease is looked at."""
_WRITE_PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Seconds between attempts to use the database. A database server needs about a minute to fail over."""


_Started = tuple[WorkItem, Decision, MapEntry, MapEntry | None]
"""A row, its decision, its entry in the map (of version 0 if there is none), and the entry to store."""


class StopSignal(Protocol):
    """Tells when a task has to stop."""

    @property
    def requested(self) -> bool:
        """Whether the task has to stop, so that no further request may start."""

    @property
    def grace_left(self) -> float:
        """After the stop was requested: the seconds that are left to wait for responses."""

    async def wait(self) -> None:
        """Return once the stop is requested."""


class Dispatcher:
    """Sends the rows of a spool.

    At most ``window`` requests have an intent and no recorded result, and fewer if that is enough for the rate. So a
    crash leaves at most that many creations with an unknown outcome.

    After many rejections or failures in a row, rows from elsewhere in the work show whether the service handles any
    row: see ``FailureLimits``. A run after one that ended so starts elsewhere in the work, and so does one after a run
    that failed to send rows and did not come to its end, or whose time was over.

    :param names: names of the list's columns, by id
    :param per_second: the requests per second that the connection allows
    :param planned: the number of requests that the plan needs
    :param tolerated: the number of rejections that the author tolerates
    :param ends_at: the time of the monotonic clock after which no further request starts; ``None`` for no limit
    """

    def __init__(
        self,
        lease: Lease,
        mapping: RowMapping,
        rules: SyncRules,
        spool: Spool,
        client: AsyncCpaasClient,
        stop: StopSignal,
        *,
        window: int,
        per_second: float,
        names: Mapping[str, str],
        planned: int,
        tolerated: int,
        ends_at: float | None,
        counts: Counts,
    ) -> None:
        self._lease = lease
        self._map = lease.key_map
        self._rules = rules
        self._spool = spool
        self._requests = RowRequests(client, mapping, self._map, names)
        self._client = client
        self._stop = stop
        self._window = PendingWindow(window, per_second)
        self._ends_at = ends_at
        self._counts = counts
        self._out_of_time = False
        self._end: Exception | None = None
        self._handled = 0
        self._busy: dict[bytes, int] = {}
        self._waiting = 0
        self._queue: deque[Pending] = deque()
        self._in_flight: dict[asyncio.Task[Result], Pending] = {}
        self._finished: list[Result] = []
        self._ended_key = "ended/{}-{}".format(*lease.buckets)
        self._ended_before = self._map.value(self._ended_key)
        self._limits = FailureLimits(planned, tolerated, self._ended_before)
        start = random.random() if self._ended_before else 0.0  # noqa: S311 - no secret
        self._work = ProbedWork(spool, self._limits, start)
        self._table_check: asyncio.Future[ContactTable] | None = None
        self._results = ResultRecorder(lease, rules, spool, self._counts, names=names, on_error=self._finish)
        self._changed = asyncio.Event()

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
            tasks: list[asyncio.Future[Any]] = [watcher, *self._in_flight, *filter(None, [self._table_check])]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._counts.requests = self._requests.count
        are_proved = self._limits.proves_rejections(all_sent=not self._is_ended)
        await self._results.record_rejections(is_end=True, are_proved=are_proved)
        # Recorded so that the next run starts elsewhere.
        unproved = self._limits.unproved
        if unproved is None and self._is_ended and (self._out_of_time or self._counts.not_sent + self._counts.unknown):
            # Rows that always fail, or change before each run, may take all its time. So they must not come first each
            # time.
            unproved = Cause.FAILURES
        cause = None if unproved is None else unproved.value
        if cause != self._ended_before:
            with contextlib.suppress(LeaseLostError, DatabaseError):
                await asyncio.to_thread(self._lease.write, [], {self._ended_key: cause})
        if self._end is not None:
            raise self._end

    async def _round(self) -> bool:
        """Record results, start as many rows as the window allows, and return whether anything is left."""
        if self._ends_at is not None and time.monotonic() >= self._ends_at:
            self._out_of_time = bool(self._queue) or not self._all_started
            self._ends_at = None
        if self._is_ended or self._limits.is_holding:
            # The requests of these rows have not left, so their intents are undone.
            self._finished += [Result(pending, Response.NOT_BEGUN) for pending in self._queue]
            self._queue.clear()
        if self._limits.is_holding and not self._is_ended and self._table_check is None:
            # It costs nothing, so it comes before another row is risked.
            self._table_check = asyncio.ensure_future(self._client.get_contact_table())
            self._table_check.add_done_callback(self._on_table)
        finished, self._finished = self._finished, []
        self._window.add_results(len(finished))
        handled = self._handled
        started = await self._start_rows()
        if finished or started:
            await self._write(finished, started)
            await self._results.record_rejections()
            return True
        if self._handled != handled:
            return True
        if not self._pending and (self._is_ended or self._all_started):
            return False
        await self._wait()
        return True

    async def _disprove_shared(self, finished: Sequence[Result]) -> tuple[list[Result], list[Change]]:
        """Make the creations unknown whose responses have the id of another key's row, in this or another map.

        :return: the results, and the changes of rows that this run recorded before with such an id
        :raises DatabaseError: when the map cannot be read
        """
        keys: dict[str, list[bytes]] = {}
        for result in finished:
            if result.created_id is not None:
                keys.setdefault(result.created_id, []).append(result.pending.item.key_hash)
        owners: list[MapEntry] = []
        other_maps: dict[str, str] = {}
        for name, entry in await self._in_database(self._map.owners_of_rows, list(keys)):
            if name == self._map.facts.name:
                owners.append(entry)
                keys[entry.row_id or ""].append(entry.key_hash)
            else:
                other_maps[entry.row_id or ""] = name
        checked: list[Result] = []
        for result in finished:
            other_keys = [key for key in keys.get(result.created_id or "", ()) if key != result.pending.item.key_hash]
            other_map = other_maps.get(result.created_id or "")
            if other_keys or other_map is not None:
                number = self._spool.number_of(other_keys[0]) if other_keys else None
                where = "a row that the source does not have" if number is None else f"row {number}"
                if other_map is not None:
                    where = f"a row of the contact map {other_map!r}"
                error = other_row_error(result.pending.item, f"has the id of {where}")
                self._finish(error)
                checked.append(Result(result.pending, Response.UNKNOWN, reason=str(error), fatal=error))
            else:
                checked.append(result)
        own = (*self._counts.earlier.tokens, self._lease.fencing_token)
        # A row that another run recorded has proved its id since. Of two rows of this run, either may be the wrong one.
        unresolved = [entry for entry in owners if entry.fencing_token in own and entry.source_row is not None]
        unknown = [MapEntry(entry.key_hash, RowState.UNKNOWN, source_row=entry.source_row) for entry in unresolved]
        return checked, list(map(Change, unresolved, unknown))

    @property
    def _pending(self) -> int:
        """The number of rows with an intent and no recorded result."""
        return len(self._queue) + len(self._in_flight) + len(self._finished)

    @property
    def _is_ended(self) -> bool:
        return self._end is not None or self._out_of_time

    @property
    def _all_started(self) -> bool:
        return self._work.is_exhausted and not self._waiting

    async def _start_rows(self) -> list[_Started]:
        """Return the next rows that the window allows."""
        if self._is_ended or self._limits.is_holding or not (room := self._window.room(self._pending)):
            return []
        items: list[WorkItem] = []
        try:
            items = self._work.next(room)
            if not items:
                return []
            entries = await self._in_database(self._map.entries, [item.key_hash for item in items])
        except (DatabaseError, SpoolError) as error:
            for item in items:
                self._work.put_back(item)
            self._finish(error)
            return []
        started: list[_Started] = []
        for item in items:
            entry = entries.get(item.key_hash)
            before = entry or MapEntry(item.key_hash)
            decision = decide(item, entry, self._rules, self._lease)
            if decision.action is Action.BUSY:
                self._requeue_later(item)
            elif decision.action in (Action.CREATE, Action.UPDATE, Action.DELETE):
                started.append((item, decision, before, requested(decision, item, before, self._lease)))
            elif decision.action is Action.RECORD:
                after = in_step(item, before, before.row_id, self._rules, self._map.hashes)
                started.append((item, decision, before, after))
            elif decision.action is Action.FORGET:
                started.append((item, decision, before, None))
            else:
                # Another task handled the row since the source was read.
                self._work.end_probe(item)
                if decision.action is Action.UNKNOWN:
                    reason = "the outcome of its creation is unknown"
                    self._results.count_without_request(item, RowOutcome.UNKNOWN, reason)
                else:
                    self._counts.add_without_request(item, decision.action)
        # If none of these rows needs a request, run() must read the next rows at once instead of waiting.
        self._handled += len(items)
        return started

    def _requeue_later(self, item: WorkItem) -> None:
        """Try a row again later, because another task has a request for it in flight."""
        rounds = self._busy[item.key_hash] = self._busy.get(item.key_hash, 0) + 1
        if rounds <= _BUSY_ROUNDS:
            asyncio.get_running_loop().call_later(_BUSY_SECONDS, self._requeue, item)
            self._waiting += 1
            return
        self._work.end_probe(item)
        reason = "another task has a request for this row under way"
        self._results.count_without_request(item, RowOutcome.NOT_SENT, reason)

    def _requeue(self, item: WorkItem) -> None:
        self._waiting -= 1
        self._work.put_back(item)
        self._changed.set()

    async def _write(self, finished: Sequence[Result], started: Sequence[_Started]) -> None:
        """Record results and intents in one transaction, then let the requests leave."""
        disproved: list[Change] = []
        try:
            while True:
                changes = [*disproved, *map(self._results.change_of, finished)]
                changes += [Change(before, after) for _, _, before, after in started]
                try:
                    changed = await self._in_database(self._lease.write, changes, self._results.run_values(finished))
                    break
                except SharedRowError:
                    # Another task may record a further row meanwhile, so this may happen several times.
                    finished, further = await self._disprove_shared(finished)
                    disproved += further
        except (LeaseLostError, DatabaseError) as error:
            self._finish(error)
            self._results.count_unrecorded(finished)
            if isinstance(self._end, LeaseLostError):
                # These requests have not left, and without the lease their intents cannot be undone.
                self._queue.clear()
            return
        for result in finished:
            if self._results.count(result) or (result.response is Response.NOT_BEGUN and not self._is_ended):
                self._work.put_back(result.pending.item)
        for item, decision, before, after in started:
            if item.key_hash in changed and not self._is_written(changed[item.key_hash], before, after):
                self._work.put_back(item)
            elif decision.action in (Action.RECORD, Action.FORGET):
                self._work.end_probe(item)
                self._counts.add_without_request(item, decision.action)
            elif after is not None:
                self._queue.append(Pending(item, decision, before, replace(after, version=before.version + 1)))
        self._send()

    async def _in_database(self, work: Callable[[*Arguments], Returned], *arguments: *Arguments) -> Returned:
        """Return what a function returns that uses the database. Try again while the database cannot be used."""
        for pause in _WRITE_PAUSES:
            try:
                return await asyncio.to_thread(work, *arguments)
            except DatabaseError as error:
                if self._stop.requested or isinstance(self._end, DatabaseError):
                    raise
                log.warning("The database cannot be used, the provider tries again: %s", error)
                await self._sleep(pause)
        return await asyncio.to_thread(work, *arguments)

    def _is_written(self, now: MapEntry | None, before: MapEntry, after: MapEntry | None) -> bool:
        """Tell whether an earlier attempt of this write was committed although its connection broke."""
        if now is None or after is None:
            return now is after
        written = (after.state, after.fencing_token, after.row_id, before.version + 1)
        return written == (now.state, now.fencing_token, now.row_id, now.version)

    async def _sleep(self, seconds: float) -> None:
        """Sleep until a stop is requested."""
        until = time.monotonic() + seconds
        while not self._stop.requested and (left := until - time.monotonic()) > 0:
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), left)
        self._changed.set()

    def _send(self) -> None:
        """Start queued requests, up to the connection's ``max_concurrency`` in flight."""
        if self._limits.is_holding:
            return
        while self._queue and len(self._in_flight) < self._client.settings.max_concurrency and not self._is_ended:
            pending = self._queue.popleft()
            task = asyncio.create_task(self._requests.send(pending))
            self._in_flight[task] = pending
            task.add_done_callback(self._on_response)

    def _on_response(self, task: asyncio.Task[Result]) -> None:
        pending = self._in_flight.pop(task)
        self._changed.set()
        if task.cancelled():
            result = Result(pending, Response.UNKNOWN, reason="the task ended before a response came")
        elif (error := task.exception()) is not None:
            # Not an error of the client: the row is handled as after a crash.
            result = Result(pending, Response.UNKNOWN, reason=type(error).__name__)
            self._finish(error if isinstance(error, Exception) else RuntimeError(type(error).__name__))
        else:
            result = task.result()
        self._finished.append(result)
        if result.fatal is not None:
            self._finish(result.fatal)
        is_probe = self._work.end_probe(result.pending.item)
        if (ending := self._limits.check(result, is_probe=is_probe)) is not None:
            self._finish(ending)
        self._send()

    def _on_table(self, check: asyncio.Future[ContactTable]) -> None:
        self._table_check = None
        self._changed.set()
        if check.cancelled():
            return
        if (error := check.exception()) is None:
            self._limits.end_holding()
        elif isinstance(error, CpaasError):
            self._finish(self._limits.outage(str(error)))
        else:
            self._finish(RuntimeError(type(error).__name__))

    def _finish(self, error: Exception) -> None:
        """Start no further request. ``run`` raises the first error that is passed here."""
        if self._end is None:
            self._end = error
            self._client.stop()
        self._changed.set()

    async def _watch(self) -> None:
        """When the task has to stop, start nothing more, and cancel requests after the grace period."""
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
        """Wait for a response, and renew the lease if it is due."""
        seconds = _LONGEST_WAIT
        if self._ends_at is not None:
            seconds = min(seconds, max(0.0, self._ends_at - time.monotonic()))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), seconds)
        self._changed.clear()
        if self._lease.is_renewal_due:
            try:
                await asyncio.to_thread(self._lease.renew)
            except (LeaseLostError, DatabaseError) as error:
                self._finish(error)
